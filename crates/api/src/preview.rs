//! Answers to `validateOnly`: the resource as a change would leave it, its limit, and the rest of
//! its pool.

use crate::json::{EnumsAs, Object, encode};
use crate::lro;
use crate::mount::Mounts;
use crate::verdict;
use crate::words::Language;
use serde_json::{Value, json};
use weir_control::{Mutation, Resource, View, rules};

/// Form of the answer.
pub struct PreviewOptions {
    /// Form of enums.
    pub enums: EnumsAs,
    /// Language of the sentence.
    pub language: Language,
    /// Addresses that clients mount from.
    pub at: Mounts,
}

/// Describes what `mutation` would leave; `view` is the view behind it.
///
/// The result has the form of an operation that has ended, so that its `response` is read as that
/// of the change itself. It has two fields more: `validateOnly` and, where a pool is concerned,
/// `preview`, with the sentence of the whole in `headline`.
pub fn describe(view: &View, mutation: &Mutation, asked: &PreviewOptions) -> Value {
    let target = mutation.target();
    let shown = lro::render_target(view, &target, asked.at).filter(|_| mutation.verb() != "delete");
    let response = shown.map(|mut object| {
        // The state that the operation ends in, not the one in which its job begins.
        if object.contains_key("state") {
            object.insert("state".to_owned(), json!("READY"));
        }
        encode(lro::message(&target), &object, asked.enums)
    });
    let response = response.unwrap_or_else(|| json!({}));
    let mut out = checked(&target.to_string(), mutation.verb(), response);
    if let Some(preview) = limits(view, view.resource(&target), asked.language) {
        out.insert("preview".to_owned(), preview);
    }
    Value::Object(out)
}

/// Returns the answer to a change that would be accepted: `response` is the resource as the change
/// would leave it.
pub fn checked(target: &str, verb: &str, response: Value) -> Object {
    let mut out = Object::new();
    out.insert("done".to_owned(), json!(true));
    out.insert("validateOnly".to_owned(), json!(true));
    out.insert(
        "metadata".to_owned(),
        json!({"target": target, "verb": verb}),
    );
    out.insert("response".to_owned(), response);
    out
}

/// Returns the limit of a volume, where it comes from, and what its pool has left; of a pool what
/// it has left.
fn limits(view: &View, resource: Option<Resource>, language: Language) -> Option<Value> {
    let mut preview = Object::new();
    let pool = match resource? {
        Resource::Pool(pool) => pool,
        Resource::Volume(volume) => {
            let source = rules::limit_source(view, &volume);
            let bytes = view.volume_throughput(&volume);
            let mibps = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
            let words = verdict::of_volume(mibps, source.as_deref());
            preview.insert("headline".to_owned(), json!(words.text(language)));
            if let Some(source) = source {
                preview.insert("limitSource".to_owned(), json!(&*source));
            }
            if let Some(mibps) = mibps {
                preview.insert("throughputMibps".to_owned(), json!(mibps));
            }
            match view.pool_of(&volume) {
                Some(pool) => pool.clone(),
                None => return Some(Value::Object(preview)),
            }
        }
        Resource::Snapshot(_)
        | Resource::ActiveDirectory(_)
        | Resource::QuotaRule(..)
        | Resource::BackupVault(_)
        | Resource::BackupPolicy(_)
        | Resource::Backup(_) => return None,
    };
    let figures = view.pool_figures(&pool);
    let capacity = pool.capacity_gib;
    // Rules keep the sum within the pool; a pool of a catalog from elsewhere may be over.
    let left = capacity.saturating_sub(figures.volume_capacity_gib);
    let headline = preview.entry("headline");
    headline.or_insert_with(|| {
        let words = verdict::of_pool((capacity, left), &figures);
        json!(words.text(language))
    });
    preview.insert(
        "pool".to_owned(),
        json!({
            "capacityGib": capacity,
            "availableCapacityGib": left,
            "totalThroughputMibps": figures.total_throughput_mibps,
            "availableThroughputMibps": figures.available_throughput_mibps,
        }),
    );
    Some(Value::Object(preview))
}
