use super::*;
use std::net::IpAddr;
use weir_base::{SeededRng, SystemClock};
use weir_store::{Aggregate, Env, FramePool, MemDevice};
use weir_vfs::{Flavours, HandleKey, Protocol, Verdict};
use weir_volume::EngineOptions;

fn node() -> Node {
    bounded_node(None)
}

fn bounded_node(memory: Option<Size>) -> Node {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(1));
    let env = Env {
        pool: FramePool::new(4096).unwrap(),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
    };
    let (device, log) = (MemDevice::new(64 << 8), MemDevice::new(4 << 8));
    let (aggregate, replay) = Aggregate::create_on(Arc::new(device), Arc::new(log), env).unwrap();
    let engine = Engine::open(aggregate, replay, &*rng, EngineOptions::default()).unwrap();
    let vfs = Vfs::new(HandleKey::new([7; 16], [0; 16]));
    let rules = vec![Rule::open(weir_vfs::Squash::None)];
    Node::new(Parts {
        memory,
        ..Parts::new(Arc::new(engine), vfs, clock, rng, rules)
    })
}

fn limited(bytes: u64) -> Capacity {
    Capacity {
        bytes: Some(bytes),
        reserve: 0,
    }
}

fn volume(node: &Node, key: &str) -> VolumeState {
    let spec = VolumeSpec {
        key: key.to_owned(),
        capacity: limited(1 << 30),
        root_mode: 0o750,
        clone_of: None,
        protection: false,
        constituent: None,
    };
    node.create_volume(&spec).unwrap()
}

const BOTH: weir_control::backend::Protocols = weir_control::backend::Protocols {
    nfsv3: true,
    nfsv4: true,
};

fn spec(key: &str, path: &str) -> ExportSpec {
    ExportSpec {
        key: key.to_owned(),
        paths: vec![path.to_owned()],
        home: None,
        rules: None,
        protocols: BOTH,
        share: None,
        ntfs: false,
        snapshot_directory: false,
        strict: false,
        trees: Vec::new(),
        quotas: Default::default(),
        constituent: None,
        origin: None,
    }
}

fn rule(clients: &str) -> ExportRule {
    ExportRule {
        clients: clients.split(',').map(str::to_owned).collect(),
        flavours: Flavours::SYS,
        writers: Flavours::SYS,
        protocols: BOTH,
        squash: Squash::Root,
        anon_uid: 7,
        anon_gid: 8,
    }
}

fn publish(node: &Node, exports: &[Arc<ExportSpec>]) {
    let exports = exports.to_vec();
    node.publish(Arc::new(Publication {
        whole: true,
        exports,
        ..Publication::default()
    }))
    .unwrap();
}

/// A publication of what is different alone.
fn differ(node: &Node, exports: &[ExportSpec], withdrawn: &[&str]) {
    node.publish(Arc::new(Publication {
        exports: exports.iter().cloned().map(Arc::new).collect(),
        withdrawn: withdrawn.iter().map(|key| Arc::from(*key)).collect(),
        ..Publication::default()
    }))
    .unwrap();
}

/// Returns true if a client may use the export at `path`; `None` if there is none.
fn admits(node: &Node, path: &str, client: &str) -> Option<bool> {
    let table = node.vfs.exports();
    let (export, _) = table.of_path(path)?;
    let client: IpAddr = client.parse().unwrap();
    let verdict = export.verdict(client, Protocol::Nfsv3, &node.vfs.names);
    Some(matches!(verdict, Verdict::Rule(_)))
}

/// Paths of what is exported.
fn paths(node: &Node) -> Vec<String> {
    node.exports().into_iter().map(|e| e.path).collect()
}

#[test]
fn calls_may_be_repeated() {
    let node = node();
    let made = volume(&node, "v-1");
    assert_eq!(volume(&node, "v-1"), made);
    assert_eq!(node.volumes().unwrap(), std::slice::from_ref(&made));
    assert_eq!(node.volume("v-1"), Ok(made));
    let missing = BackendError::NotFound("volume v-2".to_owned());
    assert_eq!(node.volume("v-2"), Err(missing.clone()));
    assert_eq!(
        node.set_capacity("v-2", Capacity::default()),
        Err(missing.clone())
    );
    assert_eq!(node.set_root_mode("v-2", 0), Err(missing));

    let root = || {
        let volume = node.find("v-1").unwrap();
        let mut cx = EngineContext::new(node.clock.current_time());
        volume.getattr(&mut cx, volume.root()).unwrap()
    };
    assert_eq!(root().mode, 0o750);
    for _ in 0..2 {
        node.set_root_mode("v-1", 0o1777).unwrap();
        node.set_capacity("v-1", limited(2 << 30)).unwrap();
    }
    assert_eq!(root().mode, 0o1777);
    assert_eq!(root().change, 2, "what is so already is left alone");
    assert_eq!(node.find("v-1").unwrap().limit(), 2 << 30);
}

#[test]
fn publications_add_change_and_take_away() {
    let node = node();
    for key in ["v-1", "v-2", "v-3"] {
        volume(&node, key);
    }
    let one = Arc::new(spec("v-1", "/one"));
    let two = Arc::new(ExportSpec {
        rules: Some(vec![rule("10.0.0.1,10.0.1.0/24"), rule("10.0.2.1")]),
        ..spec("v-2", "/two")
    });
    publish(&node, &[Arc::clone(&one), Arc::clone(&two)]);
    assert_eq!(paths(&node), ["/one", "/two"]);
    assert_eq!(admits(&node, "/one", "10.9.9.9"), Some(true));
    for (client, yes) in [
        ("10.0.0.1", true),
        ("10.0.1.7", true),
        ("10.0.2.1", true),
        ("10.0.0.2", false),
    ] {
        assert_eq!(admits(&node, "/two", client), Some(yes), "{client}");
    }
    let before = node
        .vfs
        .exports()
        .of_path("/one")
        .map(|(e, _)| e as *const Export);
    let closed = ExportSpec {
        rules: Some(Vec::new()),
        ..spec("v-2", "/zwei")
    };
    let three = spec("v-3", "/three");
    let next = [one, Arc::new(closed), Arc::new(three)];
    publish(&node, &next);
    assert_eq!(paths(&node), ["/one", "/three", "/zwei"]);
    assert_eq!(admits(&node, "/zwei", "10.0.0.1"), Some(false));
    let after = node
        .vfs
        .exports()
        .of_path("/one")
        .map(|(e, _)| e as *const Export);
    assert_eq!(before, after, "what did not change is kept");

    // Two that change places.
    let [one, two, three] = next;
    let swapped = [
        Arc::new(spec("v-1", &two.paths[0])),
        Arc::new(spec("v-2", &one.paths[0])),
        three,
    ];
    publish(&node, &swapped);
    assert_eq!(paths(&node), ["/one", "/three", "/zwei"]);
    let leads_to = |path: &str| {
        let table = node.vfs.exports();
        table.of_path(path).map(|(e, _)| e.volume())
    };
    let volume_of = |key: &str| node.find(key).ok().map(|volume| volume.id());
    assert!(leads_to("/one").is_some());
    assert_eq!(leads_to("/one"), volume_of("v-2"));
    assert_eq!(leads_to("/zwei"), volume_of("v-1"));
    publish(&node, &[]);
    assert!(paths(&node).is_empty());
}

#[test]
fn what_cannot_be_served_keeps_nobody_else_from_it() {
    let node = node();
    volume(&node, "v-1");
    volume(&node, "v-2");
    let damaged = ExportSpec {
        rules: Some(vec![rule("10.0.0.1"), rule("10.0.0.0/99"), rule("*")]),
        ..spec("v-2", "/damaged")
    };
    let all = [
        Arc::new(spec("v-1", "/one")),
        Arc::new(damaged),
        Arc::new(spec("v-3", "/missing")),
    ];
    publish(&node, &all);
    assert_eq!(paths(&node), ["/damaged", "/one"]);
    assert_eq!(admits(&node, "/damaged", "10.0.0.1"), Some(true));
    assert_eq!(admits(&node, "/damaged", "10.0.0.2"), Some(false));
    // Once it is there, the same publication serves it.
    volume(&node, "v-3");
    publish(&node, &all);
    assert_eq!(paths(&node), ["/damaged", "/missing", "/one"]);
}

#[test]
fn a_publication_of_differences_leaves_the_rest_as_it_is() {
    let node = node();
    for key in ["v-1", "v-2", "v-3"] {
        volume(&node, key);
    }
    differ(&node, &[spec("v-1", "/one"), spec("v-2", "/two")], &[]);
    assert_eq!(paths(&node), ["/one", "/two"]);
    let closed = ExportSpec {
        rules: Some(Vec::new()),
        ..spec("v-2", "/zwei")
    };
    differ(&node, &[closed], &[]);
    assert_eq!(paths(&node), ["/one", "/zwei"]);
    assert_eq!(admits(&node, "/zwei", "10.0.0.1"), Some(false));
    assert_eq!(admits(&node, "/one", "10.0.0.1"), Some(true));
    // One goes and another takes its path, at once.
    differ(&node, &[spec("v-3", "/one")], &["v-1"]);
    assert_eq!(paths(&node), ["/one", "/zwei"]);
    let table = node.vfs.exports();
    let (export, _) = table.of_path("/one").unwrap();
    assert_eq!(export.volume(), node.find("v-3").unwrap().id());
    // What is not there yet is served once it is, although no publication names it again.
    differ(&node, &[spec("v-4", "/four")], &[]);
    assert_eq!(paths(&node), ["/one", "/zwei"]);
    volume(&node, "v-4");
    differ(&node, &[], &["v-2"]);
    assert_eq!(paths(&node), ["/four", "/one"]);
}

#[test]
fn what_is_deleted_is_withdrawn_at_once_and_gone_for_good_with_a_checkpoint() {
    let node = node();
    volume(&node, "v-1");
    volume(&node, "v-2");
    differ(&node, &[spec("v-1", "/one"), spec("v-2", "/two")], &[]);
    node.engine.cp_now().unwrap();
    let (before, generation) = (node.point(), node.engine.aggregate().generation());
    node.delete_volume("v-1").unwrap();
    assert_eq!(paths(&node), ["/two"]);
    assert_eq!(node.volumes().unwrap().len(), 1);
    let missing = BackendError::NotFound("volume v-1".to_owned());
    assert_eq!(node.volume("v-1"), Err(missing));
    assert_eq!(
        (node.point(), node.engine.aggregate().generation()),
        (before, generation),
        "no checkpoint was made for it"
    );
    assert!(!node.reached(before));
    // A second time there is nothing to do.
    node.delete_volume("v-1").unwrap();
    node.engine.cp_now().unwrap();
    assert!(node.reached(before));
}

#[test]
fn a_destination_is_made_in_one_call_and_found_again() {
    let node = node();
    let spec = VolumeSpec {
        key: "v-1".to_owned(),
        capacity: limited(1 << 30),
        root_mode: 0o755,
        clone_of: None,
        protection: true,
        constituent: None,
    };
    for _ in 0..2 {
        assert!(node.create_volume(&spec).unwrap().protection);
    }
    assert!(!volume(&node, "v-2").protection);
}

#[test]
fn a_clone_begins_as_the_snapshot_and_its_origin_stays_while_it_does() {
    let node = node();
    let of = |parent: &str, snapshot: &str| VolumeSpec {
        key: "v-2".to_owned(),
        capacity: limited(3 << 30),
        root_mode: 0o755,
        clone_of: Some((parent.to_owned(), snapshot.to_owned())),
        protection: false,
        constituent: None,
    };
    volume(&node, "v-1");
    let parent = node.find("v-1").unwrap();
    let make = |volume: &Volume, name: &str| {
        let mut cx = EngineContext::new(node.clock.current_time());
        let (root, set) = (volume.root(), SetAttr::default());
        let made =
            volume.drive_blocking(&mut cx, |cx| volume.mkdir(cx, root, name.as_bytes(), &set));
        made.map(|_| ())
    };
    make(&parent, "before").unwrap();
    node.snapshot_create("v-1", "s", "").unwrap();
    make(&parent, "after").unwrap();
    let missing = Err(BackendError::NotFound("volume v-2".to_owned()));
    assert_eq!(node.create_volume(&of("v-1", "none")), missing);
    assert_eq!(node.create_volume(&of("v-9", "s")), missing);
    let made = node.create_volume(&of("v-1", "s")).unwrap();
    assert_eq!(node.create_volume(&of("v-1", "s")).unwrap(), made);
    let clone = node.find("v-2").unwrap();
    assert_eq!(clone.limit(), 3 << 30, "its own capacity");
    assert_eq!(make(&clone, "before"), Err(FsError::Exists));
    make(&clone, "after").unwrap();

    for refused in [node.delete_volume("v-1"), node.snapshot_delete("v-1", "s")] {
        assert!(
            matches!(refused, Err(BackendError::Precondition(_))),
            "{refused:?}"
        );
    }
    // Once the clone is deleted nothing depends on the snapshot, although that is not durable yet.
    node.delete_volume("v-2").unwrap();
    assert_eq!(node.snapshot_delete("v-1", "s"), Ok(()));
    assert_eq!(node.snapshots("v-1"), Ok(Vec::new()));

    // Nor on one that a revert to an earlier one takes away.
    node.snapshot_create("v-1", "early", "").unwrap();
    node.snapshot_create("v-1", "s", "").unwrap();
    node.create_volume(&of("v-1", "s")).unwrap();
    assert!(matches!(
        node.revert("v-1", "early"),
        Err(BackendError::Precondition(_))
    ));
    node.delete_volume("v-2").unwrap();
    assert_eq!(node.revert("v-1", "early"), Ok(()));

    node.create_volume(&of("v-1", "early")).unwrap();
    node.delete_volume("v-2").unwrap();
    node.delete_volume("v-1").unwrap();
    assert!(node.volumes().unwrap().is_empty());
}

#[test]
fn what_holds_requests_back_is_named() {
    use weir_qos::{Change, Direction, Limit, Limits, PoolPlan, Rate, VolumePlan};
    let node = node();
    let number = volume(&node, "v-1").number;
    assert_eq!(node.throttled("v-1"), Ok(ThrottleState::default()));
    let limits = Change {
        generation: 1,
        whole: true,
        pools: vec![PoolPlan {
            id: 7,
            name: "pool".into(),
            limits: Limits::default(),
            source: "".into(),
            shared: None,
        }],
        volumes: vec![VolumePlan {
            volume: number,
            name: "volume".into(),
            pool: 7,
            limits: Limits {
                total: Rate::bytes(1 << 20),
                ..Limits::default()
            },
            client: Limits::default(),
            source: "PREMIUM: 64 MiB/s per TiB".into(),
            shared: None,
        }],
        ..Change::default()
    };
    node.publish(Arc::new(Publication {
        whole: true,
        limits,
        ..Publication::default()
    }))
    .unwrap();
    let request = weir_vfs::throttle::Request {
        volume: node.find("v-1").unwrap().id(),
        client: "10.0.0.1".parse::<IpAddr>().unwrap().into(),
        flow: 1,
        direction: Direction::Write,
        bytes: 100 << 20,
    };
    let first = node.vfs.throttle.gate(&request, None, &mut None);
    assert_eq!(node.throttled("v-1").unwrap().binding, None, "nobody waits");
    let second = node.vfs.throttle.gate(&request, None, &mut None);
    assert_eq!(
        node.throttled("v-1").unwrap(),
        ThrottleState {
            binding: Some((BindingLevel::Volume, Limit::TotalBytes)),
            waiting: 1,
            source: "PREMIUM: 64 MiB/s per TiB".to_owned(),
        }
    );
    drop((first, second));
}

#[test]
fn a_volume_is_shared_over_smb_if_it_says_so_whatever_its_policy() {
    let node = node();
    let shared = Some(weir_control::backend::ShareSpec {
        name: "Data".to_owned(),
        browsable: false,
        access_based: true,
        encrypted: true,
        continuous: true,
    });
    let styles = [Style::Unix, Style::Ntfs];
    for (n, share, rules) in [
        (0, None, None),
        (1, shared.clone(), None),
        (2, shared.clone(), Some(Vec::new())),
        (3, None, Some(vec![rule("*")])),
    ] {
        let key = format!("v-{n:016x}");
        let id = VolumeId(volume(&node, &key).number);
        let spec = ExportSpec {
            share: share.clone(),
            ntfs: n % 2 == 1,
            rules: rules.clone(),
            ..spec(&key, &format!("/{n}"))
        };
        publish(&node, &[Arc::new(spec)]);
        let table = node.vfs.exports();
        let export = table.of_volume(id).unwrap();
        let client: IpAddr = [10, 0, 0, 1].into();
        let admits = |protocol| match node.vfs.verdict(export, client, protocol) {
            Verdict::Rule(rule) => Some(rule.flavours),
            _ => None,
        };
        let ntlm = share.is_some().then_some(Flavours::NTLM.or(Flavours::KRB5));
        assert_eq!(admits(Protocol::Smb), ntlm, "{n}");
        // Its permissions do not depend on whether it is a share.
        assert_eq!(export.style, styles[usize::from(n % 2 == 1)], "{n}");
        let nfs = rules.is_none_or(|rules| !rules.is_empty());
        assert_eq!(admits(Protocol::Nfsv3), nfs.then_some(Flavours::SYS), "{n}");
        let name = export.share.as_ref().map(|share| {
            (
                &*share.name,
                share.browsable,
                share.access_based,
                share.encrypted,
                share.continuous,
            )
        });
        assert_eq!(
            name,
            share.as_ref().map(|_| ("Data", false, true, true, true)),
            "{n}"
        );
    }
}

/// Volumes take memory as long as they exist: beyond their share none is created, and the refusal
/// has the figure.
#[test]
fn volumes_beyond_their_part_of_the_memory_are_refused() {
    let node = bounded_node(Some(Size(3 * VOLUME_BYTES * VOLUME_SHARE)));
    let spec = |key: &str| VolumeSpec {
        key: key.to_owned(),
        capacity: limited(1 << 20),
        root_mode: 0o755,
        clone_of: None,
        protection: false,
        constituent: None,
    };
    while node.volumes().unwrap().len() < 3 {
        let key = format!("v{}", node.volumes().unwrap().len());
        node.create_volume(&spec(&key)).unwrap();
    }
    match node.create_volume(&spec("more")) {
        Err(BackendError::NoSpace(why)) => assert!(
            why.contains("--memory 336 KiB is for 3 volumes of 14 KiB each"),
            "{why}"
        ),
        other => panic!("{other:?}"),
    }
    // One that is there is found, and one that goes makes room.
    node.create_volume(&spec("v2")).unwrap();
    node.delete_volume("v2").unwrap();
    node.create_volume(&spec("more")).unwrap();
}

/// AUTH_SYS permits passwords over SMB; Kerberos requires at least the same protection there.
#[test]
fn the_default_s_flavours_hold_over_smb() {
    let ntlm = Flavours::NTLM.or(Flavours::KRB5);
    for (options, flavours, writers) in [
        ("rw", ntlm, ntlm),
        ("ro", ntlm, Flavours::NONE),
        ("rw,sec=sys:krb5p", ntlm, ntlm),
        ("rw,sec=krb5", Flavours::KRB5, Flavours::KRB5),
        (
            "rw,sec=krb5p:krb5i",
            Flavours::KRB5_INTEGRITY,
            Flavours::KRB5_INTEGRITY,
        ),
        ("ro,sec=krb5p", Flavours::KRB5_PRIVACY, Flavours::NONE),
    ] {
        let words: Vec<String> = options.split(',').map(str::to_owned).collect();
        let rule = for_smb(&crate::exports::rules(&words).unwrap()[0]);
        assert_eq!(
            (rule.flavours, rule.writers),
            (flavours, writers),
            "{options}"
        );
    }
}
