//! Volumes: making, deleting, expanding, changing.

use serde_json::{Map, Value, json};
use weir_base::limits::csi::MAX_LISTED;

use super::{Controller, DRIVER, GIB, SOURCE, WEIR, has_label};
use crate::api::{Verb, number, text};
use crate::identity::LOCATION_KEY;
use crate::names::{SnapshotId, VolumeId, hash, id_for, is_location};
use crate::parameters::Parameters;
use crate::requests::{CapacityRange, CreateVolume, OfVolume, Requirement, Source, check, read};
use crate::status::{Code, Outcome, Status};

/// Content of a new volume.
pub(super) enum Content {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// A volume as it is now.
    Volume(VolumeId),
}

impl Content {
    fn read(source: Option<&Source>) -> Outcome<Option<Content>> {
        let Some(source) = source else {
            return Ok(None);
        };
        if let Some(of) = &source.snapshot {
            let id = SnapshotId::parse(&of.snapshot_id);
            let id = id.ok_or_else(|| Status::not_found("snapshot", &of.snapshot_id))?;
            return Ok(Some(Content::Snapshot(id)));
        }
        let Some(of) = &source.volume else {
            return Err(Status::invalid("volume_content_source has no type"));
        };
        let id = VolumeId::parse(&of.volume_id);
        let id = id.ok_or_else(|| Status::not_found("volume", &of.volume_id))?;
        Ok(Some(Content::Volume(id)))
    }

    fn volume(&self) -> &VolumeId {
        match self {
            Content::Snapshot(of) => &of.volume,
            Content::Volume(of) => of,
        }
    }

    /// Returns the id of CSI.
    fn id(&self) -> String {
        match self {
            Content::Snapshot(of) => of.to_string(),
            Content::Volume(of) => of.to_string(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Content::Snapshot(of) => json!({"snapshot": {"snapshotId": of.to_string()}}),
            Content::Volume(of) => json!({"volume": {"volumeId": of.to_string()}}),
        }
    }
}

/// Returns the GiB that a volume of this range has, at least `least`.
///
/// # Errors
/// OUT_OF_RANGE: no whole number of GiB is in it. INVALID_ARGUMENT: a negative bound.
fn gib(range: CapacityRange, least: u64) -> Outcome<u64> {
    let bound = |bytes: i64| {
        u64::try_from(bytes).map_err(|_| Status::invalid("capacity_range has a negative bound"))
    };
    let (required, limit) = (bound(range.required_bytes)?, bound(range.limit_bytes)?);
    let gib = required.div_ceil(GIB).max(least).max(1);
    if limit > 0 && gib.saturating_mul(GIB) > limit {
        let why = format!("a volume of {gib} GiB is needed, and limit_bytes is {limit}");
        return Err(Status::new(Code::OutOfRange, why));
    }
    Ok(gib)
}

impl Controller {
    pub(super) fn create_volume(&self, request: Value) -> Outcome<Value> {
        let request: CreateVolume = read(request)?;
        if request.name.is_empty() {
            return Err(Status::invalid("name is missing"));
        }
        check(&request.volume_capabilities)?;
        let mut parameters = Parameters::read(&request.parameters)?;
        let mut changed = Parameters::mutable(&request.mutable_parameters)?;
        parameters.fields.append(&mut changed);
        let content = Content::read(request.volume_content_source.as_ref())?;
        let (location, pool) =
            self.place(&request.accessibility_requirements, &parameters, &content)?;
        let id = VolumeId {
            location,
            id: id_for(&request.name),
        };
        let _operation = self.in_flight.begin(format!("volume {id}"))?;
        let least = match &content {
            Some(of) => number(&self.volume(of.volume())?, "capacityGib"),
            None => 0,
        };
        if let Some(there) = self.api.get(&self.volume_name(&id))? {
            return self.same(&there, &request, &parameters, &content);
        }
        let capacity = gib(request.capacity_range, least)?;
        let mut labels = Map::new();
        labels.insert(DRIVER.to_owned(), json!(WEIR));
        let mut body = parameters.fields.clone();
        if let Some(of) = &content {
            labels.insert(SOURCE.to_owned(), json!(hash(&of.id())));
            let snapshot = self.content(of, &id)?;
            body.insert(
                "restoreParameters".to_owned(),
                json!({"sourceSnapshot": snapshot}),
            );
        }
        body.insert("storagePool".to_owned(), json!(pool));
        body.insert("shareName".to_owned(), json!(id.id));
        body.insert("capacityGib".to_owned(), json!(capacity.to_string()));
        body.insert("protocols".to_owned(), json!(parameters.protocols));
        body.insert("labels".to_owned(), Value::Object(labels));
        let parent = self.api.name(&id.location, "volumes");
        let query = [("volumeId", id.id.as_str())];
        match self
            .api
            .change(&Verb::Post(&Value::Object(body)), &parent, &query)
        {
            Ok(_) => {}
            // Another process of the driver was faster.
            Err(e) if e.code == Code::AlreadyExists => {}
            Err(e) => {
                if let Some(Content::Volume(of)) = &content {
                    self.drop_clone_snapshot(of, &id.id);
                }
                return Err(e);
            }
        }
        // As the server shows it: the reply of an operation is what the volume was then. One that
        // is being made for another call may not be shown yet.
        let there = self.api.get(&self.volume_name(&id))?;
        let made = || {
            Status::new(
                Code::Aborted,
                format!("volume {id} is being made; call again"),
            )
        };
        let there = there.ok_or_else(made)?;
        self.same(&there, &request, &parameters, &content)
    }

    /// Returns the location and the pool of a new volume.
    fn place(
        &self,
        required: &Requirement,
        parameters: &Parameters,
        content: &Option<Content>,
    ) -> Outcome<(String, String)> {
        let named = required.preferred.iter().chain(&required.requisite);
        let mut locations: Vec<&str> = named
            .filter_map(|of| of.segments.get(LOCATION_KEY))
            .map(String::as_str)
            .collect();
        if locations.is_empty() {
            locations.push(&self.location);
        }
        if let Some(of) = content {
            // A clone shares blocks with what it is made of.
            let of = of.volume();
            if !locations.contains(&&*of.location) {
                let why = format!("a volume made of {of} is in the location {}", of.location);
                return Err(Status::new(Code::ResourceExhausted, why));
            }
            locations = vec![&of.location];
        }
        let mut last = None;
        for location in locations {
            if !is_location(location) {
                let why =
                    format!("{location:?} is no location: letters, digits and -_. (26 at most)");
                return Err(Status::invalid(why));
            }
            match self.pool(location, parameters, content) {
                Ok(pool) => return Ok((location.to_owned(), pool)),
                Err(e) if e.code == Code::InvalidArgument => last = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(last.unwrap_or_else(|| Status::invalid("no location")))
    }

    /// Returns the pool in a location: the one that the class names, that of a clone's source, or
    /// the only one.
    fn pool(
        &self,
        location: &str,
        parameters: &Parameters,
        content: &Option<Content>,
    ) -> Outcome<String> {
        if let Some(pool) = &parameters.pool {
            let name = self.api.name(location, &format!("storagePools/{pool}"));
            return match VolumeId::parse(&format!("{location}/{pool}")) {
                Some(_) if self.api.get(&name)?.is_some() => Ok(pool.clone()),
                _ => Err(Status::invalid(format!(
                    "parameter pool: there is no storage pool {pool:?} in the location {location}"
                ))),
            };
        }
        if let Some(of) = content {
            let of = self.volume(of.volume())?;
            let pool = text(&of, "storagePool");
            return Ok(pool.rsplit('/').next().unwrap_or(pool).to_owned());
        }
        let all = self
            .api
            .list(&self.api.name(location, "storagePools"), "storagePools")?;
        let names = all.iter().map(|pool| text(pool, "name"));
        let ids: Vec<&str> = names.filter_map(|name| name.rsplit('/').next()).collect();
        match ids.as_slice() {
            [one] => Ok((*one).to_owned()),
            [] => Err(Status::invalid(format!(
                "the location {location} has no storage pool"
            ))),
            many => Err(Status::invalid(format!(
                "parameter pool is missing, and the location {location} has more than one storage pool: {}",
                many.join(", ")
            ))),
        }
    }

    /// Returns the reply for a volume that is there, if it is what was asked for.
    ///
    /// # Errors
    /// ALREADY_EXISTS: it is another one. ABORTED: it is not ready yet.
    fn same(
        &self,
        there: &Value,
        request: &CreateVolume,
        parameters: &Parameters,
        content: &Option<Content>,
    ) -> Outcome<Value> {
        let differs = |why: String| {
            let name = &request.name;
            Err(Status::new(
                Code::AlreadyExists,
                format!("volume {name} exists already, {why}"),
            ))
        };
        let (bytes, range) = (number(there, "capacityGib") * GIB, request.capacity_range);
        let fits = |bytes: u64| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            bytes >= range.required_bytes && (range.limit_bytes <= 0 || bytes <= range.limit_bytes)
        };
        if !fits(bytes) {
            return differs(format!("with {bytes} bytes"));
        }
        let protocols = there.get("protocols").unwrap_or(&Value::Null);
        if *protocols != json!(parameters.protocols) {
            return differs(format!("with the protocols {protocols}"));
        }
        let made_of = content.as_ref().map(|of| hash(&of.id()));
        if !has_label(there, SOURCE, made_of.as_deref().unwrap_or_default()) {
            return differs("made of something else".to_owned());
        }
        match text(there, "state") {
            "READY" => {
                let mut volume = self.render_volume(there);
                if let (Some(of), Some(volume)) = (content, volume.as_object_mut()) {
                    volume.insert("contentSource".to_owned(), of.to_json());
                }
                Ok(json!({"volume": volume}))
            }
            state @ "ERROR" => Err(Status::new(
                Code::Internal,
                format!(
                    "volume {} is {state}: {}",
                    request.name,
                    text(there, "stateDetails")
                ),
            )),
            state => Err(Status::new(
                Code::Aborted,
                format!("volume {} is {state}; call again", request.name),
            )),
        }
    }

    /// Returns a volume as CSI has it.
    pub(super) fn render_volume(&self, volume: &Value) -> Value {
        let id = VolumeId::of_resource(text(volume, "name"));
        let location = id.as_ref().map_or("", |id| &id.location);
        json!({
            "volumeId": id.as_ref().map(VolumeId::to_string).unwrap_or_default(),
            "capacityBytes": (number(volume, "capacityGib") * GIB).to_string(),
            "volumeContext": crate::mounts::context(volume, self.mount_host.as_deref()),
            "accessibleTopology": [{"segments": {LOCATION_KEY: location}}],
        })
    }

    pub(super) fn delete_volume(&self, request: Value) -> Outcome<Value> {
        let request: OfVolume = read(request)?;
        let id = match request.volume() {
            Ok(id) => id,
            Err(e) if e.code == Code::NotFound => return Ok(json!({})),
            Err(e) => return Err(e),
        };
        let _operation = self.in_flight.begin(format!("volume {id}"))?;
        let name = self.volume_name(&id);
        let Some(there) = self.api.get(&name)? else {
            return Ok(json!({}));
        };
        let snapshots = self.api.list(&format!("{name}/snapshots"), "snapshots")?;
        let own = snapshots.iter().filter(|s| has_label(s, DRIVER, WEIR));
        let own: Vec<&str> = own
            .filter_map(|s| text(s, "name").rsplit('/').next())
            .collect();
        if !own.is_empty() {
            let why = format!(
                "volume {id} has snapshots: {} (delete them first)",
                own.join(", ")
            );
            return Err(Status::new(Code::FailedPrecondition, why));
        }
        self.split_clones(&id, None)?;
        match self.api.change(&Verb::Delete, &name, &[("force", "true")]) {
            Ok(_) => {}
            Err(e) if e.code == Code::NotFound => {}
            Err(e) => return Err(e),
        }
        // The snapshot that it stood on, if that was taken for it alone.
        let clone = there.get("cloneDetails").unwrap_or(&Value::Null);
        if let Some(of) = VolumeId::of_resource(text(clone, "sourceVolume")) {
            self.drop_clone_snapshot(&of, &id.id);
        }
        Ok(json!({}))
    }

    /// Splits the clones of a volume, or of one of its snapshots, from it: what they stand on can
    /// be deleted then.
    ///
    /// # Errors
    /// ABORTED: a split has not ended; the caller calls again. As [`crate::api::Api::call`].
    pub(super) fn split_clones(&self, of: &VolumeId, snapshot: Option<&str>) -> Outcome<()> {
        let name = self.volume_name(of);
        let parent = self.api.name(&of.location, "volumes");
        let all = self.api.list(&parent, "volumes")?;
        for clone in all.iter().take(MAX_LISTED) {
            let details = clone.get("cloneDetails").unwrap_or(&Value::Null);
            let stands = match snapshot {
                Some(snapshot) => {
                    text(details, "sourceSnapshot") == format!("{name}/snapshots/{snapshot}")
                }
                None => text(details, "sourceVolume") == name,
            };
            if !stands {
                continue;
            }
            let clone_name = text(clone, "name");
            let waits = || {
                let why = format!("{clone_name} is being split from {of}; call again");
                Status::new(Code::Aborted, why)
            };
            if text(details, "splitState") != "SPLIT_STATE_NOT_SPLITTING" {
                return Err(waits());
            }
            let split = format!("{clone_name}:startSplit");
            match self.api.change(&Verb::Post(&json!({})), &split, &[]) {
                Ok(_) => {}
                Err(e) if e.code == Code::DeadlineExceeded => return Err(waits()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn expand_volume(&self, request: Value) -> Outcome<Value> {
        let request: OfVolume = read(request)?;
        let id = request.volume()?;
        let range = request.capacity_range;
        if range.required_bytes == 0 && range.limit_bytes == 0 {
            return Err(Status::invalid("capacity_range is missing"));
        }
        let _operation = self.in_flight.begin(format!("volume {id}"))?;
        let there = self.volume(&id)?;
        let now = number(&there, "capacityGib");
        let capacity = gib(range, now)?;
        if capacity > now {
            let body = json!({"capacityGib": capacity.to_string()});
            let query = [("updateMask", "capacityGib")];
            let name = self.volume_name(&id);
            self.api.change(&Verb::Patch(&body), &name, &query)?;
        }
        Ok(json!({
            "capacityBytes": (capacity * GIB).to_string(),
            "nodeExpansionRequired": false,
        }))
    }

    pub(super) fn modify_volume(&self, request: Value) -> Outcome<Value> {
        let request: OfVolume = read(request)?;
        let id = request.volume()?;
        let fields = Parameters::mutable(&request.mutable_parameters)?;
        let _operation = self.in_flight.begin(format!("volume {id}"))?;
        let there = self.volume(&id)?;
        let differs =
            |(name, value): (&String, &Value)| number(&there, name) != value.as_u64().unwrap_or(0);
        if fields.iter().any(differs) {
            let mask: Vec<&str> = fields.keys().map(String::as_str).collect();
            let mask = mask.join(",");
            let name = self.volume_name(&id);
            let body = Value::Object(fields);
            self.api
                .change(&Verb::Patch(&body), &name, &[("updateMask", &mask)])?;
        }
        Ok(json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_whole_gib_in_the_range() {
        let of = |required_bytes, limit_bytes, least| {
            let range = CapacityRange {
                required_bytes,
                limit_bytes,
            };
            gib(range, least).map_err(|e| e.code)
        };
        let one = 1 << 30;
        assert_eq!(of(0, 0, 0), Ok(1));
        assert_eq!(of(one + 1, 0, 0), Ok(2));
        assert_eq!(of(one, 2 * one, 2), Ok(2));
        assert_eq!(of(one + 1, 2 * one - 1, 0), Err(Code::OutOfRange));
        assert_eq!(of(0, one - 1, 0), Err(Code::OutOfRange));
        assert_eq!(of(-1, 0, 0), Err(Code::InvalidArgument));
    }
}
