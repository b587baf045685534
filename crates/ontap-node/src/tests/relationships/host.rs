//! A node of the stories: a machine whose power can fail, and the server on it.

use super::*;

/// The system's clock, set forward.
pub struct Ahead {
    pub real: SystemClock,
    pub ms: AtomicU64,
}

impl Ahead {
    pub fn by(&self) -> Duration {
        Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }
}

impl Clock for Ahead {
    fn current_time(&self) -> Time {
        self.real.current_time().plus(self.by())
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + self.by()
    }
}

pub struct Host {
    pub machine: Machine,
    pub station: Option<Station>,
    pub address: SocketAddr,
    /// Seed of the node's random numbers, a new one after each start.
    pub seed: u64,
}

impl Host {
    pub fn new(choices: &Choices, clock: &Arc<Ahead>) -> CheckResult<Host> {
        let sizes = Sizes {
            background: true,
            ..Sizes::small()
        };
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut host = Host {
            machine: Machine::new(sizes, choices)?,
            station: None,
            address: free.local_addr().unwrap(),
            seed: choices.bits() >> 1,
        };
        let data = tempfile::tempdir().unwrap();
        host.start(data, clock, Some(free))?;
        let pool = NewPool {
            service_level: "PREMIUM".to_owned(),
            capacity_gib: 204_800,
            ..NewPool::default()
        };
        let place = LocationName::new("SVM", "local").name("p");
        host.up().submit(Mutation::CreatePool(place, pool));
        Ok(host)
    }

    pub fn start(
        &mut self,
        data: tempfile::TempDir,
        clock: &Arc<Ahead>,
        listener: Option<TcpListener>,
    ) -> CheckResult {
        let listener = listener.unwrap_or_else(|| {
            loop {
                // The old one may be about to be closed.
                if let Ok(listener) = TcpListener::bind(self.address) {
                    return listener;
                }
                std::thread::yield_now();
            }
        });
        self.seed += 1;
        let engine = Arc::new(self.machine.boot()?.engine);
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        self.station = Some(Station::with_listener(
            data, engine, self.seed, clock, listener,
        ));
        Ok(())
    }

    pub fn up(&self) -> &Station {
        self.station.as_ref().unwrap()
    }

    pub fn crashed(&self) -> bool {
        self.machine.world.crashed()
    }

    /// The volume of this name, if the catalog has it and the engine.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let service = &self.up().service;
        let row = service.local_volume("SVM", name).ok()?;
        if row.state == State::Deleting {
            return None;
        }
        service.engine().volume(&row.key)
    }

    pub fn restart(&mut self, choices: &Choices, clock: &Arc<Ahead>) -> CheckResult {
        self.machine.world.crash();
        let data = self.station.take().unwrap().kill();
        self.machine.reboot(choices);
        let checked = self.machine.check();
        checked.map_err(|e| format!("after a crash: {e}"))?;
        self.start(data, clock, None)
    }
}
