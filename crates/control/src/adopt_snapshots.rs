//! Adopts snapshots made outside the catalog: transfers create snapshots in destinations and delete
//! them.
//!
//! The engine's list is authoritative for the existence of snapshots, the catalog's for the
//! descriptions that users gave. A volume's lists are compared in its lane, when no job of it runs,
//! so that a half-finished job is not taken for a difference.

use crate::backend::SnapshotState;
use crate::jobs::JobContext;
use crate::model::{Labels, SNAPMIRROR_LABEL, Snapshot, State};
use crate::name::VolumeName;
use crate::store::Transaction;
use crate::timestamp::Stamp;
use std::collections::HashMap;
use weir_base::Rng;

/// The engine's snapshots of a volume.
type VolumeSnapshots = (VolumeName, Vec<SnapshotState>);

/// Makes the catalog's list of a volume's snapshots equal to the engine's.
pub(crate) async fn adopt_volume(context: &JobContext, rng: &dyn Rng, name: &VolumeName) {
    let Some(volume) = context.store.view().volume(name).cloned() else {
        return;
    };
    let tail = rng.next_u64();
    let turn = name.place.name(&format!("adoption-{tail:016x}"));
    let Some(mut place) = context.lanes.enter(volume.id, &turn) else {
        return;
    };
    place.begin().await;
    let key = volume.key.to_string();
    let Ok(found) = context.call_node(move |node| node.snapshots(&key)).await else {
        return;
    };
    write(context, rng, &[(name.clone(), found)]).await;
    drop(place);
}

/// Adopts the snapshots of every volume, at the start.
pub(crate) async fn adopt_all(context: &JobContext, rng: &dyn Rng) {
    let view = context.store.view();
    let there = view.volumes.values();
    let there = there.filter(|volume| volume.number.is_some() && volume.idle().is_ok());
    let wanted: Vec<(VolumeName, String)> = there
        .map(|volume| (volume.name.clone(), volume.key.to_string()))
        .collect();
    let asked = context.call_node(move |node| {
        let each = wanted.into_iter();
        Ok(each
            .filter_map(|(name, key)| Some((name, node.snapshots(&key).ok()?)))
            .collect::<Vec<_>>())
    });
    let found = asked.await.unwrap_or_default();
    write(context, rng, &found).await;
}

async fn write(context: &JobContext, rng: &dyn Rng, found: &[VolumeSnapshots]) {
    let view = context.store.view();
    let differ = |(name, found): &&VolumeSnapshots| {
        let known = view.snapshots(name, None);
        let settled = known.filter(|snapshot| snapshot.state == State::Ready);
        let known: HashMap<&str, _> = settled.map(|s| (&*s.name.id, s.engine)).collect();
        let is = |s: &SnapshotState| known.get(s.name.as_str()) == Some(&Some(s.engine()));
        view.volume(name).is_some() && (known.len() != found.len() || !found.iter().all(is))
    };
    let changed: Vec<_> = found.iter().filter(differ).collect();
    if changed.is_empty() {
        return;
    }
    let written = context.store.commit_with_retry(|tx| {
        for (name, found) in &changed {
            merge(tx, rng, name, found);
        }
    });
    if let Err(why) = written.await {
        tracing::info!(%why, "catalog unavailable; left for the next start");
    }
}

fn merge(tx: &mut Transaction<'_>, rng: &dyn Rng, name: &VolumeName, found: &[SnapshotState]) {
    if tx.view.volume(name).is_none() {
        return;
    }
    let mut has: HashMap<&str, &SnapshotState> =
        found.iter().map(|s| (s.name.as_str(), s)).collect();
    for known in tx.view.snapshots_to_go(name) {
        let there = has.remove(&*known.name.id);
        match there.filter(|_| known.state == State::Ready) {
            Some(state) if known.engine != Some(state.engine()) => {
                let mut known = Snapshot::clone(&known);
                known.engine = Some(state.engine());
                known.created = Stamp::from_nanos(state.created);
                tx.put_snapshot(known);
            }
            None if there.is_none() && known.state == State::Ready => {
                tracing::info!(snapshot = %known.name, "snapshot no longer exists in the engine; removed from the catalog");
                tx.remove_snapshot(&known);
            }
            _ => {}
        }
    }
    // In the order of their creation.
    for state in found
        .iter()
        .filter(|state| has.contains_key(state.name.as_str()))
    {
        let mut labels = Labels::new();
        if !state.label.is_empty() {
            labels.insert(SNAPMIRROR_LABEL.to_owned(), state.label.clone());
        }
        tx.put_snapshot(Snapshot {
            id: (rng.next_u64() >> 1).max(1),
            name: name.snapshot(&state.name),
            revision: 1,
            state: State::Ready,
            state_details: String::new(),
            created: Stamp::from_nanos(state.created),
            engine: Some(state.engine()),
            schedule: None,
            description: String::new(),
            labels,
            extra: Default::default(),
        });
    }
}
