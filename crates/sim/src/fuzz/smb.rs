//! Targets of what clients of SMB send: headers, negotiation, logon, and all that a user may ask
//! for.
//!
//! What a user sends is signed, so mutations of it would never come further than the signature.
//! Target `smb_service` therefore signs after the mutation: it fills in what a client knows
//! (numbers, session, tree connect), and leaves all else as it comes.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_auth::legacy::Key;
use weir_auth::ntlm::{Challenge, client, nt_hash};
use weir_auth::spnego;
use weir_auth::users::{User, Users};
use weir_auth::wire::Put;
use weir_base::{Clock, SeededRng, Time};
use weir_conn::Arrival;
use weir_smb::compression::{self, Algorithms};
use weir_smb::dialect::Dialect;
use weir_smb::header::{HEADER, PROTOCOL, command, flag, link};
use weir_smb::keys::{Preauth, Signer, Signing};
use weir_smb::negotiate::{self, Protection};
use weir_smb::{Config, ConnInfo, Later, Outcome, Service, encryption, lz77};
use weir_vfs::grace::Records;
use weir_vfs::{Export, Flavours, HandleKey, Identity, Rule, Share, Squash, Vfs};

use super::Target;
use super::smb_requests::{TREE_AT, negotiate_body, request, seeds, setup_body, tree_connect};
use crate::machine::{Machine, RunningEngine, Sizes};
use crate::rand::Choices;

/// The targets of this module.
pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "smb_header",
            run: header,
            seeds: header_seeds,
        },
        Target {
            name: "smb_negotiate",
            run: negotiation,
            seeds: negotiation_seeds,
        },
        Target {
            name: "smb_logon",
            run: logon,
            seeds: logon_seeds,
        },
        Target {
            name: "smb_compressed",
            run: compressed,
            seeds: compressed_seeds,
        },
        Target {
            name: "smb_service",
            run: service,
            seeds,
        },
    ]
}

/// A chain, or an encrypted message: no request of a chain lies outside of it, and a transform
/// header says its length.
fn header(input: &[u8]) {
    let mut at = 0;
    while let Ok((header, message)) = link(input, at) {
        assert!(message.len() >= HEADER && at + message.len() <= input.len());
        match header.next {
            0 => break,
            next => at += next as usize,
        }
    }
    if encryption::length_fits(input) {
        assert!(input.len() >= encryption::HEADER);
    }
    let _ = encryption::session_of(input);
}

fn header_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seeds();
    seeds.truncate(8);
    let keys = encryption::Sealing::new(
        encryption::Cipher::Aes128Gcm,
        Dialect::Smb311,
        &[1; 16],
        &Preauth::default(),
    );
    let mut sealed = Vec::new();
    let plain = seeds[0].clone();
    keys.seal(
        &mut sealed,
        encryption::Nonces::new(0).next(),
        7,
        std::iter::once(&plain[..]),
    );
    assert!(encryption::length_fits(&sealed) && encryption::session_of(&sealed) == Ok(7));
    seeds.push(sealed);
    seeds
}

/// NEGOTIATE of both protocols, and SESSION_SETUP.
fn negotiation(input: &[u8]) {
    let _ = negotiate::offers_smb2(input);
    if let Ok(offer) = negotiate::decode(input) {
        assert!(offer.cipher.is_none() || offer.dialect > Some(Dialect::Smb210));
    }
    if let Ok(setup) = negotiate::session_setup(input) {
        assert!(setup.token.len() <= input.len());
    }
}

fn negotiation_seeds() -> Vec<Vec<u8>> {
    let mut old = vec![0xff, b'S', b'M', b'B', 0x72];
    old.resize(32, 0);
    old.extend_from_slice(&[0, 11, 0]);
    old.extend_from_slice(b"\x02SMB 2.???\0");
    assert!(negotiate::offers_smb2(&old));
    let new = request(command::NEGOTIATE, &negotiate_body());
    assert!(negotiate::decode(&new).is_ok_and(|offer| offer.dialect == Some(Dialect::Smb311)));
    let setup = request(command::SESSION_SETUP, &setup_body(b"a token"));
    assert!(negotiate::session_setup(&setup).is_ok());
    let compressed = with_compression();
    let offer = negotiate::decode(&compressed);
    assert!(offer.is_ok_and(|offer| offer.compression.is_some_and(Algorithms::any)));
    vec![old, new, setup, compressed]
}

/// A NEGOTIATE of 3.1.1 alone that offers compression.
fn with_compression() -> Vec<u8> {
    let mut body = Vec::new();
    for v in [36, 1, 1, 0] {
        body.put_u16(v);
    }
    body.put_u32(0x7f);
    body.put(&[4; 16]);
    body.put_u32(HEADER as u32 + 40);
    body.put_u32(2);
    body.put_u16(0x0311);
    for (kind, data) in [
        (1u16, &[1, 0, 0, 0, 1, 0][..]),
        (3, &[3, 0, 0, 0, 1, 0, 0, 0, 4, 0, 2, 0, 3, 0]),
    ] {
        body.align(0, 8);
        body.put_u16(kind);
        body.put_u16(data.len() as u16);
        body.put_u32(0);
        body.put(data);
    }
    request(command::NEGOTIATE, &body)
}

/// Longest message that [`compressed`] takes, in bytes.
const MOST: usize = 64 << 10;

/// A byte that says what was negotiated, and a compressed message: it comes to as much as it says,
/// or to nothing. What stands behind the byte comes back when it is compressed itself.
fn compressed(input: &[u8]) {
    let Some((bits, message)) = input.split_first() else {
        return;
    };
    let with = Algorithms {
        lz77: bits & 1 != 0,
        pattern: bits & 2 != 0,
        chained: bits & 4 != 0,
    };
    if let Ok(plain) = compression::decompress(message, with, MOST) {
        let said = u32::from_le_bytes(message[4..8].try_into().unwrap()) as usize;
        let front = plain.len() - said;
        assert!(plain.len() <= MOST && front <= message.len());
        let mut out = Vec::new();
        if compression::compress(&mut out, &[], &[&plain], with) {
            assert!(compression::decompress(&out, with, MOST) == Ok(plain));
        }
    }
    let mut out = Vec::new();
    assert!(lz77::compress(message, usize::MAX, &mut out));
    let mut back = Vec::new();
    assert!(lz77::decompress(&out, message.len(), &mut back).is_ok() && back == message);
    let size = usize::from(*bits) << 6;
    back.clear();
    let _ = lz77::decompress(message, size, &mut back);
    assert!(back.len() <= size);
}

fn compressed_seeds() -> Vec<Vec<u8>> {
    let mut data = vec![0; 3000];
    data.extend_from_slice(&b"what is written again and again, ".repeat(80));
    data.resize(data.len() + 500, b'x');
    let head = request(command::READ, &[17; 16]);
    let mut seeds = vec![b"\xff\xff\xff\xff\x1f\x61\x62\x63\x17\x00\x0f\xff\x26\x01".to_vec()];
    for bits in [1, 5, 6, 7] {
        let with = Algorithms {
            lz77: bits & 1 != 0,
            pattern: bits & 2 != 0,
            chained: bits & 4 != 0,
        };
        let mut seed = vec![bits];
        assert!(compression::compress(&mut seed, &head, &[&data], with));
        seeds.push(seed);
    }
    seeds
}

const PASSWORD: &str = "a password";

/// A token of SPNEGO with what it carries, or what a client sends without it: an NTLM NEGOTIATE, or
/// an AUTHENTICATE for a challenge.
fn logon(input: &[u8]) {
    let token = spnego::decode(input);
    let message = token.as_ref().map_or(input, |token| token.message);
    assert!(message.len() <= input.len());
    let _ = Challenge::new(message, "weir", [7; 8], Time::EPOCH);
    let Ok(challenge) = Challenge::new(&client::negotiate(), "weir", [7; 8], Time::EPOCH) else {
        panic!("a challenge to a client's own message")
    };
    let verdict = challenge.verify(message, |who| {
        who.user
            .eq_ignore_ascii_case("alice")
            .then(|| nt_hash(PASSWORD))
    });
    if let Ok((who, _)) = verdict {
        assert!(who.user.eq_ignore_ascii_case("alice"), "{who:?}");
    }
}

fn logon_seeds() -> Vec<Vec<u8>> {
    let challenge = Challenge::new(&client::negotiate(), "weir", [7; 8], Time::EPOCH);
    let Ok(challenge) = challenge else {
        return Vec::new();
    };
    let (authenticate, _) = ntlm_authenticate(challenge.message());
    let known = |_: &_| Some(nt_hash(PASSWORD));
    assert!(challenge.verify(&authenticate, known).is_ok());
    let wrapped = spnego::reply(
        spnego::State::Incomplete,
        None,
        &authenticate,
        Some(&[3; 16]),
    );
    assert!(spnego::decode(&wrapped).is_ok_and(|token| token.message == authenticate));
    vec![
        client::negotiate(),
        spnego::offer(true),
        spnego::reply(
            spnego::State::Incomplete,
            Some(spnego::Mechanism::Ntlm),
            &client::negotiate(),
            None,
        ),
        authenticate,
        wrapped,
    ]
}

/// The third message of NTLM, of alice; and the session's key.
fn ntlm_authenticate(challenge: &[u8]) -> (Vec<u8>, Key) {
    let alice = ("alice", "", PASSWORD);
    client::authenticate(challenge, &client::negotiate(), alice, false)
}

/// Inputs that one service serves: see [`super::service`].
const USES: u32 = 500;
/// Polls of what waits before it is given up: each lets a second pass, so that what caches are held
/// for too long is taken away.
const POLLS: usize = 60;

struct Alice;

impl Users for Alice {
    fn list_users(&self) -> Arc<[Arc<User>]> {
        self.find("alice").into_iter().collect()
    }

    fn with_uid(&self, uid: u32) -> Option<Arc<User>> {
        self.find("alice")
            .filter(|user| user.identity.unix.uid == uid)
    }

    fn find(&self, name: &str) -> Option<Arc<User>> {
        name.eq_ignore_ascii_case("alice").then(|| {
            Arc::new(User {
                name: "alice".to_owned(),
                nt_hash: nt_hash(PASSWORD),
                identity: Identity::default(),
            })
        })
    }
}

/// A user's session on a service over a small volume.
struct Fixture {
    machine: Machine,
    running: RunningEngine,
    service: Arc<Service>,
    connection: ConnInfo,
    /// The number of the next message.
    message: u64,
    session: u64,
    /// The tree connects, to the volume and to IPC$.
    trees: [u32; 2],
    signer: Option<Signer>,
    uses: u32,
}

thread_local! {
    static FIXTURE: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

impl Fixture {
    fn new() -> Fixture {
        let sizes = Sizes {
            background: true,
            ..Sizes::small()
        };
        let machine = Machine::new(sizes, &Choices::new(1)).unwrap();
        let running = machine.boot().unwrap();
        let vfs = Vfs::new(HandleKey::new([9; 16], [0; 16]));
        let rule = Rule {
            flavours: Flavours::NTLM,
            writers: Flavours::NTLM,
            ..Rule::open(Squash::None)
        };
        let mut export = Export::new("/vol1", Arc::clone(&running.volume), vec![rule]);
        export.share = Some(Share::new("vol1"));
        vfs.publish(vec![export]);
        let service = Service::new(Config {
            vfs,
            clock: Arc::clone(&machine.clock) as Arc<dyn Clock>,
            rng: Arc::new(SeededRng::new(2)),
            users: Arc::new(Alice),
            name: "weir".into(),
            protection: Protection::Signed,
            records: Records::from_engine(&running.engine),
            done_calls: Vec::new(),
        });
        // Breaks have somewhere to go, or nothing would be granted to be broken.
        service.send_with(Arc::new(|_, _| true));
        let mut fixture = Fixture {
            machine,
            running,
            service,
            connection: connection(0),
            message: 0,
            session: 0,
            trees: [0; 2],
            signer: None,
            uses: 0,
        };
        fixture.log_on();
        fixture
    }

    /// Begins a session on a connection of its own, after the end of the one before.
    fn log_on(&mut self) {
        self.service.connection_ended(&self.connection);
        self.connection = connection(self.connection.id + 1);
        (self.message, self.session, self.signer) = (0, 0, None);
        let mut preauth = Preauth::default();
        let mut ask = |fixture: &mut Fixture, command, body: &[u8]| {
            let sent = fixture.addressed(&request(command, body));
            let Some(came) = fixture.send(&sent) else {
                panic!("no reply to command {command} of a logon")
            };
            preauth.add(&sent);
            let before = preauth;
            preauth.add(&came);
            (came, before)
        };
        ask(self, command::NEGOTIATE, &negotiate_body());
        let (came, _) = ask(
            self,
            command::SESSION_SETUP,
            &setup_body(&client::negotiate()),
        );
        self.session = u64::from_le_bytes(came[40..48].try_into().unwrap());
        let (token, key) = ntlm_authenticate(&came[HEADER + 8..]);
        let (came, preauth) = ask(self, command::SESSION_SETUP, &setup_body(&token));
        assert_eq!(came[8..12], [0; 4], "alice knows the password");
        self.signer = Some(Signer::new(
            (Dialect::Smb311, Signing::Cmac),
            &key,
            &preauth,
        ));
        for (n, share) in ["vol1", "IPC$"].into_iter().enumerate() {
            let sent = self.addressed(&request(command::TREE_CONNECT, &tree_connect(share)));
            let came = self.send(&sent).unwrap();
            self.trees[n] = u32::from_le_bytes(came[36..40].try_into().unwrap());
            assert_ne!(self.trees[n], 0, "{share}");
        }
    }

    /// The requests with what a client fills in: numbers, session, tree connect, signatures. Where
    /// the next one of the chain begins stays as it is, if one can.
    fn addressed(&mut self, input: &[u8]) -> Vec<u8> {
        let mut record = input.to_vec();
        let mut at = 0;
        while record.len() - at >= HEADER {
            let rest = record.len() - at;
            let head = &mut record[at..];
            head[..4].copy_from_slice(&PROTOCOL);
            head[4..8].copy_from_slice(&[64, 0, 1, 0]);
            // CANCEL has no reply, and another NEGOTIATE ends the connection.
            if self.session != 0
                && [command::CANCEL, command::NEGOTIATE].contains(&u16::from(head[12]))
            {
                head[12] = command::ECHO as u8;
            }
            head[13] = 0;
            head[14..16].copy_from_slice(&64u16.to_le_bytes());
            let related = at > 0 && head[16] & flag::RELATED as u8 != 0;
            head[16] = if related { flag::RELATED as u8 } else { 0 };
            head[17..19].fill(0);
            head[19] &= 0x20; // Only that it is sent again.
            let next = u32::from_le_bytes(head[20..24].try_into().unwrap()) as usize;
            let next = Some(next).filter(|n| *n >= HEADER && n % 8 == 0 && n + HEADER <= rest);
            head[20..24].copy_from_slice(&(next.unwrap_or(0) as u32).to_le_bytes());
            head[24..32].copy_from_slice(&self.message.to_le_bytes());
            self.message += 1;
            let tree = self.trees[usize::from(head[TREE_AT] & 1)];
            head[36..40].copy_from_slice(&tree.to_le_bytes());
            head[40..48].copy_from_slice(&self.session.to_le_bytes());
            head[48..HEADER].fill(0);
            let end = next.unwrap_or(rest);
            if let Some(signer) = &self.signer {
                head[16] |= flag::SIGNED as u8;
                let signature = signer.sign(&head[..end], std::iter::empty());
                head[48..HEADER].copy_from_slice(&signature);
            }
            match next {
                Some(next) => at += next,
                None => break,
            }
        }
        record
    }

    /// The reply to a message, if one came; `None` if it waits for ever or the connection was
    /// closed.
    fn send(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let now = Arrival::from(self.machine.current_time());
        let outcome = self.service.handle(&self.connection, record, now);
        self.came_to(outcome)
    }

    fn came_to(&mut self, handled: Outcome) -> Option<Vec<u8>> {
        match handled {
            Outcome::Reply(reply, _) => Some(reply.to_vec()),
            Outcome::Larger(handled, _) => self.came_to(*handled),
            Outcome::Later(later) | Outcome::Held(later) | Outcome::Parked(later, ..) => {
                self.wait(later)
            }
            Outcome::Drop => None,
            Outcome::StartTls(_) | Outcome::SpeaksFor(..) | Outcome::Close(_) => {
                self.session = 0;
                None
            }
        }
    }

    fn wait(&mut self, mut later: Later) -> Option<Vec<u8>> {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..POLLS {
            match later.as_mut().poll(&mut cx) {
                Poll::Ready(Outcome::Reply(reply, _)) => return Some(reply.to_vec()),
                Poll::Ready(_) => {
                    self.session = 0;
                    return None;
                }
                Poll::Pending => {
                    self.machine.clock.advance(Duration::from_secs(1));
                    self.service.tick();
                    std::thread::yield_now();
                }
            }
        }
        None
    }
}

fn connection(number: u64) -> ConnInfo {
    ConnInfo::new(
        number,
        ([10, 0, 0, 1], 900).into(),
        ([10, 0, 0, 99], 445).into(),
    )
}

/// A chain of a user's requests: each has a response with its signature, or all wait, or the
/// connection is closed.
fn service(input: &[u8]) {
    FIXTURE.with(|cell| {
        let mut slot = cell.borrow_mut();
        if slot.as_ref().is_some_and(|fixture| fixture.uses >= USES) {
            *slot = None;
        }
        let fixture = slot.get_or_insert_with(Fixture::new);
        fixture.uses += 1;
        let sent = fixture.addressed(input);
        if sent.len() < HEADER {
            return;
        }
        if let Some(came) = fixture.send(&sent) {
            check(fixture, &sent, &came);
        }
        assert!(fixture.running.engine.poisoned().is_none());
        let (sessions, trees, _) = fixture.service.counts();
        if fixture.session == 0 || sessions == 0 || trees < fixture.trees.len() {
            fixture.log_on();
        }
    });
}

/// Each request has its response, and each of a session its signature.
fn check(fixture: &Fixture, sent: &[u8], came: &[u8]) {
    const USER_SESSION_DELETED: [u8; 4] = 0xc000_0203u32.to_le_bytes();
    let (mut asked, mut replied, mut ended) = (0, 0, false);
    loop {
        let (request, _) = link(sent, asked).unwrap();
        let (response, message) = link(came, replied).unwrap();
        assert!(response.has_flag(flag::RESPONSE));
        assert_eq!(response.command, request.command);
        assert_eq!(response.message, request.message);
        let gone = ended || message[8..12] == USER_SESSION_DELETED;
        // Behind what may end the session nobody may be there who could sign.
        ended |= [command::LOGOFF, command::SESSION_SETUP].contains(&request.command);
        if let Some(signer) = fixture.signer.as_ref().filter(|_| !gone) {
            let signed = response.has_flag(flag::SIGNED) && signer.verify(message);
            assert!(signed, "a wrong signature: {response:?}");
        }
        assert_eq!(request.next == 0, response.next == 0, "as many as requests");
        if request.next == 0 {
            return;
        }
        asked += request.next as usize;
        replied += response.next as usize;
    }
}
