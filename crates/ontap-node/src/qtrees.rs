//! Qtrees of volumes, in ONTAP's words. The engine has them, and nothing else: the catalog only has
//! their quota rules. So each change is a line of the audit log, and no operation.

use std::sync::Arc;

use weir_control::Surface;
use weir_ontap::cluster::{Failure, Reason};
use weir_ontap::storage::{Qtree, QuotaTarget};
use weir_relations::model::Path;
use weir_volume::{EngineContext, FsError, SetAttr, Tree, Volume};

use crate::{Answer, AsUser, missing, refusal};

/// Maximum length of the name of a qtree in bytes, as in ONTAP.
const MAX_QTREE_NAME: usize = 64;
/// Permission bits of a qtree that is made without any.
const PERMISSIONS: u32 = 0o755;

/// Returns the reason why a qtree cannot have this name.
fn unfit(name: &str) -> Option<String> {
    let wrong = |c: char| c == '/' || c.is_control();
    let reserved = [".", "..", ".snapshot", "~snapshot"].contains(&name);
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
    Failure::new(reason, why)
}

fn shown(volume: &Path, tree: Tree) -> Qtree {
    Qtree {
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
        let mut all = Vec::new();
        for volume in view.every_volume(Surface::Netapp) {
            let path = Path::local(&volume.name.place.project, &volume.name.id);
            let Some(engine) = self.server.engine.volume(&volume.key) else {
                continue;
            };
            if of.is_some_and(|of| *of != path) {
                continue;
            }
            match engine.trees(self.server.clock.now()) {
                Ok(trees) => all.extend(trees.into_iter().map(|tree| shown(&path, tree))),
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
    ) -> Answer<()> {
        if let Some(why) = unfit(name) {
            return Err(Failure::new(Reason::Invalid, why));
        }
        let volume = self.volume_with_qtrees(path)?;
        self.noted("create", (path, name), || {
            let attrs = SetAttr {
                mode: Some(permissions.unwrap_or(PERMISSIONS)),
                ..SetAttr::default()
            };
            let mut cx = EngineContext::new(self.server.clock.now());
            let made = volume.drive_blocking(&mut cx, |cx| {
                volume.create_tree(cx, name.as_bytes(), &attrs)
            });
            let lsn = made.map(|done| done.lsn);
            let durable = lsn.and_then(|lsn| self.server.engine.wait_durable(lsn));
            durable.map_err(|error| failed(path, name, error))
        })
    }

    pub(crate) fn modify_qtree(
        &self,
        path: &Path,
        name: &str,
        to: Option<&str>,
        permissions: Option<u32>,
    ) -> Answer<()> {
        if let Some(why) = to.and_then(unfit) {
            return Err(Failure::new(Reason::Invalid, why));
        }
        let volume = self.volume_with_qtrees(path)?;
        let now = self.server.clock.now();
        let tree = volume.tree_named(now, name.as_bytes());
        let tree = tree.map_err(|error| failed(path, name, error))?;
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
                let (root, mut cx) = (volume.root(), EngineContext::new(now));
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
        })
    }

    pub(crate) fn delete_qtree(&self, path: &Path, name: &str) -> Answer<()> {
        let volume = self.volume_with_qtrees(path)?;
        let now = self.server.clock.now();
        let tree = volume.tree_named(now, name.as_bytes());
        let tree = tree.map_err(|error| failed(path, name, error))?;
        self.noted("delete", (path, name), || {
            let stopping = || self.server.replication.stopping();
            let gone = volume.remove_all(now, name.as_bytes(), &stopping);
            let durable = gone.and_then(|lsn| self.server.engine.wait_durable(lsn));
            durable.map_err(|error| failed(path, name, error))
        })?;
        let target = QuotaTarget::Tree(tree.number);
        match self.remove_quota(path, target) {
            Err(why) if why.reason != Reason::NotFound => Err(why),
            _ => Ok(()),
        }
    }
}
