//! A simulated cluster of RADOS.
//!
//! Objects are on OSDs, by a hash of their names. Operations on an object are atomic and in order.
//! The blocklist is a part of the cluster's map: an OSD learns of it only from a client that uses
//! the OSD with a newer map. Until then it carries out what a fenced client sends, as real ones do.
//! A client's operations can be held, as by a hanging network or a suspended machine, and carried
//! out later in any order of objects, or lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use weir_rados::{Comparison, Done, Holder, Objects, PoolSpace, Step};

use crate::rand::Choices;

/// OSDs of a cluster.
const OSDS: usize = 3;

#[derive(Clone, Default)]
struct Object {
    bytes: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
}

struct Lock {
    holder: Holder,
}

enum Work {
    Read(u64, usize, Done<Vec<u8>>),
    Operate(Vec<Step>, Done<()>),
}

struct HeldRequest {
    client: u64,
    object: String,
    work: Work,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    locks: HashMap<(String, String), Lock>,
    /// Number of the newest map.
    map: u64,
    /// Map since which an address is on the blocklist.
    blocklist: HashMap<String, u64>,
    /// Map that each OSD has.
    osds: [u64; OSDS],
    /// Map that each client has.
    clients: HashMap<u64, u64>,
    /// Clients whose operations are held.
    holding: Vec<u64>,
    held: VecDeque<HeldRequest>,
    /// Bytes that the pool takes; none is no bound.
    capacity: Option<u64>,
    /// Calls that clients make before they die.
    lives: HashMap<u64, u64>,
    /// Fencing is refused.
    may_not_fence: bool,
    /// No monitor answers.
    stalled: bool,
    operations: u64,
}

/// A cluster with one pool.
#[derive(Default)]
pub struct Cluster {
    state: Mutex<State>,
    /// Wakes those who wait for monitors.
    answers: Condvar,
}

/// A client of a cluster.
#[derive(Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
    number: u64,
}

fn error(code: i32) -> io::Error {
    // The numbers of Linux, on which RADOS runs.
    io::Error::from_raw_os_error(code)
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;
const EACCES: i32 = 13;
const ESHUTDOWN: i32 = 108;
const ECANCELED: i32 = 125;

fn osd_of(object: &str) -> usize {
    crc32c::crc32c(object.as_bytes()) as usize % OSDS
}

fn address_of(client: u64) -> String {
    format!("10.0.0.{client}:0/{client}")
}

impl State {
    /// Counts a call of a client, and refuses it if the client is dead.
    fn live(&mut self, client: u64) -> io::Result<()> {
        match self.lives.get_mut(&client) {
            Some(0) => Err(error(EIO)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Tells the object's OSD of the client's map, and refuses the client if the OSD knows that it
    /// is fenced.
    fn admit(&mut self, client: u64, object: &str) -> io::Result<()> {
        self.live(client)?;
        let map = self.clients.get(&client).copied().unwrap_or(0);
        let osd = &mut self.osds[osd_of(object)];
        *osd = (*osd).max(map);
        let fenced = self.blocklist.get(&address_of(client));
        match fenced {
            Some(since) if since <= osd => Err(error(ESHUTDOWN)),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        self.objects.values().map(|o| o.bytes.len() as u64).sum()
    }

    fn operate(&mut self, client: u64, object: &str, steps: &[Step]) -> io::Result<()> {
        self.admit(client, object)?;
        self.operations += 1;
        let before = self.objects.get(object);
        let before_bytes = before.map_or(0, |o| o.bytes.len() as u64);
        let existed = before.is_some();
        let mut next = before.cloned();
        for step in steps {
            match step {
                Step::Create { exclusive } => {
                    if *exclusive && next.is_some() {
                        return Err(error(EEXIST));
                    }
                    next.get_or_insert_default();
                }
                Step::Compare {
                    attribute,
                    comparison,
                    value,
                } => {
                    if !existed {
                        return Err(error(ENOENT));
                    }
                    let attributes = next.as_ref().map(|object| &object.attributes);
                    let found = attributes.and_then(|a| a.get(*attribute));
                    let found = found.cloned().unwrap_or_default();
                    let holds = match comparison {
                        Comparison::Equal => *value == found,
                        Comparison::GreaterOrEqual => *value >= found,
                    };
                    if !holds {
                        return Err(error(ECANCELED));
                    }
                }
                Step::Set { attribute, value } => {
                    let attributes = &mut next.get_or_insert_default().attributes;
                    attributes.insert((*attribute).to_owned(), value.clone());
                }
                Step::Write { offset, bytes } => {
                    let object = next.get_or_insert_default();
                    let from = usize::try_from(*offset).unwrap();
                    let length = object.bytes.len().max(from + bytes.len());
                    object.bytes.resize(length, 0);
                    object.bytes[from..from + bytes.len()].copy_from_slice(bytes);
                }
                Step::Replace(bytes) => next.get_or_insert_default().bytes.clone_from(bytes),
                Step::Remove => {
                    if next.take().is_none() {
                        return Err(error(ENOENT));
                    }
                }
            }
        }
        let after = next.as_ref().map_or(0, |o| o.bytes.len() as u64);
        let full = |most: u64| after > before_bytes && self.used() - before_bytes + after > most;
        if self.capacity.is_some_and(full) {
            return Err(error(ENOSPC));
        }
        match next {
            Some(next) => drop(self.objects.insert(object.to_owned(), next)),
            None => drop(self.objects.remove(object)),
        }
        Ok(())
    }

    fn read(&mut self, client: u64, object: &str, at: u64, length: usize) -> io::Result<Vec<u8>> {
        self.admit(client, object)?;
        let found = self.objects.get(object).ok_or_else(|| error(ENOENT))?;
        let from = usize::try_from(at).unwrap().min(found.bytes.len());
        let to = (from + length).min(found.bytes.len());
        Ok(found.bytes[from..to].to_vec())
    }

    /// Carries out an operation, and returns what reports its result.
    fn carry_out(&mut self, client: u64, object: &str, work: Work) -> Box<dyn FnOnce()> {
        match work {
            Work::Read(at, length, done) => {
                let read = self.read(client, object, at, length);
                Box::new(move || done(read))
            }
            Work::Operate(steps, done) => {
                let done_result = self.operate(client, object, &steps);
                Box::new(move || done(done_result))
            }
        }
    }
}

impl Cluster {
    /// Creates a cluster with an empty pool.
    pub fn new() -> Arc<Cluster> {
        Arc::default()
    }

    /// Connects a client, which gets the newest map. Numbers are unique.
    pub fn client(self: &Arc<Self>, number: u64) -> Client {
        let mut state = self.state.lock();
        let map = state.map;
        state.clients.insert(number, map);
        drop(state);
        Client {
            cluster: Arc::clone(self),
            number,
        }
    }

    /// Bounds the bytes that the pool takes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Makes a client die after so many more calls.
    pub fn kill_after(&self, client: &Client, calls: u64) {
        self.state.lock().lives.insert(client.number, calls);
    }

    /// Makes the monitors refuse fencing, as for a user without that right, or not any more.
    pub fn allow_fencing(&self, allow: bool) {
        self.state.lock().may_not_fence = !allow;
    }

    /// Makes the monitors answer nobody, or again.
    pub fn stall_monitors(&self, stall: bool) {
        self.state.lock().stalled = stall;
        self.answers.notify_all();
    }

    /// Holds a client's operations from now on, or lets them through again.
    pub fn hold(&self, client: &Client, hold: bool) {
        let mut state = self.state.lock();
        state.holding.retain(|held| *held != client.number);
        if hold {
            state.holding.push(client.number);
        }
    }

    /// Returns the number of operations that are held.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Carries out held operations, those on different objects in any order.
    pub fn release(&self, choices: &Choices) {
        loop {
            let mut state = self.state.lock();
            if state.held.is_empty() {
                return;
            }
            let object = choices.pick(state.held.make_contiguous()).object.clone();
            let first = state.held.iter().position(|held| held.object == object);
            let Some(held) = first.and_then(|first| state.held.remove(first)) else {
                return;
            };
            let report = state.carry_out(held.client, &held.object, held.work);
            drop(state);
            report();
        }
    }

    /// Loses held operations, as those of a client that died before it had sent them.
    pub fn lose(&self) {
        let lost = std::mem::take(&mut self.state.lock().held);
        drop(lost);
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> usize {
        self.state.lock().objects.len()
    }

    /// Returns the bytes of an object.
    pub fn bytes(&self, object: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.objects.get(object).map(|object| object.bytes.clone())
    }
}

impl Client {
    fn begin(&self, object: &str, work: Work) {
        let mut state = self.cluster.state.lock();
        if state.holding.contains(&self.number) {
            state.held.push_back(HeldRequest {
                client: self.number,
                object: object.to_owned(),
                work,
            });
            return;
        }
        let report = state.carry_out(self.number, object, work);
        drop(state);
        report();
    }
}

impl Objects for Client {
    fn read(&self, object: &str, offset: u64, length: usize, done: Done<Vec<u8>>) {
        self.begin(object, Work::Read(offset, length, done));
    }

    fn operate(&self, object: &str, steps: Vec<Step>, done: Done<()>) {
        self.begin(object, Work::Operate(steps, done));
    }

    fn attribute(&self, object: &str, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.cluster.state.lock();
        state.admit(self.number, object)?;
        let found = state.objects.get(object);
        Ok(found
            .and_then(|object| object.attributes.get(name))
            .cloned())
    }

    fn lock(&self, object: &str, name: &str, cookie: &str, _description: &str) -> io::Result<()> {
        let mut state = self.cluster.state.lock();
        state.admit(self.number, object)?;
        let key = (object.to_owned(), name.to_owned());
        if state.locks.contains_key(&key) {
            return Err(error(EBUSY));
        }
        state.objects.entry(object.to_owned()).or_default();
        let holder = Holder {
            client: self.number.to_string(),
            cookie: cookie.to_owned(),
            address: address_of(self.number),
        };
        state.locks.insert(key, Lock { holder });
        Ok(())
    }

    fn unlock(&self, object: &str, name: &str, cookie: &str) -> io::Result<()> {
        let mut state = self.cluster.state.lock();
        state.admit(self.number, object)?;
        let key = (object.to_owned(), name.to_owned());
        let ours = state.locks.get(&key).is_some_and(|lock| {
            lock.holder.client == self.number.to_string() && lock.holder.cookie == cookie
        });
        match ours {
            true => drop(state.locks.remove(&key)),
            false => return Err(error(ENOENT)),
        }
        Ok(())
    }

    fn holders(&self, object: &str, name: &str) -> io::Result<Vec<Holder>> {
        let mut state = self.cluster.state.lock();
        state.admit(self.number, object)?;
        let lock = state.locks.get(&(object.to_owned(), name.to_owned()));
        Ok(lock.map(|lock| lock.holder.clone()).into_iter().collect())
    }

    fn break_lock(&self, object: &str, name: &str, holder: &Holder) -> io::Result<()> {
        let mut state = self.cluster.state.lock();
        state.admit(self.number, object)?;
        let key = (object.to_owned(), name.to_owned());
        if state
            .locks
            .get(&key)
            .is_some_and(|lock| lock.holder == *holder)
        {
            state.locks.remove(&key);
        }
        Ok(())
    }

    fn fence(&self, address: &str) -> io::Result<()> {
        let mut state = self.cluster.state.lock();
        state.live(self.number)?;
        self.cluster.answers.wait_while(&mut state, |s| s.stalled);
        if state.may_not_fence {
            return Err(error(EACCES));
        }
        state.map += 1;
        let map = state.map;
        // One that is on the list already has been refused since the map that it came with.
        state.blocklist.entry(address.to_owned()).or_insert(map);
        state.clients.insert(self.number, map);
        Ok(())
    }

    fn update_map(&self) -> io::Result<()> {
        let mut state = self.cluster.state.lock();
        state.live(self.number)?;
        self.cluster.answers.wait_while(&mut state, |s| s.stalled);
        let map = state.map;
        state.clients.insert(self.number, map);
        Ok(())
    }

    fn space(&self) -> io::Result<PoolSpace> {
        let state = self.cluster.state.lock();
        let used = state.used();
        let capacity = state.capacity.unwrap_or(1 << 40);
        Ok(PoolSpace {
            used,
            // Saturates: it may have been made smaller.
            available: capacity.saturating_sub(used),
        })
    }
}
