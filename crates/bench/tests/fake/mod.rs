//! A small NFSv3 server in memory, good and bad on request.
//!
//! It replies as RFC 1813 says from a few maps, over real sockets, with the codec of the
//! generator under test for primitives only. [`Mischief`] makes it break one rule at a time, to
//! see that the generator notices.

mod v4;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_bench::xdr::{Reader, put_opaque, put_u32, put_u64};

/// Faults of the server.
// Each of the tests that share this server uses some of it.
#[allow(dead_code)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// Nothing: it keeps to RFC 1813.
    None,
    /// Every n-th call of the load gets NFS3ERR_JUKEBOX first.
    Jukebox(u64),
    /// Replies come in fragments of this many bytes.
    Fragments(usize),
    /// Replies to calls received together come in reverse.
    Reverse,
    /// READs return half of what was asked for.
    ShortReads,
    /// READ's count differs from its data.
    WrongCount,
    /// WRITEs are claimed to be UNSTABLE.
    WeakStability,
    /// READs return the data of another offset.
    Misplace,
    /// The write verifier changes with every reply.
    Verifier,
    /// A reply has bytes behind its results.
    Trailing,
    /// Replies bear another XID.
    WrongXid,
    /// GETATTR fails with NFS3ERR_STALE.
    Stale,
    /// The connection closes after this many calls.
    Close(u64),
    /// The server ends after this many calls in all: its connections close, and it
    /// takes no new ones.
    Die(u64),
    /// The call with this number, of all, takes 400 ms, and all behind it wait.
    Stall(u64),
    /// WRITEs fail with NFS3ERR_NOSPC.
    Full,
    /// Sessions get so many slots at most.
    Slots(u32),
    /// SEQUENCE's results in slot 3 are those of another call.
    WrongTurn,
}

enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
    v4: v4::V4,
}

/// The server; it lives as long as the test's process.
pub struct Fake {
    pub addr: SocketAddr,
    /// NFS calls by procedure number.
    pub calls: Arc<[AtomicU64; 22]>,
    state: Arc<Mutex<State>>,
}

const ROOT: u64 = 1;
const OK: u32 = 0;

impl Fake {
    pub fn start(mischief: Mischief) -> Self {
        let state = Arc::new(Mutex::new(State {
            nodes: HashMap::from([(ROOT, Node::Dir(BTreeMap::new()))]),
            next: ROOT + 1,
            v4: v4::V4::default(),
        }));
        let calls: Arc<[AtomicU64; 22]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            addr: listen(&state, &calls, mischief),
            calls,
            state,
        }
    }

    /// Serves the same files at another address; returns it, and the calls there by number.
    pub fn serve_elsewhere(&self) -> (SocketAddr, Arc<[AtomicU64; 22]>) {
        let calls: Arc<[AtomicU64; 22]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let addr = listen(&self.state, &calls, Mischief::None);
        (addr, calls)
    }

    /// Calls of one procedure so far.
    pub fn count(&self, procedure: usize) -> u64 {
        self.calls[procedure].load(Ordering::SeqCst)
    }

    /// Operations of one number so far, over NFSv4.
    pub fn operations(&self, number: u32) -> u64 {
        let state = self.state.lock().unwrap();
        state.v4.operations.get(&number).copied().unwrap_or(0)
    }

    /// Clients, sessions and opens that are left; most opens at once; highest slot used.
    pub fn sessions(&self) -> (usize, usize, u32) {
        let v4 = &self.state.lock().unwrap().v4;
        (v4.left(), v4.most_open, v4.highest_slot)
    }

    /// Files and directories there are, the root included.
    pub fn nodes(&self) -> usize {
        self.state.lock().unwrap().nodes.len()
    }
}

/// Serves the files of `state` at an address of its own; returns it.
fn listen(
    state: &Arc<Mutex<State>>,
    calls: &Arc<[AtomicU64; 22]>,
    mischief: Mischief,
) -> SocketAddr {
    let (state, calls) = (state.clone(), calls.clone());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if matches!(mischief, Mischief::Die(n) if total(&calls) >= n) {
                return;
            }
            let mut connection = Connection {
                state: state.clone(),
                calls: calls.clone(),
                mischief,
                seen: 0,
                refused: HashMap::new(),
            };
            std::thread::spawn(move || connection.serve(stream.unwrap()));
        }
    });
    addr
}

/// NFS calls of all procedures so far.
fn total(calls: &[AtomicU64; 22]) -> u64 {
    calls.iter().map(|c| c.load(Ordering::SeqCst)).sum()
}

struct Connection {
    state: Arc<Mutex<State>>,
    calls: Arc<[AtomicU64; 22]>,
    mischief: Mischief,
    seen: u64,
    refused: HashMap<Vec<u8>, ()>,
}

impl Connection {
    fn serve(&mut self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut buffer = vec![0; 2 << 20];
        let mut filled = 0;
        loop {
            let n = match stream.read(&mut buffer[filled..]) {
                Ok(0) | Err(_) => return,
                Ok(n) => n,
            };
            filled += n;
            let mut at = 0;
            let mut replies = Vec::new();
            while filled - at >= 4 {
                let mark = u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
                assert_ne!(mark & 0x8000_0000, 0, "calls come in one fragment");
                let len = (mark & 0x7fff_ffff) as usize;
                if filled - at - 4 < len {
                    break;
                }
                replies.push(self.call(&buffer[at + 4..at + 4 + len]));
                at += 4 + len;
                self.seen += 1;
                match self.mischief {
                    Mischief::Close(n) if self.seen >= n => return,
                    Mischief::Die(n) if total(&self.calls) >= n => {
                        // Wakes the listener, which then sees that it is over.
                        let _ = TcpStream::connect(stream.local_addr().unwrap());
                        return;
                    }
                    Mischief::Stall(n) if total(&self.calls) == n => {
                        std::thread::sleep(std::time::Duration::from_millis(400));
                    }
                    _ => {}
                }
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            if self.mischief == Mischief::Reverse {
                replies.reverse();
            }
            let mut out = Vec::new();
            for reply in replies {
                let size = match self.mischief {
                    Mischief::Fragments(size) => size,
                    _ => reply.len(),
                };
                let count = reply.len().div_ceil(size);
                for (i, fragment) in reply.chunks(size).enumerate() {
                    let last = if i + 1 == count { 0x8000_0000 } else { 0 };
                    put_u32(&mut out, last | fragment.len() as u32);
                    out.extend_from_slice(fragment);
                }
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    fn call(&mut self, record: &[u8]) -> Vec<u8> {
        let mut r = Reader::new(record);
        let xid = r.u32().unwrap();
        assert_eq!((r.u32(), r.u32()), (Ok(0), Ok(2)), "a call, RPC version 2");
        let program = r.u32().unwrap();
        let version = r.u32().unwrap();
        let procedure = r.u32().unwrap() as usize;
        assert_eq!(r.u32(), Ok(1), "AUTH_SYS");
        r.opaque(400).unwrap();
        r.u32().unwrap();
        r.opaque(400).unwrap();
        let mut out = Vec::new();
        let under_load = self.seen > 0 && program == 100_003;
        put_u32(
            &mut out,
            if self.mischief == Mischief::WrongXid && self.is_load(procedure) {
                xid ^ 0x0100_0000
            } else {
                xid
            },
        );
        for v in [1, 0, 0, 0, 0] {
            put_u32(&mut out, v);
        }
        if version == 4 {
            if procedure == 1 {
                let state = &mut *self.state.lock().unwrap();
                v4::compound(state, self.mischief, &mut r, &mut out);
            }
            return out;
        }
        assert_eq!(version, 3);
        if program == 100_005 {
            assert_eq!(procedure, 1);
            assert_eq!(r.opaque(1024), Ok(&b"/vol1"[..]));
            put_u32(&mut out, OK);
            put_handle(&mut out, ROOT);
            put_u32(&mut out, 1);
            put_u32(&mut out, 1);
            return out;
        }
        self.calls[procedure].fetch_add(1, Ordering::SeqCst);
        if let Mischief::Jukebox(n) = self.mischief {
            let arguments = r.rest().to_vec();
            if under_load
                && procedure != 0
                && self.seen % n == 0
                && self.refused.insert(arguments, ()).is_none()
            {
                put_u32(&mut out, 10_008);
                if procedure == 1 {
                    return out;
                }
                put_u32(&mut out, 0);
                return out;
            }
        }
        self.execute(procedure, &mut r, &mut out);
        if self.mischief == Mischief::Trailing && self.is_load(procedure) {
            put_u32(&mut out, 7);
        }
        out
    }

    /// Calls that the tests with mischief make as load, not as preparation.
    fn is_load(&self, procedure: usize) -> bool {
        procedure == 4
    }

    fn execute(&mut self, procedure: usize, r: &mut Reader<'_>, out: &mut Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        match procedure {
            0 => {}
            1 => {
                let id = take_handle(r);
                if self.mischief == Mischief::Stale {
                    return put_u32(out, 70);
                }
                put_u32(out, OK);
                put_attributes(out, id, size_of(state, id));
            }
            2 => {
                take_handle(r);
                // The mode alone, and no guard.
                r.fixed(32).unwrap();
                put_u32(out, OK);
                put_wcc(out);
            }
            3 => {
                let (dir, name) = take_name(r);
                match lookup(state, dir, &name) {
                    Some(id) => {
                        put_u32(out, OK);
                        put_handle(out, id);
                        put_u32(out, 1);
                        put_attributes(out, id, size_of(state, id));
                        put_u32(out, 0);
                    }
                    None => {
                        put_u32(out, 2);
                        put_u32(out, 0);
                    }
                }
            }
            4 => {
                take_handle(r);
                put_u32(out, OK);
                put_u32(out, 0);
                put_u32(out, r.u32().unwrap());
            }
            6 => self.read(state, r, out),
            7 => {
                let id = take_handle(r);
                let offset = r.u64().unwrap() as usize;
                let count = r.u32().unwrap();
                let stable = r.u32().unwrap();
                let data = r.opaque(u32::MAX).unwrap();
                if self.mischief == Mischief::Full {
                    put_u32(out, 28);
                    return put_wcc(out);
                }
                assert_eq!(data.len(), count as usize);
                let Some(Node::File(content)) = state.nodes.get_mut(&id) else {
                    panic!("WRITE to no file");
                };
                if content.len() < offset + data.len() {
                    content.resize(offset + data.len(), 0);
                }
                content[offset..offset + data.len()].copy_from_slice(data);
                put_u32(out, OK);
                put_wcc(out);
                put_u32(out, count);
                put_u32(
                    out,
                    if self.mischief == Mischief::WeakStability {
                        0
                    } else {
                        stable
                    },
                );
                self.put_verifier(out);
            }
            8 | 9 => {
                let (dir, name) = take_name(r);
                // CREATE: GUARDED; then an sattr3 with the mode alone.
                r.fixed(if procedure == 8 { 32 } else { 28 }).unwrap();
                if lookup(state, dir, &name).is_some() {
                    put_u32(out, 17);
                    return put_wcc(out);
                }
                let id = state.next;
                state.next += 1;
                let node = if procedure == 8 {
                    Node::File(Vec::new())
                } else {
                    Node::Dir(BTreeMap::new())
                };
                state.nodes.insert(id, node);
                entries(state, dir).insert(name, id);
                put_u32(out, OK);
                put_u32(out, 1);
                put_handle(out, id);
                put_u32(out, 1);
                put_attributes(out, id, 0);
                put_wcc(out);
            }
            12 | 13 => {
                let (dir, name) = take_name(r);
                let status = match lookup(state, dir, &name) {
                    None => 2,
                    Some(id) if matches!(&state.nodes[&id], Node::Dir(d) if !d.is_empty()) => 66,
                    Some(id) => {
                        state.nodes.remove(&id);
                        entries(state, dir).remove(&name);
                        OK
                    }
                };
                put_u32(out, status);
                put_wcc(out);
            }
            14 => {
                let (from_dir, from) = take_name(r);
                let (to_dir, to) = take_name(r);
                let status = match entries(state, from_dir).remove(&from) {
                    None => 2,
                    Some(id) => {
                        entries(state, to_dir).insert(to, id);
                        OK
                    }
                };
                put_u32(out, status);
                put_wcc(out);
                put_wcc(out);
            }
            16 | 17 => list(state, procedure == 17, r, out),
            18 => {
                take_handle(r);
                put_u32(out, OK);
                put_u32(out, 0);
                for v in [1 << 40, 1 << 39, 1 << 39, 1 << 30, 1 << 30, 1 << 30] {
                    put_u64(out, v);
                }
                put_u32(out, 0);
            }
            19 => {
                take_handle(r);
                put_u32(out, OK);
                put_u32(out, 0);
                for v in [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 65536] {
                    put_u32(out, v);
                }
                put_u64(out, u64::MAX >> 1);
                put_u64(out, 1);
                put_u32(out, 0x1b);
            }
            21 => {
                take_handle(r);
                r.u64().unwrap();
                r.u32().unwrap();
                put_u32(out, OK);
                put_wcc(out);
                self.put_verifier(out);
            }
            other => panic!("procedure {other} is not expected"),
        }
        assert!(
            r.rest().is_empty(),
            "arguments longer than procedure {procedure}'s"
        );
    }

    fn read(&self, state: &State, r: &mut Reader<'_>, out: &mut Vec<u8>) {
        let id = take_handle(r);
        let mut offset = r.u64().unwrap() as usize;
        let mut count = r.u32().unwrap() as usize;
        let Node::File(content) = &state.nodes[&id] else {
            panic!("READ of no file");
        };
        match self.mischief {
            Mischief::ShortReads => count /= 2,
            Mischief::Misplace => offset = (offset + 4096) % (content.len() - count + 1),
            _ => {}
        }
        let end = content.len().min(offset + count);
        let data = &content[offset.min(end)..end];
        put_u32(out, OK);
        put_u32(out, 1);
        put_attributes(out, id, content.len() as u64);
        put_u32(
            out,
            data.len() as u32 - u32::from(self.mischief == Mischief::WrongCount),
        );
        put_u32(out, u32::from(end == content.len()));
        put_opaque(out, data);
    }

    fn put_verifier(&self, out: &mut Vec<u8>) {
        put_u64(
            out,
            if self.mischief == Mischief::Verifier {
                self.seen
            } else {
                42
            },
        );
    }
}

fn list(state: &mut State, plus: bool, r: &mut Reader<'_>, out: &mut Vec<u8>) {
    let dir = take_handle(r);
    let cookie = r.u64().unwrap();
    let verifier = r.u64().unwrap();
    assert_eq!(verifier, if cookie == 0 { 0 } else { 9 });
    r.u32().unwrap();
    let room = if plus {
        r.u32().unwrap() as usize
    } else {
        1024
    };
    put_u32(out, OK);
    put_u32(out, 0);
    put_u64(out, 9);
    let start = out.len();
    let all: Vec<(Vec<u8>, u64)> = entries(state, dir)
        .iter()
        .map(|(n, i)| (n.clone(), *i))
        .collect();
    let mut eof = 1;
    for (i, (name, id)) in all.iter().enumerate().skip(cookie as usize) {
        if out.len() - start + 64 > room {
            eof = 0;
            break;
        }
        put_u32(out, 1);
        put_u64(out, *id);
        put_opaque(out, name);
        put_u64(out, i as u64 + 1);
        if plus {
            put_u32(out, 0);
            put_u32(out, 1);
            put_handle(out, *id);
        }
    }
    put_u32(out, 0);
    put_u32(out, eof);
}

fn put_handle(out: &mut Vec<u8>, id: u64) {
    put_opaque(out, &id.to_be_bytes());
}

fn take_handle(r: &mut Reader<'_>) -> u64 {
    u64::from_be_bytes(r.opaque(64).unwrap().try_into().unwrap())
}

fn take_name(r: &mut Reader<'_>) -> (u64, Vec<u8>) {
    let dir = take_handle(r);
    let name = r.opaque(255).unwrap().to_vec();
    (dir, name)
}

fn put_attributes(out: &mut Vec<u8>, id: u64, size: u64) {
    let start = out.len();
    for v in [1, 0o644, 1, 0, 0] {
        put_u32(out, v);
    }
    for v in [size, size, 0, 1, id, 0, 0, 0] {
        put_u64(out, v);
    }
    assert_eq!(out.len() - start, 84);
}

/// wcc_data with the attributes before and not after: a mix that occurs.
fn put_wcc(out: &mut Vec<u8>) {
    put_u32(out, 1);
    for _ in 0..3 {
        put_u64(out, 0);
    }
    put_u32(out, 0);
}

fn entries(state: &mut State, dir: u64) -> &mut BTreeMap<Vec<u8>, u64> {
    match state.nodes.get_mut(&dir) {
        Some(Node::Dir(d)) => d,
        _ => panic!("not a directory: {dir}"),
    }
}

fn lookup(state: &mut State, dir: u64, name: &[u8]) -> Option<u64> {
    entries(state, dir).get(name).copied()
}

fn size_of(state: &State, id: u64) -> u64 {
    match &state.nodes[&id] {
        Node::File(content) => content.len() as u64,
        Node::Dir(_) => 4096,
    }
}
