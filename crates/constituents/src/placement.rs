//! The constituent of a new directory.
//!
//! Placement is by directory: files are made where their directory is. A directory near the root
//! goes to the constituent with the most free space and the least load, so that directories spread;
//! a deeper one stays with its parent, so that work below it is local. A constituent that is nearly
//! full gives directories away at any depth, so that a volume is full only when all of it is.

use crate::number::Constituent;

/// Depth down to which directories are spread; the root has depth 0.
pub const SPREAD_DEPTH: u8 = 2;

/// Part of a constituent that is free when it begins to give directories away: one in this many.
pub const NEARLY_FULL: u64 = 20;

/// Space and load of a constituent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Constituent that this describes.
    pub constituent: Constituent,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Free space in bytes.
    pub free_bytes: u64,
    /// Load in thousandths of what the constituent's server can do.
    pub load_permille: u16,
    /// True if the constituent can be reached.
    pub reachable: bool,
}

impl Fill {
    /// Returns true if less than one part in [`NEARLY_FULL`] is free.
    fn is_nearly_full(&self) -> bool {
        self.free_bytes < self.capacity_bytes / NEARLY_FULL
    }

    /// Returns a larger number for a better place: the free permille of the capacity, less half of
    /// the load. Space weighs more, because a directory keeps its place and load passes.
    fn score(&self) -> i64 {
        let capacity = u128::from(self.capacity_bytes.max(1));
        let free = u128::from(self.free_bytes) * 1000 / capacity;
        free.min(1000) as i64 - i64::from(self.load_permille.min(1000)) / 2
    }
}

/// Returns the constituent of a new directory at `depth` whose parent is in `parent`. `turn` breaks
/// ties, so that directories made at once do not all go to one constituent.
#[must_use]
pub fn place_directory(parent: Constituent, depth: u8, fills: &[Fill], turn: u64) -> Constituent {
    let own = fills.iter().find(|fill| fill.constituent == parent);
    let stays = depth > SPREAD_DEPTH && !own.is_some_and(Fill::is_nearly_full);
    if stays || fills.is_empty() {
        return parent;
    }
    let count = fills.len();
    let begin = (turn % count as u64) as usize;
    let mut best: Option<&Fill> = None;
    for index in 0..count {
        let Some(fill) = fills.get((begin + index) % count) else {
            continue;
        };
        if !fill.reachable && fill.constituent != parent {
            continue;
        }
        let rank = |fill: &Fill| (!fill.is_nearly_full(), fill.score());
        if best.is_none_or(|best| rank(fill) > rank(best)) {
            best = Some(fill);
        }
    }
    best.map_or(parent, |fill| fill.constituent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(constituent: u8, free_percent: u64, load_permille: u16) -> Fill {
        Fill {
            constituent: Constituent(constituent),
            capacity_bytes: 1 << 40,
            free_bytes: (1 << 40) / 100 * free_percent,
            load_permille,
            reachable: true,
        }
    }

    fn place(parent: u8, depth: u8, fills: &[Fill], turn: u64) -> u8 {
        place_directory(Constituent(parent), depth, fills, turn).0
    }

    #[test]
    fn directories_near_the_root_go_where_space_and_load_are_best() {
        let fills = [fill(0, 50, 0), fill(1, 80, 0), fill(2, 80, 900)];
        for depth in 1..=SPREAD_DEPTH {
            assert_eq!(place(0, depth, &fills, 7), 1);
        }
        assert_eq!(place(0, SPREAD_DEPTH + 1, &fills, 7), 0, "with its parent");
    }

    #[test]
    fn equal_constituents_take_turns() {
        let fills = [fill(0, 50, 0), fill(1, 50, 0), fill(2, 50, 0)];
        let placed: Vec<u8> = (0..6).map(|turn| place(0, 1, &fills, turn)).collect();
        assert_eq!(placed, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_nearly_full_constituent_gives_directories_away_at_any_depth() {
        let mut fills = [fill(0, 4, 0), fill(1, 60, 1000), fill(2, 4, 0)];
        assert_eq!(place(0, 9, &fills, 0), 1, "load does not matter then");
        fills[1].reachable = false;
        assert_eq!(place(0, 9, &fills, 0), 0, "nobody else is better");
        assert_eq!(place(1, 9, &fills, 0), 1, "a parent with space keeps it");
    }

    #[test]
    fn an_unreachable_constituent_gets_nothing() {
        let mut fills = [fill(0, 10, 0), fill(1, 90, 0)];
        fills[1].reachable = false;
        assert_eq!(place(0, 1, &fills, 1), 0);
        assert_eq!(place(0, 1, &[], 1), 0);
    }
}
