//! Replies of Weir's own paths, for their document.
//!
//! The paths, their parameters and bodies come from the route table and the message tables. Replies
//! are made field by field where they are served, so their shape is stated here. The conformance
//! tests compare it with what a server replies.

use serde_json::{Map, Value, json};

use crate::route::Action;

/// Shape of a field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Time,
    Flag,
    /// A number of any kind.
    Number,
    Integer,
    /// An int64, which travels as a string.
    Int64,
    /// An object whose fields are open.
    Open,
    /// A list of texts.
    Texts,
    /// A list of anything.
    Anything,
    /// Another object, by its name.
    One(&'static str),
    /// A list of such.
    Many(&'static str),
}

use Shape::{Anything, Flag, Int64, Integer, Many, Number, One, Open, Text, Texts, Time as Stamp};

/// An object: its name, and its fields. A field whose name ends in `?` may be absent.
type Object = (&'static str, &'static [(&'static str, Shape)]);

/// The objects of replies.
const OBJECTS: &[Object] = &[
    (
        "AuditEntry",
        &[
            ("time", Stamp),
            ("actor", Text),
            ("address?", Text),
            ("method", Text),
            ("resource", Text),
            ("outcome", Text),
        ],
    ),
    ("TokenList", &[("tokens", Many("Token"))]),
    (
        "AuditEntryList",
        &[
            ("auditEntries", Many("AuditEntry")),
            ("nextPageToken?", Text),
        ],
    ),
    (
        "Condition",
        &[
            ("kind", Text),
            ("severity", Text),
            ("resource", Text),
            ("since", Stamp),
            ("message", Text),
            ("action", Text),
            ("command?", Text),
            ("details?", Open),
        ],
    ),
    (
        "ConditionReport",
        &[
            ("time", Stamp),
            ("headline", Text),
            ("severity", Text),
            ("volumes", Integer),
            ("volumesWaiting", Integer),
            ("conditions", Many("Condition")),
            ("omitted?", Integer),
        ],
    ),
    ("Headline", &[("page", Text), ("headline", Text)]),
    (
        "History",
        &[
            ("kind", Text),
            ("resource", Text),
            ("stepSeconds", Integer),
            ("startEpochSeconds", Integer),
            ("endEpochSeconds", Integer),
            ("limits", Texts),
            ("figures", Open),
        ],
    ),
    (
        "Latency",
        &[
            ("kind", Text),
            ("resource", Text),
            ("stepSeconds", Integer),
            ("startEpochSeconds", Integer),
            ("endEpochSeconds", Integer),
            ("upperSeconds", Anything),
            ("operations", Anything),
            ("operationSeconds", Anything),
            ("waitSeconds", Open),
            ("headline", Text),
            ("details", Text),
            ("recent", One("LatencyRecent")),
        ],
    ),
    (
        "LatencyRecent",
        &[
            ("seconds", Integer),
            ("operations", Number),
            ("meanSeconds", Number),
            ("waitSeconds", Open),
        ],
    ),
    (
        "LimitChange",
        &[
            ("time", Stamp),
            ("actor", Text),
            ("resource", Text),
            ("fromBytesPerSecond", Number),
            ("toBytesPerSecond", Number),
        ],
    ),
    (
        "LimitChangeList",
        &[("resource", Text), ("changes", Many("LimitChange"))],
    ),
    (
        "PairCost",
        &[
            ("changes", Integer),
            ("meanSeconds", Number),
            ("p99Seconds", Number),
        ],
    ),
    ("PairDetail", &[("name", Text), ("value", Text)]),
    (
        "Pair",
        &[
            ("configured", Flag),
            ("side?", Text),
            ("partner?", Text),
            ("role?", Text),
            ("state?", Text),
            ("serving?", Flag),
            ("inSync?", Flag),
            ("partnerConnected?", Flag),
            ("synchronising?", Flag),
            ("term?", Integer),
            ("lagBytes?", Integer),
            ("behindSeconds?", Integer),
            ("roundTripSeconds?", Number),
            ("sentPerWritten?", Number),
            ("trouble?", Text),
            ("cost?", One("PairCost")),
            ("headline?", Text),
            ("witness?", One("PairWitness")),
            ("takeoverSeconds?", Number),
            ("details?", Many("PairDetail")),
        ],
    ),
    (
        "PairWitness",
        &[
            ("address", Text),
            ("repliedSecondsAgo?", Number),
            ("trouble?", Text),
        ],
    ),
    ("SwitchedPair", &[("validateOnly?", Flag)]),
    ("ServerAddress", &[("protocol", Text), ("address", Text)]),
    (
        "ServerCertificate",
        &[
            ("use", Text),
            ("notBefore", Stamp),
            ("notAfter", Stamp),
            ("daysLeft", Integer),
        ],
    ),
    (
        "ServerMemory",
        &[("budgetBytes", Integer), ("residentBytes?", Integer)],
    ),
    (
        "Aggregate",
        &[
            ("id", Text),
            ("sizeBytes", Integer),
            ("usedBytes", Integer),
            ("freeBytes", Integer),
            ("provisionedBytes", Integer),
            ("readOnly", Flag),
        ],
    ),
    (
        "Caller",
        &[("name", Text), ("role", Text), ("mayChange", Flag)],
    ),
    (
        "Server",
        &[
            ("version", Text),
            ("time", Stamp),
            ("startTime", Stamp),
            ("uptimeSeconds", Integer),
            ("node", Text),
            ("addresses", Many("ServerAddress")),
            ("protocols", Texts),
            ("certificates", Many("ServerCertificate")),
            ("memory", One("ServerMemory")),
            ("dataFolder", Text),
            ("aggregate", One("Aggregate")),
            ("caller", One("Caller")),
        ],
    ),
    (
        "BenchmarkTarget",
        &[("label", Text), ("protocol", Text), ("generator", Text)],
    ),
    (
        "BenchmarkComparison",
        &[
            ("name?", Text),
            ("figures", Integer),
            ("reached", Integer),
            ("leastRatio", Number),
            ("greatestRatio", Number),
        ],
    ),
    ("PublishedFigure", &[("name", Text), ("value", Number)]),
    (
        "BenchmarkRow",
        &[
            ("column", Text),
            ("side", Text),
            ("value", Number),
            ("least", Number),
            ("greatest", Number),
            ("p99Seconds?", Number),
            ("boundBy", Texts),
            ("durability", Text),
            ("published", Many("PublishedFigure")),
        ],
    ),
    (
        "BenchmarkTable",
        &[
            ("heading", Text),
            ("load", Text),
            ("axis", Text),
            ("unit", Text),
            ("rows", Many("BenchmarkRow")),
        ],
    ),
    (
        "Benchmark",
        &[
            ("name", Text),
            ("headline", Text),
            ("title", Text),
            ("label", Text),
            ("definition", Text),
            ("startTime", Stamp),
            ("endTime", Stamp),
            ("state", Text),
            ("targets", Many("BenchmarkTarget")),
            ("hasReport", Flag),
            ("publishedSet?", Text),
            ("publishedClients?", Integer),
            ("publishedCores?", Integer),
            ("comparison?", One("BenchmarkComparison")),
            ("comparisonPerCore?", One("BenchmarkComparison")),
            ("tiers?", Many("BenchmarkComparison")),
            ("tool?", Text),
            ("command?", Text),
            ("clients?", Integer),
            ("cores?", Integer),
            ("repetitions?", Integer),
            ("warnings?", Texts),
            ("tables?", Many("BenchmarkTable")),
        ],
    ),
    ("UnreadableBenchmark", &[("name", Text), ("message", Text)]),
    (
        "BenchmarkList",
        &[
            ("headline", Text),
            ("folder", Text),
            ("benchmarks", Many("Benchmark")),
            ("unreadable", Many("UnreadableBenchmark")),
            ("omitted?", Integer),
        ],
    ),
    (
        "FileState",
        &[("type", Text), ("sizeBytes", Int64), ("modifyTime", Stamp)],
    ),
    (
        "FileVersion",
        &[
            ("type", Text),
            ("sizeBytes", Int64),
            ("modifyTime", Stamp),
            ("firstSnapshot", Text),
            ("firstSnapshotTime?", Stamp),
            ("lastSnapshot", Text),
            ("lastSnapshotTime?", Stamp),
            ("snapshotCount", Integer),
            ("inLiveVolume", Flag),
        ],
    ),
    (
        "FileVersions",
        &[
            ("path", Text),
            ("pathBytes?", Text),
            ("live?", One("FileState")),
            ("versions", Many("FileVersion")),
            ("searchedSnapshots", Integer),
            ("omittedVersions?", Integer),
        ],
    ),
    (
        "RestoredFile",
        &[
            ("path", Text),
            ("pathBytes?", Text),
            ("type", Text),
            ("sizeBytes", Int64),
            ("modifyTime", Stamp),
        ],
    ),
    (
        "LiveRows",
        &[
            ("epochSeconds", Integer),
            ("columns?", Texts),
            ("limits?", Texts),
            ("names?", Anything),
            ("rows", Anything),
            ("gone?", Anything),
        ],
    ),
];

/// Returns the description of an action of Weir's own, and the name of the object that it replies
/// with; `None` if it is not one.
pub fn about(action: Action) -> Option<(&'static str, &'static str)> {
    Some(match action {
        Action::ListTokens => ("Lists the tokens, without their secrets", "TokenList"),
        Action::CreateToken => (
            "Makes a token; the reply has its secret, which is not shown again",
            "Token",
        ),
        Action::DeleteToken => ("Revokes a token", "Empty"),
        Action::ListAudit => ("Lists the audit log, newest first", "AuditEntryList"),
        Action::Live => (
            "Streams rows by the second, as server-sent events: whole, then those that changed",
            "LiveRows",
        ),
        Action::History => (
            "Returns the figures of a volume, pool or client by the second, or by the minute",
            "History",
        ),
        Action::Latency => (
            "Returns numbers of operations of a volume or pool by time and latency, for a heat map",
            "Latency",
        ),
        Action::LimitChanges => (
            "Lists the changes of the limit of a volume or pool, with who made them",
            "LimitChangeList",
        ),
        Action::Conditions => (
            "Lists what limits hold and what is wrong, the worst first, with a sentence that sums it up",
            "ConditionReport",
        ),
        Action::Headline => (
            "Returns the answer of a page of the console, in a sentence",
            "Headline",
        ),
        Action::Pair => ("Describes the pair that the node is one of", "Pair"),
        Action::SwitchPair => (
            "Makes the partner of the pair serve, and this node its standby",
            "SwitchedPair",
        ),
        Action::Server => ("Describes the server", "Server"),
        Action::ListBenchmarks => (
            "Lists the runs of benchmarks in the server's folder, beside published figures",
            "BenchmarkList",
        ),
        Action::GetBenchmark => (
            "Describes a run of a benchmark, with its tables",
            "Benchmark",
        ),
        Action::FindFile(_) => (
            "Finds the versions of a path over snapshots",
            "FileVersions",
        ),
        Action::RestoreFile(_) => ("Copies a file of a snapshot back", "RestoredFile"),
        _ => return None,
    })
}

/// Returns the description of an action whose reply is a file.
pub fn about_file(action: Action) -> &'static str {
    match action {
        Action::BenchmarkReport => "Returns the page that `weir bench` has made of a benchmark",
        _ => "Downloads a file of a snapshot",
    }
}

/// Returns the content type of an action's reply.
pub fn content_type(action: Action) -> &'static str {
    match action {
        Action::Live => "text/event-stream",
        Action::Download(_) => "application/octet-stream",
        Action::BenchmarkReport => "text/html",
        _ => "application/json",
    }
}

/// Adds the objects of replies.
pub fn add(schemas: &mut Map<String, Value>) {
    schemas.insert("Empty".to_owned(), object(&[]));
    for (name, fields) in OBJECTS {
        schemas.insert((*name).to_owned(), object(fields));
    }
}

fn object(fields: &[(&'static str, Shape)]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, shape) in fields {
        let bare = name.trim_end_matches('?');
        if bare.len() == name.len() {
            required.push(bare);
        }
        properties.insert(bare.to_owned(), schema(*shape));
    }
    let mut out = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if let (false, Some(out)) = (required.is_empty(), out.as_object_mut()) {
        out.insert("required".to_owned(), json!(required));
    }
    out
}

/// Returns a reference to a schema of the document.
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn schema(shape: Shape) -> Value {
    match shape {
        Text => json!({"type": "string"}),
        Stamp => json!({"type": "string", "format": "date-time"}),
        Flag => json!({"type": "boolean"}),
        Number => json!({"type": "number", "format": "double"}),
        Integer => json!({"type": "integer", "format": "int64"}),
        Int64 => json!({"type": "string", "format": "int64"}),
        Open => json!({"type": "object"}),
        Texts => json!({"type": "array", "items": {"type": "string"}}),
        Anything => json!({"type": "array", "items": {}}),
        One(name) => reference(name),
        Many(name) => json!({"type": "array", "items": reference(name)}),
    }
}
