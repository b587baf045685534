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
//! **Without the tables** a server's lease ends after [`SHARE_LEASE`], and it has no more than an
//! equal part then, which is never more than its share. A server that is not heard counts for an
//! equal part at least, so that tables that were restored to an older state do no harm. Only a
//! server that begins while its node does not reach the tables, or a limit that is lowered, can
//! make the sum exceed the limit, until the next grants are in force.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_base::limits::cluster::{SHARE_FLOOR, SHARE_LEASE, SHARE_STEP};

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

/// A server that has a part of a limit: its row, and its newest report, if it is heard.
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

/// Returns the rows that the leader of `term` writes for a limit of `limit` bytes a second, by
/// server. Lower shares are granted at once, and greater ones as far as the ceilings of all leave
/// room.
pub fn grant(limit: u64, members: &BTreeMap<String, Member>, term: i64) -> BTreeMap<String, Share> {
    let wanted = divide(limit, members);
    // All differences that are not worth a grant are less than one part of `SHARE_STEP`.
    let step = equal(limit / SHARE_STEP, members.len());
    let mut after: BTreeMap<&str, Share> = BTreeMap::new();
    for (name, member) in members {
        let mut share = member.heard();
        share.term = term;
        let to = wanted[name.as_str()];
        if to < share.rate && (share.rate - to >= step || share.rate > limit) {
            share.rate = to;
            share.number += 1;
        }
        after.insert(name, share);
    }
    let equal = equal(limit, members.len());
    let ceilings = after
        .iter()
        .map(|(name, share)| match members[*name].report {
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
        .filter(|(name, share)| members[*name].share != *share);
    changed
        .map(|(name, share)| (name.to_owned(), share))
        .collect()
}

/// Raises shares to what is wanted, by at most `room` in all.
fn raise(
    step: u64,
    mut room: u64,
    wanted: &BTreeMap<&str, u64>,
    shares: &mut BTreeMap<&str, Share>,
) {
    for (name, share) in shares {
        let more = wanted[name].saturating_sub(share.rate);
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
fn withdraw(equal: u64, members: &BTreeMap<String, Member>, shares: &mut BTreeMap<&str, Share>) {
    for (name, share) in shares {
        let in_force = match members[*name].report {
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

/// Divides a limit over servers, max-min fair by weight. The sum is at most the limit.
fn divide(limit: u64, members: &BTreeMap<String, Member>) -> BTreeMap<&str, u64> {
    let count = members.len() as u64;
    let floor = limit / (SHARE_FLOOR * count.max(1));
    let wants = |member: &Member| {
        let report = member.report.unwrap_or_default();
        // One that is not heard keeps what it may have.
        let kept = member.share.rate.max(equal(limit, members.len()));
        let wants = member.report.map_or(kept, |report| report.wants);
        (wants.max(floor).min(limit), u64::from(report.weight.max(1)))
    };
    let mut left = limit;
    let mut open: Vec<(&str, u64, u64)> = members
        .iter()
        .map(|(name, member)| {
            let (wants, weight) = wants(member);
            (name.as_str(), wants, weight)
        })
        .collect();
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
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
                    .map(|(name, _, weight)| (*name, part(*weight))),
            );
            break;
        }
        for (name, wants, _) in content {
            parts.insert(name, wants);
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
    /// Monotonic time at which a row was read last that a new server does not follow.
    waited: Option<Duration>,
}

impl Holder {
    /// Begins with the row as the node's daemon has kept it.
    pub fn new(kept: Option<Share>) -> Holder {
        Holder {
            share: kept,
            followed: None,
            waited: None,
        }
    }

    /// Notes the row that was read at `now`, in the term of a leader; `None` if there is none yet.
    ///
    /// A row that is older than the share in force is not followed: the tables were restored, and
    /// the leader will number anew. A server that has just begun cannot know that, so it waits
    /// until the present leader has confirmed the row.
    pub fn read(&mut self, share: Option<Share>, term: i64, now: Duration) {
        let Some(share) = share.filter(|row| self.followed.is_some() || row.term == term) else {
            self.waited = Some(now);
            return;
        };
        if self.share.is_none_or(|own| share.number >= own.number) {
            self.share = Some(share);
            self.followed = Some(now);
        }
    }

    /// Returns the share in force at `now`, in bytes a second, of a limit that `members` servers
    /// have together.
    pub fn rate(&self, limit: u64, members: usize, now: Duration) -> u64 {
        let is_new = |at: Duration| now.saturating_sub(at) < SHARE_LEASE;
        let share = self.share.map_or(limit, |share| share.rate.min(limit));
        match (self.followed, self.waited) {
            (Some(at), _) if is_new(at) => share,
            (None, Some(at)) if is_new(at) => 0,
            _ => share.min(equal(limit, members)),
        }
    }

    /// Returns the number of the grant in force; 0: none.
    pub fn number(&self) -> u64 {
        self.share.map_or(0, |share| share.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(all: &[(u64, u64, u32)]) -> BTreeMap<String, Member> {
        let named = all.iter().enumerate();
        let member = |(n, (rate, wants, weight)): (usize, &(u64, u64, u32))| {
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
            (format!("n{n}"), Member { share, report })
        };
        named.map(member).collect()
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
        let loses = granted["n0"];
        assert_eq!((loses.rate, loses.number, loses.ceiling), (50, 2, 1500));
        assert!(!granted.contains_key("n1"), "{granted:?}");
        all.get_mut("n0").unwrap().share = loses;
        assert!(grant(1600, &all, 1).is_empty());
        // It confirms.
        let report = all.get_mut("n0").unwrap().report.as_mut().unwrap();
        (report.number, report.rate) = (2, 50);
        let granted = grant(1600, &all, 1);
        assert_eq!(granted["n1"].rate, 1550);
        assert_eq!(granted["n0"].ceiling, 50);
    }

    #[test]
    fn a_lower_limit_is_in_force_at_once() {
        let mut holder = Holder::new(None);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 800);
        let share = Share {
            rate: 1500,
            number: 3,
            ceiling: 1500,
            term: 1,
        };
        holder.read(Some(share), 2, Duration::ZERO);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 0);
        holder.read(Some(share), 1, Duration::ZERO);
        assert_eq!(holder.rate(1600, 2, Duration::ZERO), 1500);
        assert_eq!(holder.rate(1000, 2, Duration::ZERO), 1000);
        assert_eq!(holder.rate(1600, 2, SHARE_LEASE), 800);
        // One of an older state of the tables.
        holder.read(Some(Share { number: 2, ..share }), 1, SHARE_LEASE);
        assert_eq!(holder.rate(1600, 2, SHARE_LEASE), 800);
    }
}
