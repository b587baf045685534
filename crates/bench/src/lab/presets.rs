//! The definitions that come with the binary: the runs of the published measurements.

use super::spec::Definition;
use crate::error::BenchError;

/// Names and texts of the presets, as `weir bench presets list` shows them.
pub const PRESETS: [(&str, &str); 6] = [
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
    use super::super::spec::{Durability, Pattern};
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

    #[test]
    fn the_presets_have_the_parameters_of_what_they_repeat() {
        let d = load("netapp-extreme").unwrap();
        assert_eq!((d.load.clients, d.load.jobs, d.load.nconnect), (6, 8, 16));
        assert_eq!(d.load.working_set.0, 6 << 40);
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
        let d = load("netapp-flex").unwrap();
        assert_eq!(d.load.working_set.0, 576 << 30);
        assert_eq!(d.tables.len(), 2);
        let d = load("datakeeper").unwrap();
        assert_eq!((d.load.jobs, d.load.depth), (8, 3));
        assert_eq!((d.time.warmup, d.time.measure), (5.0, 10.0));
        assert_eq!(d.load.durability, Durability::Stable);
        assert!(d.baseline && d.tables.iter().all(|t| t.mixes == [0]));
        let d = load("nconnect-sweep").unwrap();
        assert_eq!(
            d.tables[0].depth.as_ref().unwrap().values(),
            [5, 10, 15, 20, 25, 30, 35, 40, 45]
        );
        let d = load("filestore").unwrap();
        let jobs: Vec<_> = d
            .tables
            .iter()
            .map(|t| d.axis(t.jobs.as_ref(), 1))
            .collect();
        assert_eq!(jobs, [vec![1], vec![80], vec![1], vec![20]]);
    }
}
