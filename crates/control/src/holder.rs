//! What has a volume of the engine behind it: a NetApp volume or a Filestore instance.

use crate::backend::{Capacity, VolumeSpec};
use crate::job::Container;
use crate::model::{Instance, State, Volume};
use crate::name::{Name, SnapshotOf, Target};
use crate::refusal::{Refusal, Status};
use crate::rules;
use crate::store::Draft;
use crate::view::View;
use std::sync::Arc;

const GIB: u64 = 1 << 30;
/// Permission bits of an instance's root: as Filestore has it, writable for root.
const INSTANCE_MODE: u32 = 0o755;

#[derive(Clone, Debug)]
pub(crate) enum Holder {
    Volume(Arc<Volume>),
    Instance(Arc<Instance>),
}

impl Holder {
    /// The volume or instance of this name.
    pub fn find(view: &View, target: &Target) -> Option<Holder> {
        match target {
            Target::Volume(name) => view.volume(name).cloned().map(Holder::Volume),
            Target::Instance(name) => view.instance(name).cloned().map(Holder::Instance),
            Target::Snapshot(name) => Holder::parent(view, name.of, &name.parent),
            Target::Pool(_) | Target::Replication(_) | Target::Relation(_) => None,
        }
    }

    /// What a snapshot is of.
    pub fn parent(view: &View, of: SnapshotOf, name: &Name) -> Option<Holder> {
        match of {
            SnapshotOf::Volume => Holder::find(view, &Target::Volume(name.clone())),
            SnapshotOf::Instance => Holder::find(view, &Target::Instance(name.clone())),
        }
    }

    pub fn id(&self) -> u64 {
        match self {
            Holder::Volume(volume) => volume.id,
            Holder::Instance(instance) => instance.id,
        }
    }

    pub fn key(&self) -> &Arc<str> {
        match self {
            Holder::Volume(volume) => &volume.key,
            Holder::Instance(instance) => &instance.key,
        }
    }

    pub fn state(&self) -> State {
        match self {
            Holder::Volume(volume) => volume.state,
            Holder::Instance(instance) => instance.state,
        }
    }

    pub fn name(&self) -> &Name {
        match self {
            Holder::Volume(volume) => &volume.name,
            Holder::Instance(instance) => &instance.name,
        }
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Holder::Volume(volume) => volume.number,
            Holder::Instance(instance) => instance.number,
        }
    }

    pub fn of(&self) -> SnapshotOf {
        match self {
            Holder::Volume(_) => SnapshotOf::Volume,
            Holder::Instance(_) => SnapshotOf::Instance,
        }
    }

    pub fn target(&self) -> Target {
        self.container().target()
    }

    pub fn container(&self) -> Container {
        match self {
            Holder::Volume(volume) => Container::Volume(volume.name.clone()),
            Holder::Instance(instance) => Container::Instance(instance.name.clone()),
        }
    }

    /// What the engine is to hold.
    pub fn capacity(&self, view: &View) -> Capacity {
        let volume = match self {
            Holder::Volume(volume) => volume,
            Holder::Instance(instance) => {
                return Capacity {
                    bytes: Some(instance.capacity_gb.saturating_mul(GIB)),
                    reserve: 0,
                };
            }
        };
        let whole = view.pool_of(volume).is_some_and(|pool| {
            let level = view.levels.pool(&pool.service_level);
            level.is_some_and(|level| level.overcommit) && volume.capacity_gib >= pool.capacity_gib
        });
        if whole {
            return Capacity::default();
        }
        let bytes = volume.capacity_gib.saturating_mul(GIB);
        Capacity {
            bytes: Some(bytes),
            reserve: bytes - rules::volume::room(volume.capacity_gib, volume.snap_reserve),
        }
    }

    pub fn root_mode(&self) -> u32 {
        match self {
            Holder::Volume(volume) => volume.unix_permissions,
            Holder::Instance(_) => INSTANCE_MODE,
        }
    }

    /// What the engine is to make.
    pub fn spec(&self, view: &View) -> VolumeSpec {
        let source = match self {
            Holder::Volume(volume) => volume.clone_of.as_ref(),
            Holder::Instance(_) => None,
        };
        let clone_of = source.and_then(|name| {
            let parent = Holder::parent(view, name.of, &name.parent)?;
            Some((parent.key().to_string(), name.id.to_string()))
        });
        VolumeSpec {
            key: self.key().to_string(),
            capacity: self.capacity(view),
            root_mode: self.root_mode(),
            clone_of,
        }
    }

    /// Writes it with another state, and with the engine's number where one is given.
    pub fn put(&self, draft: &mut Draft<'_>, state: State, details: &str, number: Option<u64>) {
        match self {
            Holder::Volume(volume) => {
                let mut volume = Volume::clone(volume);
                volume.state = state;
                details.clone_into(&mut volume.state_details);
                volume.number = number.or(volume.number);
                draft.put_volume(volume);
            }
            Holder::Instance(instance) => {
                let mut instance = Instance::clone(instance);
                instance.state = state;
                details.clone_into(&mut instance.state_details);
                instance.number = number.or(instance.number);
                draft.put_instance(instance);
            }
        }
    }

    /// Takes it out of the catalog, with its snapshots.
    pub fn remove(&self, draft: &mut Draft<'_>) {
        for snapshot in draft.view.snapshots_to_go(self.of(), self.name()) {
            draft.remove_snapshot(&snapshot);
        }
        match self {
            Holder::Volume(volume) => draft.remove_volume(volume),
            Holder::Instance(instance) => draft.remove_instance(instance),
        }
    }

    /// Refuses changes while it is being made, deleted or reverted.
    pub fn idle(&self) -> Result<(), Refusal> {
        let state = self.state();
        match state {
            State::Ready | State::Updating | State::Error => Ok(()),
            State::Creating | State::Restoring | State::Deleting => Err(Refusal::new(
                Status::Aborted,
                "RESOURCE_BUSY",
                format!(
                    "{} {} is {}; try again when it is READY",
                    self.target().noun(),
                    self.name().id,
                    state.as_str()
                ),
            )),
        }
    }
}
