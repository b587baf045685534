//! The users' commands, with the replies that ONTAP would give.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rows::{ChangeSet, Edit, Entry, KnownDestination, Relations, Work};
use super::settings::{in_range, settings};
use super::{
    DEFAULT_POLICY, First, NO_ENTRIES, Preconditions, Reason, Side, TRIES, Verb, VerbRefusal,
    refuse, uuid,
};
use crate::model::{FileRestore, MirrorState, Path, TransferKind};
use crate::retention::common;

type Outcome = Result<(), VerbRefusal>;

/// Maximum number of files of one restore.
const MAX_RESTORED_FILES: usize = 64;
/// Maximum length in bytes of the path of such a file.
const MAX_RESTORED_PATH: usize = 1024;

/// Options of a requested transfer.
struct TransferOptions {
    /// Name of the snapshot of the source to copy; `None` is the newest state.
    snapshot: Option<String>,
    /// Throttle of this transfer only, in KB/s or unlimited; `None` is the relationship's.
    throttle: Option<Option<u64>>,
}

/// The newest state, under the relationship's throttle.
const PLAIN: TransferOptions = TransferOptions {
    snapshot: None,
    throttle: None,
};

/// Carries out a verb: quick operations at once, others by queueing them. `now` is in seconds since
/// 1970.
///
/// # Errors
/// The verb is refused. The caller has to discard `next`.
pub fn change(
    next: &mut ChangeSet,
    verb: &Verb,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let verb = verb.clone();
    match verb {
        Verb::Create {
            source,
            destination,
            policy,
            schedule,
            throttle,
            tries,
            note,
            initialize,
        } => {
            let mut entry = new_entry(&next.rows, source, destination, preconditions, now)?;
            entry.tries = tries.unwrap_or(TRIES);
            entry.note = note;
            if let Some(policy) = policy {
                entry.policy = known_policy(&next.rows, policy)?;
            }
            entry.schedule = known_schedule(&next.rows, schedule)?;
            entry.throttle = in_range(throttle)?;
            add(next, entry, initialize, preconditions, now)?;
        }
        Verb::Modify {
            destination,
            policy,
            schedule,
            throttle,
            tries,
            note,
        } => {
            let policy = policy
                .map(|name| known_policy(&next.rows, name))
                .transpose()?;
            let schedule = schedule
                .map(|name| known_schedule(&next.rows, name))
                .transpose()?;
            let throttle = throttle.map(in_range).transpose()?;
            let mut entry = found(&next.rows, &destination)?;
            entry.policy = policy.unwrap_or(entry.policy);
            if let Some(schedule) = schedule.filter(|schedule| *schedule != entry.schedule) {
                // Slots count from now on: missed slots of the previous schedule are not made up
                // for.
                (entry.schedule, entry.scheduled) = (schedule, now);
            }
            entry.throttle = throttle.unwrap_or(entry.throttle);
            entry.tries = tries.unwrap_or(entry.tries);
            entry.note = note.or(entry.note);
            next.put(entry);
        }
        Verb::Initialize {
            destination,
            source_snapshot: snapshot,
            throttle,
        } => {
            let wanted = TransferOptions { snapshot, throttle };
            initialize(next, &destination, wanted, preconditions, now)?;
        }
        Verb::Update {
            destination,
            source_snapshot: snapshot,
            throttle,
        } => {
            let wanted = TransferOptions { snapshot, throttle };
            update(next, &destination, wanted, preconditions, now)?;
        }
        Verb::Quiesce(destination) => {
            let mut entry = found(&next.rows, &destination)?;
            entry.quiesced = true;
            next.put(entry);
        }
        Verb::Resume(destination) => {
            let mut entry = found(&next.rows, &destination)?;
            if entry.quiesced {
                entry.quiesced = false;
                entry.scheduled = now;
                next.put(entry);
            }
        }
        Verb::Abort { destination, hard } => {
            abort(next, &destination, hard, preconditions.running, now)?;
        }
        Verb::Stop(destination) => stop(next, &destination, false, preconditions.running, now)?,
        Verb::End(destination) => stop(next, &destination, true, preconditions.running, now)?,
        Verb::Break(destination) => break_off(next, destination, now)?,
        Verb::Resync {
            destination,
            source,
        } => resync(next, destination, source, preconditions, now)?,
        Verb::Reverse(destination) => reverse(next, &destination, preconditions, now)?,
        Verb::Restore {
            source,
            destination,
            source_snapshot,
            throttle,
            files,
        } => {
            sound_files(&files)?;
            let tried = next.rows.entry(&destination).filter(|e| e.restore);
            let entry = match tried {
                // A retry of a failed restore.
                Some(tried)
                    if *preconditions.found.as_ref().unwrap_or(&source) == tried.source
                        && tried.files.is_empty() == files.is_empty() =>
                {
                    free(tried)?;
                    Entry::clone(tried)
                }
                _ => new_entry(&next.rows, source, destination, preconditions, now)?,
            };
            let wanted = TransferOptions {
                snapshot: source_snapshot,
                throttle: Some(throttle),
            };
            restore(next, entry, files, wanted, preconditions, now)?;
        }
        Verb::Release(destination) => release(next, &destination)?,
        Verb::Delete(destination) => {
            free(&found(&next.rows, &destination)?)?;
            next.make(Edit::NoRelationship(destination));
        }
        verb => return settings(next, verb, preconditions),
    }
    Ok(())
}

/// Adds a relationship, and queues its first transfer if `initialize` wants one.
fn add(
    next: &mut ChangeSet,
    mut entry: Entry,
    initialize: Option<First>,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let to = destination_side(&entry.destination, preconditions)?;
    let later = initialize.as_ref().is_some_and(|first| first.once_paired);
    let from = match later && !entry.source.cluster.is_empty() {
        true => None,
        false => Some(source_side(&entry, preconditions)?),
    };
    if let Some(from) = from {
        stays_straight(&next.rows, None, &mut entry, from, to)?;
    }
    protected(&entry.destination, to)?;
    if let Some(from) = from {
        large_enough(from, to)?;
    }
    if let Some(First {
        source_snapshot: snapshot,
        throttle,
        ..
    }) = initialize
    {
        let wanted = TransferOptions { snapshot, throttle };
        if let Some(from) = from {
            has_snapshot(&entry, &wanted, from)?;
        }
        begin(&mut entry, TransferKind::Initialize, wanted, now)?;
    }
    next.put(entry);
    Ok(())
}

/// Queues the first transfer.
fn initialize(
    next: &mut ChangeSet,
    destination: &Path,
    wanted: TransferOptions,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let mut entry = found(&next.rows, destination)?;
    free(&entry)?;
    awake(&entry)?;
    if entry.restore {
        return refuse(
            Reason::State,
            "This operation is not allowed on a restore relationship.",
        );
    }
    match entry.state {
        MirrorState::Uninitialized => {}
        MirrorState::Snapmirrored => {
            return refuse(
                Reason::State,
                format!(
                    "Relationship with destination \"{}\" is already initialized.",
                    entry.destination
                ),
            );
        }
        MirrorState::BrokenOff => {
            return refuse(Reason::State, not_protected(&entry.destination));
        }
    }
    let to = destination_side(&entry.destination, preconditions)?;
    protected(&entry.destination, to)?;
    // If the source cannot be reached now, the transfer retries; if it is known, it must
    // fit.
    if let Ok(from) = &preconditions.source {
        large_enough(from, to)?;
        has_snapshot(&entry, &wanted, from)?;
    }
    begin(&mut entry, TransferKind::Initialize, wanted, now)?;
    next.put(entry);
    Ok(())
}

/// Queues a transfer of what has changed.
fn update(
    next: &mut ChangeSet,
    destination: &Path,
    wanted: TransferOptions,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let mut entry = found(&next.rows, destination)?;
    free(&entry)?;
    awake(&entry)?;
    match entry.state {
        MirrorState::Uninitialized => {
            return refuse(Reason::State, not_initialized(&entry));
        }
        MirrorState::BrokenOff => {
            return refuse(Reason::State, not_protected(&entry.destination));
        }
        MirrorState::Snapmirrored => {}
    }
    if let Ok(from) = &preconditions.source {
        has_snapshot(&entry, &wanted, from)?;
    }
    begin(&mut entry, TransferKind::Update, wanted, now)?;
    next.put(entry);
    Ok(())
}

/// Ends the transfer that is `running` or waits; if `hard`, the next one starts from its beginning.
fn abort(next: &mut ChangeSet, destination: &Path, hard: bool, running: bool, now: i64) -> Outcome {
    let mut entry = found(&next.rows, destination)?;
    let moves = |work| matches!(work, Work::Transfer(_));
    let Some(pending) = entry.pending.as_mut().filter(|p| moves(p.work)) else {
        return refuse(
            Reason::State,
            format!("No transfer to abort for destination \"{destination}\"."),
        );
    };
    pending.aborting = true;
    entry.anew |= hard;
    if !running {
        entry.withdraw(now);
    }
    next.put(entry);
    Ok(())
}

/// Makes the destination writable as soon as its transfer, if one is `running`, has ended; with
/// `ends`, deletes the relationship then.
fn stop(next: &mut ChangeSet, destination: &Path, ends: bool, running: bool, now: i64) -> Outcome {
    let mut entry = found(&next.rows, destination)?;
    entry.stopping = true;
    entry.ending |= ends;
    match entry
        .pending
        .as_mut()
        .map(|pending| (pending.work, pending))
    {
        Some((Work::Transfer(_), pending)) => {
            pending.aborting = true;
            if !running {
                entry.withdraw(now);
            }
        }
        Some((Work::Break, _)) | None => entry.stop(now),
    }
    next.put_or_end(entry);
    Ok(())
}

/// Queues the end of a copy: its destination becomes writable.
fn break_off(next: &mut ChangeSet, destination: Path, now: i64) -> Outcome {
    let mut entry = found(&next.rows, &destination)?;
    free(&entry)?;
    if !entry.files.is_empty() {
        // A failed restore of files has left no files behind.
        next.make(Edit::NoRelationship(destination));
        next.make(Edit::NoDestination(entry.uuid));
        return Ok(());
    }
    match entry.state {
        // A failed restore may have left the volume a copy.
        MirrorState::Uninitialized if entry.restore => {}
        MirrorState::Uninitialized => {
            return refuse(Reason::State, not_initialized(&entry));
        }
        MirrorState::BrokenOff => {
            return refuse(Reason::State, not_protected(&destination));
        }
        MirrorState::Snapmirrored => {}
    }
    entry.begin(Work::Break, None, None, now);
    next.put(entry);
    Ok(())
}

/// Queues the copying of a snapshot, or of `files` of it, into the destination of `entry`.
fn restore(
    next: &mut ChangeSet,
    mut entry: Entry,
    files: Vec<FileRestore>,
    wanted: TransferOptions,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let to = destination_side(&entry.destination, preconditions)?;
    let from = source_side(&entry, preconditions)?;
    has_snapshot(&entry, &wanted, from)?;
    if !files.is_empty() {
        return restore_files(next, entry, files, wanted, to, now);
    }
    large_enough(from, to)?;
    if common(&from.snapshots, &to.snapshots).is_none() && !to.data_protection {
        return refuse(Reason::State, no_common(&entry));
    }
    spares(&next.rows, &entry, from, to)?;
    entry.restore = true;
    begin(&mut entry, TransferKind::Restore, wanted, now)?;
    next.put(entry);
    Ok(())
}

/// Queues the copying of files into a writable volume, which stays writable meanwhile.
fn restore_files(
    next: &mut ChangeSet,
    mut entry: Entry,
    files: Vec<FileRestore>,
    wanted: TransferOptions,
    to: &Side,
    now: i64,
) -> Outcome {
    if to.data_protection {
        return refuse(
            Reason::State,
            format!(
                "Destination volume \"{}\" must be a read-write volume.",
                entry.destination
            ),
        );
    }
    (entry.restore, entry.state, entry.files) = (true, MirrorState::BrokenOff, files);
    begin(&mut entry, TransferKind::Restore, wanted, now)?;
    next.put(entry);
    Ok(())
}

/// Refuses paths that do not start at the root, and duplicate destinations.
fn sound_files(files: &[FileRestore]) -> Outcome {
    if files.len() > MAX_RESTORED_FILES {
        return refuse(
            Reason::Invalid,
            format!("At most {MAX_RESTORED_FILES} files can be restored at a time."),
        );
    }
    let sound = |path: &str| {
        let mut names = path.split('/');
        path.len() <= MAX_RESTORED_PATH
            && names.next() == Some("")
            && names.all(|name| !matches!(name, "" | "." | ".."))
            && path != "/"
            && !path.contains('\0')
    };
    let mut seen = BTreeSet::new();
    for path in files
        .iter()
        .flat_map(|file| [&file.source, &file.destination])
    {
        if !sound(path) {
            let text = format!("\"{path}\" is not the path of a file from the root of its volume.");
            return refuse(Reason::Invalid, text);
        }
    }
    match files.iter().find(|file| !seen.insert(&file.destination)) {
        Some(twice) => refuse(
            Reason::Invalid,
            format!("\"{}\" is named twice.", twice.destination),
        ),
        None => Ok(()),
    }
}

fn resync(
    next: &mut ChangeSet,
    destination: Path,
    source: Option<Path>,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let mut entry = match (next.rows.entry(&destination), source) {
        (None, Some(source)) => {
            let mut entry = new_entry(&next.rows, source, destination, preconditions, now)?;
            // Reverse direction: the previous destination is the source now.
            let reverse = next.rows.entry(&entry.source);
            if let Some(reverse) = reverse.filter(|e| e.source == entry.destination) {
                if reverse.state != MirrorState::BrokenOff {
                    return refuse(Reason::State, looped(&entry.source, &entry.destination));
                }
                entry.policy.clone_from(&reverse.policy);
            }
            entry.state = MirrorState::BrokenOff;
            entry
        }
        _ => found(&next.rows, &destination)?,
    };
    resynchronize(&next.rows, &mut entry, None, preconditions, now)?;
    next.put(entry);
    Ok(())
}

/// Queues the transfer that makes a destination a copy again. `instead` is the UUID of a
/// relationship that this one replaces.
fn resynchronize(
    rows: &Relations,
    entry: &mut Entry,
    instead: Option<&str>,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    free(entry)?;
    awake(entry)?;
    if entry.restore || entry.state == MirrorState::Uninitialized {
        return refuse(Reason::State, not_initialized(entry));
    }
    let to = destination_side(&entry.destination, preconditions)?;
    let from = source_side(entry, preconditions)?;
    large_enough(from, to)?;
    if common(&from.snapshots, &to.snapshots).is_none() {
        return refuse(Reason::State, no_common(entry));
    }
    spares(rows, entry, from, to)?;
    let but = instead.unwrap_or(&entry.uuid);
    let but = but.to_owned();
    stays_straight(rows, Some(&but), entry, from, to)?;
    begin(entry, TransferKind::Resync, PLAIN, now)
}

fn reverse(
    next: &mut ChangeSet,
    destination: &Path,
    preconditions: &Preconditions,
    now: i64,
) -> Outcome {
    let before = found(&next.rows, destination)?;
    free(&before)?;
    if before.restore || before.state != MirrorState::BrokenOff {
        return refuse(
            Reason::State,
            format!("Relationship with destination \"{destination}\" is not broken off."),
        );
    }
    let (from, to) = (before.destination.clone(), before.source.clone());
    let fresh = new_entry(&next.rows, from, to, preconditions, now)?;
    let mut entry = Entry {
        state: MirrorState::BrokenOff,
        policy: before.policy,
        schedule: before.schedule,
        throttle: before.throttle,
        tries: before.tries,
        note: before.note,
        ..fresh
    };
    resynchronize(
        &next.rows,
        &mut entry,
        Some(&before.uuid),
        preconditions,
        now,
    )?;
    next.make(Edit::NoRelationship(before.destination));
    next.put(entry);
    Ok(())
}

fn release(next: &mut ChangeSet, destination: &Path) -> Outcome {
    // There is more than one if the relationship was deleted at its destination and created again.
    let known = next.rows.known();
    let gone: Vec<Arc<KnownDestination>> = known
        .filter(|known| known.destination == *destination && !known.released)
        .cloned()
        .collect();
    if gone.is_empty() {
        return refuse(Reason::NotFound, NO_ENTRIES);
    }
    for known in gone {
        if let Some(entry) = next.rows.find_by_uuid(&known.uuid) {
            free(entry)?;
        }
        let released = true;
        next.make(Edit::Destination(Arc::new(KnownDestination {
            released,
            ..KnownDestination::clone(&known)
        })));
    }
    Ok(())
}

/// Creates a row for a new relationship, after checks of its two paths.
fn new_entry(
    rows: &Relations,
    shown: Path,
    destination: Path,
    preconditions: &Preconditions,
    now: i64,
) -> Result<Entry, VerbRefusal> {
    let source = preconditions.found.clone().unwrap_or_else(|| shown.clone());
    if source == destination {
        return refuse(
            Reason::Invalid,
            "The source and the destination must be different volumes.",
        );
    }
    if !destination.cluster.is_empty() {
        return refuse(
            Reason::State,
            "This operation must be executed on the destination cluster.",
        );
    }
    if rows.entry(&destination).is_some() {
        return refuse(
            Reason::Duplicate,
            format!("Relationship with destination \"{destination}\" already exists."),
        );
    }
    Ok(Entry {
        uuid: uuid(preconditions.unique),
        number: rows.next_number(),
        source,
        shown,
        destination,
        above: Vec::new(),
        policy: DEFAULT_POLICY.to_owned(),
        schedule: None,
        throttle: None,
        tries: TRIES,
        state: MirrorState::Uninitialized,
        quiesced: false,
        scheduled: now,
        ruled: BTreeMap::new(),
        pending: None,
        last: None,
        newest: None,
        trouble: None,
        restore: false,
        files: Vec::new(),
        anew: false,
        stopping: false,
        ending: false,
        transfers: 0,
        note: None,
    })
}

/// Refuses if work is pending for it.
fn free(entry: &Entry) -> Outcome {
    match entry.pending.is_some() {
        true => refuse(Reason::Busy, "Another transfer is in progress."),
        false => Ok(()),
    }
}

fn known_policy(rows: &Relations, name: String) -> Result<String, VerbRefusal> {
    match rows.policy(&name) {
        Some(policy) if policy.kind.is_synchronous() => refuse(
            Reason::State,
            format!(
                "Policy \"{name}\" is for volumes that two nodes keep together, with the same volume at the partner as \
                 destination."
            ),
        ),
        Some(_) => Ok(name),
        None => refuse(
            Reason::NotFound,
            format!("Policy lookup for \"{name}\" failed: entry doesn't exist."),
        ),
    }
}

fn known_schedule(rows: &Relations, name: Option<String>) -> Result<Option<String>, VerbRefusal> {
    match name {
        Some(name) if rows.schedule(&name).is_none() => {
            refuse(Reason::NotFound, format!("Schedule \"{name}\" not found."))
        }
        name => Ok(name),
    }
}

fn found(rows: &Relations, destination: &Path) -> Result<Entry, VerbRefusal> {
    let entry = rows.entry(destination);
    let missing = || VerbRefusal::new(Reason::NotFound, NO_ENTRIES);
    entry.map(|entry| Entry::clone(entry)).ok_or_else(missing)
}

fn awake(entry: &Entry) -> Outcome {
    match entry.quiesced {
        true => refuse(
            Reason::State,
            format!(
                "Relationship with destination \"{}\" is quiesced.",
                entry.destination
            ),
        ),
        false => Ok(()),
    }
}

fn begin(entry: &mut Entry, kind: TransferKind, wanted: TransferOptions, now: i64) -> Outcome {
    let throttle = wanted.throttle.map(in_range).transpose()?;
    entry.begin(Work::Transfer(kind), wanted.snapshot, throttle, now);
    Ok(())
}

fn destination_side<'f>(
    path: &Path,
    preconditions: &'f Preconditions,
) -> Result<&'f Side, VerbRefusal> {
    let side = preconditions.destination.as_ref();
    side.map_err(|why| {
        VerbRefusal::new(
            Reason::NotFound,
            format!("Failed to find destination volume \"{path}\": {why}"),
        )
    })
}

fn source_side<'f>(
    entry: &Entry,
    preconditions: &'f Preconditions,
) -> Result<&'f Side, VerbRefusal> {
    let side = preconditions.source.as_ref();
    side.map_err(|why| {
        VerbRefusal::new(
            Reason::NotFound,
            format!("Failed to find source volume \"{}\": {why}", entry.shown),
        )
    })
}

fn protected(path: &Path, side: &Side) -> Outcome {
    match side.data_protection {
        true => Ok(()),
        false => refuse(Reason::State, not_protected(path)),
    }
}

fn large_enough(from: &Side, to: &Side) -> Outcome {
    let smaller = match (from.size, to.size) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(from), Some(to)) => to < from,
    };
    match smaller {
        true => refuse(
            Reason::State,
            "Destination volume size is smaller than the source volume size.",
        ),
        false => Ok(()),
    }
}

fn has_snapshot(entry: &Entry, wanted: &TransferOptions, from: &Side) -> Outcome {
    match &wanted.snapshot {
        Some(name) if !from.snapshots.iter().any(|held| held.name == *name) => refuse(
            Reason::NotFound,
            format!(
                "Snapshot copy \"{name}\" is not present on source volume \"{}\".",
                entry.shown
            ),
        ),
        _ => Ok(()),
    }
}

/// Refuses to revert a destination to before a snapshot that further copies of it need, because
/// these would need a new baseline. The entry's own source does not count.
fn spares(rows: &Relations, entry: &Entry, from: &Side, to: &Side) -> Outcome {
    let Some(base) = common(&from.snapshots, &to.snapshots) else {
        return Ok(());
    };
    let behind = to.snapshots.iter().skip_while(|held| held.id != base.id);
    let needed = rows.needed_but(&entry.destination, &entry.source);
    let lost = behind.skip(1).filter(|held| needed.contains(&held.id));
    let lost: Vec<&str> = lost.map(|held| held.name.as_str()).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => refuse(
            Reason::State,
            format!(
                "Failed to promote Snapshot copy \"{}\" because one or more newer Snapshot copies are currently used as a \
                 reference Snapshot copy for data protection operations: {}.",
                base.name,
                lost.join(", ")
            ),
        ),
    }
}

/// Refuses a loop: a copy of a volume that is itself a copy of the destination, on this node or
/// across others. The relationship `but` does not count. Two nodes may check at the same time, so a
/// transfer checks again when it begins.
fn stays_straight(
    rows: &Relations,
    but: Option<&str>,
    entry: &mut Entry,
    from: &Side,
    to: &Side,
) -> Outcome {
    let (source, destination) = (&entry.source, &entry.destination);
    if upstream(rows, but, source, destination) || from.above.contains(&to.uuid) {
        return refuse(Reason::State, looped(source, destination));
    }
    entry.above = [&[from.uuid], from.above.as_slice()].concat();
    Ok(())
}

/// Returns true if `source` is a copy of `destination`, directly or through other relationships
/// than `but`.
fn upstream(rows: &Relations, but: Option<&str>, source: &Path, destination: &Path) -> bool {
    let mut at = source.clone();
    // Each step goes to another volume unless there is a loop already, which these rules do not
    // admit.
    for _ in 0..=rows.entries(0).count() {
        if at == *destination {
            return true;
        }
        let above = rows
            .entry(&at)
            .filter(|e| e.copies() && but.is_none_or(|but| e.uuid != but));
        match above {
            Some(entry) => at = entry.source.clone(),
            None => return false,
        }
    }
    true
}

/// Returns the message of a refusal to make a loop.
pub fn looped(source: &Path, destination: &Path) -> String {
    format!(
        "A relationship from \"{source}\" to \"{destination}\" would make a loop: \"{source}\" is itself a copy of \
         \"{destination}\"."
    )
}

fn not_protected(path: &Path) -> String {
    format!("Destination volume \"{path}\" must be a data-protection volume.")
}

fn not_initialized(entry: &Entry) -> String {
    format!(
        "Destination volume \"{}\" is not initialized.",
        entry.destination
    )
}

fn no_common(entry: &Entry) -> String {
    format!(
        "No common Snapshot copy found between {} and {}.",
        entry.shown, entry.destination
    )
}
