//! Attributes of an aggregate's `owner` object.

use std::io;

use serde::{Deserialize, Serialize};
use weir_base::AggregateId;
use weir_base::limits::rados::{LOG_SEGMENTS_MAX, LOG_SEGMENTS_MIN};
use weir_rados::Objects;
use weir_store::features::{self, AggregateFormat};

/// The object with the record.
pub const OWNER: &str = "owner";
/// Name of its lock.
pub const LOCK: &str = "weir";
/// The owner's number: 16 decimal digits, greater for each owner.
pub const EPOCH: &str = "epoch";
/// The aggregate's [`Identity`]; missing while it is being created.
pub const IDENTITY: &str = "identity";
/// The owner's [`Process`](crate::Process); empty after its end.
pub const HOLDER: &str = "holder";
/// The [`Process`](crate::Process) for which the owner has ended; empty if it ended for none.
pub const HEIR: &str = "heir";
/// Counts the owner's touches.
pub const TOUCH: &str = "touch";
/// Epoch of the newest owner that knows that no earlier one replies.
pub const ALONE: &str = "alone";
/// Blocks of the device.
pub const LENGTH: &str = "length";

const MAGIC: &str = "weir-aggregate";
/// Version of the layout of objects.
const VERSION: u32 = 1;

/// Number of an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub u64);

/// The greatest epoch that 16 digits can say.
const EPOCH_MAX: u64 = 9_999_999_999_999_999;

impl Epoch {
    /// Returns the number as the attribute has it.
    pub fn text(self) -> Vec<u8> {
        format!("{:016}", self.0).into_bytes()
    }

    fn parse(text: &[u8]) -> Option<Epoch> {
        let text = std::str::from_utf8(text).ok()?;
        let number = text.parse().ok()?;
        (text.len() == 16 && number <= EPOCH_MAX).then_some(Epoch(number))
    }

    /// Returns true if the attribute can have the number.
    pub fn is_valid(self) -> bool {
        self.0 <= EPOCH_MAX
    }
}

/// The aggregate that the objects hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    magic: String,
    version: u32,
    id: String,
    /// Segments of the log.
    pub log_segments: u64,
    /// Names of the format features that are on. Those of an identity without them are all that
    /// the programs had that wrote such identities.
    #[serde(default = "unnamed")]
    pub features: Vec<String>,
}

impl Identity {
    /// Creates the identity of aggregate `id` with so many segments of log, and all features that
    /// this program knows.
    pub fn new(id: AggregateId, log_segments: u64) -> Identity {
        Identity {
            magic: MAGIC.to_owned(),
            version: VERSION,
            id: id.to_string(),
            log_segments,
            features: features::names(),
        }
    }

    /// Returns the format, compared with this program's.
    pub fn format(&self) -> AggregateFormat {
        AggregateFormat::from_features(self.features.clone())
    }

    /// Parses the attribute.
    fn parse(bytes: &[u8]) -> Result<Identity, String> {
        let identity: Identity =
            serde_json::from_slice(bytes).map_err(|e| format!("the identity is damaged: {e}"))?;
        if identity.magic != MAGIC {
            return Err("the objects are not of an aggregate".to_owned());
        }
        if identity.version != VERSION {
            return Err(format!(
                "the objects have layout {}, and this program knows {VERSION}",
                identity.version
            ));
        }
        if !(LOG_SEGMENTS_MIN..=LOG_SEGMENTS_MAX).contains(&identity.log_segments) {
            return Err(format!("a log has no {} segments", identity.log_segments));
        }
        features::admit(&identity.features)?;
        match identity.id() {
            Some(_) => Ok(identity),
            None => Err("the identity is damaged".to_owned()),
        }
    }

    /// Returns the aggregate's identity.
    pub fn id(&self) -> Option<AggregateId> {
        let digits: String = self.id.chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (digits.len() == 32).then(|| AggregateId(number.to_be_bytes()))
    }
}

fn unnamed() -> Vec<String> {
    [features::USAGE, features::TREES]
        .map(|one| one.name.to_owned())
        .to_vec()
}

/// The attributes of `owner`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The owner's number; `None` if the object does not exist.
    pub epoch: Option<Epoch>,
    /// `None` while the aggregate is being created.
    pub identity: Option<Identity>,
    /// The process that has the aggregate, or had it last.
    pub holder: Vec<u8>,
    /// The process for which the owner has ended.
    pub heir: Vec<u8>,
    /// Number of the owner's touches.
    pub touch: u64,
    /// True if no owner before that one replies any more.
    pub alone: bool,
    /// Blocks of the device.
    pub length: u64,
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Record {
    /// Reads the attributes.
    ///
    /// # Errors
    /// Those of the cluster; [`io::ErrorKind::InvalidData`] if they are another program's, or of a
    /// newer version.
    pub fn read(objects: &dyn Objects) -> io::Result<Record> {
        let attribute = |name| objects.attribute(OWNER, name);
        let epoch = match attribute(EPOCH)? {
            Some(text) => {
                let parsed = Epoch::parse(&text);
                Some(parsed.ok_or_else(|| damaged("the owner's epoch is damaged".to_owned()))?)
            }
            None => None,
        };
        let identity = match attribute(IDENTITY)? {
            Some(text) => Some(Identity::parse(&text).map_err(damaged)?),
            None => None,
        };
        let number = |name| -> io::Result<u64> {
            let text = attribute(name)?.unwrap_or_default();
            let number = std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok());
            Ok(number.unwrap_or(0))
        };
        Ok(Record {
            epoch,
            identity,
            holder: attribute(HOLDER)?.unwrap_or_default(),
            heir: attribute(HEIR)?.unwrap_or_default(),
            touch: number(TOUCH)?,
            alone: epoch.is_some() && attribute(ALONE)? == epoch.map(Epoch::text),
            length: number(LENGTH)?,
        })
    }

    /// Returns true if the owner has ended for another process than `process`.
    #[must_use]
    pub fn is_reserved(&self, process: &[u8]) -> bool {
        !self.heir.is_empty() && self.heir != process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_strictly() {
        let id = AggregateId([7; 16]);
        let identity = Identity::new(id, 128);
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(Identity::parse(text.as_bytes()), Ok(identity.clone()));
        assert_eq!(identity.id(), Some(id));
        for (from, to, why) in [
            ("weir-aggregate", "other", "not of an aggregate"),
            ("\"version\":1", "\"version\":2", "layout 2"),
            ("\"log_segments\":128", "\"log_segments\":3", "3 segments"),
            ("0707", "07", "damaged"),
            ("\"trees\"", "\"later\"", "does not know: later"),
            ("{", "", "damaged"),
        ] {
            let changed = text.replace(from, to);
            let refused = Identity::parse(changed.as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{changed}: {refused}");
        }
    }

    #[test]
    fn an_identity_that_names_no_features_has_those_of_its_time() {
        let mut identity = Identity::new(AggregateId([7; 16]), 128);
        identity.features = vec!["usage".to_owned(), "trees".to_owned()];
        let text = serde_json::to_string(&identity).unwrap();
        let old = text.replace(",\"features\":[\"usage\",\"trees\"]", "");
        assert_ne!(old, text);
        assert_eq!(Identity::parse(old.as_bytes()), Ok(identity));
    }

    #[test]
    fn epochs_are_ordered_as_text() {
        let (small, large) = (Epoch(9), Epoch(10));
        assert!(small.text() < large.text());
        assert_eq!(Epoch::parse(&large.text()), Some(large));
        assert_eq!(Epoch::parse(b"10"), None);
        assert!(Epoch(EPOCH_MAX).is_valid() && !Epoch(EPOCH_MAX + 1).is_valid());
    }
}
