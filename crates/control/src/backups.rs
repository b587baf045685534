//! Jobs that make and delete vaults and backups.
//!
//! Each asks the node for a state, so that an interrupted one is run again from its start: the
//! bucket has what was uploaded. They take as long as there is data, so they do not take the places
//! of other calls to the node. Those of one vault run one after the other.

use crate::backend::{Backend, BackendError, BackupSpec, FilesSpec, VolumeSpec, VolumeState, call};
use crate::job::Job;
use crate::jobs::{JobContext, failure, gone};
use crate::model::{Backup, BackupVault, State, Volume};
use crate::name::{BackupName, Name, Surface, Target};
use crate::refusal::Refusal;
use crate::view::View;
use std::sync::Arc;

/// Beginning of the details of a vault or a backup that could not be deleted.
pub(crate) const DELETION_FAILED: &str = "deletion failed";

/// Returns the newest backup of the same volume in the same vault, which the next builds on.
fn base(view: &View, of: &Backup) -> Option<Arc<Backup>> {
    let others = view.backups_in(&of.name.vault);
    let earlier = others.filter(|other| other.source_id == of.source_id && other.id != of.id);
    let made = earlier.filter(|other| other.state == State::Ready);
    made.max_by_key(|other| other.created).cloned()
}

impl JobContext {
    pub(crate) async fn ask_for_long<T: Send + 'static>(
        &self,
        f: impl Fn(&dyn Backend) -> Result<T, BackendError> + Clone + Send + 'static,
    ) -> Result<T, BackendError> {
        self.with_retries(|| call(&self.backend, false, f.clone()))
            .await
    }

    fn vault(&self, name: &Name) -> Result<Arc<BackupVault>, Refusal> {
        let found = self.store.view().backup_vault(name).cloned();
        found.ok_or_else(|| gone(&Target::BackupVault(name.clone())))
    }

    fn backup(&self, name: &BackupName) -> Result<Arc<Backup>, Refusal> {
        let found = self.store.view().backup(name).cloned();
        found.ok_or_else(|| gone(&Target::Backup(name.clone())))
    }

    async fn set_vault(&self, name: &Name, state: State, details: &str) -> Result<(), Refusal> {
        let written = self.store.commit_with_retry(|tx| {
            if let Some(now) = tx.view.backup_vault(name).cloned() {
                let mut next = BackupVault::clone(&now);
                next.state = state;
                details.clone_into(&mut next.state_details);
                tx.put_vault(next);
            }
        });
        written.await.map(drop)
    }

    async fn change_backup(
        &self,
        name: &BackupName,
        change: impl Fn(&mut Backup),
    ) -> Result<(), Refusal> {
        let written = self.store.commit_with_retry(|tx| {
            if let Some(now) = tx.view.backup(name).cloned() {
                let mut next = Backup::clone(&now);
                change(&mut next);
                tx.put_backup(next);
            }
        });
        written.await.map(drop)
    }

    pub(crate) async fn create_vault(&self, name: &Name) -> Result<(), Refusal> {
        let key = self.vault(name)?.key();
        let made = self.ask_for_long(move |node| node.vault_create(&key)).await;
        let made = made.map_err(|error| failure(&error));
        match &made {
            Ok(()) => self.set_vault(name, State::Ready, "").await?,
            Err(why) => self.set_vault(name, State::Error, &why.message).await?,
        }
        made
    }

    pub(crate) async fn delete_vault(&self, name: &Name) -> Result<(), Refusal> {
        let key = self.vault(name)?.key();
        let deleted = self.ask_for_long(move |node| node.vault_delete(&key)).await;
        let deleted = deleted.map_err(|error| failure(&error));
        if let Err(why) = &deleted {
            let words = format!("{DELETION_FAILED}: {}", why.message);
            self.set_vault(name, State::Error, &words).await?;
        }
        deleted
    }

    pub(crate) async fn take_backup(&self, name: &BackupName) -> Result<(), Refusal> {
        let backup = self.backup(name)?;
        let vault = self.vault(&name.vault)?;
        let ready = match name.surface() {
            Surface::Filestore if vault.state != State::Ready => {
                self.create_vault(&name.vault).await
            }
            _ => Ok(()),
        };
        let view = self.store.view();
        let earlier = base(&view, &backup);
        let taken = match (ready, view.volume(&backup.source)) {
            (Err(why), _) => Err(why),
            (_, None) => Err(gone(&Target::Volume(backup.source.clone()))),
            (Ok(()), Some(volume)) => {
                let spec = BackupSpec {
                    vault: vault.key(),
                    name: name.id.to_string(),
                    volume: volume.key.to_string(),
                    snapshot: backup.engine_snapshot(),
                    take: backup.snapshot.is_none(),
                    base: earlier.as_ref().map(|earlier| earlier.name.id.to_string()),
                    source: backup.source.to_string(),
                };
                let taken = self.ask_for_long(move |node| node.backup_take(&spec)).await;
                taken.map_err(|error| failure(&error))
            }
        };
        self.change_backup(name, |next| match &taken {
            Ok(made) => {
                next.state = State::Ready;
                next.state_details.clear();
                (next.bytes, next.uploaded) = (made.bytes, made.uploaded);
            }
            Err(why) => {
                next.state = State::Error;
                next.state_details.clone_from(&why.message);
            }
        })
        .await?;
        // The next one builds on this one: the snapshot taken for the one before is not needed.
        let superseded = earlier.filter(|earlier| taken.is_ok() && earlier.snapshot.is_none());
        if let Some(earlier) = superseded {
            self.drop_snapshot_of(&earlier).await;
        }
        taken.map(drop)
    }

    /// Deletes the snapshot that was taken for a backup. Without it the next backup goes through
    /// all of the volume; one that is left costs space and can be deleted by anybody.
    async fn drop_snapshot_of(&self, backup: &Backup) {
        let volume = self.store.view().volume(&backup.source).cloned();
        let Some(volume) = volume.filter(|volume| volume.id == backup.source_id) else {
            return;
        };
        let (key, snapshot) = (volume.key.to_string(), backup.engine_snapshot());
        let dropped = self.call_node(move |node| node.snapshot_delete(&key, &snapshot));
        if let Err(error) = dropped.await {
            tracing::warn!(backup = %backup.name, %error, "cannot delete the snapshot of a backup; it stays");
        }
    }

    pub(crate) async fn delete_backup(&self, name: &BackupName) -> Result<(), Refusal> {
        let backup = self.backup(name)?;
        let vault = self.vault(&name.vault)?;
        // A vault of instances that could not be made has no backup in the bucket.
        let deleted = if name.surface() == Surface::Filestore && vault.state != State::Ready {
            Ok(())
        } else {
            let (vault, id) = (vault.key(), name.id.to_string());
            let deleted = self.ask_for_long(move |node| node.backup_delete(&vault, &id));
            deleted.await.map_err(|error| failure(&error))
        };
        match &deleted {
            Ok(()) if backup.snapshot.is_none() => self.drop_snapshot_of(&backup).await,
            Ok(()) => {}
            Err(why) => {
                let words = format!("{DELETION_FAILED}: {}", why.message);
                self.change_backup(name, |next| {
                    next.state = State::Error;
                    next.state_details.clone_from(&words);
                })
                .await?;
            }
        }
        deleted
    }

    pub(crate) async fn restore_files(&self, job: &Job) -> Result<(), Refusal> {
        let Job::RestoreFiles {
            of,
            backup,
            files,
            directory,
        } = job
        else {
            return Ok(());
        };
        self.backup(backup)?;
        let volume = self.store.view().volume(of).cloned();
        let volume = volume.ok_or_else(|| gone(&Target::Volume(of.clone())))?;
        let spec = FilesSpec {
            vault: self.vault(&backup.vault)?.key(),
            backup: backup.id.to_string(),
            volume: volume.key.to_string(),
            files: files.iter().map(|path| path.to_string()).collect(),
            directory: directory.to_string(),
        };
        let restored = self.ask_for_long(move |node| node.restore_files(&spec));
        restored.await.map_err(|error| failure(&error))
    }

    /// Creates a volume on the node: empty, as a clone, or out of a backup.
    pub(crate) async fn made(
        &self,
        volume: &Volume,
        spec: VolumeSpec,
    ) -> Result<VolumeState, BackendError> {
        let Some(name) = &volume.restore_of else {
            return self
                .ask_with_retries(move |node| node.create_volume(&spec))
                .await;
        };
        let Some(vault) = self.store.view().backup_vault(&name.vault).cloned() else {
            return Err(BackendError::NotFound(name.vault.id.to_string()));
        };
        let (vault, backup) = (vault.key(), name.id.to_string());
        self.ask_for_long(move |node| node.restore_volume(&spec, &vault, &backup))
            .await
    }
}
