//! Creating, opening and inspecting an aggregate.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use weir_base::{BLOCK_SIZE, Generation, Rng};

use super::{Aggregate, Current, Env, LocationInfo, encode_frames};
use crate::cache::Cache;
use crate::device::Device;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FramePool};
use crate::layout::{self, SUPER_BLOCKS, Slot};
use crate::life::RootPin;
use crate::log::{self, Log, LogCut, LogError, LogId};
use crate::space::Space;
use crate::superblock::{Invalid, Superblock};
use crate::tree::TreeRoot;
use weir_base::AggregateId;

/// Number of the first, empty checkpoint of every aggregate.
const FIRST: Generation = Generation(1);

/// Records and findings of an opening; the caller applies the records.
pub struct Replay {
    /// The log's records after the checkpoint, in order.
    pub records: log::Replay,
    /// Damage found in the superblocks.
    pub findings: Vec<Finding>,
}

/// Damage to the superblocks that people should know about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// One copy of the newest superblock is damaged and the other was used. Nothing is lost.
    CopyDamaged {
        /// First block of the damaged copy.
        at: u64,
        /// The checkpoint of that superblock.
        generation: Generation,
    },
    /// Both copies of a slot are damaged, which a crash does not cause. If they held the newest
    /// checkpoint, its changes are in the log only, and unstable writes since the serving
    /// checkpoint are lost.
    SlotDamaged {
        /// Slot of the two damaged copies.
        slot: Slot,
        /// The checkpoint that is used instead.
        serving: Generation,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::CopyDamaged { at, generation } => {
                write!(
                    f,
                    "superblock copy at block {at} is damaged; checkpoint {generation} was read from the other copy"
                )
            }
            Finding::SlotDamaged { slot, serving } => write!(
                f,
                "both copies of superblock slot {slot:?} are damaged; going on from checkpoint \
                 {serving} and the log: changes that were neither in it nor in the log are lost"
            ),
        }
    }
}

/// The superblock that was chosen, and the copies to repair.
struct ChosenSuperblock {
    superblock: Superblock,
    findings: Vec<Finding>,
    /// Copies of the serving slot that are damaged or outdated, and can be rewritten.
    heal: Vec<weir_base::BlockAddr>,
}

/// An aggregate opened read-only.
pub struct Inspection {
    /// The chosen superblock.
    pub superblock: Superblock,
    /// Damage found in the superblocks.
    pub findings: Vec<Finding>,
    /// The allocator: [`Space::compare`] reads the map.
    pub space: Arc<Space>,
    /// The cache, which reads and verifies blocks.
    pub cache: Arc<Cache>,
}

impl Aggregate {
    /// Creates an empty aggregate on `device` and `log_device`, whatever they held before.
    /// `log_device` must have been opened durable.
    ///
    /// # Errors
    /// [`StoreError::Format`] if a device is too small, [`StoreError::Io`].
    pub fn create_on(
        device: Arc<dyn Device>,
        log_device: Arc<dyn Device>,
        env: Env,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        let id = AggregateId(random(&*env.rng));
        Self::create_copy_on(device, log_device, env, id)
    }

    /// Like [`Aggregate::create_on`], with the identity of another aggregate, of which this one
    /// will be a copy.
    ///
    /// # Errors
    /// As [`Aggregate::create_on`].
    pub fn create_copy_on(
        device: Arc<dyn Device>,
        log_device: Arc<dyn Device>,
        env: Env,
        id: AggregateId,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        Self::format(&device, &log_device, &env, id)?;
        Self::open_on(device, log_device, env)
    }

    pub(crate) fn format(
        device: &Arc<dyn Device>,
        log_device: &Arc<dyn Device>,
        env: &Env,
        id: AggregateId,
    ) -> Result<(), StoreError> {
        let space = Space::open(Arc::clone(device), &[])?;
        // The log comes first: without a superblock it belongs to no aggregate.
        let log_id = LogId(random(&*env.rng));
        Log::format(&**log_device, log_id).map_err(from_log)?;
        let superblock = Superblock {
            id,
            generation: FIRST,
            log: log_id,
            cut: LogCut::START,
            length: space.stats().total,
            root: TreeRoot::EMPTY,
            index: Vec::new(),
        };
        let serving = Superblock::slot(FIRST);
        let zeros = vec![Frame::zero(); SUPER_BLOCKS as usize];
        for at in Slot::BOTH.into_iter().flat_map(layout::superblock) {
            device.write(at, zeros.clone()).wait()?;
        }
        device.flush().wait()?;
        let frame = &mut || env.pool.alloc(Class::Cp).ok_or(StoreError::NoMemory);
        let frames = encode_frames(&superblock, frame)?;
        for at in layout::superblock(serving) {
            device.write(at, frames.clone()).wait()?;
            device.flush().wait()?;
        }
        Ok(())
    }

    /// Creates an empty log in place of an aggregate's lost one.
    pub(crate) fn format_log(
        device: &Arc<dyn Device>,
        log_device: &Arc<dyn Device>,
        env: &Env,
    ) -> Result<(), StoreError> {
        let chosen = choose(&**device, &env.pool)?;
        Log::format(&**log_device, chosen.superblock.log).map_err(from_log)
    }

    /// Opens the aggregate on these devices at its newest durable checkpoint. The caller applies
    /// the log's records and then takes a checkpoint. Before anything is allocated, blocks that the
    /// records refer to have to be [marked](Space::mark_recovered).
    ///
    /// # Errors
    /// [`StoreError::Format`] if this is no aggregate or one of a newer format, if device and log
    /// do not belong together, or if acknowledged records of the log are damaged;
    /// [`StoreError::Io`].
    pub fn open_on(
        device: Arc<dyn Device>,
        log_device: Arc<dyn Device>,
        env: Env,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        Self::open_in(device, log_device, env, LocationInfo::default())
    }

    pub(crate) fn open_in(
        device: Arc<dyn Device>,
        log_device: Arc<dyn Device>,
        env: Env,
        named: LocationInfo,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        // Writes of a dead predecessor may be in the host's memory only. They must not vanish after
        // this server has built on them.
        device.flush().wait()?;
        let ChosenSuperblock {
            superblock,
            findings,
            heal,
        } = choose(&*device, &env.pool)?;
        expect_id(&superblock, named.id)?;
        for finding in &findings {
            tracing::error!(aggregate = %superblock.id, "{finding}");
        }
        let space = open_space(&device, &superblock)?;
        let (log, records) = Log::recover(log_device, superblock.log, superblock.cut, &env.pool)
            .map_err(from_log)?;
        log.measure_partner(Arc::clone(&env.clock));
        if let Some(meter) = device.meter() {
            meter.begin(Arc::clone(&env.clock));
        }
        for at in heal {
            let frame = &mut || env.pool.alloc(Class::Cp).ok_or(StoreError::NoMemory);
            device
                .write(at, encode_frames(&superblock, frame)?)
                .wait()?;
            device.flush().wait()?;
        }
        // A later checkpoint may have existed. Its numbers are not reused: a number is written
        // once. The slot must stay the other one.
        let fell_back = findings
            .iter()
            .any(|f| matches!(f, Finding::SlotDamaged { .. }));
        let step = if fell_back { 3 } else { 1 };
        let aggregate = Arc::new(Aggregate {
            id: superblock.id,
            log_id: superblock.log,
            cache: Arc::new(Cache::new(Arc::clone(&env.pool), Arc::clone(&device))),
            device,
            space: Arc::new(space.guarded_by(log.guard())),
            log,
            current: Mutex::new(Current {
                generation: superblock.generation,
                root: superblock.root,
                cut: superblock.cut,
                life: RootPin::new(superblock.generation),
                // Saturates: the number comes from the disk. No later superblock would be written,
                // see `Aggregate::commit`.
                next: Generation(superblock.generation.0.saturating_add(step)),
            }),
            env,
            lull: Mutex::default(),
            writing: AtomicBool::new(false),
            features: named.features,
            folder: named.folder,
        });
        aggregate.prepare_space();
        Ok((aggregate, Replay { records, findings }))
    }

    /// Opens an aggregate's device read-only. The log is not touched.
    ///
    /// # Errors
    /// As [`Aggregate::open_on`].
    pub fn inspect_on(
        device: Arc<dyn Device>,
        pool: &Arc<FramePool>,
    ) -> Result<Inspection, StoreError> {
        Self::inspect_as(device, pool, None)
    }

    pub(crate) fn inspect_as(
        device: Arc<dyn Device>,
        pool: &Arc<FramePool>,
        expected: Option<AggregateId>,
    ) -> Result<Inspection, StoreError> {
        let ChosenSuperblock {
            superblock,
            findings,
            ..
        } = choose(&*device, pool)?;
        expect_id(&superblock, expected)?;
        let space = open_space(&device, &superblock)?;
        let cache = Arc::new(Cache::new(Arc::clone(pool), device));
        Ok(Inspection {
            superblock,
            findings,
            space: Arc::new(space),
            cache,
        })
    }
}

fn open_space(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<Space, StoreError> {
    if device.length() < superblock.length {
        return Err(StoreError::Format(
            format!(
                "the device has {} blocks, but the aggregate has {}: it was truncated",
                device.length(),
                superblock.length
            )
            .into(),
        ));
    }
    Space::open(Arc::clone(device), &superblock.index)
}

fn expect_id(superblock: &Superblock, expected: Option<AggregateId>) -> Result<(), StoreError> {
    match expected {
        Some(id) if id != superblock.id => Err(StoreError::Format(
            format!(
                "the device belongs to aggregate {}, the folder to {id}",
                superblock.id
            )
            .into(),
        )),
        _ => Ok(()),
    }
}

/// Reads all copies of both superblocks and chooses the newest undamaged one.
fn choose(device: &dyn Device, pool: &Arc<FramePool>) -> Result<ChosenSuperblock, StoreError> {
    if device.length() < layout::MIN_BLOCKS {
        return Err(StoreError::Format(
            "the device is smaller than 16 MiB".into(),
        ));
    }
    let mut copies = Vec::new();
    for slot in Slot::BOTH {
        for at in layout::superblock(slot) {
            let copy = match read_copy(device, pool, at)? {
                // Undamaged but in the wrong slot: a misdirected write.
                Copy::Whole(s) if Superblock::slot(s.generation) != slot => {
                    Copy::Invalid(Invalid::Damaged)
                }
                copy => copy,
            };
            copies.push((slot, at, copy));
        }
    }
    let newer = copies.iter().find_map(|(_, _, copy)| match copy {
        Copy::Invalid(other @ Invalid::OtherFormat(_)) => Some(*other),
        _ => None,
    });
    if let Some(newer) = newer {
        return Err(StoreError::Format(format!("aggregate: {newer}").into()));
    }
    let whole = copies.iter().filter_map(|(slot, _, copy)| match copy {
        Copy::Whole(superblock) => Some((*slot, superblock)),
        _ => None,
    });
    let Some((serving, superblock)) = whole.max_by_key(|(_, superblock)| superblock.generation)
    else {
        let blank = copies
            .iter()
            .all(|(_, _, copy)| matches!(copy, Copy::Blank));
        let why = if blank {
            "there is no aggregate on the device"
        } else {
            "all superblocks are damaged"
        };
        return Err(StoreError::Format(why.into()));
    };
    let superblock = superblock.clone();

    let mut findings = Vec::new();
    let mut heal = Vec::new();
    for (slot, at, copy) in &copies {
        let current = matches!(copy, Copy::Whole(s) if s.generation == superblock.generation);
        if *slot == serving && !current {
            heal.push(*at);
            // A mirror that is one checkpoint behind: the crash came before it was written.
            if !matches!(copy, Copy::Whole(_) | Copy::Blank) {
                let generation = superblock.generation;
                findings.push(Finding::CopyDamaged {
                    at: at.0,
                    generation,
                });
            }
        }
    }
    // The other slot is blank before the second checkpoint. A crash may tear one of its copies, but
    // not both.
    let other = copies.iter().filter(|(slot, ..)| *slot != serving);
    let usable = |copy: &Copy| match copy {
        Copy::Whole(_) => true,
        Copy::Blank => superblock.generation == FIRST,
        _ => false,
    };
    if !other.into_iter().any(|(_, _, copy)| usable(copy)) {
        let serving_now = superblock.generation;
        findings.push(Finding::SlotDamaged {
            slot: serving.other(),
            serving: serving_now,
        });
    }
    Ok(ChosenSuperblock {
        superblock,
        findings,
        heal,
    })
}

enum Copy {
    Whole(Superblock),
    /// All zeroes: no superblock was ever written here.
    Blank,
    Invalid(Invalid),
    Unreadable,
}

fn read_copy(
    device: &dyn Device,
    pool: &Arc<FramePool>,
    at: weir_base::BlockAddr,
) -> Result<Copy, StoreError> {
    let frame = |_| pool.alloc(Class::Cp).ok_or(StoreError::NoMemory);
    let frames = (0..SUPER_BLOCKS)
        .map(frame)
        .collect::<Result<Vec<_>, _>>()?;
    let Ok(frames) = device.read(at, frames).wait() else {
        return Ok(Copy::Unreadable);
    };
    let mut bytes = Vec::with_capacity(SUPER_BLOCKS as usize * BLOCK_SIZE);
    frames
        .iter()
        .for_each(|frame| bytes.extend_from_slice(&frame[..]));
    Ok(match Superblock::decode(&bytes) {
        Ok(superblock) => Copy::Whole(superblock),
        Err(_) if bytes.iter().all(|byte| *byte == 0) => Copy::Blank,
        Err(invalid) => Copy::Invalid(invalid),
    })
}

pub(crate) fn random(rng: &dyn Rng) -> [u8; 16] {
    let mut out = [0; 16];
    let (a, b) = out.split_at_mut(8);
    a.copy_from_slice(&rng.next_u64().to_le_bytes());
    b.copy_from_slice(&rng.next_u64().to_le_bytes());
    out
}

fn from_log(error: LogError) -> StoreError {
    match error {
        LogError::Io(e) => StoreError::Io(e),
        LogError::NoMemory => StoreError::NoMemory,
        other => StoreError::Format(other.to_string().into()),
    }
}
