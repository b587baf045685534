//! Metrics of space: physical, and of each pool and volume.

use std::fmt::Write as _;

use weir_control::{Collection, Control, Pool, Surface, Volume};
use weir_volume::Engine;

const GIB: u64 = 1 << 30;

fn family(out: &mut String, name: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
}

/// Returns the metrics in Prometheus' text form. Names of pools and volumes have no characters that need escapes.
pub fn render(control: &Control, engine: &Engine) -> String {
    let mut out = String::new();
    let view = control.view();
    let space = control.facts().space;
    let provisioned = view.provisioned_gib().saturating_mul(GIB);
    for (name, help, value) in [
        (
            "weir_aggregate_size_bytes",
            "Physical space: the device, and what the host's file system can still give to it.",
            space.size,
        ),
        (
            "weir_aggregate_used_bytes",
            "Physical space that data, metadata and reservations hold.",
            space.used(),
        ),
        (
            "weir_aggregate_free_bytes",
            "Physical space that writes may still use.",
            space.free,
        ),
        (
            "weir_aggregate_provisioned_bytes",
            "Capacity of all storage pools and instances.",
            provisioned,
        ),
    ] {
        family(&mut out, name, help);
        let _ = writeln!(out, "{name} {value}");
    }
    let used = |key: &str| engine.volume(key).map_or(0, |volume| volume.used());
    let full = |pool: &Pool| pool.name.full(Collection::Pools);
    let name = "weir_pool_size_bytes";
    family(&mut out, name, "Capacity of a storage pool.");
    for pool in view.every_pool() {
        let size = pool.capacity_gib.saturating_mul(GIB);
        let _ = writeln!(out, "{name}{{pool=\"{}\"}} {size}", full(pool));
    }
    let name = "weir_pool_used_bytes";
    family(
        &mut out,
        name,
        "Bytes that the volumes of a storage pool hold.",
    );
    for pool in view.every_pool() {
        let sum: u64 = view.volumes_of(&pool.name).map(|v| used(&v.key)).sum();
        let _ = writeln!(out, "{name}{{pool=\"{}\"}} {sum}", full(pool));
    }
    let size = |volume: &Volume| volume.capacity_gib.saturating_mul(GIB);
    let held = |volume: &Volume| used(&volume.key);
    let volumes = || {
        let all = [Surface::Netapp, Surface::Filestore].into_iter();
        all.flat_map(|surface| view.every_volume(surface))
    };
    for (name, help, of) in [
        (
            "weir_volume_size_bytes",
            "Capacity of a volume or an instance.",
            &size as &dyn Fn(&Volume) -> u64,
        ),
        (
            "weir_volume_used_bytes",
            "Bytes that a volume or an instance holds.",
            &held,
        ),
    ] {
        family(&mut out, name, help);
        for volume in volumes() {
            let pool = volume
                .pool()
                .map_or_else(String::new, |p| p.full(Collection::Pools));
            let _ = writeln!(
                out,
                "{name}{{pool=\"{pool}\",volume=\"{}\"}} {}",
                volume.name,
                of(volume)
            );
        }
    }
    out
}
