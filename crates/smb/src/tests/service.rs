//! The service with a client written by hand: signatures, chains, claims, and what any bytes do to
//! it.

use crate::conn::connection::ConnInfo;
use crate::conn::server::{Config, Service};
use crate::proto::dialect::Dialect;
use crate::proto::encryption::{Cipher, Nonces, Sealing};
use crate::proto::header::{HEADER, Header, PROTOCOL, command, flag};
use crate::proto::keys::{Preauth, Signer, Signing};
use crate::proto::negotiate::Protection;
use crate::proto::status::Status;
use crate::service::Outcome;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weir_auth::legacy::Key;
use weir_auth::ntlm::client::{authenticate, negotiate as ntlm_negotiate};
use weir_auth::users::{User, Users};
use weir_auth::wire::{Put, utf16};
use weir_base::limits::protocol::CLAIM_BYTES;
use weir_base::{Budget, Clock, ManualClock, SeededRng};
use weir_conn::Arrival;
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_vfs::grace::Records;
use weir_vfs::stats::Stats;
use weir_vfs::throttle::{CreditLimits, Throttle};
use weir_vfs::{Export, ExportTable, Flavours, HandleKey, Identity, Rule, Share, Squash, Vfs};
use weir_volume::{Engine, EngineOptions};

pub(crate) const PASSWORD: &str = "Passw0rd!";
/// Time at which messages arrive, in nanoseconds.
pub(crate) const ARRIVED: u64 = 5;
/// All access, and all sharing.
pub(crate) const ALL: u32 = 0x1f_01ff;
pub(crate) const SHARE: u32 = 7;
pub(crate) const OPEN: u32 = 1;
pub(crate) const CREATE: u32 = 2;
pub(crate) const OPEN_IF: u32 = 3;

struct Alice;

impl Users for Alice {
    fn list_users(&self) -> Arc<[Arc<User>]> {
        let both = [0, 7].map(|uid| self.with_uid(uid));
        both.into_iter().flatten().collect()
    }

    fn with_uid(&self, uid: u32) -> Option<Arc<User>> {
        let found = self.find(if uid == 7 { "bob" } else { "alice" });
        found.filter(|user| user.identity.unix.uid == uid)
    }

    fn find(&self, name: &str) -> Option<Arc<User>> {
        let all = [
            ("alice", Identity::default()),
            ("bob", Identity::unix(7, 8, weir_vfs::Groups::default())),
        ];
        let found = all
            .into_iter()
            .find(|(own, _)| name.eq_ignore_ascii_case(own));
        found.map(|(name, identity)| {
            Arc::new(User {
                name: name.into(),
                nt_hash: weir_auth::ntlm::nt_hash(PASSWORD),
                identity,
            })
        })
    }
}

pub(crate) struct World {
    pub service: Arc<Service>,
    pub vfs: Arc<Vfs>,
    pub clock: Arc<ManualClock>,
    pub engine: Engine,
    disks: [Arc<MemDevice>; 2],
    protection: Protection,
    connections: Connections,
}

/// Connections of a world, each of the thread on which it began. Has the number of the world.
struct Connections(u64);

thread_local! {
    /// The connections of this thread, by world and number.
    static OWN: RefCell<HashMap<(u64, u64), ConnInfo>> = RefCell::default();
}

impl Default for Connections {
    fn default() -> Connections {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        Connections(WORLDS.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        OWN.with_borrow_mut(|own| own.retain(|(world, _), _| *world != self.0));
    }
}

pub(crate) fn world() -> World {
    world_with(Protection::Signed)
}

pub(crate) fn world_with(protection: Protection) -> World {
    booted(disks(), Arc::default(), protection, true, CLAIM_BYTES)
}

/// A world in which all clients' claims take so many bytes at most.
pub(crate) fn world_of_claims(bytes: usize) -> World {
    booted(disks(), Arc::default(), Protection::Signed, true, bytes)
}

fn disks() -> [Arc<MemDevice>; 2] {
    [64 << 8, 4 << 8].map(|blocks| Arc::new(MemDevice::new(blocks)))
}

/// A service over disks; `new` ones get a volume.
fn booted(
    disks: [Arc<MemDevice>; 2],
    clock: Arc<ManualClock>,
    protection: Protection,
    new: bool,
    claims: usize,
) -> World {
    let env = Env {
        pool: FramePool::new(4096).unwrap(),
        clock: clock.clone(),
        rng: Arc::new(SeededRng::new(43)),
    };
    let rng = SeededRng::new(42);
    let [device, log] = disks.clone();
    let opened = match new {
        true => Aggregate::create_on(device, log, env),
        false => Aggregate::open_on(device, log, env),
    };
    let (aggregate, replay) = opened.unwrap();
    let engine = Engine::open(aggregate, replay, &rng, EngineOptions::default()).unwrap();
    if new {
        let now = clock.current_time();
        engine
            .create_volume("vol1", (0, 0), 0o755, now, &rng)
            .unwrap();
    }
    let unlimited = Throttle::new(clock.clone(), 1, CreditLimits::of_budget(0));
    let key = HandleKey::new([9; 16], [0; 16]);
    let stats = Arc::new(Stats::new(1));
    let vfs = Vfs::counting(key, unlimited, Budget::new(claims), Some(stats));
    let service = Service::new(Config {
        vfs: Arc::clone(&vfs),
        clock: clock.clone(),
        rng: Arc::new(SeededRng::new(1)),
        users: Arc::new(Alice),
        name: "weir".into(),
        protection,
        records: Records::from_engine(&engine),
        done_calls: engine.done_calls(),
    });
    service.restore(&engine.volumes());
    let world = World {
        service,
        vfs,
        clock,
        engine,
        disks,
        protection,
        connections: Connections::default(),
    };
    published(&world, |_| {});
    world
}

/// Exports the volume as a share, with what `change` says of it.
pub(crate) fn published(world: &World, change: impl FnOnce(&mut Export)) {
    published_in(world, &ExportTable::default(), change);
}

/// Exports it so in a table like `table`.
pub(crate) fn published_in(world: &World, table: &ExportTable, change: impl FnOnce(&mut Export)) {
    let volume = world.engine.volumes().remove(0);
    let rule = Rule {
        flavours: Flavours::NTLM.or(Flavours::KRB5),
        writers: Flavours::NTLM.or(Flavours::KRB5),
        ..Rule::open(Squash::None)
    };
    let mut export = Export::new("/vol1", volume, vec![rule]);
    export.share = Some(Share::new("vol1"));
    change(&mut export);
    world
        .vfs
        .publish_table(table.with(&[], vec![Arc::new(export)]));
}

/// Result of sending a message.
pub(crate) enum Came {
    Answer(Vec<u8>),
    Nothing,
    Closed,
}

impl World {
    /// The world after a crash: what was durable is there.
    pub fn crashed(self) -> World {
        let (disks, clock) = (self.disks, self.clock);
        drop((self.service, self.vfs, self.engine));
        booted(disks, clock, self.protection, false, CLAIM_BYTES)
    }

    /// The reply to a message that does not wait, and what it waits for in the log.
    pub fn reply(&self, connection: u64, record: &[u8]) -> (crate::Reply, Option<weir_base::Lsn>) {
        match self.handle(connection, record) {
            Outcome::Reply(reply, lsn) => (reply, lsn),
            _ => panic!("no reply at once"),
        }
    }

    /// Hands a message to the service.
    pub fn handle(&self, connection: u64, record: &[u8]) -> Outcome {
        let now = Arrival {
            monotonic: Some(ARRIVED),
            ..self.clock.current_time().into()
        };
        self.on(connection, |conn| self.service.handle(conn, record, now))
    }

    /// Runs `act` on a connection, which begins if it is not there.
    pub fn on<T>(&self, connection: u64, act: impl FnOnce(&ConnInfo) -> T) -> T {
        let key = (self.connections.0, connection);
        let found = OWN.with_borrow_mut(|own| own.remove(&key));
        let new = || {
            ConnInfo::new(
                connection,
                ([127, 0, 0, 1], 9).into(),
                ([127, 0, 0, 2], 445).into(),
            )
        };
        let conn = found.unwrap_or_else(new);
        let done = act(&conn);
        OWN.with_borrow_mut(|own| own.insert(key, conn));
        done
    }

    /// Ends a connection.
    pub fn ended(&self, connection: u64) {
        self.on(connection, |conn| self.service.connection_ended(conn));
        OWN.with_borrow_mut(|own| own.remove(&(self.connections.0, connection)));
    }

    /// Returns true if a message of so many bytes may be read that begins with `head`.
    pub fn takes_long(&self, connection: u64, head: &[u8], bytes: usize) -> bool {
        self.on(connection, |conn| {
            self.service.takes_long(conn, head, bytes)
        })
    }

    /// The reply, when what it says is durable.
    fn answered(&self, reply: crate::Reply, lsn: Option<weir_base::Lsn>) -> Came {
        if let Some(lsn) = lsn {
            self.outlast(lsn);
        }
        Came::Answer(reply.to_vec())
    }

    /// Waits until that is durable.
    pub fn outlast(&self, lsn: weir_base::Lsn) {
        self.engine.aggregate().log().wait_blocking(lsn).unwrap();
    }

    pub fn send(&self, connection: u64, record: &[u8]) -> Came {
        self.came(self.handle(connection, record))
    }

    fn came(&self, handled: Outcome) -> Came {
        match handled {
            Outcome::Larger(handled, _) => self.came(*handled),
            Outcome::Reply(reply, lsn) => self.answered(reply, lsn),
            Outcome::Later(mut later)
            | Outcome::Held(mut later)
            | Outcome::Parked(mut later, ..) => {
                let mut cx = Context::from_waker(Waker::noop());
                for _ in 0..100_000 {
                    if let Poll::Ready(done) = later.as_mut().poll(&mut cx) {
                        return match done.reply() {
                            Some((reply, lsn)) => self.answered(reply, lsn),
                            None => Came::Closed,
                        };
                    }
                    self.clock.advance(Duration::from_millis(100));
                    self.service.tick();
                    std::thread::yield_now();
                }
                panic!("it waits for ever")
            }
            Outcome::Drop => Came::Nothing,
            Outcome::StartTls(_) | Outcome::SpeaksFor(..) | Outcome::Close(_) => Came::Closed,
        }
    }
}

/// A client with one session.
pub(crate) struct Client<'w> {
    pub world: &'w World,
    pub connection: u64,
    pub message: u64,
    pub session: u64,
    pub tree: u32,
    pub signer: Option<Arc<Signer>>,
    /// The signing algorithm that it offers in 3.1.1.
    pub signing: Signing,
    pub cipher: Option<Cipher>,
    /// Its signing requirements, in NEGOTIATE and in SESSION_SETUP.
    pub modes: [u8; 2],
    /// Other contexts of its NEGOTIATE.
    pub contexts: Vec<Vec<u8>>,
    /// Its keys, and whether it uses them.
    pub sealing: Option<Sealing>,
    pub seals: bool,
    pub nonces: Nonces,
    /// All bytes of its ClientGuid.
    pub guid: u8,
    /// The session that it binds the connection to, and that session's key.
    pub binds: Option<(u64, Arc<Signer>)>,
    /// The flags of the last SESSION_SETUP.
    pub flags: u16,
    /// The name of its user.
    pub user: &'static str,
    /// Its channel sequence.
    pub sequence: u16,
    /// It says that it sends again.
    pub replay: bool,
}

/// One response of a chain.
#[derive(Debug)]
pub(crate) struct Answer {
    pub header: Header,
    pub status: Status,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    /// The FileId in the response to CREATE.
    pub fn file(&self) -> Vec<u8> {
        assert_eq!(self.status, Status::SUCCESS);
        self.body[64..80].to_vec()
    }
}

pub(crate) fn answers(record: &[u8]) -> Vec<Answer> {
    let (mut at, mut out) = (0, Vec::new());
    loop {
        let (header, message) = crate::proto::header::link(record, at).unwrap();
        out.push(Answer {
            header,
            status: Status(u32::from_le_bytes(message[8..12].try_into().unwrap())),
            body: message[HEADER..].to_vec(),
        });
        match header.next {
            0 => return out,
            next => at += next as usize,
        }
    }
}

pub(crate) const SAME: [u8; 16] = [0xff; 16];

impl<'w> Client<'w> {
    pub fn new(world: &'w World, connection: u64) -> Client<'w> {
        Client {
            world,
            connection,
            message: 0,
            session: 0,
            tree: 0,
            signer: None,
            signing: Signing::Cmac,
            cipher: None,
            modes: [1; 2],
            contexts: Vec::new(),
            sealing: None,
            seals: false,
            nonces: Nonces::new(0),
            guid: connection as u8,
            binds: None,
            flags: 0,
            user: "Alice",
            sequence: 0,
            replay: false,
        }
    }

    /// A chain of requests, the later ones related to the first if that is wanted.
    pub fn chain(&mut self, related: bool, requests: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, (command, body)) in requests.iter().enumerate() {
            let start = out.len();
            let related = related && n > 0;
            let mut flags = if related { flag::RELATED } else { 0 };
            if self.replay {
                flags |= flag::REPLAY;
            }
            out.put(&PROTOCOL);
            out.put_u16(64);
            out.put_u16(1);
            out.put_u16(self.sequence);
            out.put_u16(0);
            out.put_u16(*command);
            out.put_u16(100);
            out.put_u32(flags);
            out.put_u32(0);
            out.put_u64(self.message);
            out.put_u32(0);
            out.put_u32(if related { u32::MAX } else { self.tree });
            out.put_u64(if related { u64::MAX } else { self.session });
            out.put_zeroes(16);
            out.put(body);
            self.message += 1;
            if n + 1 < requests.len() {
                out.align(start, 8);
                let next = (out.len() - start) as u32;
                out.set_u32(start + 20, next);
            }
            let binds = self.binds.as_ref().map(|(_, signer)| signer);
            let signer = self.signer.as_ref().or(binds.filter(|_| self.session != 0));
            if let Some(signer) = signer.filter(|_| !self.seals) {
                out[start + 16] |= flag::SIGNED as u8;
                let signature = signer.sign(&out[start..], std::iter::empty());
                out[start + 48..start + 64].copy_from_slice(&signature);
            }
        }
        out
    }

    /// Sends a chain; each response is signed, once there is a session.
    pub fn send_chain(&mut self, related: bool, requests: &[(u16, Vec<u8>)]) -> Vec<Answer> {
        let mut record = self.chain(related, requests);
        if self.seals {
            record = self.seal(&record);
        }
        let Came::Answer(mut reply) = self.world.send(self.connection, &record) else {
            panic!("no answer")
        };
        if self.seals {
            let sealing = self.sealing.as_ref().unwrap();
            reply = sealing
                .open(&reply)
                .expect("what asks encrypted is answered so");
        }
        let answers = answers(&reply);
        assert_eq!(answers.len(), requests.len());
        if let Some(signer) = self.signer.as_ref().filter(|_| !self.seals) {
            let mut at = 0;
            for answer in &answers {
                let (_, message) = crate::proto::header::link(&reply, at).unwrap();
                assert!(signer.verify(message), "an answer without its signature");
                at += answer.header.next as usize;
            }
        }
        answers
    }

    pub fn seal(&self, record: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (sealing, nonce) = (self.sealing.as_ref().unwrap(), self.nonces.next());
        sealing.seal(&mut out, nonce, self.session, std::iter::once(record));
        out
    }

    pub fn one(&mut self, command: u16, body: Vec<u8>) -> Answer {
        self.send_chain(false, &[(command, body)]).remove(0)
    }

    pub fn negotiate(&mut self, dialect: u16) -> (Vec<u8>, Came) {
        let mut body = Vec::new();
        body.put_u16(36);
        body.put_u16(1);
        body.put_u16(u16::from(self.modes[0]));
        body.put_u16(0);
        body.put_u32(0x7f);
        body.put(&[self.guid; 16]);
        let mut contexts = vec![vec![1, 0, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0]];
        if let Some(cipher) = self.cipher {
            contexts.push(vec![2, 0, 4, 0, 0, 0, 0, 0, 1, 0, cipher as u8, 0]);
        }
        contexts.extend(self.contexts.iter().cloned());
        let signing = self.signing as u8;
        contexts.push(vec![8, 0, 4, 0, 0, 0, 0, 0, 1, 0, signing, 0]);
        body.put_u32(104);
        body.put_u16(contexts.len() as u16);
        body.put_u16(0);
        body.put_u16(dialect);
        for context in contexts {
            body.align(0, 8);
            body.put(&context);
        }
        let record = self.chain(false, &[(command::NEGOTIATE, body)]);
        let came = self.world.send(self.connection, &record);
        (record, came)
    }

    pub fn setup_body(&self, token: &[u8], binds: bool) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u16(25);
        body.put(&[u8::from(binds), self.modes[1]]);
        body.put_u32(0);
        body.put_u32(0);
        body.put_u16(88);
        body.put_u16(token.len() as u16);
        body.put_u64(0);
        body.put(token);
        body
    }

    /// Logs on; the last answer's status.
    pub fn log_on(&mut self, dialect: Dialect, password: &str) -> Status {
        let mut preauth = Preauth::default();
        let (request, Came::Answer(reply)) = self.negotiate(dialect as u16) else {
            panic!("no answer")
        };
        preauth.add(&request);
        preauth.add(&reply);
        let binds = self.binds.is_some();
        self.session = self.binds.as_ref().map_or(0, |(session, _)| *session);
        let setup = self.setup_body(&ntlm_negotiate(), binds);
        let request = self.chain(false, &[(command::SESSION_SETUP, setup)]);
        let Came::Answer(reply) = self.world.send(self.connection, &request) else {
            panic!("no answer")
        };
        preauth.add(&request);
        preauth.add(&reply);
        let first = answers(&reply).remove(0);
        if binds && first.status != Status::MORE_PROCESSING_REQUIRED {
            return first.status;
        }
        assert_eq!(first.status, Status::MORE_PROCESSING_REQUIRED);
        assert_eq!(first.header.credits, 1, "it is a stranger yet");
        if let Some((_, signer)) = &self.binds {
            assert!(signer.verify(&reply), "answers to a binding are signed");
        }
        self.session = first.header.session;
        let who = (self.user, "DOM", password);
        let (token, key): (_, Key) = authenticate(&first.body[8..], &ntlm_negotiate(), who, true);
        let request = self.chain(
            false,
            &[(command::SESSION_SETUP, self.setup_body(&token, binds))],
        );
        preauth.add(&request);
        let Came::Answer(reply) = self.world.send(self.connection, &request) else {
            panic!("no answer")
        };
        let last = answers(&reply).remove(0);
        if last.status == Status::SUCCESS {
            assert_eq!(last.header.credits, 100, "it is granted what it asks for");
            let signing = match dialect {
                Dialect::Smb210 => Signing::Hmac,
                Dialect::Smb311 => self.signing,
                _ => Signing::Cmac,
            };
            let signer = Signer::new((dialect, signing), &key, &preauth);
            assert!(signer.verify(&reply), "the last answer is signed");
            self.signer = Some(Arc::new(signer));
            self.flags = u16::from_le_bytes(last.body[2..4].try_into().unwrap());
            let cipher = match dialect {
                Dialect::Smb210 => None,
                Dialect::Smb311 => self.cipher,
                _ => Some(Cipher::Aes128Ccm),
            };
            let keys = |cipher| Sealing::new(cipher, dialect, &key, &preauth).turned();
            self.sealing = cipher.map(keys);
        }
        last.status
    }

    pub fn connect(&mut self, share: &str) -> Status {
        let answer = self.one(command::TREE_CONNECT, tree_connect(share));
        self.tree = answer.header.tree;
        answer.status
    }

    pub fn ready(world: &'w World, connection: u64) -> Client<'w> {
        let mut client = Client::new(world, connection);
        assert_eq!(client.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        assert_eq!(client.connect("VOL1"), Status::SUCCESS);
        client
    }
}

/// The context of NEGOTIATE that offers the POSIX extensions.
pub(crate) fn posix_context() -> Vec<u8> {
    [
        &[0, 1, 16, 0, 0, 0, 0, 0][..],
        &crate::proto::negotiate::POSIX_TAG,
    ]
    .concat()
}

pub(crate) fn tree_connect(share: &str) -> Vec<u8> {
    let path = utf16(&format!("\\\\weir\\{share}"));
    let mut body = Vec::new();
    body.put_u16(9);
    body.put_u16(0);
    body.put_u16(72);
    body.put_u16(path.len() as u16);
    body.put(&path);
    body
}

pub(crate) fn create(
    name: &str,
    access: u32,
    share: u32,
    disposition: u32,
    options: u32,
) -> (u16, Vec<u8>) {
    let name = utf16(name);
    let mut body = Vec::new();
    body.put_u16(57);
    body.put_u16(0);
    body.put_u32(2);
    body.put_zeroes(16);
    for field in [access, 0, share, disposition, options] {
        body.put_u32(field);
    }
    body.put_u16(120);
    body.put_u16(name.len() as u16);
    body.put_u64(0);
    body.put(&name);
    if name.is_empty() {
        body.put_u8(0);
    }
    (command::CREATE, body)
}

pub(crate) fn close(file: &[u8]) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(24);
    body.put_u16(1);
    body.put_u32(0);
    body.put(file);
    (command::CLOSE, body)
}

pub(crate) fn write(file: &[u8], offset: u64, data: &[u8]) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(49);
    body.put_u16(112);
    body.put_u32(data.len() as u32);
    body.put_u64(offset);
    body.put(file);
    body.put_zeroes(16);
    body.put(data);
    (command::WRITE, body)
}

pub(crate) fn read(file: &[u8], offset: u64, len: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(49);
    body.put_u16(0);
    body.put_u32(len);
    body.put_u64(offset);
    body.put(file);
    body.put_zeroes(17);
    (command::READ, body)
}

pub(crate) fn lock(file: &[u8], offset: u64, len: u64, flags: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(48);
    body.put_u16(1);
    body.put_u32(0);
    body.put(file);
    body.put_u64(offset);
    body.put_u64(len);
    body.put_u32(flags);
    body.put_u32(0);
    (command::LOCK, body)
}

pub(crate) fn statuses(answers: &[Answer]) -> Vec<Status> {
    answers.iter().map(|a| a.status).collect()
}

#[test]
fn a_chain_opens_writes_reads_and_closes() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let data: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    let all = c.send_chain(true, &[create("Dir", ALL, SHARE, CREATE, 1), close(&SAME)]);
    assert_eq!(statuses(&all), [Status::SUCCESS; 2]);
    let all = c.send_chain(
        true,
        &[
            create("dir\\File", ALL, SHARE, OPEN_IF, 0x40),
            write(&SAME, 0, &data),
            read(&SAME, 5, 19_000),
            read(&SAME, 0, 100),
            close(&SAME),
        ],
    );
    assert_eq!(statuses(&all), [Status::SUCCESS; 5]);
    assert_eq!(
        (all[2].u32(4), all[2].body[16..19_016] == data[5..19_005]),
        (19_000, true)
    );
    assert_eq!(all[3].body[16..116], data[..100]);
    // As the last one its data leaves by reference.
    let file = c
        .send_chain(false, &[create("DIR\\FILE", ALL, SHARE, OPEN, 0)])
        .remove(0)
        .file();
    let last = c.one(command::READ, read(&file, 0, 60_000).1);
    assert_eq!((last.u32(4), last.body[16..] == data), (20_000, true));
    let past = c.one(command::READ, read(&file, 20_000, 1).1);
    assert_eq!(past.status, Status::END_OF_FILE);
}

#[test]
fn what_depends_on_a_failure_fails_likewise() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let missing = create("missing", ALL, SHARE, OPEN, 0);
    let all = c.send_chain(true, &[missing.clone(), read(&SAME, 0, 1), close(&SAME)]);
    assert_eq!(statuses(&all), [Status::OBJECT_NAME_NOT_FOUND; 3]);
    // Unrelated ones go on.
    let all = c.send_chain(false, &[missing, create("there", ALL, SHARE, CREATE, 0)]);
    assert_eq!(
        statuses(&all),
        [Status::OBJECT_NAME_NOT_FOUND, Status::SUCCESS]
    );
    let all = c.send_chain(false, &[create("no\\such", ALL, SHARE, OPEN_IF, 0)]);
    assert_eq!(statuses(&all), [Status::OBJECT_PATH_NOT_FOUND]);
    // Each counts, and that a logon goes on is no failure.
    let failures = world.vfs.stats.as_ref().unwrap().failures().into_iter();
    let failures = failures.map(|((number, status), count)| {
        let (_, name) = crate::operation::name(number).unwrap();
        format!("{name} {} {count}", Status::name(status).unwrap())
    });
    let expected = [
        "CREATE OBJECT_NAME_NOT_FOUND 2",
        "CREATE OBJECT_PATH_NOT_FOUND 1",
        "CLOSE OBJECT_NAME_NOT_FOUND 1",
        "READ OBJECT_NAME_NOT_FOUND 1",
    ];
    assert_eq!(failures.collect::<Vec<_>>(), expected);
}

#[test]
fn every_dialect_signs_and_nothing_unsigned_is_done() {
    let world = world();
    for (n, dialect) in [
        Dialect::Smb210,
        Dialect::Smb300,
        Dialect::Smb302,
        Dialect::Smb311,
    ]
    .into_iter()
    .enumerate()
    {
        let mut c = Client::new(&world, n as u64 + 1);
        assert_eq!(c.log_on(dialect, PASSWORD), Status::SUCCESS);
        assert_eq!(c.connect("vol1"), Status::SUCCESS);
        let made = create(&format!("file{n}"), ALL, SHARE, CREATE, 0);
        for spoil in ["signature", "body", "flag"] {
            let mut record = c.chain(false, std::slice::from_ref(&made));
            match spoil {
                "signature" => record[50] ^= 1,
                "body" => *record.last_mut().unwrap() ^= 1,
                _ => record[16] &= !(flag::SIGNED as u8),
            }
            let Came::Answer(reply) = world.send(c.connection, &record) else {
                panic!("no answer")
            };
            assert_eq!(
                statuses(&answers(&reply)),
                [Status::ACCESS_DENIED],
                "{spoil}"
            );
            assert!(
                c.signer.as_ref().unwrap().verify(&reply),
                "refusals are signed too"
            );
        }
        assert_eq!(
            c.one(made.0, made.1).status,
            Status::SUCCESS,
            "nothing was made before"
        );
    }
}

#[test]
fn a_wrong_password_is_refused_late() {
    let world = world();
    let mut c = Client::new(&world, 1);
    let before = world.clock.monotonic();
    assert_eq!(c.log_on(Dialect::Smb311, "guess"), Status::LOGON_FAILURE);
    assert!(world.clock.monotonic() - before >= weir_auth::penalties::PENALTY);
    // Nothing can be done with what is left of it.
    let record = c.chain(false, &[create("x", ALL, SHARE, CREATE, 0)]);
    let Came::Answer(reply) = world.send(1, &record) else {
        panic!("no answer")
    };
    assert_eq!(statuses(&answers(&reply)), [Status::USER_SESSION_DELETED]);
}

#[test]
fn what_a_stranger_has_kept_is_bounded() {
    let world = world();
    let mut c = Client::new(&world, 1);
    c.negotiate(0x0311);
    for n in 0..2 * crate::conn::connection::MAX_SETUPS {
        let setup = c.setup_body(&ntlm_negotiate(), false);
        let record = c.chain(false, &[(command::SESSION_SETUP, setup)]);
        let Came::Answer(reply) = world.send(1, &record) else {
            panic!("no answer")
        };
        let expected = match n < crate::conn::connection::MAX_SETUPS {
            true => Status::MORE_PROCESSING_REQUIRED,
            false => Status::INSUFFICIENT_RESOURCES,
        };
        assert_eq!(statuses(&answers(&reply)), [expected], "{n}");
    }
}

/// Requests of every command, correctly signed.
fn requests() -> Vec<(u16, Vec<u8>)> {
    let mut all = vec![
        create("dir\\name", ALL, SHARE, OPEN_IF, 0),
        write(&SAME, 3, b"data"),
        read(&SAME, 0, 10),
        lock(&SAME, 0, 5, 0x12),
        close(&SAME),
    ];
    for command in 0..=command::OPLOCK_BREAK + 1 {
        // CANCEL has no answer, and a second NEGOTIATE ends the connection.
        if ![command::CANCEL, command::NEGOTIATE].contains(&command) {
            all.push((command, vec![0; 80]));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any request of a user is answered, with a signature, or the connection is closed.
    #[test]
    fn no_request_does_harm(
        which in prop::collection::vec((0usize..100, 0usize..120, any::<u8>(), 0usize..120), 1..12),
        related in any::<bool>(),
    ) {
        let world = world();
        let mut c = Client::ready(&world, 1);
        let all = requests();
        let mut chain = vec![all[0].clone()];
        for (which, at, with, cut) in which {
            let (command, mut body) = all[which % all.len()].clone();
            if let Some(byte) = body.get_mut(at) {
                *byte = with;
            }
            if cut < body.len() {
                body.truncate(cut);
            }
            // Sizes that the fixed part says are often right.
            chain.push((command, body));
        }
        let record = c.chain(related, &chain);
        if let Came::Answer(reply) = world.send(1, &record) {
            prop_assert_eq!(answers(&reply).len(), chain.len());
        }
        world.ended(1);
        prop_assert_eq!(world.vfs.claims.totals().held, 0);
    }

    /// Any bytes may come from a client without a user.
    #[test]
    fn no_stranger_does_harm(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4), begin in any::<bool>()) {
        let world = world();
        let mut c = Client::new(&world, 1);
        if begin {
            c.negotiate(0x0311);
        }
        for mut message in messages {
            if message.len() > 20 {
                message[..4].copy_from_slice(&PROTOCOL);
                message[4..6].copy_from_slice(&64u16.to_le_bytes());
                message[12] %= 20;
                message[13] = 0;
            }
            world.send(1, &message);
        }
        world.ended(1);
        prop_assert_eq!(world.service.counts(), (0, 0, 0));
    }
}

pub(crate) mod files;
mod write_through;
