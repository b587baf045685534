//! Table of the limits in force, an immutable value that is replaced by another one.
//!
//! It is read by every request and changed by every change of the configuration, among very many
//! volumes. So it is two levels deep: entries are dealt to [`PARTS`] sorted parts by their number,
//! and a new table shares the parts that did not change. A change copies the parts' list and one
//! part, some two hundred pointers of ten thousand; a look-up is a binary search of one part.

use super::entry::{Entry, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::{VolumeId, invariant};

/// Parts of a map: the square root of ten thousand, roughly.
const PARTS: u64 = 128;

/// Entries with their numbers, ascending.
type Part<V> = Arc<[(u64, Arc<V>)]>;

/// A map in parts, by number; copies share the parts that did not change.
pub(super) struct Parts<V> {
    parts: Vec<Part<V>>,
}

impl<V> Default for Parts<V> {
    fn default() -> Parts<V> {
        Parts {
            parts: (0..PARTS).map(|_| Arc::from([])).collect(),
        }
    }
}

/// Returns the part of a number.
fn part_of(number: u64) -> usize {
    (number % PARTS) as usize
}

impl<V> Parts<V> {
    pub(super) fn get(&self, number: u64) -> Option<&Arc<V>> {
        let part = self.parts.get(part_of(number))?;
        let at = part.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        part.get(at).map(|(_, value)| value)
    }

    /// Returns all entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Arc<V>)> {
        let parts = self.parts.iter().flat_map(|part| part.iter());
        parts.map(|(number, value)| (*number, value))
    }

    /// This map with these entries, or without those that are `None`.
    pub(super) fn with(&self, changes: &BTreeMap<u64, Option<Arc<V>>>) -> Parts<V> {
        let mut parts = self.parts.clone();
        let mut by_part: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for number in changes.keys() {
            by_part.entry(part_of(*number)).or_default().push(*number);
        }
        for (at, numbers) in by_part {
            let Some(part) = parts.get_mut(at) else {
                invariant!(false, "there is no part {at}");
                continue;
            };
            let kept = part.iter().filter(|(n, _)| !changes.contains_key(n));
            let mut next: Vec<(u64, Arc<V>)> = kept.cloned().collect();
            next.extend(numbers.into_iter().filter_map(|number| {
                let value = changes.get(&number)?.as_ref()?;
                Some((number, Arc::clone(value)))
            }));
            next.sort_unstable_by_key(|(n, _)| *n);
            *part = next.into();
        }
        Parts { parts }
    }
}

/// Limits in force: replaced as a whole, read without a lock.
#[derive(Default)]
pub(super) struct Table {
    pub(super) generation: u64,
    pub(super) pools: Parts<Pool>,
    pub(super) volumes: Parts<Entry>,
    /// Number of the volumes that are limited.
    pub(super) limited: usize,
}

impl Table {
    pub(super) fn volume(&self, id: VolumeId) -> Option<&Arc<Entry>> {
        self.volumes.get(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain map: what is put is found, what is taken is gone, and what no change
        /// names is shared.
        #[test]
        fn as_a_map(
            steps in prop::collection::vec(prop::collection::btree_map(0u64..700, any::<Option<u8>>(), 0..20), 1..20),
        ) {
            let mut parts: Parts<u8> = Parts::default();
            let mut model: BTreeMap<u64, Arc<u8>> = BTreeMap::new();
            for step in steps {
                let step: BTreeMap<u64, Option<Arc<u8>>> =
                    step.into_iter().map(|(number, value)| (number, value.map(Arc::new))).collect();
                let next = parts.with(&step);
                for (part, (old, new)) in parts.parts.iter().zip(&next.parts).enumerate() {
                    let touched = step.keys().any(|number| part_of(*number) == part);
                    prop_assert_eq!(!touched, Arc::ptr_eq(old, new));
                }
                for (number, value) in step {
                    match value {
                        Some(value) => model.insert(number, value),
                        None => model.remove(&number),
                    };
                }
                parts = next;
                let mut all: Vec<(u64, u8)> = parts.iter().map(|(n, v)| (n, **v)).collect();
                all.sort_unstable();
                let expected: Vec<(u64, u8)> = model.iter().map(|(n, v)| (*n, **v)).collect();
                prop_assert_eq!(all, expected);
                for number in 0..700 {
                    prop_assert_eq!(parts.get(number).map(|v| **v), model.get(&number).map(|v| **v));
                }
            }
        }
    }
}
