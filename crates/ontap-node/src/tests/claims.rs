//! Clients' opens and caches in a volume that becomes a copy, gets a snapshot, or is
//! resynchronised.

use std::sync::Weak;

use weir_vfs::claims::{
    CacheRights, Client, Kind, Modes, Notice, OpenOutcome, OpenRequest, Owner, OwnerId, ServiceId,
    Sink,
};
use weir_vfs::{FileId, Namespace};

use super::*;

#[derive(Default)]
struct Notices(Mutex<Vec<Notice>>);

impl Sink for Notices {
    fn notify(&self, notice: Notice) {
        self.0.lock().push(notice);
    }
}

/// A client that opens and caches a file.
struct Holder<'s> {
    station: &'s Station,
    notices: Arc<Notices>,
    owner: Owner,
}

impl Holder<'_> {
    fn new(station: &Station) -> Holder<'_> {
        station.vfs.follow(station.service.engine());
        let notices = Arc::new(Notices::default());
        let sink: Weak<dyn Sink> = Arc::downgrade(&(notices.clone() as Arc<dyn Sink>));
        station.vfs.claims.attach(ServiceId(2), sink);
        let client = Client {
            service: ServiceId(2),
            address: "10.0.0.7".parse().unwrap(),
            name: Arc::from(&b"guid"[..]),
        };
        Holder {
            station,
            notices,
            owner: Owner {
                client,
                who: OwnerId::key(1),
                shown: Arc::default(),
            },
        }
    }

    /// Opens a file of a volume, or its root, and caches it.
    fn takes(&self, volume: &str, name: &[u8]) -> FileId {
        let volume = self.station.engine_volume(volume);
        let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
        let found = volume.drive_blocking(&mut cx, |cx| volume.lookup(cx, volume.root(), name));
        let file = FileId {
            volume: volume.id(),
            ino: found.unwrap().ino,
            namespace: Namespace::Live,
        };
        let request = OpenRequest {
            owner: &self.owner,
            key: &self.owner.who,
            access: Modes::READ,
            deny: Modes::NONE,
            enforced: true,
            overwrite: false,
        };
        let claims = &self.station.vfs.claims;
        assert_eq!(claims.open(file, &request), OpenOutcome::Granted);
        let caching = CacheRights::READ_HANDLE;
        assert_eq!(
            claims.grant(file, &self.owner, Kind::Lease, caching),
            caching
        );
        file
    }

    /// Returns the number of opens and of grants in all files, and the notices since the last call.
    fn take_totals(&self) -> (usize, usize, Vec<Notice>) {
        let totals = self.station.vfs.claims.totals();
        let notices = std::mem::take(&mut *self.notices.0.lock());
        (totals.held, totals.grants, notices)
    }

    fn lost(&self, file: FileId) -> Vec<Notice> {
        let owner = self.owner.clone();
        vec![Notice::Lost { file, owner }]
    }
}

#[test]
fn claims_end_with_what_they_were_made_of() {
    let station = Station::new(60);
    let holder = Holder::new(&station);

    // A volume that becomes a destination.
    station.volume("c", false);
    let root = holder.takes("c", b".");
    assert_eq!(holder.take_totals(), (1, 1, vec![]));
    station.service.engine().protect(&station.key("c")).unwrap();
    assert_eq!(holder.take_totals(), (0, 0, holder.lost(root)), "protect");

    // A snapshot that arrives: the file is the same one, and has another content.
    station.put("a", "one", &noise(1, 100_000));
    station.does(
        "snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorAllSnapshots",
    );
    let verb = |verb: &str| station.does(&format!("snapmirror {verb} -destination-path SVM:b"));
    verb("initialize");
    station.succeeds("SVM:b");
    let file = holder.takes("b", b"one");
    station.put("a", "one", &noise(2, 100_000));
    assert_eq!(
        holder.take_totals(),
        (1, 1, vec![]),
        "changes of the source are not its own"
    );
    verb("update");
    station.succeeds("SVM:b");
    let owner = holder.owner.clone();
    let revoked = vec![Notice::Revoked { file, owner }];
    assert_eq!(holder.take_totals(), (1, 0, revoked), "a transfer's end");
    assert!(
        station.vfs.claims.close(file, &holder.owner),
        "the open stays"
    );

    // Broken, changed, and made anew from a common snapshot.
    verb("quiesce");
    station.rests("SVM:b");
    verb("break");
    station.rests("SVM:b");
    station.put("b", "one", &noise(3, 100_000));
    let file = holder.takes("b", b"one");
    assert_eq!(holder.take_totals(), (1, 1, vec![]));
    verb("resync");
    station.succeeds("SVM:b");
    assert_eq!(holder.take_totals(), (0, 0, holder.lost(file)), "resync");
    assert_eq!(station.vfs.claims.budget().used(), 0);
}

/// A restored file replaces one that clients cache only after they have returned their caches.
#[test]
fn caches_of_a_file_are_recalled_before_it_is_replaced_by_what_is_restored() {
    let (near, _far) = files::copied();
    let holder = Holder::new(&near);
    near.put("a", "one", &noise(11, 50_000));
    let (root, file) = (holder.takes("a", b"."), holder.takes("a", b"one"));
    near.does(
        "snapmirror restore -source-path far://SVM/copy -destination-path SVM:a -file-list /one",
    );
    let claims = &near.vfs.claims;
    for (cached, left) in [(root, 2), (file, 2)] {
        loop {
            let (_, _, notices) = holder.take_totals();
            let asked = |n: &Notice| matches!(n, Notice::Break { file, .. } if *file == cached);
            if notices.iter().any(asked) {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(holder.take_totals().0, left);
        assert_eq!(
            files::current_contents(&near.engine_volume("a"), "one").unwrap(),
            noise(11, 50_000)
        );
        assert!(claims.acknowledge(cached, &holder.owner, CacheRights::NONE));
    }
    assert_eq!(files::ended(&near), None);
    let now = files::current_contents(&near.engine_volume("a"), "one").unwrap();
    assert_eq!(now.len(), 500_001);
}

/// A qtree is deleted after clients have returned what they cache of it and of what is in it.
#[test]
fn caches_are_recalled_before_a_qtree_is_changed_and_deleted() {
    let station = Station::new(61);
    station.does("volume qtree create -vserver SVM -volume a -qtree q");
    let holder = Holder::new(&station);
    let claims = &station.vfs.claims;
    let volume = station.engine_volume("a");
    let now = Time { secs: 1, nanos: 0 };
    let tree = volume.tree_named(now, b"q").unwrap();
    let mut cx = EngineContext::new(now);
    let (how, attrs) = (CreateHow::Unchecked, SetAttr::default());
    volume
        .drive_blocking(&mut cx, |cx| volume.create(cx, tree.ino, b"f", how, &attrs))
        .unwrap();
    let (root, folder) = (holder.takes("a", b"."), holder.takes("a", b"q"));
    // Breaks of several files come together.
    let mut broken = Vec::new();
    let mut asked = |cached: FileId| {
        while !broken.contains(&cached) {
            let (_, _, notices) = holder.take_totals();
            broken.extend(notices.into_iter().filter_map(|notice| match notice {
                Notice::Break { file, .. } => Some(file),
                _ => None,
            }));
            std::thread::yield_now();
        }
        broken.retain(|file| *file != cached);
    };
    std::thread::scope(|scope| {
        let line = "volume qtree rename -vserver SVM -volume a -qtree q -newname r";
        let renamed = scope.spawn(|| station.does(line));
        for cached in [root, folder] {
            asked(cached);
            assert!(
                volume.tree_named(now, b"q").is_ok(),
                "not before it is returned"
            );
            assert!(claims.acknowledge(cached, &holder.owner, CacheRights::NONE));
        }
        renamed.join().unwrap();
    });
    assert_eq!(volume.tree_named(now, b"r").unwrap().number, tree.number);
    let file = holder.takes("a", b"r");
    std::thread::scope(|scope| {
        let line = "volume qtree delete -vserver SVM -volume a -qtree r";
        let deleted = scope.spawn(|| station.does(line));
        asked(file);
        assert!(
            volume.tree_named(now, b"r").is_ok(),
            "not before it is returned"
        );
        assert!(claims.acknowledge(file, &holder.owner, CacheRights::NONE));
        deleted.join().unwrap();
    });
    assert_eq!(volume.trees(now).unwrap().len(), 0);
}
