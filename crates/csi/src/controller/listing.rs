//! Lists of volumes, capacity of pools, health of a volume.

use serde_json::{Value, json};

use super::{Controller, GIB, page};
use crate::api::{number, text};
use crate::identity::LOCATION_KEY;
use crate::names::VolumeId;
use crate::parameters::Parameters;
use crate::requests::{Capability, GetCapacity, OfSnapshots, OfVolume, read};
use crate::status::{Outcome, Status};

/// Returns the condition of a volume, in CSI's terms.
fn condition(volume: &Value) -> Value {
    let space = volume.get("spaceStatus").unwrap_or(&Value::Null);
    let has = |field: &str| space.get(field).is_some();
    let (state, details) = (text(volume, "state"), text(volume, "stateDetails"));
    let message = match state {
        "READY" if has("freeBytes") && number(space, "freeBytes") == 0 => {
            if has("physicalFreeBytes") && number(space, "physicalFreeBytes") == 0 {
                "the server has no physical space left: writes fail".to_owned()
            } else {
                "the volume is full: writes fail".to_owned()
            }
        }
        "READY" => return json!({"abnormal": false, "message": "READY"}),
        _ if details.is_empty() => format!("the volume is {state}"),
        _ => format!("the volume is {state}: {details}"),
    };
    json!({"abnormal": true, "message": message})
}

impl Controller {
    /// Returns the volumes of all locations.
    pub(super) fn volumes(&self) -> Outcome<Vec<Value>> {
        self.api.list(&self.api.name("-", "volumes"), "volumes")
    }

    fn entry(&self, volume: &Value) -> Value {
        json!({
            "volume": self.render_volume(volume),
            "status": {"volumeCondition": condition(volume)},
        })
    }

    pub(super) fn list_volumes(&self, request: Value) -> Outcome<Value> {
        let request: OfSnapshots = read(request)?;
        let all = self.volumes()?;
        let all = all.iter().filter_map(|volume| {
            let id = VolumeId::of_resource(text(volume, "name"))?;
            Some((id.to_string(), volume))
        });
        let (page, next) = page(all.collect(), request.max_entries, &request.starting_token)?;
        let entries: Vec<Value> = page.into_iter().map(|v| self.entry(v)).collect();
        Ok(json!({"entries": entries, "nextToken": next.unwrap_or_default()}))
    }

    pub(super) fn get_volume(&self, request: Value) -> Outcome<Value> {
        let request: OfVolume = read(request)?;
        Ok(self.entry(&self.volume(&request.volume()?)?))
    }

    pub(super) fn validate(&self, request: Value) -> Outcome<Value> {
        let request: OfVolume = read(request)?;
        let id = request.volume()?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid("volume_capabilities are missing"));
        }
        self.volume(&id)?;
        let obstacle = request
            .volume_capabilities
            .iter()
            .find_map(Capability::obstacle);
        let obstacle = obstacle.map(str::to_owned).or_else(|| {
            let read = Parameters::read(&request.parameters).map(drop);
            let read = read.and(Parameters::mutable(&request.mutable_parameters).map(drop));
            read.err().map(|e| e.message)
        });
        if let Some(message) = obstacle {
            return Ok(json!({"message": message}));
        }
        let modes: Vec<Value> = request
            .volume_capabilities
            .iter()
            .map(Capability::to_json)
            .collect();
        Ok(json!({"confirmed": {
            "volumeContext": request.volume_context,
            "volumeCapabilities": modes,
            "parameters": request.parameters,
            "mutableParameters": request.mutable_parameters,
        }}))
    }

    pub(super) fn capacity(&self, request: Value) -> Outcome<Value> {
        let request: GetCapacity = read(request)?;
        let parameters = Parameters::read(&request.parameters)?;
        if request
            .volume_capabilities
            .iter()
            .any(|c| c.obstacle().is_some())
        {
            return Ok(json!({"availableCapacity": "0"}));
        }
        let topology = request.accessible_topology.as_ref();
        let location = topology.and_then(|of| of.segments.get(LOCATION_KEY));
        let location = location.map_or(self.location.as_str(), String::as_str);
        if !crate::names::is_location(location) {
            return Ok(json!({"availableCapacity": "0"}));
        }
        let all = self
            .api
            .list(&self.api.name(location, "storagePools"), "storagePools")?;
        let named = |pool: &&Value| {
            let id = text(pool, "name").rsplit('/').next();
            parameters
                .pool
                .as_deref()
                .is_none_or(|wanted| id == Some(wanted))
        };
        let free: Vec<u64> = all.iter().filter(named).map(free_bytes).collect();
        let sum = free
            .iter()
            .fold(0_u64, |sum, free| sum.saturating_add(*free));
        let sum = sum.min(i64::MAX as u64);
        let most = free.iter().max().copied().unwrap_or(0).min(i64::MAX as u64);
        Ok(json!({
            "availableCapacity": sum.to_string(),
            "maximumVolumeSize": most.to_string(),
            "minimumVolumeSize": GIB.to_string(),
        }))
    }
}

/// Returns the bytes that a pool has for new volumes.
fn free_bytes(pool: &Value) -> u64 {
    let all = number(pool, "capacityGib");
    all.saturating_sub(number(pool, "volumeCapacityGib"))
        .saturating_mul(GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_say_why() {
        let of = |volume: Value| {
            let shown = condition(&volume);
            (
                shown["abnormal"] == true,
                text(&shown, "message").to_owned(),
            )
        };
        assert_eq!(of(json!({"state": "READY"})), (false, "READY".to_owned()));
        let full =
            json!({"state": "READY", "spaceStatus": {"freeBytes": "0", "physicalFreeBytes": "9"}});
        assert_eq!(of(full).1, "the volume is full: writes fail");
        let out =
            json!({"state": "READY", "spaceStatus": {"freeBytes": "0", "physicalFreeBytes": "0"}});
        assert!(of(out).1.contains("physical space"));
        let broken = json!({"state": "ERROR", "stateDetails": "lost"});
        assert_eq!(of(broken), (true, "the volume is ERROR: lost".to_owned()));
    }
}
