//! A throughput limit that several servers have together: each has a share of it, and the shares
//! are never more than the limit. Pure functions of the rows.
//!
//! The leader reads what each server wants and grants shares, max-min fair: one that wants less
//! than its part has what it wants, and the others divide the rest by weight. What nobody wants is
//! divided too, so that a server whose load begins need not ask first.
//!
//! **A share is raised only by what another one has confirmed to have lost.** A grant has a number,
//! and a server reports the number that is in force. Until it reports the newest one, its row's
//! *ceiling* counts: the greatest share that may be in force there. The sum of all ceilings never
//! exceeds the limit, whatever is lost, late or repeated, and whichever daemon leads.
//!
//! **Without the tables** a server's lease ends after [`SHARE_LEASE`]. Then it has its share, and
//! no more than an equal part. A server that is not heard counts for an equal part at least, so
//! that tables that were restored to an older state do no harm. A server that begins has the least
//! share until it has read its row, or until it would have lost a lease. Only a server that begins
//! while its node does not reach the tables, or a limit that is lowered, can make the sum exceed
//! the limit, until the next grants are in force.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::limits::cluster::{SHARE_FLOOR, SHARE_LEASE, SHARE_STEP};

pub mod message;
#[cfg(test)]
mod world;

/// A server's share, as the tables have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    /// Bytes a second that are granted.
    pub rate: u64,
    /// Number of the grant.
    pub number: u64,
    /// Greatest share that may be in force, in bytes a second; never less than `rate`.
    pub ceiling: u64,
    /// Term of the leader that has written or confirmed the row.
    pub term: i64,
}

/// A server's report about its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Bytes a second that its clients ask for; `u64::MAX` if they wait for the share.
    pub wants: u64,
    /// Weight of those who wait, at least 1.
    pub weight: u32,
    /// Number of the grant in force; 0: none.
    pub number: u64,
    /// Bytes a second that are in force.
    pub rate: u64,
}

/// A server that has a part of a limit: its row, and its newest report if it is heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// The row; all zero for one that is new.
    pub share: Share,
    /// The report.
    pub report: Option<Report>,
}

impl Member {
    /// Returns the row with what the report says about it.
    fn heard(&self) -> Share {
        let Some(report) = self.report else {
            return self.share;
        };
        let mut share = self.share;
        if report.number > share.number {
            // The tables are older than the grant: they were restored.
            share.number = report.number;
            share.rate = report.rate;
            share.ceiling = share.ceiling.max(report.rate);
        } else if report.number == share.number {
            // One without a grant has an equal part.
            share.ceiling = share.rate.max(report.rate);
        }
        share
    }
}

/// Returns the rows that the leader of `term` writes for a limit of `limit` bytes a second, by the
/// members' numbers. Lower shares are granted at once, and greater ones as far as the ceilings of
/// all leave room.
pub fn grant(limit: u64, members: &BTreeMap<u8, Member>, term: i64) -> BTreeMap<u8, Share> {
    let wanted = divide(limit, members);
    // All differences that are not worth a grant are less than one part of `SHARE_STEP`.
    let step = equal(limit / SHARE_STEP, members.len());
    let mut after: BTreeMap<u8, Share> = BTreeMap::new();
    for (number, member) in members {
        let mut share = member.heard();
        share.term = term;
        let to = wanted[number];
        if to < share.rate && (share.rate - to >= step || share.rate > limit) {
            share.rate = to;
            share.number += 1;
        }
        after.insert(*number, share);
    }
    let equal = equal(limit, members.len());
    let ceilings = after
        .iter()
        .map(|(number, share)| match members[number].report {
            Some(_) => share.ceiling,
            None => share.ceiling.max(equal),
        });
    // Saturates: rows of a greater limit, and restored ones, may be more than this one.
    let taken = ceilings.fold(0, u64::saturating_add);
    match limit.checked_sub(taken) {
        Some(room) => raise(step, room, &wanted, &mut after),
        None => withdraw(equal, members, &mut after),
    }
    let changed = after
        .into_iter()
        .filter(|(number, share)| members[number].share != *share);
    changed.collect()
}

/// Raises shares to what is wanted, by at most `room` in all.
fn raise(step: u64, mut room: u64, wanted: &BTreeMap<u8, u64>, shares: &mut BTreeMap<u8, Share>) {
    for (number, share) in shares {
        let more = wanted[number].saturating_sub(share.rate);
        // Up to the ceiling no room is needed.
        let free = share.ceiling - share.rate;
        let more = more.min(free.saturating_add(room));
        if more == 0 || !(more >= step || share.rate == 0) {
            continue;
        }
        room -= more.saturating_sub(free);
        share.rate += more;
        share.ceiling = share.ceiling.max(share.rate);
        share.number += 1;
    }
}

/// Withdraws grants that are not in force yet, since more may be in force than the limit.
fn withdraw(equal: u64, members: &BTreeMap<u8, Member>, shares: &mut BTreeMap<u8, Share>) {
    for (number, share) in shares {
        let in_force = match members[number].report {
            Some(report) if report.number >= share.number => continue,
            Some(report) => report.rate,
            None => equal,
        };
        if in_force < share.rate {
            share.rate = in_force;
            share.number += 1;
        }
    }
}

/// Returns an equal part of a limit, for a server without a grant.
fn equal(limit: u64, members: usize) -> u64 {
    limit / (members as u64).max(1)
}

/// Returns the least share of a server: a part of an equal one.
fn floor(limit: u64, members: usize) -> u64 {
    limit / (SHARE_FLOOR * (members as u64).max(1))
}

/// Divides a limit over servers, max-min fair by weight. The sum is at most the limit.
fn divide(limit: u64, members: &BTreeMap<u8, Member>) -> BTreeMap<u8, u64> {
    let count = members.len() as u64;
    let floor = floor(limit, members.len());
    let wants = |member: &Member| {
        let report = member.report.unwrap_or_default();
        // One that is not heard keeps what it may have.
        let kept = member.share.rate.max(equal(limit, members.len()));
        let wants = member.report.map_or(kept, |report| report.wants);
        (wants.max(floor).min(limit), u64::from(report.weight.max(1)))
    };
    let mut left = limit;
    let mut open: Vec<(u8, u64, u64)> = members
        .iter()
        .map(|(number, member)| {
            let (wants, weight) = wants(member);
            (*number, wants, weight)
        })
        .collect();
    let mut parts: BTreeMap<u8, u64> = BTreeMap::new();
    loop {
        let weights: u64 = open.iter().map(|(_, _, weight)| weight).sum();
        let part = |weight: u64| scaled(left, weight, weights);
        let (content, others): (Vec<_>, Vec<_>) = open
            .iter()
            .partition(|(_, wants, weight)| *wants <= part(*weight));
        if content.is_empty() {
            parts.extend(
                others
                    .iter()
                    .map(|(number, _, weight)| (*number, part(*weight))),
            );
            break;
        }
        for (number, wants, _) in content {
            parts.insert(number, wants);
            left -= wants;
        }
        if others.is_empty() {
            let spare = left / count;
            parts.values_mut().for_each(|part| *part += spare);
            break;
        }
        open = others;
    }
    parts
}

/// Returns `whole * part / of`.
fn scaled(whole: u64, part: u64, of: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    // At most `whole`.
    u64::try_from(scaled).unwrap_or(whole)
}

/// A server's side: the share in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The newest row; `None`: there is none yet.
    share: Option<Share>,
    /// Monotonic time at which a row was followed last; `None`: not since the server's start.
    followed: Option<Duration>,
    /// Monotonic time of the start, or at which a row was read last that a new server does not
    /// follow.
    waited: Duration,
}

impl Holder {
    /// Begins at the start of the server, or of its part in the limit.
    pub fn new(now: Duration) -> Holder {
        Holder {
            share: None,
            followed: None,
            waited: now,
        }
    }

    /// Notes the row that was read at `now` or later, in the term of a leader; `None` if there is
    /// none yet.
    ///
    /// A row that is older than the share in force is not followed: the tables were restored, and
    /// the leader will number anew. A server that has just begun cannot know that, so it waits
    /// until the present leader has confirmed the row.
    pub fn read(&mut self, share: Option<Share>, term: i64, now: Duration) {
        if self.followed.is_none() && now < self.waited {
            // It may be of the time before the start.
            return;
        }
        // A row with number 0 grants nothing: no server has reported its part yet.
        let granted = share.filter(|row| row.number > 0);
        let Some(share) = granted.filter(|row| self.followed.is_some() || row.term == term) else {
            self.waited = now;
            return;
        };
        if self.share.is_none_or(|own| share.number >= own.number) {
            self.share = Some(share);
            self.followed = self.followed.max(Some(now));
        }
    }

    /// Returns the share in force at `now`, in bytes a second, of a limit that `members` servers
    /// have together.
    pub fn rate(&self, limit: u64, members: usize, now: Duration) -> u64 {
        let is_new = |at: Duration| now.saturating_sub(at) < SHARE_LEASE;
        let equal = equal(limit, members);
        match (self.share, self.followed) {
            (Some(share), Some(at)) if is_new(at) => share.rate.min(limit),
            (Some(share), _) => share.rate.min(equal),
            // Its predecessor may have had the least share, and the others the rest.
            (None, _) if is_new(self.waited) => floor(limit, members),
            (None, _) => equal,
        }
    }

    /// Returns the report of a server whose clients ask for `wants` bytes a second, with a weight.
    pub fn report(
        &self,
        (limit, members): (u64, usize),
        (wants, weight): (u64, u32),
        now: Duration,
    ) -> Report {
        Report {
            wants,
            weight,
            number: self.share.map_or(0, |share| share.number),
            rate: match self.share {
                Some(_) => self.rate(limit, members, now),
                // It will have as much if it does not reach the tables.
                None => equal(limit, members),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(all: &[(u64, u64, u32)]) -> BTreeMap<u8, Member> {
        let numbered = (0..).zip(all);
        let member = |(n, (rate, wants, weight)): (u8, &(u64, u64, u32))| {
            let share = Share {
                rate: *rate,
                number: 1,
                ceiling: *rate,
                term: 1,
            };
            let report = Report {
                wants: *wants,
                weight: *weight,
                number: 1,
                rate: *rate,
            };
            let report = Some(report);
            (n, Member { share, report })
        };
        numbered.map(member).collect()
    }

    fn divided(all: &[(u64, u64, u32)]) -> Vec<u64> {
        divide(1600, &members(all)).into_values().collect()
    }

    #[test]
    fn is_divided_max_min_fair_by_weight_and_spare_throughput_evenly() {
        const MAX: u64 = u64::MAX;
        assert_eq!(divided(&[(0, MAX, 1), (0, MAX, 1)]), [800, 800]);
        assert_eq!(divided(&[(0, MAX, 3), (0, MAX, 1)]), [1200, 400]);
        assert_eq!(divided(&[(0, 200, 1), (0, MAX, 1)]), [200, 1400]);
        assert_eq!(divided(&[(0, 200, 1), (0, 400, 1)]), [700, 900]);
        assert_eq!(
            divided(&[(0, 100, 1), (0, 700, 1), (0, MAX, 1)]),
            [100, 700, 800]
        );
        // Nobody is without any.
        assert_eq!(divided(&[(0, 0, 1), (0, MAX, 1)]), [50, 1550]);
        assert_eq!(divided(&[(0, MAX, 1)]), [1600]);
        assert_eq!(divided(&[]), [0; 0]);
    }

    #[test]
    fn a_share_is_raised_only_by_what_another_one_has_confirmed_to_have_lost() {
        let mut all = members(&[(1500, 0, 1), (100, u64::MAX, 1)]);
        let granted = grant(1600, &all, 1);
        let loses = granted[&0];
        assert_eq!((loses.rate, loses.number, loses.ceiling), (50, 2, 1500));
        assert!(!granted.contains_key(&1), "{granted:?}");
        all.get_mut(&0).unwrap().share = loses;
        assert!(grant(1600, &all, 1).is_empty());
        // It confirms.
        let report = all.get_mut(&0).unwrap().report.as_mut().unwrap();
        (report.number, report.rate) = (2, 50);
        let granted = grant(1600, &all, 1);
        assert_eq!(granted[&1].rate, 1550);
        assert_eq!(granted[&0].ceiling, 50);
    }

    #[test]
    fn a_lower_limit_is_in_force_at_once() {
        let mut holder = Holder::new(Duration::ZERO);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 50);
        assert_eq!(holder.rate(1600, 2, SHARE_LEASE), 800);
        let report = holder.report((1600, 2), (7, 1), Duration::ZERO);
        assert_eq!((report.number, report.rate), (0, 800));
        let share = Share {
            rate: 1500,
            number: 3,
            ceiling: 1500,
            term: 1,
        };
        holder.read(Some(Share { number: 0, ..share }), 1, Duration::ZERO);
        holder.read(Some(share), 2, Duration::ZERO);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 50);
        holder.read(Some(share), 1, Duration::ZERO);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 1500);
        assert_eq!(holder.rate(1000, 2, Duration::ZERO), 1000);
        assert_eq!(holder.rate(1600, 2, SHARE_LEASE), 800);
        // One of an older state of the tables.
        holder.read(Some(Share { number: 2, ..share }), 1, SHARE_LEASE);
        assert_eq!(holder.rate(1600, 2, SHARE_LEASE), 800);
    }
}
