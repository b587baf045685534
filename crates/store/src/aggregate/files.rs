//! Aggregates by their location: in a folder, or on devices that are opened elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::{Inspection, random};
use super::{Aggregate, Env, LocationInfo, Replay};
use crate::device::{Device, FileDevice, FileOptions, Pace, PacedDevice, PacedDisk};
use crate::error::StoreError;
use crate::folder::Folder;
use crate::frame::FramePool;
use crate::layout::MAX_BLOCKS;
use weir_base::AggregateId;

/// Place of an aggregate.
#[derive(Clone)]
pub enum Location {
    /// Files in a folder.
    Folder(FolderLocation),
    /// Devices that are no files of this host, such as objects of a cluster.
    Devices(Arc<dyn AggregateDevices>),
}

impl From<FolderLocation> for Location {
    fn from(folder: FolderLocation) -> Location {
        Location::Folder(folder)
    }
}

/// The devices of an aggregate that is not in a folder. They belong to this process alone for as
/// long as this exists, which the opener ensures.
pub trait AggregateDevices: Send + Sync {
    /// Returns the device for data, nodes and map.
    fn device(&self) -> Arc<dyn Device>;

    /// Returns the intent log's device. Writes to it are durable on completion.
    fn log_device(&self) -> Arc<dyn Device>;

    /// Returns the identity of the aggregate on the devices; `None` if there is none, or its
    /// creation was interrupted.
    fn id(&self) -> Option<AggregateId>;

    /// Returns the names of the format features that are on.
    fn features(&self) -> Vec<String>;

    /// Records durably that aggregate `id` has been created on the devices, with all format
    /// features that this program knows.
    ///
    /// # Errors
    /// [`StoreError::Io`] or [`StoreError::Format`] if it cannot be recorded.
    fn complete(&self, id: AggregateId) -> Result<(), StoreError>;
}

/// Paths of an aggregate's files, and their sizes at creation.
#[derive(Clone, Debug)]
pub struct FolderLocation {
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

impl FolderLocation {
    /// Creates a location in `data` with the minimum sizes that suit a server: 64 MiB of device,
    /// and 256 MiB of log.
    pub fn new(data: impl Into<PathBuf>) -> FolderLocation {
        FolderLocation {
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

/// An aggregate opened read-only, its folder if it is in one, and the log's device.
pub type InspectedAggregate = (Inspection, Option<Folder>, Arc<dyn Device>);

impl Aggregate {
    /// Creates an aggregate at a location that has none, and opens it.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the location is in use or not empty, or the host refuses;
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
        match location {
            Location::Folder(folder) => Self::create_in_folder(folder, env, id),
            Location::Devices(devices) => {
                if let Some(found) = devices.id() {
                    return Err(StoreError::Format(
                        format!("aggregate {found} is there already").into(),
                    ));
                }
                let (device, log_device) = (devices.device(), devices.log_device());
                Self::format(&device, &log_device, &env, id)?;
                devices.complete(id)?;
                Self::open_in(device, log_device, env, location_info(&**devices)?)
            }
        }
    }

    fn create_in_folder(
        location: &FolderLocation,
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
        Self::open_in(device, log_device, env, folder.into())
    }

    /// Opens the aggregate at a location.
    ///
    /// # Errors
    /// As [`Aggregate::open_on`], and [`StoreError::Format`] if the location is in use, has no
    /// aggregate, or its log is elsewhere. Nothing is changed in that case.
    pub fn open(location: &Location, env: Env) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        match location {
            Location::Folder(folder) => Self::open_in_folder(folder, env),
            Location::Devices(devices) => {
                let (device, log_device) = (devices.device(), devices.log_device());
                Self::open_in(device, log_device, env, location_info(&**devices)?)
            }
        }
    }

    fn open_in_folder(
        location: &FolderLocation,
        env: Env,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
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
        let data = FileOptions::data(location.max_blocks);
        let (device, log_device) = devices(&folder, data, log, &env.pool)?;
        let (device, log_device) = paced(location, &env, device, log_device)?;
        if lost.is_some() {
            Self::format_log(&device, &log_device, &env)?;
            folder.complete()?;
        }
        Self::open_in(device, log_device, env, folder.into())
    }

    /// Opens the aggregate at a location, or creates one if there is none.
    ///
    /// # Errors
    /// As [`Aggregate::open`] and [`Aggregate::create`].
    pub fn open_or_create(
        location: &Location,
        env: Env,
    ) -> Result<(Arc<Aggregate>, Replay), StoreError> {
        let exists = match location {
            Location::Folder(folder) => Folder::exists(&folder.data)?,
            Location::Devices(devices) => devices.id().is_some(),
        };
        if exists {
            Self::open(location, env)
        } else {
            Self::create(location, env)
        }
    }

    /// Opens the aggregate at a location read-only, and changes nothing. A folder stays locked for
    /// as long as the returned [`Folder`] exists. The third value is the log's device.
    ///
    /// # Errors
    /// As [`Aggregate::open`].
    pub fn inspect(
        location: &Location,
        pool: &Arc<FramePool>,
    ) -> Result<InspectedAggregate, StoreError> {
        let location = match location {
            Location::Folder(folder) => folder,
            Location::Devices(devices) => {
                let id = location_info(&**devices)?.id;
                let inspection = Self::inspect_as(devices.device(), pool, id)?;
                return Ok((inspection, None, devices.log_device()));
            }
        };
        let folder = Folder::open(&location.data, location.log.as_deref())?;
        let (device, log_device) = devices(
            &folder,
            FileOptions::data(MAX_BLOCKS).read_only(),
            FileOptions::log().read_only(),
            pool,
        )?;
        let inspection = Self::inspect_as(device, pool, Some(folder.id()))?;
        Ok((inspection, Some(folder), log_device))
    }
}

fn location_info(devices: &dyn AggregateDevices) -> Result<LocationInfo, StoreError> {
    match devices.id() {
        Some(id) => Ok(LocationInfo {
            id: Some(id),
            features: Some(devices.features()),
            folder: None,
        }),
        None => Err(StoreError::Format(
            "there is no aggregate on the devices".into(),
        )),
    }
}

/// Returns the length of a new log in blocks.
fn log_blocks(location: &FolderLocation, folder: &Folder) -> u64 {
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
    location: &FolderLocation,
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
    use crate::device::MemDevice;
    use crate::features;
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

    fn small(data: &Path) -> FolderLocation {
        FolderLocation {
            device_blocks: 4096,
            log_blocks: 256,
            log_most: 256,
            ..FolderLocation::new(data)
        }
    }

    fn folder_location(folder: &FolderLocation) -> Location {
        folder.clone().into()
    }

    /// Devices in memory that are kept over openings.
    struct InMemory {
        device: Arc<MemDevice>,
        log: Arc<MemDevice>,
        id: parking_lot::Mutex<Option<AggregateId>>,
    }

    impl AggregateDevices for InMemory {
        fn device(&self) -> Arc<dyn Device> {
            Arc::clone(&self.device) as _
        }

        fn log_device(&self) -> Arc<dyn Device> {
            Arc::clone(&self.log) as _
        }

        fn id(&self) -> Option<AggregateId> {
            *self.id.lock()
        }

        fn features(&self) -> Vec<String> {
            features::names()
        }

        fn complete(&self, id: AggregateId) -> Result<(), StoreError> {
            *self.id.lock() = Some(id);
            Ok(())
        }
    }

    #[test]
    fn devices_outside_of_folders_hold_an_aggregate() {
        let devices = Arc::new(InMemory {
            device: Arc::new(MemDevice::growable(4096, 8192)),
            log: Arc::new(MemDevice::new(258)),
            id: parking_lot::Mutex::default(),
        });
        let place = Location::Devices(Arc::clone(&devices) as _);
        assert!(refusal(Aggregate::open(&place, env(1))).contains("no aggregate"));
        assert!(refusal(Aggregate::inspect(&place, &env(1).pool)).contains("no aggregate"));
        let (agg, _) = Aggregate::open_or_create(&place, env(1)).unwrap();
        let id = agg.id();
        assert_eq!(devices.id(), Some(id));
        assert!(agg.files().is_empty());
        drop(agg);
        assert!(refusal(Aggregate::create(&place, env(2))).contains("there already"));
        let (agg, _) = Aggregate::open_or_create(&place, env(2)).unwrap();
        assert_eq!(agg.id(), id);
        drop(agg);
        let (inspection, folder, log) = Aggregate::inspect(&place, &env(3).pool).unwrap();
        assert_eq!((inspection.superblock.id, log.length()), (id, 258));
        assert!(folder.is_none());
        *devices.id.lock() = Some(AggregateId([7; 16]));
        assert!(refusal(Aggregate::open(&place, env(3))).contains("belongs to aggregate"));
    }

    #[test]
    fn the_log_takes_what_there_is_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let place = FolderLocation {
            log_most: 300,
            ..small(dir.path())
        };
        drop(Aggregate::create(&folder_location(&place), env(1)).unwrap());
        let (_, _, log) = Aggregate::inspect(&folder_location(&place), &env(2).pool).unwrap();
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
        let (agg, _) = Aggregate::open_or_create(&folder_location(&place), env(1)).unwrap();
        let id = agg.id();
        for _ in 0..3 {
            let cp = agg.begin().unwrap();
            agg.commit(cp, TreeRoot::EMPTY, agg.log().cut()).unwrap();
        }
        assert!(agg.space().stats().growth > 0);
        assert!(refusal(Aggregate::open(&folder_location(&place), env(2))).contains("in use"));
        assert!(
            refusal(Aggregate::inspect(&folder_location(&place), agg.pool())).contains("in use")
        );
        drop(agg);
        let (inspection, folder, log) =
            Aggregate::inspect(&folder_location(&place), &env(3).pool).unwrap();
        assert_eq!(inspection.superblock.id, id);
        assert_eq!(inspection.superblock.generation.0, 4);
        assert_eq!(log.length(), 256);
        drop((inspection, folder, log));
        let (agg, replay) = Aggregate::open_or_create(&folder_location(&place), env(4)).unwrap();
        assert_eq!((agg.id(), agg.generation().0), (id, 4));
        assert_eq!((replay.records.count(), replay.findings), (0, vec![]));
    }

    #[test]
    fn a_large_tree_survives_on_a_real_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = small(&dir.path().join("data"));
        let (agg, _) = Aggregate::create(&folder_location(&place), env(1)).unwrap();
        let mut cp = agg.begin().unwrap();
        let put = |i: u64| Edit::Put(Key::new(i, 1, 0), i.to_le_bytes().repeat(20));
        let edits = (0..40_000).map(put);
        let root = tree::apply(&mut cp, &agg.source(), VolumeId(1), &TreeRoot::EMPTY, edits);
        agg.commit(cp, root.unwrap(), agg.log().cut()).unwrap();
        drop(agg);
        let (agg, _) = Aggregate::open(&folder_location(&place), env(2)).unwrap();
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
        let (agg, _) = Aggregate::create(&folder_location(&place), with_clock).unwrap();
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
        let (agg, _) = Aggregate::open(&folder_location(&place), env(2)).unwrap();
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
        let place = |name: &str| FolderLocation {
            log: Some(dir.path().join(format!("{name}-log"))),
            ..small(&dir.path().join(name))
        };
        drop(Aggregate::create(&folder_location(&place("a")), env(1)).unwrap());
        drop(Aggregate::create(&folder_location(&place("b")), env(2)).unwrap());
        drop(Aggregate::open(&folder_location(&place("a")), env(3)).unwrap());
        let mixed = FolderLocation {
            log: place("b").log,
            ..place("a")
        };
        assert!(
            refusal(Aggregate::open(&folder_location(&mixed), env(3)))
                .contains("holds the log of aggregate")
        );
        // Files swapped without changing the identity files.
        let (a, b) = (dir.path().join("a/device"), dir.path().join("b/device"));
        let between = dir.path().join("between");
        for (from, to) in [(&a, &between), (&b, &a), (&between, &b)] {
            std::fs::rename(from, to).unwrap();
        }
        assert!(
            refusal(Aggregate::open(&folder_location(&place("a")), env(3)))
                .contains("belongs to aggregate")
        );
    }

    #[test]
    fn a_full_host_is_no_space_and_an_interrupted_creation_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let huge = FolderLocation {
            device_blocks: 1 << 40,
            ..small(&dir.path().join("a"))
        };
        assert!(matches!(
            Aggregate::create(&folder_location(&huge), env(1)),
            Err(StoreError::NoSpace)
        ));
        assert!(!Folder::exists(&huge.data).unwrap());
        drop(Aggregate::open_or_create(&folder_location(&small(&huge.data)), env(1)).unwrap());
        drop(Aggregate::open_or_create(&folder_location(&small(&huge.data)), env(1)).unwrap());
    }
}
