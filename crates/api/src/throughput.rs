//! Limit of a volume now, as a field of its description.
//!
//! The public APIs have no such field. Clients that are made from their definitions pass over
//! fields that they do not know. So it is in the resource itself, which a person who asks why a
//! volume is slow reads first.

use serde_json::{Value, json};
use weir_control::backend::{BindingLevel, ThrottleState};

/// Returns the limit as a `weir.v1.ThroughputStatus`, in JSON.
pub fn status(now: &ThrottleState) -> Value {
    let mut status = serde_json::Map::new();
    status.insert("limitSource".to_owned(), json!(now.source));
    status.insert("waitingRequests".to_owned(), json!(now.waiting));
    if let Some((level, limit)) = now.binding {
        let level = match level {
            BindingLevel::Pool => "POOL",
            BindingLevel::Volume => "VOLUME",
            BindingLevel::Client => "CLIENT",
        };
        status.insert("bindingLevel".to_owned(), json!(level));
        let limit = limit.name().to_ascii_uppercase();
        status.insert("bindingLimit".to_owned(), json!(limit));
    }
    Value::Object(status)
}
