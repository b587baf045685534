//! Qtrees of volumes, in ONTAP's words. The engine has them, and nothing else: the catalog only has
//! their quota rules and their own export policies. So a change is a line of the audit log, and no
//! operation; a deletion is one, since it takes as long as there are files.

use std::collections::HashMap;
use std::sync::Arc;

use weir_base::Ino;
use weir_control::backend::DELETED_TREE;
use weir_control::{
    Assign, Mutation, NamedKind, Outcome, PolicyName, Surface, TreePolicy, VolumeChange,
};
use weir_node::qtrees::recall;
use weir_ontap::cluster::{Failure, Reason};
use weir_ontap::storage::Qtree;
use weir_relations::model::Path;
use weir_vfs::claims::Event;
use weir_vfs::{FileId, Namespace};
use weir_volume::{EngineContext, FsError, SetAttr, Tree, Volume};

use crate::storage::DEFAULT;
use crate::{Answer, AsUser, missing, refusal};

/// Maximum length of the name of a qtree in bytes, as in ONTAP.
const MAX_QTREE_NAME: usize = 64;
/// Export policy that is shown for a qtree whose own is not known, so that it admits nobody.
pub(crate) const NOBODY: &str = "weir:nobody";
/// Permission bits of a qtree that is made without any.
const PERMISSIONS: u32 = 0o755;

/// Returns the reason why a qtree cannot have this name.
fn unfit(name: &str) -> Option<String> {
    let wrong = |c: char| c == '/' || c.is_control();
    let own = [".", "..", ".snapshot", "~snapshot"].contains(&name);
    let reserved = own || name.starts_with(DELETED_TREE);
    match name.is_empty() || name.len() > MAX_QTREE_NAME || name.contains(wrong) || reserved {
        true => Some(format!(
            "Invalid qtree name \"{}\": 1 to {MAX_QTREE_NAME} bytes without \"/\" and control characters, and none that the server has itself.",
            name.escape_debug()
        )),
        false => None,
    }
}

/// Returns the failure of a change of a qtree.
fn failed(volume: &Path, name: &str, error: FsError) -> Failure {
    let (reason, why) = match error {
        FsError::NotFound => return missing(),
        FsError::Exists | FsError::CrossDevice => (Reason::Duplicate, "that name is in use"),
        FsError::NotSupported => (
            Reason::Unsupported,
            "the data folder was made by an earlier version, and has no qtrees: stop the server, run `weir upgrade`, and start it again",
        ),
        FsError::ReadOnly => (Reason::State, "the volume is read-only"),
        FsError::NoSpace => (Reason::State, "the volume is full"),
        FsError::Quota => (Reason::State, "a quota is exceeded"),
        FsError::Delay => (Reason::Busy, "the server is ending; try again"),
        _ => (Reason::Failed, "the volume cannot be changed"),
    };
    let why = format!(
        "Qtree \"{name}\" of volume \"{}\" in Vserver \"{}\": {why} ({error}).",
        volume.volume, volume.vserver
    );
    let failure = Failure::new(reason, why);
    match error {
        FsError::ReadOnly => failure.by("VOLUME_READ_ONLY"),
        _ => failure,
    }
}

/// Returns false for a qtree that is being deleted.
fn is_there(tree: &Tree) -> bool {
    !tree.name.starts_with(DELETED_TREE.as_bytes())
}

fn describe_qtree(volume: &Path, tree: Tree, export_policy: Option<String>) -> Qtree {
    Qtree {
        export_policy,
        volume: volume.clone(),
        number: tree.number,
        name: String::from_utf8_lossy(&tree.name).into_owned(),
        permissions: tree.attr.mode,
        owner: tree.attr.uid,
        group: tree.attr.gid,
    }
}

impl AsUser {
    /// Returns the qtrees of all volumes, or of one.
    pub(crate) fn all_qtrees(&self, of: Option<&Path>) -> Vec<Qtree> {
        let view = self.server.control.view();
        let policies = view.policies().filter(|p| p.name.kind == NamedKind::Export);
        let policies: HashMap<Option<u64>, String> = policies
            .map(|p| (Some(p.id), p.name.id.to_string()))
            .collect();
        let mut all = Vec::new();
        for volume in view.every_volume(Surface::Netapp) {
            let path = Path::local(&volume.name.place.project, &volume.name.id);
            let Some(engine) = self.server.engine.volume(&volume.key) else {
                continue;
            };
            if of.is_some_and(|of| *of != path) {
                continue;
            }
            match engine.trees(self.server.clock.current_time()) {
                Ok(trees) => all.extend(trees.into_iter().filter(is_there).map(|tree| {
                    let own = volume.trees.get(&tree.number);
                    let own = own.map(|own| match (&own.unknown, policies.get(&own.policy)) {
                        (Some(_), _) => NOBODY.to_owned(),
                        (None, Some(name)) => name.clone(),
                        (None, None) => DEFAULT.to_owned(),
                    });
                    describe_qtree(&path, tree, own)
                })),
                Err(error) => {
                    let why = format!("cannot list the qtrees of volume {path}: {error}");
                    self.warnings.lock().push(why);
                }
            }
        }
        all.sort_by(|a, b| (&a.volume, &a.name).cmp(&(&b.volume, &b.name)));
        all
    }

    fn volume_with_qtrees(&self, path: &Path) -> Answer<Arc<Volume>> {
        let volume = self.volume(path)?;
        self.server.engine.volume(&volume.key).ok_or_else(missing)
    }

    /// Refuses an export policy that does not exist.
    fn check_export_policy(&self, path: &Path, policy: Option<&str>) -> Answer<()> {
        let Some(policy) = policy.filter(|policy| !["", DEFAULT].contains(policy)) else {
            return Ok(());
        };
        let (view, volume) = (self.server.control.view(), self.volume(path)?);
        let place = [&*volume.name.place.project, ""];
        let there = place.iter().any(|project| {
            view.policy(&PolicyName::new(NamedKind::Export, project, policy))
                .is_some()
        });
        match there {
            true => Ok(()),
            false => {
                let why = format!("There is no export policy \"{policy}\".");
                Err(Failure::new(Reason::NotFound, why).by("EXPORT_POLICY_NOT_FOUND"))
            }
        }
    }

    /// Gives the qtree with this number an export policy of its own (empty: the volume's), and
    /// forgets those of qtrees that are gone. While there are snapshots these stay: a snapshot may
    /// have the qtree, and so would a clone of it.
    ///
    /// The volume's record has the policy, durably: a catalog that is rebuilt from older records
    /// would admit clients that were excluded since.
    fn set_export_policy(&self, path: &Path, number: u32, policy: &str) -> Answer<()> {
        let (volume, engine) = (self.volume(path)?, self.volume_with_qtrees(path)?);
        let trees = engine.trees(self.server.clock.current_time());
        let trees = trees.map_err(|error| failed(path, "", error))?;
        let view = self.server.control.view();
        let kept = view.snapshots(&volume.name, None).next().is_some();
        let gone = |had: &u32| !kept && trees.iter().all(|tree| tree.number != *had);
        let gone = volume.trees.keys().copied().filter(gone);
        let mut all: Vec<_> = gone.map(|number| (number, TreePolicy::Inherited)).collect();
        if trees.iter().any(|tree| tree.number == number) {
            let policy = match policy {
                "" => TreePolicy::Inherited,
                DEFAULT => TreePolicy::Default,
                name => TreePolicy::Named(name.to_owned()),
            };
            all.push((number, policy));
        }
        let change = VolumeChange {
            assign: Assign {
                trees: all,
                ..Assign::default()
            },
            ..VolumeChange::default()
        };
        self.submit(Mutation::UpdateVolume(volume.name.clone(), change))?;
        let durable = self.server.engine.cp_now();
        durable.map_err(|error| {
            let why = format!(
                "The export policy is in force, and cannot be stored with volume \"{}\": {error}.",
                path.volume
            );
            Failure::new(Reason::Failed, why)
        })
    }

    /// Carries a change out between the two halves of its line in the audit log.
    fn noted(
        &self,
        verb: &str,
        (volume, name): (&Path, &str),
        work: impl FnOnce() -> Answer<()>,
    ) -> Answer<()> {
        let (control, runtime) = (&self.server.control, &self.server.runtime);
        let target = format!("{}/qtrees/{name}", self.volume(volume)?.name);
        let line = runtime.block_on(control.note(&self.actor, verb, target));
        let line = line.map_err(|why| refusal(&why))?;
        let done = work();
        let words = match &done {
            Ok(()) => "done".to_owned(),
            Err(why) => format!("failed: {}", why.message),
        };
        let noted = runtime.block_on(control.note_end(line, words));
        done?;
        noted.map_err(|why| refusal(&why))
    }

    pub(crate) fn create_qtree(
        &self,
        path: &Path,
        name: &str,
        permissions: Option<u32>,
        export_policy: Option<&str>,
    ) -> Answer<()> {
        if let Some(why) = unfit(name) {
            return Err(Failure::new(Reason::Invalid, why));
        }
        self.check_export_policy(path, export_policy)?;
        let volume = self.volume_with_qtrees(path)?;
        self.noted("create", (path, name), || {
            let attrs = SetAttr {
                mode: Some(permissions.unwrap_or(PERMISSIONS)),
                ..SetAttr::default()
            };
            let mut cx = EngineContext::new(self.server.clock.current_time());
            let made = volume.drive_blocking(&mut cx, |cx| {
                volume.create_tree(cx, name.as_bytes(), &attrs)
            });
            let lsn = made.map(|done| done.lsn);
            let durable = lsn.and_then(|lsn| self.server.engine.wait_durable(lsn));
            durable.map_err(|error| failed(path, name, error))
        })?;
        let Some(policy) = export_policy.filter(|policy| !policy.is_empty()) else {
            return Ok(());
        };
        let made = volume.tree_named(self.server.clock.current_time(), name.as_bytes());
        let made = made.map_err(|error| failed(path, name, error))?;
        let set = self.set_export_policy(path, made.number, policy);
        if set.is_err() {
            // Without its policy it would admit whom its volume admits.
            self.delete_qtree(path, name)?;
        }
        set
    }

    pub(crate) fn modify_qtree(
        &self,
        (path, name): (&Path, &str),
        to: Option<&str>,
        permissions: Option<u32>,
        export_policy: Option<&str>,
    ) -> Answer<()> {
        if let Some(why) = to.and_then(unfit) {
            return Err(Failure::new(Reason::Invalid, why));
        }
        self.check_export_policy(path, export_policy)?;
        let volume = self.volume_with_qtrees(path)?;
        let now = self.server.clock.current_time();
        let tree = volume.tree_named(now, name.as_bytes());
        let tree = tree.map_err(|error| failed(path, name, error))?;
        if let Some(policy) = export_policy {
            self.set_export_policy(path, tree.number, policy)?;
        }
        if to.is_none() && permissions.is_none() {
            return Ok(());
        }
        let root = volume.root();
        let mut changes = Vec::new();
        if permissions.is_some() {
            changes.push((tree.ino, Event::Attributes));
        }
        if to.is_some_and(|to| to != name) {
            changes.extend([(root, Event::Entries), (tree.ino, Event::Name)]);
        }
        self.recall(&volume, &changes);
        self.noted("update", (path, name), || {
            let mut lsn = Ok(None);
            if permissions.is_some() {
                let set = SetAttr {
                    mode: permissions,
                    ..SetAttr::default()
                };
                let mut cx = EngineContext::new(now);
                let done =
                    volume.drive_blocking(&mut cx, |cx| volume.setattr(cx, tree.ino, &set, None));
                lsn = done.map(|done| done.lsn);
            }
            if let (Ok(_), Some(to)) = (&lsn, to.filter(|to| *to != name)) {
                let mut cx = EngineContext::new(now);
                let (from, to) = (name.as_bytes(), to.as_bytes());
                let done = volume.drive_blocking(&mut cx, |cx| {
                    // A folder's rename replaces an empty one.
                    match volume.lookup(cx, root, to) {
                        Err(weir_volume::Stop::Fail(FsError::NotFound)) => {}
                        Err(stop) => return Err(stop),
                        Ok(_) => return Err(FsError::Exists.into()),
                    }
                    volume.rename(cx, root, from, root, to)
                });
                lsn = done.map(|done| done.lsn);
            }
            let durable = lsn.and_then(|lsn| self.server.engine.wait_durable(lsn));
            durable.map_err(|error| failed(path, to.unwrap_or(name), error))
        })?;
        // Those that were granted meanwhile.
        let file = |ino| FileId {
            volume: volume.id(),
            ino,
            namespace: Namespace::Live,
        };
        for (ino, event) in changes {
            self.server.counters.vfs.claims.recall(file(ino), event);
        }
        Ok(())
    }

    /// Waits until clients have returned what they cache of these inodes of a volume.
    fn recall(&self, volume: &Volume, changes: &[(Ino, Event)]) {
        let server = &self.server;
        let stopping = || server.replication.stopping();
        let claims = &server.counters.vfs.claims;
        recall((claims, volume), changes, &server.runtime, &stopping);
    }

    /// Deletes a qtree: its name at once, what is in it as an operation of the control plane.
    pub(crate) fn delete_qtree(&self, path: &Path, name: &str) -> Answer<()> {
        let volume = self.volume_with_qtrees(path)?;
        let tree = volume.tree_named(self.server.clock.current_time(), name.as_bytes());
        let tree = tree.map_err(|error| failed(path, name, error))?;
        if volume.mirror().is_some() {
            return Err(failed(path, name, FsError::ReadOnly));
        }
        let changes = [(volume.root(), Event::Entries), (tree.ino, Event::Name)];
        self.recall(&volume, &changes);
        let mutation = Mutation::DeleteTree {
            of: self.volume(path)?.name.clone(),
            number: tree.number,
        };
        let (control, runtime) = (&self.server.control, &self.server.runtime);
        let begun = runtime.block_on(control.submit(mutation, &self.actor));
        match &begun.map_err(|why| refusal(&why))?.outcome {
            Some(Outcome::Failed(why)) => Err(refusal(why)),
            Some(_) | None => Ok(()),
        }
    }
}
