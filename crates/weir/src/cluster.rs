//! This server's part in an aggregate on RADOS: owner or standby, as its socket, its metrics and
//! its conditions show it; and the switch to a standby.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use weir_base::Clock;
use weir_cluster::conditions::Fact;
use weir_node::control_socket::{Commands, say_lines};
use weir_pair_node::{Connections, Lease};
use weir_rados_store::{OwnerState, Process, RadosPlace, Session, Standby, Standbys};

use crate::cluster_directory::Exporter;
use crate::service_address::{OwnerParts, ServiceAddresses};

/// Age at which what the daemon has said counts no more: it says it twice a second.
const FACTS_AGE: Duration = Duration::from_secs(10);

/// Role of a server.
enum Role {
    /// It waits; the newest state of the aggregate.
    Standby(Option<OwnerState>),
    /// It owns the aggregate.
    Owner(Arc<Session>),
}

/// A server's part in an aggregate on RADOS.
pub struct Member {
    place: RadosPlace,
    process: Process,
    /// True if this server stands by after a switch.
    stands_by: bool,
    clock: Arc<dyn Clock>,
    standbys: Standbys,
    /// The role, and the time since when.
    role: Mutex<(Role, Duration)>,
    /// Notified when a standby is to serve.
    switch: Notify,
    /// The addresses that move with the aggregate.
    addresses: Arc<ServiceAddresses>,
    /// Faults of the cluster that the node's daemon has sent last, and when.
    facts: Mutex<(Vec<Fact>, Duration)>,
}

/// A server among those of an aggregate.
pub struct Identity {
    /// The aggregate.
    pub place: RadosPlace,
    /// The server's process.
    pub process: Process,
    /// True if this server stands by after a switch.
    pub stands_by: bool,
    /// The addresses that move with the aggregate.
    pub addresses: Arc<ServiceAddresses>,
}

impl Member {
    /// Begins with a server that does not own the aggregate.
    pub fn new(identity: Identity, clock: Arc<dyn Clock>, standbys: Standbys) -> Member {
        let Identity {
            place,
            process,
            stands_by,
            addresses,
        } = identity;
        let since = clock.monotonic();
        Member {
            place,
            process,
            stands_by,
            clock,
            standbys,
            role: Mutex::new((Role::Standby(None), since)),
            switch: Notify::new(),
            addresses,
            facts: Mutex::default(),
        }
    }

    /// Notes what a standby has seen.
    pub fn note_seen(&self, seen: &OwnerState) {
        let (role, _) = &mut *self.role.lock();
        if let Role::Standby(before) = role {
            if before.is_none() {
                self.standbys.join();
            }
            *before = Some(seen.clone());
        }
    }

    /// Notes that this server owns the aggregate.
    pub fn note_owner(&self, session: &Arc<Session>) {
        let owner = Role::Owner(Arc::clone(session));
        *self.role.lock() = (owner, self.clock.monotonic());
        self.standbys.leave();
    }

    /// Adds the addresses that move with the aggregate, for as long as the lease holds.
    ///
    /// # Errors
    /// As [`ServiceAddresses::serve`].
    pub fn serve(&self, lease: &Arc<Lease>, connections: Arc<dyn Connections>) -> Result<()> {
        let session = match &self.role.lock().0 {
            Role::Owner(session) => Arc::clone(session),
            Role::Standby(_) => bail!("cannot add the addresses: this server stands by"),
        };
        self.addresses.serve(OwnerParts {
            session,
            lease: Arc::clone(lease),
            connections,
        })
    }

    /// Removes the addresses that move with the aggregate.
    pub fn end(&self) {
        self.addresses.end();
    }

    /// Returns true if this server stands by after a switch.
    pub fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// Waits until a standby is to serve.
    pub async fn switched(&self) {
        self.switch.notified().await;
    }

    /// Returns true if there was a standby, and is none.
    pub fn lacks_standby(&self) -> bool {
        self.standbys.were_there() && self.standbys.others().is_empty()
    }

    /// Notes what the node's daemon says of the cluster.
    fn note_facts(&self, text: &str) -> Result<()> {
        let facts = serde_json::from_str(text).context("reading what the daemon says")?;
        *self.facts.lock() = (facts, self.clock.monotonic());
        Ok(())
    }

    /// Returns what is wrong with the cluster, as its daemon has said lately. That nobody stands by
    /// for its own aggregate, a server finds itself.
    pub fn facts(&self) -> Vec<Fact> {
        let (facts, at) = &*self.facts.lock();
        if self.clock.monotonic().saturating_sub(*at) > FACTS_AGE {
            return Vec::new();
        }
        let place = self.place.to_string();
        let own = |fact: &Fact| match fact {
            Fact::NoStandby { aggregate, .. } => place.ends_with(&format!("/{aggregate}")),
            _ => false,
        };
        facts.iter().filter(|fact| !own(fact)).cloned().collect()
    }

    /// Makes a standby serve: the one on the host `host`, or of this process in the form of
    /// `weir cluster show`, if it is not empty. Returns its process.
    fn hand_over(&self, host: &str) -> Result<Process> {
        let (role, _) = &*self.role.lock();
        let session = match role {
            Role::Owner(session) => session,
            Role::Standby(seen) => {
                let owner = seen.as_ref().and_then(|seen| seen.owner.as_ref());
                let owner = owner.map_or_else(|| "its owner".to_owned(), Process::to_string);
                bail!("cannot switch: this server stands by (ask {owner})");
            }
        };
        let others = self.standbys.others();
        ensure!(
            !others.is_empty(),
            "cannot switch: nobody stands by (start another server with --standby)"
        );
        let named = |one: &Standby| {
            host.is_empty() || one.process.host == host || one.process.to_string() == host
        };
        let Some(heir) = others.into_iter().find(named) else {
            bail!("cannot switch: no server stands by on {host} (`weir cluster show` lists them)");
        };
        session.reserve_for(&heir.process);
        self.switch.notify_one();
        Ok(heir.process)
    }

    /// Returns the role, the seconds for which this server has had it, and the owner as it knows
    /// it.
    fn state(&self) -> (&'static str, u64, OwnerState) {
        let (role, since) = &*self.role.lock();
        let (name, seen) = match role {
            Role::Owner(session) => {
                let seen = OwnerState {
                    owner: Some(self.process.clone()),
                    epoch: Some(session.epoch().0),
                    fault: None,
                };
                ("owner", seen)
            }
            Role::Standby(seen) => ("standby", seen.clone().unwrap_or_default()),
        };
        // Saturates: the numbers are times.
        let time = self.clock.monotonic().saturating_sub(*since);
        (name, time.as_secs(), seen)
    }

    /// Describes the aggregate and its servers for programs.
    fn data(&self) -> Value {
        let (role, seconds, seen) = self.state();
        let standbys: Vec<Value> = self.standbys.others().iter().map(standby).collect();
        json!({
            "aggregate": self.place.to_string(),
            "role": role.to_uppercase(),
            "server": described(&self.process),
            "roleSeconds": seconds,
            "owner": seen.owner.as_ref().map(described),
            "epoch": seen.epoch,
            "fault": seen.fault,
            "otherStandbys": standbys,
            "addresses": self.addresses.describe(),
        })
    }

    /// Describes the aggregate and its servers in lines of a name and a value.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let (role, seconds, seen) = self.state();
        let owner = seen.owner.map(|owner| owner.to_string());
        let owner = owner.unwrap_or_else(|| "none: its last one has ended".to_owned());
        let epoch = seen.epoch.map(|epoch| epoch.to_string());
        let mut lines = vec![
            ("aggregate", self.place.to_string()),
            ("role", format!("{role}, for {seconds} s")),
            ("owner", owner),
            ("epoch", epoch.unwrap_or_else(|| "none".to_owned())),
        ];
        lines.extend(seen.fault.map(|fault| ("fault", fault)));
        lines.extend(self.addresses.describe().map(|shown| ("addresses", shown)));
        let others = self.standbys.others();
        let names = others.iter().map(|one| one.process.to_string());
        let names: Vec<String> = names.collect();
        let listed = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        lines.push(("other standbys", listed));
        lines
    }

    /// Returns the metrics.
    pub fn render(&self) -> String {
        let epoch = match &self.role.lock().0 {
            Role::Owner(session) => session.epoch().0,
            Role::Standby(_) => 0,
        };
        let standbys = self.standbys.others().len();
        format!(
            "# HELP weir_cluster_epoch Number of this server's ownership of the aggregate on RADOS: one more at each takeover.\n\
             # TYPE weir_cluster_epoch gauge\n\
             weir_cluster_epoch {epoch}\n\
             # HELP weir_cluster_standbys Servers that stand by for the aggregate on RADOS.\n\
             # TYPE weir_cluster_standbys gauge\n\
             weir_cluster_standbys {standbys}\n"
        )
    }
}

fn described(process: &Process) -> Value {
    json!({"host": process.host, "process": process.process})
}

fn standby(one: &Standby) -> Value {
    let mut described = described(&one.process);
    described["since"] = json!(one.since);
    described["silentSeconds"] = json!(one.silent.as_secs());
    described
}

/// Commands of a server with an aggregate on RADOS.
pub struct ClusterCommands {
    /// The server's part; `None` if its aggregate is elsewhere. Not kept alive: the socket's
    /// threads outlive the server.
    pub member: Option<Weak<Member>>,
    /// The volumes, for the daemon of its node; `None` while it stands by.
    pub exports: Option<Exporter>,
    /// All other commands; `None` while it stands by.
    pub next: Option<Arc<dyn Commands>>,
}

impl Commands for ClusterCommands {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        let Some(request) = request.strip_prefix("cluster ") else {
            return match &self.next {
                Some(next) => next.run(request, say),
                None => bail!(
                    "cannot run the command: this server stands by and serves no clients (`weir cluster show` names the owner)"
                ),
            };
        };
        let exports = request
            .strip_prefix("show-exports ")
            .zip(self.exports.as_ref());
        if let Some((token, exports)) = exports {
            let token = token.strip_suffix("--json").unwrap_or(token);
            return Ok(serde_json::to_string(&exports.exports(token.trim()))?);
        }
        let rows = request.strip_prefix("show-shares ");
        if let Some((rows, exports)) = rows.zip(self.exports.as_ref()) {
            let rows = rows.strip_suffix("--json").unwrap_or(rows);
            let rows = serde_json::from_str(rows).context("reading the shares of limits")?;
            return Ok(serde_json::to_string(&exports.limits.exchange(&rows))?);
        }
        let Some(member) = self.member.as_ref().and_then(Weak::upgrade) else {
            bail!("cannot run the command: this server's aggregate is not on RADOS");
        };
        match request.split_once(' ').unwrap_or((request, "")) {
            ("show", "") => {
                say_lines(say, &member.lines())?;
                Ok(String::new())
            }
            ("show", "--json") => Ok(member.data().to_string()),
            ("show", text) if text.starts_with('[') => {
                let text = text.strip_suffix("--json").unwrap_or(text);
                member.note_facts(text)?;
                Ok(member.data().to_string())
            }
            ("takeover", host) => Ok(format!("{} takes over", member.hand_over(host)?)),
            _ => bail!("'cluster {request}' is not known"),
        }
    }
}
