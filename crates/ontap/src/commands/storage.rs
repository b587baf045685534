//! Commands for the surroundings of volumes and what they have by name: `cluster`, `vserver`,
//! `storage aggregate`, `df`, `volume snapshot policy`, `qos policy-group`. Commands for what has
//! happened: `job`, `event log`.

use super::refusal::{argument, failed, invalid, none, not_among, refused};
use super::show::{self, Answer, Field, or_dash};
use crate::cluster::{Change, Cluster, Event, Failure, Job, Volume};
use crate::grammar::Parsed;
use crate::storage::{
    Aggregate, Ceiling, Copies, NamedKind, Physical, PolicyBody, PolicyChange, PolicyKey,
    StoragePolicy, Svm,
};
use crate::table::{self, Column};
use crate::value;

pub(super) fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

/// Returns a part of a whole in percent; 0 of nothing.
pub(super) fn part(used: u64, of: u64) -> u64 {
    let percent = (u128::from(used) * 100).checked_div(u128::from(of));
    u64::try_from(percent.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns a part of a whole in percent, with its sign.
pub(super) fn percent(used: u64, of: u64) -> String {
    format!("{}%", part(used, of))
}

/// Runs `cluster show`: there is one node.
pub fn cluster_show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<String>] = &[
        Field::key("node", "Node", String::clone),
        Field::new("health", "Health", |_| "true".to_owned()),
        Field::new("eligibility", "Eligibility", |_| "true".to_owned()),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Node"], 21),
        Column::new(&["Health"], 7),
        Column::new(&["Eligibility"], 12),
    ];
    show::print(FIELDS, parsed, vec![cluster.name()], &["node"], |all| {
        let on = || "true".to_owned();
        let row = |node: &String| vec![node.clone(), on(), on()];
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Fields of a machine.
const SVM_FIELDS: &[Field<Svm>] = &[
    Field::key("vserver", "Vserver", |s| s.name.clone()),
    Field::new("type", "Vserver Type", |_| "data".to_owned()),
    Field::new("subtype", "Vserver Subtype", |_| "default".to_owned()),
    Field::new("aggr-list", "List of Aggregates Assigned", |s| {
        match s.aggregates.is_empty() {
            true => "-".to_owned(),
            false => s.aggregates.join(", "),
        }
    }),
    Field::new("admin-state", "Vserver Admin State", |_| {
        "running".to_owned()
    }),
    Field::new("operational-state", "Vserver Operational State", |_| {
        "running".to_owned()
    }),
    Field::new("allowed-protocols", "Allowed Protocols", |_| {
        "nfs, cifs".to_owned()
    }),
    Field::new("language", "Default Volume Language Code", |_| {
        "C.UTF-8".to_owned()
    }),
    Field::new("snapshot-policy", "Snapshot Policy", |_| "none".to_owned()),
    Field::new("ipspace", "IPspace Name", |_| "Default".to_owned()),
    Field::new("comment", "Comment", |s| {
        or_dash(Some(s.comment.clone()).filter(|c| !c.is_empty()))
    }),
    Field::new("uuid", "Vserver UUID", |s: &Svm| {
        value::identity("svm", &s.name)
    })
    .aside(),
    Field::new(
        "anti-ransomware-default-volume-state",
        "Default Anti-ransomware State of New Volumes",
        |_: &Svm| "disabled".to_owned(),
    )
    .aside(),
    Field::new(
        "is-space-enforcement-logical",
        "Enable Logical Space Enforcement",
        |_: &Svm| "false".to_owned(),
    )
    .aside(),
    Field::new(
        "is-space-reporting-logical",
        "Enable Logical Space Reporting",
        |_: &Svm| "false".to_owned(),
    )
    .aside(),
];

/// Runs `vserver show`: the projects.
pub fn vservers(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Vserver"], 11),
        Column::new(&["", "Type"], 7),
        Column::new(&["", "Subtype"], 10),
        Column::new(&["Admin", "State"], 10),
        Column::new(&["Operational", "State"], 11),
        Column::new(&["Root", "Volume"], 10),
        Column::new(&["", "Aggregate"], 10),
    ];
    show::print(SVM_FIELDS, parsed, cluster.svms(), &["vserver"], |all| {
        let row = |s: &Svm| {
            let first = s.aggregates.first().cloned();
            let words = ["data", "default", "running", "running", "-"];
            let words = words.into_iter().map(str::to_owned);
            [s.name.clone()]
                .into_iter()
                .chain(words)
                .chain([or_dash(first)])
                .collect()
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<Vec<String>>>())
    })
}

/// An aggregate with the node that has it.
struct Pool {
    aggregate: Aggregate,
    node: String,
    physical: Physical,
}

impl Pool {
    /// Returns the bytes that its volumes may still use: of its capacity, and of the node's space.
    fn available(&self) -> u64 {
        let left = self.aggregate.size.saturating_sub(self.aggregate.used);
        self.physical.bound(left)
    }

    /// Returns its identity in ONTAP's REST.
    fn uuid(&self) -> String {
        let of = &self.aggregate;
        value::identity(
            "aggregate",
            &format!("{}/{}/{}", of.svm, of.location, of.name),
        )
    }
}

fn pools(cluster: &dyn Cluster) -> Vec<Pool> {
    let node = cluster.name();
    let physical = cluster.physical();
    let all = cluster.aggregates().into_iter().map(|aggregate| Pool {
        aggregate,
        node: node.clone(),
        physical,
    });
    all.collect()
}

/// Creates a field that says how much of a pool is in an object store, which none is.
const fn nothing(name: &'static str) -> Field<Pool> {
    Field::new(name, "In Object Stores", |_| "-".to_owned()).aside()
}

/// Runs `storage aggregate show-space`: what the volumes of each pool hold. There is one tier.
pub fn aggregate_space(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Pool>] = &[
        Field::key("aggregate-name", "Aggregate Name", |p| {
            p.aggregate.name.clone()
        }),
        Field::new("tier-name", "Tier Name", |_| String::new()),
        Field::counted("bin-num", "Tier Number", |_| 0),
        nothing("object-store-logical-used"),
        nothing("object-store-physical-used"),
        Field::sized("volume-footprints", "Volume Footprints", |p: &Pool| {
            p.aggregate.used
        }),
        Field::new(
            "volume-footprints-percent",
            "Volume Footprints Percent",
            |p: &Pool| percent(p.aggregate.used, p.aggregate.size),
        )
        .exact(|p| Some(part(p.aggregate.used, p.aggregate.size))),
        Field::sized(
            "used-including-snapshot-reserve",
            "Total Used",
            |p: &Pool| p.aggregate.used,
        ),
        Field::sized("physical-used", "Total Physical Used", |p: &Pool| {
            p.aggregate.used
        }),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Aggregate"], 20),
        Column::new(&["Volume Footprints"], 17),
        Column::new(&["Used%"], 5),
    ];
    show::print(FIELDS, parsed, pools(cluster), &["aggregate-name"], |all| {
        let row = |p: &Pool| {
            vec![
                p.aggregate.name.clone(),
                right(&value::size(p.aggregate.used), 17),
                right(&percent(p.aggregate.used, p.aggregate.size), 5),
            ]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs `storage aggregate show`: the storage pools.
pub fn aggregates(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Pool>] = &[
        Field::key("aggregate", "Aggregate", |p| p.aggregate.name.clone()),
        Field::new("size", "Size", |p: &Pool| {
            value::tidy_size(p.aggregate.size)
        })
        .exact(|p| Some(p.aggregate.size)),
        Field::new("usedsize", "Used Size", |p: &Pool| {
            value::size(p.aggregate.used)
        })
        .exact(|p| Some(p.aggregate.used)),
        Field::new("availsize", "Available Size", |p: &Pool| {
            value::size(p.available())
        })
        .exact(|p| Some(p.available())),
        Field::new("percent-used", "Used Percentage", |p: &Pool| {
            percent(p.aggregate.used, p.aggregate.size)
        })
        .exact(|p| Some(part(p.aggregate.used, p.aggregate.size))),
        Field::new("state", "State", |_| "online".to_owned()),
        Field::new("volcount", "Number Of Volumes", |p| {
            p.aggregate.volumes.to_string()
        }),
        Field::new("node", "Node", |p| p.node.clone()),
        Field::new("raidstatus", "RAID Status", |_| "normal".to_owned()),
        Field::new("vserver", "Vserver", |p| p.aggregate.svm.clone()),
        Field::new("physical-size", "Physical Size of Node", |p: &Pool| {
            value::size(p.physical.size)
        })
        .exact(|p| Some(p.physical.size)),
        Field::new("physical-used", "Physical Used of Node", |p: &Pool| {
            value::size(p.physical.used())
        })
        .exact(|p| Some(p.physical.used())),
        Field::new(
            "physical-avail",
            "Physical Available of Node",
            |p: &Pool| value::size(p.physical.free),
        )
        .exact(|p| Some(p.physical.free)),
        Field::new("uuid", "Aggregate UUID", |p: &Pool| p.uuid()).aside(),
        Field::new("root", "Is the Node's Own", |_: &Pool| "false".to_owned()).aside(),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Aggregate"], 9),
        Column::new(&["    Size"], 8),
        Column::new(&["Available"], 9),
        Column::new(&["Used%"], 5),
        Column::new(&["State"], 7),
        Column::new(&["#Vols"], 6),
        Column::new(&["Nodes"], 16),
        Column::new(&["RAID Status"], 12),
    ];
    let physical = cluster.physical();
    let node = cluster.name();
    show::print(FIELDS, parsed, pools(cluster), &["aggregate"], |all| {
        let row = |p: &Pool| {
            let a = &p.aggregate;
            vec![
                a.name.clone(),
                right(&value::tidy_size(a.size), 8),
                right(&value::size(p.available()), 9),
                right(&percent(a.used, a.size), 5),
                "online".to_owned(),
                right(&a.volumes.to_string(), 6),
                p.node.clone(),
                "normal".to_owned(),
            ]
        };
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
struct Space {
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

/// Runs `df`: a line for the data of a volume, and one for what is kept for its snapshots.
pub fn df(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const KIB: fn(u64) -> String = |bytes| bytes.div_ceil(1024).to_string();
    const FIELDS: &[Field<Space>] = &[
        Field::key("vserver", "Vserver", |s| s.vserver.clone()),
        Field::key("file-system-name", "Filesystem", |s| s.filesystem.clone()),
        Field::new("volume", "Volume", |s| s.volume.clone()),
        Field::new("total-space", "Total Size", |s: &Space| KIB(s.total)).exact(|s| Some(s.total)),
        Field::new("used-space", "Used Size", |s: &Space| KIB(s.used)).exact(|s| Some(s.used)),
        Field::new("available-space", "Available", |s: &Space| {
            KIB(s.available())
        })
        .exact(|s| Some(s.available())),
        Field::new("percent-used-space", "Capacity", |s| {
            percent(s.used, s.total)
        }),
        Field::new("mounted-on", "Mounted On", |s| s.mounted.clone()),
    ];
    let physical = cluster.physical();
    let readable = parsed.get("h").is_some_and(|h| h == "true");
    let lines = |v: &Volume| {
        let size = v.size.unwrap_or(v.details.provisioned);
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
    show::print(
        FIELDS,
        parsed,
        all,
        &["vserver", "file-system-name"],
        |all| {
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
                false => KIB(bytes),
            };
            let row = |s: &Space| {
                vec![
                    s.filesystem.clone(),
                    right(&shown(s.total), 10),
                    right(&shown(s.used), 10),
                    right(&shown(s.available()), 10),
                    right(&percent(s.used, s.total), 8),
                    s.mounted.clone(),
                    s.vserver.clone(),
                ]
            };
            table::unruled(&columns, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}

fn key(
    parsed: &Parsed,
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
fn named(
    parsed: &Parsed,
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

fn submit(cluster: &dyn Cluster, key: PolicyKey, change: PolicyChange) -> Result<Answer, Failure> {
    let change = Change::Policy { key, change };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

fn copies(policy: &StoragePolicy) -> (bool, &[Copies]) {
    match &policy.body {
        PolicyBody::Snapshot { enabled, copies } => (*enabled, copies),
        _ => (false, &[]),
    }
}

/// Runs `volume snapshot policy`.
pub fn snapshot_policy(
    verb: &str,
    parsed: &Parsed,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    const KIND: NamedKind = NamedKind::Snapshot;
    let flag = |name: &str| match parsed.get(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(invalid(other, name, "true|false")),
    };
    let count = |name: &str| {
        let text = argument(parsed, name)?;
        let n: Option<u32> = text.parse().ok().filter(|n| (1..=1023).contains(n));
        n.ok_or_else(|| not_among(text, name, "integer", "1 to 1023"))
    };
    let edit = |change: &dyn Fn(&mut Vec<Copies>) -> Result<(), Failure>| {
        let policy = named(parsed, cluster, KIND, "policy")?;
        let (enabled, all) = copies(&policy);
        let mut all = all.to_vec();
        change(&mut all)?;
        let body = PolicyBody::Snapshot {
            enabled: flag("enabled")?.unwrap_or(enabled),
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
        "create" => {
            let mut all = Vec::new();
            for n in 1..=5 {
                let Some(schedule) = parsed.get(&format!("schedule{n}")) else {
                    continue;
                };
                let label = parsed.get(&format!("snapmirror-label{n}"));
                all.push(Copies {
                    schedule: schedule.to_owned(),
                    count: count(&format!("count{n}"))?,
                    label: label
                        .or(parsed.get(&format!("prefix{n}")))
                        .map(str::to_owned),
                });
            }
            let body = PolicyBody::Snapshot {
                enabled: flag("enabled")?.unwrap_or(true),
                copies: all,
            };
            let comment = parsed.get("comment").unwrap_or_default().to_owned();
            let key = key(parsed, cluster, KIND, "policy")?;
            submit(cluster, key, PolicyChange::Create { comment, body })
        }
        "modify" => edit(&|_| Ok(())),
        "delete" => {
            let policy = named(parsed, cluster, KIND, "policy")?;
            submit(cluster, policy.key, PolicyChange::Delete)
        }
        "add-schedule" => edit(&|all| {
            all.push(Copies {
                schedule: schedule()?,
                count: count("count")?,
                label: parsed.get("snapmirror-label").map(str::to_owned),
            });
            Ok(())
        }),
        "modify-schedule" => edit(&|all| {
            let (name, count) = (schedule()?, count("newcount")?);
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

/// A policy with the cluster whose it may be.
struct Owned {
    policy: StoragePolicy,
    vserver: String,
}

fn owned(cluster: &dyn Cluster, kind: NamedKind) -> Vec<Owned> {
    let of = |policy: StoragePolicy| {
        let vserver = match policy.key.svm.is_empty() {
            true => cluster.name(),
            false => policy.key.svm.clone(),
        };
        Owned { policy, vserver }
    };
    cluster.storage_policies(kind).into_iter().map(of).collect()
}

fn snapshot_policies(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Owned>] = &[
        Field::key("vserver", "Vserver", |o| o.vserver.clone()),
        Field::key("policy", "Snapshot Policy Name", |o| {
            o.policy.key.name.clone()
        }),
        Field::new("enabled", "Snapshot Policy Enabled", |o| {
            copies(&o.policy).0.to_string()
        }),
        Field::new("comment", "Comment", |o| {
            or_dash(Some(o.policy.comment.clone()).filter(|c| !c.is_empty()))
        }),
        Field::new("total-schedules", "Total Number of Schedules", |o| {
            copies(&o.policy).1.len().to_string()
        }),
        Field::new("schedules", "Schedules", |o| {
            let all = copies(&o.policy).1.iter().map(|c| c.schedule.as_str());
            all.collect::<Vec<_>>().join(", ")
        }),
        Field::new("counts", "Counts", |o| {
            let all = copies(&o.policy).1.iter().map(|c| c.count.to_string());
            all.collect::<Vec<_>>().join(", ")
        }),
    ];
    show::print(
        FIELDS,
        parsed,
        owned(cluster, NamedKind::Snapshot),
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

/// Reads a throughput: `100MB/s`, `500iops`, `500iops,100MB/s` or `INF`. Returns operations and
/// bytes a second.
fn throughput(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    if text.eq_ignore_ascii_case("inf") {
        return Some((None, None));
    }
    let mut out = (None, None);
    for part in text.split(',').map(str::trim) {
        let lower = part.to_ascii_lowercase();
        match (lower.strip_suffix("iops"), lower.strip_suffix("/s")) {
            (Some(digits), _) => out.0 = Some(digits.parse().ok().filter(|n| *n > 0)?),
            (None, Some(size)) => {
                let bytes = value::number(size)?;
                out.1 = Some(bytes as u64).filter(|n| *n > 0);
                out.1?;
            }
            (None, None) => out.0 = Some(lower.parse().ok().filter(|n| *n > 0)?),
        }
    }
    Some(out)
}

/// Returns the maximum of a policy as ONTAP writes it: `0-500IOPS,100MB/s`.
fn allowed(policy: &StoragePolicy) -> String {
    let PolicyBody::Qos(Ceiling { ops: iops, bytes }) = policy.body else {
        return "-".to_owned();
    };
    let rates = [
        iops.map(|n| format!("{n}IOPS")),
        bytes.map(|n| format!("{}/s", value::tidy_size(n))),
    ];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    match rates.is_empty() {
        true => "0-INF".to_owned(),
        false => format!("0-{}", rates.join(",")),
    }
}

/// Fields of a maximum that volumes refer to.
const GROUP_FIELDS: &[Field<Owned>] = &[
    Field::key("policy-group", "Policy Group Name", |o| {
        o.policy.key.name.clone()
    }),
    Field::new("vserver", "Vserver", |o| o.vserver.clone()),
    Field::new("class", "Policy Group Class", |_| "user-defined".to_owned()).words(),
    Field::new("uuid", "Policy Group UUID", |o: &Owned| {
        value::identity("policy-by-name", &o.policy.id.to_string())
    })
    .aside(),
    Field::new("num-workloads", "Number of Workloads", |o| {
        o.policy.users.to_string()
    }),
    Field::new("throughput-policy", "Throughput Policy", |o| {
        allowed(&o.policy)
    }),
    Field::new("max-throughput", "Maximum Throughput", |o| {
        allowed(&o.policy).trim_start_matches("0-").to_owned()
    }),
    Field::new("min-throughput", "Minimum Throughput", |_| "0".to_owned()),
    Field::new("is-shared", "Is Policy Shared", |_| "false".to_owned()),
];

/// Runs `qos policy-group`.
pub fn policy_group(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const KIND: NamedKind = NamedKind::Qos;
    const COLUMNS: &[Column] = &[
        Column::new(&["Name"], 16),
        Column::new(&["Vserver"], 11),
        Column::new(&["Class"], 12),
        Column::new(&["Wklds"], 5),
        Column::new(&["Throughput"], 12),
    ];
    if parsed.get("is-shared") == Some("true") {
        let message =
            "A policy group is a maximum of each volume that has it, not of all together.";
        return Err(Failure::new(crate::Reason::Unsupported, message));
    }
    let maximum = || {
        let given = parsed.get("max-throughput");
        let read = |text: &str| {
            throughput(text).ok_or_else(|| invalid(text, "max-throughput", "qos_tput"))
        };
        given.map(read).transpose()
    };
    match verb {
        "show" => show::print(
            GROUP_FIELDS,
            parsed,
            owned(cluster, KIND),
            &["policy-group"],
            |all| {
                let row = |o: &Owned| {
                    vec![
                        o.policy.key.name.clone(),
                        o.vserver.clone(),
                        "user-defined".to_owned(),
                        o.policy.users.to_string(),
                        allowed(&o.policy),
                    ]
                };
                table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
            },
        ),
        "create" => {
            argument(parsed, "vserver")?;
            let (iops, bytes) = maximum()?.unwrap_or_default();
            let body = PolicyBody::Qos(Ceiling { ops: iops, bytes });
            let key = key(parsed, cluster, KIND, "policy-group")?;
            let comment = String::new();
            submit(cluster, key, PolicyChange::Create { comment, body })
        }
        "modify" => {
            let policy = named(parsed, cluster, KIND, "policy-group")?;
            let Some((iops, bytes)) = maximum()? else {
                return Err(refused(
                    "missing required argument \"-max-throughput\"".to_owned(),
                ));
            };
            let change = PolicyChange::Set {
                revision: policy.revision,
                comment: None,
                body: Some(PolicyBody::Qos(Ceiling { ops: iops, bytes })),
            };
            submit(cluster, policy.key, change)
        }
        "rename" => {
            let policy = named(parsed, cluster, KIND, "policy-group")?;
            let to = argument(parsed, "new-name")?.to_owned();
            submit(cluster, policy.key, PolicyChange::Rename(to))
        }
        "delete" => {
            let policy = named(parsed, cluster, KIND, "policy-group")?;
            submit(cluster, policy.key, PolicyChange::Delete)
        }
        _ => Err(refused(format!("\"{verb}\" is not a recognized command"))),
    }
}

/// A volume as what limits hold back, with its policy if it has one.
struct Workload {
    volume: Volume,
    policy: Option<StoragePolicy>,
}

impl Workload {
    /// Returns the limits, as they are written: `100MB/s`. `INF` is none.
    fn maximum(&self) -> String {
        let allowed = self.policy.as_ref().map(allowed);
        allowed.map_or("INF".to_owned(), |text| {
            text.trim_start_matches("0-").to_owned()
        })
    }
}

/// Runs `qos workload show`: the volumes, and the policy groups that hold them.
pub fn workloads(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Workload>] = &[
        Field::key("workload", "Workload Name", |w| {
            w.volume.path.volume.clone()
        }),
        Field::key("vserver", "Vserver", |w| w.volume.path.vserver.clone()),
        Field::new("volume", "Volume", |w| w.volume.path.volume.clone()),
        Field::new("policy-group", "Policy Group Name", |w| {
            or_dash(w.volume.details.qos_policy.clone())
        }),
        Field::new("class", "Workload Class", |_| "user-defined".to_owned()).words(),
        Field::new("is-adaptive", "Is Adaptive", |_| "false".to_owned()),
        Field::new("max-throughput", "Maximum Throughput", Workload::maximum),
        Field::new("min-throughput", "Minimum Throughput", |_| "0".to_owned()),
        Field::new("uuid", "Workload UUID", |w| w.volume.uuid.clone()),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Workload"], 19),
        Column::new(&["Vserver"], 11),
        Column::new(&["Policy Group"], 16),
        Column::new(&["Maximum"], 16),
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
    show::print(FIELDS, parsed, all.collect(), &["workload"], |all| {
        let row = |w: &Workload| {
            vec![
                w.volume.path.volume.clone(),
                w.volume.path.vserver.clone(),
                or_dash(w.volume.details.qos_policy.clone()),
                w.maximum(),
            ]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs `job show`: operations of the control plane.
pub fn jobs(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Job>] = &[
        Field::key("id", "Job ID", |j: &Job| j.id.to_string()).ordered(|j| u64::MAX - j.id),
        Field::new("name", "Job Name", |j| j.name.clone()),
        Field::new("vserver", "Owning Vserver", |j| j.vserver.clone()),
        Field::new("state", "State", |j| j.state.to_owned()),
        Field::new("description", "Description", |j| j.description.clone()),
        Field::new("startdate", "Start Time", |j| value::timestamp(j.at)),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Job ID"], 12),
        Column::new(&["", "Name"], 20),
        Column::new(&["Owning", "Vserver"], 10),
        Column::new(&["", "Node"], 14),
        Column::new(&["", "State"], 10),
    ];
    show::print(FIELDS, parsed, cluster.jobs(), &["id"], |all| {
        let mut out = String::new();
        for (n, job) in all.iter().enumerate() {
            let row = vec![
                job.id.to_string(),
                job.name.clone(),
                job.vserver.clone(),
                "-".to_owned(),
                job.state.to_owned(),
            ];
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

/// Runs `event log show`: the audit log, newest first.
pub fn events(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const MOST: u32 = 500;
    const FIELDS: &[Field<Event>] = &[
        Field::key("time", "Time", |e: &Event| value::event_time(e.at))
            .ordered(|e| u64::MAX - e.number),
        Field::key("node", "Node", |e| e.node.clone()),
        Field::key("severity", "Severity", |e| e.severity.to_owned()),
        Field::key("event", "Event", |e| e.text.clone()),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Time"], 19),
        Column::new(&["Node"], 16),
        Column::new(&["Severity"], 13),
        Column::new(&["Event"], 27),
    ];
    let all = cluster.events(MOST)?;
    show::print(
        FIELDS,
        parsed,
        all,
        &["time", "node", "severity", "event"],
        |all| {
            let row = |e: &Event| {
                vec![
                    value::event_time(e.at),
                    e.node.clone(),
                    e.severity.to_owned(),
                    e.text.clone(),
                ]
            };
            table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::throughput;

    #[test]
    fn throughputs_as_written() {
        const MIB: u64 = 1 << 20;
        for (text, wanted) in [
            ("100MB/s", Some((None, Some(100 * MIB)))),
            ("500iops", Some((Some(500), None))),
            ("500IOPS,2GB/s", Some((Some(500), Some(2048 * MIB)))),
            ("500", Some((Some(500), None))),
            ("INF", Some((None, None))),
            ("0iops", None),
            ("fast", None),
            ("MB/s", None),
        ] {
            assert_eq!(throughput(text), wanted, "{text}");
        }
    }
}
