//! What the engine stores of each volume for the day on which the catalog is lost.
//!
//! The catalog alone knows what a volume is called and where it is exported; the engine's volumes have keys. So the data
//! path's publications carry a record of each volume, which the engine stores with it as an opaque annotation, and from
//! which `weir catalog rebuild` makes the rows anew ([`crate::rebuild`]). A record holds what identifies a volume and
//! sizes it, and what clients of any protocol see of it: whose permissions it has, its share's settings, whether snapshots
//! are shown. It does not hold which clients may use it: a record is written with the next checkpoint, so it may
//! be older than the last change, and an export rule that is out of date might admit a client that was shut out since. Of
//! what else is in the catalog alone it says only that there was some ([`Record::lost`]), so that a rebuild can name it.

use crate::assigned::Synchronous;
use crate::model::{
    Performance, Pooled, Presentation, Protocol, SecurityStyle, Share, SmbSetting, Tiered, Volume,
};
use crate::name::{Surface, VolumeName};
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Longer records leave out what can be found otherwise: as many bytes as the engine takes.
const MAX: usize = weir_volume::MAX_ANNOTATION;

/// The record of one volume, as JSON. Fields that are unknown are passed over, those that are missing have
/// their defaults, so that records of other versions can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The full name of the resource.
    pub name: String,
    /// The share's name, as it was asked for.
    pub share: Arc<str>,
    /// The export paths without their leading slash, the canonical one first; empty: as they would be chosen anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Arc<str>>,
    /// Capacity in GiB.
    pub gib: u64,
    /// Permission bits that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The pool of a volume; an instance has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// The service level of that pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Arc<str>>,
    /// MiB/s, where the pool's QoS is manual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mibps: Option<f64>,
    /// Whether it is a large volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large: bool,
    /// The tier of an instance; a volume has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Arc<str>>,
    /// Custom performance of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// [`Protocol::number`] of each protocol; `None`: the record does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<i64>>,
    /// [`SecurityStyle::number`]; `None`: as if UNIX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<i64>,
    /// The name of its share over SMB, where that is another one than `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smb_name: Option<Arc<str>>,
    /// [`SmbSetting::number`] of each setting of its share over SMB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smb: Vec<i64>,
    /// Clients do not see `.snapshot`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hides_snapshots: bool,
    /// Percent of the capacity kept for snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<f64>,
    /// It is protected: deletion is refused until that is taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// What becomes of its changes while the node is without its partner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronous: Option<Synchronous>,
    /// An administrator has taken it out of service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// It has no path; that in `paths` stays its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmounted: bool,
    /// What the catalog has of it besides and this record does not, in words for users. The first to be left out where the
    /// rest is long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// What of a volume is in the catalog alone: of what kind, not which. Labels and descriptions are not among it: they change without a
/// publication.
fn lost(volume: &Volume) -> Vec<String> {
    let kinds = [
        (volume.export_rules.is_some(), "export policy"),
        (volume.snapshot_policy.is_some(), "snapshot schedules"),
        (volume.assigned.qos.is_some(), "QoS policy"),
    ];
    let there = kinds.into_iter().filter(|(there, _)| *there);
    there.map(|(_, what)| what.to_owned()).collect()
}

impl Record {
    pub fn of(view: &View, volume: &Volume) -> Record {
        let pooled = volume.pooled();
        Record {
            name: volume.name.to_string(),
            share: volume.share_name.clone(),
            paths: volume.paths.clone(),
            gib: volume.capacity_gib,
            mode: pooled.map(|_| volume.unix_permissions),
            pool: pooled.map(|pooled| pooled.pool.clone()),
            level: view.pool_of(volume).map(|pool| pool.service_level.clone()),
            mibps: volume.throughput_mibps(),
            large: volume.large(),
            tier: volume.tiered().map(|tiered| tiered.tier.clone()),
            performance: volume.tiered().and_then(|tiered| tiered.performance),
            protocols: Some(volume.protocols.iter().map(|p| p.number()).collect()),
            style: volume.smb.style.map(SecurityStyle::number),
            smb_name: volume.smb.name.clone(),
            smb: volume.smb.settings.iter().map(|s| s.number()).collect(),
            hides_snapshots: !volume.snapshot_directory,
            reserve: volume.snap_reserve,
            kept: volume.deletion_restricted,
            synchronous: volume.assigned.synchronous,
            lost: lost(volume),
            offline: volume.assigned.offline,
            unmounted: volume.assigned.unmounted,
        }
    }

    /// The protocols that it had; `None`: the record does not say.
    pub fn protocols(&self) -> Option<Vec<Protocol>> {
        let numbers = self.protocols.as_ref()?.iter();
        Some(numbers.filter_map(|n| Protocol::from_number(*n)).collect())
    }

    /// What it was to clients of SMB, and whose permissions it has.
    pub fn share(&self) -> Share {
        let settings = self.smb.iter();
        Share {
            name: self.smb_name.clone(),
            settings: settings
                .filter_map(|n| SmbSetting::from_number(*n))
                .collect(),
            style: self.style.and_then(SecurityStyle::from_number),
        }
    }

    /// What it says of the pool or tier, which are these where it says nothing.
    pub fn presentation(&self, pool: &str, tier: &str) -> Presentation {
        let name = |said: &Option<Arc<str>>, otherwise: &str| {
            said.clone().unwrap_or_else(|| otherwise.into())
        };
        match self.name() {
            Some(VolumeName {
                surface: Surface::Filestore,
                ..
            }) => Presentation::Filestore(Tiered {
                tier: name(&self.tier, tier),
                performance: self.performance,
            }),
            _ => Presentation::Netapp(Pooled {
                pool: name(&self.pool, pool),
                throughput_mibps: self.mibps,
                large: self.large,
            }),
        }
    }

    /// As the engine stores it.
    pub fn text(mut self) -> Arc<str> {
        let write = |record: &Record| serde_json::to_string(record).unwrap_or_default();
        let mut text = write(&self);
        if text.len() > MAX {
            self.lost.clear();
            text = write(&self);
        }
        if text.len() > MAX {
            self.paths.clear();
            text = write(&self);
        }
        // Names are bounded (`rules::names`), so that what is left fits.
        debug_assert!(text.len() <= MAX, "{text}");
        text.into()
    }

    /// From what the engine has stored, if it can be read.
    pub fn read(text: &str) -> Option<Record> {
        serde_json::from_str(text).ok()
    }

    /// The volume's name, if it is one.
    pub fn name(&self) -> Option<VolumeName> {
        VolumeName::parse(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Place;

    #[test]
    fn the_longest_names_fit() {
        let long = |n: usize| "x".repeat(n);
        let place = Place::new(&long(100), &long(100));
        let share: Arc<str> = long(80).into();
        let record = Record {
            name: place.volume(&long(63)).to_string(),
            share: Arc::clone(&share),
            paths: vec![format!("{}/{}/{}/{share}", long(100), long(100), long(63)).into()],
            gib: u64::MAX,
            mode: Some(0o7777),
            pool: Some(long(63).into()),
            level: Some(long(63).into()),
            mibps: Some(1.0 / 3.0),
            large: true,
            tier: None,
            performance: None,
            protocols: Some(Protocol::ALL.iter().map(|p| p.number()).collect()),
            style: Some(SecurityStyle::Ntfs.number()),
            smb_name: Some(long(80).into()),
            smb: SmbSetting::ALL.iter().map(|s| s.number()).collect(),
            hides_snapshots: true,
            reserve: Some(100.0 / 3.0),
            kept: true,
            synchronous: Some(Synchronous::StrictSync),
            offline: true,
            unmounted: true,
            lost: vec![long(300)],
        };
        let text = record.clone().text();
        assert!(text.len() <= MAX, "{}", text.len());
        let read = Record::read(&text).unwrap();
        assert_eq!(read.name(), Some(place.volume(&long(63))));
        let bare = Record {
            paths: Vec::new(),
            lost: Vec::new(),
            ..record.clone()
        };
        assert_eq!(read, bare);
        assert_eq!(read.share().settings, SmbSetting::ALL);
        assert_eq!(read.share().style, Some(SecurityStyle::Ntfs));
        assert_eq!(read.protocols().as_deref(), Some(Protocol::ALL));
        let instance = Record {
            pool: None,
            level: None,
            mibps: None,
            tier: Some(long(63).into()),
            performance: Some(Performance::IopsPerTb(u64::MAX)),
            ..record
        };
        assert!(instance.text().len() <= MAX);
        assert_eq!(Record::read(""), None);
        assert_eq!(Record::read("{}"), None);
    }
}
