//! Refusals in ONTAP's shape: an HTTP status and `{"error": {message, code, target}}`, where `code`
//! is a number written as text. The codes are those that public clients of ONTAP's REST interface
//! distinguish.

use serde_json::{Value, json};
use weir_ontap::storage::NamedKind;
use weir_ontap::{Failure, Reason};

use crate::error::ApiError;

/// Refusal or failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP's status code, such as 404.
    pub status: u16,
    /// ONTAP's error code; clients decide by it.
    pub code: u32,
    /// Message for people, in English.
    pub message: String,
    /// The field that it is about.
    pub target: Option<String>,
}

/// Result of a handler of this interface.
pub type HandlerResult<T> = Result<T, Box<Refusal>>;

/// The resource exists already.
const DUPLICATE: u32 = 1;
/// The path is not in the interface.
const NO_API: u32 = 3;
/// The resource does not exist.
const NO_ENTRY: u32 = 4;
/// The user may not do this.
const NOT_AUTHORIZED: u32 = 6;
/// An argument that the request does not have.
const UNEXPECTED: u32 = 262_179;
/// A field that is for reading only.
const NOT_HERE: u32 = 262_196;
/// A value that is not of its kind.
const VALUE: u32 = 262_197;
/// A body that is no JSON.
const NO_JSON: u32 = 262_254;
/// The machine does not exist.
const NO_SVM: u32 = 2_621_462;
/// The volume is out of service.
const OFFLINE: u32 = 917_533;
/// A volume's attribute cannot be what was asked for.
const ATTRIBUTE: u32 = 917_534;
/// Another operation on the volume is running.
const VOLUME_BUSY: u32 = 13_107_406;
/// The snapshot does not exist.
const NO_SNAPSHOT: u32 = 1_638_515;
/// Clones or relationships stand on the snapshot.
const SNAPSHOT_BUSY: u32 = 1_638_555;
/// The schedule does not exist.
const NO_SCHEDULE: u32 = 1_638_408;
/// Volumes refer to the snapshot policy.
const SNAPSHOT_POLICY_USED: u32 = 1_638_415;
/// A snapshot policy cannot have such schedules.
const SNAPSHOT_POLICY: u32 = 1_638_532;
/// The policy is the cluster's own.
const SYSTEM_POLICY: u32 = 1_638_528;
/// Volumes refer to the export policy.
const EXPORT_POLICY_USED: u32 = 1_703_945;
/// The export policy does not exist.
const NO_EXPORT_POLICY: u32 = 1_703_954;
/// A rule's clients cannot be understood.
const CLIENT_MATCH: u32 = 1_704_039;
/// The policy has a rule with the same values.
const EXPORT_RULE_EXISTS: u32 = 1_704_070;
/// The export policy `default`, which stays.
const DEFAULT_EXPORT_POLICY: u32 = 1_703_947;
/// A rule's index is 0.
const RULE_INDEX: u32 = 3_277_162;
/// The snapshot policy is one of those that every cluster has.
const BUILT_IN_SNAPSHOT_POLICY: u32 = 1_638_431;
/// Relationships or policies refer to the schedule.
const SCHEDULE_USED: u32 = 459_758;
/// The schedule is one of those that every cluster has.
const SYSTEM_SCHEDULE: u32 = 459_762;
/// The volume's own qtree.
const DEFAULT_QTREE: u32 = 5_242_894;
/// The volume of a qtree is a copy.
const READ_ONLY_QTREE: u32 = 5_242_897;
/// The volume of a qtree or a quota rule does not exist.
const NO_VOLUME: u32 = 917_927;
/// A qtree or a quota rule without its volume.
const NO_VOLUME_GIVEN: u32 = 918_232;
/// The refusal has no code of its own.
const GENERIC: u32 = 13_001;
/// The caller is not authenticated.
const NOBODY: u32 = 6_691_623;
/// A relationship with this destination is there.
const RELATIONSHIP_EXISTS: u32 = 6_619_637;
/// `state: broken_off` was refused.
const BREAK: u32 = 13_303_808;
/// Nothing was transferred yet.
const NOT_INITIALIZED: u32 = 13_303_812;
/// A transfer was refused.
const UPDATE: u32 = 13_303_844;

impl Refusal {
    fn new(status: u16, code: u32, message: impl Into<String>) -> Box<Refusal> {
        Box::new(Refusal {
            status,
            code,
            message: message.into(),
            target: None,
        })
    }

    fn about(mut self: Box<Self>, target: &str) -> Box<Refusal> {
        self.target = Some(target.to_owned());
        self
    }

    /// Creates the refusal of a path that does not exist.
    pub fn no_api() -> Box<Refusal> {
        Refusal::new(404, NO_API, "API not found")
    }

    /// Creates the refusal of a path that exists, but not for this method.
    pub fn no_method(method: &str) -> Box<Refusal> {
        Refusal::new(
            405,
            NO_API,
            format!("Method {method} is not supported here"),
        )
    }

    /// Creates the refusal of a path that names nothing.
    pub fn no_entry() -> Box<Refusal> {
        Refusal::new(404, NO_ENTRY, "entry doesn't exist")
    }

    /// Creates the refusal of a field or parameter whose name the interface does not have.
    pub fn unexpected(name: &str) -> Box<Refusal> {
        let shown = crate::json::abbreviate(name);
        Refusal::new(400, UNEXPECTED, format!("Unexpected argument \"{shown}\".")).about(&shown)
    }

    /// Creates the refusal of a value that is not of its kind.
    pub fn value(name: &str, value: &str, kind: &str) -> Box<Refusal> {
        let shown = crate::json::abbreviate(value);
        Refusal::new(
            400,
            VALUE,
            format!("The value \"{shown}\" is invalid for field \"{name}\" ({kind})"),
        )
        .about(name)
    }

    /// Creates the refusal of a body without a field that has to be there.
    pub fn required(name: &str) -> Box<Refusal> {
        Refusal::new(400, VALUE, format!("Field \"{name}\" is required")).about(name)
    }

    /// Creates the refusal of a field that cannot be set here.
    pub fn not_here(name: &str, why: &str) -> Box<Refusal> {
        Refusal::new(
            400,
            NOT_HERE,
            format!("Field \"{name}\" cannot be set in this operation: {why}"),
        )
        .about(name)
    }

    /// Creates the refusal to make a resource of a kind that this server does not have.
    pub fn absent(kind: &str) -> Box<Refusal> {
        let why = format!("There are no {kind} here: this server has no such resources.");
        Refusal::new(400, NOT_HERE, why)
    }

    /// Creates the refusal of a body that is no JSON, or JSON of the wrong kind.
    pub fn no_json(why: &str) -> Box<Refusal> {
        Refusal::new(400, NO_JSON, format!("Invalid JSON input: {why}"))
    }

    /// Creates the refusal for the cluster's.
    pub fn from_failure(failure: Failure) -> Box<Refusal> {
        let (status, code) = match failure.reason {
            Reason::NotFound => (404, NO_ENTRY),
            Reason::Duplicate => (409, DUPLICATE),
            Reason::Invalid => (400, VALUE),
            Reason::State | Reason::Busy => (409, GENERIC),
            Reason::Unsupported => (400, NOT_HERE),
            Reason::Denied => (403, NOT_AUTHORIZED),
            Reason::Failed => (500, GENERIC),
        };
        Refusal::new(status, code, failure.message)
    }

    /// Creates the refusal for the cluster's of a volume.
    pub fn of_volume(failure: Failure) -> Box<Refusal> {
        let code = match (&*failure.rule, failure.reason) {
            ("VOLUME_OFFLINE", _) => Some(OFFLINE),
            ("EXPORT_POLICY_NOT_FOUND", _) => Some(NO_EXPORT_POLICY),
            (
                "POOL_CAPACITY_EXCEEDED"
                | "POOL_THROUGHPUT_EXCEEDED"
                | "VOLUME_CAPACITY_RANGE"
                | "CAPACITY_BELOW_USED"
                | "SNAP_RESERVE_RANGE",
                _,
            ) => Some(ATTRIBUTE),
            (_, Reason::Busy) => Some(VOLUME_BUSY),
            _ => None,
        };
        let mut refusal = Refusal::from_failure(failure);
        refusal.code = code.unwrap_or(refusal.code);
        refusal
    }

    /// Creates the refusal for the cluster's to delete a snapshot, and returns true if something
    /// stands on the snapshot.
    pub fn of_snapshot_deletion(failure: Failure) -> (Box<Refusal>, bool) {
        let held = failure.reason == Reason::State
            && ["ENGINE_PRECONDITION", "SNAPSHOT_REPLICATED", ""].contains(&&*failure.rule);
        let mut refusal = Refusal::of_volume(failure);
        if held {
            refusal.code = SNAPSHOT_BUSY;
        }
        (refusal, held)
    }

    /// Converts a failure of a request about a policy by name.
    pub fn of_policy(failure: Failure, kind: NamedKind) -> Box<Refusal> {
        let code = match (&*failure.rule, kind) {
            ("POLICY_IN_USE", NamedKind::Export) => Some(EXPORT_POLICY_USED),
            ("POLICY_IN_USE", NamedKind::Snapshot) => Some(SNAPSHOT_POLICY_USED),
            ("EXPORT_RULE_INVALID", _) => Some(CLIENT_MATCH),
            ("SCHEDULE_NOT_FOUND", _) => Some(NO_SCHEDULE),
            ("SCHEDULE_UNSUPPORTED" | "SNAPSHOT_POLICY_INVALID" | "SNAPSHOT_LABEL", _) => {
                Some(SNAPSHOT_POLICY)
            }
            ("SYSTEM_POLICY", NamedKind::Export) => Some(DEFAULT_EXPORT_POLICY),
            ("SYSTEM_POLICY", NamedKind::Snapshot) => Some(BUILT_IN_SNAPSHOT_POLICY),
            ("SYSTEM_POLICY", _) => Some(SYSTEM_POLICY),
            _ => None,
        };
        let mut refusal = Refusal::from_failure(failure);
        refusal.code = code.unwrap_or(refusal.code);
        refusal
    }

    /// Creates the refusal of a rule that an export policy has already.
    pub fn rule_exists() -> Box<Refusal> {
        let message = "An export policy rule with the same values already exists.";
        Refusal::new(409, EXPORT_RULE_EXISTS, message)
    }

    /// Creates the refusal of a place among rules.
    pub fn rule_index(name: &str, text: &str) -> Box<Refusal> {
        let mut refusal = Refusal::value(name, text, "1 and more");
        refusal.code = RULE_INDEX;
        refusal
    }

    /// Creates the refusal to delete a schedule. `system`: one that every cluster has.
    pub fn of_schedule(failure: Failure, system: bool) -> Box<Refusal> {
        let held = failure.reason == Reason::State;
        let mut refusal = Refusal::from_failure(failure);
        if system {
            refusal.code = SYSTEM_SCHEDULE;
        } else if held {
            refusal.code = SCHEDULE_USED;
        }
        refusal
    }

    /// Creates the refusal to delete the volume's own qtree.
    pub fn default_qtree() -> Box<Refusal> {
        let mut refusal = Refusal::not_here("id", "the volume's own qtree stays");
        refusal.code = DEFAULT_QTREE;
        refusal
    }

    /// Converts a failure of a change of a qtree.
    pub fn of_qtree(failure: Failure) -> Box<Refusal> {
        let code = match &*failure.rule {
            "EXPORT_POLICY_NOT_FOUND" => Some(NO_EXPORT_POLICY),
            "VOLUME_READ_ONLY" => Some(READ_ONLY_QTREE),
            _ => None,
        };
        let mut refusal = Refusal::from_failure(failure);
        refusal.code = code.unwrap_or(refusal.code);
        refusal
    }

    /// Creates the refusal of a volume that does not exist, or (empty) was not given.
    pub fn no_volume(name: &str) -> Box<Refusal> {
        let mut refusal = match name {
            "" => Refusal::required("volume.name"),
            name => Refusal::value("volume.name", name, "no such volume"),
        };
        refusal.code = match name {
            "" => NO_VOLUME_GIVEN,
            _ => NO_VOLUME,
        };
        refusal
    }

    /// Creates the refusal of a machine that does not exist.
    pub fn no_svm(name: &str) -> Box<Refusal> {
        let shown = crate::json::abbreviate(name);
        Refusal::new(404, NO_SVM, format!("SVM \"{shown}\" does not exist.")).about("svm.name")
    }

    /// Creates the refusal of a snapshot that does not exist.
    pub fn no_snapshot() -> Box<Refusal> {
        Refusal::new(404, NO_SNAPSHOT, "The specified snapshot does not exist.")
    }

    /// Creates the refusal of a schedule that does not exist.
    pub fn no_schedule(name: &str) -> Box<Refusal> {
        let shown = crate::json::abbreviate(name);
        let message = format!("Schedule \"{shown}\" not found.");
        Refusal::new(404, NO_SCHEDULE, message).about("schedule")
    }

    /// Creates the refusal to make a resource that exists.
    pub fn duplicate(message: &str) -> Box<Refusal> {
        Refusal::new(409, DUPLICATE, message)
    }

    /// Creates the refusal to remove a resource that is needed.
    pub fn in_use(message: &str) -> Box<Refusal> {
        Refusal::new(409, GENERIC, message)
    }

    /// Creates the refusal for the cluster's of a relationship, asked for `verb`.
    pub fn of_relationship(failure: Failure, verb: &str) -> Box<Refusal> {
        let state = matches!(failure.reason, Reason::State | Reason::Busy);
        let code = match (verb, failure.reason) {
            ("create", Reason::Duplicate) => Some(RELATIONSHIP_EXISTS),
            ("break", _) if state => Some(BREAK),
            ("update" | "resync" | "restore", _) if state => Some(UPDATE),
            ("initialize" | "resume" | "quiesce", _) if state => Some(NOT_INITIALIZED),
            _ => None,
        };
        let mut refusal = Refusal::from_failure(failure);
        refusal.code = code.unwrap_or(refusal.code);
        refusal
    }

    /// Returns a refusal by the checks before all interfaces: authentication, origin, size.
    pub fn general(e: &ApiError) -> Box<Refusal> {
        let code = match e.code() {
            401 => NOBODY,
            403 => NOT_AUTHORIZED,
            404 => NO_API,
            415 => NO_JSON,
            _ => GENERIC,
        };
        let message = match e.code() {
            401 => "User is not authorized.",
            _ => e.message.as_str(),
        };
        Refusal::new(e.code(), code, message)
    }

    /// Returns the body, with the code as text.
    pub fn body(&self) -> Value {
        let mut error = json!({"message": self.message, "code": self.code.to_string()});
        if let (Some(target), Some(error)) = (&self.target, error.as_object_mut()) {
            error.insert("target".to_owned(), json!(target));
        }
        json!({"error": error})
    }
}
