//! Security contexts with a mechanism of the tests' own in place of Kerberos, and their users.

use super::{NFS, R, Server, X};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_auth::gss::{
    AcceptOutcome, Acceptor, Mic, Peer, Protection, SecurityContext, UnwrappedMessage,
};
use weir_nfs::gss::window;
use weir_vfs::{Flavours, Groups, Identity, Rule, Squash};

pub const NONE: u32 = 1;
pub const INTEGRITY: u32 = 2;
pub const PRIVACY: u32 = 3;
pub const DATA: u32 = 0;
pub const INIT: u32 = 1;
pub const CONTINUE: u32 = 2;
pub const DESTROY: u32 = 3;
pub const CRED_PROBLEM: u32 = 13;
pub const CTX_PROBLEM: u32 = 14;

/// A checksum that only holders of the key can make, and a trivial cipher.
pub struct Mock {
    key: u8,
}

pub fn mic(key: u8, message: &[u8]) -> Vec<u8> {
    let sum = message.iter().fold(u64::from(key), |sum, b| {
        sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*b)
    });
    sum.to_be_bytes().to_vec()
}

pub fn wrap(key: u8, message: &[u8]) -> Vec<u8> {
    let mut out = mic(key, message);
    out.extend(message.iter().map(|b| b ^ key));
    out
}

pub fn unwrap(key: u8, sealed: &[u8]) -> Option<Vec<u8>> {
    let (sum, body) = sealed.split_at_checked(8)?;
    let message: Vec<u8> = body.iter().map(|b| b ^ key).collect();
    (mic(key, &message) == sum).then_some(message)
}

impl Protection for Mock {
    fn verify(&self, message: &[u8], sum: &[u8]) -> bool {
        mic(self.key, message) == sum
    }
    fn mic(&self, parts: &[&[u8]]) -> Option<Mic> {
        Some(mic(self.key, &parts.concat()).into())
    }
    fn wrap(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> bool {
        out.extend(wrap(self.key, &parts.concat()));
        true
    }
    fn unwrap(&self, sealed: &[u8]) -> Option<UnwrappedMessage> {
        let mut bytes = vec![0xdd; 3];
        bytes.extend(unwrap(self.key, sealed)?);
        let message = 3..bytes.len();
        bytes.extend([0xee; 5]);
        Some(UnwrappedMessage { bytes, message })
    }
}

/// Takes the tokens `key, uid` and `key, uid, number of a machine` for 100 s.
pub struct Mechanism;

impl Acceptor for Mechanism {
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = AcceptOutcome> + Send>> {
        Box::pin(std::future::ready(match token[..] {
            // Behind 255 anything may follow: the groups of a user of Active Directory.
            [key, uid, _] | [key, uid] | [key, uid, 255, ..] => AcceptOutcome {
                token: vec![key, 0xaa],
                established: Some(SecurityContext {
                    peer: Peer {
                        principal: match token.get(2) {
                            Some(machine) => format!("nfs/host{machine}@TEST"),
                            None => format!("user{uid}@TEST"),
                        },
                        identity: Identity::unix(uid.into(), 500, (600..640).collect::<Groups>()),
                    },
                    lifetime: Duration::from_secs(100),
                    protections: (0..2).map(|_| Box::new(Mock { key }) as _).collect(),
                }),
                ..AcceptOutcome::default()
            },
            _ => AcceptOutcome {
                major: 9 << 16,
                minor: 77,
                ..AcceptOutcome::default()
            },
        }))
    }
}

pub fn server(flavours: Flavours) -> Server {
    let rule = Rule {
        flavours,
        writers: flavours,
        ..Rule::open(Squash::None)
    };
    let s = Server::with(vec![rule]);
    s.service.accept_contexts(Arc::new(Mechanism));
    s
}

/// The head of a call up to its credential.
pub fn head(
    call: (u32, u32, u32),
    procedure: u32,
    sequence: u32,
    service: u32,
    handle: &[u8],
) -> X {
    let (program, version, number) = call;
    let cred = X::new().u(1).u(procedure).u(sequence).u(service).o(handle);
    let x = X::new().u(sequence).u(0).u(2).u(program).u(version);
    x.u(number).u(6).o(&cred.0)
}

/// A client with a context.
pub struct User {
    pub handle: Vec<u8>,
    pub key: u8,
}

pub fn init(s: &Server, procedure: u32, token: &[u8]) -> R {
    let x = head((NFS.0, 3, 0), procedure, 0, NONE, &[]);
    s.send(&x.u(0).u(0).o(token).0)
}

impl User {
    pub fn new(s: &Server, key: u8, uid: u8) -> User {
        User::by(s, &[key, uid])
    }

    /// Establishes the context of a token, whose first byte is the key.
    pub fn by(s: &Server, token: &[u8]) -> User {
        let key = token[0];
        let mut r = init(s, INIT, token);
        assert_eq!((r.u(), r.u(), r.u(), r.u()), (0, 1, 0, 6));
        assert_eq!(r.o(), mic(key, &window::SIZE.to_be_bytes()));
        assert_eq!(r.u(), 0);
        let handle = r.o();
        assert_eq!((r.u(), r.u(), r.u()), (0, 0, window::SIZE));
        assert_eq!(r.o(), [key, 0xaa]);
        r.end();
        User { handle, key }
    }

    /// Encodes a call with this number under a protection.
    pub fn record(&self, call: (u32, u32, u32), sequence: u32, service: u32, args: &X) -> Vec<u8> {
        self.sealed((call, DATA), sequence, service, sequence, args)
    }

    /// Encodes a call whose protected part has the number `inner`.
    pub fn sealed(
        &self,
        (call, procedure): ((u32, u32, u32), u32),
        sequence: u32,
        service: u32,
        inner: u32,
        args: &X,
    ) -> Vec<u8> {
        let x = head(call, procedure, sequence, service, &self.handle);
        let sum = mic(self.key, &x.0);
        let x = x.u(6).o(&sum);
        let body = X::new().u(inner).raw(&args.0).0;
        match service {
            INTEGRITY => x.o(&body).o(&mic(self.key, &body)),
            PRIVACY => x.o(&wrap(self.key, &body)),
            _ => x.raw(&args.0),
        }
        .0
    }

    /// The results of a reply, which must bear the right verifier and protection.
    pub fn open(&self, mut r: R, sequence: u32, service: u32) -> R {
        assert_eq!((r.u(), r.u(), r.u(), r.u()), (sequence, 1, 0, 6));
        assert_eq!(r.o(), mic(self.key, &sequence.to_be_bytes()));
        assert_eq!(r.u(), 0, "accept_stat");
        if service == NONE {
            return r;
        }
        let mut body = r.o();
        if service == INTEGRITY {
            assert_eq!(r.o(), mic(self.key, &body));
        } else {
            body = unwrap(self.key, &body).expect("encrypted");
        }
        r.end();
        let mut r = R(body, 0);
        assert_eq!(r.u(), sequence);
        r
    }

    pub fn call(
        &self,
        s: &Server,
        call: (u32, u32, u32),
        sequence: u32,
        service: u32,
        args: &X,
    ) -> R {
        let reply = s.send(&self.record(call, sequence, service, args));
        self.open(reply, sequence, service)
    }
}
