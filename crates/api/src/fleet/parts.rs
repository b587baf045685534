//! Resources that have parts in several aggregates: constituents of large volumes, and parts of
//! storage pools that span aggregates.

use crate::error::{ApiError, ApiResult};
use crate::json::Object;
use crate::query::Query;
use axum::body::Bytes;
use serde_json::{Value, json};
use weir_control::SPAN_LABEL;

/// Fields of a pool that are divided among its parts.
const DIVIDED: [&str; 3] = ["capacityGib", "totalThroughputMibps", "totalIops"];
/// Fields of a pool that are sums of those of its parts.
const SUMS: [&str; 5] = [
    "volumeCapacityGib",
    "volumeCount",
    "totalThroughputMibps",
    "availableThroughputMibps",
    "totalIops",
];

/// Returns a text field; empty if there is none.
pub(super) fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a whole number, which the wire has as a text or as a number.
pub(super) fn whole(of: &Value, field: &str) -> u64 {
    let value = of.get(field);
    let parsed = || value?.as_str()?.parse().ok();
    value.and_then(Value::as_u64).or_else(parsed).unwrap_or(0)
}

/// Returns true for a constituent of a large volume, and for a part of a pool that spans
/// aggregates.
pub(super) fn is_part(resource: &Value) -> bool {
    let config = resource.get("largeCapacityConfig");
    let spans = { resource.get("labels") }.and_then(|labels| labels.get(SPAN_LABEL));
    spans.is_some() || config.is_some_and(|config| whole(config, "constituentCount") > 1)
}

/// Divides what a large volume has as a whole among its constituents.
pub(super) fn divide_volume(body: &mut Object, parts: u64) {
    let capacity = body
        .get("capacityGib")
        .map(|_| whole(&Value::Object(body.clone()), "capacityGib"));
    if let Some(capacity) = capacity {
        body.insert("capacityGib".to_owned(), json!(capacity.div_ceil(parts)));
    }
    let throughput = body.get("throughputMibps").and_then(Value::as_f64);
    if let Some(throughput) = throughput {
        body.insert(
            "throughputMibps".to_owned(),
            json!(throughput / parts as f64),
        );
    }
}

/// Returns the body of a change of a large volume, or of a pool that spans aggregates, for each of
/// its parts.
pub(super) fn divided(body: &Bytes, parts: usize, query: &Query, name: &str) -> ApiResult<Bytes> {
    let changed: Option<Object> = serde_json::from_slice(body).ok();
    let Some(mut changed) = changed.filter(|_| query.get("updateMask").is_some()) else {
        return Ok(body.clone());
    };
    for (other, name) in [
        ("capacity_gib", "capacityGib"),
        ("throughput_mibps", "throughputMibps"),
        ("total_throughput_mibps", "totalThroughputMibps"),
        ("total_iops", "totalIops"),
    ] {
        if let Some(value) = changed.remove(other) {
            changed.insert(name.to_owned(), value);
        }
    }
    match name.contains("/storagePools/") {
        true => divide_pool(&mut changed, parts as u64)?,
        false => divide_volume(&mut changed, parts as u64),
    }
    Ok(Bytes::from(Value::Object(changed).to_string()))
}

/// Puts the constituents of large volumes together in a list of volumes.
pub(super) fn merged(volumes: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(volumes.len());
    for volume in volumes {
        let same = |other: &&mut Value| text(other, "name") == text(&volume, "name");
        match out.iter_mut().find(same).filter(|other| is_part(other)) {
            Some(other) => {
                add(other, &volume);
                add_pool(other, &volume);
            }
            None => out.push(volume),
        }
    }
    out
}

/// Removes from resources what says that they have parts in several aggregates.
pub(super) fn seen(mut resources: Vec<Value>) -> Vec<Value> {
    for one in &mut resources {
        if let Some(labels) = one.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(SPAN_LABEL);
        }
    }
    resources
}

/// Adds a constituent to a large volume.
fn add(sum: &mut Value, part: &Value) {
    for field in ["capacityGib", "usedGib"] {
        if sum.get(field).is_some() || part.get(field).is_some() {
            let both = whole(sum, field).saturating_add(whole(part, field));
            sum[field] = json!(both.to_string());
        }
    }
    let throughput = |of: &Value| of.get("throughputMibps").and_then(Value::as_f64);
    if let (Some(a), Some(b)) = (throughput(sum), throughput(part)) {
        sum["throughputMibps"] = json!(a + b);
    }
    if text(sum, "state") == "READY" && text(part, "state") != "READY" {
        for field in ["state", "stateDetails"] {
            sum[field] = part.get(field).cloned().unwrap_or_default();
        }
    }
    let more = part.get("mountOptions").and_then(Value::as_array).cloned();
    if let (Some(all), Some(more)) = (
        sum.get_mut("mountOptions").and_then(Value::as_array_mut),
        more,
    ) {
        for one in more {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
}

/// Divides what a pool has as a whole among its parts.
///
/// # Errors
/// INVALID_ARGUMENT: it cannot be divided evenly.
pub(super) fn divide_pool(body: &mut Object, parts: u64) -> ApiResult<()> {
    let of = Value::Object(body.clone());
    for field in DIVIDED {
        if of.get(field).is_none_or(Value::is_null) {
            continue;
        }
        let sum = whole(&of, field);
        if !sum.is_multiple_of(parts) {
            return Err(ApiError::field(
                field,
                format!(
                    "'{field}' of a storage pool that spans {parts} aggregates must be a multiple of {parts}; received: {sum}"
                ),
            ));
        }
        body.insert(field.to_owned(), json!(sum / parts));
    }
    Ok(())
}

/// Adds the figures of a part of a pool to those of the whole.
fn add_pool(sum: &mut Value, part: &Value) {
    for field in SUMS {
        let (Some(a), Some(b)) = (sum.get(field), part.get(field)) else {
            continue;
        };
        sum[field] = match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if a.fract() + b.fract() > 0.0 => json!(a + b),
            (Some(_), Some(_)) => json!(whole(sum, field).saturating_add(whole(part, field))),
            _ => json!(
                whole(sum, field)
                    .saturating_add(whole(part, field))
                    .to_string()
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_pool_are_one_pool_to_see() {
        let part = |capacity: &str, volumes: u64, throughput: f64| {
            json!({
                "name": "wide", "state": "READY", "capacityGib": capacity,
                "volumeCapacityGib": "5", "volumeCount": volumes,
                "totalThroughputMibps": "16", "availableThroughputMibps": throughput,
                "labels": {SPAN_LABEL: "0000000000000007-0-2", "team": "a"},
            })
        };
        let other = json!({"name": "other", "capacityGib": "1"});
        let pools = vec![part("10", 1, 2.5), other.clone(), part("10", 2, 2.0)];
        let out = seen(merged(pools));
        let wide = json!({
            "name": "wide", "state": "READY", "capacityGib": "20",
            "volumeCapacityGib": "10", "volumeCount": 3,
            "totalThroughputMibps": "32", "availableThroughputMibps": 4.5,
            "labels": {"team": "a"},
        });
        assert_eq!(out, [wide, other]);
    }

    #[test]
    fn what_a_pool_has_is_divided_evenly() {
        let mut body = json!({"capacityGib": "90", "totalIops": 30, "description": "d"});
        let body = body.as_object_mut().unwrap();
        divide_pool(body, 3).unwrap();
        let third = json!({"capacityGib": 30, "totalIops": 10, "description": "d"});
        assert_eq!(json!(body), third);
        let uneven = divide_pool(body, 4).unwrap_err();
        assert_eq!(uneven.violations[0].field, "capacityGib");
    }
}
