//! An aggregate on RADOS: its place, and its devices once this process owns it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use weir_base::limits::rados::{
    DATA_BYTES, DATA_OPERATIONS, FIRST_BYTES, LOG_BYTES, LOG_OPERATIONS, LOG_SEGMENTS_MAX,
    LOG_SEGMENTS_MIN, OBJECT_BLOCKS,
};
use weir_base::{AggregateId, BLOCK_SIZE, BlockAddr, Clock};
use weir_rados::{Bounds, Cluster, Objects, Options, Step};
use weir_store::features::AggregateFormat;
use weir_store::{AggregateDevices, Device, IoError, IoKind, StoreError};

use crate::device::ObjectDevice;
use crate::layout::{Kind, log_blocks};
use crate::owner::{Claim, Ownership, Patience, StandbyObserver, refuse};
use crate::process::Process;
use crate::record::{IDENTITY, Identity, LENGTH, OWNER, Record};
use crate::session::{self, Session};
use crate::standbys::Standbys;

/// Maximum length of an aggregate's name in bytes.
const MAX_NAME: usize = 64;

/// Attempts to read a file that may be replaced meanwhile.
const READ_TRIES: u32 = 5;

/// Place of an aggregate: `rados:POOL/ID`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadosPlace {
    /// The pool.
    pub pool: String,
    /// Name of the aggregate in the pool: the namespace of its objects.
    pub id: String,
}

impl FromStr for RadosPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<RadosPlace, String> {
        let wrong = || {
            format!(
                "'{text}' is no aggregate: write rados:POOL/ID, with an ID of letters, digits, '-', '_' and '.', at most {MAX_NAME}"
            )
        };
        let (pool, id) = text
            .strip_prefix("rados:")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(wrong)?;
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let good = !pool.is_empty()
            && !pool.contains(char::is_control)
            && !id.is_empty()
            && id.len() <= MAX_NAME
            && id.chars().all(named);
        match good {
            true => Ok(RadosPlace {
                pool: pool.to_owned(),
                id: id.to_owned(),
            }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for RadosPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rados:{}/{}", self.pool, self.id)
    }
}

/// Sizes of an aggregate's devices.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Maximum length of the device in blocks.
    pub max_blocks: u64,
    /// Bytes of a new log, within the bounds that there are.
    pub log_bytes: u64,
}

/// The objects of an aggregate, which this process does not own yet.
#[derive(Clone)]
pub struct AggregateObjects {
    name: String,
    /// For data.
    data: Arc<dyn Objects>,
    /// For everything else, so that the log does not wait behind data.
    control: Arc<dyn Objects>,
}

impl AggregateObjects {
    /// Connects to the cluster of an aggregate.
    ///
    /// # Errors
    /// As [`Cluster::connect`], and if there is no such pool.
    pub fn connect(place: &RadosPlace, options: &Options) -> io::Result<AggregateObjects> {
        let cluster = Cluster::connect(options)?;
        let pool = |operations, bytes| {
            let bounds = Bounds { operations, bytes };
            let pool = cluster.pool(&place.pool, &place.id, bounds);
            pool.map_err(|error| {
                let why = match error.raw_os_error() {
                    Some(libc::ENOENT) => "there is no such pool".to_owned(),
                    _ => error.to_string(),
                };
                io::Error::other(format!("cannot open the pool {}: {why}", place.pool))
            })
        };
        Ok(AggregateObjects {
            name: place.to_string(),
            data: Arc::new(pool(DATA_OPERATIONS, DATA_BYTES)?),
            control: Arc::new(pool(LOG_OPERATIONS, LOG_BYTES)?),
        })
    }

    /// Uses objects of another kind, such as simulated ones.
    pub fn on(name: &str, data: Arc<dyn Objects>, control: Arc<dyn Objects>) -> AggregateObjects {
        AggregateObjects {
            name: name.to_owned(),
            data,
            control,
        }
    }

    /// Returns true if there is an aggregate.
    ///
    /// # Errors
    /// Those of the cluster; the objects are another program's.
    pub fn exists(&self) -> Result<bool, StoreError> {
        Ok(self.record()?.identity.is_some())
    }

    /// Watches the standbys of the aggregate, as `process`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn standbys(&self, process: &Process, clock: &Arc<dyn Clock>) -> io::Result<Standbys> {
        Standbys::start(&self.name, &self.control, clock, process)
    }

    /// Returns the format of the aggregate, which a server may be using; `None` if there is no
    /// aggregate.
    ///
    /// # Errors
    /// As [`AggregateObjects::exists`].
    pub fn format(&self) -> Result<Option<AggregateFormat>, StoreError> {
        Ok(self.record()?.identity.map(|identity| identity.format()))
    }

    /// Returns the identity of the aggregate; `None` if there is none.
    ///
    /// # Errors
    /// As [`AggregateObjects::exists`].
    pub fn id(&self) -> Result<Option<AggregateId>, StoreError> {
        Ok(self.record()?.identity.and_then(|identity| identity.id()))
    }

    /// Reads a file that is kept with the aggregate, which a server may be using; `None` if there
    /// is none of this name.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        // Read in two steps, between which its owner may replace it.
        let mut read = session::read_file(&*self.control, name);
        for _ in 1..READ_TRIES {
            match read {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    read = session::read_file(&*self.control, name);
                }
                read => return read,
            }
        }
        read
    }

    fn record(&self) -> Result<Record, StoreError> {
        Record::read(&*self.control).map_err(|error| refuse(&self.name, error))
    }

    /// Becomes the owner of the aggregate, or of the place for a new one. `files` are kept with it.
    /// With `waiting` the process stands by for as long as another one owns the aggregate.
    ///
    /// # Errors
    /// As [`Ownership::open`].
    pub fn take(
        &self,
        process: &Process,
        files: &[&str],
        sizes: Sizes,
        clock: &Arc<dyn Clock>,
        patience: &Patience<'_>,
        waiting: Option<&StandbyObserver<'_>>,
    ) -> Result<RadosAggregate, StoreError> {
        let segments = |record: &Record| {
            let identity = record.identity.as_ref();
            identity.map_or_else(|| new_segments(sizes.log_bytes), |i| i.log_segments)
        };
        let claim = Claim {
            name: &self.name,
            objects: &self.control,
            process,
            files,
            segments: &segments,
            clock,
            patience,
            waiting,
        };
        let (owner, record) = Ownership::open(&claim)?;
        let segments = segments(&record);
        let session = owner.session();
        // The previous owner may have made the device longer until it lost the epoch.
        let mut length = self.record()?.length;
        if record.identity.is_none() {
            length = (FIRST_BYTES / BLOCK_SIZE as u64).min(sizes.max_blocks);
        }
        let device = ObjectDevice::new(
            Kind::Data,
            Arc::clone(&self.data),
            Arc::clone(session),
            length,
            sizes.max_blocks.max(length),
        );
        let log = log_blocks(segments);
        let log = ObjectDevice::new(
            Kind::Log,
            Arc::clone(&self.control),
            Arc::clone(session),
            log,
            log,
        );
        Ok(RadosAggregate {
            device: Arc::new(device),
            log: Arc::new(log),
            identity: parking_lot::Mutex::new(record.identity),
            segments,
            owner,
        })
    }
}

/// Returns the number of segments of a new log of about so many bytes.
fn new_segments(bytes: u64) -> u64 {
    let segments = bytes / (OBJECT_BLOCKS * BLOCK_SIZE as u64);
    segments.clamp(LOG_SEGMENTS_MIN, LOG_SEGMENTS_MAX)
}

/// An aggregate on RADOS that this process owns, or its place.
pub struct RadosAggregate {
    device: Arc<ObjectDevice>,
    log: Arc<ObjectDevice>,
    identity: parking_lot::Mutex<Option<Identity>>,
    segments: u64,
    owner: Ownership,
}

impl RadosAggregate {
    /// Returns the ownership.
    pub fn owner(&self) -> &Ownership {
        &self.owner
    }

    /// Returns the right to the aggregate.
    pub fn session(&self) -> &Arc<Session> {
        self.owner.session()
    }
}

impl RadosAggregate {
    /// Switches on all format features that this program knows, durably and all at once. Returns
    /// the names of those that were off. The aggregate must not have been opened.
    ///
    /// # Errors
    /// There is no aggregate; those of the cluster.
    pub fn switch_features_on(&self) -> Result<Vec<&'static str>, StoreError> {
        let mut identity = self.identity.lock();
        let missing = || StoreError::Format("there is no aggregate to upgrade".into());
        let old = identity.as_ref().ok_or_else(missing)?;
        let off = old.format().off;
        if off.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&'static str> = off.iter().map(|feature| feature.name).collect();
        let mut new = old.clone();
        new.features
            .extend(names.iter().map(|&name| name.to_owned()));
        self.record(&new, Vec::new())?;
        *identity = Some(new);
        Ok(names)
    }

    /// Records an identity durably, after `before`.
    fn record(&self, identity: &Identity, before: Vec<Step>) -> Result<(), StoreError> {
        let text = serde_json::to_vec(identity).map_err(io::Error::from);
        let recorded = text.and_then(|value| {
            let attribute = IDENTITY;
            let guard = std::iter::once(self.session().guard());
            let set = std::iter::once(Step::Set { attribute, value });
            let steps = guard.chain(before).chain(set).collect();
            self.session().operate(OWNER, steps)
        });
        recorded.map_err(|e| StoreError::Io(IoError::new(IoKind::Write, BlockAddr(0), 0, e)))
    }
}

impl AggregateDevices for RadosAggregate {
    fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device) as _
    }

    fn log_device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.log) as _
    }

    fn id(&self) -> Option<AggregateId> {
        self.identity.lock().as_ref().and_then(Identity::id)
    }

    fn features(&self) -> Vec<String> {
        let identity = self.identity.lock();
        let on = identity.as_ref().map(|identity| identity.features.clone());
        on.unwrap_or_default()
    }

    fn complete(&self, id: AggregateId) -> Result<(), StoreError> {
        let identity = Identity::new(id, self.segments);
        let length = Step::Set {
            attribute: LENGTH,
            value: self.device.length().to_string().into_bytes(),
        };
        self.record(&identity, vec![length])?;
        *self.identity.lock() = Some(identity);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_strictly() {
        let place: RadosPlace = "rados:weir/agg-1".parse().unwrap();
        assert_eq!((&*place.pool, &*place.id), ("weir", "agg-1"));
        assert_eq!(place.to_string(), "rados:weir/agg-1");
        for wrong in [
            "",
            "rados:",
            "rados:weir",
            "rados:weir/",
            "rados:/a",
            "rados:weir/a/b",
            "weir/a",
            "rados:w\n/a",
        ] {
            assert!(wrong.parse::<RadosPlace>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_log_has_whole_segments_within_bounds() {
        assert_eq!(new_segments(0), 4);
        assert_eq!(new_segments(100 << 20), 25);
        assert_eq!(new_segments(u64::MAX), 128);
    }
}
