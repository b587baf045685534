//! The table of commands.

use crate::grammar::{Command, Parameter};

const fn must(name: &'static str, value: &'static str) -> Parameter {
    Parameter {
        name,
        value,
        required: true,
    }
}

const fn may(name: &'static str, value: &'static str) -> Parameter {
    Parameter {
        name,
        value,
        required: false,
    }
}

const fn switch(name: &'static str) -> Parameter {
    Parameter {
        name,
        value: "",
        required: false,
    }
}

const SOURCE: Parameter = may("source-path", "SVM:volume");
const TO: Parameter = must("destination-path", "SVM:volume");
const RELATIONSHIP: &[Parameter] = &[TO, SOURCE];

const SHOW: &[Parameter] = &[
    may("source-path", "SVM:volume"),
    may("destination-path", "SVM:volume"),
    may("fields", "names"),
    switch("instance"),
    may("source-vserver", "text"),
    may("source-volume", "text"),
    may("destination-vserver", "text"),
    may("destination-volume", "text"),
    may("type", "text"),
    may("schedule", "text"),
    may("policy", "text"),
    may("policy-type", "text"),
    may("tries", "integer"),
    may("throttle", "throttle"),
    may("state", "text"),
    may("status", "text"),
    may("healthy", "true|false"),
    may("relationship-id", "UUID"),
    // Relationships of constituents too: there are none.
    may("expand", "true|false"),
];

const SNAPSHOT: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("snapshot", "text"),
];
const SNAPSHOT_LABEL: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("snapshot", "text"),
    may("snapmirror-label", "text"),
    may("comment", "text"),
];
const SNAPSHOT_RENAME: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("snapshot", "text"),
    must("new-name", "text"),
];
const SNAPSHOT_SHOW: &[Parameter] = &[
    may("vserver", "text"),
    may("volume", "text"),
    may("snapshot", "text"),
    may("fields", "names"),
    switch("instance"),
    may("snapmirror-label", "text"),
    may("size", "size"),
];
const OPTIONS: &[Parameter] = &[
    may("option-name", "text"),
    may("option-value", "text"),
    may("vserver", "text"),
    may("fields", "names"),
];
const SHARE: &[Parameter] = &[must("vserver", "text"), must("share-name", "text")];
const SHARE_CREATE: &[Parameter] = &[
    must("vserver", "text"),
    must("share-name", "text"),
    must("path", "text"),
];
const SHARE_SHOW: &[Parameter] = &[
    may("vserver", "text"),
    may("share-name", "text"),
    may("path", "text"),
    may("volume", "text"),
    may("fields", "names"),
    switch("instance"),
];
const SESSION_SHOW: &[Parameter] = &[
    may("session-id", "integer"),
    may("windows-user", "text"),
    may("address", "text"),
    may("protocol-version", "text"),
    may("fields", "names"),
    switch("instance"),
];
const VOLUME: &[Parameter] = &[must("vserver", "text"), must("volume", "text")];
const POLICY: &[Parameter] = &[must("policy", "text"), may("vserver", "text")];
const GROUP: &[Parameter] = &[
    must("policy-group", "text"),
    may("vserver", "text"),
    may("max-throughput", "throughput"),
    may("is-shared", "true|false"),
];
const QTREE: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    must("qtree", "text"),
    may("security-style", "unix"),
    may("oplock-mode", "enable"),
    may("unix-permissions", "octal digits"),
    may("export-policy", "text"),
];
const QUOTA_RULE: &[Parameter] = &[
    must("vserver", "text"),
    may("policy-name", "text"),
    must("volume", "text"),
    must("type", "tree|user|group"),
    must("target", "text"),
    may("qtree", "text"),
];
const QUOTA_LIMITS: &[Parameter] = &[
    must("vserver", "text"),
    may("policy-name", "text"),
    must("volume", "text"),
    must("type", "tree|user|group"),
    must("target", "text"),
    may("qtree", "text"),
    may("user-mapping", "on|off"),
    may("disk-limit", "size"),
    may("file-limit", "integer"),
    may("threshold", "size"),
    may("soft-disk-limit", "size"),
    may("soft-file-limit", "integer"),
];
const QUOTA_SWITCH: &[Parameter] = &[
    must("vserver", "text"),
    must("volume", "text"),
    may("foreground", "true|false"),
];

const MEASURED: &[Parameter] = &[
    may("vserver", "text"),
    may("volume", "text"),
    may("fields", "names"),
    switch("instance"),
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
        SESSION_SHOW,
    ),
    command(
        &["cifs", "share", "create"],
        "Share a volume over SMB",
        SHARE_CREATE,
    ),
    command(
        &["cifs", "share", "delete"],
        "Share a volume over SMB no more",
        SHARE,
    ),
    command(&["cifs", "share", "show"], "Shares of SMB", SHARE_SHOW),
    command(
        &["cluster", "date", "show"],
        "The node's clock",
        &[
            may("node", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(&["cluster", "identity", "show"], "Who this node is", &[]),
    command(
        &["cluster", "peer", "create"],
        "Pair with another node",
        &[
            may("cluster", "text"),
            may("peer-addrs", "host:port"),
            may("fingerprint", "SHA-256"),
            switch("generate-passphrase"),
            may("passphrase", "text"),
        ],
    ),
    command(
        &["cluster", "peer", "delete"],
        "Forget another node",
        &[must("cluster", "text")],
    ),
    command(
        &["cluster", "peer", "show"],
        "Nodes that this one is paired with",
        &[
            may("cluster", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["cluster", "show"],
        "The nodes of the cluster: this one",
        &[
            may("node", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["df"],
        "How full volumes are",
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("file-system-name", "text"),
            switch("h"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["event", "log", "show"],
        "What was done, and by whom",
        &[
            may("severity", "NOTICE|ERROR"),
            may("event", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        &[
            may("name", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["job", "show"],
        "Operations",
        &[
            may("id", "integer"),
            may("name", "text"),
            may("vserver", "text"),
            may("state", "Running|Success|Failure"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(&["options"], "Options of the cluster", OPTIONS),
    command(
        &["options", "modify"],
        "Set an option",
        &[
            must("option-name", "text"),
            must("option-value", "text"),
            may("vserver", "text"),
        ],
    ),
    command(&["options", "show"], "Options of the cluster", OPTIONS),
    command(
        &["qos", "policy-group", "create"],
        "Make a maximum that volumes refer to",
        GROUP,
    ),
    command(
        &["qos", "policy-group", "delete"],
        "Delete a maximum",
        &[must("policy-group", "text"), may("vserver", "text")],
    ),
    command(
        &["qos", "policy-group", "modify"],
        "Change a maximum",
        GROUP,
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
        &[
            may("policy-group", "text"),
            may("vserver", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["qos", "statistics", "volume", "latency", "show"],
        "How long requests take, and wait for limits",
        MEASURED,
    ),
    command(
        &["qos", "statistics", "volume", "performance", "show"],
        "Requests and bytes a second",
        MEASURED,
    ),
    command(
        &["qos", "workload", "show"],
        "Volumes and the maxima that hold them",
        &[
            may("workload", "text"),
            may("vserver", "text"),
            may("volume", "text"),
            may("policy-group", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        &[
            must("source-path", "SVM:volume"),
            TO,
            may("type", "XDP"),
            may("schedule", "text"),
            may("policy", "text"),
            may("throttle", "throttle"),
            may("tries", "integer"),
        ],
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
        &[
            may("source-path", "SVM:volume"),
            may("destination-path", "SVM:volume"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        &[
            may("vserver", "text"),
            must("policy", "text"),
            may("type", "async-mirror|vault|mirror-vault"),
            may("comment", "text"),
            may("is-network-compression-enabled", "true|false"),
        ],
    ),
    command(
        &["snapmirror", "policy", "delete"],
        "Delete a policy",
        &[may("vserver", "text"), must("policy", "text")],
    ),
    command(
        &["snapmirror", "policy", "modify"],
        "Change a policy",
        &[
            may("vserver", "text"),
            must("policy", "text"),
            may("comment", "text"),
            may("is-network-compression-enabled", "true|false"),
        ],
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
        &[
            may("vserver", "text"),
            may("policy", "text"),
            may("type", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
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
    command(&["snapmirror", "show"], "Relationships", SHOW),
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
    command(&["snapshot", "create"], "Take a snapshot", SNAPSHOT_LABEL),
    command(&["snapshot", "delete"], "Delete a snapshot", SNAPSHOT),
    command(
        &["snapshot", "modify"],
        "Change a snapshot's label",
        SNAPSHOT_LABEL,
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
    command(&["snapshot", "show"], "Snapshots", SNAPSHOT_SHOW),
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
        MEASURED,
    ),
    command(
        &["storage", "aggregate", "show"],
        "Storage pools",
        &[
            may("aggregate", "text"),
            may("vserver", "text"),
            may("state", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["storage", "aggregate", "show-space"],
        "What the volumes of storage pools hold",
        &[
            may("aggregate-name", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["storage", "failover", "show"],
        "The pair that this node is one of",
        &[
            may("node", "text"),
            may("partner-name", "text"),
            may("possible", "true|false"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["storage", "failover", "takeover"],
        "Have the partner serve in place of this node",
        &[must("ofnode", "text")],
    ),
    command(
        &["storage", "failover", "giveback"],
        "Have the partner serve again",
        &[must("ofnode", "text")],
    ),
    command(
        &["system", "node", "show"],
        "The node",
        &[
            may("node", "text"),
            may("health", "true|false"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        &[
            must("vserver", "text"),
            must("volume", "text"),
            may("aggregate", "text"),
            must("size", "size"),
            may("type", "RW|DP"),
            may("junction-path", "path"),
            may("state", "online|offline"),
            may("comment", "text"),
            may("policy", "text"),
            may("snapshot-policy", "text"),
            may("qos-policy-group", "text"),
            may("unix-permissions", "octal"),
            may("snapdir-access", "true|false"),
            may("percent-snapshot-space", "percent"),
        ],
    ),
    command(
        &["volume", "delete"],
        "Delete a volume",
        &[must("vserver", "text"), must("volume", "text")],
    ),
    command(
        &["volume", "footprint", "show"],
        "What volumes take of their pools",
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["volume", "modify"],
        "Change a volume's settings",
        &[
            must("vserver", "text"),
            must("volume", "text"),
            may("size", "size"),
            may("state", "online|offline"),
            may("comment", "text"),
            may("policy", "text"),
            may("snapshot-policy", "text"),
            may("qos-policy-group", "text"),
            may("unix-permissions", "octal"),
            may("snapdir-access", "true|false"),
            may("percent-snapshot-space", "percent"),
        ],
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
        &["volume", "offline"],
        "Take a volume out of service",
        VOLUME,
    ),
    command(&["volume", "online"], "Serve a volume again", VOLUME),
    command(&["volume", "qtree", "create"], "Make a qtree", QTREE),
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
    command(&["volume", "qtree", "modify"], "Change a qtree", QTREE),
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
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("qtree", "text"),
            may("security-style", "unix|ntfs"),
            may("oplock-mode", "enable"),
            may("unix-permissions", "text"),
            may("id", "integer"),
            may("status", "normal"),
            may("export-policy", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        QUOTA_LIMITS,
    ),
    command(
        &["volume", "quota", "policy", "rule", "delete"],
        "Delete a quota rule",
        QUOTA_RULE,
    ),
    command(
        &["volume", "quota", "policy", "rule", "modify"],
        "Change the limits of a quota rule",
        QUOTA_LIMITS,
    ),
    command(
        &["volume", "quota", "policy", "rule", "show"],
        "Quota rules",
        &[
            may("vserver", "text"),
            may("policy-name", "text"),
            may("volume", "text"),
            may("type", "tree|user|group"),
            may("target", "text"),
            may("qtree", "text"),
            may("user-mapping", "on|off"),
            may("disk-limit", "size"),
            may("file-limit", "integer"),
            may("threshold", "size"),
            may("soft-disk-limit", "size"),
            may("soft-file-limit", "integer"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["volume", "quota", "report"],
        "Usage and limits of users, groups and qtrees",
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("index", "integer"),
            may("tree", "text"),
            may("quota-type", "tree|user|group"),
            may("quota-target", "text"),
            may("disk-used", "size"),
            may("disk-limit", "size"),
            may("files-used", "integer"),
            may("file-limit", "integer"),
            may("threshold", "size"),
            may("soft-disk-limit", "size"),
            may("soft-file-limit", "integer"),
            may("quota-specifier", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
    command(
        &["volume", "quota", "resize"],
        "Make changed quota rules hold; they do at once",
        QUOTA_SWITCH,
    ),
    command(
        &["volume", "quota", "show"],
        "State of the volumes' quotas",
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("state", "on|off|initializing"),
            may("fields", "names"),
            switch("instance"),
        ],
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
        &[
            may("vserver", "text"),
            may("volume", "text"),
            may("fields", "names"),
            switch("instance"),
            may("type", "RW|DP"),
            may("aggregate", "text"),
            may("state", "online|offline"),
            may("junction-path", "path"),
            may("policy", "text"),
            may("snapshot-policy", "text"),
            may("qos-policy-group", "text"),
        ],
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
        SNAPSHOT_LABEL,
    ),
    command(
        &["volume", "snapshot", "delete"],
        "Delete a snapshot",
        SNAPSHOT,
    ),
    command(
        &["volume", "snapshot", "modify"],
        "Change a snapshot's label",
        SNAPSHOT_LABEL,
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
        &[
            must("policy", "text"),
            may("vserver", "text"),
            may("enabled", "true|false"),
            may("comment", "text"),
            may("schedule1", "text"),
            may("count1", "integer"),
            may("prefix1", "text"),
            may("snapmirror-label1", "text"),
            may("schedule2", "text"),
            may("count2", "integer"),
            may("prefix2", "text"),
            may("snapmirror-label2", "text"),
            may("schedule3", "text"),
            may("count3", "integer"),
            may("prefix3", "text"),
            may("snapmirror-label3", "text"),
            may("schedule4", "text"),
            may("count4", "integer"),
            may("prefix4", "text"),
            may("snapmirror-label4", "text"),
            may("schedule5", "text"),
            may("count5", "integer"),
            may("prefix5", "text"),
            may("snapmirror-label5", "text"),
        ],
    ),
    command(
        &["volume", "snapshot", "policy", "delete"],
        "Delete a snapshot policy",
        POLICY,
    ),
    command(
        &["volume", "snapshot", "policy", "modify"],
        "Change a snapshot policy",
        &[
            must("policy", "text"),
            may("vserver", "text"),
            may("enabled", "true|false"),
            may("comment", "text"),
        ],
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
        &[
            may("policy", "text"),
            may("vserver", "text"),
            may("enabled", "true|false"),
            may("fields", "names"),
            switch("instance"),
        ],
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
    command(&["volume", "snapshot", "show"], "Snapshots", SNAPSHOT_SHOW),
    command(&["volume", "unmount"], "Take a volume's path away", VOLUME),
    command(
        &["vserver", "cifs", "session", "show"],
        "Sessions over SMB",
        SESSION_SHOW,
    ),
    command(
        &["vserver", "cifs", "share", "create"],
        "Share a volume over SMB",
        SHARE_CREATE,
    ),
    command(
        &["vserver", "cifs", "share", "delete"],
        "Share a volume over SMB no more",
        SHARE,
    ),
    command(
        &["vserver", "cifs", "share", "show"],
        "Shares of SMB",
        SHARE_SHOW,
    ),
    command(
        &["vserver", "show"],
        "Projects",
        &[
            may("vserver", "text"),
            may("fields", "names"),
            switch("instance"),
        ],
    ),
];
