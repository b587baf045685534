//! All states that two servers, the messages between them and crashes can reach.
//!
//! The world is small: a client makes a few changes, the destination copies a few cuts. Every order
//! of steps is tried. In each state at most one server answers, and it has all that was
//! acknowledged. From each state the servers come to rest without further crashes, and then exactly
//! one answers. A rule that is left out is noticed.

use super::{Arrivals, Decision, Departure, HandOver, MoveState};
use std::collections::{HashSet, VecDeque};

/// Number of the move.
const ID: u64 = 7;
/// Changes that clients make.
const CHANGES: u8 = 2;
/// Cuts that are tried.
const CUTS: u32 = 2;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The source hands over whatever cut it is asked for.
    AnyCut,
    /// The source goes on by itself although it was handed over.
    GoesOn,
    /// The source tells the destination before the row is written.
    RowLater,
    /// The destination writes its row after it has refused.
    ForgetsRefusal,
    /// The source serves when it gets no decision.
    Impatient,
    /// The source tells a destination again that asks again.
    Again,
    /// A destination that is writing its row says that the volume does not arrive.
    Hasty,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// Changes that were acknowledged.
    acknowledged: u8,
    written: MoveState,
    source: Departure,
    /// Changes in the source's volume.
    at_source: u8,
    /// Cuts taken, and the changes in the last one.
    cuts: u32,
    cut: u8,
    /// The contents of a cut that the destination has: its number, and changes.
    copied: Option<(u32, u8)>,
    /// The destination was told that the volume is handed over.
    told: bool,
    /// The destination is writing its row.
    writing: bool,
    refused: bool,
    /// Changes in the destination's volume, once its row is there.
    arrived: Option<u8>,
    /// A decision on its way to the source.
    decision: Option<bool>,
}

impl World {
    fn new() -> World {
        World {
            acknowledged: 0,
            written: MoveState::Copying,
            source: Departure::Serving,
            at_source: 0,
            cuts: 0,
            cut: 0,
            copied: None,
            told: false,
            writing: false,
            refused: false,
            arrived: None,
            decision: None,
        }
    }

    fn arrivals(&self) -> Arrivals {
        let mut arrivals = Arrivals::default();
        if self.writing {
            assert!(arrivals.begin(ID));
        }
        if self.refused {
            arrivals.decide(ID, false);
        }
        arrivals
    }

    fn check(&self) {
        let (here, there) = (self.source.serves(), self.arrived.is_some());
        assert!(!(here && there), "two serve: {self:?}");
        if here {
            assert_eq!(self.at_source, self.acknowledged, "lost: {self:?}");
        }
        if let Some(there) = self.arrived {
            assert_eq!(there, self.acknowledged, "lost: {self:?}");
        }
    }

    /// Returns the worlds after each step that is possible now, without crashes.
    fn steps(&self, bug: Bug) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |change: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        if self.acknowledged < CHANGES && self.source.serves() {
            step(&|w| {
                w.at_source += 1;
                w.acknowledged += 1;
            });
        }
        if self.acknowledged < CHANGES && self.arrived.is_some() {
            step(&|w| {
                w.arrived = w.arrived.map(|n| n + 1);
                w.acknowledged += 1;
            });
        }
        let mut source = self.source;
        if self.cuts < CUTS && self.arrived.is_none() && source.hold(self.cuts + 1, 0) {
            step(&|w| {
                w.cuts += 1;
                w.source.hold(w.cuts, 0);
                w.cut = w.at_source;
            });
        }
        if self.cuts > 0 && self.arrived.is_none() {
            step(&|w| w.copied = Some((w.cuts, w.cut)));
        }
        let mut source = self.source;
        if source.expire(1) || source.release() {
            step(&|w| {
                w.source.expire(1);
            });
        }
        if bug == Bug::GoesOn && matches!(source, Departure::Writing { .. } | Departure::HandedOver)
        {
            step(&|w| {
                w.source = Departure::Serving;
                w.written = MoveState::Copying;
            });
        }
        if let Some((cut, _)) = self.copied.filter(|_| !self.told) {
            let mut source = self.source;
            let asked = match source {
                Departure::Held { cut, .. } if bug == Bug::AnyCut => cut,
                _ => cut,
            };
            match source.hand_over(asked) {
                HandOver::Write => step(&|w| {
                    w.source = source;
                    w.told = bug == Bug::RowLater;
                }),
                HandOver::Late if bug == Bug::Again && source == Departure::HandedOver => {
                    step(&|w| w.told = true);
                }
                HandOver::Late => {}
            }
        }
        if matches!(self.source, Departure::Writing { .. }) {
            step(&|w| {
                w.written = MoveState::HandedOver;
                w.source.written();
                w.told = true;
            });
            // The reply is lost.
            step(&|w| {
                w.written = MoveState::HandedOver;
                w.source.written();
            });
            step(&|w| w.source.not_written());
        }
        let may = self.arrivals().begin(ID) || bug == Bug::ForgetsRefusal;
        if self.told && self.arrived.is_none() && may {
            step(&|w| w.writing = true);
        }
        if self.writing {
            step(&|w| {
                w.writing = false;
                w.arrived = w.copied.map(|(_, n)| n);
            });
            // There is no room for it.
            step(&|w| {
                w.writing = false;
                w.refused = true;
                w.told = false;
            });
        }
        if self.source == Departure::HandedOver && self.decision.is_none() {
            let writing = self.writing && bug != Bug::Hasty;
            match self.arrivals().decide(ID, self.arrived.is_some()) {
                Decision::Arrived => step(&|w| w.decision = Some(true)),
                Decision::Pending if writing => {}
                Decision::Refused | Decision::Pending => step(&|w| {
                    w.refused = true;
                    w.decision = Some(false);
                }),
            }
            if bug == Bug::Impatient {
                step(&|w| w.decision = Some(false));
            }
        }
        if let Some(arrived) = self.decision {
            step(&|w| {
                w.decision = None;
                if w.source.decided(arrived) && !arrived {
                    w.written = MoveState::Copying;
                }
            });
        }
        all
    }

    /// Returns the worlds after a crash of either server.
    fn crashes(&self) -> [World; 2] {
        let mut source = self.clone();
        source.source = Departure::restarted(self.written);
        source.decision = None;
        let mut written = source.clone();
        // The row that was being written may be in the catalog.
        if matches!(self.source, Departure::Writing { .. }) {
            written.written = MoveState::HandedOver;
            written.source = Departure::HandedOver;
        }
        let mut destination = self.clone();
        destination.told = false;
        destination.writing = false;
        destination.refused = false;
        destination.copied = None;
        match written == source {
            true => [source, destination],
            false => [written, destination],
        }
    }

    /// Returns true if the two come to an end at which one of them serves, whatever the order.
    fn settles(&self, bug: Bug) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![self.clone()]);
        while let Some(world) = next.pop() {
            if world.source.serves() != world.arrived.is_some() {
                return true;
            }
            if seen.insert(world.clone()) {
                next.extend(world.steps(bug));
            }
        }
        false
    }
}

/// Visits all that can be reached. Returns the number of states, and the number in which the volume
/// has arrived.
fn explore(bug: Bug) -> (usize, usize) {
    let (mut seen, mut next) = (HashSet::new(), VecDeque::from([World::new()]));
    let mut arrived = 0;
    while let Some(world) = next.pop_front() {
        if !seen.insert(world.clone()) {
            continue;
        }
        world.check();
        assert!(world.settles(bug), "nobody will serve: {world:?}");
        arrived += usize::from(world.arrived.is_some());
        next.extend(world.steps(bug));
        next.extend(world.crashes());
    }
    (seen.len(), arrived)
}

#[test]
fn exactly_one_server_has_the_volume_and_all_that_was_acknowledged() {
    let (states, arrived) = explore(Bug::None);
    assert!(states > 200 && arrived > 20, "{states} states, {arrived}");
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    for bug in [
        Bug::AnyCut,
        Bug::GoesOn,
        Bug::RowLater,
        Bug::ForgetsRefusal,
        Bug::Impatient,
        Bug::Again,
        Bug::Hasty,
    ] {
        let found = std::panic::catch_unwind(|| explore(bug));
        assert!(found.is_err(), "{bug:?} is not noticed");
    }
}

#[test]
fn a_hold_ends_by_itself_and_makes_its_cut_worthless() {
    let mut source = Departure::Serving;
    assert!(source.hold(1, 500) && !source.serves());
    assert!(!source.expire(499));
    assert!(source.expire(500) && source.serves());
    assert_eq!(source.hand_over(1), HandOver::Late);
    assert!(source.hold(2, 900));
    assert_eq!(source.hand_over(1), HandOver::Late, "of another cut");
    assert_eq!(source.hand_over(2), HandOver::Write);
    assert!(!source.expire(10_000) && !source.hold(3, 0));
    source.written();
    assert_eq!(source.hand_over(2), HandOver::Late);
    assert!(source.decided(true) && source == Departure::Left);
    assert!(!source.decided(false), "a decision is taken once");
}
