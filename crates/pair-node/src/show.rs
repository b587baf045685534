//! State of a pair at a moment, for users and for Prometheus.

use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_mirror::{Role, Side, Timing};
use weir_volume::PartnerCost;

use super::config::Mode;
use super::pair::{Inner, Pair};
use super::postgres;
use super::rules::role_name;

/// Name and value of a fact, for people.
type Line = (&'static str, String);

/// State of a pair now, for users.
#[derive(Clone, Debug)]
pub struct PairStatus {
    /// Names and values, as `weir pair show` prints them.
    pub lines: Vec<Line>,
    /// True if the pair is in sync.
    pub in_sync: bool,
    /// True if this node serves clients.
    pub serving: bool,
    /// Number of bytes of changes that the partner has not acknowledged.
    pub lag: u64,
    /// Current term.
    pub term: u64,
    /// True if the partner is connected.
    pub connected: bool,
    /// True if one copy is being brought up from the other.
    pub synchronising: bool,
    /// Number of this copy's last change in its term.
    pub position: u64,
    /// Time that the partner took to reply to the last beat.
    pub round_trip: Option<Duration>,
    /// Time that replies waited for the partner in the last minute.
    pub cost: PartnerCost,
    /// Bytes of changes sent to the partner for each byte that clients wrote in the last minute;
    /// `None` if they wrote none.
    pub amplification: Option<f64>,
    /// Seconds for which the partner has lacked something, as seen by a node that serves; 0 if it
    /// lacks nothing.
    pub behind: u64,
    /// The witness, if there is one.
    pub witness: Option<WitnessShown>,
    /// Time after which the partner would serve if this node vanished now; `None` if it could not
    /// serve.
    pub takeover: Option<Duration>,
    /// Names of this node and of its partner.
    pub nodes: (String, String),
    /// Fault that was seen last.
    pub fault: Option<String>,
}

/// Address of a witness, the time since its last reply, and the reason why there was none to the
/// last question.
pub type WitnessShown = (String, Option<Duration>, Option<String>);

/// State of the pair, for reports on single volumes.
#[derive(Clone, Debug)]
pub struct PairHealth {
    /// Name of the other node.
    pub partner: String,
    /// Time since which the partner lacks something, in seconds since 1970; `None` if it has
    /// everything.
    pub behind_since: Option<i64>,
    /// Fault that keeps the pair out of sync, if it is known.
    pub fault: Option<String>,
    /// Message that the witness did not reply to the last question.
    pub witness_lost: Option<String>,
}

impl PairStatus {
    /// Returns the state for programs: typed values, and the lines for people under `details`.
    pub fn data(&self) -> Value {
        let details: Map<String, Value> = self
            .lines
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
            .collect();
        json!({
            "node": self.nodes.0,
            "partner": self.nodes.1,
            "serving": self.serving,
            "inSync": self.in_sync,
            "partnerConnected": self.connected,
            "synchronising": self.synchronising,
            "term": self.term,
            "position": self.position,
            "lagBytes": self.lag,
            "behindSeconds": self.behind,
            "roundTripSeconds": self.round_trip.map(|time| time.as_secs_f64()),
            "fault": self.fault,
            "witness": self.witness.as_ref().map(|(address, replied, fault)| json!({
                "address": address,
                "repliedSecondsAgo": replied.map(|time| time.as_secs_f64()),
                "fault": fault,
            })),
            "takeoverSeconds": self.takeover.map(|time| time.as_secs_f64()),
            "details": details,
        })
    }
}

fn name(side: Side) -> String {
    format!("{side:?}").to_lowercase()
}

impl Pair {
    /// Returns the state of the pair, at a node that serves.
    pub fn standing(&self) -> PairHealth {
        let inner = self.inner.lock();
        let in_sync = inner.rules.role() == Role::Primary && inner.rules.register().mirrored;
        let since = inner
            .rules
            .behind_since()
            .unwrap_or(self.clock.current_time().secs);
        PairHealth {
            partner: name(Side::from(self.config.side).other()),
            behind_since: (!in_sync).then_some(since),
            fault: inner.fault_text().filter(|_| !in_sync),
            witness_lost: self.witness_shown().and_then(|(address, _, fault)| {
                Some(format!(
                    "the witness at {address} does not reply: {}",
                    fault?
                ))
            }),
        }
    }

    /// Returns this node's part in the pair, as lines.
    fn role_lines(&self, inner: &Inner, in_sync: bool) -> Vec<Line> {
        let at = self.engine.position();
        vec![
            ("side", format!("{:?}", self.config.side).to_lowercase()),
            ("aggregate", self.engine.aggregate().id().to_string()),
            ("state", inner.state_now().to_string()),
            ("role", role_name(inner.rules.role()).to_owned()),
            ("serves clients", yes(inner.rules.serving())),
            ("in sync", yes(in_sync)),
            (
                "partner",
                match inner.partner.link() {
                    Some(_) => "connected".to_owned(),
                    None => "not connected".to_owned(),
                },
            ),
            (
                "replies wait for",
                match self.config.mode {
                    Mode::Durable => "the partner's log",
                    Mode::Memory => "the partner's memory",
                }
                .to_owned(),
            ),
            ("term", inner.rules.register().term.to_string()),
            (
                "position",
                match at.mark() {
                    None => format!("{} of term {}", at.sequence, at.term),
                    Some(mark) if at.is_whole() => format!("mark {mark}"),
                    Some(mark) => format!("between states, on the way to mark {mark}"),
                },
            ),
        ]
    }

    /// Returns how far the partner is behind, as lines.
    fn stream_lines(&self, inner: &Inner, synchronising: bool) -> Vec<Line> {
        let feed = inner.partner.link().and_then(|link| link.feed.as_ref());
        let mut lines: Vec<Line> = Vec::new();
        match feed {
            Some(feed) => lines.push((
                "synchronising",
                format!(
                    "round {}, {}",
                    inner.partner.rounds().max(1),
                    feed.describe_progress()
                ),
            )),
            None if synchronising => {
                lines.push(("synchronising", "from the partner".to_owned()));
            }
            None => {}
        }
        if let Some(mark) = self.engine.marks().last() {
            lines.push(("mark", mark.to_string()));
        }
        if let Some(stream) = inner.partner.stream() {
            lines.push(("acknowledged", stream.acknowledged().0.to_string()));
            lines.push((
                "lag",
                format!(
                    "{} bytes, {} changes",
                    stream.held(),
                    stream.last().0 - stream.acknowledged().0
                ),
            ));
            if stream.is_overrun() {
                lines.push((
                    "window",
                    "lost: the partner needs a synchronisation".to_owned(),
                ));
            }
        }
        if let Some(time) = inner.partner.round_trip() {
            lines.push(("round trip", format!("{} us", time.as_micros())));
        }
        lines
    }

    /// Returns the state for users.
    pub fn show(&self) -> PairStatus {
        let inner = self.inner.lock();
        let register = inner.rules.register();
        let in_sync = match inner.rules.role() {
            Role::Primary => register.mirrored,
            Role::Standby => true,
            _ => false,
        };
        let at = self.engine.position();
        let lag = inner.partner.stream().map_or(0, |s| s.held());
        let connected = inner.partner.link().is_some();
        let feed = inner.partner.link().and_then(|link| link.feed.as_ref());
        let synchronising = feed.is_some() || !at.is_whole();
        let mut lines = self.role_lines(&inner, in_sync);
        lines.extend(self.stream_lines(&inner, synchronising));
        let (cost, amplification) = (
            self.engine.partner_cost(),
            self.service
                .traffic()
                .amplification(self.service.bytes_written()),
        );
        if cost.records > 0 {
            let (mean, p99) = (cost.mean.as_micros(), cost.p99.as_micros());
            lines.push((
                "cost",
                format!("replies waited {mean} us longer than for this node's log alone, 1 in 100 {p99} us or more ({} changes in the last minute)", cost.records),
            ));
        }
        if let Some(sent) = amplification {
            lines.push((
                "traffic",
                format!("{sent:.3} bytes sent for each byte that clients wrote in the last minute"),
            ));
        }
        lines.push((
            "witness",
            match (&self.config.witness, self.config.preferred) {
                (Some(at), _) => postgres::redact_password(&at.address),
                (None, Some(side)) => format!(
                    "none; side {} is preferred",
                    format!("{side:?}").to_lowercase()
                ),
                (None, None) => "none".to_owned(),
            },
        ));
        let witness = self.witness_shown();
        lines.extend(witness.as_ref().map(witness_line));
        if let Some(addresses) = self.service.addresses().describe() {
            lines.push(("address", addresses));
        }
        if let Some(verified) = inner.partner.verified() {
            lines.push(("verified", verified.clone()));
        }
        if let Some(fault) = inner.fault_text() {
            lines.push(("fault", fault));
        }
        let side = Side::from(self.config.side);
        PairStatus {
            nodes: (name(side), name(side.other())),
            fault: inner.fault_text(),
            lines,
            in_sync,
            takeover: takeover(inner.rules.serving() && in_sync && connected),
            witness,
            serving: inner.rules.serving(),
            lag,
            term: register.term,
            connected,
            synchronising,
            position: at.sequence,
            round_trip: inner.partner.round_trip(),
            cost,
            amplification,
            behind: self.behind(
                inner.rules.behind_since(),
                in_sync || !inner.rules.serving(),
            ),
        }
    }

    /// Returns the seconds since the partner began to lack something, as seen by a node that
    /// serves.
    fn behind(&self, since: Option<i64>, lacks_nothing: bool) -> u64 {
        let since = since.filter(|_| !lacks_nothing);
        // A clock that is set back makes the time negative.
        since.map_or(0, |since| {
            u64::try_from(self.clock.current_time().secs - since).unwrap_or_default()
        })
    }

    /// Returns the witness as it is shown; `None` if there is none.
    fn witness_shown(&self) -> Option<WitnessShown> {
        let at = self.config.witness.as_ref()?;
        let heard = self.service.heard().lock().clone();
        // Saturates: the two readings are of different threads.
        let ago = heard.at.map(|at| self.clock.monotonic().saturating_sub(at));
        Some((postgres::redact_password(&at.address), ago, heard.fault))
    }

    /// Returns the metrics in Prometheus' text form.
    pub fn render(&self) -> String {
        let shown = self.show();
        let real = |name: &str, help: &str, value: f64| {
            format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n")
        };
        let gauge = |name: &str, help: &str, value: u64| {
            format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n")
        };
        [
            gauge("weir_pair_in_sync", "Whether replies wait for the partner of a synchronous mirror, which may take over.", shown.in_sync.into()),
            gauge("weir_pair_partner_connected", "Whether the partner of the synchronous mirror is connected.", shown.connected.into()),
            gauge("weir_pair_synchronising", "Whether one copy of the synchronous mirror is being brought up from the other.", shown.synchronising.into()),
            gauge("weir_pair_term", "Counts who of the pair answers since when.", shown.term),
            gauge("weir_pair_lag_bytes", "Changes that the partner has not acknowledged.", shown.lag),
            gauge("weir_pair_position", "Changes of the present term so far.", shown.position),
            gauge("weir_pair_behind_seconds", "For how long the partner has lacked something: changes of strict volumes are held since.", shown.behind),
            shown.round_trip.map_or_else(String::new, |time| {
                real("weir_pair_round_trip_seconds", "How long the partner took to reply to the last beat: what a change waits for it besides its log.", time.as_secs_f64())
            }),
            gauge("weir_pair_cost_changes", "Changes of the last minute that waited for both logs.", shown.cost.records),
            real("weir_pair_cost_mean_seconds", "How much longer than for this node's log replies waited for the partner in the last minute, on the average.", shown.cost.mean.as_secs_f64()),
            real("weir_pair_cost_p99_seconds", "The same of all but one in a hundred.", shown.cost.p99.as_secs_f64()),
            shown.amplification.map_or_else(String::new, |sent| {
                real("weir_pair_sent_per_written", "Bytes of changes sent to the partner for each byte that clients wrote in the last minute.", sent)
            }),
            shown.witness.and_then(|(_, replied, _)| replied).map_or_else(String::new, |ago| {
                real("weir_pair_witness_reply_age_seconds", "Time since the witness last replied; it is asked every 10 seconds.", ago.as_secs_f64())
            }),
            format!("# HELP weir_pair_sent_bytes_total Bytes of changes sent to the partner.\n# TYPE weir_pair_sent_bytes_total counter\nweir_pair_sent_bytes_total {}\n", self.service.traffic().sent()),
        ]
        .concat()
    }
}

/// Returns the line about the witness's last reply.
fn witness_line((_, replied, fault): &WitnessShown) -> (&'static str, String) {
    let ago = replied.map(|time| format!("{} s ago", time.as_secs()));
    let words = match (ago, fault) {
        (Some(ago), None) => ago,
        (Some(ago), Some(why)) => format!("{ago}; since then: {why}"),
        (None, why) => why.clone().unwrap_or_else(|| "not yet".to_owned()),
    };
    ("witness replied", words)
}

/// Returns the time after which a partner that `could` serves if this node vanished: it waits for a
/// beat, asks the witness, and opens the aggregate, for which the time of one more question is
/// allowed (docs/operating/mirror.md has measurements).
fn takeover(could: bool) -> Option<Duration> {
    let timing = Timing::default();
    could.then(|| timing.patience + timing.retry)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
