//! Aggregates in folders.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::{Inspection, random};
use super::{Aggregate, Env, Replay};
use crate::device::{Device, FileDevice, FileOptions, Pace, PacedDevice, PacedDisk};
use crate::error::StoreError;
use crate::folder::Folder;
use crate::frame::FramePool;
use crate::layout::MAX_BLOCKS;
use weir_base::AggregateId;

/// Paths of an aggregate's files, and their sizes at creation.
#[derive(Clone, Debug)]
pub struct Location {
    /// Folder of the device, and of the log unless `log` names another.
    pub data: PathBuf,
    /// Folder of the intent log, if it is a different one.
    pub log: Option<PathBuf>,
    /// True if the log's folder is empty ([`Folder::log_is_lost`]). The aggregate is then opened at
    /// its last checkpoint, with a new log.
    pub log_lost: bool,
    /// Initial length of a new device in blocks; the device grows as needed.
    pub device_blocks: u64,
    /// Maximum length of the device in blocks.
    pub max_blocks: u64,
    /// Minimum length of a new intent log in blocks. A log never changes its length.
    pub log_blocks: u64,
    /// Maximum length of a new intent log in blocks, within a [small part](LOG_SHARE) of the host's
    /// free space. The longer the log, the less often a block that is overwritten again and again
    /// is also written in place.
    pub log_most: u64,
    /// Artificial slowness of the disk that holds device and log, for a measurement.
    pub pace: Option<Pace>,
}

/// Divisor of the host's free space: the share that an intent log may take.
pub const LOG_SHARE: u64 = 16;

impl Location {
    /// Creates a location in `data` with the minimum sizes that suit a server: 64 MiB of device,
    /// and 256 MiB of log.
    pub fn new(data: impl Into<PathBuf>) -> Location {
        Location {
            data: data.into(),
            log: None,
            log_lost: false,
            device_blocks: 16_384,
            max_blocks: MAX_BLOCKS,
            log_blocks: 65_536,
            log_most: 65_536,
            pace: None,
        }
    }
}

impl Aggregate {
    /// Creates an aggregate in an empty or missing folder, and opens it.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the folder is in use or not empty, or the host refuses;
    /// [`StoreError::NoSpace`]; [`StoreError::Io`].
    pub fn create(location: &Location, env: Env) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        let id = AggregateId(random(&*env.rng));
        Self::create_copy(location, env, id)
    }

    /// Like [`Aggregate::create`], with the identity of another aggregate, of which this one will
    /// be a copy.
    ///
    /// # Errors
    /// As [`Aggregate::create`].
    pub fn create_copy(
        location: &Location,
        env: Env,
        id: AggregateId,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        let folder = Folder::create(&location.data, location.log.as_deref(), id)?;
        let data = FileOptions::data(location.max_blocks).create(location.device_blocks);
        let log = FileOptions::log().create(log_blocks(location, &folder));
        let made = devices(&folder, data, log, &env.pool).and_then(|(device, log_device)| {
            let (device, log_device) = paced(location, &env, device, log_device)?;
            Self::format(&device, &log_device, &env, id)?;
            folder.complete()?;
            Ok((device, log_device))
        });
        let (device, log_device) = match made {
            Ok(devices) => devices,
            Err(error) => return Err(folder.undo(error)),
        };
        Self::open_in(device, log_device, env, Some(id), Some(folder))
    }

    /// Opens the aggregate in a folder.
    ///
    /// # Errors
    /// As [`Aggregate::open_on`], and [`StoreError::Format`] if the folder is in use, is not an
    /// aggregate's, or its log is elsewhere. Nothing is changed in that case.
    pub fn open(location: &Location, env: Env) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        let lost = location.log.as_ref().filter(|_| location.log_lost);
        let (folder, log) = match lost {
            Some(log) => {
                let folder = Folder::renew(&location.data, log)?;
                let blocks = log_blocks(location, &folder);
                (folder, FileOptions::log().create(blocks))
            }
            None => {
                let folder = Folder::open(&location.data, location.log.as_deref())?;
                (folder, FileOptions::log())
            }
        };
        let id = folder.id();
        let data = FileOptions::data(location.max_blocks);
        let (device, log_device) = devices(&folder, data, log, &env.pool)?;
        let (device, log_device) = paced(location, &env, device, log_device)?;
        if lost.is_some() {
            Self::format_log(&device, &log_device, &env)?;
            folder.complete()?;
        }
        Self::open_in(device, log_device, env, Some(id), Some(folder))
    }

    /// Opens the aggregate in a folder, or creates one if the folder is empty or missing.
    ///
    /// # Errors
    /// As [`Aggregate::open`] and [`Aggregate::create`].
    pub fn open_or_create(
        location: &Location,
        env: Env,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        if Folder::exists(&location.data)? {
            Self::open(location, env)
        } else {
            Self::create(location, env)
        }
    }

    /// Opens the aggregate in a folder read-only, and changes nothing. The folder stays locked for
    /// as long as the returned [`Folder`] exists. The third value is the log's device.
    ///
    /// # Errors
    /// As [`Aggregate::open`].
    pub fn inspect(
        location: &Location,
        pool: &Arc<FramePool>,
    ) -> Result<(Inspection, Folder, Arc<dyn Device>), StoreError> {
        let folder = Folder::open(&location.data, location.log.as_deref())?;
        let (device, log_device) = devices(
            &folder,
            FileOptions::data(MAX_BLOCKS).read_only(),
            FileOptions::log().read_only(),
            pool,
        )?;
        let inspection = Self::inspect_as(device, pool, Some(folder.id()))?;
        Ok((inspection, folder, log_device))
    }
}

/// Returns the length of a new log in blocks.
fn log_blocks(location: &Location, folder: &Folder) -> u64 {
    let room = folder.host_free_for_log().unwrap_or(0) / LOG_SHARE;
    room.min(location.log_most).max(location.log_blocks)
}

type Devices = (Arc<dyn Device>, Arc<dyn Device>);

fn devices(
    folder: &Folder,
    data: FileOptions,
    log: FileOptions,
    pool: &Arc<FramePool>,
) -> Result<Devices, StoreError> {
    let (data_path, log_path) = (folder.device_path(), folder.log_path());
    Ok((
        device(&data_path, FileDevice::open_staged(&data_path, data, pool))?,
        device(&log_path, FileDevice::open_staged(&log_path, log, pool))?,
    ))
}

fn paced(
    location: &Location,
    env: &Env,
    device: Arc<dyn Device>,
    log_device: Arc<dyn Device>,
) -> Result<Devices, StoreError> {
    let Some(pace) = location.pace else {
        return Ok((device, log_device));
    };
    let disk = PacedDisk::new(pace, Arc::clone(&env.clock));
    let pace = |inner| match PacedDevice::new(inner, &disk) {
        Ok(device) => Ok(Arc::new(device) as Arc<dyn Device>),
        Err(e) => Err(StoreError::Format(
            format!("cannot start a thread: {e}").into(),
        )),
    };
    Ok((pace(device)?, pace(log_device)?))
}

fn device(path: &Path, opened: io::Result<FileDevice>) -> Result<Arc<dyn Device>, StoreError> {
    match opened {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) if e.kind() == io::ErrorKind::StorageFull => Err(StoreError::NoSpace),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(StoreError::Format(
            format!("{} is in use by another server", path.display()).into(),
        )),
        Err(e) => Err(StoreError::Format(
            format!("{}: {e}", path.display()).into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Key;
    use crate::tree::{self, Edit, TreeRoot};
    use std::ops::ControlFlow;
    use weir_base::{ManualClock, SeededRng, VolumeId};

    fn env(seed: u64) -> Env {
        Env {
            pool: FramePool::new(2048).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(seed)),
        }
    }

    fn small(data: &Path) -> Location {
        Location {
            device_blocks: 4096,
            log_blocks: 256,
            log_most: 256,
            ..Location::new(data)
        }
    }

    #[test]
    fn the_log_takes_what_there_is_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location {
            log_most: 300,
            ..small(dir.path())
        };
        drop(Aggregate::create(&place, env(1)).unwrap());
        let (_, _, log) = Aggregate::inspect(&place, &env(2).pool).unwrap();
        // Any disk that the tests run on has more than 16 times 300 blocks free.
        assert_eq!(log.length(), 300);
    }

    fn refusal<T>(result: Result<T, StoreError>) -> String {
        match result {
            Ok(_) => panic!("it was accepted"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn created_reopened_and_inspected() {
        let dir = tempfile::tempdir().unwrap();
        let place = small(&dir.path().join("data"));
        let (agg, _) = Aggregate::open_or_create(&place, env(1)).unwrap();
        let id = agg.id();
        for _ in 0..3 {
            let cp = agg.begin().unwrap();
            agg.commit(cp, TreeRoot::EMPTY, agg.log().cut()).unwrap();
        }
        assert!(agg.space().stats().growth > 0);
        assert!(refusal(Aggregate::open(&place, env(2))).contains("in use"));
        assert!(refusal(Aggregate::inspect(&place, agg.pool())).contains("in use"));
        drop(agg);
        let (inspection, folder, log) = Aggregate::inspect(&place, &env(3).pool).unwrap();
        assert_eq!(inspection.superblock.id, id);
        assert_eq!(inspection.superblock.generation.0, 4);
        assert_eq!(log.length(), 256);
        drop((inspection, folder, log));
        let (agg, replay) = Aggregate::open_or_create(&place, env(4)).unwrap();
        assert_eq!((agg.id(), agg.generation().0), (id, 4));
        assert_eq!((replay.records.count(), replay.findings), (0, vec![]));
    }

    #[test]
    fn a_large_tree_survives_on_a_real_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = small(&dir.path().join("data"));
        let (agg, _) = Aggregate::create(&place, env(1)).unwrap();
        let mut cp = agg.begin().unwrap();
        let put = |i: u64| Edit::Put(Key::new(i, 1, 0), i.to_le_bytes().repeat(20));
        let edits = (0..40_000).map(put);
        let root = tree::apply(&mut cp, &agg.source(), VolumeId(1), &TreeRoot::EMPTY, edits);
        agg.commit(cp, root.unwrap(), agg.log().cut()).unwrap();
        drop(agg);
        let (agg, _) = Aggregate::open(&place, env(2)).unwrap();
        let mut next = 0u64;
        tree::scan(
            &agg.source(),
            &agg.root(),
            Key::MIN,
            Key::MAX,
            &mut |key, value| {
                assert_eq!((key.ino, value), (next, &next.to_le_bytes().repeat(20)[..]));
                next += 1;
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        assert_eq!(next, 40_000);
    }

    #[test]
    fn space_that_is_freed_goes_back_to_the_host() {
        use std::os::unix::fs::MetadataExt as _;

        const GIB: u64 = 1 << 18;
        let dir = tempfile::tempdir().unwrap();
        let place = small(&dir.path().join("data"));
        let clock = Arc::new(ManualClock::default());
        let with_clock = Env {
            clock: Arc::clone(&clock) as _,
            ..env(1)
        };
        let (agg, _) = Aggregate::create(&place, with_clock).unwrap();
        let discard = || {
            while agg.discard_free() {}
        };
        // Long enough for space that is free to be spare.
        let wait = || {
            for _ in 0..3 {
                clock.advance(std::time::Duration::from_secs(11));
                discard();
            }
        };
        let host = || {
            std::fs::metadata(place.data.join("device"))
                .unwrap()
                .blocks()
                / 8
        };
        let commit = |agg: &Arc<Aggregate>, change: &mut dyn FnMut(&mut crate::CpWriter)| {
            let mut cp = agg.begin().unwrap();
            change(&mut cp);
            agg.commit(cp, TreeRoot::EMPTY, agg.log().cut()).unwrap();
        };
        let mut runs = Vec::new();
        commit(&agg, &mut |cp| {
            let mut left = GIB;
            while left > 0 {
                let (addr, count) = cp.alloc(left.min(32_768) as u32, None).unwrap();
                left -= u64::from(count);
                let birth = cp.generation();
                runs.push(crate::Run { addr, count, birth });
            }
        });
        assert!(host() > GIB);
        let before = agg.physical();
        wait();
        assert!(host() > GIB, "it is in use");
        commit(&agg, &mut |cp| {
            runs.drain(..).for_each(|run| cp.freed_run(run))
        });
        // Nothing else comes: an idle server has no further checkpoint.
        discard();
        assert!(host() > GIB, "it may be taken again at once");
        wait();
        let (held, stats) = (host(), agg.space().stats());
        let length = agg.device().length();
        // Two steps of 128 MiB, the floor, and what lies between.
        assert!(held < GIB / 2, "{held} blocks of {length} are held");
        assert!((stats.total - stats.holes).abs_diff(held) < 100);
        let after = agg.physical();
        // Others use the disk, too.
        assert!(
            after.size.abs_diff(before.size) < 256 << 20,
            "{before:?} {after:?}"
        );
        assert!(
            after.free > before.free + (700 << 20),
            "{before:?} {after:?}"
        );

        drop(agg);
        let (agg, _) = Aggregate::open(&place, env(2)).unwrap();
        assert_eq!(agg.space().stats().holes, stats.holes);
        commit(&agg, &mut |cp| {
            let mut left = GIB;
            while left > 0 {
                left -= u64::from(cp.alloc(left.min(32_768) as u32, None).unwrap().1);
            }
        });
        assert!(host() > GIB);
        assert_eq!(agg.device().length(), length, "holes are used first");
    }

    #[test]
    fn the_log_may_be_elsewhere_but_must_be_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| Location {
            log: Some(dir.path().join(format!("{name}-log"))),
            ..small(&dir.path().join(name))
        };
        drop(Aggregate::create(&place("a"), env(1)).unwrap());
        drop(Aggregate::create(&place("b"), env(2)).unwrap());
        drop(Aggregate::open(&place("a"), env(3)).unwrap());
        let mixed = Location {
            log: place("b").log,
            ..place("a")
        };
        assert!(refusal(Aggregate::open(&mixed, env(3))).contains("holds the log of aggregate"));
        // Files swapped without changing the identity files.
        let (a, b) = (dir.path().join("a/device"), dir.path().join("b/device"));
        let between = dir.path().join("between");
        for (from, to) in [(&a, &between), (&b, &a), (&between, &b)] {
            std::fs::rename(from, to).unwrap();
        }
        assert!(refusal(Aggregate::open(&place("a"), env(3))).contains("belongs to aggregate"));
    }

    #[test]
    fn a_full_host_is_no_space_and_an_interrupted_creation_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let huge = Location {
            device_blocks: 1 << 40,
            ..small(&dir.path().join("a"))
        };
        assert!(matches!(
            Aggregate::create(&huge, env(1)),
            Err(StoreError::NoSpace)
        ));
        assert!(!Folder::exists(&huge.data).unwrap());
        drop(Aggregate::open_or_create(&small(&huge.data), env(1)).unwrap());
        drop(Aggregate::open_or_create(&small(&huge.data), env(1)).unwrap());
    }
}
