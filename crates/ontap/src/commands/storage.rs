//! Commands for the surroundings of volumes and what they have by name: `cluster`, `vserver`,
//! `storage aggregate`, `df`, `volume snapshot policy`, `qos policy-group`. Commands for what has
//! happened: `job`, `event log`.

use super::show::{self, Answer, or_dash};
use crate::cluster::{Change, Cluster, Event, Failure, Job, Volume};
use crate::fields::aggregate::{self, Row};
use crate::fields::snapshot_policy::{self, copies};
use crate::fields::{self, Field, Value, Way, qos, rows, svm, svm_peer};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, invalid, none, not_among, refused};
use crate::storage::{
    Ceiling, Copies, NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy,
};
use crate::table::{self, Column};
use crate::value::{self, part};

pub(super) fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

/// Runs `vserver show`: the projects.
pub fn vservers(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Vserver"], 11).with_field("vserver"),
        Column::new(&["", "Type"], 7).with_field("type"),
        Column::new(&["", "Subtype"], 10).with_field("subtype"),
        Column::new(&["Admin", "State"], 10).with_field("admin-state"),
        Column::new(&["Operational", "State"], 11).with_field("operational-state"),
        Column::new(&["Root", "Volume"], 10),
        Column::new(&["", "Aggregate"], 10).with_field("aggr-list"),
    ];
    show::print(
        svm::FIELDS,
        parsed,
        svm::rows(cluster),
        &["vserver"],
        |all| {
            let row = |s: &svm::Row| {
                let mut cells = show::cells(svm::FIELDS, COLUMNS, s);
                if let Some(aggregate) = cells.last_mut() {
                    *aggregate = or_dash(s.svm.aggregates.first().cloned());
                }
                cells
            };
            table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}

/// Runs `vserver peer show`: machines that relationships lead between.
pub fn svm_peers(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Vserver"], 11).with_field("vserver"),
        Column::new(&["Peer", "Vserver"], 11).with_field("peer-vserver"),
        Column::new(&["Peer", "State"], 12).with_field("peer-state"),
        Column::new(&["", "Peer Cluster"], 17).with_field("peer-cluster"),
        Column::new(&["Peering", "Applications"], 14).with_field("applications"),
        Column::new(&["Remote", "Vserver"], 9).with_field("remote-vserver-name"),
    ];
    let keys = ["vserver", "peer-vserver"];
    let all = svm_peer::rows(cluster);
    show::list(svm_peer::FIELDS, parsed, all, &keys, COLUMNS)
}

/// Creates a field that says how much of a pool is in an object store, which none is.
const fn nothing(name: &'static str) -> Field<Row> {
    Field::always("", name, "In Object Stores", "-").aside()
}

/// Fields of what the volumes of a pool hold.
pub(super) const SPACE: &[Field<Row>] = rows! {
    Field::<Row>::column("aggregate-name", "Aggregate Name", |p| p.name.clone().into()).key(),
    Field::<Row>::column("tier-name", "Tier Name", |_| String::new().into()),
    Field::<Row>::column("bin-num", "Tier Number", |_| Value::Number(0)),
    nothing("object-store-logical-used"),
    nothing("object-store-physical-used"),
    Field::<Row>::column("volume-footprints", "Volume Footprints", |p: &Row| Value::Bytes(p.used)),
    Field::<Row>::column(
        "volume-footprints-percent", "Volume Footprints Percent",
        |p: &Row| Value::Percent(part(p.used, p.size)),
    ),
    Field::<Row>::column(
        "used-including-snapshot-reserve", "Total Used", |p: &Row| Value::Bytes(p.used),
    ),
    Field::<Row>::column("physical-used", "Total Physical Used", |p: &Row| Value::Bytes(p.used)),
};

/// Runs `storage aggregate show-space`: what the volumes of each pool hold. There is one tier.
pub fn aggregate_space(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Aggregate"], 20).with_field("aggregate-name"),
        Column::new(&["Volume Footprints"], 17)
            .with_field("volume-footprints")
            .right(),
        Column::new(&["Used%"], 5)
            .with_field("volume-footprints-percent")
            .right(),
    ];
    show::list(
        SPACE,
        parsed,
        aggregate::rows(cluster),
        &["aggregate-name"],
        COLUMNS,
    )
}

/// Runs `storage aggregate show`: the storage pools.
pub fn aggregates(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Aggregate"], 9).with_field("aggregate"),
        Column::new(&["    Size"], 8).with_field("size").right(),
        Column::new(&["Available"], 9)
            .with_field("availsize")
            .right(),
        Column::new(&["Used%"], 5)
            .with_field("percent-used")
            .right(),
        Column::new(&["State"], 7).with_field("state"),
        Column::new(&["#Vols"], 6).with_field("volcount").right(),
        Column::new(&["Nodes"], 16).with_field("node"),
        Column::new(&["RAID Status"], 12).with_field("raidstatus"),
    ];
    let physical = cluster.physical();
    let node = cluster.name();
    let all = aggregate::rows(cluster);
    show::print(aggregate::FIELDS, parsed, all, &["aggregate"], |all| {
        let row = |p| show::cells(aggregate::FIELDS, COLUMNS, p);
        let table = table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>());
        match physical.overcommitted() {
            false => table,
            true => {
                let [size, free, all] =
                    [physical.size, physical.free, physical.provisioned].map(value::size);
                format!(
                    "{table}Physical space of {node}: {size}, {free} available. Overcommitted: {all} were provisioned.\n"
                )
            }
        }
    })
}

/// A line of `df`.
pub(super) struct Space {
    /// Bytes that the node has left.
    free: u64,
    filesystem: String,
    total: u64,
    used: u64,
    mounted: String,
    vserver: String,
    volume: String,
}

impl Space {
    fn available(&self) -> u64 {
        self.total.saturating_sub(self.used).min(self.free)
    }
}

fn kib(bytes: u64) -> Value {
    Value::Shown(
        bytes.div_ceil(1024).to_string(),
        Box::new(Value::Number(bytes)),
    )
}

/// Fields of `df`.
pub(super) const DF: &[Field<Space>] = rows! {
    Field::<Space>::column("vserver", "Vserver", |s| s.vserver.clone().into()).key(),
    Field::<Space>::column("file-system-name", "Filesystem", |s| s.filesystem.clone().into()).key(),
    Field::<Space>::column("volume", "Volume", |s| s.volume.clone().into()),
    Field::<Space>::column("total-space", "Total Size", |s: &Space| kib(s.total)),
    Field::<Space>::column("used-space", "Used Size", |s: &Space| kib(s.used)),
    Field::<Space>::column("available-space", "Available", |s: &Space| kib(s.available())),
    Field::<Space>::column(
        "percent-used-space", "Capacity", |s| Value::Percent(part(s.used, s.total)),
    ),
    Field::<Space>::column("mounted-on", "Mounted On", |s| s.mounted.clone().into()),
};

/// Runs `df`: a line for the data of a volume, and one for what is kept for its snapshots.
pub fn df(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let physical = cluster.physical();
    let readable = parsed.get("h").is_some_and(|h| h == "true");
    let lines = |v: &Volume| {
        let size = v.capacity();
        let reserve = (u128::from(size) * u128::from(v.details.snapshot_reserve) / 100) as u64;
        let held: u64 = cluster
            .snapshots(Some(&v.path))
            .iter()
            .map(|s| s.size)
            .sum();
        let name = &v.path.volume;
        let mounted = |tail: &str| match &v.junction {
            Some(junction) => format!("{junction}{tail}"),
            None => "---".to_owned(),
        };
        let line = |tail: &str, total, used| Space {
            filesystem: format!("/vol/{name}/{tail}"),
            total,
            used,
            mounted: mounted(if tail.is_empty() { "" } else { "/.snapshot" }),
            vserver: v.path.vserver.clone(),
            volume: name.clone(),
            free: physical.bound(u64::MAX),
        };
        [
            line(
                "",
                size.saturating_sub(reserve),
                v.used.saturating_sub(held),
            ),
            line(".snapshot", reserve, held),
        ]
    };
    let all: Vec<Space> = cluster.volumes().iter().flat_map(lines).collect();
    show::print(DF, parsed, all, &["vserver", "file-system-name"], |all| {
        let heading: &'static [&'static str] = match readable {
            true => &["     total"],
            false => &["    kbytes"],
        };
        let columns = [
            Column::new(&["Filesystem"], 20),
            Column::new(heading, heading.first().map_or(10, |h| h.len())),
            Column::new(&["      used"], 10),
            Column::new(&["     avail"], 10),
            Column::new(&["capacity"], 8),
            Column::new(&["Mounted on"], 24),
            Column::new(&["Vserver"], 8),
        ];
        let shown = |bytes| match readable {
            true => value::size(bytes),
            false => kib(bytes).line(),
        };
        let row = |s: &Space| {
            vec![
                s.filesystem.clone(),
                right(&shown(s.total), 10),
                right(&shown(s.used), 10),
                right(&shown(s.available()), 10),
                right(&Value::Percent(part(s.used, s.total)).line(), 8),
                s.mounted.clone(),
                s.vserver.clone(),
            ]
        };
        table::unruled(&columns, &all.iter().map(row).collect::<Vec<_>>())
    })
}

fn key(
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
    kind: NamedKind,
    name: &str,
) -> Result<PolicyKey, Failure> {
    // A cluster's own policies have the cluster as their machine.
    let svm = parsed.get("vserver").unwrap_or_default();
    let own = svm == cluster.name();
    Ok(PolicyKey {
        kind,
        svm: if own { String::new() } else { svm.to_owned() },
        name: argument(parsed, name)?.to_owned(),
    })
}

/// Returns the policy that the arguments name: without a machine the cluster's, or the only one of
/// that name.
fn find_policy(
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
    kind: NamedKind,
    name: &str,
) -> Result<StoragePolicy, Failure> {
    let key = key(parsed, cluster, kind, name)?;
    let mut all = cluster.storage_policies(kind);
    all.retain(|p| {
        p.key.name == key.name && (p.key.svm == key.svm || parsed.get("vserver").is_none())
    });
    match all.len() {
        0 => Err(none()),
        1 => all.pop().ok_or_else(none),
        _ => Err(refused(format!(
            "There is more than one \"{}\"; name its Vserver.",
            key.name
        ))),
    }
}

pub(super) fn submit(
    cluster: &dyn Cluster,
    key: PolicyKey,
    change: PolicyChange,
) -> Result<Answer, Failure> {
    let change = Change::Policy { key, change };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

fn flag(parsed: &ParsedCommand, name: &str) -> Result<Option<bool>, Failure> {
    match parsed.get(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(invalid(other, name, "true|false")),
    }
}

/// Returns the number of snapshots that an argument says to keep.
fn count(parsed: &ParsedCommand, name: &str) -> Result<u32, Failure> {
    let text = argument(parsed, name)?;
    let n: Option<u32> = text.parse().ok().filter(|n| (1..=1023).contains(n));
    n.ok_or_else(|| not_among(text, name, "integer", "1 to 1023"))
}

fn create_snapshot_policy(
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    let mut all = Vec::new();
    for n in 1..=5 {
        let Some(schedule) = parsed.get(&format!("schedule{n}")) else {
            continue;
        };
        let label = parsed.get(&format!("snapmirror-label{n}"));
        all.push(Copies {
            schedule: schedule.to_owned(),
            count: count(parsed, &format!("count{n}"))?,
            label: label
                .or(parsed.get(&format!("prefix{n}")))
                .map(str::to_owned),
        });
    }
    let body = PolicyBody::Snapshot {
        enabled: flag(parsed, "enabled")?.unwrap_or(true),
        copies: all,
    };
    let comment = parsed.get("comment").unwrap_or_default().to_owned();
    let key = key(parsed, cluster, NamedKind::Snapshot, "policy")?;
    submit(cluster, key, PolicyChange::Create { comment, body })
}

/// Runs `volume snapshot policy`.
pub fn snapshot_policy(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    const KIND: NamedKind = NamedKind::Snapshot;
    let edit = |change: &dyn Fn(&mut Vec<Copies>) -> Result<(), Failure>| {
        let policy = find_policy(parsed, cluster, KIND, "policy")?;
        let (enabled, all) = copies(&policy);
        let mut all = all.to_vec();
        change(&mut all)?;
        let body = PolicyBody::Snapshot {
            enabled: flag(parsed, "enabled")?.unwrap_or(enabled),
            copies: all,
        };
        let change = PolicyChange::Set {
            revision: policy.revision,
            comment: parsed.get("comment").map(str::to_owned),
            body: Some(body),
        };
        submit(cluster, policy.key, change)
    };
    let schedule = || argument(parsed, "schedule").map(str::to_owned);
    match verb {
        "show" => snapshot_policies(parsed, cluster),
        "create" => create_snapshot_policy(parsed, cluster),
        "modify" => edit(&|_| Ok(())),
        "delete" => {
            let policy = find_policy(parsed, cluster, KIND, "policy")?;
            submit(cluster, policy.key, PolicyChange::Delete)
        }
        "add-schedule" => edit(&|all| {
            all.push(Copies {
                schedule: schedule()?,
                count: count(parsed, "count")?,
                label: parsed.get("snapmirror-label").map(str::to_owned),
            });
            Ok(())
        }),
        "modify-schedule" => edit(&|all| {
            let (name, count) = (schedule()?, count(parsed, "newcount")?);
            let one = all.iter_mut().find(|c| c.schedule == name);
            one.ok_or_else(none)?.count = count;
            Ok(())
        }),
        "remove-schedule" => edit(&|all| {
            let (name, before) = (schedule()?, all.len());
            all.retain(|c| c.schedule != name);
            match all.len() == before {
                true => Err(none()),
                false => Ok(()),
            }
        }),
        _ => Err(refused(format!("\"{verb}\" is not a recognized command"))),
    }
}

fn snapshot_policies(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    show::print(
        snapshot_policy::FIELDS,
        parsed,
        qos::rows(cluster, NamedKind::Snapshot),
        &["vserver", "policy"],
        |all| {
            let mut out = String::new();
            let mut vserver = None;
            for one in all {
                if vserver != Some(&one.vserver) {
                    if vserver.is_some() {
                        out.push('\n');
                    }
                    out.push_str(&format!(
                    "Vserver: {}\n                         Number of Is\n\
                     Policy Name              Schedules Enabled Comment\n\
                     ------------------------ --------- ------- ----------------------------------\n",
                    one.vserver
                ));
                    vserver = Some(&one.vserver);
                }
                let (enabled, each) = copies(&one.policy);
                let head = format!(
                    "{:<24} {:>9} {enabled:<7} {}",
                    one.policy.key.name,
                    each.len(),
                    or_dash(Some(one.policy.comment.clone()).filter(|c| !c.is_empty()))
                );
                out.push_str(head.trim_end());
                out.push_str(
                "\n    Schedule               Count     Prefix                 SnapMirror Label\n    \
                 ---------------------- -----     ---------------------- -------------------\n",
            );
                for c in each {
                    let label = c.label.as_deref().unwrap_or("-");
                    out.push_str(&format!(
                        "    {:<22} {:>5}     {label:<22} {label}\n",
                        c.schedule, c.count
                    ));
                }
                if each.is_empty() {
                    out.push_str("    -                          -     -                      -\n");
                }
                out.push('\n');
            }
            let mut out = format!("{}\n", out.trim_end());
            if all.len() > 1 {
                out.push_str(&format!("{} entries were displayed.\n", all.len()));
            }
            out
        },
    )
}

/// Runs `qos policy-group`.
pub fn policy_group(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    const KIND: NamedKind = NamedKind::Qos;
    const COLUMNS: &[Column] = &[
        Column::new(&["Name"], 16).with_field("policy-group"),
        Column::new(&["Vserver"], 11).with_field("vserver"),
        Column::new(&["Class"], 12).with_field("class"),
        Column::new(&["Wklds"], 5).with_field("num-workloads"),
        Column::new(&["Throughput"], 12).with_field("throughput-policy"),
    ];
    let draft = |way| {
        let mut draft = qos::Draft::default();
        fields::read(&qos::TABLE, parsed, way, &mut draft, cluster, None)?;
        Ok(draft)
    };
    match verb {
        "show" => {
            let all = qos::rows(cluster, KIND);
            show::list(qos::FIELDS, parsed, all, &["policy-group"], COLUMNS)
        }
        "create" => {
            argument(parsed, "vserver")?;
            let ceiling = draft(Way::Create)?.ceiling(Ceiling::default());
            let body = PolicyBody::Qos(ceiling);
            let key = key(parsed, cluster, KIND, "policy-group")?;
            let comment = String::new();
            submit(cluster, key, PolicyChange::Create { comment, body })
        }
        "modify" => {
            let policy = find_policy(parsed, cluster, KIND, "policy-group")?;
            argument(parsed, "max-throughput")?;
            let ceiling = draft(Way::Modify)?.ceiling(qos::ceiling(&policy.body));
            let change = PolicyChange::Set {
                revision: policy.revision,
                comment: None,
                body: Some(PolicyBody::Qos(ceiling)),
            };
            submit(cluster, policy.key, change)
        }
        "rename" => {
            let policy = find_policy(parsed, cluster, KIND, "policy-group")?;
            let to = argument(parsed, "new-name")?.to_owned();
            submit(cluster, policy.key, PolicyChange::Rename(to))
        }
        "delete" => {
            let policy = find_policy(parsed, cluster, KIND, "policy-group")?;
            submit(cluster, policy.key, PolicyChange::Delete)
        }
        _ => Err(refused(format!("\"{verb}\" is not a recognized command"))),
    }
}

/// A volume as what limits hold back, with its policy if it has one.
pub(super) struct Workload {
    volume: Volume,
    policy: Option<StoragePolicy>,
}

impl Workload {
    /// Returns the limits, as they are written: `100MB/s`. `INF` is none.
    fn maximum(&self) -> String {
        let ceiling = self
            .policy
            .as_ref()
            .map(|policy| qos::ceiling(&policy.body));
        qos::maximum(ceiling.unwrap_or_default())
    }
}

/// Fields of workloads.
pub(super) const WORKLOADS: &[Field<Workload>] = rows! {
    Field::<Workload>::column("workload", "Workload Name", |w| w.volume.path.volume.clone().into())
        .key(),
    Field::<Workload>::column("vserver", "Vserver", |w| w.volume.path.vserver.clone().into()).key(),
    Field::<Workload>::column("volume", "Volume", |w| w.volume.path.volume.clone().into()),
    Field::<Workload>::column(
        "policy-group", "Policy Group Name", |w| w.volume.details.qos_policy.clone().into(),
    ),
    Field::<Workload>::always("", "class", "Workload Class", "user-defined"),
    Field::<Workload>::always("", "is-adaptive", "Is Adaptive", "false"),
    Field::<Workload>::column(
        "max-throughput", "Maximum Throughput", |w: &Workload| w.maximum().into(),
    ),
    Field::<Workload>::always("", "min-throughput", "Minimum Throughput", "0"),
    Field::<Workload>::column("uuid", "Workload UUID", |w| w.volume.uuid.clone().into()),
};

/// Runs `qos workload show`: the volumes, and the policy groups that hold them.
pub fn workloads(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Workload"], 19).with_field("workload"),
        Column::new(&["Vserver"], 11).with_field("vserver"),
        Column::new(&["Policy Group"], 16).with_field("policy-group"),
        Column::new(&["Maximum"], 16).with_field("max-throughput"),
    ];
    let policies = cluster.storage_policies(NamedKind::Qos);
    let all = cluster.volumes().into_iter().map(|volume| Workload {
        policy: policies
            .iter()
            .find(|p| {
                let name = volume.details.qos_policy.as_deref();
                name == Some(&*p.key.name) && p.key.svm == volume.path.vserver
            })
            .cloned(),
        volume,
    });
    show::list(WORKLOADS, parsed, all.collect(), &["workload"], COLUMNS)
}

/// Fields of operations.
pub(super) const JOBS: &[Field<Job>] = rows! {
    Field::<Job>::column("id", "Job ID", |j: &Job| j.id.into()).key().ordered(|j| u64::MAX - j.id),
    Field::<Job>::column("name", "Job Name", |j| j.name.clone().into()),
    Field::<Job>::column("vserver", "Owning Vserver", |j| j.vserver.clone().into()),
    Field::<Job>::column("state", "State", |j| j.state.to_owned().into()),
    Field::<Job>::column("description", "Description", |j| j.description.clone().into()),
    Field::<Job>::column("startdate", "Start Time", |j| value::timestamp(j.at).into()),
};

/// Runs `job show`: operations of the control plane.
pub fn jobs(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Job ID"], 12).with_field("id"),
        Column::new(&["", "Name"], 20).with_field("name"),
        Column::new(&["Owning", "Vserver"], 10).with_field("vserver"),
        Column::new(&["", "Node"], 14),
        Column::new(&["", "State"], 10).with_field("state"),
    ];
    show::print(JOBS, parsed, cluster.jobs(), &["id"], |all| {
        let mut out = String::new();
        for (n, job) in all.iter().enumerate() {
            let row = show::cells(JOBS, COLUMNS, job);
            out.push_str(&match n {
                0 => table::fixed(COLUMNS, &[row]),
                _ => table::plain(COLUMNS, &[row]),
            });
            out.push_str(&format!("             Description: {}\n", job.description));
        }
        if all.len() > 1 {
            out.push_str(&format!("{} entries were displayed.\n", all.len()));
        }
        out
    })
}

/// Fields of entries of the audit log.
pub(super) const EVENTS: &[Field<Event>] = rows! {
    Field::<Event>::column("time", "Time", |e: &Event| value::event_time(e.at).into()).key()
        .ordered(|e| u64::MAX - e.number),
    Field::<Event>::column("node", "Node", |e| e.node.clone().into()).key(),
    Field::<Event>::column("severity", "Severity", |e| e.severity.to_owned().into()).key(),
    Field::<Event>::column("event", "Event", |e| e.text.clone().into()).key(),
};

/// Runs `event log show`: the audit log, newest first.
pub fn events(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const MOST: u32 = 500;
    const COLUMNS: &[Column] = &[
        Column::new(&["Time"], 19).with_field("time"),
        Column::new(&["Node"], 16).with_field("node"),
        Column::new(&["Severity"], 13).with_field("severity"),
        Column::new(&["Event"], 27).with_field("event"),
    ];
    let keys = ["time", "node", "severity", "event"];
    show::list(EVENTS, parsed, cluster.events(MOST)?, &keys, COLUMNS)
}
