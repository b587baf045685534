//! Backups of volumes that change, to buckets that fail, lie and fill up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../transfer/tests/common/volumes.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Machine, change, create, dump, write};
use weir_backup::{
    Backup, BackupError, Bucket, BucketError, Progress, RetryBucket, Source, Vault, VaultKey,
    prune, restore, restore_files, take, verify,
};
use weir_base::{Rng, SeededRng};
use weir_volume::{Engine, FileKind, Volume};

/// Faults of the next writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// After so many, nothing answers any more.
    DownAfter(u32),
    /// After so many, there is no room.
    FullAfter(u32),
    /// All are acknowledged, and those of packs after so many store only a part.
    CutsAfter(u32),
    /// Each second request has to be repeated.
    Flaky,
    /// After so many requests of any kind, nothing answers any more.
    DeadAfter(u32),
}

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    fault: Fault,
    requests: u32,
    /// Reads of packs.
    reads: u32,
}

/// A bucket in memory that can be made to fail.
#[derive(Clone)]
struct Memory(Arc<Mutex<State>>);

impl Memory {
    fn new() -> Memory {
        Memory(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            fault: Fault::None,
            requests: 0,
            reads: 0,
        })))
    }

    fn fault(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }

    fn names(&self, part: &str) -> Vec<String> {
        let state = self.0.lock().unwrap();
        let names = state.objects.keys().filter(|name| name.contains(part));
        names.cloned().collect()
    }

    /// Returns the number of reads of packs meanwhile.
    fn reads(&self, act: impl FnOnce()) -> u32 {
        let before = self.0.lock().unwrap().reads;
        act();
        self.0.lock().unwrap().reads - before
    }

    fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        edit(self.0.lock().unwrap().objects.get_mut(name).unwrap());
    }

    fn down(state: &mut State) -> Result<(), BucketError> {
        state.requests += 1;
        let down = match &mut state.fault {
            Fault::DownAfter(0) | Fault::DeadAfter(0) => true,
            Fault::DeadAfter(left) => {
                *left -= 1;
                false
            }
            Fault::Flaky => state.requests.is_multiple_of(2),
            _ => false,
        };
        match down {
            true => Err(BucketError::Unavailable("down".into())),
            false => Ok(()),
        }
    }
}

impl Bucket for Memory {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BucketError> {
        let state = &mut *self.0.lock().unwrap();
        Memory::down(state)?;
        let mut bytes = bytes.to_vec();
        match &mut state.fault {
            Fault::FullAfter(0) => return Err(BucketError::Full("no room".into())),
            Fault::CutsAfter(0) if name.contains("packs") => bytes.truncate(bytes.len() / 2),
            Fault::DownAfter(left) | Fault::FullAfter(left) | Fault::CutsAfter(left) => {
                // Saturates: lists of objects are cut by nothing.
                *left = left.saturating_sub(1);
            }
            Fault::None | Fault::Flaky | Fault::DeadAfter(_) => {}
        }
        state.objects.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn get(&self, name: &str, from: u64, length: u64) -> Result<Vec<u8>, BucketError> {
        let state = &mut *self.0.lock().unwrap();
        Memory::down(state)?;
        state.reads += u32::from(name.contains("/packs/"));
        let object = state.objects.get(name);
        let object = object.ok_or_else(|| BucketError::Missing(name.to_owned()))?;
        let rest = object.iter().skip(from as usize).take(length as usize);
        Ok(rest.copied().collect())
    }

    fn size(&self, name: &str) -> Result<u64, BucketError> {
        let state = &mut *self.0.lock().unwrap();
        Memory::down(state)?;
        let object = state.objects.get(name).map(|object| object.len() as u64);
        object.ok_or_else(|| BucketError::Missing(name.to_owned()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, BucketError> {
        let state = &mut *self.0.lock().unwrap();
        Memory::down(state)?;
        let names = state.objects.keys().filter(|name| name.starts_with(prefix));
        Ok(names.cloned().collect())
    }

    fn delete(&self, name: &str) -> Result<(), BucketError> {
        let state = &mut *self.0.lock().unwrap();
        Memory::down(state)?;
        state.objects.remove(name);
        Ok(())
    }
}

struct Bench {
    machine: Machine,
    engine: Engine,
    rng: Arc<SeededRng>,
    memory: Memory,
    key: VaultKey,
    restored: u32,
}

fn quietly(_: Progress) -> bool {
    true
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let machine = Machine::new(seed);
        let engine = machine.format();
        let rng = Arc::new(SeededRng::new(seed ^ 0xBAC_0000));
        let key = VaultKey::random(&*rng);
        let bench = Bench {
            machine,
            engine,
            rng: Arc::clone(&rng),
            memory: Memory::new(),
            key,
            restored: 0,
        };
        let bucket = Arc::new(bench.memory.clone());
        Vault::create(bucket, "v", &bench.key, rng).unwrap();
        bench
    }

    fn vault(&self) -> Vault {
        let bucket = Arc::new(RetryBucket::new(self.memory.clone(), |_: Duration| {}));
        let rng = Arc::clone(&self.rng) as Arc<dyn Rng>;
        Vault::open(bucket, "v", &self.key, rng).unwrap()
    }

    fn snapshot(&self, vol: &Arc<Volume>, name: &str) {
        vol.snapshot_create(name, common::fixed_time()).unwrap();
    }

    fn back_up(
        &self,
        vol: &Arc<Volume>,
        name: &str,
        base: Option<&Backup>,
    ) -> Result<Backup, BackupError> {
        self.back_up_to(&self.vault(), vol, name, base)
    }

    fn back_up_to(
        &self,
        vault: &Vault,
        vol: &Arc<Volume>,
        name: &str,
        base: Option<&Backup>,
    ) -> Result<Backup, BackupError> {
        let source = Source {
            volume: vol,
            name: "vol",
            snapshot: vol.snapshot(name).unwrap().identity,
        };
        take(vault, &source, base, name, &mut quietly)
    }

    /// Restores a backup into a volume of its own, and returns what that holds.
    fn restored(&mut self, backup: &Backup) -> BTreeMap<String, common::Entry> {
        self.restored += 1;
        let to = self
            .machine
            .destination(&self.engine, &format!("r{}", self.restored));
        restore(&self.vault(), backup, &to, &mut quietly).unwrap();
        dump(&self.engine.open_volume(&format!("r{}", self.restored)))
    }
}

trait Open {
    fn open_volume(&self, name: &str) -> Arc<Volume>;
}

impl Open for Engine {
    fn open_volume(&self, name: &str) -> Arc<Volume> {
        self.volume(name).unwrap()
    }
}

/// Writes a file of random bytes, and returns them.
fn fill(bench: &Bench, vol: &Arc<Volume>, name: &str, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    bench.rng.fill(&mut data);
    write_all(vol, name, &data);
    data
}

fn write_all(vol: &Arc<Volume>, name: &str, data: &[u8]) -> weir_base::Ino {
    let file = create(vol, vol.root(), name);
    for (at, part) in (0u64..).zip(data.chunks(1 << 19)) {
        write(vol, file, at << 19, part);
    }
    file
}

fn contents(of: BTreeMap<String, common::Entry>) -> Vec<(String, u64, Vec<u8>)> {
    let plain = |(path, entry): (String, common::Entry)| (path, entry.attr.size, entry.content);
    of.into_iter().map(plain).collect()
}

#[test]
fn every_backup_of_a_changing_volume_restores_what_it_was() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let first = seed.unwrap_or(1);
    for seed in first..seed.map_or(4, |seed: u64| seed + 1) {
        println!("seed {seed}");
        let mut bench = Bench::new(seed);
        let vol = bench.machine.volume(&bench.engine, "vol");
        let mut made: Vec<(Backup, BTreeMap<String, common::Entry>)> = Vec::new();
        for round in 0..5u64 {
            change(&vol, &bench.rng, 30);
            let name = format!("b{round}");
            bench.snapshot(&vol, &name);
            let base = made.last().map(|(backup, _)| backup.clone());
            let backup = bench.back_up(&vol, &name, base.as_ref()).unwrap();
            made.push((backup, dump(&vol)));
            // Sometimes the snapshot that the next would build on is gone.
            if bench.rng.below(3) == 0 {
                vol.snapshot_delete(&name).unwrap();
            }
        }
        assert_eq!(
            bench.vault().backups().unwrap(),
            ["b0", "b1", "b2", "b3", "b4"]
        );
        bench.vault().delete("b1").unwrap();
        prune(&bench.vault()).unwrap();
        for (backup, was) in made {
            if backup.name == "b1" {
                let gone = bench.vault().backup("b1");
                assert!(matches!(gone, Err(BackupError::NotFound(_))));
                continue;
            }
            assert_eq!(bench.vault().backup(&backup.name).unwrap(), backup);
            let verified = verify(&bench.vault(), &backup, &mut quietly).unwrap();
            assert!(verified.records > 0);
            assert_eq!(
                contents(bench.restored(&backup)),
                contents(was),
                "{}",
                backup.name
            );
        }
    }
}

#[test]
fn what_is_there_is_not_uploaded_again() {
    let mut bench = Bench::new(7);
    let vol = bench.machine.volume(&bench.engine, "vol");
    let mut data = fill(&bench, &vol, "large", 4 << 20);
    bench.snapshot(&vol, "one");
    let one = bench.back_up(&vol, "one", None).unwrap();
    assert!(one.uploaded > 4 << 20, "{}", one.uploaded);
    data[1 << 20] ^= 1;
    write_all(&vol, "large", &data);
    bench.snapshot(&vol, "two");
    let two = bench.back_up(&vol, "two", Some(&one)).unwrap();
    assert!(two.uploaded < 200_000, "{}", two.uploaded);
    // The same contents in another volume, and without a base.
    let other = bench.machine.volume(&bench.engine, "other");
    write_all(&other, "copy", &data);
    bench.snapshot(&other, "three");
    let three = bench.back_up(&other, "three", None).unwrap();
    assert!(three.uploaded < 50_000, "{}", three.uploaded);
    bench.vault().delete("one").unwrap();
    bench.vault().delete("two").unwrap();
    prune(&bench.vault()).unwrap();
    assert_eq!(bench.restored(&three)["/copy"].content, data);
    bench.vault().delete("three").unwrap();
    assert!(prune(&bench.vault()).unwrap().bytes > 4 << 20);
    assert_eq!(bench.memory.names("packs"), [""; 0]);
}

/// Prunes the vault, and returns the number of reads of packs that it took.
fn pruned_by(bench: &Bench) -> u32 {
    let prune = || {
        prune(&bench.vault()).unwrap();
    };
    bench.memory.reads(prune)
}

/// A deletion reads the lists of segments of the backups that remain, one each here, and segments
/// only if what they refer to is not noted.
#[test]
fn a_deletion_reads_no_manifest() {
    let bench = Bench::new(23);
    let vol = bench.machine.volume(&bench.engine, "vol");
    for n in 0..1500 {
        create(
            &vol,
            vol.root(),
            &format!("a file with a name of some length {n}"),
        );
    }
    let mut base: Option<Backup> = None;
    for name in ["a", "b", "c", "d"] {
        fill(&bench, &vol, name, 3 << 20);
        bench.snapshot(&vol, name);
        base = Some(bench.back_up(&vol, name, base.as_ref()).unwrap());
    }
    let delete = |name: &str| {
        bench.vault().delete(name).unwrap();
        pruned_by(&bench)
    };
    assert_eq!(delete("a"), 3);
    // Notes that are lost are made again.
    for name in bench.memory.names("/refs/") {
        bench.memory.0.lock().unwrap().objects.remove(&name);
    }
    assert!(delete("b") > 2, "a list and a segment of each of two");
    assert_eq!(bench.memory.names("/refs/").len(), 1);
    assert_eq!(pruned_by(&bench), 2);
    assert_eq!(delete("d"), 1);
    assert!(bench.memory.names("/packs/").len() < 4);
    verify(
        &bench.vault(),
        &bench.vault().backup("c").unwrap(),
        &mut quietly,
    )
    .unwrap();
    assert_eq!(delete("c"), 0);
    assert_eq!(bench.memory.names("v/"), ["v/vault"]);
}

/// A deletion that is interrupted at any request costs no other backup anything, and the next one
/// does what it left.
#[test]
fn an_interrupted_deletion_is_made_up_for() {
    let mut bench = Bench::new(29);
    let vol = bench.machine.volume(&bench.engine, "vol");
    let kept = fill(&bench, &vol, "kept", 2 << 20);
    bench.snapshot(&vol, "one");
    let one = bench.back_up(&vol, "one", None).unwrap();
    fill(&bench, &vol, "gone", 2 << 20);
    bench.snapshot(&vol, "two");
    let two = bench.back_up(&vol, "two", Some(&one)).unwrap();
    common::run(&vol, |cx| vol.remove(cx, vol.root(), b"gone")).unwrap();
    bench.snapshot(&vol, "three");
    let three = bench.back_up(&vol, "three", Some(&two)).unwrap();
    bench.vault().delete("two").unwrap();
    let before = bench.memory.0.lock().unwrap().objects.clone();
    // No repeated requests: each ends the deletion.
    let vault = || {
        let rng = Arc::clone(&bench.rng) as Arc<dyn Rng>;
        Vault::open(Arc::new(bench.memory.clone()), "v", &bench.key, rng).unwrap()
    };
    let mut after = None;
    for requests in 0.. {
        bench.memory.0.lock().unwrap().objects.clone_from(&before);
        let open = vault();
        bench.memory.fault(Fault::DeadAfter(requests));
        let ended = prune(&open);
        bench.memory.fault(Fault::None);
        for backup in [&one, &three] {
            verify(&vault(), backup, &mut quietly).unwrap();
        }
        prune(&vault()).unwrap();
        let packs = bench.memory.names("/packs/");
        assert_eq!(
            after.get_or_insert_with(|| packs.clone()),
            &packs,
            "{requests}"
        );
        assert_eq!(bench.memory.names("/refs/").len(), 1);
        assert_eq!(prune(&vault()).unwrap().packs, 0);
        if ended.is_ok() {
            assert!(requests > 10, "{requests}");
            break;
        }
    }
    assert!(after.unwrap().len() < before.keys().filter(|name| name.contains("packs")).count());
    assert_eq!(bench.restored(&three)["/kept"].content, kept);
    assert_eq!(bench.restored(&one)["/kept"].content, kept);
}

/// A backup that is interrupted at any write leaves the vault whole, and the next one uses what was
/// uploaded.
#[test]
fn an_interrupted_backup_leaves_a_whole_vault_and_is_made_up_for() {
    let mut bench = Bench::new(11);
    let vol = bench.machine.volume(&bench.engine, "vol");
    let data = fill(&bench, &vol, "large", 24 << 20);
    bench.snapshot(&vol, "s");
    let mut writes = 0;
    let made = loop {
        let vault = bench.vault();
        bench.memory.fault(Fault::DownAfter(writes));
        let ended = bench.back_up_to(&vault, &vol, "s", None);
        bench.memory.fault(Fault::None);
        let there = bench.vault().backups().unwrap().len();
        prune(&bench.vault()).unwrap();
        match ended {
            Ok(made) => break made,
            Err(BackupError::Bucket(BucketError::Unavailable(_))) => writes += 1,
            Err(other) => panic!("{other}"),
        }
        match there {
            0 => assert_eq!(bench.memory.names("packs"), [""; 0], "of no backup"),
            // It did not learn that it had succeeded.
            _ => drop(bench.restored(&bench.vault().backup("s").unwrap())),
        }
    };
    assert!(writes >= 4, "packs, an index and the backup itself");
    assert_eq!(bench.restored(&made)["/large"].content, data);
}

#[test]
fn full_flaky_and_lying_buckets() {
    let mut bench = Bench::new(13);
    let vol = bench.machine.volume(&bench.engine, "vol");
    change(&vol, &bench.rng, 60);
    let was = contents(dump(&vol));
    bench.snapshot(&vol, "s");
    bench.memory.fault(Fault::FullAfter(1));
    let full = bench.back_up(&vol, "s", None);
    assert!(matches!(
        full,
        Err(BackupError::Bucket(BucketError::Full(_)))
    ));
    bench.memory.fault(Fault::CutsAfter(0));
    let cut = bench.back_up(&vol, "s", None);
    assert!(
        matches!(cut, Err(BackupError::Damaged { .. })),
        "its end is read back"
    );
    bench.memory.fault(Fault::Flaky);
    let made = bench.back_up(&vol, "s", None).unwrap();
    bench.memory.fault(Fault::None);
    assert_eq!(contents(bench.restored(&made)), was);
    prune(&bench.vault()).unwrap();
    // Whatever a bucket returns that is not what it was given is seen.
    for name in [bench.memory.names("packs"), bench.memory.names("backups")].concat() {
        let mut saved = Vec::new();
        bench.memory.edit(&name, |object| {
            saved.clone_from(object);
            let at = object.len() / 3;
            object[at] ^= 1;
        });
        let vault = bench.vault();
        let found = vault
            .backup("s")
            .and_then(|backup| verify(&vault, &backup, &mut quietly));
        assert!(
            matches!(found, Err(BackupError::Damaged { .. })),
            "{name}: {found:?}"
        );
        bench.memory.edit(&name, |object| *object = saved);
    }
    verify(&bench.vault(), &made, &mut quietly).unwrap();
}

#[test]
fn a_restoration_goes_on_where_it_was_and_proves_what_it_brought() {
    let bench = Bench::new(17);
    let vol = bench.machine.volume(&bench.engine, "vol");
    let data = fill(&bench, &vol, "large", 24 << 20);
    bench.snapshot(&vol, "s");
    let made = bench.back_up(&vol, "s", None).unwrap();
    let to = bench.machine.destination(&bench.engine, "to");
    let (mut calls, mut fetched) = (0, 0);
    let mut first = |progress: Progress| {
        calls += 1;
        fetched = progress.contents;
        calls < 2
    };
    let stopped = restore(&bench.vault(), &made, &to, &mut first);
    assert!(matches!(stopped, Err(BackupError::Stopped)));
    assert!(fetched > 0 && fetched < 24 << 20);
    let mut began = None;
    let mut rest = |progress: Progress| {
        began.get_or_insert(progress.contents);
        true
    };
    restore(&bench.vault(), &made, &to, &mut rest).unwrap();
    assert!(began > Some(fetched), "{began:?} after {fetched}");
    assert_eq!(
        dump(&bench.engine.open_volume("to"))["/large"].content,
        data
    );
    // One that says something else about itself than its manifest holds.
    let mut other = made.clone();
    other.content = weir_volume::ContentHash::default();
    let to = bench.machine.destination(&bench.engine, "other");
    let different = restore(&bench.vault(), &other, &to, &mut quietly);
    assert!(matches!(different, Err(BackupError::Different)));
}

fn path(text: &str) -> Vec<Vec<u8>> {
    let names = text.split('/').filter(|name| !name.is_empty());
    names.map(|name| name.as_bytes().to_vec()).collect()
}

#[test]
fn single_files_are_restored_with_all_that_belongs_to_them() {
    let bench = Bench::new(23);
    let vol = bench.machine.volume(&bench.engine, "vol");
    change(&vol, &bench.rng, 400);
    let large = fill(&bench, &vol, "large", 9 << 20);
    let mut cx = weir_volume::EngineContext::new(common::fixed_time());
    let file = vol.drive_blocking(&mut cx, |cx| vol.lookup(cx, vol.root(), b"large"));
    let file = file.unwrap().ino;
    let stream = vol.drive_blocking(&mut cx, |cx| vol.make_stream(cx, file, b"side"));
    let stream = stream.unwrap().value.attr.ino;
    write(&vol, stream, 0, b"beside");
    bench.snapshot(&vol, "s");
    let made = bench.back_up(&vol, "s", None).unwrap();
    let before = dump(&vol);
    let regular = |(_, entry): &(&String, &common::Entry)| entry.attr.kind == FileKind::Regular;
    let mut files: Vec<&String> = before
        .iter()
        .filter(regular)
        .map(|(path, _)| path)
        .collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
    let mut wanted: Vec<&str> = files.iter().take(2).map(|path| path.as_str()).collect();
    assert!(wanted[0].matches('/').count() > 1, "{wanted:?}");
    wanted.push("/large");

    let to = bench.machine.destination(&bench.engine, "to");
    let paths: Vec<_> = wanted.iter().map(|text| path(text)).collect();
    restore_files(&bench.vault(), &made, &to, &paths, &mut quietly).unwrap();
    let view = to.open_snapshot("s").unwrap();
    let after = dump(&view);
    let leads = |path: &&String| {
        let within = format!("{path}/");
        let mut files = wanted.iter();
        !path.is_empty() && files.any(|file| *file == path.as_str() || file.starts_with(&within))
    };
    let expected: Vec<&String> = before.keys().filter(leads).collect();
    let found: Vec<&String> = after.keys().filter(|path| !path.is_empty()).collect();
    assert_eq!(found, expected);
    for file in &wanted {
        let (was, is) = (&before[*file], &after[*file]);
        assert_eq!(
            (is.attr.mode, is.attr.size),
            (was.attr.mode, was.attr.size),
            "{file}"
        );
        assert!(is.content == was.content, "{file}");
    }
    assert!(after["/large"].content == large);
    let streams = view
        .drive_blocking(&mut cx, |cx| view.streams(cx, file))
        .unwrap();
    assert_eq!(streams.len(), 1);
    let read = view.drive_blocking(&mut cx, |cx| view.read(cx, stream, 0, 10));
    assert_eq!(read.unwrap().to_vec(), b"beside");

    let to = bench.machine.destination(&bench.engine, "none");
    for missing in ["/none", "/large/none"] {
        let result = restore_files(&bench.vault(), &made, &to, &[path(missing)], &mut quietly);
        assert!(
            matches!(&result, Err(BackupError::NoFile(path)) if path == missing),
            "{result:?}"
        );
    }
}

#[test]
fn vaults_open_with_their_key_alone() {
    let bench = Bench::new(19);
    let rng = Arc::clone(&bench.rng) as Arc<dyn Rng>;
    let open = |name: &str, key: &VaultKey| {
        Vault::open(Arc::new(bench.memory.clone()), name, key, Arc::clone(&rng)).map(drop)
    };
    assert!(open("v", &bench.key).is_ok());
    let other = VaultKey::random(&*bench.rng);
    assert!(matches!(
        open("v", &other),
        Err(BackupError::Damaged { .. })
    ));
    assert!(matches!(open("w", &bench.key), Err(BackupError::NoVault)));
    for name in ["", ".", "../v", "a b", "a/b"] {
        let refused = open(name, &bench.key);
        assert!(
            matches!(refused, Err(BackupError::Bucket(BucketError::Refused(_)))),
            "{name}"
        );
    }
    let again = Vault::create(
        Arc::new(bench.memory.clone()),
        "v",
        &bench.key,
        Arc::clone(&rng),
    );
    assert!(matches!(again.map(drop), Err(BackupError::VaultExists)));
    bench.memory.edit("v/vault", |head| {
        let text = String::from_utf8(head.clone()).unwrap();
        *head = text.replace("\"format\":1", "\"format\":2").into_bytes();
    });
    assert!(matches!(open("v", &bench.key), Err(BackupError::Format(2))));
}
