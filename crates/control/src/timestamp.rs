//! Timestamps in the form of the catalog and the surfaces.

use serde::{Deserialize, Serialize};
use weir_base::Time;

/// Nanoseconds since 1970-01-01 00:00:00 UTC; until the year 2262.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Formats it in RFC 3339 in UTC, with as many digits of the second as needed:
    /// `2026-03-01T12:00:00.5Z`.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
            .to_string()
    }

    /// Returns whole seconds since 1970.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Converts the engine's nanoseconds, whose range is larger.
    pub fn from_nanos(nanos: i128) -> Stamp {
        Stamp(nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }
}

impl From<Time> for Stamp {
    fn from(time: Time) -> Stamp {
        Stamp::from_nanos(i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos))
    }
}
