//! Metrics of space: physical, and of each pool and volume.

use std::sync::Arc;

use weir_control::{Collection, Control, Pool, Surface, View, Volume};
use weir_volume::Engine;

use crate::metrics::Pieces;

const GIB: u64 = 1 << 30;

/// Returns the metrics in Prometheus' text form, made as they are read.
pub fn pieces(control: &Control, engine: &Arc<Engine>) -> Pieces {
    let mut page = Pieces::default();
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
        page.family((name, "gauge", help));
        page.then(move |page| page.sample(name, &[], value));
    }
    let full = |pool: &Pool| pool.name.full(Collection::Pools);
    let pools: Arc<[Arc<Pool>]> = view.every_pool().cloned().collect();
    let name = "weir_pool_size_bytes";
    page.family((name, "gauge", "Capacity of a storage pool."));
    page.each(&pools, move |page, pool| {
        let size = pool.capacity_gib.saturating_mul(GIB);
        page.sample(name, &[("pool", &full(pool))], size);
    });
    let name = "weir_pool_used_bytes";
    let help = "Bytes that the volumes of a storage pool hold.";
    page.family((name, "gauge", help));
    let (of, held) = (Arc::clone(&view), Arc::clone(engine));
    page.each(&pools, move |page, pool| {
        let volumes = of.volumes_of(&pool.name);
        let sum: u64 = volumes.map(|volume| used(&held, volume)).sum();
        page.sample(name, &[("pool", &full(pool))], sum);
    });
    let surfaces = [Surface::Netapp, Surface::Filestore].into_iter();
    let volumes: Arc<[Arc<Volume>]> = surfaces
        .flat_map(|surface| view.every_volume(surface))
        .cloned()
        .collect();
    type Measure = fn(&Engine, &Volume) -> u64;
    let size: Measure = |_, volume| volume.capacity_gib.saturating_mul(GIB);
    for (name, help, of) in [
        (
            "weir_volume_size_bytes",
            "Capacity of a volume or an instance.",
            size,
        ),
        (
            "weir_volume_used_bytes",
            "Bytes that a volume or an instance holds.",
            used,
        ),
    ] {
        page.family((name, "gauge", help));
        let engine = Arc::clone(engine);
        page.each(&volumes, move |page, volume| {
            let pool = volume
                .pool()
                .map_or_else(String::new, |p| p.full(Collection::Pools));
            let labels = [("pool", &*pool), ("volume", &volume.name.to_string())];
            page.sample(name, &labels, of(&engine, volume));
        });
    }
    with_infos(page, &view)
}

/// Adds the properties of pools and volumes as labels, with short names beside the full ones that
/// other families have: for joins, and for legends.
fn with_infos(mut page: Pieces, view: &View) -> Pieces {
    let pools: Arc<[Arc<Pool>]> = view.every_pool().cloned().collect();
    let name = "weir_pool_info";
    page.family((
        name,
        "gauge",
        "1: the properties of a storage pool, as labels.",
    ));
    page.each(&pools, move |page, pool| {
        let labels = [
            ("pool", &*pool.name.full(Collection::Pools)),
            ("project", &*pool.name.place.project),
            ("location", &*pool.name.place.location),
            ("name", &*pool.name.id),
            ("service_level", &*pool.service_level),
            ("qos_type", pool.qos_type.as_str()),
        ];
        page.sample(name, &labels, 1);
    });
    let surfaces = [Surface::Netapp, Surface::Filestore].into_iter();
    let volumes: Arc<[Arc<Volume>]> = surfaces
        .flat_map(|surface| view.every_volume(surface))
        .cloned()
        .collect();
    let name = "weir_volume_info";
    let help = "1: the properties of a volume or an instance, as labels.";
    page.family((name, "gauge", help));
    page.each(&volumes, move |page, volume| {
        let pool = volume.pool();
        let full = pool.as_ref().map(|pool| pool.full(Collection::Pools));
        let protocols: Vec<&str> = volume.protocols.iter().map(|p| p.as_str()).collect();
        let labels = [
            ("pool", full.as_deref().unwrap_or_default()),
            ("volume", &*volume.name.to_string()),
            ("project", &*volume.name.place.project),
            ("location", &*volume.name.place.location),
            ("pool_name", pool.as_ref().map_or("", |pool| &pool.id)),
            ("name", &*volume.name.id),
            ("protocols", &*protocols.join(",")),
        ];
        page.sample(name, &labels, 1);
    });
    page
}

fn used(engine: &Engine, volume: &Volume) -> u64 {
    engine.volume(&volume.key).map_or(0, |volume| volume.used())
}
