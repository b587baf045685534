//! Restores the persistent opens at the start. See [`crate::open::persistent`].

use crate::SERVICE;
use crate::conn::server::Service;
use crate::info::access::{denied, modes};
use crate::open::deletions::{Marker, RemovalKind};
use crate::open::leases::{self, Hold};
use crate::open::persistent::{self, Deletes, OpenRecord};
use crate::open::session::{File, Kind, Listing, Open};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::VolumeId;
use weir_vfs::claims::{
    Client, Lock, MarkOutcome, Modes, OpenOutcome, OpenRequest, Removal, Verdict,
};
use weir_vfs::grace::RecordId;
use weir_vfs::{ClientKey, EngineContext, FileId, Namespace, Volume};

impl Service {
    /// Restores the persistent opens of before the start, so that their clients find them and
    /// others find their claims. To be called once, before any client of any protocol is served. It
    /// reads the files' inodes, and blocks the thread for that. Records of files that are gone are
    /// removed.
    pub fn restore(&self, volumes: &[Arc<Volume>]) {
        let volumes = volumes.iter().map(|volume| (volume.id(), volume));
        let volumes: HashMap<VolumeId, &Arc<Volume>> = volumes.collect();
        let records = &self.leases.persistents.records;
        let mut restored = Vec::new();
        for (id, record) in records.list_records(SERVICE) {
            let Ok(recorded) = OpenRecord::decode(&record) else {
                tracing::error!(
                    "cannot read record of persistent open: not written by this version; removing the record"
                );
                records.change_some_time(id, None);
                continue;
            };
            // Numbers are not used again, whatever becomes of this one.
            let next = recorded.head.id + 1;
            self.next_open.fetch_max(next, Ordering::Relaxed);
            let volume = volumes.get(&recorded.head.volume);
            match volume
                .ok_or("its volume is gone")
                .and_then(|v| self.enter_again(v, id, &recorded))
            {
                Ok(open) => restored.push((open, recorded)),
                Err(why) => {
                    tracing::warn!(
                        user = recorded.head.user,
                        path = recorded.named.path,
                        why,
                        "cannot restore persistent open of SMB"
                    );
                    records.change_some_time(id, None);
                }
            }
        }
        if restored.is_empty() {
            return;
        }
        tracing::info!(
            opens = restored.len(),
            "persistent opens of SMB wait for their clients"
        );
        // Caches last: each is as much as all opens leave room for.
        let now = self.clock.monotonic();
        for (open, recorded) in restored {
            self.leases.cache_again(&open.hold, recorded.head.level);
            self.mark_again(&open, &recorded);
            let head = &recorded.head;
            self.leases.durables.enter(&open);
            self.leases.persistents.enter(&open);
            self.leases.durables.put(open, &head.user, head.guid, now);
        }
    }

    /// Removes the records of all persistent opens: their clients are not served any more.
    pub fn forget_persistent(&self) {
        let records = &self.leases.persistents.records;
        for (id, _) in records.list_records(SERVICE) {
            records.change_some_time(id, None);
        }
    }

    /// Enters the claims of a recorded open, without what it caches.
    fn enter_again(
        &self,
        volume: &Arc<Volume>,
        id: RecordId,
        recorded: &OpenRecord,
    ) -> Result<Arc<Open>, &'static str> {
        let head = &recorded.head;
        let mut cx = EngineContext::new(self.clock.current_time());
        let pin = volume.drive_blocking(&mut cx, |cx| volume.pin(cx, head.ino));
        let pin = pin.map_err(|_| "the file is gone")?;
        let file = FileId {
            volume: head.volume,
            ino: head.ino,
            namespace: Namespace::Live,
        };
        let client = Client {
            service: SERVICE,
            address: head.address,
            name: Arc::from(&head.guid[..]),
        };
        let attached = match &head.lease {
            None => None,
            Some(wanted) => {
                let (leases, number) = (&self.leases, || self.open_number());
                let attached =
                    leases.attach_for((head.guid, &client), (file, false), wanted, number);
                Some(attached.map_err(|_| "its lease is of another file")?)
            }
        };
        let client = attached
            .as_ref()
            .map_or(client, |a| a.owner().client.clone());
        let owner = leases::owner(&client, head.id);
        let key = attached
            .as_ref()
            .map_or(&owner.who, |a| &a.owner().who)
            .clone();
        let access = modes(head.access);
        let request = OpenRequest {
            owner: &owner,
            key: &key,
            access,
            deny: match access {
                Modes::NONE => Modes::NONE,
                _ => denied(head.share.into()),
            },
            enforced: true,
            overwrite: false,
        };
        let claims = &self.vfs.claims;
        let persistents = &self.leases.persistents;
        let persistent = persistents.restored(claims, id, recorded);
        let persistent = persistent.ok_or("there is no memory for it")?;
        if claims.open(file, &request) != OpenOutcome::Granted {
            return Err("another open excludes it, or there is no memory for it");
        }
        for held in &recorded.locks {
            let lock = Lock {
                owner: owner.clone(),
                range: held.range,
                exclusive: held.exclusive,
                mandatory: true,
            };
            if claims.lock(file, &lock, &key, false) != Verdict::Granted {
                tracing::warn!(
                    user = head.user,
                    path = recorded.named.path,
                    "cannot restore lock of persistent open"
                );
            }
        }
        let parent = head
            .lease
            .as_ref()
            .and_then(|wanted| wanted.parent(&client));
        let hold = match attached {
            Some(attached) => Hold::Lease(attached),
            None => self.leases.oplock_again(head.id, file, &owner, head.level),
        };
        hold.persists();
        Ok(Arc::new(Open {
            id: head.id,
            session: AtomicU64::new(0),
            tree: AtomicU32::new(0),
            kind: Kind::File(Box::new(File {
                id: file,
                directory: AtomicBool::new(false),
                base: None,
                named: Mutex::new(recorded.named.clone()),
                listing: Mutex::<Listing>::default(),
                position: AtomicU64::new(0),
                locks: Mutex::new(recorded.locks.clone()),
                sequences: Mutex::new(persistent::sequences(&recorded.sequences)),
                claimed: true,
                watch: Mutex::default(),
                unreported: AtomicU32::new(0),
                pin: Some(pin),
                posix: head.posix,
            })),
            access: head.access,
            owner,
            key,
            parent,
            hold,
            durable: None,
            persistent: OnceLock::from(persistent),
            create_guid: Some((head.guid, head.create_guid)),
            action: AtomicU32::new(head.action.into()),
            sequence: AtomicU16::new(0),
            write_through: true,
        }))
    }

    /// Marks the file of an open for deletion, if the open had.
    fn mark_again(&self, open: &Open, recorded: &OpenRecord) {
        let Deletes::Yes { when, alone } = recorded.deletes else {
            return;
        };
        let head = &recorded.head;
        let user = self.users.find(&head.user);
        let (Some(user), Some(file), Some(dir)) = (user, open.file(), recorded.named.dir) else {
            tracing::warn!(
                user = head.user,
                path = recorded.named.path,
                "cannot mark file for deletion again: its user no longer exists"
            );
            return;
        };
        let marker = Marker {
            identity: Arc::new(user.identity.clone()),
            client: ClientKey::Id(head.guid),
            security: None,
            origin: head.address,
            owner: open.owner.clone(),
            parent: open.parent.clone(),
        };
        let removal = Removal {
            dir,
            name: Arc::from(&*recorded.named.name),
            alone,
        };
        let deletions = &self.news.deletions;
        deletions.mark(file.id, marker, RemovalKind::Name);
        if self.vfs.claims.mark(file.id, &open.owner, when, &removal) != MarkOutcome::Yes {
            deletions.unmark(file.id);
        }
    }
}
