use super::*;
use crate::admission::{self, Admission};
use crate::identity::{Sid, Token};
use crate::names::{Resolver, Unavailable};
use crate::{Admissions, Flavour, Session, Transport};
use std::collections::BTreeMap;
use weir_base::{Rng, SeededRng, SystemClock, Time};
use weir_store::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_volume::{Engine, EngineOptions};

fn rule(clients: &str) -> Rule {
    Rule {
        clients: Clients::parse(clients).unwrap(),
        ..Rule::open(Squash::None)
    }
}

fn parse_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// `n` empty volumes, and the engine that they need.
fn volumes(n: usize) -> (Engine, Vec<Arc<Volume>>) {
    let env = Env {
        pool: FramePool::new(4096).unwrap(),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SeededRng::new(1)),
    };
    let (device, log) = (MemDevice::new(64 << 8), MemDevice::new(4 << 8));
    let (aggregate, replay) = Aggregate::create_on(Arc::new(device), Arc::new(log), env).unwrap();
    let options = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let rng = SeededRng::new(2);
    let engine = Engine::open(aggregate, replay, &rng, options).unwrap();
    let volumes = (0..n).map(|i| {
        let name = format!("v{i}");
        engine
            .create_volume(&name, (0, 0), 0o755, Time::EPOCH, &rng)
            .unwrap()
    });
    let volumes = volumes.collect();
    (engine, volumes)
}

#[test]
fn squashing_takes_identities_away() {
    let caller = |uid, gid, gids: &[u32]| Identity::unix(uid, gid, gids.into());
    let identity = |squash, caller: Option<&Identity>| -> Identity {
        Rule::open(squash).identity(caller).into_owned()
    };
    let as_is = caller(0, 0, &[0, 5]);
    assert_eq!(identity(Squash::None, Some(&as_is)), as_is);
    let nobody = caller(NOBODY, NOBODY, &[]);
    assert_eq!(identity(Squash::Root, Some(&as_is)), nobody);
    assert_eq!(
        identity(Squash::Root, Some(&caller(7, 0, &[0, 5]))),
        caller(7, NOBODY, &[NOBODY, 5])
    );
    assert_eq!(
        identity(Squash::Root, Some(&caller(7, 8, &[5]))),
        caller(7, 8, &[5])
    );
    assert_eq!(identity(Squash::All, Some(&caller(7, 7, &[]))), nobody);
    assert_eq!(identity(Squash::None, None), nobody);
    // A squashed identity is nobody on Windows either.
    let windows = Some(Arc::new(Token {
        user: Sid::from_bytes(&[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]).unwrap(),
        groups: Box::new([]),
    }));
    for (uid, squash, kept) in [
        (7, Squash::Root, true),
        (0, Squash::Root, false),
        (7, Squash::All, false),
    ] {
        let caller = Identity {
            windows: windows.clone(),
            ..caller(uid, 9, &[])
        };
        assert_eq!(identity(squash, Some(&caller)).windows.is_some(), kept);
    }
}

#[test]
fn the_first_rule_that_counts_decides() {
    let (_engine, volumes) = volumes(1);
    let export = Export::new(
        "/a",
        Arc::clone(&volumes[0]),
        vec![
            Rule {
                flavours: Flavours::NONE,
                ..rule("10.0.0.9")
            },
            Rule {
                protocols: Protocols {
                    nfsv3: false,
                    nfsv4: true,
                    smb: false,
                },
                ..rule("10.0.0.0/24")
            },
            Rule {
                writers: Flavours::NONE,
                ..rule("10.0.0.0/16")
            },
            rule("10.0.0.1"),
        ],
    );
    let names = Names::default();
    let read_only = |client, protocol| match export.verdict(parse_address(client), protocol, &names)
    {
        Verdict::Rule(rule) => Some(rule.writers == Flavours::NONE),
        Verdict::Denied => None,
        Verdict::Unknown(_) => panic!("no names are asked for"),
    };
    use Protocol::{Nfsv3, Nfsv4};
    assert_eq!(read_only("10.0.0.9", Nfsv3), None, "refused by name");
    assert_eq!(read_only("10.0.0.1", Nfsv3), Some(true), "order matters");
    assert_eq!(read_only("10.0.0.1", Nfsv4), Some(false));
    assert_eq!(read_only("10.0.1.1", Nfsv4), Some(true));
    assert_eq!(read_only("10.1.0.1", Nfsv3), None, "no rule");
}

struct Zone;

impl Resolver for Zone {
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable> {
        match name {
            "admin.example.com" => Ok(vec![parse_address("10.0.0.1")]),
            "bad.example.com" => Ok(vec![parse_address("10.0.0.66")]),
            "lost" => Err(Unavailable),
            _ => Ok(Vec::new()),
        }
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable> {
        Ok(match address {
            a if a == parse_address("10.0.0.1") => Some("admin.example.com".into()),
            // It would like to be.
            a if a == parse_address("10.0.0.2") => Some("admin.example.com".into()),
            a if a == parse_address("10.0.0.66") => Some("bad.example.com".into()),
            _ => None,
        })
    }
}

#[test]
fn what_is_not_known_admits_nobody() {
    let (_engine, volumes) = volumes(1);
    let names = Names::default();
    let ask = |rules: &[Rule], client: &str| {
        let export = Export::new("/a", Arc::clone(&volumes[0]), rules.to_vec());
        match export.verdict(parse_address(client), Protocol::Nfsv3, &names) {
            Verdict::Rule(_) => 'y',
            Verdict::Denied => 'n',
            Verdict::Unknown(_) => '?',
        }
    };
    let refused = Rule {
        flavours: Flavours::NONE,
        ..rule("bad.*")
    };
    let rules = [refused, rule("admin.example.com"), rule("*.0.nothing")];
    // Before anything is known, also a rule for everyone behind them counts for nobody.
    let open = [rules.as_slice(), &[rule("*")]].concat();
    for client in ["10.0.0.1", "10.0.0.2", "10.0.0.66"] {
        assert_eq!(ask(&rules, client), '?');
        assert_eq!(ask(&open, client), '?');
    }
    names.serve_pending(&Zone);
    assert_eq!(ask(&rules, "10.0.0.1"), 'y');
    assert_eq!(ask(&rules, "10.0.0.2"), 'n');
    assert_eq!(ask(&rules, "10.0.0.66"), 'n');
    assert_eq!(ask(&open, "10.0.0.2"), 'y');
    assert_eq!(ask(&open, "10.0.0.66"), 'n');
    // A resolver without an answer is no answer; what is decided before it still is.
    let lost = [rule("10.0.0.5"), rule("lost"), rule("*")];
    assert_eq!(ask(&lost, "10.0.0.5"), 'y');
    for _ in 0..3 {
        assert_eq!(ask(&lost, "10.0.0.1"), '?');
        names.serve_pending(&Zone);
    }
}

#[test]
fn paths_lead_to_the_longest_export() {
    let (_engine, volumes) = volumes(3);
    let export = |path: &str, i: usize| Export::new(path, Arc::clone(&volumes[i]), Vec::new());
    let table = ExportTable::new(vec![export("/a", 0), export("/a/b", 1), export("/ab", 2)]);
    let find = |path| {
        let found = table.of_path(path);
        found.map(|(e, rest)| (e.path.as_str(), rest))
    };
    assert_eq!(find("/a"), Some(("/a", "")));
    assert_eq!(find("/a/"), Some(("/a", "")));
    assert_eq!(find("/a/c/d"), Some(("/a", "/c/d")));
    assert_eq!(find("/a/b/c"), Some(("/a/b", "/c")));
    assert_eq!(find("/ab"), Some(("/ab", "")));
    assert_eq!(find("/abc"), None);
    assert_eq!(find("/"), None);
    assert_eq!(find(""), None);
    assert_eq!(find("a"), None);
    assert_eq!(find(&"/".repeat(1000)), None);
}

#[test]
fn an_alias_leads_where_the_path_does_and_goes_with_it() {
    let (_engine, volumes) = volumes(2);
    let mut first = Export::new("/one/share", Arc::clone(&volumes[0]), Vec::new());
    first.aliases.push("/share".to_owned());
    let second = Export::new("/two/share", Arc::clone(&volumes[1]), Vec::new());
    let table = ExportTable::new(vec![first, second]);
    let find = |table: &ExportTable, path| table.of_path(path).map(|(e, _)| e.volume.id());
    let (one, two) = (volumes[0].id(), volumes[1].id());
    assert_eq!(find(&table, "/one/share"), Some(one));
    assert_eq!(find(&table, "/share/below"), Some(one));
    assert_eq!(find(&table, "/two/share"), Some(two));
    assert_eq!(table.iter().count(), 2, "each once");

    // The path goes over to another volume in the same step.
    let third = Export::new("/share", Arc::clone(&volumes[1]), Vec::new());
    let next = table.with(&[one], vec![Arc::new(third)]);
    assert_eq!(find(&next, "/share"), Some(two));
    assert_eq!(find(&next, "/one/share"), None);
    assert_eq!(find(&next, "/two/share"), None);
    assert_eq!(find(&table, "/share"), Some(one), "the older table stays");
}

/// Any sequence of changes leaves the same table as making it anew, and leaves older tables as they
/// were.
#[test]
fn changed_tables_are_as_new_ones() {
    let (_engine, volumes) = volumes(300);
    let rng = SeededRng::new(7);
    let mut table = ExportTable::default();
    let mut model: BTreeMap<usize, String> = BTreeMap::new();
    for round in 0..200 {
        let gone: Vec<usize> = (0..rng.below(5)).map(|_| rng.below(300) as usize).collect();
        let new: Vec<usize> = (0..rng.below(9)).map(|_| rng.below(300) as usize).collect();
        for i in &gone {
            model.remove(i);
        }
        let mut exports = Vec::new();
        for i in new {
            let path = format!("/{i}/{}", if rng.below(2) == 0 { 0 } else { round });
            exports.push(Arc::new(Export::new(
                &path,
                Arc::clone(&volumes[i]),
                Vec::new(),
            )));
            model.insert(i, path);
        }
        let gone: Vec<VolumeId> = gone.iter().map(|i| volumes[*i].id()).collect();
        let before: Vec<String> = table.iter().map(|e| e.path.clone()).collect();
        let next = table.with(&gone, exports);
        let kept: Vec<String> = table.iter().map(|e| e.path.clone()).collect();
        assert_eq!(before, kept);
        table = next;
        assert_eq!(table.iter().count(), model.len());
        for (i, volume) in volumes.iter().enumerate() {
            let path = table.of_volume(volume.id()).map(|e| &e.path);
            assert_eq!(path, model.get(&i), "round {round}");
        }
        for (i, path) in &model {
            let (found, rest) = table.of_path(path).unwrap();
            assert_eq!((found.volume.id(), rest), (volumes[*i].id(), ""));
        }
    }
}

#[test]
fn a_connection_remembers_and_forgets_in_time() {
    let (_engine, volumes) = volumes(1);
    let id = volumes[0].id();
    let names = Names::default();
    let admitted = Admissions::default();
    let session = Session {
        origin: parse_address("10.0.0.1"),
        protocol: Protocol::Nfsv3,
        flavour: Flavour::None,
        transport: Transport::Clear,
        identity: None,
        access: (),
        client: parse_address("10.0.0.1").into(),
        admitted: &admitted,
    };
    let table = |rules: Vec<Rule>| {
        ExportTable::new(vec![Export::new("/a", Arc::clone(&volumes[0]), rules)])
    };
    let ask = |table: &ExportTable| match admission::find(table, id, &session, &names) {
        Admission::Yes(_, rule) => Some(rule.writers == Flavours::NONE),
        _ => None,
    };
    let closed = table(vec![rule("10.0.0.2")]);
    let open = table(vec![rule("10.0.0.2"), rule("*")]);
    let named = table(vec![
        Rule {
            writers: Flavours::NONE,
            ..rule("admin.example.com")
        },
        rule("*"),
    ]);
    for _ in 0..2 {
        assert_eq!(ask(&closed), None);
        assert_eq!(ask(&open), Some(false));
        assert_eq!(ask(&open), Some(false));
    }
    assert_eq!(ask(&named), None);
    names.serve_pending(&Zone);
    assert_eq!(ask(&named), Some(true));

    struct MovedZone;
    impl Resolver for MovedZone {
        fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Unavailable> {
            Ok(vec![parse_address("10.0.0.3")])
        }
        fn name(&self, _: IpAddr) -> Result<Option<String>, Unavailable> {
            Ok(None)
        }
    }
    for _ in 0..100 {
        names.tick();
        let _ = ask(&named);
        names.serve_pending(&MovedZone);
    }
    assert_eq!(ask(&named), Some(false));
}
