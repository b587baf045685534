//! A node for tests: the whole control plane and replication over an engine in memory, without NFS
//! and HTTP.

use super::*;

/// A node without NFS and HTTP.
pub struct Station {
    pub service: Arc<Replication>,
    pub server: Arc<Server>,
    pub vfs: Arc<Vfs>,
    pub user: AsUser,
    pub end: Option<tokio::sync::oneshot::Sender<()>>,
    pub thread: Option<std::thread::JoinHandle<()>>,
    pub data: tempfile::TempDir,
}

pub fn engine(seed: u64, clock: &Arc<dyn Clock>) -> Arc<Engine> {
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(seed));
    let env = Env {
        pool: FramePool::new(16 << 10).unwrap(),
        clock: Arc::clone(clock),
        rng: Arc::clone(&rng),
    };
    let (device, log) = (MemDevice::new(256 << 8), MemDevice::new(16 << 8));
    let (aggregate, replay) = Aggregate::create_on(Arc::new(device), Arc::new(log), env).unwrap();
    Arc::new(Engine::open(aggregate, replay, &*rng, EngineOptions::default()).unwrap())
}

impl Station {
    /// With a pool and volumes `a` (of data) and `b` (protected), each 1 GiB.
    pub fn new(seed: u64) -> Station {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let data = tempfile::tempdir().unwrap();
        let station = Station::with_engine(data, engine(seed, &clock), seed, clock);
        station.submit(Mutation::CreatePool(
            LocationName::new("SVM", "local").name("p"),
            NewPool {
                service_level: "PREMIUM".to_owned(),
                capacity_gib: 204_800,
                ..NewPool::default()
            },
        ));
        station.volume("a", false);
        station.volume("b", true);
        station
    }

    pub fn with_engine(
        data: tempfile::TempDir,
        engine: Arc<Engine>,
        seed: u64,
        clock: Arc<dyn Clock>,
    ) -> Station {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Station::with_listener(data, engine, seed, clock, listener)
    }

    pub fn with_listener(
        data: tempfile::TempDir,
        engine: Arc<Engine>,
        seed: u64,
        clock: Arc<dyn Clock>,
        listener: TcpListener,
    ) -> Station {
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(seed + 1000));
        let rules = vec![Rule::open(weir_vfs::Squash::None)];
        let vfs = Vfs::new(HandleKey::new([7; 16], [0; 16]));
        let node = Node::new(backend::Parts::new(
            Arc::clone(&engine),
            Arc::clone(&vfs),
            Arc::clone(&clock),
            Arc::clone(&rng),
            rules,
        ));
        let counters = Counters {
            stats: Arc::new(weir_vfs::stats::Stats::new(1)),
            vfs: Arc::clone(&vfs),
        };
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (begun, outcome) = mpsc::channel();
        let folder = data.path().to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let control = Control::open(Options {
                    catalog: format!("sqlite://{}/catalog.db", folder.display()),
                    levels: Levels::built_in().unwrap(),
                    instance_addresses: None,
                    backend: Arc::new(node),
                    clock: Arc::clone(&clock),
                    rng: Arc::clone(&rng),
                    device_bytes: 1 << 30,
                    copy: None,
                    first_place: weir_control::LocationName::local(),
                });
                let control = control.await.unwrap();
                let parts = Parts {
                    data: folder,
                    engine,
                    control: Arc::clone(&control),
                    runtime: Handle::current(),
                    clock,
                    rng,
                    name: format!("node{seed}"),
                    listener: Some(listener),
                    counters,
                    moves: None,
                };
                begun.send(parts).unwrap();
                // As a process that is killed leaves it.
                let killed = ended.await.is_ok();
                if !killed {
                    control.close().await;
                }
            });
        });
        let parts: Parts = outcome.recv().unwrap();
        let (control, engine) = (Arc::clone(&parts.control), Arc::clone(&parts.engine));
        let (runtime, clock) = (parts.runtime.clone(), Arc::clone(&parts.clock));
        let (name, counters) = (parts.name.clone(), parts.counters.clone());
        let service = Replication::start(parts).unwrap();
        let server = Arc::new(Server {
            control,
            runtime,
            engine,
            clock,
            name,
            counters,
            smb: None,
            pair: None,
            replication: Arc::clone(&service),
            machines: None,
        });
        Station {
            user: AsUser::new(Arc::clone(&server), Actor::local()),
            server,
            service,
            vfs,
            end: Some(end),
            thread: Some(thread),
            data,
        }
    }

    pub fn submit(&self, mutation: Mutation) {
        let control = &self.service.control();
        let done = self
            .service
            .runtime()
            .block_on(control.submit(mutation, &Actor::local()));
        let done = done.unwrap();
        assert!(done.done(), "{done:?}");
    }

    pub fn volume(&self, name: &str, protected: bool) {
        self.submit(Mutation::CreateVolume(
            LocationName::new("SVM", "local").volume(name),
            NewVolume {
                presentation: weir_control::Presentation::in_pool("p"),
                share_name: name.to_owned(),
                capacity_gib: 100,
                protocols: vec![Protocol::Nfsv3],
                ..NewVolume::default()
            },
        ));
        if protected {
            self.service.engine().protect(&self.key(name)).unwrap();
        }
    }

    pub fn key(&self, name: &str) -> String {
        self.service
            .local_volume("SVM", name)
            .unwrap()
            .key
            .to_string()
    }

    pub fn engine_volume(&self, name: &str) -> Arc<Volume> {
        self.service.engine().volume(&self.key(name)).unwrap()
    }

    /// Gives a file a content, seen from outside as `write` and COMMIT.
    pub fn put(&self, volume: &str, name: &str, data: &[u8]) {
        let volume = self.engine_volume(volume);
        let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
        let attrs = SetAttr {
            mode: Some(0o644),
            size: Some(0),
            ..SetAttr::default()
        };
        let made = volume.drive_blocking(&mut cx, |cx| {
            volume.create(
                cx,
                volume.root(),
                name.as_bytes(),
                CreateHow::Unchecked,
                &attrs,
            )
        });
        let ino = made.unwrap().value.attr.ino;
        for (at, piece) in data.chunks(64 << 10).enumerate() {
            let off = (at * (64 << 10)) as u64;
            let written = volume.drive_blocking(&mut cx, |cx| {
                volume.write(cx, ino, off, piece, Stability::FileSync)
            });
            self.service
                .engine()
                .wait_durable(written.unwrap().lsn)
                .unwrap();
        }
    }

    /// Returns a volume's snapshots for relationships: those of the catalog, and those of the
    /// engine.
    pub fn own_snapshots(&self, volume: &str) -> (Vec<String>, Vec<String>) {
        let path = Path::local("SVM", volume);
        let sorted = |names: &mut dyn Iterator<Item = String>| {
            let mut names: Vec<String> = names.filter(|n| n.starts_with(plan::OWN)).collect();
            names.sort();
            names
        };
        let listed = self.user.snapshots(Some(&path));
        let there = self.engine_volume(volume).snapshots();
        (
            sorted(&mut listed.into_iter().map(|s| s.name)),
            sorted(&mut there.into_iter().map(|s| s.name)),
        )
    }

    pub fn says(&self, line: &str) -> String {
        match execute(line, &self.user) {
            Ok(text) | Err(text) => text,
        }
    }

    /// A command that is to work.
    pub fn does(&self, line: &str) {
        if let Err(text) = execute(line, &self.user) {
            panic!("{line}: {text}");
        }
    }

    pub fn relationship(&self, to: &str) -> Relationship {
        self.find(to).unwrap()
    }

    pub fn find(&self, to: &str) -> Option<Relationship> {
        let rows = self.service.relations();
        let entry = rows.entry(&Path::parse(to).unwrap())?;
        Some(self.service.manager().describe_entry(entry))
    }

    /// Pairs another node with this one.
    pub fn peer(&self, name: &str, address: Option<&str>, print: &str) {
        let address = address.map(str::to_owned);
        let change = weir_relations::manager::Verb::PeerCreate {
            name: name.to_owned(),
            address,
            fingerprint: print.to_owned(),
        };
        self.user.change(change.into()).unwrap();
    }

    /// Waits until nothing is going on.
    pub fn rests(&self, to: &str) -> Relationship {
        let path = Path::parse(to).unwrap();
        let mut manager = self.service.manager();
        loop {
            let rows = self.service.relations();
            let now = manager.describe_entry(rows.entry(&path).unwrap());
            if matches!(now.status, Status::Idle | Status::Quiesced) {
                return now;
            }
            self.service
                .wait_for_change(&mut manager, Duration::from_millis(50));
        }
    }

    pub fn succeeds(&self, to: &str) -> Relationship {
        let r = self.rests(to);
        let last = r.last.clone().unwrap();
        assert_eq!((last.error, r.healthy), (None, true));
        assert_eq!(r.state, MirrorState::Snapmirrored);
        r
    }

    pub fn stop(mut self) -> tempfile::TempDir {
        self.end();
        self.left()
    }

    /// Ends like a killed process: changes that are not in the catalog's file are lost.
    pub fn kill(mut self) -> tempfile::TempDir {
        self.service.stop();
        if let Some(end) = self.end.take() {
            end.send(()).unwrap();
        }
        self.end();
        self.left()
    }

    pub fn left(&mut self) -> tempfile::TempDir {
        std::mem::replace(&mut self.data, tempfile::tempdir().unwrap())
    }

    pub fn end(&mut self) {
        self.service.stop();
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.end();
        }
    }
}

/// Returns the contents of a file of a snapshot; `None` if it is missing.
pub fn content(volume: &Volume, snapshot: &str, name: &str) -> Option<Vec<u8>> {
    let view = volume.open_snapshot(snapshot).unwrap();
    let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
    let found = view.drive_blocking(&mut cx, |cx| view.lookup(cx, view.root(), name.as_bytes()));
    let found = found.ok()?;
    let mut out = Vec::new();
    while (out.len() as u64) < found.attr.size {
        let read = view.drive_blocking(&mut cx, |cx| {
            view.read(cx, found.attr.ino, out.len() as u64, 64 << 10)
        });
        out.extend(read.unwrap().to_vec());
    }
    Some(out)
}

pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let rng = SeededRng::new(seed);
    (0..bytes / 8)
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .collect()
}

/// Every snapshot that both have is the same.
pub fn same(source: &Volume, destination: &Volume, names: &[&str]) -> usize {
    let mut compared = 0;
    for snapshot in destination.snapshots() {
        let Some(there) = source.snapshot_with(snapshot.identity) else {
            continue;
        };
        for name in names {
            let (from, to) = (
                content(source, &there.name, name),
                content(destination, &snapshot.name, name),
            );
            assert!(from == to, "{} of {}", name, snapshot.name);
        }
        compared += 1;
    }
    compared
}

pub fn pair(one: &Station, other: &Station) {
    for (here, there, name) in [(one, other, "far"), (other, one, "near")] {
        let address = there.service.listening().unwrap().to_string();
        here.peer(name, Some(&address), there.service.fingerprint());
    }
}
