//! Simulation of servers that have a limit together, from one seed. A tick is a second.
//!
//! Loads begin and end, nodes lose the tables and reach them again, servers die and begin
//! elsewhere, leaders change and old ones wake, the tables are restored to an older state. The sum
//! of all shares in force never exceeds the limit. When all is calm, each server has its max-min
//! fair part.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_base::limits::cluster::{LEARNING, NODE_SILENCE};
use weir_base::{Rng, SeededRng};

use super::{Holder, Member, Report, Share, divide, grant};

const LIMIT: u64 = 1_000_000;
const SERVERS: u8 = 4;
const FAULTS: u64 = 600;
const CALM: u64 = 40;
const SEEDS: u64 = 400;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// A share is raised although the loser has not confirmed.
    RaisesAtOnce,
    /// A ceiling is that of the newest grant.
    ForgetsCeiling,
    /// A row of restored tables is followed.
    FollowsOldRow,
    /// A server that is not heard counts for its row only.
    TrustsRow,
    /// A new leader grants at once.
    NoLearning,
    /// A leader whose term is over writes.
    NoTerm,
    /// A server keeps its share without the tables.
    NoLease,
    /// A new server follows a row that no present leader has confirmed.
    TrustsTerm,
}

#[derive(Clone)]
struct Server {
    holder: Holder,
    cut: bool,
    wants: u64,
    weight: u32,
}

/// The tables: rows, and reports with the time at which they were written.
#[derive(Clone, Default)]
struct Tables {
    rows: BTreeMap<u8, Share>,
    reports: BTreeMap<u8, (Report, u64)>,
    term: i64,
}

struct World {
    seed: u64,
    rng: SeededRng,
    bug: Option<Bug>,
    now: u64,
    servers: BTreeMap<u8, Server>,
    tables: Tables,
    backup: Tables,
    /// Time at which the leader's term began.
    since: u64,
    /// Rows that a leader of an earlier term is about to write.
    late: Option<BTreeMap<u8, Share>>,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let server = |number| {
            let server = Server {
                holder: Holder::new(Duration::ZERO),
                cut: false,
                wants: 0,
                weight: 1,
            };
            (number, server)
        };
        World {
            seed,
            rng: SeededRng::new(seed),
            bug,
            now: 0,
            servers: (0..SERVERS).map(server).collect(),
            tables: Tables::default(),
            backup: Tables::default(),
            since: 0,
            late: None,
        }
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    fn one_in(&self, n: u64) -> bool {
        self.rng.next_u64() % n == 0
    }

    fn any(&self) -> u8 {
        (self.rng.next_u64() % u64::from(SERVERS)) as u8
    }

    /// Members as a leader sees them.
    fn members(&self) -> BTreeMap<u8, Member> {
        let member = |number: &u8| {
            let report = self.tables.reports.get(number);
            let heard = report.filter(|(_, at)| self.now - at < NODE_SILENCE.as_secs());
            let member = Member {
                share: self.tables.rows.get(number).copied().unwrap_or_default(),
                report: heard.map(|(report, _)| *report),
            };
            (*number, member)
        };
        self.servers.keys().map(member).collect()
    }

    fn decide(&self) -> BTreeMap<u8, Share> {
        let mut members = self.members();
        if self.is(Bug::TrustsRow) {
            for member in members.values_mut().filter(|one| one.report.is_none()) {
                member.report = Some(Report {
                    wants: 0,
                    weight: 1,
                    number: member.share.number,
                    rate: member.share.rate,
                });
            }
        }
        if self.is(Bug::RaisesAtOnce) {
            for member in members.values_mut() {
                member.share.ceiling = member.share.rate;
            }
            let wanted = divide(LIMIT, &members);
            let share = |(number, rate): (u8, u64)| {
                let before = members[&number].share;
                let share = Share {
                    rate,
                    number: before.number + 1,
                    ceiling: rate,
                    term: self.tables.term,
                };
                (before.rate != rate).then_some((number, share))
            };
            return wanted.into_iter().filter_map(share).collect();
        }
        let mut rows = grant(LIMIT, &members, self.tables.term);
        if self.is(Bug::ForgetsCeiling) {
            rows.values_mut().for_each(|row| row.ceiling = row.rate);
        }
        rows
    }

    fn lead(&mut self) {
        let wakes = self.is(Bug::NoTerm) && self.one_in(12);
        if let Some(rows) = self.late.take_if(|_| wakes) {
            self.tables.rows.extend(rows);
        }
        let learns = self.now - self.since < LEARNING.as_secs();
        if learns && !self.is(Bug::NoLearning) {
            return;
        }
        let rows = self.decide();
        if self.now <= FAULTS && self.one_in(20) {
            // It stands still before it writes, and another one leads.
            self.late = Some(rows);
            self.since = self.now;
            self.tables.term += 1;
            return;
        }
        self.tables.rows.extend(rows);
    }

    /// A round of the daemon of a server's node.
    fn round(&mut self, number: u8) {
        let (now, time) = (self.now, self.time());
        let follows_old = self.is(Bug::FollowsOldRow);
        let trusts = self.is(Bug::TrustsTerm);
        let term = self.tables.term;
        let Some(server) = self.servers.get_mut(&number).filter(|server| !server.cut) else {
            return;
        };
        let members = (LIMIT, usize::from(SERVERS));
        let wants = (server.wants, server.weight);
        let report = server.holder.report(members, wants, time);
        self.tables.reports.insert(number, (report, now));
        let mut row = self.tables.rows.get(&number).copied();
        if let Some(row) = row.as_mut().filter(|_| follows_old) {
            row.number = row.number.max(report.number);
        }
        let term = row.filter(|_| trusts).map_or(term, |row| row.term);
        server.holder.read(row, term, time);
    }

    fn faults(&mut self) {
        let number = self.any();
        let wants = [0, 10_000, 300_000, 700_000, u64::MAX, u64::MAX];
        let wants = wants[self.rng.next_u64() as usize % wants.len()];
        let weight = 1 + (self.rng.next_u64() % 3) as u32;
        let (cuts, begins) = (self.one_in(30), self.one_in(40));
        let loads = self.one_in(8);
        let time = self.time();
        if let Some(server) = self.servers.get_mut(&number) {
            if loads {
                (server.wants, server.weight) = (wants, weight);
            }
            // One that has just begun and loses the tables may have an equal part.
            let limit = (LIMIT, usize::from(SERVERS));
            let has_grant = server.holder.report(limit, (0, 1), time).number > 0;
            if cuts && has_grant {
                server.cut = !server.cut;
            }
            if begins && !server.cut {
                server.holder = Holder::new(time);
            }
        }
        if self.one_in(60) {
            self.backup = self.tables.clone();
        }
        if self.one_in(120) {
            self.tables = self.backup.clone();
            self.tables.reports.clear();
            self.tables.term += 1;
            self.since = self.now;
            self.late = None;
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        // In any order, some twice.
        let mut turns: Vec<u8> = (0..SERVERS).map(|_| self.any()).collect();
        turns.extend(self.servers.keys());
        let at = self.rng.next_u64() as usize % turns.len();
        for (n, number) in turns.iter().enumerate() {
            if n == at {
                self.lead();
            }
            self.round(*number);
            self.check();
        }
    }

    fn in_force(&self, server: &Server) -> u64 {
        let lease = match self.is(Bug::NoLease) {
            true => Duration::ZERO,
            false => self.time(),
        };
        server.holder.rate(LIMIT, usize::from(SERVERS), lease)
    }

    fn check(&self) {
        let sum: u64 = self.servers.values().map(|s| self.in_force(s)).sum();
        assert!(
            sum <= LIMIT,
            "seed {}, second {}: {sum} of {LIMIT} are in force",
            self.seed,
            self.now
        );
    }

    fn run(&mut self) {
        for _ in 0..FAULTS {
            self.faults();
            self.tick();
        }
        self.servers.values_mut().for_each(|s| s.cut = false);
        for _ in 0..CALM {
            self.tick();
        }
        let members = self.members();
        let wanted = divide(LIMIT, &members);
        for (number, server) in &self.servers {
            let (has, wants) = (self.in_force(server), wanted[number]);
            assert!(
                has.abs_diff(wants) <= LIMIT / 32,
                "seed {}: {number} has {has} in place of {wants}",
                self.seed
            );
        }
    }
}

#[test]
fn the_shares_in_force_never_exceed_the_limit_and_become_fair() {
    for seed in 0..SEEDS {
        World::new(seed, None).run();
    }
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    for bug in [
        Bug::RaisesAtOnce,
        Bug::ForgetsCeiling,
        Bug::FollowsOldRow,
        Bug::TrustsRow,
        Bug::NoLearning,
        Bug::NoTerm,
        Bug::NoLease,
        Bug::TrustsTerm,
    ] {
        let run = |seed| std::panic::catch_unwind(move || World::new(seed, Some(bug)).run());
        let found = (0..SEEDS).find(|seed| run(*seed).is_err());
        assert!(found.is_some(), "{bug:?} is not noticed");
    }
}
