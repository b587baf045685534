//! `snapmirror/relationships`.
//!
//! `state` is a wish: `snapmirrored` is initialize, resume or resync, whichever leads there;
//! `paused` is quiesce, `broken_off` is break. A throttle that comes with it holds for the transfer
//! that it starts.

use serde_json::{Map, Value, json};
use weir_ontap::{Change, Failure, Reason, Settings};
use weir_relations::manager::{Entry, First, Manager, Verb, Work};
use weir_relations::model::{ABORTED, MirrorState, Path, Relationship, Status};

use super::body::Fields;
use super::listing::{Listing, texts};
use super::policies;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, Restore, itself, time};
use weir_ontap::value::identity as uuid;
use weir_ontap::value::iso_duration as duration;

/// Restores that wait for their transfer.
const MOST: usize = super::surface::RESTORES;

const KNOWN: &[&str] = &[
    "uuid",
    "source.path",
    "source.svm.name",
    "source.svm.uuid",
    "source.cluster.name",
    "source.cluster.uuid",
    "destination.path",
    "destination.svm.name",
    "destination.svm.uuid",
    "destination.cluster.name",
    "destination.cluster.uuid",
    "policy.name",
    "policy.type",
    "policy.uuid",
    "state",
    "healthy",
    "unhealthy_reason.message",
    "unhealthy_reason.code",
    "throttle",
    "transfer_schedule.name",
    "transfer_schedule.uuid",
    "transfer.uuid",
    "transfer.state",
    "transfer.type",
    "transfer.bytes_transferred",
    "transfer.end_time",
    "transfer.last_updated_time",
    "transfer.total_duration",
    "exported_snapshot",
    "group_type",
    "backoff_level",
    "lag_time",
    "last_transfer_type",
    "last_transfer_network_compression_ratio",
    "restore",
    "total_transfer_bytes",
    "total_transfer_duration",
    "identity_preservation",
    "consistency_group_failover",
    "svmdr_volumes",
];

/// Returns the URL path of a relationship.
pub fn link(relationship: &str) -> String {
    format!("/api/snapmirror/relationships/{relationship}")
}

fn endpoint(path: &Path) -> Value {
    let mut out = json!({
        "path": format!("{}:{}", path.vserver, path.volume),
        "svm": {"name": path.vserver, "uuid": uuid("svm", &path.vserver)},
    });
    if let (false, Some(out)) = (path.cluster.is_empty(), out.as_object_mut()) {
        let id = uuid("cluster", &path.cluster);
        out.insert(
            "cluster".to_owned(),
            json!({"name": path.cluster, "uuid": id}),
        );
    }
    out
}

/// Returns ONTAP's word for what the destination is.
fn state(state: MirrorState, status: Status) -> &'static str {
    match (state, status) {
        (MirrorState::BrokenOff, _) => "broken_off",
        (_, Status::InSync) => "in_sync",
        (_, Status::OutOfSync) => "out_of_sync",
        (_, Status::Quiesced) => "paused",
        (MirrorState::Uninitialized, _) => "uninitialized",
        (MirrorState::Snapmirrored, _) => "snapmirrored",
    }
}

/// Returns a relationship as a record.
fn record(r: &Relationship, now: i64, restore: bool) -> Value {
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            out.insert(name.to_owned(), value);
        }
    };
    set("_links", itself(&link(&r.uuid)));
    set("uuid", json!(r.uuid));
    set("source", endpoint(&r.source));
    set("destination", endpoint(&r.destination));
    let kind = match r.synchronous {
        Some(_) => "sync",
        None => "async",
    };
    set(
        "policy",
        json!({"name": r.policy, "type": kind, "uuid": uuid("policy", &r.policy)}),
    );
    set("state", json!(state(r.state, r.status)));
    set("healthy", json!(r.healthy));
    if let (false, Some(reason)) = (r.healthy, &r.unhealthy_reason) {
        set(
            "unhealthy_reason",
            json!([{"message": reason, "code": "13303834"}]),
        );
    }
    set("throttle", json!(r.throttle.unwrap_or(0)));
    if let Some(name) = &r.schedule {
        set(
            "transfer_schedule",
            json!({"name": name, "uuid": uuid("schedule", name)}),
        );
    }
    set("group_type", json!("none"));
    set("backoff_level", json!("none"));
    set("restore", json!(restore));
    if let Some(exported) = &r.exported {
        set("exported_snapshot", json!(exported.name));
    }
    if let Some(lag) = r.lag(now) {
        set("lag_time", json!(duration(lag)));
    }
    if let Some(last) = &r.last {
        set("last_transfer_type", json!(last.kind.word()));
        set(
            "last_transfer_network_compression_ratio",
            json!(super::transfers::ratio(last.bytes, last.wire_bytes)),
        );
        set("total_transfer_bytes", json!(last.bytes));
        set(
            "total_transfer_duration",
            json!(duration(last.duration_ms / 1000)),
        );
    }
    set("transfer", transfer(r));
    Value::Object(out)
}

/// Returns the running transfer, or else the last one.
fn transfer(r: &Relationship) -> Value {
    let path = |id: &str| itself(&format!("{}/transfers/{id}", link(&r.uuid)));
    match (&r.transfer, &r.last) {
        (Some(t), _) => json!({
            "_links": path(&t.uuid),
            "uuid": t.uuid,
            "state": running(r.status),
            "type": t.kind.word(),
            "bytes_transferred": t.bytes,
            "last_updated_time": time(t.updated),
            "total_duration": duration(u64::try_from(t.updated - t.started).unwrap_or(0)),
        }),
        (None, Some(l)) => json!({
            "_links": path(&l.uuid),
            "uuid": l.uuid,
            "state": ended(l.error.as_deref()),
            "type": l.kind.word(),
            "bytes_transferred": l.bytes,
            "end_time": time(l.end),
            "total_duration": duration(l.duration_ms / 1000),
        }),
        (None, None) => Value::Null,
    }
}

/// Returns ONTAP's word for a transfer under way.
pub fn running(status: Status) -> &'static str {
    match status {
        Status::Queued => "queued",
        _ => "transferring",
    }
}

/// Returns ONTAP's word for how a transfer ended.
pub fn ended(error: Option<&str>) -> &'static str {
    match error {
        None => "success",
        Some(ABORTED) => "aborted",
        Some(_) => "failed",
    }
}

/// Restores that wait to begin.
fn announced(a: &Asked<'_>) -> Vec<(Relationship, bool)> {
    let restores = a.surface.restores().into_iter().map(|r| {
        let waiting = Relationship::new(r.uuid, r.source, r.destination, "MirrorAllSnapshots");
        (waiting, true)
    });
    restores.collect()
}

/// Returns the relationship, and true if it is a restore.
fn with_kind(r: Relationship) -> (Relationship, bool) {
    let kind = r.transfer.as_ref().map(|t| t.kind);
    let restore = kind == Some(weir_relations::model::TransferKind::Restore);
    (r, restore)
}

/// Returns a relationship whose destination is here.
pub fn find(a: &Asked<'_>, id: &str) -> Answered<Relationship> {
    let found = a.cluster.relationship_named(id);
    found.ok_or_else(Refusal::no_entry)
}

/// Handles GET of relationships, by their destinations or, with `list_destinations_only`, by their
/// sources.
pub fn list(a: &Asked<'_>) -> Answered<Reply> {
    let mut query = a.call.query.clone();
    // Relationships whose source is here, from the source's side.
    let at = query
        .iter()
        .position(|(name, _)| name == "list_destinations_only");
    let sources = match at.map(|at| query.remove(at).1) {
        Some(text) => text.eq_ignore_ascii_case("true"),
        None => false,
    };
    let listing = Listing::parse(&query, KNOWN)?;
    let now = a.cluster.now();
    let mut chosen = None;
    let others: Vec<_> = match sources {
        true => a
            .cluster
            .destinations()
            .into_iter()
            .map(with_kind)
            .collect(),
        false => {
            let synchronous = a.cluster.synchronous().into_iter().map(with_kind);
            announced(a).into_iter().chain(synchronous).collect()
        }
    };
    a.cluster.read(&mut |rows, manager| {
        // Clients that look for one ask for it by what identifies it.
        let one = match (listing.exactly("uuid"), listing.exactly("destination.path")) {
            (Some(id), _) => rows.named(id),
            (None, Some(path)) => Path::parse(path).and_then(|path| rows.entry(&path)),
            (None, None) => None,
        };
        let most = if sources || one.is_some() {
            0
        } else {
            usize::MAX
        };
        let all = one
            .filter(|_| !sources)
            .into_iter()
            .chain(rows.entries(0).take(most))
            .map(|entry| Item::Row(entry))
            .chain(others.iter().map(|(r, restore)| Item::Other(r, *restore)));
        let texts = |item: &Item<'_>, name: &str| item.texts(manager, name, now);
        let page = listing.choose(all, texts, Item::place);
        chosen = Some(page.map(|item| item.whole(manager)));
    });
    let chosen = chosen.ok_or_else(Refusal::no_entry)?;
    let page = chosen.map(|(r, restore)| record(&r, now, restore));
    Ok(listing.page(&a.here(), &["uuid"], page))
}

/// Element of a list.
enum Item<'r> {
    Row(&'r Entry),
    /// Relationship that has no row here; true if it is a restore.
    Other(&'r Relationship, bool),
}

impl Item<'_> {
    /// Returns the place in the order of the list: rows as they were made, then the others.
    fn place(&self) -> Vec<String> {
        match self {
            Item::Row(entry) => vec![entry.number.to_string()],
            Item::Other(r, _) => vec![u64::MAX.to_string(), r.uuid.clone()],
        }
    }

    fn whole(&self, manager: &Manager) -> (Relationship, bool) {
        match self {
            Item::Row(entry) => with_kind(manager.shown(entry)),
            Item::Other(r, restore) => (Relationship::clone(r), *restore),
        }
    }

    /// Returns the values of a field, as its record has them. What lists are mostly searched by and
    /// ordered by is read from the row: that takes a tenth of a microsecond, a record some ten.
    fn texts(&self, manager: &Manager, name: &str, now: i64) -> Vec<String> {
        let slowly = || {
            let (r, restore) = self.whole(manager);
            texts(&record(&r, now, restore), name)
        };
        let Item::Row(e) = self else { return slowly() };
        let path = |path: &Path| format!("{}:{}", path.vserver, path.volume);
        let status = || manager.status(e);
        let cluster = |path: &Path| Some(path.cluster.clone()).filter(|name| !name.is_empty());
        let text = match name {
            "uuid" => Some(e.uuid.clone()),
            "source.path" => Some(path(&e.shown)),
            "source.svm.name" => Some(e.shown.vserver.clone()),
            "source.cluster.name" => cluster(&e.shown),
            "destination.path" => Some(path(&e.destination)),
            "destination.svm.name" => Some(e.destination.vserver.clone()),
            "policy.name" => Some(e.policy.clone()),
            "state" => Some(state(e.state, status()).to_owned()),
            "healthy" => Some((e.trouble.is_none() && !e.quiesced).to_string()),
            "throttle" => Some(e.throttle.unwrap_or(0).to_string()),
            "transfer_schedule.name" => e.schedule.clone(),
            "exported_snapshot" => e.newest.as_ref().map(|newest| newest.name.clone()),
            "lag_time" => e.lag(now).map(duration),
            "transfer.state" => match (&e.pending, &e.last) {
                (Some(p), _) if p.work != Work::Break => Some(running(status()).to_owned()),
                (_, last) => last.as_ref().map(|l| ended(l.error.as_deref()).to_owned()),
            },
            _ => return slowly(),
        };
        text.into_iter().collect()
    }
}

/// Returns the one of this UUID, and whether it is a restore.
fn named(a: &Asked<'_>, id: &str) -> Option<(Relationship, bool)> {
    let ours = a.cluster.relationship_named(id).map(with_kind);
    ours.or_else(|| announced(a).into_iter().find(|(r, _)| r.uuid == id))
}

/// Handles GET of one, by its UUID.
pub fn get(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    let listing = Listing::parse(&a.call.query, KNOWN)?;
    let found = named(a, id);
    let (r, restore) = found.ok_or_else(Refusal::no_entry)?;
    Ok(listing.one(&["uuid"], record(&r, a.cluster.now(), restore)))
}

/// Returns an end of a relationship: its path, with the cluster if it is another.
fn path(a: &Asked<'_>, fields: &mut Fields, end: &str) -> Answered<Option<Path>> {
    let name = format!("{end}.path");
    let text = fields.text(&name)?;
    let cluster = fields.text(&format!("{end}.cluster.name"))?;
    // The path names the machine already.
    for more in ["svm.name", "svm.uuid", "cluster.uuid"] {
        fields.ignore(&[format!("{end}.{more}").as_str()]);
    }
    let Some(text) = text else { return Ok(None) };
    let mut path = Path::parse(&text).ok_or_else(|| Refusal::value(&name, &text, "svm:volume"))?;
    if let Some(cluster) = cluster.filter(|c| *c != a.cluster.name()) {
        path.cluster = cluster;
    }
    Ok(Some(path))
}

/// Returns a schedule: `null` is none.
fn schedule(a: &Asked<'_>, fields: &mut Fields) -> Answered<Option<Option<String>>> {
    if fields
        .take("transfer_schedule")
        .is_some_and(|v| v.is_null())
    {
        return Ok(Some(None));
    }
    let by_id = fields.text("transfer_schedule.uuid")?;
    let name = match fields.take("transfer_schedule.name") {
        None => None,
        Some(Value::Null) => return Ok(Some(None)),
        Some(Value::String(name)) if name.is_empty() => return Ok(Some(None)),
        Some(Value::String(name)) => Some(name),
        Some(other) => {
            let text = other.to_string();
            return Err(Refusal::value("transfer_schedule.name", &text, "string"));
        }
    };
    if name.is_none() && by_id.is_none() {
        return Ok(None);
    }
    let all = a.cluster.schedules();
    let found = all.into_iter().find(|s| {
        name.as_ref().is_none_or(|name| s.name == *name)
            && by_id
                .as_ref()
                .is_none_or(|id| uuid("schedule", &s.name) == *id)
    });
    match found {
        Some(found) => Ok(Some(Some(found.name))),
        None => {
            let asked = name.or(by_id).unwrap_or_default();
            Err(Refusal::value(
                "transfer_schedule.name",
                &asked,
                "no such schedule",
            ))
        }
    }
}

fn change_or(a: &Asked<'_>, change: impl Into<Change>, verb: &str) -> Answered<()> {
    let done = a.cluster.change(change.into());
    done.map_err(|failure| Refusal::of_relationship(failure, verb))
}

/// Handles POST: a new relationship, or a restore that a transfer is to begin.
pub fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let source = path(a, &mut fields, "source")?;
    let destination = path(a, &mut fields, "destination")?;
    let policy = policies::named(a, &mut fields)?;
    let schedule = schedule(a, &mut fields)?.flatten();
    let throttle = fields.throttle("throttle")?;
    let wish = fields.text("state")?;
    let restore = fields.flag("restore")?.unwrap_or(false);
    let make = fields.flag("create_destination.enabled")?.unwrap_or(false);
    let size = fields.number("create_destination.size")?;
    if let Some(true) = fields.flag("create_destination.tiering.supported")? {
        let why = "there are no tiers";
        return Err(Refusal::not_here(
            "create_destination.tiering.supported",
            why,
        ));
    }
    fields.done()?;
    let source = source.ok_or_else(|| Refusal::required("source.path"))?;
    let destination = destination.ok_or_else(|| Refusal::required("destination.path"))?;
    match wish.as_deref() {
        None | Some("snapmirrored") => {}
        Some(other) => return Err(Refusal::value("state", other, "snapmirrored")),
    }
    if restore {
        return announce(a, source, destination);
    }
    if make {
        make_destination(a, &source, &destination, size)?;
    }
    let change = Verb::Create {
        source,
        destination: destination.clone(),
        policy,
        schedule,
        throttle: throttle.flatten(),
        tries: None,
        note: None,
        initialize: wish.map(|_| First::default()),
    };
    if let Err(refusal) = change_or(a, change, "create") {
        if make {
            // The volume that was made for it alone goes again; if that fails, it is an empty
            // volume that shows in lists.
            drop(a.cluster.change(Change::VolumeDelete(destination)));
        }
        return Err(refusal);
    }
    let made = a.cluster.relationship(&destination);
    let made = made.ok_or_else(Refusal::no_entry)?;
    a.done(Some((
        link(&made.uuid),
        record(&made, a.cluster.now(), false),
    )))
}

/// Makes a volume to copy into, as large as the source unless a size is given.
fn make_destination(
    a: &Asked<'_>,
    source: &Path,
    destination: &Path,
    size: Option<u64>,
) -> Answered<()> {
    let of = a.cluster.volumes().into_iter().find(|v| v.path == *source);
    let size = size.or(of.and_then(|v| v.size));
    let size = size.ok_or_else(|| Refusal::required("create_destination.size"))?;
    let change = Change::VolumeCreate {
        path: destination.clone(),
        size,
        protection: true,
        settings: Settings::default(),
    };
    change_or(a, change, "volume")
}

/// Remembers a restore until a transfer is asked of it.
fn announce(a: &Asked<'_>, source: Path, destination: Path) -> Answered<Reply> {
    if a.cluster.relationship(&destination).is_some() {
        let message = format!("Relationship with destination \"{destination}\" already exists.");
        let failure = Failure::new(Reason::Duplicate, message);
        return Err(Refusal::of_relationship(failure, "create"));
    }
    let id = a.surface.with(|held| {
        held.restores.retain(|r| r.destination != destination);
        held.made += 1;
        let id = uuid(
            "restore",
            &format!("{destination}/{}/{}", a.cluster.now(), held.made),
        );
        held.restores.push_back(Restore {
            uuid: id.clone(),
            source,
            destination,
        });
        while held.restores.len() > MOST {
            held.restores.pop_front();
        }
        id
    });
    let found = named(a, &id);
    let (made, _) = found.ok_or_else(Refusal::no_entry)?;
    a.done(Some((link(&id), record(&made, a.cluster.now(), true))))
}

/// Handles PATCH of a relationship, by its UUID.
pub fn change(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&["failover", "force-failover"])?;
    let r = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let ends = (
        path(a, &mut fields, "source")?,
        path(a, &mut fields, "destination")?,
    );
    let policy = policies::named(a, &mut fields)?;
    let schedule = schedule(a, &mut fields)?;
    let throttle = fields.throttle("throttle")?;
    // A resync always searches for data that the destination already has.
    fields.flag("quick_resync")?;
    let wish = fields.text("state")?;
    fields.done()?;
    match wish.as_deref() {
        None | Some("snapmirrored" | "paused" | "broken_off") => {}
        Some(other) => {
            return Err(Refusal::value(
                "state",
                other,
                "snapmirrored, paused, broken_off",
            ));
        }
    }
    if policy.is_some() || schedule.is_some() || throttle.is_some() {
        let change = Verb::Modify {
            destination: r.destination.clone(),
            policy: policy.clone(),
            schedule,
            throttle,
            tries: None,
            note: None,
        };
        change_or(a, change, "modify")?;
    }
    match ends {
        (None, None) => {}
        (source, destination) => {
            let (source, destination) = (
                source.unwrap_or_else(|| r.source.clone()),
                destination.unwrap_or_else(|| r.destination.clone()),
            );
            if source == r.destination && destination == r.source {
                return reverse(a, &r);
            }
            if source != r.source || destination != r.destination {
                let why = "the ends can be swapped, not moved";
                return Err(Refusal::not_here("source.path", why));
            }
        }
    }
    let destination = r.destination.clone();
    let (change, verb) = match (wish.as_deref(), r.state, r.status) {
        (Some("paused"), _, Status::Quiesced | Status::Quiescing) => return a.done(None),
        (Some("paused"), ..) => (Verb::Quiesce(destination), "quiesce"),
        (Some("broken_off"), MirrorState::BrokenOff, _) => return a.done(None),
        (Some("broken_off"), ..) => (Verb::Break(destination), "break"),
        (Some(_), MirrorState::BrokenOff, _) => {
            let change = Verb::Resync {
                destination,
                source: None,
            };
            (change, "resync")
        }
        (Some(_), _, Status::Quiesced | Status::Quiescing) => (Verb::Resume(destination), "resume"),
        (Some(_), MirrorState::Uninitialized, _) if r.transfer.is_none() => {
            let change = Verb::Initialize {
                destination,
                source_snapshot: None,
                throttle: None,
            };
            (change, "initialize")
        }
        _ => return a.done(None),
    };
    change_or(a, change, verb)?;
    a.done(None)
}

/// Reverses a relationship: the destination is broken off if it is not yet, and the old source
/// becomes a copy of it. The relationship of before is gone.
fn reverse(a: &Asked<'_>, r: &Relationship) -> Answered<Reply> {
    if r.state != MirrorState::BrokenOff {
        change_or(a, Verb::Break(r.destination.clone()), "break")?;
    }
    change_or(a, Verb::Reverse(r.destination.clone()), "resync")?;
    a.done(None)
}

/// Handles DELETE, also of a restore that has not begun.
pub fn delete(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[
        "destination_only",
        "source_only",
        "source_info_only",
        "force",
    ])?;
    let waiting = a.surface.with(|held| {
        let before = held.restores.len();
        held.restores.retain(|r| r.uuid != id);
        before != held.restores.len()
    });
    if waiting {
        return a.done(None);
    }
    let source_only = a.flag("source_only")? || a.flag("source_info_only")?;
    if source_only {
        let all = a.cluster.destinations();
        let r = all.into_iter().find(|r| r.uuid == id);
        let r = r.ok_or_else(Refusal::no_entry)?;
        change_or(a, Verb::Release(r.destination), "release")?;
        return a.done(None);
    }
    let r = find(a, id)?;
    change_or(a, Verb::Delete(r.destination.clone()), "delete")?;
    let here = |d: &Relationship| d.destination == r.destination;
    if !a.flag("destination_only")? && a.cluster.destinations().iter().any(here) {
        change_or(a, Verb::Release(r.destination.clone()), "release")?;
    }
    a.done(None)
}
