//! The engine against plain maps: random operations with checkpoints and restarts between. A
//! failure prints its seed; `WEIR_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Machine, names, read, run};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{
    Conversion, CreateHow, Engine, FileKind, FsError, SetAttr, SetHow, Stability, Volume,
};

#[derive(Clone, Debug)]
enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<String, u64>),
    Link(Vec<u8>),
}

/// Expected state: inodes by number. Their link counts follow from it.
struct Model {
    nodes: BTreeMap<u64, Node>,
    parent: BTreeMap<u64, u64>,
    xattrs: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    /// Links that were made from directories.
    of_directories: BTreeSet<u64>,
}

impl Model {
    fn dir(&mut self, ino: u64) -> &mut BTreeMap<String, u64> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Dir(entries)) => entries,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn links(&self, ino: u64) -> u32 {
        let names = self
            .nodes
            .values()
            .filter_map(|n| match n {
                Node::Dir(entries) => Some(entries.values().filter(|i| **i == ino).count()),
                _ => None,
            })
            .sum::<usize>() as u32;
        match self.nodes.get(&ino) {
            Some(Node::Dir(entries)) => {
                let subdirs = entries.values().filter(|i| self.is_dir(**i)).count() as u32;
                2 + subdirs
            }
            _ => names,
        }
    }

    fn is_dir(&self, ino: u64) -> bool {
        matches!(self.nodes.get(&ino), Some(Node::Dir(_)))
    }

    fn drop_name(&mut self, dir: u64, name: &str) {
        if let Some(ino) = self.dir(dir).remove(name)
            && (self.is_dir(ino) || self.links(ino) == 0)
        {
            self.nodes.remove(&ino);
            self.parent.remove(&ino);
            self.xattrs.retain(|(of, _), _| *of != ino);
        }
    }

    fn below(&self, mut dir: u64, ancestor: u64) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.parent.get(&dir) {
                Some(up) if *up != dir => dir = *up,
                _ => return false,
            }
        }
    }
}

struct Run {
    machine: Machine,
    rng: SeededRng,
    model: Model,
    live: Option<(Engine, Arc<Volume>)>,
}

impl Run {
    fn vol(&self) -> Arc<Volume> {
        Arc::clone(&self.live.as_ref().unwrap().1)
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn pick(&self, want: impl Fn(&Node) -> bool) -> Option<u64> {
        let all: Vec<u64> = self
            .model
            .nodes
            .iter()
            .filter(|(_, n)| want(n))
            .map(|(i, _)| *i)
            .collect();
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }

    fn name(&self) -> String {
        format!("n{}", self.below(12))
    }

    fn step(&mut self) {
        let vol = self.vol();
        let dir = self.pick(|n| matches!(n, Node::Dir(_))).unwrap();
        let name = self.name();
        let set = SetAttr::default();
        match self.below(100) {
            0..=14 => {
                let existing = self.model.dir(dir).get(&name).copied();
                let how = if self.below(2) == 0 {
                    CreateHow::Guarded
                } else {
                    CreateHow::Unchecked
                };
                let got = run(&vol, |cx| {
                    vol.create(cx, Ino(dir), name.as_bytes(), how, &set)
                })
                .map(|d| d.value.ino.0);
                match existing {
                    None => {
                        let ino = got.unwrap();
                        assert!(!self.model.nodes.contains_key(&ino), "number used again");
                        self.model.nodes.insert(ino, Node::File(Vec::new()));
                        self.model.dir(dir).insert(name, ino);
                    }
                    Some(ino) => match (&self.model.nodes[&ino], how) {
                        (Node::File(_), CreateHow::Unchecked) => assert_eq!(got, Ok(ino)),
                        (Node::Dir(_), CreateHow::Unchecked) => {
                            assert_eq!(got, Err(FsError::IsDir))
                        }
                        _ => assert_eq!(got, Err(FsError::Exists)),
                    },
                }
            }
            15..=18 => {
                let got = run(&vol, |cx| vol.mkdir(cx, Ino(dir), name.as_bytes(), &set))
                    .map(|d| d.value.ino.0);
                if self.model.dir(dir).contains_key(&name) {
                    assert_eq!(got, Err(FsError::Exists));
                } else {
                    let ino = got.unwrap();
                    self.model.nodes.insert(ino, Node::Dir(BTreeMap::new()));
                    self.model.parent.insert(ino, dir);
                    self.model.dir(dir).insert(name, ino);
                }
            }
            19..=20 => self.convert(&vol, dir, &name),
            21..=23 => {
                let target = vec![b'x'; 1 + self.below(3000) as usize];
                let got = run(&vol, |cx| {
                    vol.symlink(cx, Ino(dir), name.as_bytes(), &target, &set)
                })
                .map(|d| d.value.ino.0);
                if self.model.dir(dir).contains_key(&name) {
                    assert_eq!(got, Err(FsError::Exists));
                } else {
                    let ino = got.unwrap();
                    self.model.nodes.insert(ino, Node::Link(target));
                    self.model.dir(dir).insert(name, ino);
                }
            }
            24..=29 => {
                let Some(file) = self.pick(|n| !matches!(n, Node::Dir(_))) else {
                    return;
                };
                let got = run(&vol, |cx| {
                    vol.link(cx, Ino(file), Ino(dir), name.as_bytes())
                });
                if let std::collections::btree_map::Entry::Vacant(e) =
                    self.model.dir(dir).entry(name)
                {
                    got.unwrap();
                    e.insert(file);
                } else {
                    assert_eq!(got.map(|_| ()), Err(FsError::Exists));
                }
            }
            30..=39 => {
                let got = run(&vol, |cx| vol.remove(cx, Ino(dir), name.as_bytes())).map(|_| ());
                match self.model.dir(dir).get(&name).copied() {
                    None => assert_eq!(got, Err(FsError::NotFound)),
                    Some(ino) if self.model.is_dir(ino) => assert_eq!(got, Err(FsError::IsDir)),
                    Some(_) => {
                        got.unwrap();
                        self.model.drop_name(dir, &name);
                    }
                }
            }
            40..=43 => {
                let got = run(&vol, |cx| vol.rmdir(cx, Ino(dir), name.as_bytes())).map(|_| ());
                let ino = self.model.dir(dir).get(&name).copied();
                match ino.map(|i| self.model.nodes[&i].clone()) {
                    None => assert_eq!(got, Err(FsError::NotFound)),
                    Some(Node::Dir(e)) if e.is_empty() => {
                        got.unwrap();
                        self.model.drop_name(dir, &name);
                    }
                    Some(Node::Dir(_)) => assert_eq!(got, Err(FsError::NotEmpty)),
                    Some(_) => assert_eq!(got, Err(FsError::NotDir)),
                }
            }
            44..=53 => self.rename(&vol, dir, &name),
            54..=70 => self.write(&vol),
            71..=73 => self.punch(&vol),
            74..=75 => self.set_xattr(&vol),
            76..=80 => {
                let Some(file) = self.pick(|n| matches!(n, Node::File(_))) else {
                    return;
                };
                let size = self.below(60_000);
                let set = SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                };
                run(&vol, |cx| vol.setattr(cx, Ino(file), &set, None)).unwrap();
                if let Some(Node::File(data)) = self.model.nodes.get_mut(&file) {
                    data.resize(size as usize, 0);
                }
            }
            81..=84 => {
                let Some(file) = self.pick(|n| matches!(n, Node::File(_))) else {
                    return;
                };
                run(&vol, |cx| vol.commit(cx, Ino(file), 0, 0)).unwrap();
            }
            85..=94 => {
                let Some(file) = self.pick(|n| matches!(n, Node::File(_))) else {
                    return;
                };
                let Node::File(data) = &self.model.nodes[&file] else {
                    return;
                };
                let off = self.below(data.len() as u64 + 100) as usize;
                let len = self.below(20_000) as usize;
                let expect = data
                    .get(off..(off + len).min(data.len()))
                    .unwrap_or_default();
                assert!(read(&vol, Ino(file), off as u64, len) == expect);
            }
            95..=97 => self.live.as_ref().unwrap().0.cp_now().unwrap(),
            _ => self.restart(),
        }
    }

    fn rename(&mut self, vol: &Volume, dir: u64, name: &str) {
        let to_dir = self.pick(|n| matches!(n, Node::Dir(_))).unwrap();
        let to = self.name();
        let got = run(vol, |cx| {
            vol.rename(cx, Ino(dir), name.as_bytes(), Ino(to_dir), to.as_bytes())
        })
        .map(|_| ());
        let Some(ino) = self.model.dir(dir).get(name).copied() else {
            assert_eq!(got, Err(FsError::NotFound));
            return;
        };
        let is_dir = self.model.is_dir(ino);
        if is_dir && dir != to_dir && self.model.below(to_dir, ino) {
            assert_eq!(got, Err(FsError::Invalid));
            return;
        }
        if let Some(over) = self.model.dir(to_dir).get(&to).copied() {
            if over == ino {
                got.unwrap();
                return;
            }
            match (is_dir, &self.model.nodes[&over]) {
                (true, Node::Dir(e)) if !e.is_empty() => {
                    assert_eq!(got, Err(FsError::NotEmpty));
                    return;
                }
                (true, Node::Dir(_)) => {}
                (true, _) => {
                    assert_eq!(got, Err(FsError::NotDir));
                    return;
                }
                (false, Node::Dir(_)) => {
                    assert_eq!(got, Err(FsError::IsDir));
                    return;
                }
                (false, _) => {}
            }
            self.model.drop_name(to_dir, &to);
        }
        got.unwrap();
        self.model.dir(dir).remove(name);
        self.model.dir(to_dir).insert(to, ino);
        if is_dir {
            self.model.parent.insert(ino, to_dir);
        }
    }

    fn convert(&mut self, vol: &Volume, dir: u64, name: &str) {
        let Some(ino) = self.model.dir(dir).get(name).copied() else {
            return;
        };
        // The first piece of a target may equal that of the one before.
        let target = vec![b'x'; 1 + self.below(4095) as usize];
        let to = match self.below(3) {
            0 => Conversion::Plain(None),
            _ => Conversion::Link(&target),
        };
        let got = run(vol, |cx| {
            vol.convert(cx, (Ino(dir), name.as_bytes()), Ino(ino), to)
        });
        let got = got.map(|done| done.value.after.nlink);
        let links = self.model.links(ino);
        let link = matches!(to, Conversion::Link(_));
        let of_directory = match &self.model.nodes[&ino] {
            Node::File(data) if link && data.is_empty() && links == 1 => false,
            Node::Dir(entries) if link && entries.is_empty() => true,
            Node::Dir(_) if link => return assert_eq!(got, Err(FsError::NotEmpty)),
            Node::Link(_) if link || links == 1 => self.model.of_directories.contains(&ino),
            _ => return assert_eq!(got, Err(FsError::Invalid)),
        };
        self.model.parent.remove(&ino);
        self.model.of_directories.remove(&ino);
        let node = match (link, of_directory) {
            (true, _) => Node::Link(target),
            (false, true) => Node::Dir(BTreeMap::new()),
            (false, false) => Node::File(Vec::new()),
        };
        if link && of_directory {
            self.model.of_directories.insert(ino);
        } else if of_directory {
            self.model.parent.insert(ino, dir);
        }
        self.model.nodes.insert(ino, node);
        assert_eq!(got, Ok(self.model.links(ino)));
    }

    fn write(&mut self, vol: &Volume) {
        let Some(file) = self.pick(|n| matches!(n, Node::File(_))) else {
            return;
        };
        let off = match self.below(3) {
            0 => self.below(16) * 4096,
            _ => self.below(200_000),
        };
        let len = match self.below(4) {
            0 => 4096 * (1 + self.below(8)),
            1 => self.below(100),
            _ => self.below(30_000),
        } as usize;
        let mut data = vec![0u8; len];
        self.rng.fill(&mut data);
        let how = match self.below(3) {
            0 => Stability::FileSync,
            1 => Stability::DataSync,
            _ => Stability::Unstable,
        };
        let done = run(vol, |cx| vol.write(cx, Ino(file), off, &data, how)).unwrap();
        assert!(done.value.granted >= how);
        if let Some(Node::File(have)) = self.model.nodes.get_mut(&file) {
            let end = off as usize + len;
            if len > 0 && have.len() < end {
                have.resize(end, 0);
            }
            if len > 0 {
                have[off as usize..end].copy_from_slice(&data);
            }
            assert_eq!(done.value.change.after.size, have.len() as u64);
        }
    }

    fn punch(&mut self, vol: &Volume) {
        let Some(file) = self.pick(|n| matches!(n, Node::File(_))) else {
            return;
        };
        let (off, len) = match self.below(3) {
            0 => (self.below(20) * 4096, 4096 * (1 + self.below(8))),
            1 => (self.below(200_000), 1 + self.below(200_000)),
            _ => (self.below(60_000), 1 + self.below(5000)),
        };
        run(vol, |cx| vol.punch(cx, Ino(file), off, len)).unwrap();
        if let Some(Node::File(have)) = self.model.nodes.get_mut(&file) {
            let end = (off + len).min(have.len() as u64);
            if off < end {
                have[off as usize..end as usize].fill(0);
            }
        }
    }

    fn set_xattr(&mut self, vol: &Volume) {
        let Some(ino) = self.pick(|_| true) else {
            return;
        };
        // Some differ only in case.
        let name = ["user.one", "USER.one", "user.two", "x"][self.below(4) as usize];
        let key = (ino, name.as_bytes().to_vec());
        let value = match self.below(3) {
            0 => None,
            1 => Some(vec![7; self.below(50) as usize]),
            _ => {
                let mut value = vec![0; self.below(9000) as usize];
                self.rng.fill(&mut value);
                Some(value)
            }
        };
        let how = [SetHow::Either, SetHow::Create, SetHow::Replace][self.below(3) as usize];
        let there = self.model.xattrs.contains_key(&key);
        let got = run(vol, |cx| {
            vol.set_xattr(cx, Ino(ino), name.as_bytes(), value.as_deref(), how)
        });
        let want = match (there, &value, how) {
            (true, Some(_), SetHow::Create) => Err(FsError::Exists),
            (false, Some(_), SetHow::Replace) | (false, None, _) => Err(FsError::NotFound),
            _ => Ok(()),
        };
        assert_eq!(got.map(|_| ()), want);
        if want.is_ok() {
            match value {
                Some(value) => self.model.xattrs.insert(key, value),
                None => self.model.xattrs.remove(&key),
            };
        }
    }

    /// Everything is committed first, so that all of it must be there again.
    fn restart(&mut self) {
        let (engine, vol) = self.live.take().unwrap();
        for (ino, node) in &self.model.nodes {
            if let Node::File(_) = node {
                let done = run(&vol, |cx| vol.commit(cx, Ino(*ino), 0, 0)).unwrap();
                engine.wait_durable(done.lsn).unwrap();
            }
        }
        let last = run(&vol, |cx| {
            let set = SetAttr {
                mode: Some(0o700),
                ..SetAttr::default()
            };
            vol.setattr(cx, vol.root(), &set, None)
        })
        .unwrap();
        engine.wait_durable(last.lsn).unwrap();
        if self.below(3) == 0 {
            engine.shutdown().unwrap();
        }
        drop(vol);
        drop(engine);
        let report = self.machine.check();
        assert!(report.clean(), "{report}");
        self.live = Some(self.machine.open());
        self.verify();
    }

    fn verify(&self) {
        let vol = self.vol();
        for (ino, node) in &self.model.nodes {
            let ino = Ino(*ino);
            let attr = run(&vol, |cx| vol.getattr(cx, ino)).unwrap();
            let all = (ino.0, Vec::new())..(ino.0 + 1, Vec::new());
            let mut attrs = run(&vol, |cx| vol.xattrs(cx, ino)).unwrap();
            attrs.sort();
            let want = self.model.xattrs.range(all);
            assert!(want.clone().map(|((_, name), _)| name).eq(&attrs));
            for ((_, name), value) in want {
                assert_eq!(run(&vol, |cx| vol.xattr(cx, ino, name)).unwrap(), *value);
            }
            assert_eq!(attr.nlink, self.model.links(ino.0), "links of {ino}");
            match node {
                Node::File(data) => {
                    assert_eq!(attr.kind, FileKind::Regular);
                    assert_eq!(attr.size, data.len() as u64);
                    assert!(
                        read(&vol, ino, 0, data.len() + 10) == *data,
                        "data of {ino}"
                    );
                }
                Node::Link(target) => {
                    assert_eq!(run(&vol, |cx| vol.readlink(cx, ino)).unwrap().0, *target);
                }
                Node::Dir(entries) => {
                    let mut got: Vec<String> =
                        names(&vol, ino).into_iter().map(|(_, n)| n).collect();
                    got.sort();
                    assert_eq!(got, entries.keys().cloned().collect::<Vec<_>>());
                    for (name, child) in entries {
                        let found = run(&vol, |cx| vol.lookup(cx, ino, name.as_bytes())).unwrap();
                        assert_eq!(found.ino.0, *child);
                    }
                }
            }
        }
    }
}

fn play(seed: u64) {
    let mut machine = Machine::new(seed);
    machine.background = seed.is_multiple_of(2);
    machine.inodes = if seed % 4 == 0 { 1 } else { 1000 };
    machine.frames = if seed.is_multiple_of(3) { 900 } else { 8192 };
    let live = machine.format();
    let root = live.1.root().0;
    let mut run = Run {
        rng: SeededRng::new(seed ^ 0x5EED),
        machine,
        model: Model {
            nodes: BTreeMap::from([(root, Node::Dir(BTreeMap::new()))]),
            parent: BTreeMap::from([(root, root)]),
            xattrs: BTreeMap::new(),
            of_directories: BTreeSet::new(),
        },
        live: Some(live),
    };
    for _ in 0..600 {
        run.step();
    }
    run.verify();
    run.restart();
}

#[test]
fn engine_and_model_agree() {
    if let Some(seed) = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()) {
        return play(seed);
    }
    for seed in 0..24 {
        let result = std::panic::catch_unwind(|| play(seed));
        if let Err(panic) = result {
            eprintln!("failed with WEIR_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
