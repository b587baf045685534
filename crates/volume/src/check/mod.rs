//! Offline verification of an aggregate.
//!
//! A check reads everything that the newest superblock leads to. That is the aggregate's tree, each
//! volume's tree and those of its snapshots, and every data block (its checksum is stored in the
//! extent). The records of the intent log are read with the data that they refer to. It recomputes
//! three things and compares them with the stored values. These are the blocks in use (the
//! allocation map), the number of names of an inode (link counts, entry counts, parents), and the
//! number of its blocks.
//!
//! The trees are consistent at every checkpoint by construction, so a fault is damage or a defect,
//! never the trace of a crash.
//!
//! **Repair** only makes changes that lose nothing. A damaged copy of the superblock is rewritten
//! from the other. An allocation map, or a count of references to a shared block, that disagrees
//! with the trees is rebuilt from them, if all of them can be read. Other faults are only reported.

mod dead;
mod progress;
mod repair;
mod report;
mod shared_blocks;
mod tree;
mod usage;

use std::sync::Arc;

use weir_base::{BlockAddr, Ino, VolumeId};
use weir_store::aggregate::{Aggregate, Env, Inspection, Location};
use weir_store::block::page_crc;
use weir_store::cache::Cache;
use weir_store::layout;
use weir_store::log::Log;
use weir_store::space::{Mismatch, Stats, Usage};
use weir_store::verify::Verifier;
use weir_store::{Class, Device, FramePool, StoreError};

use crate::format::catalog::{AGGREGATE_TREE, Job, SnapshotRec};
use crate::format::edit::Edit;
use crate::format::mark::MarkId;

use self::dead::Claims;
use self::tree::{Catalog, Pass, TreeCheck, VolumeEntry};

pub use self::progress::Progress;
pub use self::report::{Fault, Report};
pub use self::usage::WrongUsage;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Read every data block as well, and compare its checksum.
    pub data: bool,
    /// The check's progress, for the caller to read.
    pub progress: Arc<Progress>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            data: true,
            progress: Arc::default(),
        }
    }
}

/// Checks the aggregate on these devices, which nothing else uses. Nothing is written.
///
/// # Errors
/// If there is no aggregate on them, or memory for reading is missing. Damage is not an error but a
/// fault in the report.
pub fn check_on(
    device: Arc<dyn Device>,
    log_device: Arc<dyn Device>,
    pool: &Arc<FramePool>,
    options: &CheckOptions,
) -> Result<Report, StoreError> {
    let inspection = Aggregate::inspect_on(device, pool)?;
    Ok(examine(&inspection, &log_device, pool, options)?.0)
}

/// Checks like [`check_on`], repairs faults that can be repaired without loss, and checks again.
///
/// # Errors
/// As [`check_on`], and if writing fails.
pub fn repair_on(
    device: Arc<dyn Device>,
    log_device: Arc<dyn Device>,
    env: &Env,
    options: &CheckOptions,
) -> Result<Report, StoreError> {
    let inspection = Aggregate::inspect_on(Arc::clone(&device), &env.pool)?;
    let (report, usage) = examine(&inspection, &log_device, &env.pool, options)?;
    drop(inspection);
    if !repair::possible(&report) {
        return Ok(report);
    }
    let opened = Aggregate::open_on(Arc::clone(&device), Arc::clone(&log_device), env.clone())?;
    let repaired = repair::run(opened, &usage, &report, env)?;
    let mut again = check_on(device, log_device, &env.pool, options)?;
    again.repaired = repaired;
    Ok(again)
}

/// Checks the aggregate at a location. With `repair`, also repairs faults that can be repaired
/// without loss.
///
/// # Errors
/// As [`check_on`], and if the location is in use or has no aggregate.
pub fn check(
    location: &Location,
    env: &Env,
    options: &CheckOptions,
    repair: bool,
) -> Result<Report, StoreError> {
    let look = || {
        let (inspection, folder, log_device) = Aggregate::inspect(location, &env.pool)?;
        let seen = examine(&inspection, &log_device, &env.pool, options)?;
        drop(folder);
        Ok::<_, StoreError>(seen)
    };
    let (report, usage) = look()?;
    if !repair || !repair::possible(&report) {
        return Ok(report);
    }
    let repaired = repair::run(
        Aggregate::open(location, env.clone())?,
        &usage,
        &report,
        env,
    )?;
    let (mut again, _) = look()?;
    again.repaired = repaired;
    Ok(again)
}

/// Checks everything. Also returns the blocks in use.
fn examine(
    inspection: &Inspection,
    log_device: &Arc<dyn Device>,
    pool: &Arc<FramePool>,
    options: &CheckOptions,
) -> Result<(Report, Usage), StoreError> {
    let superblock = &inspection.superblock;
    let mut report = Report {
        aggregate: superblock.id.to_string(),
        generation: superblock.generation.0,
        ..Report::default()
    };
    for finding in &inspection.findings {
        report.faults.push(Fault::Superblock(finding.to_string()));
    }
    options.progress.begin(in_use(&inspection.space.stats()));
    // The log is read while there is memory: the next steps fill it with cached nodes.
    read_log(inspection, log_device, pool, &mut report);
    let mut total = Usage::new();
    let mut catalog = Catalog::default();
    {
        let (mut of_root, mut of_tree) = (Usage::new(), Usage::new());
        let mut check = TreeCheck::new(
            AGGREGATE_TREE,
            &inspection.cache,
            &mut report,
            [&mut of_root, &mut of_tree, &mut total],
            Pass {
                verifier: None,
                progress: &options.progress,
            },
        );
        check.walk_catalog(&superblock.root, &mut catalog);
    }
    let cache = &inspection.cache;
    let verifier = match options.data {
        true => Some(Verifier::on(Arc::clone(cache.device()))?),
        false => None,
    };
    let pass = Pass {
        verifier: verifier.as_ref(),
        progress: &options.progress,
    };
    for (id, entry) in catalog.volumes {
        examine_marks(id, &entry, catalog.last_mark, &mut report);
        examine_volume(
            cache,
            id,
            entry,
            catalog.partial,
            &mut report,
            &mut total,
            pass,
        );
    }
    compare(inspection, &total, &mut report)?;
    Ok((report, total))
}

/// Returns the number of blocks that are allocated to trees and data.
fn in_use(space: &Stats) -> u64 {
    let chunks = layout::chunks(space.total).unwrap_or_default();
    let fixed = (0..chunks).flat_map(layout::fixed);
    let fixed: u64 = fixed.map(|(_, count)| u64::from(count)).sum();
    // Saturates: a damaged map counts as it was read.
    layout::usable(space.total).saturating_sub(space.free + space.holes + fixed)
}

fn examine_marks(id: VolumeId, entry: &VolumeEntry, last: MarkId, report: &mut Report) {
    let name = entry.rec.as_ref().map_or("no record", |rec| &rec.name);
    let marks = entry
        .snapshots
        .iter()
        .filter_map(|s| MarkId::from_name(&s.name));
    let unknown = marks.filter(|mark| *mark > last).map(|mark| Fault::Mark {
        volume: id,
        name: name.to_owned(),
        mark,
        last,
    });
    report.faults.extend(unknown);
}

fn examine_volume(
    cache: &Arc<Cache>,
    id: VolumeId,
    entry: VolumeEntry,
    partial: bool,
    report: &mut Report,
    total: &mut Usage,
    pass: Pass<'_>,
) {
    let fault = |report: &mut Report, what: String| {
        report.faults.push(Fault::Inode {
            volume: id,
            ino: Ino(0),
            what,
        });
    };
    let mut of_volume = Usage::new();
    if let Some(rec) = &entry.rec {
        report.volumes += 1;
        report.names.insert(rec.name.clone());
        report.snapshots += entry.snapshots.len() as u64;
        let mut of_snapshots = Usage::new();
        // Each root is compared with its neighbours in time to find the blocks that only one has.
        let roots = entry.snapshots.iter().map(|s| (s.root, Some(s)));
        let roots: Vec<_> = roots.chain([(rec.root, None)]).collect();
        let mut before = Usage::new();
        let mut current: Option<(Usage, &SnapshotRec)> = None;
        let mut of_live = Usage::new();
        for (root, snapshot) in roots {
            if snapshot.is_none() {
                // The volume itself comes last.
                of_snapshots = of_volume.clone();
            }
            let mut of_root = Usage::new();
            let usage = [&mut of_root, &mut of_volume, &mut *total];
            let mut check = TreeCheck::new(id, cache, report, usage, pass);
            let used = check.walk_volume(&root, rec, snapshot.is_none(), partial);
            let counted = snapshot.map_or(rec.used, |s| s.used);
            if used.is_some_and(|used| used != counted) {
                fault(
                    report,
                    format!("{used:?} data blocks, but {counted} were found"),
                );
            }
            if let Some((usage, s)) = current.take() {
                let own = usage.alone(&[&before, &of_root]);
                if own != s.unique {
                    fault(
                        report,
                        format!(
                            "snapshot {} alone has {own} blocks, not {}",
                            s.name, s.unique
                        ),
                    );
                }
                before = usage;
            }
            match snapshot {
                Some(s) => current = Some((of_root, s)),
                None => of_live = of_root,
            }
        }
        let mut claims = Claims::new(id, cache, report, total, pass.progress);
        let dead = claims.read_dead(&rec.dead, weir_store::node::Key::MIN);
        let usage = [&of_snapshots, &of_live];
        claims.compare(dead, &entry.jobs, &entry.snapshots, rec.dead_blocks, usage);
    } else if entry.annotation_pieces > 0
        || !entry.snapshots.is_empty()
        || entry.jobs.iter().any(Job::needs_volume)
    {
        fault(report, "records of a volume that does not exist".into());
    }
    let mut claims = Claims::new(id, cache, report, total, pass.progress);
    for job in &entry.jobs {
        claims.job(job);
    }
}

fn compare(inspection: &Inspection, usage: &Usage, report: &mut Report) -> Result<(), StoreError> {
    let mismatches = inspection.space.compare(usage)?;
    // Below an unreadable node there may be blocks that seem unused.
    let blind = report
        .faults
        .iter()
        .any(|f| matches!(f, Fault::Node { .. }));
    for fault in inspection.space.faults() {
        report.faults.push(Fault::Map(format!(
            "chunk {}, block {}: {}",
            fault.chunk, fault.addr, fault.what
        )));
    }
    for mismatch in mismatches {
        match mismatch {
            Mismatch::Leak(addr, count) if !blind => {
                report.faults.push(Fault::Leak { addr, count });
            }
            Mismatch::Leak(..) => {}
            Mismatch::Missing(addr, count) => {
                report.faults.push(Fault::NotAllocated { addr, count });
            }
        }
    }
    Ok(())
}

fn read_log(
    inspection: &Inspection,
    log_device: &Arc<dyn Device>,
    pool: &Arc<FramePool>,
    report: &mut Report,
) {
    let superblock = &inspection.superblock;
    let device = Arc::clone(log_device);
    let records = match Log::inspect(device, superblock.log, superblock.cut, pool) {
        Ok(records) => records,
        Err(e) => return report.faults.push(Fault::Log(e.to_string())),
    };
    for record in records {
        match record {
            Ok(record) => {
                report.log_records += 1;
                match crate::format::edit::decode(&record.meta, record.pages.len()) {
                    Ok((volume, edits)) => {
                        for edit in edits {
                            if let Edit::VolumeMade { name, .. } = &edit {
                                report.names.insert((*name).to_owned());
                            }
                            check_placed(inspection, pool, volume, &edit, report);
                        }
                    }
                    Err(e) => report.faults.push(Fault::Log(format!(
                        "intent log, record {}: {e}",
                        record.lsn
                    ))),
                }
            }
            Err(e) => report.faults.push(Fault::Log(e.to_string())),
        }
    }
}

/// Reads the data that a record of the log refers to. No record is durable before its data, and the
/// blocks have no other owner as long as the log has the record.
fn check_placed(
    inspection: &Inspection,
    pool: &Arc<FramePool>,
    volume: VolumeId,
    edit: &Edit<'_>,
    report: &mut Report,
) {
    let Edit::Placed {
        ino,
        first,
        addr,
        crcs,
    } = edit
    else {
        // Other edits name no blocks.
        return;
    };
    for ((block, addr), crc) in (*first..).zip(addr.0..).zip(crcs.iter()) {
        let addr = BlockAddr(addr);
        let Some(frame) = pool.alloc(Class::Cp) else {
            let what = "no memory to read what the intent log refers to";
            return report.faults.push(Fault::Log(what.into()));
        };
        let read = inspection.cache.device().read(addr, vec![frame]).wait();
        let what = match read {
            Ok(frames) if frames.first().is_some_and(|f| page_crc(f) == crc) => continue,
            Ok(_) => "its checksum in the intent log is wrong".into(),
            Err(e) => e.to_string(),
        };
        report.faults.push(Fault::Data {
            volume,
            ino: *ino,
            block,
            addr,
            what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, machine};

    #[test]
    fn a_mark_that_the_aggregate_does_not_know_is_named() {
        let (machine, engine, vol) = machine(1);
        create(&vol, b"f");
        let first = engine.make_mark().unwrap();
        create(&vol, b"g");
        let mark = engine.make_mark().unwrap();
        engine.core.forget_marks_after(first);
        create(&vol, b"h");
        engine.shutdown().unwrap();
        let volume = vol.id();
        drop((vol, engine));
        let report = machine.check();
        let expected = Fault::Mark {
            volume,
            name: "vol".to_owned(),
            mark,
            last: first,
        };
        assert_eq!(report.faults, [expected], "{report}");
        let words = report.faults[0].to_string();
        for part in ["(vol)", &mark.to_string(), &mark.0.to_string()] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
}
