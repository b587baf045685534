//! The leader's grants of shared limits, from a view.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_base::limits::cluster::{FORGET_LISTING, LEARNING};

use crate::rows::View;
use crate::shares::message::Grant;
use crate::shares::{Member, Report, grant};

/// A limit as its servers report it.
#[derive(Default)]
struct ReportedLimit {
    /// Number of parts.
    parts: u8,
    /// Bytes a second of an equal part: the least that is reported while a change of the limit
    /// reaches one server after the other.
    provisioned: u64,
    /// Newest reports by part.
    reports: BTreeMap<u8, Report>,
}

/// Returns the limits that owners of aggregates report.
fn reported(view: &View) -> BTreeMap<u64, ReportedLimit> {
    let mut limits: BTreeMap<u64, ReportedLimit> = BTreeMap::new();
    let owners = view.aggregates.values().filter_map(|a| view.real_owner(a));
    for one in owners.flat_map(|(_, child)| &child.shares) {
        let limit = limits.entry(one.limit).or_insert(ReportedLimit {
            provisioned: u64::MAX,
            ..ReportedLimit::default()
        });
        limit.parts = limit.parts.max(one.parts);
        limit.provisioned = limit.provisioned.min(one.provisioned);
        limit.reports.insert(one.part, one.report);
    }
    limits
}

/// Returns the rows that the leader of `term` writes, having led for `time` without a gap.
pub fn grants(view: &View, term: i64, time: Duration) -> Vec<Grant> {
    if time < LEARNING {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (limit, reported) in reported(view) {
        let member = |part: u8| {
            let share = view.shares.get(&(limit, part)).copied();
            let member = Member {
                share: share.unwrap_or_default(),
                report: reported.reports.get(&part).copied(),
            };
            (part, member)
        };
        let members = (0..reported.parts).map(member).collect();
        // Saturates: no aggregate has as much.
        let rate = reported
            .provisioned
            .saturating_mul(u64::from(reported.parts));
        let changed = grant(rate, &members, term).into_iter();
        out.extend(changed.map(|(part, share)| Grant { limit, part, share }));
    }
    out
}

/// Limits in the tables that no server reports, with the monotonic times since when.
#[derive(Default)]
pub struct Unreported(BTreeMap<u64, Duration>);

impl Unreported {
    /// Returns the limits whose rows are to be deleted at `now`: nobody has reported them for
    /// [`FORGET_LISTING`]. A server that returns later numbers on from what it has in force.
    pub fn forgotten(&mut self, view: &View, now: Duration) -> Vec<u64> {
        let reported = reported(view);
        let rows = view.shares.keys().map(|(limit, _)| *limit);
        let missing: Vec<u64> = rows.filter(|limit| !reported.contains_key(limit)).collect();
        self.0.retain(|limit, _| missing.contains(limit));
        for limit in missing {
            self.0.entry(limit).or_insert(now);
        }
        let old = |(limit, since): (&u64, &Duration)| {
            let old = now.saturating_sub(*since) >= FORGET_LISTING;
            old.then_some(*limit)
        };
        self.0.iter().filter_map(old).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Aggregate, Assignment, Child, Kind, Node, Role, Settings};
    use crate::shares::Share;
    use crate::shares::message::LimitReport;

    /// A view in which the owners of aggregates report parts 0, 1, … of one limit, each with what
    /// it wants; `None`: its node is silent.
    fn view(wants: &[Option<u64>]) -> View {
        let mut view = View::default();
        for (part, wants) in (0..).zip(wants) {
            let name = format!("a{part}");
            let report = LimitReport {
                limit: 7,
                part,
                parts: 3,
                provisioned: 1000,
                report: Report {
                    wants: wants.unwrap_or(0),
                    weight: 1,
                    number: 0,
                    rate: 1000,
                },
            };
            let child = Child {
                role: Role::Owner,
                shares: vec![report],
                ..Child::default()
            };
            let silent = match wants {
                Some(_) => Duration::ZERO,
                None => Duration::from_secs(60),
            };
            let node = Node {
                name: format!("n{part}"),
                address: String::new(),
                version: String::new(),
                memory: 0,
                drained: false,
                silent,
                children: [(name.clone(), child)].into(),
                api: None,
            };
            view.nodes.insert(node.name.clone(), node);
            let aggregate = Aggregate {
                name: name.clone(),
                kind: Kind::Rados,
                place: String::new(),
                settings: Settings::default(),
                nodes: Assignment::default(),
                deleting: false,
                created: 0,
                version: 0,
            };
            view.aggregates.insert(name, aggregate);
        }
        view
    }

    fn rates(view: &View) -> Vec<(u8, u64)> {
        let all = grants(view, 1, LEARNING);
        all.iter().map(|g| (g.part, g.share.rate)).collect()
    }

    #[test]
    fn silent_servers_and_unknown_parts_keep_equal_parts() {
        assert_eq!(grants(&view(&[Some(0)]), 1, Duration::ZERO), []);
        let all = view(&[Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)]);
        assert_eq!(rates(&all), [(0, 1000), (1, 1000), (2, 1000)]);
        // Those that are not heard have no grants, and what they may have is not given away.
        let some = view(&[Some(u64::MAX), None]);
        assert_eq!(rates(&some), [(0, 1000), (1, 0), (2, 0)]);
    }

    #[test]
    fn the_least_provisioned_part_counts_while_a_limit_changes() {
        let mut view = view(&[Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)]);
        let node = view.nodes.get_mut("n1").unwrap();
        node.children.get_mut("a1").unwrap().shares[0].provisioned = 300;
        let sum: u64 = rates(&view).iter().map(|(_, rate)| rate).sum();
        assert!(sum <= 900, "{sum}");
    }

    #[test]
    fn rows_that_nobody_reports_are_deleted_after_a_while() {
        let mut view = view(&[Some(0)]);
        view.shares.insert((7, 0), Share::default());
        view.shares.insert((8, 1), Share::default());
        let mut unreported = Unreported::default();
        assert!(unreported.forgotten(&view, Duration::ZERO).is_empty());
        assert_eq!(unreported.forgotten(&view, FORGET_LISTING), [8]);
        view.shares.remove(&(8, 1));
        assert!(unreported.forgotten(&view, FORGET_LISTING).is_empty());
    }
}
