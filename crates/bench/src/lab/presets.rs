//! The definitions that come with the binary: the runs of the published measurements.

use super::spec::Definition;
use crate::error::BenchError;

/// Names and texts of the presets, as `weir bench presets list` shows them.
pub const PRESETS: [(&str, &str); 9] = [
    (
        "netapp-extreme",
        include_str!("presets/netapp-extreme.toml"),
    ),
    ("netapp-flex", include_str!("presets/netapp-flex.toml")),
    ("filestore", include_str!("presets/filestore.toml")),
    ("datakeeper", include_str!("presets/datakeeper.toml")),
    (
        "nconnect-sweep",
        include_str!("presets/nconnect-sweep.toml"),
    ),
    (
        "smb-protection",
        include_str!("presets/smb-protection.toml"),
    ),
    ("smb-channels", include_str!("presets/smb-channels.toml")),
    ("eda", include_str!("presets/eda.toml")),
    ("eda-like", include_str!("presets/eda-like.toml")),
];

/// The text of a preset.
pub fn text(name: &str) -> Result<&'static str, BenchError> {
    PRESETS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|(n, _)| *n).collect();
            BenchError::Usage(format!(
                "no preset {name:?}; there are {}",
                names.join(", ")
            ))
        })
}

/// A preset, read and checked.
pub fn load(name: &str) -> Result<Definition, BenchError> {
    Definition::parse(text(name)?, &format!("preset {name}"))
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Durability, Pattern, Table};
    use super::*;

    #[test]
    fn every_preset_is_sound_and_bears_its_name() {
        for (name, _) in PRESETS {
            let d = load(name).unwrap();
            assert_eq!(d.name, name);
            assert!(!d.source.is_empty(), "{name}");
        }
        let error = load("nonsense").unwrap_err().to_string();
        assert!(error.contains("netapp-flex"), "{error}");
    }

    /// A parameter that a source states, from the table of them.
    fn stated(doc: &str, key: &str) -> f64 {
        include_str!("../../tests/fixtures/parameters.tsv")
            .lines()
            .map(|l| l.split('\t').collect::<Vec<_>>())
            .find(|f| (f[0], f[1]) == (doc, key))
            .unwrap_or_else(|| panic!("{doc} {key} is not in the table"))[2]
            .parse()
            .unwrap()
    }

    #[test]
    fn the_presets_have_the_parameters_of_what_they_repeat() {
        let gib = |d: &Definition| d.load.working_set.0 as f64 / f64::from(1 << 30);
        for (name, total) in [
            ("netapp-extreme", stated("004", "ws.extreme_total") * 1024.0),
            ("netapp-flex", stated("004", "ws.flex_total")),
        ] {
            let d = load(name).unwrap();
            assert_eq!(
                f64::from(d.load.clients),
                stated("004", "clients"),
                "{name}"
            );
            assert_eq!(
                f64::from(d.load.jobs),
                stated("004", "jobs_per_vm"),
                "{name}"
            );
            assert_eq!(
                f64::from(d.load.clients * d.load.jobs),
                stated("004", "jobs_total")
            );
            assert_eq!(f64::from(d.load.nconnect), stated("000", "nconnect.max"));
            assert_eq!(gib(&d), total, "{name}");
        }
        assert_eq!(
            gib(&load("netapp-flex").unwrap()),
            stated("004", "ws.flex_per_vm") * stated("004", "clients")
        );
        let flex = load("netapp-flex").unwrap();
        assert_eq!(
            flex.tables[0].block_size.0 as f64,
            stated("004", "flex.rsize"),
            "a block is a call, as with that rsize"
        );
        let d = load("netapp-extreme").unwrap();
        let blocks: Vec<_> = d
            .tables
            .iter()
            .map(|t| (t.block_size.0, t.pattern))
            .collect();
        assert_eq!(
            blocks,
            [
                (64 << 10, Pattern::Sequential),
                (256 << 10, Pattern::Sequential),
                (4 << 10, Pattern::Random),
                (8 << 10, Pattern::Random)
            ]
        );
        assert!(d.tables.iter().all(|t| t.mixes == [100, 75, 50, 25, 0]));
        assert_eq!(flex.tables.len(), 2);
        let d = load("datakeeper").unwrap();
        assert_eq!(f64::from(d.load.jobs), stated("002", "diskspd.threads"));
        assert_eq!(f64::from(d.load.depth), stated("002", "diskspd.qd"));
        assert_eq!(gib(&d), stated("002", "diskspd.file"));
        // Five seconds of warm-up are diskspd's default.
        assert_eq!(
            (d.time.warmup, d.time.measure),
            (5.0, stated("002", "diskspd.dur"))
        );
        assert_eq!(d.load.durability, Durability::Stable);
        assert!(d.baseline && d.tables.iter().all(|t| t.mixes == [0]));
        let d = load("nconnect-sweep").unwrap();
        let step = stated("000", "bench.rss_iodepth_step") as u32;
        let depths: Vec<u32> = (1..=stated("000", "bench.rss_runs") as u32)
            .map(|n| n * step)
            .collect();
        assert_eq!(d.tables[0].depth.as_ref().unwrap().values(), depths);
        assert_eq!(f64::from(d.load.jobs), stated("000", "bench.rss_numjobs"));
        assert_eq!(gib(&d), stated("000", "bench.working_set") * 1024.0);
        assert_eq!(
            d.tables[0].block_size.0 as f64,
            stated("000", "bench.client_bs") * 1024.0
        );
        let channels = load("smb-channels").unwrap();
        assert_eq!(channels.tables[0].depth, d.tables[0].depth);
        assert_eq!(channels.tables[0].block_size, d.tables[0].block_size);
        assert_eq!(channels.load.working_set, d.load.working_set);
        let d = load("eda").unwrap();
        assert_eq!(f64::from(d.load.clients), stated("004", "eda.addresses"));
        let last = |table: &Table| table.rate.as_ref().unwrap().values().pop().unwrap();
        assert_eq!(last(&d.tables[0]), 1_350_000.0);
        assert_eq!(last(&d.tables[2]), 1_350_000.0);
        let block = d.tables[1].block_size.0 as f64;
        assert_eq!(last(&d.tables[1]) * block, 21.5 * f64::from(1 << 30));
        let d = load("filestore").unwrap();
        let jobs: Vec<_> = d
            .tables
            .iter()
            .map(|t| d.axis(t.jobs.as_ref(), 1))
            .collect();
        assert_eq!(jobs, [vec![1], vec![80], vec![1], vec![20]]);
    }
}
