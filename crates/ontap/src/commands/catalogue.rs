//! The table of commands. What they show and set comes from the tables of fields.

use super::{cifs, export as export_policy, failover, moves, node, statistics, storage};
use crate::fields::{
    aggregate, export, identity, mirror_policy, options, peer, qos, qtree, quota, relationship,
    schedule, share, snapshot, snapshot_policy, svm, svm_peer, volume,
};
use crate::grammar::{Command, Parameter, may, must, switch};

const SOURCE: Parameter = may("source-path", "SVM:volume");
const TO: Parameter = must("destination-path", "SVM:volume");
const RELATIONSHIP: &[Parameter] = &[TO, SOURCE];

const SNAPSHOT: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("snapshot", "text"),
];
const SNAPSHOT_RENAME: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("snapshot", "text"),
    must("new-name", "text"),
];
const SHARE: &[Parameter] = &[must("vserver", "text"), must("share-name", "text")];
const EXPORT_POLICY: &[Parameter] = &[must("vserver", "text"), must("policyname", "text")];
const ACCESS: [Parameter; 7] = [
    must("vserver", "text"),
    must("volume", "text"),
    must("client-ip", "IP Address"),
    must("authentication-method", "none|sys|krb5|krb5i|krb5p"),
    must("protocol", "nfs3|nfs4"),
    must("access-type", "read|read-write"),
    may("qtree", "text"),
];
const VOLUME: &[Parameter] = &[must("vserver", "text"), must("volume", "text")];
const QUOTA_RULE: &[Parameter] = &[
    must("vserver", "text"),
    may("policy-name", "text"),
    must("volume", "text"),
    must("type", "tree|user|group"),
    must("target", "text"),
    may("qtree", "text"),
];
const QUOTA_SWITCH: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    may("foreground", "true|false"),
];

const RULE: &[Parameter] = &[
    may("vserver", "text"),
    must("policy", "text"),
    must("snapmirror-label", "text"),
    must("keep", "integer"),
    may("preserve", "true|false"),
    may("schedule", "text"),
    may("prefix", "text"),
];

/// Schedules of a snapshot policy that is created.
const SCHEDULES: [Parameter; 20] = {
    const NAMES: [[&str; 4]; 5] = [
        ["schedule1", "count1", "prefix1", "snapmirror-label1"],
        ["schedule2", "count2", "prefix2", "snapmirror-label2"],
        ["schedule3", "count3", "prefix3", "snapmirror-label3"],
        ["schedule4", "count4", "prefix4", "snapmirror-label4"],
        ["schedule5", "count5", "prefix5", "snapmirror-label5"],
    ];
    let mut all = [switch(""); 20];
    let mut at = 0;
    while at < all.len() {
        let kind = if at % 4 == 1 { "integer" } else { "text" };
        all[at] = may(NAMES[at / 4][at % 4], kind);
        at += 1;
    }
    all
};

const fn command(
    path: &'static [&'static str],
    about: &'static str,
    parameters: &'static [Parameter],
) -> Command {
    Command {
        path,
        about,
        parameters,
    }
}

/// All commands, sorted by their words.
pub const COMMANDS: &[Command] = &[
    command(
        &["cifs", "session", "show"],
        "Sessions over SMB",
        options!(cifs::SESSIONS, Show),
    ),
    command(
        &["cifs", "share", "create"],
        "Share a volume over SMB",
        options!(share::FIELDS, Create),
    ),
    command(
        &["cifs", "share", "delete"],
        "Share a volume over SMB no more",
        SHARE,
    ),
    command(
        &["cifs", "share", "show"],
        "Shares of SMB",
        options!(share::FIELDS, Show),
    ),
    command(
        &["cluster", "date", "show"],
        "The node's clock",
        options!(node::DATE, Show),
    ),
    command(
        &["cluster", "identity", "show"],
        "Who this node is",
        options!(identity::FIELDS, Show),
    ),
    command(
        &["cluster", "peer", "create"],
        "Pair with another node",
        options!(
            peer::FIELDS,
            Create,
            [],
            [switch("generate-passphrase"), may("passphrase", "text")]
        ),
    ),
    command(
        &["cluster", "peer", "delete"],
        "Forget another node",
        &[must("cluster", "text")],
    ),
    command(
        &["cluster", "peer", "show"],
        "Nodes that this one is paired with",
        options!(peer::FIELDS, Show),
    ),
    command(
        &["cluster", "show"],
        "The nodes of the cluster: this one",
        options!(node::MEMBERS, Show),
    ),
    command(
        &["df"],
        "How full volumes are",
        options!(
            storage::DF,
            Show,
            ["vserver", "volume", "file-system-name"],
            [switch("h")]
        ),
    ),
    command(
        &["event", "log", "show"],
        "What was done, and by whom",
        options!(storage::EVENTS, Show, ["severity", "event"]),
    ),
    command(
        &["job", "schedule", "cron", "create"],
        "Make a schedule of times",
        &[
            must("name", "text"),
            must("minute", "numbers"),
            may("hour", "numbers"),
            may("day", "numbers"),
            may("month", "numbers"),
            may("dayofweek", "numbers"),
        ],
    ),
    command(
        &["job", "schedule", "delete"],
        "Delete a schedule",
        &[must("name", "text")],
    ),
    command(
        &["job", "schedule", "interval", "create"],
        "Make a schedule of even intervals",
        &[
            must("name", "text"),
            may("days", "integer"),
            may("hours", "integer"),
            may("minutes", "integer"),
            may("seconds", "integer"),
        ],
    ),
    command(
        &["job", "schedule", "show"],
        "Schedules",
        options!(schedule::FIELDS, Show),
    ),
    command(
        &["job", "show"],
        "Operations",
        options!(storage::JOBS, Show, ["id", "name", "vserver", "state"]),
    ),
    command(
        &["options"],
        "Options of the cluster",
        options!(
            super::options::FIELDS,
            Show,
            ["option-name", "option-value"]
        ),
    ),
    command(
        &["options", "modify"],
        "Set an option",
        &[
            must("option-name", "text"),
            must("option-value", "text"),
            may("vserver", "text"),
        ],
    ),
    command(
        &["options", "show"],
        "Options of the cluster",
        options!(
            super::options::FIELDS,
            Show,
            ["option-name", "option-value"]
        ),
    ),
    command(
        &["qos", "policy-group", "create"],
        "Make a maximum that volumes refer to",
        options!(qos::FIELDS, Create),
    ),
    command(
        &["qos", "policy-group", "delete"],
        "Delete a maximum",
        &[must("policy-group", "text"), may("vserver", "text")],
    ),
    command(
        &["qos", "policy-group", "modify"],
        "Change a maximum",
        options!(qos::FIELDS, Modify),
    ),
    command(
        &["qos", "policy-group", "rename"],
        "Rename a maximum",
        &[
            must("policy-group", "text"),
            may("vserver", "text"),
            must("new-name", "text"),
        ],
    ),
    command(
        &["qos", "policy-group", "show"],
        "Maxima that volumes refer to",
        options!(qos::FIELDS, Show, ["policy-group", "vserver"]),
    ),
    command(
        &["qos", "statistics", "volume", "latency", "show"],
        "How long requests take, and wait for limits",
        options!(statistics::FIELDS, Show),
    ),
    command(
        &["qos", "statistics", "volume", "performance", "show"],
        "Requests and bytes a second",
        options!(statistics::FIELDS, Show),
    ),
    command(
        &["qos", "workload", "show"],
        "Volumes and the maxima that hold them",
        options!(storage::WORKLOADS, Show),
    ),
    command(
        &["snapmirror", "abort"],
        "End a transfer; its checkpoint stays",
        &[TO, SOURCE, switch("hard")],
    ),
    command(
        &["snapmirror", "break"],
        "Make a destination writable",
        RELATIONSHIP,
    ),
    command(
        &["snapmirror", "create"],
        "Make a relationship",
        options!(relationship::FIELDS, Create),
    ),
    command(
        &["snapmirror", "delete"],
        "Delete a relationship",
        RELATIONSHIP,
    ),
    command(
        &["snapmirror", "initialize"],
        "Transfer everything for the first time",
        &[
            TO,
            SOURCE,
            may("source-snapshot", "text"),
            may("throttle", "throttle"),
            may("type", "XDP"),
            may("policy", "text"),
            may("schedule", "text"),
        ],
    ),
    command(
        &["snapmirror", "list-destinations"],
        "Relationships whose source is here",
        options!(relationship::FIELDS, Show),
    ),
    command(
        &["snapmirror", "modify"],
        "Change a relationship",
        &[
            TO,
            SOURCE,
            may("schedule", "text"),
            may("policy", "text"),
            may("tries", "integer"),
            may("throttle", "throttle"),
        ],
    ),
    command(
        &["snapmirror", "policy", "add-rule"],
        "Add a rule to a policy",
        RULE,
    ),
    command(
        &["snapmirror", "policy", "create"],
        "Make a policy",
        options!(mirror_policy::FIELDS, Create),
    ),
    command(
        &["snapmirror", "policy", "delete"],
        "Delete a policy",
        &[may("vserver", "text"), must("policy", "text")],
    ),
    command(
        &["snapmirror", "policy", "modify"],
        "Change a policy",
        options!(mirror_policy::FIELDS, Modify),
    ),
    command(
        &["snapmirror", "policy", "modify-rule"],
        "Change a rule of a policy",
        RULE,
    ),
    command(
        &["snapmirror", "policy", "remove-rule"],
        "Take a rule away",
        &[
            may("vserver", "text"),
            must("policy", "text"),
            must("snapmirror-label", "text"),
        ],
    ),
    command(
        &["snapmirror", "policy", "show"],
        "Policies",
        options!(mirror_policy::FIELDS, Show),
    ),
    command(
        &["snapmirror", "quiesce"],
        "Let a transfer finish, then rest",
        RELATIONSHIP,
    ),
    command(
        &["snapmirror", "release"],
        "Forget a destination, at the source",
        RELATIONSHIP,
    ),
    command(
        &["snapmirror", "restore"],
        "Transfer from a copy into a volume",
        &[
            must("source-path", "SVM:volume"),
            TO,
            may("source-snapshot", "text"),
            may("throttle", "throttle"),
            may("file-list", "paths"),
        ],
    ),
    command(&["snapmirror", "resume"], "End the rest", RELATIONSHIP),
    command(
        &["snapmirror", "resync"],
        "Make a broken-off destination a copy again",
        &[
            TO,
            SOURCE,
            may("quick-resync", "true|false"),
            may("policy", "text"),
            may("type", "XDP"),
        ],
    ),
    command(
        &["snapmirror", "show"],
        "Relationships",
        options!(
            relationship::FIELDS,
            Show,
            [],
            [may("expand", "true|false")]
        ),
    ),
    command(
        &["snapmirror", "update"],
        "Transfer the difference now",
        &[
            TO,
            SOURCE,
            may("source-snapshot", "text"),
            may("throttle", "throttle"),
        ],
    ),
    command(
        &["snapshot", "create"],
        "Take a snapshot",
        options!(snapshot::FIELDS, Create),
    ),
    command(&["snapshot", "delete"], "Delete a snapshot", SNAPSHOT),
    command(
        &["snapshot", "modify"],
        "Change a snapshot's label",
        options!(snapshot::FIELDS, Modify),
    ),
    command(
        &["snapshot", "rename"],
        "Rename a snapshot",
        SNAPSHOT_RENAME,
    ),
    command(
        &["snapshot", "restore"],
        "Make the volume what it was then",
        SNAPSHOT,
    ),
    command(
        &["snapshot", "show"],
        "Snapshots",
        options!(snapshot::FIELDS, Show),
    ),
    command(
        &["statistics", "show"],
        "Counters of volumes",
        &[
            may("object", "volume"),
            may("instance", "text"),
            may("counter", "text"),
            may("vserver", "text"),
        ],
    ),
    command(
        &["statistics", "volume", "show"],
        "What volumes do",
        options!(statistics::FIELDS, Show),
    ),
    command(
        &["storage", "aggregate", "relocation", "show"],
        "Aggregates of the cluster and their nodes",
        options!(failover::SERVED, Show),
    ),
    command(
        &["storage", "aggregate", "relocation", "start"],
        "Have another node of the cluster serve an aggregate",
        &[
            must("node", "text"),
            must("destination", "text"),
            must("aggregate-list", "text"),
        ],
    ),
    command(
        &["storage", "aggregate", "show"],
        "Storage pools",
        options!(aggregate::FIELDS, Show, ["aggregate", "vserver", "state"]),
    ),
    command(
        &["storage", "aggregate", "show-space"],
        "What the volumes of storage pools hold",
        options!(storage::SPACE, Show),
    ),
    command(
        &["storage", "failover", "show"],
        "The pair or the cluster that this node is one of",
        options!(failover::FIELDS, Show),
    ),
    command(
        &["storage", "failover", "takeover"],
        "Have others serve in place of a node",
        &[must("ofnode", "text")],
    ),
    command(
        &["storage", "failover", "giveback"],
        "Have a node serve again",
        &[must("ofnode", "text")],
    ),
    command(
        &["system", "node", "show"],
        "The node",
        options!(crate::fields::node::FIELDS, Show),
    ),
    command(&["version"], "What this is", &[]),
    command(
        &["volume", "clone", "create"],
        "Make a writable volume of a snapshot",
        &[
            must("vserver", "text"),
            must("flexclone", "text"),
            must("parent-volume", "text"),
            may("parent-snapshot", "text"),
            may("junction-path", "path"),
            may("comment", "text"),
            may("qos-policy-group", "text"),
        ],
    ),
    command(
        &["volume", "clone", "split", "start"],
        "Let a clone share nothing with its parent",
        &[must("vserver", "text"), must("flexclone", "text")],
    ),
    command(
        &["volume", "create"],
        "Make a volume",
        options!(
            volume::FIELDS,
            Create,
            ["vserver", "volume", "aggregate", "size"]
        ),
    ),
    command(
        &["volume", "delete"],
        "Delete a volume",
        &[must("vserver", "text"), must("volume", "text")],
    ),
    command(
        &["volume", "footprint", "show"],
        "What volumes take of their pools",
        options!(volume::FIELDS, Show),
    ),
    command(
        &["volume", "modify"],
        "Change a volume's settings",
        options!(volume::FIELDS, Modify),
    ),
    command(
        &["volume", "mount"],
        "Give a volume a path",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("junction-path", "path"),
        ],
    ),
    command(
        &["volume", "move", "abort"],
        "End the move of a volume, which stays",
        VOLUME,
    ),
    command(
        &["volume", "move", "show"],
        "Volumes that are being moved to other aggregates",
        options!(moves::FIELDS, Show),
    ),
    command(
        &["volume", "move", "start"],
        "Move a volume to another aggregate while clients use it",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("destination-aggregate", "text"),
        ],
    ),
    command(
        &["volume", "offline"],
        "Take a volume out of service",
        VOLUME,
    ),
    command(&["volume", "online"], "Serve a volume again", VOLUME),
    command(
        &["volume", "qtree", "create"],
        "Make a qtree",
        options!(qtree::FIELDS, Create),
    ),
    command(
        &["volume", "qtree", "delete"],
        "Delete a qtree with all that is in it",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("qtree", "text"),
            may("force", "true|false"),
            may("foreground", "true|false"),
        ],
    ),
    command(
        &["volume", "qtree", "modify"],
        "Change a qtree",
        options!(qtree::FIELDS, Modify),
    ),
    command(
        &["volume", "qtree", "rename"],
        "Rename a qtree",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("qtree", "text"),
            must("newname", "text"),
        ],
    ),
    command(
        &["volume", "qtree", "show"],
        "Qtrees",
        options!(qtree::FIELDS, Show),
    ),
    command(
        &["volume", "quota", "modify"],
        "Switch a volume's quotas on or off",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("state", "on|off|resize"),
            may("foreground", "true|false"),
        ],
    ),
    command(
        &["volume", "quota", "off"],
        "Enforce a volume's quotas no more",
        QUOTA_SWITCH,
    ),
    command(
        &["volume", "quota", "on"],
        "Enforce a volume's quotas again",
        QUOTA_SWITCH,
    ),
    command(
        &["volume", "quota", "policy", "rule", "create"],
        "Limit users, groups or qtrees of a volume",
        options!(quota::FIELDS, Create),
    ),
    command(
        &["volume", "quota", "policy", "rule", "delete"],
        "Delete a quota rule",
        QUOTA_RULE,
    ),
    command(
        &["volume", "quota", "policy", "rule", "modify"],
        "Change the limits of a quota rule",
        options!(quota::FIELDS, Modify),
    ),
    command(
        &["volume", "quota", "policy", "rule", "show"],
        "Quota rules",
        options!(quota::FIELDS, Show),
    ),
    command(
        &["volume", "quota", "report"],
        "Usage and limits of users, groups and qtrees",
        options!(quota::REPORT, Show),
    ),
    command(
        &["volume", "quota", "resize"],
        "Make changed quota rules hold; they do at once",
        QUOTA_SWITCH,
    ),
    command(
        &["volume", "quota", "show"],
        "State of the volumes' quotas",
        options!(super::quota::STATES, Show),
    ),
    command(
        &["volume", "rename"],
        "Rename a volume",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            must("newname", "text"),
        ],
    ),
    command(
        &["volume", "show"],
        "Volumes",
        options!(volume::FIELDS, Show),
    ),
    command(
        &["volume", "size"],
        "Show or set a volume's capacity",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            may("new-size", "size"),
        ],
    ),
    command(
        &["volume", "snapshot", "create"],
        "Take a snapshot",
        options!(snapshot::FIELDS, Create),
    ),
    command(
        &["volume", "snapshot", "delete"],
        "Delete a snapshot",
        SNAPSHOT,
    ),
    command(
        &["volume", "snapshot", "modify"],
        "Change a snapshot's label",
        options!(snapshot::FIELDS, Modify),
    ),
    command(
        &["volume", "snapshot", "policy", "add-schedule"],
        "Add a schedule to a snapshot policy",
        &[
            must("policy", "text"),
            may("vserver", "text"),
            must("schedule", "text"),
            must("count", "integer"),
            may("snapmirror-label", "text"),
        ],
    ),
    command(
        &["volume", "snapshot", "policy", "create"],
        "Make a snapshot policy",
        options!(
            snapshot_policy::FIELDS,
            Create,
            ["policy", "vserver"],
            SCHEDULES
        ),
    ),
    command(
        &["volume", "snapshot", "policy", "delete"],
        "Delete a snapshot policy",
        &[must("policy", "text"), may("vserver", "text")],
    ),
    command(
        &["volume", "snapshot", "policy", "modify"],
        "Change a snapshot policy",
        options!(snapshot_policy::FIELDS, Modify, ["policy", "vserver"]),
    ),
    command(
        &["volume", "snapshot", "policy", "modify-schedule"],
        "Change how many a schedule keeps",
        &[
            must("policy", "text"),
            may("vserver", "text"),
            must("schedule", "text"),
            must("newcount", "integer"),
        ],
    ),
    command(
        &["volume", "snapshot", "policy", "remove-schedule"],
        "Take a schedule from a snapshot policy",
        &[
            must("policy", "text"),
            may("vserver", "text"),
            must("schedule", "text"),
        ],
    ),
    command(
        &["volume", "snapshot", "policy", "show"],
        "Snapshot policies",
        options!(snapshot_policy::FIELDS, Show, ["policy", "vserver"]),
    ),
    command(
        &["volume", "snapshot", "rename"],
        "Rename a snapshot",
        SNAPSHOT_RENAME,
    ),
    command(
        &["volume", "snapshot", "restore"],
        "Make the volume what it was then",
        SNAPSHOT,
    ),
    command(
        &["volume", "snapshot", "show"],
        "Snapshots",
        options!(snapshot::FIELDS, Show),
    ),
    command(&["volume", "unmount"], "Take a volume's path away", VOLUME),
    command(
        &["vserver", "cifs", "session", "show"],
        "Sessions over SMB",
        options!(cifs::SESSIONS, Show),
    ),
    command(
        &["vserver", "cifs", "share", "create"],
        "Share a volume over SMB",
        options!(share::FIELDS, Create),
    ),
    command(
        &["vserver", "cifs", "share", "delete"],
        "Share a volume over SMB no more",
        SHARE,
    ),
    command(
        &["vserver", "cifs", "share", "show"],
        "Shares of SMB",
        options!(share::FIELDS, Show),
    ),
    command(
        &["vserver", "export-policy", "check-access"],
        "Check which rules admit a client to a volume or qtree",
        options!(export_policy::ACCESS, Show, [], ACCESS),
    ),
    command(
        &["vserver", "export-policy", "create"],
        "Make an export policy",
        options!(export::FIELDS, Create),
    ),
    command(
        &["vserver", "export-policy", "delete"],
        "Delete an export policy",
        EXPORT_POLICY,
    ),
    command(
        &["vserver", "export-policy", "rename"],
        "Rename an export policy",
        &[
            must("vserver", "text"),
            must("policyname", "text"),
            must("newpolicyname", "text"),
        ],
    ),
    command(
        &["vserver", "export-policy", "rule", "create"],
        "Admit clients by an export policy",
        options!(export::RULE, Create),
    ),
    command(
        &["vserver", "export-policy", "rule", "delete"],
        "Delete a rule of an export policy",
        &[
            must("vserver", "text"),
            must("policyname", "text"),
            must("ruleindex", "integer"),
        ],
    ),
    command(
        &["vserver", "export-policy", "rule", "modify"],
        "Change a rule of an export policy",
        options!(export::RULE, Modify),
    ),
    command(
        &["vserver", "export-policy", "rule", "setindex"],
        "Move a rule of an export policy to another place",
        &[
            must("vserver", "text"),
            must("policyname", "text"),
            must("ruleindex", "integer"),
            must("newruleindex", "integer"),
        ],
    ),
    command(
        &["vserver", "export-policy", "rule", "show"],
        "Rules of export policies",
        options!(export::RULE, Show),
    ),
    command(
        &["vserver", "export-policy", "show"],
        "Export policies",
        options!(export::FIELDS, Show),
    ),
    command(
        &["vserver", "peer", "show"],
        "Machines that relationships lead between",
        options!(svm_peer::FIELDS, Show),
    ),
    command(
        &["vserver", "show"],
        "Projects",
        options!(svm::FIELDS, Show),
    ),
];
