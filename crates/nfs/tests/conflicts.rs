//! Conflicts between clients of all protocols: reproduces the tables of docs/reference/conflicts.md
//! by trying each case. `WEIR_BLESS=1` writes the results into the tables.
//!
//! NFSv3 and NFSv4 are spoken. SMB is represented by the replies of the table of claims to its
//! opens, ranges and leases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::fmt::Write as _;
use std::sync::{Arc, Weak};
use support::callbacks::{Callbacks, RECALL};
use support::compound::*;
use support::locker::{BLOCKED, GRACE_PERIOD, GRANTED, Locker};
use support::{NLM, Server, X};
use weir_nfs::Outcome;
use weir_vfs::FileId;
use weir_vfs::claims::{
    self, Actor, CacheRights, Event, Kind, Lock, Modes, Notice, OpenOutcome, OpenRequest, Owner,
    OwnerId, Passage, Range, ServiceId, Sink, Style, Verdict,
};

const HOLDER: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const ANONYMOUS: [u8; 16] = [0; 16];
const NONE: Modes = Modes::NONE;
/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
const NO_DELEGATION: u32 = 0x400;

/// Claim of the other client on the file.
#[derive(Clone, Copy, Debug)]
enum HeldClaim {
    NlmLock { exclusive: bool },
    NlmShare,
    Open { access: u32, deny: u32 },
    Lock { exclusive: bool },
    Delegation { write: bool },
    SmbOpen { access: Modes, deny: Modes },
    SmbRange { exclusive: bool },
    SmbLease { caching: CacheRights },
}

const HELD: [(&str, HeldClaim); 17] = [
    ("NLM lock, shared", HeldClaim::NlmLock { exclusive: false }),
    (
        "NLM lock, exclusive",
        HeldClaim::NlmLock { exclusive: true },
    ),
    ("NLM SHARE that denies writing", HeldClaim::NlmShare),
    (
        "NFSv4 open for reading",
        HeldClaim::Open { access: 1, deny: 0 },
    ),
    (
        "NFSv4 open for writing",
        HeldClaim::Open { access: 2, deny: 0 },
    ),
    (
        "NFSv4 open that denies reading",
        HeldClaim::Open { access: 1, deny: 1 },
    ),
    (
        "NFSv4 open that denies writing",
        HeldClaim::Open { access: 1, deny: 2 },
    ),
    ("NFSv4 lock, shared", HeldClaim::Lock { exclusive: false }),
    ("NFSv4 lock, exclusive", HeldClaim::Lock { exclusive: true }),
    (
        "NFSv4 read delegation",
        HeldClaim::Delegation { write: false },
    ),
    (
        "NFSv4 write delegation",
        HeldClaim::Delegation { write: true },
    ),
    (
        "SMB open that shares nothing of reading",
        HeldClaim::SmbOpen {
            access: Modes::READ,
            deny: Modes::READ,
        },
    ),
    (
        "SMB open that shares nothing of writing",
        HeldClaim::SmbOpen {
            access: Modes::READ,
            deny: Modes::WRITE,
        },
    ),
    (
        "SMB range, shared",
        HeldClaim::SmbRange { exclusive: false },
    ),
    (
        "SMB range, exclusive",
        HeldClaim::SmbRange { exclusive: true },
    ),
    (
        "SMB lease, RH",
        HeldClaim::SmbLease {
            caching: CacheRights::READ_HANDLE,
        },
    ),
    (
        "SMB lease, RWH",
        HeldClaim::SmbLease {
            caching: CacheRights::ALL,
        },
    ),
];

/// Operation of this client.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read3,
    Write3,
    Remove3,
    NlmLock { exclusive: bool },
    Open { access: u32, deny: u32 },
    Read,
    Write,
    Remove,
    Lock { exclusive: bool },
    SmbOpen { access: Modes, deny: Modes },
    SmbIo { write: bool },
    SmbRemove,
    SmbRange { exclusive: bool },
}

type Acts = [(&'static str, Act)];

const NFS3: &Acts = &[
    ("READ", Act::Read3),
    ("WRITE", Act::Write3),
    ("REMOVE", Act::Remove3),
    ("LOCK, shared", Act::NlmLock { exclusive: false }),
    ("LOCK, exclusive", Act::NlmLock { exclusive: true }),
];

const NFS4: &Acts = &[
    ("OPEN to read", Act::Open { access: 1, deny: 0 }),
    ("OPEN to write", Act::Open { access: 2, deny: 0 }),
    ("OPEN denying writing", Act::Open { access: 1, deny: 2 }),
    ("READ", Act::Read),
    ("WRITE", Act::Write),
    ("REMOVE", Act::Remove),
    ("LOCK, shared", Act::Lock { exclusive: false }),
    ("LOCK, exclusive", Act::Lock { exclusive: true }),
];

const SMB: &Acts = &[
    (
        "open to read",
        Act::SmbOpen {
            access: Modes::READ,
            deny: NONE,
        },
    ),
    (
        "open to write",
        Act::SmbOpen {
            access: Modes::WRITE,
            deny: NONE,
        },
    ),
    (
        "open sharing no writing",
        Act::SmbOpen {
            access: Modes::READ,
            deny: Modes::WRITE,
        },
    ),
    ("read", Act::SmbIo { write: false }),
    ("write", Act::SmbIo { write: true }),
    ("delete", Act::SmbRemove),
    ("range, shared", Act::SmbRange { exclusive: false }),
    ("range, exclusive", Act::SmbRange { exclusive: true }),
];

struct Quiet;

impl Sink for Quiet {
    fn notify(&self, _: Notice) {}
}

fn smb(address: &str) -> Owner {
    Owner {
        client: claims::Client {
            service: ServiceId(2),
            address: address.parse().unwrap(),
            name: address.as_bytes().into(),
        },
        who: OwnerId::key(1),
        shown: Arc::default(),
    }
}

struct Case {
    s: Server,
    calls: Callbacks,
    root: Vec<u8>,
    handle: Vec<u8>,
    file: FileId,
    sink: Arc<Quiet>,
}

fn locker<'s>(case: &'s Case, addr: &'static str) -> Locker<'s> {
    Locker {
        s: &case.s,
        host: addr,
        addr,
        svid: 7,
        file: case.handle.clone(),
    }
}

fn smb_open(case: &Case, owner: &Owner, access: Modes, deny: Modes) -> OpenOutcome {
    let request = OpenRequest {
        owner,
        key: &owner.who,
        access,
        deny,
        enforced: true,
        overwrite: false,
    };
    case.s.vfs.claims.open(case.file, &request)
}

fn smb_range(case: &Case, owner: &Owner, exclusive: bool) -> Verdict {
    let lock = Lock {
        owner: owner.clone(),
        range: Range::exact(0, 10).unwrap(),
        exclusive,
        mandatory: true,
    };
    case.s.vfs.claims.lock(case.file, &lock, &owner.who, false)
}

impl Case {
    fn new() -> Case {
        let s = Server::new();
        let calls = Callbacks::attach_to(&s);
        let root = s.from(HOLDER).root();
        let handle = s.create(&root, b"f", 0o666);
        s.write(&handle, 0, &[1; 100]);
        let file = s.vfs.file_id(&handle).unwrap();
        let sink = Arc::new(Quiet);
        let weak: Weak<dyn Sink> = Arc::downgrade(&(sink.clone() as Arc<dyn Sink>));
        s.vfs.claims.attach(ServiceId(2), weak);
        Case {
            s,
            calls,
            root,
            handle,
            file,
            sink,
        }
    }

    /// Makes the other client take a claim; returns true if it got it.
    fn hold(&self, held: HeldClaim) -> bool {
        let client = || Client::new(&self.s, HOLDER, b"holder");
        let owner = smb("10.0.0.8");
        match held {
            HeldClaim::NlmLock { exclusive } => {
                locker(self, HOLDER).lock(false, exclusive, 0, 10) == GRANTED
            }
            HeldClaim::NlmShare => {
                let x = X::new().o(b"cookie").o(b"holder").o(&self.handle).o(b"oh");
                // fsm_DW, fsa_R; no reclaim.
                let mut r = self.s.from(HOLDER).call(NLM, 20, &x.u(2).u(1).u(0));
                r.o();
                r.u() == GRANTED
            }
            HeldClaim::Open { access, deny } => {
                let ops = Ops::new()
                    .fh(&self.handle)
                    .open_fh(b"o", (access | NO_DELEGATION, deny));
                client().status(&ops) == OK
            }
            HeldClaim::Lock { exclusive } => {
                let c = client();
                let mut r = c.run(
                    &Ops::new()
                        .fh(&self.handle)
                        .open_fh(b"o", (3 | NO_DELEGATION, 0)),
                );
                if r.status != OK {
                    return false;
                }
                r.ok(22);
                let open = support::callbacks::opened(&mut r).0;
                let kind = 1 + u32::from(exclusive);
                let ops = Ops::new().fh(&self.handle).lock(kind, (0, 10), &open, b"p");
                c.status(&ops) == OK
            }
            HeldClaim::Delegation { write } => {
                let wants = if write { 3 | 0x200 } else { 1 | 0x100 };
                let ops = Ops::new().fh(&self.handle).open_fh(b"o", (wants, 0));
                let mut r = client().run(&ops);
                r.ok(22);
                matches!(
                    support::callbacks::opened(&mut r).1,
                    support::callbacks::DelegationGrant::Read(_)
                        | support::callbacks::DelegationGrant::Write(_)
                )
            }
            HeldClaim::SmbOpen { access, deny } => {
                smb_open(self, &owner, access, deny) == OpenOutcome::Granted
            }
            HeldClaim::SmbRange { exclusive } => {
                smb_open(self, &owner, Modes::BOTH, NONE) == OpenOutcome::Granted
                    && smb_range(self, &owner, exclusive) == Verdict::Granted
            }
            HeldClaim::SmbLease { caching } => {
                let opened = smb_open(self, &owner, Modes::BOTH, NONE) == OpenOutcome::Granted;
                let claims = &self.s.vfs.claims;
                opened && claims.grant(self.file, &owner, Kind::Lease, caching) == caching
            }
        }
    }

    fn nfs3(&self, procedure: u32, args: &X) -> &'static str {
        match self.s.from(OTHER).status(procedure, args) {
            0 => "yes",
            10_008 => "asks",
            13 => "no",
            other => panic!("{other}"),
        }
    }

    fn nfs4(&self, c: &Client<'_>, ops: &Ops) -> &'static str {
        match c.begin(&c.next_args(ops, true)) {
            Outcome::Parked(..) => "asks",
            Outcome::Reply(reply, _) => {
                let status = u32::from_be_bytes(reply.message()[24..28].try_into().unwrap());
                match status {
                    OK => "yes",
                    DENIED | SHARE_DENIED | LOCKED => "no",
                    other => panic!("{other}"),
                }
            }
            _ => panic!("no reply"),
        }
    }
}

/// Returns the result of an operation: `yes`, `no`, or `asks` (the holder is asked to give up its
/// cache, and the client waits or tries again). It is `–` if the holder cannot have its claim
/// beside the one that the operation needs.
fn outcome(held: HeldClaim, act: Act) -> &'static str {
    let case = &Case::new();
    let s = &case.s;
    let object = || X::new().o(&case.handle);
    let name = || X::new().o(&case.root).o(b"f");
    let owner = smb("10.0.0.9");
    let of_opened = |opened| match opened {
        OpenOutcome::Granted => "yes",
        OpenOutcome::Denied => "no",
        OpenOutcome::Breaking(_) => "asks",
        other => panic!("{other:?}"),
    };
    let of_passage = |passage| match passage {
        Passage::Free => "yes",
        Passage::Denied | Passage::Locked => "no",
        Passage::Breaking(_) => "asks",
    };
    // Needed before the other client takes its claim.
    let needs_open = matches!(act, Act::Lock { .. });
    let needs_smb = matches!(act, Act::SmbIo { .. } | Act::SmbRange { .. });
    let client = Client::new(s, OTHER, b"other");
    let open = needs_open.then(|| {
        let mut r = client.run(
            &Ops::new()
                .fh(&case.handle)
                .open_fh(b"o", (3 | NO_DELEGATION, 0)),
        );
        r.ok(22);
        support::callbacks::opened(&mut r).0
    });
    if needs_smb {
        assert_eq!(
            smb_open(case, &owner, Modes::BOTH, NONE),
            OpenOutcome::Granted
        );
    }
    if !case.hold(held) {
        return "–";
    }
    let outcome = match act {
        Act::Read3 => case.nfs3(6, &object().h(0).u(4)),
        Act::Write3 => case.nfs3(7, &object().h(0).u(1).u(2).o(b"x")),
        Act::Remove3 => case.nfs3(12, &name()),
        Act::NlmLock { exclusive } => match locker(case, OTHER).lock(false, exclusive, 0, 10) {
            GRANTED => "yes",
            GRACE_PERIOD => "asks",
            BLOCKED | 1 => "no",
            other => panic!("{other}"),
        },
        Act::Open { access, deny } => {
            let ops = Ops::new()
                .fh(&case.handle)
                .open_fh(b"o", (access | NO_DELEGATION, deny));
            case.nfs4(&client, &ops)
        }
        Act::Read => case.nfs4(&client, &Ops::new().fh(&case.handle).read(&ANONYMOUS, 0, 4)),
        Act::Write => {
            let ops = Ops::new().fh(&case.handle).write(&ANONYMOUS, 0, b"x");
            case.nfs4(&client, &ops)
        }
        Act::Remove => case.nfs4(&client, &Ops::new().fh(&case.root).remove(b"f")),
        Act::Lock { exclusive } => {
            let kind = 1 + u32::from(exclusive);
            let open = open.expect("opened before");
            let ops = Ops::new().fh(&case.handle).lock(kind, (0, 10), &open, b"p");
            case.nfs4(&client, &ops)
        }
        Act::SmbOpen { access, deny } => of_opened(smb_open(case, &owner, access, deny)),
        Act::SmbIo { write } => {
            let actor = Actor::Mandatory {
                owner: &owner,
                key: &owner.who,
                parent: None,
            };
            let range = Range::exact(0, 4).unwrap();
            of_passage(s.vfs.claims.io(case.file, actor, write, range))
        }
        Act::SmbRemove => {
            let actor = Actor::Mandatory {
                owner: &owner,
                key: &owner.who,
                parent: None,
            };
            of_passage(
                s.vfs
                    .claims
                    .names(case.file, actor, Event::Name, Style::Unix),
            )
        }
        Act::SmbRange { exclusive } => match smb_range(case, &owner, exclusive) {
            Verdict::Granted => "yes",
            Verdict::Denied(_) => "no",
            Verdict::Breaking(_) => "asks",
            other => panic!("{other:?}"),
        },
    };
    // A delegation is recalled when, and only when, something has to be asked back.
    if matches!(held, HeldClaim::Delegation { .. }) {
        s.service.tick();
        let recalled = case
            .calls
            .next()
            .is_some_and(|call| call.operation == RECALL);
        assert_eq!(recalled, outcome == "asks", "{held:?}, {act:?}");
    }
    drop(Arc::clone(&case.sink));
    outcome
}

fn table(text: &mut String, title: &str, acts: &Acts) {
    let names: Vec<&str> = acts.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(
        text,
        "\n## {title}\n\n| Another client has | {} |",
        names.join(" | ")
    );
    let _ = writeln!(text, "|---|{}", "---|".repeat(acts.len()));
    for (name, held) in HELD {
        let cells: Vec<&str> = acts.iter().map(|(_, act)| outcome(held, *act)).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
}

const HEAD: &str = "\
# What clients of different protocols may do at the same time

A file of which one client has something, and what another client may do to it. Locks and ranges are of the same bytes.

| Word | Meaning |
|---|---|
| yes | it is done |
| no | it is refused: NFSv3 ACCES, NLM DENIED, NFSv4 SHARE_DENIED, LOCKED or DENIED, SMB a sharing or lock conflict |
| asks | the holder has to give up what it caches first: NFSv3, NFSv4 and SMB wait (NFSv3 two to three seconds, then it gets JUKEBOX), NLM is put off meanwhile |
| – | the two cannot come to that: the lock needs an open, beside which the other client does not get what the row has |

NFSv4 reads and writes are those without an open (the anonymous stateid). Those under an open were decided at OPEN.
The part of SMB is what the table says that all protocols share. The volume's style is UNIX.

The tables are made by trying each case (`crates/nfs/tests/conflicts.rs`); the test fails where this page says something else.
";

#[test]
fn the_page_says_what_happens() {
    let mut text = HEAD.to_owned();
    table(&mut text, "NFSv3 and NLM", NFS3);
    table(&mut text, "NFSv4", NFS4);
    table(&mut text, "SMB", SMB);
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/conflicts.md"
    );
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(page, &text).unwrap();
    }
    let said = std::fs::read_to_string(page).unwrap();
    for (found, said) in text.lines().zip(said.lines()) {
        assert_eq!(
            said, found,
            "docs/reference/conflicts.md (WEIR_BLESS=1 writes it anew)"
        );
    }
    assert!(
        text == said,
        "docs/reference/conflicts.md (WEIR_BLESS=1 writes it anew)"
    );
}
