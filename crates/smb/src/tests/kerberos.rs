//! Logons by tickets, with the client of [`crate::tests::service`] and an acceptor whose tickets
//! are words.

use crate::proto::dialect::Dialect;
use crate::proto::encryption::{Cipher, Sealing};
use crate::proto::header::command;
use crate::proto::keys::{self, Preauth, Signer};
use crate::proto::status::Status;
use crate::tests::service::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use weir_auth::spnego::{self, Mechanism, State};
use weir_auth::tickets::{Code, Logon, MAX_TOKEN, TicketOutcome, Tickets};
use weir_vfs::{Flavours, Identity, Rule, Squash, Transport};

/// Longer than a session's key.
const KEY: [u8; 32] = *b"a key of Kerberos, of 256 bits..";
const LIFETIME: Duration = Duration::from_secs(600);

struct Words;

struct ReversingCode;

/// The code over a message: its bytes backwards.
fn code(message: &[u8]) -> Vec<u8> {
    message.iter().rev().copied().collect()
}

impl Code for ReversingCode {
    fn verify(&mut self, message: &[u8], of: &[u8]) -> bool {
        code(message) == of
    }
    fn make(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        Some(code(message))
    }
}

impl Tickets for Words {
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = TicketOutcome> + Send>> {
        let mut polls = 0;
        Box::pin(std::future::poll_fn(move |cx| {
            polls += 1;
            if polls < 3 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(match &token[..] {
                b"alice" | b"bob" => {
                    let user = String::from_utf8_lossy(&token);
                    let logon = Logon {
                        user: format!("{user}@REALM"),
                        identity: Identity::default(),
                        key: KEY.to_vec(),
                        lifetime: LIFETIME,
                        code: Box::new(ReversingCode),
                    };
                    TicketOutcome::Logon(b"mutual".to_vec(), Box::new(logon))
                }
                b"busy" => TicketOutcome::Busy,
                _ => TicketOutcome::Refused(String::new(), "no ticket".into()),
            })
        }))
    }
}

fn served() -> World {
    let world = world();
    world.service.accept_tickets(Some(Arc::new(Words)));
    world
}

/// The first token of a client that offers these mechanisms.
fn first_token(mechanisms: &[Mechanism], message: &[u8], mic: Option<&[u8]>) -> Vec<u8> {
    let all: Vec<_> = mechanisms.iter().copied().map(Some).collect();
    spnego::first(&all, message, mic)
}

const KERBEROS: &[Mechanism] = &[
    Mechanism::WindowsKerberos,
    Mechanism::Kerberos,
    Mechanism::Ntlm,
];

/// A client that is negotiating.
struct NegotiatingClient<'w> {
    c: Client<'w>,
    preauth: Preauth,
}

impl<'w> NegotiatingClient<'w> {
    fn new(world: &'w World, connection: u64, cipher: Option<Cipher>) -> NegotiatingClient<'w> {
        let mut c = Client::new(world, connection);
        c.cipher = cipher;
        let mut preauth = Preauth::default();
        let (request, Came::Answer(reply)) = c.negotiate(Dialect::Smb311 as u16) else {
            panic!("no answer")
        };
        preauth.add(&request);
        preauth.add(&reply);
        NegotiatingClient { c, preauth }
    }

    /// Sends a token; the status, and the token that came back.
    fn send(&mut self, token: &[u8]) -> (Status, Vec<u8>) {
        let setup = self.c.setup_body(token, false);
        let request = self.c.chain(false, &[(command::SESSION_SETUP, setup)]);
        self.preauth.add(&request);
        let Came::Answer(reply) = self.c.world.send(self.c.connection, &request) else {
            panic!("no answer")
        };
        let answer = answers(&reply).remove(0);
        self.c.session = answer.header.session;
        let cipher = self.c.cipher;
        if answer.status == Status::SUCCESS && self.c.signer.is_none() {
            let how = (Dialect::Smb311, self.c.signing);
            let signer = Signer::new(how, &keys::short(&KEY), &self.preauth);
            assert!(signer.verify(&reply), "the last answer is signed");
            self.c.signer = Some(Arc::new(signer));
            let keys = |c| Sealing::new(c, Dialect::Smb311, &KEY, &self.preauth).turned();
            self.c.sealing = cipher.map(keys);
        }
        if answer.status == Status::MORE_PROCESSING_REQUIRED {
            self.preauth.add(&reply);
        }
        let token = match answer.status.is_error() {
            true => Vec::new(),
            false => answer.body[8..].to_vec(),
        };
        (answer.status, token)
    }
}

fn state(token: &[u8]) -> u8 {
    // Behind the tags of the choice, the sequence, the field and the enumeration, all short or of
    // one more byte.
    let at = token.windows(3).position(|w| w == [0x0a, 1, w[2]]);
    token[at.unwrap() + 2]
}

#[test]
fn kerberos_is_offered_where_somebody_takes_tickets() {
    let oid = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
    let offers = |world: &World| {
        let (_, came) = Client::new(world, 1).negotiate(Dialect::Smb311 as u16);
        let Came::Answer(reply) = came else {
            panic!("no answer")
        };
        reply.windows(oid.len()).any(|w| w == oid)
    };
    assert!(!offers(&world()));
    assert!(offers(&served()));
}

#[test]
fn a_ticket_is_enough_and_its_key_protects_the_session() {
    let world = served();
    let ciphers = [
        None,
        Some(Cipher::Aes128Gcm),
        Some(Cipher::Aes256Gcm),
        Some(Cipher::Aes128Ccm),
        Some(Cipher::Aes256Ccm),
    ];
    for (n, cipher) in ciphers.into_iter().enumerate() {
        let mut begun = NegotiatingClient::new(&world, n as u64 + 1, cipher);
        let (status, reply) = begun.send(&first_token(KERBEROS, b"alice", None));
        assert_eq!(status, Status::SUCCESS);
        let token = spnego::decode(&reply).unwrap();
        assert_eq!((token.message, token.mic), (&b"mutual"[..], None));
        assert_eq!(state(&reply), State::Completed as u8);
        begun.c.seals = cipher.is_some();
        assert_eq!(begun.c.connect("vol1"), Status::SUCCESS);
    }
    assert_eq!(world.service.sessions()[0].user, "alice@REALM");
}

#[test]
fn who_guessed_another_mechanism_proves_what_it_offered() {
    let world = served();
    let unknown = [Mechanism::Ntlm, Mechanism::Kerberos];
    // A list that begins with something else: as if the first were not known here.
    let offer = spnego::first(&[None, Some(unknown[1])], b"something", None);
    let list = spnego::decode(&offer).unwrap().mechanisms.unwrap().to_vec();
    for (n, (proof, status)) in [
        (Some(code(&list)), Status::SUCCESS),
        (Some(b"wrong".to_vec()), Status::LOGON_FAILURE),
        (None, Status::LOGON_FAILURE),
    ]
    .into_iter()
    .enumerate()
    {
        let mut begun = NegotiatingClient::new(&world, n as u64 + 1, None);
        let (first, reply) = begun.send(&offer);
        assert_eq!(first, Status::MORE_PROCESSING_REQUIRED);
        assert_eq!(state(&reply), State::RequestMic as u8);
        let (second, reply) = begun.send(&spnego::reply(State::Incomplete, None, b"alice", None));
        assert_eq!(second, Status::MORE_PROCESSING_REQUIRED);
        let token = spnego::decode(&reply).unwrap();
        assert_eq!(token.message, b"mutual");
        assert_eq!(token.mic, Some(&code(&list)[..]));
        assert_eq!(world.service.counts().0, n.min(1), "no session before that");
        let last = spnego::reply(State::Incomplete, None, &[], proof.as_deref());
        assert_eq!(begun.send(&last).0, status);
    }
    // The client may send its code with its ticket.
    let mut begun = NegotiatingClient::new(&world, 9, None);
    begun.send(&offer);
    let both = spnego::reply(State::Incomplete, None, b"alice", Some(&code(&list)));
    let (status, reply) = begun.send(&both);
    assert_eq!(status, Status::SUCCESS);
    let token = spnego::decode(&reply).unwrap();
    assert_eq!(token.mic, Some(&code(&list)[..]));
}

#[test]
fn what_is_no_ticket_is_refused() {
    let world = served();
    for (n, (ticket, code, status)) in [
        (&b"mallory"[..], None, Status::LOGON_FAILURE),
        (b"busy", None, Status::INSUFFICIENT_RESOURCES),
        (b"alice", Some(&b"wrong"[..]), Status::LOGON_FAILURE),
        (&[0; MAX_TOKEN + 1][..], None, Status::INVALID_PARAMETER),
    ]
    .into_iter()
    .enumerate()
    {
        let mut begun = NegotiatingClient::new(&world, n as u64 + 1, None);
        let token = first_token(KERBEROS, ticket, code);
        if token.len() > usize::from(u16::MAX) {
            // It does not even fit into the message.
            continue;
        }
        assert_eq!(begun.send(&token).0, status, "{n}");
        assert_eq!(world.service.counts().0, 0);
    }
    // NTLM goes on being served beside it.
    assert_eq!(
        Client::new(&world, 77).log_on(Dialect::Smb311, PASSWORD),
        Status::SUCCESS
    );
}

#[test]
fn a_session_ends_with_its_ticket_unless_another_renews_it() {
    let world = served();
    let mut begun = NegotiatingClient::new(&world, 1, None);
    begun.send(&first_token(KERBEROS, b"alice", None));
    assert_eq!(begun.c.connect("vol1"), Status::SUCCESS);
    let file = begun
        .c
        .send_chain(false, &[create("x", ALL, SHARE, CREATE, 0)]);
    let file = file[0].file();
    world.clock.advance(LIFETIME);
    let refused = begun
        .c
        .send_chain(false, &[create("x", ALL, SHARE, OPEN, 0)]);
    assert_eq!(statuses(&refused), [Status::NETWORK_SESSION_EXPIRED]);
    // Another user's ticket renews nothing.
    let other = first_token(KERBEROS, b"bob", None);
    assert_eq!(begun.send(&other).0, Status::ACCESS_DENIED);
    let again = first_token(KERBEROS, b"alice", None);
    assert_eq!(begun.send(&again).0, Status::SUCCESS);
    let read = begun.c.send_chain(false, &[write(&file, 0, b"data")]);
    assert_eq!(statuses(&read), [Status::SUCCESS]);
    world.clock.advance(LIFETIME);
    let closed = begun.c.send_chain(false, &[close(&file)]);
    assert_eq!(statuses(&closed), [Status::SUCCESS]);
}

/// A ticket with many groups is longer than what strangers may send otherwise.
#[test]
fn only_a_logon_may_be_long_before_there_is_a_user() {
    let long = |world: &World, command: u16, bytes: usize| {
        let record = Client::new(world, 1).chain(false, &[(command, vec![0; 100])]);
        world.takes_long(1, &record, bytes)
    };
    let world = served();
    assert!(long(&world, command::SESSION_SETUP, MAX_TOKEN));
    assert!(!long(&world, command::SESSION_SETUP, MAX_TOKEN + 1000));
    assert!(!long(&world, command::WRITE, MAX_TOKEN));
    let without = crate::tests::service::world();
    assert!(!long(&without, command::SESSION_SETUP, MAX_TOKEN));
}

/// Export rules that want Kerberos, or encryption, are judged by what a session and its messages
/// really have.
#[test]
fn rules_are_judged_by_what_establishes_a_user_and_protects_a_message() {
    let ntlm = |world: &'_ World, n: u64, cipher: Option<Cipher>| -> (Status, bool, Status) {
        let mut c = Client::new(world, n);
        c.cipher = cipher;
        assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        tried(c, cipher.is_some())
    };
    let kerberos = |world: &'_ World, n: u64, cipher: Option<Cipher>| {
        let mut begun = NegotiatingClient::new(world, n, cipher);
        begun.send(&first_token(KERBEROS, b"alice", None));
        tried(begun.c, cipher.is_some())
    };
    let gcm = Some(Cipher::Aes128Gcm);
    let (yes, no) = (Status::SUCCESS, Status::ACCESS_DENIED);
    // The status of a tree connect, whether it asks for encryption, and the status of a CREATE that
    // is not encrypted.
    let refused = (no, false, no);
    for (flavours, transport, expected) in [
        (
            Flavours::NTLM.or(Flavours::KRB5),
            Transport::Clear,
            [(yes, false, yes); 4],
        ),
        (
            Flavours::KRB5,
            Transport::Clear,
            [refused, refused, (yes, false, yes), (yes, false, yes)],
        ),
        (
            Flavours::KRB5_INTEGRITY,
            Transport::Clear,
            [refused, refused, (yes, false, yes), (yes, false, yes)],
        ),
        (
            Flavours::KRB5_PRIVACY,
            Transport::Clear,
            [refused, refused, refused, (yes, true, no)],
        ),
        (
            Flavours::NTLM.or(Flavours::KRB5),
            Transport::Tls,
            [refused, (yes, true, no), refused, (yes, true, no)],
        ),
        (
            Flavours::NTLM.or(Flavours::KRB5),
            Transport::MutualTls,
            [refused; 4],
        ),
    ] {
        let world = served();
        published(&world, |export| {
            let rule = Rule {
                flavours,
                writers: flavours,
                transport,
                ..Rule::open(Squash::None)
            };
            export.rules = vec![rule];
        });
        let came = [
            ntlm(&world, 1, None),
            ntlm(&world, 2, gcm),
            kerberos(&world, 3, None),
            kerberos(&world, 4, gcm),
        ];
        assert_eq!(came, expected, "{flavours:?} {transport:?}");
    }
}

/// Connects to the share, and makes a file in the clear, and encrypted if that is possible, which
/// has to be as good as it gets.
fn tried(mut c: Client<'_>, can_seal: bool) -> (Status, bool, Status) {
    const ENCRYPT_DATA: u32 = 0x8000;
    let answer = c.one(command::TREE_CONNECT, tree_connect("vol1"));
    if answer.status != Status::SUCCESS {
        return (answer.status, false, answer.status);
    }
    c.tree = answer.header.tree;
    let seals = answer.u32(4) & ENCRYPT_DATA != 0;
    let made = create("f", ALL, SHARE, OPEN_IF, 0);
    let clear = c
        .send_chain(false, std::slice::from_ref(&made))
        .remove(0)
        .status;
    if can_seal {
        c.seals = true;
        let sealed = c.send_chain(false, &[made]);
        assert_eq!(statuses(&sealed), [Status::SUCCESS]);
    }
    (answer.status, seals, clear)
}

/// A session of Kerberos that was renewed by a password counts as one of NTLM.
#[test]
fn a_password_makes_less_of_a_session_of_kerberos() {
    let world = served();
    let mut begun = NegotiatingClient::new(&world, 1, None);
    begun.send(&first_token(KERBEROS, b"alice", None));
    let session = world.service.all_sessions().remove(0);
    let is_kerberos = || session.kerberos.load(std::sync::atomic::Ordering::Relaxed);
    assert!(is_kerberos());
    begun.send(&first_token(KERBEROS, b"alice", None));
    assert!(is_kerberos());
    session
        .kerberos
        .fetch_and(false, std::sync::atomic::Ordering::Relaxed);
    begun.send(&first_token(KERBEROS, b"alice", None));
    assert!(!is_kerberos(), "its keys are of NTLM");
}
