//! Kills a real NFSv3 server with SIGKILL under load, again and again, and verifies after each
//! restart that everything it acknowledged is there, that nothing it denied is, and that what was
//! in flight happened either whole or not at all.
//!
//! Several connections carry several lanes each ([`lane`]); a lane has one request in flight and
//! its own names in shared folders, so that a lane's part of the volume is decided by two states
//! ([`model`]) and the files by their pending writes ([`content`]). One in four restarts is itself
//! killed at a random moment, because recovery must survive a crash too. Handles must outlive
//! restarts, removed objects must stay stale, and no two lives of the server may share a write
//! verifier. At the end the server is stopped by SIGTERM and verified once more: then nothing at
//! all may be missing.
//!
//! With `--standby` a second server stands by, in a folder of its own, and takes over by itself in
//! place of each restart. The server that serves is then killed, stopped by SIGTERM, or suspended
//! until the other one serves; after that it has to become the standby.
//!
//! The operations come from the seed, the moments of the kills partly so; how requests interleave
//! does not. A failure's seed repeats the load, not the race: run many rounds. The data folder is
//! kept.

mod ask;
mod content;
mod fault;
mod lane;
mod model;
mod rpc;
mod server;
mod walk;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use weir_base::{Clock as _, Rng, SeededRng, SystemClock, SystemRng};
use weir_testclient::nfs3::{Call, Fh, Reply, STALE, Sattr};

use crate::fault::Fault;
use crate::lane::{Lane, Outcome};
use crate::rpc::{Broken, Connection};
use crate::server::{Recipe, Server};

/// Folders that all lanes share.
const FOLDERS: usize = 3;

/// Kill an NFSv3 server under load and verify all that it acknowledged.
#[derive(Parser, Debug)]
struct Args {
    /// The weir binary; sets the commands below for it
    #[arg(long)]
    weir: Option<PathBuf>,
    /// Command that serves `{data}` at 127.0.0.1:`{port}` in the foreground
    #[arg(long, default_value = "")]
    serve: String,
    /// Command that verifies `{data}` while the server is down
    #[arg(long)]
    check: Option<String>,
    /// More arguments for `weir serve`
    #[arg(
        long,
        default_value = "--memory 512M --no-rpcbind --api off",
        allow_hyphen_values = true
    )]
    serve_args: String,
    /// Path to mount
    #[arg(long, default_value = "/vol1")]
    export: String,
    /// Fixed NFS port (default: a free one)
    #[arg(long)]
    port: Option<u16>,
    /// Port of the MOUNT program where it differs from NFS's
    #[arg(long)]
    mount_port: Option<u16>,
    /// Data folder (default: a new one under the system's temporary folder, removed after success)
    #[arg(long)]
    data: Option<PathBuf>,
    #[arg(long)]
    seed: Option<u64>,
    /// Number of kills
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 8)]
    lanes: usize,
    /// Longest time under load before a kill, in milliseconds
    #[arg(long, default_value_t = 1500)]
    load_ms: u64,
    /// Judge as leniently as NFS-Ganesha over a local file system needs: a write, creation or
    /// SETATTR in flight may be there in part, the write verifier counts seconds, there are no
    /// sockets
    #[arg(long)]
    reference: bool,
    /// Have a second server stand by, by the same arguments, which have to include --standby
    #[arg(long)]
    standby: bool,
}

/// Keeps every lane's request in flight until the server goes away; only a fault is an error.
fn load(
    mut lanes: Vec<Lane>,
    address: std::net::SocketAddr,
    xid: u32,
) -> (Vec<Lane>, Result<(), Fault>) {
    let end = run_load(&mut lanes, address, xid);
    let verdict = match end {
        Ok(()) | Err(Broken::Gone) => Ok(()),
        Err(Broken::Wrong(f)) => Err(f),
    };
    (lanes, verdict)
}

fn run_load(lanes: &mut [Lane], address: std::net::SocketAddr, xid: u32) -> Result<(), Broken> {
    let mut c = Connection::open(address, xid)?;
    let mut waiting: BTreeMap<u32, usize> = BTreeMap::new();
    for (i, lane) in lanes.iter_mut().enumerate() {
        waiting.insert(c.send(lane.next()?), i);
    }
    c.flush()?;
    loop {
        let (xid, body) = c.receive()?;
        let unknown = || {
            Broken::Wrong(format!(
                "a reply to {xid:#x}, which was not asked or was answered before"
            ))
        };
        let i = waiting.remove(&xid).ok_or_else(unknown)?;
        let lane = lanes.get_mut(i).ok_or_else(unknown)?;
        let reply = rpc::decode(lane.again().ok_or_else(unknown)?, &body)?;
        let sent = if lane.done(reply)? {
            c.send(lane.next()?)
        } else {
            std::thread::sleep(Duration::from_millis(20));
            c.send(lane.again().ok_or_else(unknown)?)
        };
        waiting.insert(sent, i);
        c.flush()?;
    }
}

struct Test {
    args: Args,
    recipe: Recipe,
    /// Recipe of the server that stands by.
    other: Option<Recipe>,
    standby: Option<Server>,
    /// Numbers of the servers that were killed, stopped and suspended, and the longest time until
    /// the standby served.
    ends: [(u32, Duration); 3],
    /// The server that was suspended, and is to stand by.
    resumed: Option<Server>,
    rng: SeededRng,
    lanes: Vec<Lane>,
    root: Option<Fh>,
    folders: Vec<Fh>,
    verifiers: HashSet<[u8; 8]>,
    outcomes: [u64; 4],
    restarts_killed: u32,
}

fn whole(b: Broken) -> Fault {
    match b {
        Broken::Gone => "the server went away while it was not being killed".into(),
        Broken::Wrong(f) => f,
    }
}

impl Test {
    fn connect(&self, server: &Server) -> Result<Connection, Broken> {
        Connection::open(server.address, SystemRng.next_u64() as u32)
    }

    /// The root handle, which must be the same in every life of the server.
    fn mount(&mut self, server: &Server) -> Result<Fh, Fault> {
        let mut address = server.address;
        if let Some(p) = self.args.mount_port {
            address.set_port(p);
        }
        let mut tries = 0;
        let mut c = loop {
            match Connection::open(address, SystemRng.next_u64() as u32) {
                Ok(c) => break c,
                Err(_) if tries < 600 => tries += 1,
                Err(b) => return Err(whole(b)),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        match c
            .call(&Call::Mnt(self.args.export.clone().into_bytes()))
            .map_err(whole)?
        {
            Reply::Root(fh) if self.root.as_ref().is_some_and(|r| *r != fh) => {
                Err("the root handle changed with a restart".into())
            }
            Reply::Root(fh) => {
                self.root = Some(fh.clone());
                Ok(fh)
            }
            other => Err(format!("MNT: {other:?}")),
        }
    }

    fn start(&mut self, may_be_killed: bool) -> Result<Server, Fault> {
        if let Some(mut server) = self.standby.take() {
            server.ready()?;
            return Ok(server);
        }
        let mut server = self.recipe.spawn()?;
        while may_be_killed && self.rng.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(self.rng.below(200_000)));
            server.kill()?;
            self.restarts_killed += 1;
            server = self.recipe.spawn()?;
        }
        server.ready()?;
        Ok(server)
    }

    /// The folders of a new volume.
    fn prepare(&mut self, server: &Server) -> Result<(), Fault> {
        let root = self.mount(server)?;
        let mut c = self.connect(server).map_err(whole)?;
        for i in 0..FOLDERS {
            let attr = Sattr::mode(0o777);
            match c
                .call(&Call::Mkdir(
                    root.clone(),
                    format!("folder-{i}").into_bytes(),
                    attr,
                ))
                .map_err(whole)?
            {
                Reply::Made(Some(fh), ..) => self.folders.push(fh),
                other => return Err(format!("MKDIR: {other:?}")),
            }
        }
        let folders = Arc::new(self.folders.clone());
        for w in 0..self.args.connections {
            for l in 0..self.args.lanes {
                self.lanes.push(Lane::new(
                    format!("w{w}l{l}"),
                    self.rng.next_u64(),
                    folders.clone(),
                    self.args.reference,
                ));
            }
        }
        Ok(())
    }

    /// Walks the volume and lets every lane judge its part.
    fn verify(&mut self, server: &Server) -> Result<(), Fault> {
        self.mount(server)?;
        let mut c = self.connect(server).map_err(whole)?;
        let mut by_lane: BTreeMap<Vec<u8>, Vec<BTreeMap<_, _>>> = BTreeMap::new();
        for lane in &self.lanes {
            by_lane.insert(
                lane.tag.clone().into_bytes(),
                vec![BTreeMap::new(); FOLDERS],
            );
        }
        for (i, folder) in self.folders.iter().enumerate() {
            for (name, found) in walk::tree(&mut c, folder).map_err(whole)? {
                let tag = name.split(|b| *b == b'-').next().unwrap_or_default();
                let place = by_lane.get_mut(tag).and_then(|f| f.get_mut(i));
                place
                    .ok_or_else(|| format!("{} is nobody's", model::show(&name)))?
                    .insert(name, found);
            }
        }
        for lane in &mut self.lanes {
            let found = by_lane
                .get(lane.tag.as_bytes())
                .map(Vec::as_slice)
                .unwrap_or_default();
            let outcome = lane.judge(found)?;
            if let Some(n) = self.outcomes.get_mut(outcome as usize) {
                *n += 1;
            }
            for fh in lane.gone() {
                match c.call(&Call::Getattr(fh.clone())).map_err(whole)? {
                    Reply::Error(STALE) => {}
                    other => {
                        return Err(format!(
                            "lane {}: a removed object's handle answers {other:?}",
                            lane.tag
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Load, then the kill at a random moment.
    fn round(&mut self, mut server: Server) -> Result<(), Fault> {
        let mut threads = Vec::new();
        let mut lanes = std::mem::take(&mut self.lanes);
        while !lanes.is_empty() {
            let rest = lanes.split_off(self.args.lanes.min(lanes.len()));
            let (mine, address, xid) = (
                std::mem::replace(&mut lanes, rest),
                server.address,
                SystemRng.next_u64() as u32,
            );
            threads.push(std::thread::spawn(move || load(mine, address, xid)));
        }
        std::thread::sleep(Duration::from_micros(
            self.rng.below(self.args.load_ms * 1000 + 1),
        ));
        let alive = server.alive();
        match self.standby.take() {
            Some(standby) => self.take_over(server, standby)?,
            None => server.kill()?,
        }
        let mut verdict = alive;
        let mut life = HashSet::new();
        for t in threads {
            let (lanes, end) = t.join().map_err(|_| "a worker panicked")?;
            life.extend(lanes.iter().filter_map(|l| l.verifier));
            self.lanes.extend(lanes);
            verdict = verdict.and(end);
        }
        verdict?;
        if life.len() > 1 {
            return Err("one life of the server showed two write verifiers".into());
        }
        if life.iter().any(|v| !self.verifiers.insert(*v)) && !self.args.reference {
            return Err("two lives of the server have the same write verifier".into());
        }
        match self.other {
            // It is being served again.
            Some(_) => Ok(()),
            None => self.recipe.check(),
        }
    }

    /// Ends the service of `server` in one of several ways, and waits until `standby` serves.
    fn take_over(&mut self, server: Server, mut standby: Server) -> Result<(), Fault> {
        let Some(other) = &mut self.other else {
            return Err("nobody stands by".into());
        };
        let way = (self.rng.below(4) as usize).saturating_sub(1);
        let clock = SystemClock::new();
        let began = clock.monotonic();
        let suspended = match way {
            0 => server.kill().map(|()| None),
            1 => server.stop().map(|()| None),
            _ => server.signal("-STOP").map(|()| Some(server)),
        }?;
        standby.ready()?;
        let took = clock.monotonic().saturating_sub(began);
        if let Some((count, longest)) = self.ends.get_mut(way) {
            *count += 1;
            *longest = took.max(*longest);
        }
        self.standby = Some(standby);
        std::mem::swap(&mut self.recipe, other);
        self.resumed = suspended;
        if let Some(server) = &self.resumed {
            server.signal("-CONT")?;
        }
        Ok(())
    }

    /// Makes a server stand by again: the one that was suspended, or another one.
    fn stand_by(&mut self) -> Result<(), Fault> {
        if let Some(other) = &self.other {
            self.standby = match self.resumed.take() {
                Some(mut server) => {
                    server.alive()?;
                    Some(server)
                }
                None => Some(other.spawn()?),
            };
        }
        Ok(())
    }

    fn print_counts(&self) {
        let acknowledged: u64 = self.lanes.iter().map(|l| l.acknowledged).sum();
        let objects: usize = self.lanes.iter().map(|l| l.counts().0).sum();
        let count = |o: Outcome| self.outcomes.get(o as usize).copied().unwrap_or(0);
        println!(
            "killtest: {acknowledged} requests acknowledged, {objects} objects at the end, {} restarts killed as well; of the requests in flight {} had happened, {} had not, {} leave either",
            self.restarts_killed,
            count(Outcome::Happened),
            count(Outcome::DidNot),
            count(Outcome::Either),
        );
        for (way, (count, longest)) in ["killed", "stopped", "suspended"].iter().zip(self.ends) {
            if count > 0 {
                println!(
                    "killtest: {way} {count} times, the standby served after {longest:.1?} at most"
                );
            }
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let server = self.start(false)?;
        self.prepare(&server)?;
        self.stand_by()?;
        self.round(server)?;
        for r in 1..self.args.rounds {
            let server = self.start(true)?;
            self.stand_by()?;
            self.verify(&server)
                .map_err(|f| format!("after kill {r}: {f}"))?;
            self.round(server)
                .map_err(|f| format!("in round {}: {f}", r + 1))?;
        }
        let server = self.start(true)?;
        self.verify(&server)
            .map_err(|f| format!("after the last kill: {f}"))?;
        // One that was suspended would take over.
        self.resumed.take().map_or(Ok(()), Server::kill)?;
        server.stop()?;
        self.recipe
            .check()
            .map_err(|f| format!("after a clean stop: {f}"))?;
        let server = self.start(false)?;
        self.verify(&server)
            .map_err(|f| format!("after a clean stop: {f}"))?;
        server.stop()
    }
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| SystemRng.next_u64() >> 32);
    if let Some(weir) = &args.weir {
        let weir = weir.display();
        args.serve = format!(
            "{weir} serve --data {{data}} --nfs 127.0.0.1:{{port}} {}",
            args.serve_args
        );
        args.check.get_or_insert(format!("{weir} check {{data}}"));
    }
    let own = args.data.is_none();
    let base = args.data.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("weir-killtest-{}", std::process::id()))
    });
    let data = base.join("data");
    if let Err(e) = std::fs::create_dir_all(&data) {
        eprintln!("{}: {e}", data.display());
        return ExitCode::from(2);
    }
    let recipe = Recipe {
        serve: args.serve.clone(),
        check: args.check.clone(),
        data,
        port: args.port,
        log: base.join("server.log"),
    };
    let other = args.standby.then(|| Recipe {
        data: base.join("standby"),
        log: base.join("standby.log"),
        ..recipe.clone()
    });
    println!(
        "killtest: seed {seed}, {} rounds, {} connections of {} requests in flight",
        args.rounds, args.connections, args.lanes
    );
    let mut test = Test {
        args,
        recipe,
        rng: SeededRng::new(seed),
        lanes: Vec::new(),
        root: None,
        folders: Vec::new(),
        verifiers: HashSet::new(),
        outcomes: [0; 4],
        restarts_killed: 0,
        other,
        standby: None,
        ends: Default::default(),
        resumed: None,
    };
    let verdict = test.run();
    test.print_counts();
    match verdict {
        Ok(()) => {
            if own {
                std::fs::remove_dir_all(&base).ok();
            }
            println!("killtest: passed");
            ExitCode::SUCCESS
        }
        Err(f) => {
            eprintln!(
                "killtest: FAILED (seed {seed}, data kept in {}): {f}",
                base.display()
            );
            ExitCode::FAILURE
        }
    }
}
