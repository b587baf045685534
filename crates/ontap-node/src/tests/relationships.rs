//! Stories of relationships: random verbs over three volumes of two nodes, through the whole
//! control plane.
//!
//! A story is a few sequences on one pair of nodes. A sequence makes volumes and relationships
//! between them, in any direction and in chains, and runs all commands of ONTAP: transfers,
//! breaking off, resyncs either way, reversal, restores, reverts, clones, deletions. On both sides
//! it writes and takes snapshots in between. The power of either node fails at any write to its
//! disks or at any moment of a verb: its memory and its disks' caches are lost, and the catalog has
//! the state of its file. At the end everything is deleted, and nothing may be left.
//!
//! All parts are the product's: commands, rules, mutations, catalog, manager, transfers over TLS,
//! and the engine, which stores on simulated disks. Waits between retries are skipped by a clock
//! that is set forward. The model has the contents of each snapshot by its identity, from the
//! volume in which it was made, and the contents of each writable volume. After each step all
//! snapshots equal the model's, byte for byte. A volume is unchanged, or has one of the contents
//! that the step may have given it. Rows, lists and volumes agree.
//!
//! A seed determines the verbs. Threads run freely, so the moment of a power failure is not
//! repeated exactly.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::SnapshotIdentity;
use weir_base::VolumeId;
use weir_control::State;
use weir_relations::manager::{Entry, Verb, Work};
use weir_sim::histories::{BLOCK, CheckResult, Files, contents, run};
use weir_sim::machine::{Machine, Sizes};
use weir_sim::rand::{Choices, seeds};
use weir_sim::suite::Suite;
use weir_volume::{FsError, Stop};

use super::*;

mod host;
mod steps;
use host::{Ahead, Host};

/// Volumes, each with the node that it is on.
const VOLUMES: [(&str, usize); 3] = [("a", 0), ("b", 0), ("c", 1)];
/// Name of the other node, by the number of the node.
const PEERS: [&str; 2] = ["far", "near"];
/// Sequences of a story.
const SEQUENCES: u64 = 5;
/// Real time that anything may take.
const LONG: Duration = Duration::from_secs(45);
const POLICIES: [&str; 4] = [
    "MirrorAllSnapshots",
    "MirrorLatest",
    "MirrorAndVault",
    "XDPDefault",
];

/// Number of occurrences of each event, over all stories of the process.
static TALLY: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn tally(what: &str, how: &str) {
    let how: String = how.chars().filter(|c| !c.is_ascii_digit()).collect();
    *TALLY.lock().entry(format!("{what}: {how}")).or_default() += 1;
}

fn node_index(volume: &str) -> usize {
    VOLUMES.iter().find(|(name, _)| *name == volume).unwrap().1
}

fn name_of(volume: &str) -> Name {
    VOLUMES.iter().find(|(name, _)| *name == volume).unwrap().0
}

/// A volume, as users of a node write it.
fn path(node: usize, volume: &str) -> String {
    match node_index(volume) == node {
        true => format!("SVM:{volume}"),
        false => format!("{}://SVM/{volume}", PEERS[node]),
    }
}

type Name = &'static str;

/// A request to a node.
#[derive(Clone, Debug)]
enum Act {
    Line(String),
    Verb(Box<Verb>),
}

impl From<String> for Act {
    fn from(line: String) -> Act {
        Act::Line(line)
    }
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq)]
enum RequestOutcome {
    Yes,
    No(String),
    /// The power failed before the reply, or before the end of the work that the request began.
    Cut,
}

/// Moment of a power failure, and the node that fails.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// At the write or flush of this number.
    Write(usize, u64),
    /// So many microseconds after the verb was sent.
    Moment(usize, u64),
}

/// Possible state of a volume after a step.
#[derive(Clone, Debug)]
enum Fate {
    Gone,
    /// Only transfers write to it.
    Copy,
    /// It can be written to, and holds this.
    Live(Files),
    /// It can be written to, and holds what its newest snapshot holds.
    Newest,
}

type Fates = Vec<(Name, Fate)>;

struct Relation {
    node: usize,
    source: Name,
    destination: Name,
    entry: Arc<Entry>,
}

struct Story<'a> {
    choices: &'a Choices,
    clock: Arc<Ahead>,
    hosts: [Host; 2],
    /// Contents of writable volumes.
    live: BTreeMap<Name, Files>,
    /// Keys and numbers of the volumes that exist.
    there: BTreeMap<Name, (String, VolumeId)>,
    /// Every snapshot's contents.
    known: HashMap<SnapshotIdentity, Files>,
    /// Restores: the destination, and the copy that it was restored from. Their newest common
    /// snapshot may be gone then.
    restored: Vec<(Name, Name)>,
    serial: u32,
    diary: &'a mut Vec<String>,
}

fn story(seed: u64) -> CheckResult {
    let mut diary = Vec::new();
    let choices = Choices::new(seed);
    tell(&choices, &mut diary).map_err(|what| {
        let last = diary.len().saturating_sub(40);
        format!("{what}\nlast events:\n{}", diary[last..].join("\n"))
    })
}

fn tell(choices: &Choices, diary: &mut Vec<String>) -> CheckResult {
    let real = SystemClock::new();
    let ms = AtomicU64::new(0);
    let clock = Arc::new(Ahead { real, ms });
    let hosts = [Host::new(choices, &clock)?, Host::new(choices, &clock)?];
    for (node, name) in PEERS.into_iter().enumerate() {
        let there = &hosts[1 - node];
        let print = &there.up().service.fingerprint();
        let address = there.address.to_string();
        hosts[node].up().peer(name, Some(&address), print);
    }
    let mut story = Story {
        choices,
        clock,
        hosts,
        live: BTreeMap::new(),
        there: BTreeMap::new(),
        known: HashMap::new(),
        restored: Vec::new(),
        serial: 0,
        diary,
    };
    for sequence in 0..SEQUENCES {
        story.note(format!("sequence {sequence}"));
        for (name, _) in VOLUMES {
            story.make_volume(name)?;
        }
        for _ in 0..choices.between(15, 45) {
            story.step()?;
        }
        story.end()?;
        tally("sequences", "");
    }
    for host in &mut story.hosts {
        drop(host.station.take());
        host.machine.check()?;
    }
    Ok(())
}

impl Story<'_> {
    fn note(&mut self, what: String) {
        self.diary.push(what);
    }

    fn relations(&self) -> Vec<Relation> {
        let mut all = Vec::new();
        for (node, host) in self.hosts.iter().enumerate() {
            let rows = host.up().service.relations();
            all.extend(rows.entries(0).map(|entry| Relation {
                node,
                source: name_of(&entry.source.volume),
                destination: name_of(&entry.destination.volume),
                entry: Arc::clone(entry),
            }));
        }
        all
    }

    fn row(&self, destination: &str) -> Option<Arc<Entry>> {
        let rows = self.hosts[node_index(destination)].up().service.relations();
        rows.entry(&Path::local("SVM", destination)).cloned()
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.hosts[node_index(name)].volume(name)
    }

    /// The snapshot that readers of a copy see.
    fn seen(&self, name: &str) -> Option<SnapshotIdentity> {
        let volume = self.volume(name)?;
        let exported = volume.mirror()?.exported?;
        let all = volume.snapshots();
        all.iter().find(|s| s.id == exported).map(|s| s.identity)
    }

    fn crashed(&self) -> bool {
        self.hosts.iter().any(Host::crashed)
    }

    /// Waits until no work is left, with all retries. Returns false if the power failed.
    fn rest(&self) -> CheckResult<bool> {
        let until = self.clock.real.monotonic() + LONG;
        loop {
            if self.crashed() {
                return Ok(false);
            }
            let (mut quiet, mut waits) = (true, false);
            for host in &self.hosts {
                let service = &host.up().service;
                let rows = service.relations();
                let manager = service.manager();
                for (entry, pending) in rows.busy() {
                    let runs = manager.runs(&entry.uuid);
                    let held = entry.quiesced && !pending.aborting && pending.work != Work::Break;
                    quiet &= held && !runs;
                    waits |= pending.failures > 0 && !runs;
                }
                quiet &= !rows.known().any(|known| known.released);
                quiet &= service.jobs() == 0;
            }
            if quiet {
                return Ok(true);
            }
            if self.clock.real.monotonic() > until {
                let rows: Vec<String> = self.relations().iter().map(Relation::describe).collect();
                return Err(format!("it does not come to rest:\n{}", rows.join("\n")));
            }
            if waits {
                self.clock.ms.fetch_add(5_000, Ordering::Relaxed);
            }
            for host in &self.hosts {
                host.up().service.wake();
            }
            let service = &self.hosts[0].up().service;
            let mut manager = service.manager();
            service.wait_for_change(&mut manager, Duration::from_millis(1));
        }
    }

    /// Sends requests to a node and waits for their end, with a power failure in between if `crash`
    /// says so.
    fn perform(
        &mut self,
        node: usize,
        acts: &[Act],
        crash: Option<Crash>,
    ) -> CheckResult<RequestOutcome> {
        let choices = self.choices;
        if let Some(Crash::Write(of, after)) = crash {
            let world = &self.hosts[of].machine.world;
            world.crash_at(world.counts().events + after);
        }
        let server = Arc::clone(&self.hosts[node].up().server);
        let (said, hears) = mpsc::channel();
        let line = acts.to_vec();
        std::thread::spawn(move || {
            let actor = Actor::local();
            let user = AsUser::new(server, actor);
            let mut last = Ok(());
            for act in line {
                last = match act {
                    Act::Line(line) => execute(&line, &user).map(|_| ()),
                    Act::Verb(verb) => user.change((*verb).into()).map_err(|f| f.message),
                };
            }
            // Nobody waits for it after a power failure.
            let _ = said.send(last);
        });
        let began = self.clock.real.monotonic();
        let mut heard = None;
        while !self.crashed() {
            let passed = self.clock.real.monotonic() - began;
            if passed > LONG {
                return Err(format!("nothing is said to {acts:?}"));
            }
            let wait = match crash {
                Some(Crash::Moment(of, after)) => {
                    let left = Duration::from_micros(after).saturating_sub(passed);
                    if left.is_zero() {
                        self.hosts[of].machine.world.crash();
                        break;
                    }
                    left
                }
                _ => Duration::from_millis(1),
            };
            match hears.recv_timeout(wait) {
                Ok(said) => {
                    heard = Some(said);
                    break;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(format!("{acts:?} panicked"));
                }
            }
        }
        let mut cut = self.crashed();
        while !self.rest()? {
            cut = true;
            if heard.is_none() && !self.hosts[node].crashed() {
                // A node that lives says something in the end; what is asked of the other fails.
                heard = hears.recv_timeout(LONG).ok();
            }
            for of in 0..2 {
                if self.hosts[of].crashed() {
                    let clock = Arc::clone(&self.clock);
                    self.hosts[of].restart(choices, &clock)?;
                }
            }
        }
        for host in &self.hosts {
            host.machine.world.crash_at(u64::MAX);
        }
        let said = match heard {
            _ if cut => RequestOutcome::Cut,
            Some(Ok(())) => RequestOutcome::Yes,
            Some(Err(why)) => RequestOutcome::No(why.trim().to_owned()),
            None => RequestOutcome::Cut,
        };
        self.note(format!("{node}: {acts:?} {crash:?}: {said:?}"));
        Ok(said)
    }

    fn maybe_crash(&self) -> Option<Crash> {
        let of = self.choices.index(2);
        match self.choices.below(16) {
            0 => Some(Crash::Write(of, self.choices.between(1, 60))),
            1 => Some(Crash::Moment(of, self.choices.between(0, 4_000))),
            _ => None,
        }
    }

    /// Performs requests that may leave volumes in the states `fates`, and compares everything with
    /// the model.
    fn act(&mut self, node: usize, acts: &[Act], mut fates: Fates) -> CheckResult<RequestOutcome> {
        // Deferred transfers may continue.
        for r in self.relations() {
            if r.entry.pending.is_some() {
                fates.push((r.destination, Fate::Copy));
                fates.push((r.destination, Fate::Newest));
            }
        }
        let crash = self.maybe_crash();
        let said = self.perform(node, acts, crash)?;
        let compared = self.compare(&fates);
        compared.map_err(|e| format!("after {acts:?}: {e}"))?;
        let what = match &acts[0] {
            Act::Line(line) => line.split(" -").next().unwrap_or_default().to_owned(),
            Act::Verb(verb) => verb.subject().0.to_owned(),
        };
        match &said {
            RequestOutcome::Yes => tally(&what, "accepted"),
            RequestOutcome::No(why) => tally(&what, why),
            RequestOutcome::Cut => tally(&what, "cut"),
        }
        Ok(said)
    }

    /// Compares rows, volumes and snapshots with the model, and adds the changes of the step to it.
    fn compare(&mut self, fates: &Fates) -> CheckResult {
        for (name, _) in VOLUMES {
            self.learn(name)?;
        }
        for (name, _) in VOLUMES {
            self.compare_volume(name, fates)
                .map_err(|e| format!("{name}: {e}"))?;
        }
        for r in self.relations() {
            self.compare_row(&r)
                .map_err(|e| format!("{}: {e}", r.describe()))?;
        }
        Ok(())
    }

    /// New snapshots hold what the volume holds in which they were made.
    fn learn(&mut self, name: Name) -> CheckResult {
        let Some(volume) = self.volume(name) else {
            return Ok(());
        };
        for s in volume.snapshots() {
            if self.known.contains_key(&s.identity) {
                continue;
            }
            let made = (s.identity.aggregate.to_string(), s.identity.volume);
            let origin = self.there.iter().find(|(_, is)| **is == made);
            let view = volume.open_snapshot(&s.name).map_err(|e| e.to_string())?;
            let got = contents(&view).map_err(|e| format!("{name}@{}: {e}", s.name))?;
            let before = origin.and_then(|(origin, _)| self.live.get(origin));
            if before != Some(&got) {
                // A transfer that was begun again may have taken it after the step.
                let now = origin.and_then(|(origin, _)| self.volume(origin));
                let now = now.filter(|v| v.mirror().is_none());
                let now = now.map(|v| contents(&v)).transpose()?;
                if now.as_ref() != Some(&got) {
                    let at = &s.name;
                    return Err(format!(
                        "{name}@{at} holds {got:?}; where it was made there was {before:?}, and is {now:?}"
                    ));
                }
            }
            self.known.insert(s.identity, got);
        }
        Ok(())
    }

    fn compare_volume(&mut self, name: Name, fates: &Fates) -> CheckResult {
        let host = &self.hosts[node_index(name)];
        let may = |what: &dyn Fn(&Fate) -> bool| fates.iter().any(|(n, f)| *n == name && what(f));
        let Some(volume) = host.volume(name) else {
            self.live.remove(name);
            return match self.there.remove(name) {
                Some(_) if !may(&|f| matches!(f, Fate::Gone)) => Err("it is gone".to_owned()),
                _ => Ok(()),
            };
        };
        let all = volume.snapshots();
        for s in &all {
            let view = volume.open_snapshot(&s.name).map_err(|e| e.to_string())?;
            let got = contents(&view).map_err(|e| format!("@{}: {e}", s.name))?;
            let want = &self.known[&s.identity];
            if got != *want {
                return Err(format!("@{} holds {got:?}, not {want:?}", s.name));
            }
        }
        let service = &host.up().service;
        let row = service.local_volume("SVM", name).map_err(|e| e.text)?;
        let view = service.control().view();
        let mut listed: Vec<String> = view
            .snapshots(&row.name, None)
            .map(|s| s.name.id.to_string())
            .collect();
        let mut there: Vec<String> = all.iter().map(|s| s.name.clone()).collect();
        listed.sort();
        there.sort();
        if listed != there {
            return Err(format!("the catalog lists {listed:?} of {there:?}"));
        }
        let number = (service.engine().aggregate().id().to_string(), volume.id());
        let before = self.there.insert(name, number.clone());
        let renewed = before.is_some_and(|before| before != number);
        if volume.mirror().is_some() {
            let was = self.live.remove(name);
            if was.is_some() && !may(&|f| matches!(f, Fate::Copy)) {
                return Err("it has become a copy".to_owned());
            }
            let want = self.seen(name).map(|id| &self.known[&id]);
            let got = match volume.serving() {
                Ok(Some(view)) => Some(contents(&view)?),
                Err(Stop::Fail(FsError::Access)) => None,
                other => return Err(format!("readers see {:?}", other.map(|_| ()))),
            };
            return match got.as_ref() == want {
                true => Ok(()),
                false => Err(format!("readers see {got:?} instead of {want:?}")),
            };
        }
        let got = contents(&volume)?;
        let same = !renewed && self.live.get(name) == Some(&got);
        let newest = all.last().map(|s| &self.known[&s.identity]);
        let made = may(&|f| match f {
            Fate::Live(files) => *files == got,
            Fate::Newest => newest == Some(&got),
            Fate::Gone | Fate::Copy => false,
        });
        if !same && !made {
            let want = self.live.get(name);
            return Err(format!("it holds {got:?} instead of {want:?}"));
        }
        self.live.insert(name, got);
        Ok(())
    }

    fn compare_row(&self, r: &Relation) -> CheckResult {
        let Some(volume) = self.volume(r.destination) else {
            return Err("the destination is gone".to_owned());
        };
        let newest = r.entry.newest.as_ref().map(|newest| newest.id);
        match r.entry.state {
            MirrorState::Snapmirrored => {
                let seen = self.seen(r.destination);
                if seen.is_none() || seen != newest {
                    return Err(format!("readers see {seen:?}, the row says {newest:?}"));
                }
                let rows = self.hosts[node_index(r.source)].up().service.relations();
                let known = rows.destination(&r.entry.uuid).is_some();
                let source = self.volume(r.source).filter(|_| known);
                let base = source.zip(seen).map(|(s, id)| s.snapshot_with(id));
                let back = self.restored.contains(&(r.source, r.destination));
                let failed = back || r.entry.last.as_ref().is_none_or(|l| l.error.is_some());
                match base {
                    Some(None) if !failed => {
                        Err("the source has lost the common snapshot".to_owned())
                    }
                    _ => Ok(()),
                }
            }
            MirrorState::BrokenOff if volume.mirror().is_some() => {
                Err("it is broken off, and yet nothing can be written to it".to_owned())
            }
            MirrorState::Uninitialized if volume.mirror().is_none() && !r.entry.restore => {
                Err("it is to be initialized, and yet can be written to".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Relation {
    fn describe(&self) -> String {
        let Entry {
            state,
            quiesced,
            pending,
            last,
            trouble,
            ..
        } = &*self.entry;
        let last = last.as_ref().and_then(|last| last.error.as_ref());
        format!(
            "{} to {}: {state:?}, quiesced {quiesced}, {pending:?}, {last:?}, {trouble:?}",
            self.source, self.destination
        )
    }
}

/// `WEIR_SEED` and `WEIR_SEEDS` run others, and more.
#[test]
fn what_a_relationship_says_is_so_after_any_verbs_and_crashes() {
    let suite = Suite {
        name: "relationships",
        about: "verbs over three volumes of two nodes, with power failures of either",
        run: story,
    };
    for seed in seeds(2) {
        if let Err(what) = suite.run_seed(seed) {
            panic!("{what}\n(WEIR_SEED={seed} WEIR_SEEDS=1)");
        }
        eprintln!("seed {seed}");
    }
    let tally = TALLY.lock();
    for (what, times) in &*tally {
        eprintln!("{times:6} {what}");
    }
    if std::env::var_os("WEIR_SEEDS").is_some() {
        return;
    }
    for what in [
        "initialize ended: well",
        "update ended: well",
        "replication delete: accepted",
    ] {
        assert!(tally.contains_key(what), "no story had \"{what}\"");
    }
}
