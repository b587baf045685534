//! The table against a naive one: plain lists, every rule written out again, over random operations
//! of NLM hosts, NFSv4 clients and SMB clients on the same files. `CLAIMS_SEED=n` begins with
//! another seed, `CLAIMS_RUNS=n` makes more runs.

mod naive;

use std::time::Duration;

use super::tests::Notices;
use super::*;
use naive::{BYTES, Model, Outcome, Part, Protocol, file};
use weir_base::{Rng, SeededRng, VolumeId};

/// Starts are below this and lengths below half of it, so that only a range to the end of the file
/// passes the model's last byte.
const STARTS: u64 = 24;
const FILES: u64 = 2;

fn cast() -> Vec<Part> {
    let part = |protocol, host: u8, who, key| {
        let client = Client {
            service: ServiceId(protocol as u8),
            address: IpAddr::from([10, 0, 0, host]),
            name: Arc::from(&b"name"[..]),
        };
        let shown = Arc::default();
        let owner = Owner { client, who, shown };
        Part {
            protocol,
            owner,
            key,
        }
    };
    let nlm = |host, n| {
        part(
            Protocol::Nlm,
            host,
            OwnerId::Process(n),
            OwnerId::Process(n),
        )
    };
    let v4 = |host, n| part(Protocol::V4, host, OwnerId::key(n), OwnerId::key(0));
    let smb = |host, n, lease| part(Protocol::Smb, host, OwnerId::key(n), OwnerId::key(lease));
    vec![
        nlm(1, 1),
        nlm(1, 2),
        nlm(2, 1),
        v4(1, 1),
        v4(1, 2),
        v4(3, 1),
        smb(4, 1, 100),
        smb(4, 2, 100),
        smb(4, 3, 101),
        smb(5, 1, 100),
    ]
}

fn range(rng: &SeededRng, protocol: Protocol) -> Range {
    let start = rng.below(STARTS);
    let length = rng.below(STARTS / 2);
    match protocol {
        Protocol::Smb if length > 0 && rng.below(8) == 0 => Range::new(start, 0).unwrap(),
        Protocol::Smb => Range::exact(start, length).unwrap(),
        _ => Range::new(start, length).unwrap(),
    }
}

fn modes(rng: &SeededRng, often: u64) -> Modes {
    match rng.below(often) {
        0 => Modes(rng.below(8) as u8),
        _ => Modes::NONE,
    }
}

fn of_passage(passage: Passage) -> Outcome {
    match passage {
        Passage::Free => Outcome::Granted,
        Passage::Denied => Outcome::Denied,
        Passage::Locked => Outcome::Locked,
        Passage::Breaking(ticket) => {
            assert!(!ticket.is_over());
            Outcome::Breaking
        }
    }
}

fn actor(p: Option<&Part>) -> Actor<'_> {
    match p {
        None => Actor::Stateless,
        Some(Part {
            protocol: Protocol::Smb,
            owner,
            key,
        }) => Actor::Mandatory {
            owner,
            key,
            parent: None,
        },
        Some(p) if p.is_client() => Actor::Client { owner: &p.owner },
        Some(Part { owner, key, .. }) => Actor::Advisory { owner, key },
    }
}

/// A table that holds what the model does, claimed again in the order in which it was.
fn reclaim(model: &mut Model, cast: &[Part]) -> (Claims, Arc<Notices>) {
    let t = Claims::new(Budget::new(64 << 20));
    let sink = Notices::attached(&t);
    model.grants.clear();
    model.queue.clear();
    model.parked.clear();
    model.marks.clear();
    for o in &model.opens {
        let request = OpenRequest {
            owner: &o.owner,
            key: &o.key,
            access: o.access,
            deny: o.deny,
            enforced: o.enforced,
            overwrite: false,
        };
        assert_eq!(t.open(file(o.file), &request), OpenOutcome::Granted);
    }
    // Empty mandatory ranges before the advisory ones that were joined around them.
    for (f, lock) in &model.mandatory {
        let key = cast.iter().find(|p| p.owner == lock.owner);
        let key = &key.unwrap().key;
        assert_eq!(t.lock(file(*f), lock, key, false), Verdict::Granted);
    }
    for (f, b, owner, exclusive) in &model.advisory {
        let last = if *b == BYTES - 1 { u64::MAX } else { *b };
        let lock = Lock {
            owner: owner.clone(),
            range: Range { start: *b, last },
            exclusive: *exclusive,
            mandatory: false,
        };
        assert_eq!(t.lock(file(*f), &lock, &owner.who, false), Verdict::Granted);
    }
    (t, sink)
}

/// Checks that the table holds what the model does.
fn compare(t: &Claims, model: &Model, at: &str) {
    for f in 0..FILES {
        let shard = t.shard(file(f));
        let held = shard.get(&file(f)).map_or_else(Vec::new, |f| f.held());
        for b in 0..BYTES {
            let on = held.iter().filter(|l| !l.mandatory);
            let on = on.filter(|l| l.range.start <= b && b <= l.range.last);
            let mut now: Vec<_> = on
                .map(|l| format!("{:?} {}", l.owner, l.exclusive))
                .collect();
            let want = model.advisory.iter().filter(|l| l.0 == f && l.1 == b);
            let mut want: Vec<_> = want.map(|l| format!("{:?} {}", l.2, l.3)).collect();
            now.sort();
            want.sort();
            assert_eq!(now, want, "{at}: byte {b} of {f}");
        }
        let mut now: Vec<_> = held
            .iter()
            .filter(|l| l.mandatory)
            .map(|l| format!("{l:?}"))
            .collect();
        let want = model.mandatory.iter().filter(|l| l.0 == f);
        let mut want: Vec<_> = want.map(|l| format!("{:?}", l.1)).collect();
        now.sort();
        want.sort();
        assert_eq!(now, want, "{at}: mandatory ranges of {f}");
        let more = shard.get(&file(f)).and_then(|f| f.more());
        let mut now: Vec<_> = more.map_or_else(Vec::new, |m| {
            let all = m.grants.iter();
            all.map(|g| {
                format!(
                    "{:?} {:?} {:?} {:?}",
                    g.holder.owner,
                    g.kind,
                    g.caching,
                    g.breaking.as_ref().map(|b| b.0)
                )
            })
            .collect()
        });
        let want = model.grants.iter().filter(|g| g.file == f);
        let mut want: Vec<_> = want
            .map(|g| {
                format!(
                    "{:?} {:?} {:?} {:?}",
                    g.owner,
                    g.kind,
                    g.caching,
                    g.breaking.map(|b| b.0)
                )
            })
            .collect();
        now.sort();
        want.sort();
        assert_eq!(now, want, "{at}: grants of {f}");
        let mut now: Vec<_> = more.map_or_else(Vec::new, |m| {
            m.parked
                .values()
                .map(|h| format!("{:?}", h.owner))
                .collect()
        });
        let mut want: Vec<_> = model
            .parked
            .iter()
            .filter(|p| p.0 == f)
            .map(|p| format!("{:?}", p.1))
            .collect();
        now.sort();
        want.sort();
        assert_eq!(now, want, "{at}: parked in {f}");
        drop(shard);
        let (pending, want) = (t.delete_pending(file(f)), model.delete_pending(f));
        assert_eq!(pending, want, "{at}: deletion of {f}");
        let shard = t.shard(file(f));
        let more = shard.get(&file(f)).and_then(|f| f.more());
        assert_eq!(
            more.map_or(0, |m| m.opens.len()),
            model.opens.iter().filter(|o| o.file == f).count(),
            "{at}"
        );
        // The hints are exact here: the files have buckets of their own.
        let binds = model
            .opens
            .iter()
            .any(|o| o.file == f && o.enforced && !o.deny.is_none())
            || model.mandatory.iter().any(|l| l.0 == f)
            || model.grants.iter().any(|g| g.file == f);
        assert_eq!(t.version_of(file(f)).none(), !binds, "{at}: hint of {f}");
    }
    let totals = t.totals();
    assert_eq!(
        (totals.waiting, totals.grants),
        (model.queue.len(), model.grants.len()),
        "{at}"
    );
}

fn sorted(notices: &[Notice]) -> Vec<String> {
    let mut out: Vec<_> = notices.iter().map(|n| format!("{n:?}")).collect();
    out.sort();
    out
}

fn run(seed: u64) {
    let rng = SeededRng::new(seed);
    let cast = cast();
    let mut t = Claims::new(Budget::new(64 << 20));
    let mut sink = Notices::attached(&t);
    let mut model = Model::default();
    let mut now = Duration::ZERO;
    let mut questions: Vec<(usize, Question)> = Vec::new();
    // Some runs use one file and few parts, so that they meet more often.
    let (files, few) = (1 + rng.below(FILES), 3 + rng.below(8));
    let first = rng.below(cast.len() as u64);
    for step in 0..120 {
        let f = rng.below(files);
        let who = (first + rng.below(few)) as usize % cast.len();
        let p = &cast[who];
        let by = (rng.below(3) > 0).then_some(p);
        let smb = p.protocol == Protocol::Smb;
        let choice = rng.below(112);
        let at = format!(
            "seed {seed}, step {step}, {choice}: {:?} {:?} on {f}",
            p.protocol, p.owner.who
        );
        // A client that sends a request is not parked.
        if !(87..=93).contains(&choice) {
            t.unpark(&p.owner.client);
            let client = &p.owner.client;
            model.parked.retain(|p| p.1.client != *client);
        }
        match choice {
            0..=24 => {
                let want = Lock {
                    owner: p.owner.clone(),
                    range: range(&rng, p.protocol),
                    exclusive: rng.below(2) == 0,
                    mandatory: smb,
                };
                let wait = rng.below(2) == 0;
                let got = match t.lock(file(f), &want, &p.key, wait) {
                    Verdict::Granted => Outcome::Granted,
                    Verdict::Queued => Outcome::Queued,
                    Verdict::Deadlock => Outcome::Deadlock,
                    Verdict::Breaking(_) => Outcome::Breaking,
                    Verdict::Full => panic!("{at}"),
                    Verdict::Denied(held) => {
                        assert!(held.range.overlaps(&want.range), "{at}: {held:?}");
                        assert!(held.exclusive || want.exclusive, "{at}: {held:?}");
                        Outcome::Denied
                    }
                };
                assert_eq!(got, model.lock(f, p, &want, wait), "{at}: {want:?}");
            }
            25..=32 => {
                let r = range(&rng, p.protocol);
                if smb {
                    // Mostly one that there is.
                    let own: Vec<_> = model
                        .mandatory
                        .iter()
                        .filter(|l| l.0 == f && l.1.owner == p.owner)
                        .collect();
                    let r = match own.len() {
                        0 => r,
                        n => own[rng.below(n as u64) as usize].1.range,
                    };
                    let same = |l: &(u64, Lock)| l.0 == f && l.1.owner == p.owner && l.1.range == r;
                    let exclusive = model
                        .mandatory
                        .iter()
                        .position(|l| same(l) && l.1.exclusive);
                    let found = exclusive.or_else(|| model.mandatory.iter().position(same));
                    assert_eq!(
                        t.unlock_exact(file(f), &p.owner, r),
                        found.is_some(),
                        "{at}"
                    );
                    found.map(|n| model.mandatory.remove(n));
                } else {
                    t.unlock(file(f), &p.owner, r).unwrap();
                    model.clear_advisory(f, &p.owner, r);
                }
                model.forget_idle();
            }
            33..=35 => {
                if !model.queue.is_empty() {
                    let (f, l) = model
                        .queue
                        .remove(rng.below(model.queue.len() as u64) as usize);
                    assert!(t.cancel(file(f), &l), "{at}");
                    assert!(!t.cancel(file(f), &l), "{at}");
                }
            }
            36..=47 => {
                let (access, mut deny) = (modes(&rng, 2) | modes(&rng, 3), modes(&rng, 3));
                if !smb {
                    deny = deny & Modes::BOTH;
                }
                let overwrite = rng.below(6) == 0;
                let request = OpenRequest {
                    owner: &p.owner,
                    key: &p.key,
                    access,
                    deny,
                    enforced: p.protocol != Protocol::Nlm,
                    overwrite,
                };
                let got = match t.open(file(f), &request) {
                    OpenOutcome::Granted => Outcome::Granted,
                    OpenOutcome::Denied => Outcome::Denied,
                    OpenOutcome::Breaking(_) => Outcome::Breaking,
                    OpenOutcome::DeletePending => Outcome::DeletePending,
                    OpenOutcome::Full => panic!("{at}"),
                };
                assert_eq!(
                    got,
                    model.open(f, p, access, deny, overwrite),
                    "{at}: {request:?}"
                );
            }
            48..=52 => {
                let had = model.close(f, &p.owner);
                model.forget_idle();
                let last = had && !model.opens.iter().any(|o| o.file == f);
                assert_eq!(t.close(file(f), &p.owner), last, "{at}");
            }
            53..=62 if p.protocol != Protocol::Nlm => {
                let holder = caching::under_key(&p.owner, &p.key);
                let (kind, wanted) = match (smb, rng.below(2)) {
                    (true, _) => (Kind::Lease, CacheRights(rng.below(8) as u8)),
                    (false, 0) => (Kind::Delegation, CacheRights::READ_HANDLE),
                    (false, _) => (Kind::Delegation, CacheRights::ALL),
                };
                let got = t.grant(file(f), &holder, kind, wanted);
                assert_eq!(
                    got,
                    model.grant(f, &holder, kind, wanted),
                    "{at}: {wanted:?}"
                );
            }
            63..=70 => {
                if !model.grants.is_empty() {
                    let g = model.grants[rng.below(model.grants.len() as u64) as usize].clone();
                    let keeps = match (rng.below(4), g.breaking) {
                        (0, _) => CacheRights(rng.below(8) as u8),
                        (1, Some((to, _))) => to,
                        _ => CacheRights::NONE,
                    };
                    let got = t.acknowledge(file(g.file), &g.owner, keeps);
                    assert_eq!(
                        got,
                        model.acknowledge(g.file, &g.owner, keeps),
                        "{at}: {g:?} {keeps:?}"
                    );
                }
            }
            71..=80 => {
                let (write, r) = (rng.below(2) == 0, range(&rng, Protocol::Smb));
                let client = rng.below(4) == 0;
                let as_client = by.filter(|_| client).and_then(Part::client);
                let by = as_client.as_ref().or(by);
                let before = model.clone();
                let got = of_passage(t.io(file(f), actor(by), write, r));
                let want = model.io(f, by, write, r);
                assert_eq!(got, want, "{at}: {by:?} {write} {r:?}");
                if got == Outcome::Locked {
                    // Parked holders that the table found before a holder that is not parked may be
                    // gone.
                    let gone = sink.take();
                    let stopped = before.against_io(f, by, write, r);
                    for notice in &gone {
                        let Notice::Dropped { owner, .. } = notice else {
                            // Only what was dropped is compared here.
                            continue;
                        };
                        let expected = stopped.contains(owner) || model.notices.contains(notice);
                        assert!(expected, "{at}: {notice:?}");
                        model.strip(f, owner);
                    }
                    model.wake();
                    let granted = gone
                        .into_iter()
                        .filter(|n| !matches!(n, Notice::Dropped { .. }));
                    let kept = std::mem::take(&mut model.notices);
                    let kept: Vec<_> = kept
                        .into_iter()
                        .filter(|n| !matches!(n, Notice::Dropped { .. }))
                        .collect();
                    assert_eq!(sorted(&granted.collect::<Vec<_>>()), sorted(&kept), "{at}");
                }
            }
            81..=86 => {
                let events = [Event::Name, Event::Attributes, Event::Entries];
                let event = events[rng.below(3) as usize];
                let style = [Style::Unix, Style::Ntfs][rng.below(2) as usize];
                let client = rng.below(2) == 0;
                let as_client = by.filter(|_| client).and_then(Part::client);
                let by = as_client.as_ref().or(by);
                let got = of_passage(t.names(file(f), actor(by), event, style));
                assert_eq!(
                    got,
                    model.names(f, by, event, style),
                    "{at}: {event:?} {style:?}"
                );
            }
            87..=89 => {
                t.park(&p.owner.client);
                let mut all: Vec<Owner> = cast.iter().map(|p| p.owner.clone()).collect();
                all.extend(cast.iter().map(|p| caching::under_key(&p.owner, &p.key)));
                for f in 0..FILES {
                    for owner in all.iter().filter(|o| o.client == p.owner.client) {
                        model.queue.retain(|l| l.0 != f || l.1.owner != *owner);
                    }
                    for owner in all.iter().filter(|o| o.client == p.owner.client) {
                        model.park(f, owner);
                    }
                }
            }
            90 => {
                t.park_owner(file(f), &p.owner);
                model.park(f, &p.owner);
            }
            91..=92 => {
                t.unpark(&p.owner.client);
                let client = &p.owner.client;
                model.parked.retain(|p| p.1.client != *client);
            }
            93 => {
                t.unpark_owner(file(f), &p.owner);
                model.unpark(f, &p.owner);
            }
            94 => {
                let client = &p.owner.client;
                t.release(std::slice::from_ref(client));
                for f in 0..FILES {
                    for q in &cast {
                        if q.owner.client == *client {
                            model.strip(f, &q.owner);
                            model.strip(f, &caching::under_key(&q.owner, &q.key));
                        }
                    }
                }
            }
            95..=98 => {
                let long = rng.below(2) == 0;
                t.tick(now);
                if long {
                    now += BREAK_PATIENCE;
                    t.tick(now);
                }
                model.tick(long);
            }
            100..=103 => {
                let removal = Removal {
                    dir: weir_base::Ino(1),
                    name: Arc::from(step.to_string().as_bytes()),
                    alone: rng.below(2) == 0,
                };
                let now = rng.below(2) == 0;
                let when = match now {
                    true => DeleteMode::Now,
                    false => DeleteMode::OnClose,
                };
                let marked = match model.mark(f, &p.owner, now, &removal) {
                    true => MarkOutcome::Yes,
                    false => MarkOutcome::NotOpen,
                };
                assert_eq!(t.mark(file(f), &p.owner, when, &removal), marked, "{at}");
            }
            104 => {
                let none = model.unmark(f, &p.owner);
                assert_eq!(t.unmark(file(f), &p.owner), none, "{at}");
            }
            105 => {
                // Only what was asked for is reported.
                if model.marks.iter().any(|m| m.file == f && m.noticed) {
                    t.deleted(file(f));
                    model.marks.retain(|m| m.file != f);
                }
            }
            106..=108 => {
                let got = t.request_attributes(file(f), actor(by));
                let want = model.request_attributes(f, by);
                assert_eq!(got.is_some(), want.is_some(), "{at}: {by:?}");
                questions.extend(want.zip(got));
            }
            109..=111 => {
                if !model.grants.is_empty() {
                    let g = model.grants[rng.below(model.grants.len() as u64) as usize].clone();
                    let answer = HolderAttr {
                        size: rng.below(100),
                        change: step,
                        ..HolderAttr::default()
                    };
                    let asked = model.reply(g.file, &g.owner);
                    assert_eq!(t.reply(file(g.file), &g.owner, answer), asked, "{at}");
                    let of = |q: &&(usize, Question)| g.asked.is_some_and(|a| a.0 == q.0);
                    for (_, question) in questions.iter().filter(of) {
                        assert_eq!(question.answer(), Some(answer), "{at}");
                    }
                }
            }
            _ => {
                model.notices.clear();
                sink.take();
                (t, sink) = reclaim(&mut model, &cast);
                questions.clear();
            }
        }
        model.wake();
        assert_eq!(
            sorted(&sink.take()),
            sorted(&std::mem::take(&mut model.notices)),
            "{at}"
        );
        compare(&t, &model, &at);
        // A question waits as long as an answer may come, and no longer.
        for (number, question) in &questions {
            let mut asked = model.grants.iter().filter_map(|g| g.asked);
            let open = asked.any(|a| a.0 == *number);
            assert_eq!(
                question.ticket().is_over(),
                !open,
                "{at}: question {number}"
            );
        }
    }
    for p in &cast {
        t.release(std::slice::from_ref(&p.owner.client));
    }
    (0..FILES).for_each(|f| t.deleted(file(f)));
    assert_eq!(t.totals(), Totals::default(), "seed {seed}");
    assert!(t.graph.lock().is_empty(), "seed {seed}");
    assert!((0..FILES).all(|f| t.version_of(file(f)).none()) && t.version_in(VolumeId(1)).none());
}

#[test]
fn the_table_does_what_the_model_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (first, runs) = (
        number("CLAIMS_SEED").unwrap_or(1),
        number("CLAIMS_RUNS").unwrap_or(700),
    );
    (first..first + runs).for_each(run);
}
