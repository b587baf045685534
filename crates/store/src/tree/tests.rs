//! Trees against a plain map, with many roots kept alive at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use weir_base::{BlockAddr, Generation, Rng, SeededRng, VolumeId};

use super::*;
use crate::frame::{Class, FrameMut, FramePool};
use crate::node::{MAX_LEVEL, NODE_CAPACITY};

type Model = BTreeMap<Key, Vec<u8>>;
type Difference = (Key, Option<Vec<u8>>, Option<Vec<u8>>);

/// Nodes in a map, in place of a device and a cache. Blocks stay until the test removes them.
struct Nodes {
    pool: Arc<FramePool>,
    nodes: RefCell<HashMap<u64, Frame>>,
    reads: RefCell<usize>,
    next: u64,
    generation: Generation,
    freed: HashSet<u64>,
}

impl Nodes {
    fn new() -> Nodes {
        Nodes {
            pool: FramePool::new(100_000).unwrap(),
            nodes: RefCell::default(),
            reads: RefCell::new(0),
            next: 1,
            generation: Generation(1),
            freed: HashSet::new(),
        }
    }

    fn apply(&mut self, root: &TreeRoot, edits: Vec<Edit>) -> TreeRoot {
        // The sink is written while the source is read, so they share the cell.
        struct Source<'a>(&'a RefCell<HashMap<u64, Frame>>);
        impl NodeSource for Source<'_> {
            fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
                let nodes = self.0.borrow();
                let frame = nodes.get(&ptr.addr.0).expect("a freed node was read");
                assert!(ptr.verifies(frame));
                Ok(frame.clone())
            }
        }
        struct Sink<'a> {
            nodes: &'a RefCell<HashMap<u64, Frame>>,
            pool: &'a FramePool,
            next: &'a mut u64,
            freed: &'a mut HashSet<u64>,
            generation: Generation,
        }
        impl NodeSink for Sink<'_> {
            fn generation(&self) -> Generation {
                self.generation
            }
            fn frame(&mut self) -> Result<FrameMut, StoreError> {
                self.pool.alloc(Class::Cp).ok_or(StoreError::NoMemory)
            }
            fn write_node(&mut self, node: FrameMut) -> Result<BlockPtr, StoreError> {
                let ptr = BlockPtr::to_page(BlockAddr(*self.next), self.generation, &node);
                self.nodes.borrow_mut().insert(*self.next, node.freeze());
                *self.next += 1;
                Ok(ptr)
            }
            fn freed(&mut self, ptr: BlockPtr) {
                assert!(self.freed.insert(ptr.addr.0), "freed twice");
            }
        }
        self.generation = self.generation.next();
        let mut sink = Sink {
            nodes: &self.nodes,
            pool: &self.pool,
            next: &mut self.next,
            freed: &mut self.freed,
            generation: self.generation,
        };
        let src = Source(&self.nodes);
        apply(&mut sink, &src, VolumeId(3), root, edits.into_iter()).unwrap()
    }

    /// Checks the tree's structure and its contents against the model. Returns its blocks.
    fn check(&self, root: &TreeRoot, model: &Model) -> HashSet<u64> {
        struct Check<'a> {
            model: std::collections::btree_map::Iter<'a, Key, Vec<u8>>,
            seen: HashSet<u64>,
        }
        impl Visitor for Check<'_> {
            fn node(&mut self, ptr: &BlockPtr, _: u8) -> bool {
                assert!(self.seen.insert(ptr.addr.0), "node reached twice");
                true
            }
            fn record(&mut self, key: Key, value: &[u8]) {
                let (k, v) = self.model.next().expect("a record too many");
                assert_eq!((*k, v.as_slice()), (key, value));
            }
            fn fault(&mut self, ptr: &BlockPtr, _: Key, error: &StoreError) {
                panic!("{ptr:?}: {error}");
            }
        }
        let mut check = Check {
            model: model.iter(),
            seen: HashSet::new(),
        };
        walk(self, root, &mut check);
        assert!(check.model.next().is_none(), "a record too few");
        // Only the leftmost node of a level may be small, the root excepted.
        let mut seen_level = [false; MAX_LEVEL as usize + 1];
        if let Some((ptr, level)) = root.top() {
            self.check_fill(&ptr, level, true, &mut seen_level);
        }
        check.seen
    }

    fn check_fill(&self, ptr: &BlockPtr, level: u8, top: bool, seen: &mut [bool]) {
        let frame = self.node(ptr).unwrap();
        let node = view(ptr, level, &frame).unwrap();
        let values = (0..node.count()).map(|i| {
            if level == 0 {
                node.value(i).unwrap().len()
            } else {
                0
            }
        });
        let size: usize = values.map(|len| crate::node::entry_size(level, len)).sum();
        assert!(
            size >= NODE_CAPACITY / 3 || !seen[usize::from(level)],
            "small node"
        );
        assert!(!top || level == 0 || node.count() > 1, "top with one child");
        seen[usize::from(level)] = true;
        if level > 0 {
            for i in 0..node.count() {
                self.check_fill(&node.child(i).unwrap(), level - 1, false, seen);
            }
        }
    }
}

impl NodeSource for Nodes {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        *self.reads.borrow_mut() += 1;
        let nodes = self.nodes.borrow();
        let frame = nodes.get(&ptr.addr.0).expect("a freed node was read");
        assert!(ptr.verifies(frame));
        Ok(frame.clone())
    }
}

fn below(rng: &SeededRng, n: u64) -> u64 {
    rng.next_u64() % n
}

fn value(rng: &SeededRng, long: bool) -> Vec<u8> {
    let len = match below(rng, 10) {
        0 => 0,
        1 if long => below(rng, 1025),
        2 if long => 1024,
        _ => below(rng, 120),
    };
    let byte = rng.next_u64() as u8;
    vec![byte; len as usize]
}

/// Returns a batch of one of several shapes: scattered, dense, growing, clearing.
fn batch(rng: &SeededRng, model: &Model) -> Vec<Edit> {
    let size = [1, 3, 20, 200, 3000][below(rng, 5) as usize];
    let shape = below(rng, 6);
    let base = below(rng, 40);
    let mut edits = BTreeMap::new();
    for i in 0..size {
        let key = match shape {
            0 => Key::new(below(rng, 40), below(rng, 3) as u8, below(rng, 500)),
            1 => Key::new(base, 2, below(rng, 2000)),
            2 => Key::new(100 + model.len() as u64, 0, i),
            _ => match model
                .range(Key::new(below(rng, 120), 0, below(rng, 100))..)
                .next()
            {
                Some((key, _)) => *key,
                None => Key::new(below(rng, 40), 1, 0),
            },
        };
        let del = shape >= 4 || below(rng, 4) == 0;
        let edit = if del {
            Edit::Del(key)
        } else {
            Edit::Put(key, value(rng, base.is_multiple_of(3)))
        };
        edits.insert(key, edit);
    }
    if shape == 5 && below(rng, 3) == 0 {
        // A whole range is deleted, as when a large file is removed.
        let (a, b) = (below(rng, 200), below(rng, 200));
        let range = Key::new(a.min(b), 0, 0)..=Key::new(a.max(b), 0, 0);
        edits.extend(model.range(range).map(|(key, _)| (*key, Edit::Del(*key))));
    }
    edits.into_values().collect()
}

fn apply_to(model: &Model, edits: &[Edit]) -> Model {
    let mut model = model.clone();
    for edit in edits {
        match edit {
            Edit::Put(key, value) => model.insert(*key, value.clone()),
            Edit::Del(key) => model.remove(key),
        };
    }
    model
}

fn probe(nodes: &Nodes, root: &TreeRoot, model: &Model, rng: &SeededRng) {
    for _ in 0..60 {
        let key = Key::new(below(rng, 130), below(rng, 3) as u8, below(rng, 500));
        let got = get(nodes, root, &key).unwrap();
        assert_eq!(
            got.as_deref(),
            model.get(&key).map(Vec::as_slice),
            "get {key}"
        );
        let got = last_le(nodes, root, &key).unwrap();
        let want = model.range(..=key).next_back();
        assert_eq!(
            got.as_ref().map(|(k, v)| (*k, &v[..])),
            want.map(|(k, v)| (*k, v.as_slice())),
            "last_le {key}"
        );
        let to = Key::new(below(rng, 130), below(rng, 3) as u8, below(rng, 500));
        let limit = below(rng, 300) as usize + 1;
        let mut got = Vec::new();
        scan(nodes, root, key, to, &mut |k, v| {
            got.push((k, v.to_vec()));
            if got.len() == limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
        let range = (Bound::Included(key), Bound::Included(to.max(key)));
        let want: Vec<_> = model
            .range(range)
            .filter(|(k, _)| **k <= to)
            .take(limit)
            .map(|(k, v)| (*k, v.clone()))
            .collect();
        assert_eq!(got, want, "scan {key} to {to}");
    }
}

fn differences(nodes: &Nodes, old: &TreeRoot, new: &TreeRoot) -> Vec<Difference> {
    let mut out = Vec::new();
    diff(nodes, old, new, &mut |key, a, b| {
        out.push((key, a.map(<[u8]>::to_vec), b.map(<[u8]>::to_vec)));
        Ok(())
    })
    .unwrap();
    out
}

fn model_differences(old: &Model, new: &Model) -> Vec<Difference> {
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .map(|key| (*key, old.get(key).cloned(), new.get(key).cloned()))
        .filter(|(_, a, b)| a != b)
        .collect()
}

fn run(seed: u64) {
    println!("seed {seed}");
    let rng = SeededRng::new(seed);
    let mut nodes = Nodes::new();
    let mut roots: Vec<(TreeRoot, Model)> = vec![(TreeRoot::EMPTY, Model::new())];
    for round in 0..40 {
        // Mostly continue from the newest root, sometimes from a kept one: a clone.
        let from = if below(&rng, 6) == 0 {
            below(&rng, roots.len() as u64) as usize
        } else {
            roots.len() - 1
        };
        let (root, model) = roots[from].clone();
        let edits = batch(&rng, &model);
        let expected = apply_to(&model, &edits);
        nodes.freed.clear();
        let before = nodes.next;
        let new = nodes.apply(&root, edits);
        let reached = nodes.check(&new, &expected);
        assert!(
            reached.is_disjoint(&nodes.freed),
            "a freed node is in the tree"
        );
        // Every block of the old tree and of this batch is in the new tree or freed.
        let old = nodes.check(&root, &model);
        for addr in old.into_iter().chain(before..nodes.next) {
            assert!(
                reached.contains(&addr) || nodes.freed.contains(&addr),
                "leaked {addr}"
            );
        }
        probe(&nodes, &new, &expected, &rng);
        let other = &roots[below(&rng, roots.len() as u64) as usize];
        assert_eq!(
            differences(&nodes, &other.0, &new),
            model_differences(&other.1, &expected),
            "round {round}"
        );
        roots.push((new, expected));
        if roots.len() > 8 {
            // Drop a root, and with it the nodes that no other root reaches.
            roots.remove(below(&rng, 8) as usize);
            let keep: HashSet<u64> = roots.iter().flat_map(|(r, m)| nodes.check(r, m)).collect();
            nodes
                .nodes
                .borrow_mut()
                .retain(|addr, _| keep.contains(addr));
        }
    }
    for (root, model) in &roots {
        nodes.check(root, model);
    }
}

#[test]
fn random_batches_match_a_map() {
    for seed in 0..12 {
        run(seed);
    }
}

#[test]
fn a_large_batch_costs_its_paths_and_a_small_one_little() {
    let mut nodes = Nodes::new();
    let all: Vec<Edit> = (0..200_000u64)
        .map(|i| Edit::Put(Key::new(i, 0, 0), vec![i as u8; 60]))
        .collect();
    let root = nodes.apply(&TreeRoot::EMPTY, all);
    let built = nodes.next;
    // 81 bytes a record, nodes 7/8 full: about 44 records a leaf.
    assert!((4000..5200).contains(&built), "{built} nodes");
    assert_eq!(root.height, 3);
    let one = vec![Edit::Put(Key::new(77_777, 0, 0), vec![1; 60])];
    let changed = nodes.apply(&root, one);
    assert_eq!(nodes.next - built, 3);
    *nodes.reads.borrow_mut() = 0;
    assert_eq!(differences(&nodes, &root, &changed).len(), 1);
    assert!(*nodes.reads.borrow() < 30, "{} reads", nodes.reads.borrow());
    let gone = (0..200_000u64)
        .map(|i| Edit::Del(Key::new(i, 0, 0)))
        .collect();
    assert_eq!(nodes.apply(&changed, gone), TreeRoot::EMPTY);
}

#[test]
fn edits_out_of_order_and_long_values_are_refused() {
    let mut nodes = Nodes::new();
    let refused = |nodes: &mut Nodes, edits: Vec<Edit>| {
        let pool = nodes.pool.clone();
        struct Nowhere(Arc<FramePool>);
        impl NodeSink for Nowhere {
            fn generation(&self) -> Generation {
                Generation(1)
            }
            fn frame(&mut self) -> Result<FrameMut, StoreError> {
                self.0.alloc(Class::Cp).ok_or(StoreError::NoMemory)
            }
            fn write_node(&mut self, node: FrameMut) -> Result<BlockPtr, StoreError> {
                Ok(BlockPtr::to_page(BlockAddr(1), Generation(1), &node))
            }
            fn freed(&mut self, _: BlockPtr) {}
        }
        let edits = edits.into_iter();
        apply(
            &mut Nowhere(pool),
            &*nodes,
            VolumeId(1),
            &TreeRoot::EMPTY,
            edits,
        )
        .is_err()
    };
    let key = |n| Key::new(n, 0, 0);
    assert!(refused(
        &mut nodes,
        vec![Edit::Del(key(2)), Edit::Del(key(1))]
    ));
    assert!(refused(
        &mut nodes,
        vec![Edit::Del(key(2)), Edit::Del(key(2))]
    ));
    assert!(refused(&mut nodes, vec![Edit::Put(key(2), vec![0; 1025])]));
    assert!(!refused(&mut nodes, vec![Edit::Put(key(2), vec![0; 1024])]));
}

#[test]
fn a_missing_leaf_brings_its_successors_along() {
    struct OnlyInner<'a>(&'a Nodes);
    impl NodeSource for OnlyInner<'_> {
        fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
            let frame = self.0.node(ptr)?;
            if NodeView::new(ptr, &frame)?.level() == 0 {
                return Err(Stop::fetch(*ptr));
            }
            Ok(frame)
        }
    }
    let mut nodes = Nodes::new();
    let all = (0..5000u64)
        .map(|i| Edit::Put(Key::new(i, 0, 0), vec![0; 60]))
        .collect();
    let root = nodes.apply(&TreeRoot::EMPTY, all);
    let asked = |from, to| {
        let each = &mut |_: Key, _: &[u8]| ControlFlow::Continue(());
        match scan(
            &OnlyInner(&nodes),
            &root,
            Key::new(from, 0, 0),
            Key::new(to, 0, 0),
            each,
        ) {
            Err(Stop::Fetch(ptrs)) => ptrs.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked(1000, 4000), SCAN_AHEAD);
    assert_eq!(asked(1000, 1000), 1);
    match get(&OnlyInner(&nodes), &root, &Key::new(7, 0, 0)) {
        Err(Stop::Fetch(ptrs)) => assert_eq!(ptrs.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_walk_in_slices_sees_everything_once() {
    struct Slice {
        seen: Vec<Key>,
        nodes: usize,
        left: usize,
    }
    impl Visitor for Slice {
        fn node(&mut self, _: &BlockPtr, _: u8) -> bool {
            self.nodes += 1;
            true
        }
        fn record(&mut self, key: Key, _: &[u8]) {
            self.seen.push(key);
            self.left -= 1;
        }
        fn fault(&mut self, _: &BlockPtr, _: Key, error: &StoreError) {
            panic!("{error}");
        }
        fn enough(&self) -> bool {
            self.left == 0
        }
    }
    let mut nodes = Nodes::new();
    let key = |i: u64| Key::new(i * 3, 0, 0);
    let all = (0..20_000)
        .map(|i| Edit::Put(key(i), vec![0; 60]))
        .collect();
    let root = nodes.apply(&TreeRoot::EMPTY, all);
    let (mut from, mut found, mut slices) = (Key::MIN, Vec::new(), 0);
    loop {
        let mut slice = Slice {
            seen: Vec::new(),
            nodes: 0,
            left: 700,
        };
        walk_from(&nodes, &root, from, &mut slice);
        assert!(slice.nodes < 25, "{} nodes", slice.nodes);
        slices += 1;
        let Some(last) = slice.seen.last() else { break };
        from = Key {
            ino: last.ino + 1,
            ..*last
        };
        found.extend(slice.seen);
    }
    assert_eq!(slices, 30);
    assert!(found.into_iter().eq((0..20_000).map(key)));
}

#[test]
fn damage_is_reported_and_stepped_over() {
    struct Report(Vec<Key>, usize);
    impl Visitor for Report {
        fn node(&mut self, _: &BlockPtr, _: u8) -> bool {
            true
        }
        fn record(&mut self, _: Key, _: &[u8]) {
            self.1 += 1;
        }
        fn fault(&mut self, _: &BlockPtr, first: Key, _: &StoreError) {
            self.0.push(first);
        }
    }
    struct DamagedNodes<'a>(&'a Nodes, BlockPtr);
    impl NodeSource for DamagedNodes<'_> {
        fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
            if *ptr == self.1 {
                return Err(StoreError::Corrupt {
                    addr: ptr.addr,
                    what: "checksum",
                }
                .into());
            }
            self.0.node(ptr)
        }
    }
    let mut nodes = Nodes::new();
    let all = (0..2000u64)
        .map(|i| Edit::Put(Key::new(i, 0, 0), vec![0; 60]))
        .collect();
    let root = nodes.apply(&TreeRoot::EMPTY, all);
    let top = nodes.node(&root.ptr.unwrap()).unwrap();
    let top = view(&root.ptr.unwrap(), 1, &top).unwrap();
    let (bad, first, after) = (top.child(5).unwrap(), top.key(5), top.key(6));
    let mut report = Report(Vec::new(), 0);
    walk(&DamagedNodes(&nodes, bad), &root, &mut report);
    assert_eq!(report.0, [first]);
    assert_eq!(report.1 as u64, 2000 - (after.ino - first.ino));
}
