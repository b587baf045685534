//! Time for which limits held requests back, counted where requests are charged.
//!
//! A meter only tells whether it is ready at the moment, and one that lets a request through every
//! few milliseconds mostly is. The cause of waiting is therefore counted as time. When a request is
//! released, the time since the last count at its leaf is attributed to the limit of the path that
//! was ready last. A reader first counts the requests that still wait. So a cause is known before
//! its request is released, and the count does not depend on earlier readers.

use super::{Nanos, NodeId, Shaper};
use crate::limits::{Direction, Limit, PLACES, charged_limit};

/// Levels of a path that are distinguished, from the root: pool, volume, client.
pub const LEVELS: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    nanos: Nanos,
    /// Latest time at which the limit was found to delay a request.
    until: Option<Nanos>,
}

/// Time for which the limits of a path delayed requests of a node, by level, limit and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitDelays {
    cells: [[[Cell; PLACES]; 2]; LEVELS],
    waited: [Nanos; LEVELS],
}

impl LimitDelays {
    /// Returns the nanoseconds for which requests waited for a limit: level from the root,
    /// direction, limit, time.
    pub fn times(&self) -> impl Iterator<Item = (usize, Direction, Limit, Nanos)> {
        self.cells()
            .map(|(level, direction, limit, cell)| (level, direction, limit, cell.nanos))
    }

    /// Returns the sum of the waiting times of all released requests in nanoseconds, by the level
    /// that delayed them.
    pub fn waited(&self) -> [Nanos; LEVELS] {
        self.waited
    }

    /// Returns the limit that delayed a request last, with its level from the root, unless that was
    /// `within` nanoseconds before `now` or earlier.
    pub fn latest(&self, now: Nanos, within: Nanos) -> Option<(usize, Limit)> {
        // Saturates: the times come from several threads.
        let since = now.saturating_sub(within);
        let recent = self.cells().filter(|(.., cell)| {
            let until = cell.until;
            until.is_some_and(|until| until > since || until == now)
        });
        let (level, _, limit, _) = recent.max_by_key(|(.., cell)| (cell.until, cell.nanos))?;
        Some((level, limit))
    }

    fn cells(&self) -> impl Iterator<Item = (usize, Direction, Limit, Cell)> {
        self.cells
            .iter()
            .enumerate()
            .flat_map(|(level, directions)| {
                Direction::ALL
                    .into_iter()
                    .zip(directions)
                    .flat_map(move |(direction, cells)| {
                        let cells = cells.iter().enumerate();
                        cells.filter_map(move |(place, cell)| {
                            Some((level, direction, charged_limit(direction, place)?, *cell))
                        })
                    })
            })
    }

    fn add(&mut self, by: By, from: Nanos, now: Nanos) {
        let cell = self
            .cells
            .get_mut(by.level)
            .and_then(|of| of.get_mut(by.direction as usize))
            .and_then(|of| of.get_mut(by.place));
        if let Some(cell) = cell {
            // Saturates: the times come from several threads. Time in which several requests of the
            // node waited is counted once.
            cell.nanos += now.saturating_sub(from.max(cell.until.unwrap_or(0)));
            cell.until = cell.until.max(Some(now));
        }
    }
}

/// A limit on the path of a leaf.
#[derive(Clone, Copy)]
struct By {
    level: usize,
    direction: Direction,
    place: usize,
}

impl<T> Shaper<T> {
    /// Returns the time for which limits delayed requests of a node, up to `now`; `None` if nothing
    /// had to wait.
    pub fn bound(&mut self, id: NodeId, now: Nanos) -> Option<&LimitDelays> {
        self.get(id)?;
        self.count_waiting(id.index, now);
        self.get(id)?.bound.as_deref()
    }

    /// Returns the limit that a waiting request at a leaf waits for, with its level from the root.
    pub fn waits_for(&self, leaf: NodeId, direction: Direction) -> Option<(usize, Limit)> {
        self.get(leaf)?;
        let (_, level, place) = self.last_on_path(leaf.index, direction)?;
        Some((level, charged_limit(direction, place)?))
    }

    /// Returns the limit of a path that is ready last: the time, its level from the root, its
    /// place.
    fn last_on_path(&self, leaf: u32, direction: Direction) -> Option<(Nanos, usize, usize)> {
        let mut depth = 0;
        let mut last: Option<(Nanos, usize, usize)> = None;
        let mut at = Some(leaf);
        while let Some(node) = at.and_then(|at| self.node_at(at)) {
            if let Some((ready, place)) = node.meters.last(direction)
                && last.is_none_or(|(latest, ..)| ready > latest)
            {
                last = Some((ready, depth, place));
            }
            depth += 1;
            at = node.parent;
        }
        let (ready, height, place) = last?;
        Some((ready, (depth - 1 - height).min(LEVELS - 1), place))
    }

    /// Counts the waiting requests at a node and below it.
    fn count_waiting(&mut self, from: u32, now: Nanos) {
        let mut left = vec![from];
        while let Some(at) = left.pop() {
            let Some(node) = self.node_at(at) else {
                // The node was removed.
                continue;
            };
            if node.children > 0 {
                let kids = node.kids.iter();
                left.extend(kids.flat_map(|kids| {
                    let later = kids.later.iter().map(|(_, child)| *child);
                    later.chain(kids.ready.iter().map(|(_, child)| *child))
                }));
                continue;
            }
            let waits = [0, 1].map(|dir| node.queue.get(dir).is_some_and(|q| !q.is_empty()));
            for (direction, waits) in Direction::ALL.into_iter().zip(waits) {
                if waits {
                    self.count_bound(at, direction, 0, now);
                }
            }
        }
    }

    /// Counts the time since the last count at a leaf, and the `waited` time of a request being
    /// released.
    pub(super) fn count_bound(
        &mut self,
        leaf: u32,
        direction: Direction,
        waited: Nanos,
        now: Nanos,
    ) {
        let last = self.last_on_path(leaf, direction);
        let Some(since) = self
            .node_at_mut(leaf)
            .and_then(|node| node.held_since.get_mut(direction as usize))
        else {
            // The leaf was removed.
            return;
        };
        let from = std::mem::replace(since, now);
        let Some((ready, level, place)) = last else {
            // No limit applies any more.
            return;
        };
        let by = By {
            level,
            direction,
            place,
        };
        // A limit that was ready before the waiting began was not its cause.
        let bound = ready > from;
        if !bound && waited == 0 {
            // Nothing has to be counted.
            return;
        }
        let mut at = Some(leaf);
        while let Some(node) = at.and_then(|at| self.node_at_mut(at)) {
            let sums = node.bound.get_or_insert_default();
            if bound {
                sums.add(by, from, now);
            }
            if let Some(sum) = sums.waited.get_mut(level) {
                *sum += waited;
            }
            at = node.parent;
        }
    }
}
