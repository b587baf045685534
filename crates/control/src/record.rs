//! Records that the engine stores with each volume, for rebuilding a lost catalog.
//!
//! Only the catalog knows a volume's name and export paths; the engine's volumes have keys. So
//! publications contain a record of each volume, which the engine stores with it as an opaque
//! annotation, and from which `weir catalog rebuild` recreates the rows ([`crate::rebuild`]). A
//! record contains the volume's identity and size, and the settings that clients of any protocol
//! see: security style, share settings, visibility of snapshots, quota rules without their
//! descriptions and labels, and the names of the export policies of qtrees. It does not contain the
//! clients that may use it. A record is written with the next checkpoint, so it may be older than
//! the last change. An outdated export rule might admit a client that was excluded since, so a
//! change of a qtree's export policy is answered after that checkpoint. For other settings that
//! only the catalog has it only records their existence ([`Record::lost`]), so that a rebuild can
//! report them.

use crate::constituent::Constituent;
use crate::model::{
    Performance, PooledSettings, Presentation, Protocol, SecurityStyle, Share, SmbSetting,
    TieredSettings, Volume,
};
use crate::name::{Surface, VolumeName};
use crate::policy_assignment::Synchronous;
use crate::quota::Quotas;
use crate::rules::trees;
use crate::timestamp::Stamp;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_relations::plan::TreePolicies;

/// Maximum length in bytes without quota rules and policies of qtrees. Longer records leave out
/// values that can be found otherwise.
const MAX: usize = weir_base::limits::ANNOTATION_PIECE;
/// Bytes that the policies of qtrees leave for quota rules.
const QUOTAS_AT_LEAST: usize = 20_000;

/// The record of one volume, as JSON. Unknown fields are ignored and missing ones have defaults, so
/// that records of other versions can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The full name of the resource.
    pub name: String,
    /// Requested share name.
    pub share: Arc<str>,
    /// Export paths without their leading slash, the canonical one first; empty: as chosen for a
    /// new volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Arc<str>>,
    /// Capacity in GiB.
    pub gib: u64,
    /// Requested permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Pool of a volume; `None` for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// Service level of that pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Arc<str>>,
    /// MiB/s, if the pool's QoS is manual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mibps: Option<f64>,
    /// True for a large volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large: bool,
    /// Its place in a large volume of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constituent: Option<Constituent>,
    /// Tier of an instance; `None` for a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Arc<str>>,
    /// Custom performance of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// Address of the server that is an instance's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// [`Protocol::number`] of each protocol; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<i64>>,
    /// [`SecurityStyle::number`]; `None`: UNIX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<i64>,
    /// Name of its share over SMB, if different from `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smb_name: Option<Arc<str>>,
    /// [`SmbSetting::number`] of each setting of its share over SMB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smb: Vec<i64>,
    /// True if clients do not see `.snapshot`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hides_snapshots: bool,
    /// Percentage of the capacity reserved for snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<f64>,
    /// True if deletion is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// Treatment of its changes while the node is without its partner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronous: Option<Synchronous>,
    /// True if an administrator has taken it offline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
    /// True if it has no path; the paths in `paths` stay reserved for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmounted: bool,
    /// Export policies of qtrees that have their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trees: TreePolicies,
    /// True if `trees` would be too long, and is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trees_left_out: bool,
    /// Quota rules, a line each ([`Quotas::recorded`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<String>,
    /// True if the quota rules do not hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quotas_off: bool,
    /// Settings in the catalog that this record lacks, in words for users. They are left out first
    /// if the record is too long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// Returns the kinds of settings that only the catalog has. Labels and descriptions are not among
/// them: they change without a publication.
fn lost(volume: &Volume) -> Vec<String> {
    let kinds = [
        (volume.export_rules.is_some(), "export policy"),
        (volume.snapshot_policy.is_some(), "snapshot schedules"),
        (volume.assigned.qos.is_some(), "QoS policy"),
        (volume.backup.is_some(), "backup policy"),
    ];
    let there = kinds.into_iter().filter(|(there, _)| *there);
    there.map(|(_, what)| what.to_owned()).collect()
}

impl Record {
    pub fn from_volume(view: &View, volume: &Volume) -> Record {
        let mut record = Record::without_lists(view, volume);
        let mut room = weir_volume::MAX_ANNOTATION - MAX;
        if !volume.trees.is_empty() {
            let trees = trees::names(view, volume);
            let length = serde_json::to_string(&trees).map_or(usize::MAX, |text| text.len());
            match room.checked_sub(length + QUOTAS_AT_LEAST) {
                Some(_) => (record.trees, room) = (trees, room - length),
                None => record.trees_left_out = true,
            }
        }
        if volume.quotas.is_default() {
            return record;
        }
        record.quotas_off = volume.quotas.off;
        let taken = |lines: &[String]| lines.iter().map(|line| line.len() + 3).sum::<usize>();
        let mut lines = volume.quotas.recorded(true);
        if taken(&lines) > room {
            lines = volume.quotas.recorded(false);
        }
        match taken(&lines) > room {
            true => record.lost.push(format!("{} quota rules", lines.len())),
            false => record.quotas = lines,
        }
        record
    }

    fn without_lists(view: &View, volume: &Volume) -> Record {
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
            constituent: volume.constituent(),
            tier: volume.tiered().map(|tiered| tiered.tier.clone()),
            performance: volume.tiered().and_then(|tiered| tiered.performance),
            address: volume.own_address(),
            protocols: Some(volume.protocols.iter().map(|p| p.number()).collect()),
            style: volume.smb.style.map(SecurityStyle::number),
            smb_name: volume.smb.name.clone(),
            smb: volume.smb.settings.iter().map(|s| s.number()).collect(),
            hides_snapshots: !volume.snapshot_directory,
            reserve: volume.snap_reserve,
            kept: volume.deletion_restricted,
            synchronous: volume.assigned.synchronous,
            trees: TreePolicies::new(),
            trees_left_out: false,
            quotas: Vec::new(),
            quotas_off: false,
            lost: lost(volume),
            offline: volume.assigned.offline,
            unmounted: volume.assigned.unmounted,
        }
    }

    /// Returns its protocols; `None`: not recorded.
    pub fn protocols(&self) -> Option<Vec<Protocol>> {
        let numbers = self.protocols.as_ref()?.iter();
        Some(numbers.filter_map(|n| Protocol::from_number(*n)).collect())
    }

    /// Returns its share for clients of SMB, with the security style.
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

    /// Returns its quota rules, as made at `now`.
    pub fn quotas(&self, now: Stamp) -> Quotas {
        Quotas::from_recorded(&self.quotas, self.quotas_off, now)
    }

    /// Returns its pool or tier; the given ones if not recorded.
    pub fn presentation(&self, pool: &str, tier: &str) -> Presentation {
        let name = |said: &Option<Arc<str>>, otherwise: &str| {
            said.clone().unwrap_or_else(|| otherwise.into())
        };
        match self.name() {
            Some(VolumeName {
                surface: Surface::Filestore,
                ..
            }) => Presentation::Filestore(TieredSettings {
                tier: name(&self.tier, tier),
                performance: self.performance,
                address: self.address,
            }),
            _ => Presentation::Netapp(PooledSettings {
                pool: name(&self.pool, pool),
                throughput_mibps: self.mibps,
                large: self.large,
                constituent: self.constituent,
            }),
        }
    }

    /// Encodes it for the engine.
    pub fn text(mut self) -> Arc<str> {
        let write = |record: &Record| serde_json::to_string(record).unwrap_or_default();
        let quotas = std::mem::take(&mut self.quotas);
        let trees = std::mem::take(&mut self.trees);
        let mut text = write(&self);
        if text.len() > MAX {
            self.lost.clear();
            text = write(&self);
        }
        if text.len() > MAX {
            self.paths.clear();
            text = write(&self);
        }
        // Names are bounded (`rules::names`), so that the rest fits.
        debug_assert!(text.len() <= MAX, "{text}");
        if !quotas.is_empty() || !trees.is_empty() {
            (self.quotas, self.trees) = (quotas, trees);
            text = write(&self);
        }
        text.into()
    }

    /// Decodes a stored record, if it is readable.
    pub fn read(text: &str) -> Option<Record> {
        serde_json::from_str(text).ok()
    }

    /// Returns the volume's name, if it is valid.
    pub fn name(&self) -> Option<VolumeName> {
        VolumeName::parse(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LocationName;

    #[test]
    fn the_longest_names_fit() {
        let long = |n: usize| "x".repeat(n);
        let place = LocationName::new(&long(100), &long(100));
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
            constituent: None,
            tier: None,
            performance: None,
            address: None,
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
            trees: TreePolicies::new(),
            trees_left_out: true,
            quotas: Vec::new(),
            quotas_off: true,
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
            address: Some(std::net::Ipv6Addr::from_bits(u128::MAX).into()),
            ..record
        };
        assert!(instance.text().len() <= MAX);
        assert_eq!(Record::read(""), None);
        assert_eq!(Record::read("{}"), None);
    }
}
