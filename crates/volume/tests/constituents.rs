//! Changes of constituents: each is one record with its tokens, whatever is in memory, in a
//! checkpoint or only in the log when the machine stops. A failure prints its seed; `WEIR_SEED`
//! runs that one alone.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Machine, create, lookup, mkdir, names, run};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{
    ConstituentChange, CreateHow, Engine, FileKind, FsError, SetAttr, TokenChange, Volume,
    elsewhere, is_elsewhere,
};

fn change(
    vol: &Volume,
    changes: &[ConstituentChange<'_>],
    tokens: &[TokenChange<'_>],
) -> Result<(), FsError> {
    run(vol, |cx| vol.change_constituent(cx, changes, tokens)).map(drop)
}

fn tokens(vol: &Volume) -> BTreeMap<u64, Vec<u8>> {
    run(vol, |cx| vol.tokens(cx)).unwrap()
}

/// A volume as plain maps.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Model {
    /// Directories with their parents, and files with their links.
    dirs: BTreeMap<Ino, Ino>,
    files: BTreeMap<Ino, u32>,
    entries: BTreeMap<(Ino, Vec<u8>), (Ino, bool)>,
    tokens: BTreeMap<u64, Vec<u8>>,
}

impl Model {
    fn entries_of(&self, dir: Ino) -> impl Iterator<Item = (&[u8], (Ino, bool))> {
        let entries = self.entries.iter().filter(move |((of, _), _)| *of == dir);
        entries.map(|((_, name), entry)| (&**name, *entry))
    }

    fn apply(&mut self, change: &ConstituentChange<'_>) -> Result<(), FsError> {
        match change {
            ConstituentChange::Make {
                ino,
                kind: FileKind::Directory,
                parent,
                ..
            } => {
                self.dirs.insert(*ino, *parent);
            }
            ConstituentChange::Make { ino, .. } => {
                self.files.insert(*ino, 1);
            }
            ConstituentChange::RemoveDirectory { ino } => {
                if self.files.contains_key(ino) {
                    return Err(FsError::NotDir);
                }
                if !self.dirs.contains_key(ino) {
                    return Err(FsError::Stale);
                }
                if self.entries_of(*ino).next().is_some() {
                    return Err(FsError::NotEmpty);
                }
                self.dirs.remove(ino);
            }
            ConstituentChange::AddLink { ino } => match self.files.get_mut(ino) {
                Some(links) => *links += 1,
                None if self.dirs.contains_key(ino) => return Err(FsError::IsDir),
                None => return Err(FsError::Stale),
            },
            ConstituentChange::DropLink { ino } => match self.files.get_mut(ino) {
                Some(1) => drop(self.files.remove(ino)),
                Some(links) => *links -= 1,
                None if self.dirs.contains_key(ino) => return Err(FsError::IsDir),
                None => return Err(FsError::Stale),
            },
            ConstituentChange::SetParent { ino, parent } => {
                if self.files.contains_key(ino) {
                    return Err(FsError::NotDir);
                }
                *self.dirs.get_mut(ino).ok_or(FsError::Stale)? = *parent;
            }
            ConstituentChange::Insert {
                dir,
                name,
                ino,
                kind,
            } => {
                let entry = (*ino, *kind == FileKind::Directory);
                if self.files.contains_key(dir) {
                    return Err(FsError::NotDir);
                }
                if !self.dirs.contains_key(dir) {
                    return Err(FsError::Stale);
                }
                if self.entries.contains_key(&(*dir, name.to_vec())) {
                    return Err(FsError::Exists);
                }
                self.entries.insert((*dir, name.to_vec()), entry);
            }
            ConstituentChange::Remove { dir, name } => {
                if self.files.contains_key(dir) {
                    return Err(FsError::NotDir);
                }
                if !self.dirs.contains_key(dir) {
                    return Err(FsError::Stale);
                }
                let removed = self.entries.remove(&(*dir, name.to_vec()));
                removed.ok_or(FsError::NotFound)?;
            }
        }
        Ok(())
    }

    fn compare(&self, vol: &Volume) {
        assert_eq!(tokens(vol), self.tokens);
        for (ino, parent) in &self.dirs {
            let found = run(vol, |cx| vol.constituent_inode(cx, *ino)).unwrap();
            let subdirs = self.entries_of(*ino).filter(|(_, (_, dir))| *dir).count();
            let count = self.entries_of(*ino).count() as u64;
            assert_eq!((found.entries, found.parent), (count, *parent));
            assert_eq!(found.attr.nlink, 2 + subdirs as u32);
            assert_eq!(names(vol, *ino).len() as u64, count);
            for (name, (ino_of, dir)) in self.entries_of(*ino) {
                let (ino, kind) = run(vol, |cx| vol.entry(cx, *ino, name)).unwrap();
                assert_eq!((ino, kind == FileKind::Directory), (ino_of, dir));
            }
        }
        for (ino, links) in &self.files {
            let found = run(vol, |cx| vol.constituent_inode(cx, *ino)).unwrap();
            assert_eq!(found.attr.nlink, *links);
        }
    }
}

struct Story {
    machine: Machine,
    rng: SeededRng,
    model: Model,
    engine: Option<(Engine, Arc<Volume>)>,
    next: u64,
}

impl Story {
    fn new(seed: u64) -> Story {
        let mut machine = Machine::new(seed);
        machine.background = false;
        let engine = machine.format();
        let mut model = Model::default();
        model.dirs.insert(engine.1.root(), engine.1.root());
        Story {
            machine,
            rng: SeededRng::new(seed),
            model,
            engine: Some(engine),
            next: 0,
        }
    }

    fn vol(&self) -> Arc<Volume> {
        Arc::clone(&self.engine.as_ref().unwrap().1)
    }

    fn pick(&self, of: &[Ino]) -> Ino {
        of[self.rng.below(of.len() as u64) as usize]
    }

    fn any(&self) -> Ino {
        let files = self.model.files.keys();
        let all: Vec<Ino> = self.model.dirs.keys().chain(files).copied().collect();
        match self.rng.below(12) {
            0 => Ino(1_000_000),
            _ => self.pick(&all),
        }
    }

    fn foreign(&self) -> Ino {
        elsewhere(self.rng.below(3) as u8, Ino(16 + self.rng.below(40))).unwrap()
    }

    /// Carries out one to three random changes with tokens, here and in the model.
    fn step(&mut self) {
        let vol = self.vol();
        let kinds = [FileKind::Directory, FileKind::Regular];
        let all = ["a", "b", "c", "d"].map(str::as_bytes);
        let mut changes = Vec::new();
        let (dir, name) = (self.any(), all[self.rng.below(4) as usize]);
        let ino = self.any();
        let kind = kinds[self.rng.below(2) as usize];
        let foreign = self.foreign();
        let insert = ConstituentChange::Insert {
            dir,
            name,
            ino: foreign,
            kind,
        };
        match self.rng.below(8) {
            0 | 1 => changes.push(ConstituentChange::Make {
                ino: vol.new_inode_number(),
                kind,
                parent: foreign,
                attrs: SetAttr::default(),
            }),
            2 => changes.push(ConstituentChange::RemoveDirectory { ino }),
            3 => changes.push(ConstituentChange::AddLink { ino }),
            4 => changes.push(ConstituentChange::DropLink { ino }),
            5 => {
                // A replacement.
                changes.push(ConstituentChange::Remove { dir, name });
                changes.push(insert);
            }
            6 => changes.push(ConstituentChange::SetParent {
                ino,
                parent: foreign,
            }),
            _ => changes.push(insert),
        }
        // The root has its parent for ever.
        let root = vol.root();
        let of_root = |change: &ConstituentChange<'_>| {
            matches!(change, ConstituentChange::SetParent { ino, .. }
                | ConstituentChange::RemoveDirectory { ino } if *ino == root)
        };
        if changes.iter().any(of_root) {
            return;
        }
        self.next += 1;
        let value = self.next.to_le_bytes();
        let old = self.model.tokens.keys().next().copied();
        let mut with = vec![(self.next, Some(&value[..]))];
        with.extend(
            old.filter(|_| self.rng.below(2) == 0)
                .map(|old| (old, None)),
        );
        let mut model = self.model.clone();
        let expected = changes.iter().try_for_each(|change| model.apply(change));
        for (number, value) in &with {
            match value {
                Some(value) => drop(model.tokens.insert(*number, value.to_vec())),
                None => drop(model.tokens.remove(number)),
            }
        }
        assert_eq!(change(&vol, &changes, &with), expected, "{changes:?}");
        if expected.is_ok() {
            self.model = model;
        }
    }

    /// Makes a file with a name here.
    fn file(&mut self) {
        let vol = self.vol();
        let (dir, name) = (self.any(), format!("f{}", self.next));
        self.next += 1;
        let made = run(&vol, |cx| {
            let how = CreateHow::Guarded;
            vol.create(cx, dir, name.as_bytes(), how, &SetAttr::default())
        });
        if let Ok(made) = made {
            self.model.files.insert(made.value.ino, 1);
            let entry = (made.value.ino, false);
            self.model.entries.insert((dir, name.into_bytes()), entry);
        }
    }

    /// Stops the machine, with what is in the log, and starts it again.
    fn crash(&mut self) {
        let (engine, vol) = self.engine.take().unwrap();
        common::crash(engine, vol);
        self.engine = Some(self.machine.open());
    }
}

#[test]
fn changes_survive_crashes_and_checkpoints() {
    let first = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..25, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut story = Story::new(seed);
        println!("seed {seed}");
        for _ in 0..80 {
            match story.rng.below(12) {
                0 => story.crash(),
                1 => {
                    let engine = &story.engine.as_ref().unwrap().0;
                    engine.cp_now().unwrap();
                }
                2 | 3 => story.file(),
                _ => story.step(),
            }
            if story.rng.below(6) == 0 {
                story.model.compare(&story.vol());
            }
        }
        story.crash();
        story.model.compare(&story.vol());
    }
}

#[test]
fn a_change_and_its_tokens_are_one_record() {
    let machine = Machine::new(3);
    let (engine, vol) = machine.format();
    let root = vol.root();
    let (dir, file) = (mkdir(&vol, root, "d"), create(&vol, root, "f"));
    let other = elsewhere(1, Ino(20)).unwrap();
    let insert = |name| ConstituentChange::Insert {
        dir,
        name,
        ino: other,
        kind: FileKind::Directory,
    };
    let link = ConstituentChange::AddLink { ino: file };
    change(&vol, &[insert(b"x"), link.clone()], &[(7, Some(b"token"))]).unwrap();
    // The second change of a record is refused, and so nothing of it is done.
    let refused = change(&vol, &[link, insert(b"x")], &[(7, None), (8, Some(b"new"))]);
    assert_eq!(refused, Err(FsError::Exists));
    let too_long = [0; 1025];
    let refused = change(&vol, &[insert(b"y")], &[(8, Some(&too_long))]);
    assert_eq!(refused, Err(FsError::Invalid));
    common::crash(engine, vol);
    assert!(machine.check().clean(), "{:?}", machine.check());

    let (_engine, vol) = machine.open();
    assert_eq!(tokens(&vol), BTreeMap::from([(7, b"token".to_vec())]));
    let links = run(&vol, |cx| vol.getattr(cx, file)).unwrap().nlink;
    assert_eq!(links, 2);
    let entry = run(&vol, |cx| vol.entry(cx, dir, b"x")).unwrap();
    assert_eq!(entry, (other, FileKind::Directory));
    let attr = run(&vol, |cx| vol.getattr(cx, dir)).unwrap();
    assert_eq!(attr.nlink, 3);
}

#[test]
fn entries_of_other_constituents_are_refused_here() {
    let machine = Machine::new(4);
    let (_engine, vol) = machine.format();
    let root = vol.root();
    let dir = mkdir(&vol, root, "d");
    create(&vol, root, "f");
    let other = elsewhere(0, Ino(16)).unwrap();
    assert!(is_elsewhere(other) && !is_elsewhere(dir));
    assert_eq!(elsewhere(255, dir), None);
    assert_eq!(elsewhere(1, other), None);
    let insert = ConstituentChange::Insert {
        dir,
        name: b"x",
        ino: other,
        kind: FileKind::Regular,
    };
    change(&vol, &[insert], &[]).unwrap();
    let none = FsError::NotSupported;
    assert_eq!(lookup(&vol, dir, "x"), Err(none));
    let removed = run(&vol, |cx| vol.remove(cx, dir, b"x")).map(drop);
    assert_eq!(removed, Err(none));
    let renamed = run(&vol, |cx| vol.rename(cx, dir, b"x", root, b"y")).map(drop);
    assert_eq!(renamed, Err(none));
    let replaced = run(&vol, |cx| vol.rename(cx, root, b"f", dir, b"x")).map(drop);
    assert_eq!(replaced, Err(none));
    let not_empty = run(&vol, |cx| vol.rmdir(cx, root, b"d")).map(drop);
    assert_eq!(not_empty, Err(FsError::NotEmpty));
    assert_eq!(names(&vol, dir).len(), 1);
}

#[test]
fn a_directory_moves_by_several_records() {
    let machine = Machine::new(5);
    let (mut engine, mut vol) = machine.format();
    let (old, new) = (
        mkdir(&vol, vol.root(), "old"),
        mkdir(&vol, vol.root(), "new"),
    );
    let moved = mkdir(&vol, old, "d");
    let insert = ConstituentChange::Insert {
        dir: new,
        name: b"d",
        ino: moved,
        kind: FileKind::Directory,
    };
    let remove = ConstituentChange::Remove {
        dir: old,
        name: b"d",
    };
    let set_parent = ConstituentChange::SetParent {
        ino: moved,
        parent: new,
    };
    // The starts have a token, and so have two parts and the decision.
    let prepared = [0, 1, 2, 3].map(|number| (number, Some(&b"token"[..])));
    change(&vol, &[], &prepared).unwrap();
    for (step, done) in [(insert.clone(), 1), (remove, 2), (set_parent, 3)] {
        change(&vol, std::slice::from_ref(&step), &[(done, None)]).unwrap();
        engine.cp_now().unwrap();
        common::crash(engine, vol);
        assert!(machine.check().clean(), "{step:?}: {:?}", machine.check());
        (engine, vol) = machine.open();
    }

    // Where nothing is under way, the same state is a fault.
    let back = ConstituentChange::SetParent {
        ino: moved,
        parent: old,
    };
    change(&vol, &[back], &[]).unwrap();
    engine.cp_now().unwrap();
    common::crash(engine, vol);
    let what = format!("{:?}", machine.check());
    assert!(what.contains("its parent is"), "{what}");
}
