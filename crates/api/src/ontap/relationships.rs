//! `snapmirror/relationships`.
//!
//! `state` is a wish: `snapmirrored` is initialize, resume or resync, whichever leads there;
//! `paused` is quiesce, `broken_off` is break. A throttle that comes with it holds for the transfer
//! that it starts.

use weir_ontap::fields::Way;
use weir_ontap::fields::relationship::{Draft, Row, TABLE, ended, running, state};
use weir_ontap::value::{identity as uuid, iso_duration as duration};
use weir_ontap::{Change, Failure, Reason, Settings};
use weir_relations::manager::{Entry, First, Manager, Verb, Work};
use weir_relations::model::{MirrorState, Path, Relationship, Status};

use super::body::Fields;
use super::listing::texts;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply, Restore};

/// Restores that wait for their transfer.
const MOST: usize = super::surface::RESTORES;

/// Returns the record of a relationship.
fn row(a: &CallContext<'_>, relationship: Relationship, restore: bool) -> Row {
    Row {
        relationship,
        now: a.cluster.current_time(),
        node: a.cluster.name(),
        kind: None,
        restore,
    }
}

/// Restores that wait to begin.
fn announced(a: &CallContext<'_>) -> Vec<(Relationship, bool)> {
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
pub fn find(a: &CallContext<'_>, id: &str) -> HandlerResult<Relationship> {
    let found = a.cluster.relationship_named(id);
    found.ok_or_else(Refusal::no_entry)
}

/// Handles GET of relationships, by their destinations or, with `list_destinations_only`, by their
/// sources.
pub fn list(a: &CallContext<'_>) -> HandlerResult<Reply> {
    let mut query = a.call.query.clone();
    // Relationships whose source is here, from the source's side.
    let at = query
        .iter()
        .position(|(name, _)| name == "list_destinations_only");
    let sources = match at.map(|at| query.remove(at).1) {
        Some(text) => text.eq_ignore_ascii_case("true"),
        None => false,
    };
    let listing = resource::listing(&query, &TABLE)?;
    let now = a.cluster.current_time();
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
            (Some(id), _) => rows.find_by_uuid(id),
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
        let texts = |item: &Item<'_>, name: &str| item.texts(a, manager, name, now);
        let page = listing.choose(all, texts, Item::place);
        chosen = Some(page.map(|item| item.whole(manager)));
    });
    let chosen = chosen.ok_or_else(Refusal::no_entry)?;
    let page = chosen.map(|(r, restore)| resource::record(&TABLE, &row(a, r, restore)));
    Ok(listing.page(&a.here(), TABLE.keys, page))
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
            Item::Row(entry) => with_kind(manager.describe_entry(entry)),
            Item::Other(r, restore) => (Relationship::clone(r), *restore),
        }
    }

    /// Returns the values of a field, as its record has them. What lists are mostly searched by and
    /// ordered by is read from the row: that takes a tenth of a microsecond, a record some ten.
    fn texts(&self, a: &CallContext<'_>, manager: &Manager, name: &str, now: i64) -> Vec<String> {
        let slowly = || {
            let (r, restore) = self.whole(manager);
            texts(&resource::record(&TABLE, &row(a, r, restore)), name)
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
fn find_relationship(a: &CallContext<'_>, id: &str) -> Option<(Relationship, bool)> {
    let ours = a.cluster.relationship_named(id).map(with_kind);
    ours.or_else(|| announced(a).into_iter().find(|(r, _)| r.uuid == id))
}

/// Handles GET of one, by its UUID.
pub fn get(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    let listing = resource::listing(&a.call.query, &TABLE)?;
    let found = find_relationship(a, id);
    let (r, restore) = found.ok_or_else(Refusal::no_entry)?;
    let record = resource::record(&TABLE, &row(a, r, restore));
    Ok(listing.one(TABLE.keys, record))
}

/// Returns an end of a relationship: its path, with the cluster if it is another.
fn path(a: &CallContext<'_>, fields: &mut Fields, end: &str) -> HandlerResult<Option<Path>> {
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

/// Returns what a body sets. The ends, and what is to be done, are read before.
fn draft(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<Draft> {
    let mut draft = Draft::default();
    fields.ignore(&["policy.type"]);
    resource::read(a, &TABLE, fields, Way::Modify, &mut draft, None)?;
    Ok(draft)
}

fn change_or(a: &CallContext<'_>, change: impl Into<Change>, verb: &str) -> HandlerResult<()> {
    let done = a.cluster.change(change.into());
    done.map_err(|failure| Refusal::of_relationship(failure, verb))
}

/// Handles POST: a new relationship, or a restore that a transfer is to begin.
pub fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let source = path(a, &mut fields, "source")?;
    let destination = path(a, &mut fields, "destination")?;
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
    let draft = draft(a, &mut fields)?;
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
        policy: draft.policy,
        schedule: draft.schedule.flatten(),
        throttle: draft.throttle.flatten(),
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
    resource::made(a, &TABLE, Some(row(a, made, false)))
}

/// Makes a volume to copy into, as large as the source unless a size is given.
fn make_destination(
    a: &CallContext<'_>,
    source: &Path,
    destination: &Path,
    size: Option<u64>,
) -> HandlerResult<()> {
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
fn announce(a: &CallContext<'_>, source: Path, destination: Path) -> HandlerResult<Reply> {
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
            &format!("{destination}/{}/{}", a.cluster.current_time(), held.made),
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
    let found = find_relationship(a, &id);
    let (made, _) = found.ok_or_else(Refusal::no_entry)?;
    resource::made(a, &TABLE, Some(row(a, made, true)))
}

/// Handles PATCH of a relationship, by its UUID.
pub fn change(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&["failover", "force-failover"])?;
    let r = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let ends = (
        path(a, &mut fields, "source")?,
        path(a, &mut fields, "destination")?,
    );
    // A resync always searches for data that the destination already has.
    fields.flag("quick_resync")?;
    let wish = fields.text("state")?;
    let draft = draft(a, &mut fields)?;
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
    if draft.policy.is_some() || draft.schedule.is_some() || draft.throttle.is_some() {
        let change = Verb::Modify {
            destination: r.destination.clone(),
            policy: draft.policy,
            schedule: draft.schedule,
            throttle: draft.throttle,
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
fn reverse(a: &CallContext<'_>, r: &Relationship) -> HandlerResult<Reply> {
    if r.state != MirrorState::BrokenOff {
        change_or(a, Verb::Break(r.destination.clone()), "break")?;
    }
    change_or(a, Verb::Reverse(r.destination.clone()), "resync")?;
    a.done(None)
}

/// Handles DELETE, also of a restore that has not begun.
pub fn delete(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
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
