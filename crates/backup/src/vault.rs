//! A vault, and the objects that name its backups.
//!
//! Objects below the vault's name: `vault` (the format, and a proof of the key), `packs/…`,
//! `index/…`, `backups/…`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_base::limits::backup as limits;
use weir_base::{Rng, SnapshotIdentity, Time, hex};
use weir_volume::ContentHash;

use crate::bucket::{Bucket, BucketError};
use crate::chunk::{self, CHUNK_LEN, Chunk, Reader};
use crate::error::BackupError;
use crate::seal::{ChunkId, Sealer, VaultKey};

/// The format that this version writes, and the latest that it reads.
const FORMAT: u32 = 1;

/// The object that says what a vault is.
const HEAD: &str = "vault";

/// Text of the proof of the key.
const PROOF: &[u8] = b"weir vault";

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    /// [`PROOF`], sealed, in hexadecimal digits.
    proof: String,
}

/// A backup: a volume's snapshot in a vault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backup {
    /// Name in the vault.
    pub name: String,
    /// Name of the source, as its server calls it.
    pub volume: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Label of the snapshot; may be empty.
    pub label: String,
    /// Time of the snapshot in seconds and nanoseconds since 1970.
    pub created: (i64, u32),
    /// Identity of the snapshot, encoded, in hexadecimal digits.
    identity: String,
    /// Inode number after the last one used.
    pub(crate) next_ino: u64,
    /// Key of the source's directory hash.
    pub(crate) key: (u64, u64),
    /// Bytes of file data in the snapshot.
    pub referenced: u64,
    /// Bytes that were uploaded for it.
    pub uploaded: u64,
    /// Hash of the snapshot's contents by the source's tree.
    pub content: ContentHash,
    /// Chunks that hold the list of the manifest's segments, encoded, in hexadecimal digits.
    lists: Vec<String>,
}

/// Parts of a backup beside the snapshot's description.
pub(crate) struct BackupParts {
    pub name: String,
    pub volume: String,
    pub referenced: u64,
    pub uploaded: u64,
    pub content: ContentHash,
    pub lists: Vec<Chunk>,
}

impl Backup {
    pub(crate) fn new(of: &weir_volume::TransferHeader, made: BackupParts) -> Backup {
        let encoded = |chunk: &Chunk| {
            let mut bytes = Vec::with_capacity(CHUNK_LEN);
            chunk.put(&mut bytes);
            hex::encode(&bytes)
        };
        Backup {
            name: made.name,
            volume: made.volume,
            snapshot: of.name.clone(),
            label: of.label.clone(),
            created: (of.created.secs, of.created.nanos),
            identity: hex::encode(&of.target.encode()),
            next_ino: of.next_ino,
            key: of.key,
            referenced: made.referenced,
            uploaded: made.uploaded,
            content: made.content,
            lists: made.lists.iter().map(encoded).collect(),
        }
    }

    /// Returns the identity of the snapshot. `None` if the object is malformed, which none is that
    /// a vault returns.
    pub fn identity(&self) -> Option<SnapshotIdentity> {
        hex::decode(&self.identity).and_then(|bytes| SnapshotIdentity::decode(&bytes))
    }

    /// Returns the time of the snapshot.
    pub fn time(&self) -> Time {
        let (secs, nanos) = self.created;
        Time { secs, nanos }
    }

    /// Returns the chunks with the list of segments, in order.
    pub(crate) fn lists(&self) -> Result<Vec<Chunk>, BackupError> {
        let decoded = |text: &String| {
            let bytes = hex::decode::<CHUNK_LEN>(text)?;
            Chunk::take(&mut Reader(&bytes))
        };
        let lists: Option<Vec<Chunk>> = self.lists.iter().map(decoded).collect();
        lists.ok_or_else(|| self.malformed())
    }

    pub(crate) fn malformed(&self) -> BackupError {
        BackupError::damaged(self.name.clone(), "it is malformed")
    }
}

/// True if a vault or a backup may have this name: letters, digits, `-`, `_`, `.`, not
/// beginning with a dot.
fn is_name(name: &str) -> bool {
    let fits = |b: u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let length = 1..=limits::MAX_NAME;
    length.contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
}

/// A repository of backups: objects under one prefix of a bucket, sealed with one key.
pub struct Vault {
    bucket: Arc<dyn Bucket>,
    name: String,
    pub(crate) sealer: Sealer,
}

impl Vault {
    fn with_sealer(
        bucket: Arc<dyn Bucket>,
        name: &str,
        sealer: Sealer,
    ) -> Result<Vault, BackupError> {
        match is_name(name) {
            true => Ok(Vault {
                bucket,
                name: name.to_owned(),
                sealer,
            }),
            false => Err(BucketError::Refused(format!("{name:?} is no name of a vault")).into()),
        }
    }

    /// Makes a vault in a bucket.
    ///
    /// # Errors
    /// `VaultExists`; the bucket's.
    pub fn create(
        bucket: Arc<dyn Bucket>,
        name: &str,
        key: &VaultKey,
        rng: Arc<dyn Rng>,
    ) -> Result<Vault, BackupError> {
        let vault = Vault::with_sealer(bucket, name, Sealer::new(key, rng))?;
        match vault.bucket.size(&vault.object(HEAD)) {
            Err(BucketError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(BackupError::VaultExists),
        }
        let mut proof = Vec::new();
        vault
            .sealer
            .seal(HEAD.as_bytes(), PROOF.to_vec(), &mut proof);
        let head = Head {
            format: FORMAT,
            proof: hex::encode(&proof),
        };
        let text = serde_json::to_vec(&head).unwrap_or_default();
        vault.bucket.put(&vault.object(HEAD), &text)?;
        // A bucket may say that it has stored what it has not.
        vault.check_head()?;
        Ok(vault)
    }

    /// Opens a vault.
    ///
    /// # Errors
    /// `NoVault`; `Format`; `Damaged` if the key is another one; the bucket's.
    pub fn open(
        bucket: Arc<dyn Bucket>,
        name: &str,
        key: &VaultKey,
        rng: Arc<dyn Rng>,
    ) -> Result<Vault, BackupError> {
        let vault = Vault::with_sealer(bucket, name, Sealer::new(key, rng))?;
        vault.check_head()?;
        Ok(vault)
    }

    fn check_head(&self) -> Result<(), BackupError> {
        let object = self.object(HEAD);
        let read = self.bucket.get(&object, 0, 4096);
        let text = read.map_err(|error| match error {
            BucketError::Missing(_) => BackupError::NoVault,
            error => error.into(),
        })?;
        let damaged = |what| BackupError::damaged(&*object, what);
        let head: Head =
            serde_json::from_slice(&text).map_err(|_| damaged("it is no head of a vault"))?;
        if head.format > FORMAT {
            return Err(BackupError::Format(head.format));
        }
        let sealed = hex::decode::<{ PROOF.len() + crate::seal::OVERHEAD }>(&head.proof);
        let proof = sealed.and_then(|sealed| self.sealer.open(HEAD.as_bytes(), &sealed));
        match proof.as_deref() == Some(PROOF) {
            true => Ok(()),
            false => Err(damaged("the key does not open it")),
        }
    }

    /// Returns the vault's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bucket(&self) -> &dyn Bucket {
        &*self.bucket
    }

    pub(crate) fn object(&self, rest: &str) -> String {
        format!("{}/{rest}", self.name)
    }

    /// Returns the names of all objects whose names within the vault begin with `prefix`, by their
    /// names within the vault.
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<String>, BackupError> {
        let own = self.object("");
        let names = self.bucket.list(&self.object(prefix))?;
        let within = names.iter().filter_map(|name| name.strip_prefix(&own));
        Ok(within.map(str::to_owned).collect())
    }

    /// Writes an object, sealed for its name.
    pub(crate) fn put_sealed(&self, rest: &str, plain: Vec<u8>) -> Result<u64, BackupError> {
        let mut sealed = Vec::with_capacity(plain.len() + crate::seal::OVERHEAD);
        self.sealer.seal(rest.as_bytes(), plain, &mut sealed);
        self.bucket.put(&self.object(rest), &sealed)?;
        Ok(sealed.len() as u64)
    }

    pub(crate) fn get_sealed(&self, rest: &str) -> Result<Vec<u8>, BackupError> {
        let sealed = self.bucket.get(&self.object(rest), 0, limits::MAX_OBJECT)?;
        let opened = self.sealer.open(rest.as_bytes(), &sealed);
        opened.ok_or_else(|| BackupError::damaged(self.object(rest), "it does not open"))
    }

    /// Returns the names of all backups, in order.
    ///
    /// # Errors
    /// The bucket's.
    pub fn backups(&self) -> Result<Vec<String>, BackupError> {
        let names = self.list("backups/")?;
        let bare = names
            .iter()
            .filter_map(|name| name.strip_prefix("backups/"));
        let mut backups: Vec<String> = bare.map(str::to_owned).collect();
        backups.sort();
        Ok(backups)
    }

    /// Reads what a backup is.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`; the bucket's.
    pub fn backup(&self, name: &str) -> Result<Backup, BackupError> {
        let not_found = || BackupError::NotFound(name.to_owned());
        if !is_name(name) {
            return Err(not_found());
        }
        let rest = format!("backups/{name}");
        let text = self.get_sealed(&rest).map_err(|error| match error {
            BackupError::Bucket(BucketError::Missing(_)) => not_found(),
            error => error,
        })?;
        let damaged = || BackupError::damaged(self.object(&rest), "it describes no backup");
        let backup: Backup = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let sound = backup.name == name && backup.identity().is_some() && backup.lists().is_ok();
        sound.then_some(backup).ok_or_else(damaged)
    }

    /// Reads a backup that may not be there.
    pub(crate) fn existing(&self, name: &str) -> Result<Option<Backup>, BackupError> {
        if !is_name(name) {
            let what = format!("{name:?} is no name of a backup");
            return Err(BucketError::Refused(what).into());
        }
        match self.backup(name) {
            Err(BackupError::NotFound(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Makes a backup visible, and reads back that it is.
    pub(crate) fn add(&self, backup: &Backup) -> Result<(), BackupError> {
        let text = serde_json::to_vec(backup).unwrap_or_default();
        let rest = format!("backups/{}", backup.name);
        self.put_sealed(&rest, text)?;
        match self.backup(&backup.name)? == *backup {
            true => Ok(()),
            false => Err(BackupError::damaged(
                self.object(&rest),
                "it is another one",
            )),
        }
    }

    /// Deletes a backup. Its chunks go with the next [`mod@crate::prune`], unless others have them.
    ///
    /// # Errors
    /// `NotFound`; the bucket's.
    pub fn delete(&self, name: &str) -> Result<(), BackupError> {
        match self.backup(name) {
            Err(BackupError::Damaged { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
        let deleted = self.bucket.delete(&self.object(&format!("backups/{name}")));
        deleted.map_err(BackupError::from)
    }

    /// Deletes the vault with all in it. The object that makes it one goes last.
    ///
    /// # Errors
    /// The bucket's: what is left is deleted the next time.
    pub fn destroy(self) -> Result<(), BackupError> {
        let mut objects = self.list("")?;
        objects.sort_by_key(|object| object == HEAD);
        for object in objects {
            self.bucket.delete(&self.object(&object))?;
        }
        Ok(())
    }

    /// Reads a chunk.
    pub(crate) fn chunk(&self, chunk: &Chunk) -> Result<Vec<u8>, BackupError> {
        let mut read = self.chunks(&[*chunk])?;
        let contents = read.contents.remove(&chunk.id);
        contents.ok_or_else(|| self.lost(chunk))
    }

    pub(crate) fn lost(&self, chunk: &Chunk) -> BackupError {
        BackupError::damaged(
            self.object(&chunk.pack.object()),
            "a chunk in it is damaged",
        )
    }

    /// Reads chunks, neighbours at once, and several requests at a time.
    pub(crate) fn chunks(&self, wanted: &[Chunk]) -> Result<Read, BackupError> {
        let runs = runs(wanted);
        let mut read = Read::default();
        for some in runs.chunks(limits::FETCHES_AT_ONCE) {
            let fetched = std::thread::scope(|scope| {
                let fetch = |run: &Vec<Chunk>| {
                    let run = run.clone();
                    scope.spawn(move || self.run(&run))
                };
                let threads: Vec<_> = some.iter().map(fetch).collect();
                let ended = threads.into_iter().map(|thread| thread.join());
                ended.collect::<Result<Vec<_>, _>>()
            });
            let ended = fetched.map_err(|_| BackupError::damaged(self.name.clone(), "a panic"))?;
            for part in ended {
                let part = part?;
                read.moved += part.moved;
                read.contents.extend(part.contents);
            }
        }
        Ok(read)
    }

    /// Reads chunks that lie in a row in one pack.
    fn run(&self, run: &[Chunk]) -> Result<Read, BackupError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(Read::default());
        };
        let from = u64::from(first.at);
        let length = u64::from(last.at) + u64::from(last.length) - from;
        let object = self.object(&first.pack.object());
        let bytes = self.bucket.get(&object, from, length)?;
        let mut rest = Reader(&bytes);
        let mut contents = HashMap::with_capacity(run.len());
        for chunk in run {
            let stored = rest.slice(chunk.length as usize);
            let read = stored.and_then(|stored| chunk::read(&self.sealer, chunk.id, stored));
            contents.insert(chunk.id, read.ok_or_else(|| self.lost(chunk))?);
        }
        let moved = bytes.len() as u64;
        Ok(Read { contents, moved })
    }
}

/// Chunks that were read.
#[derive(Default)]
pub(crate) struct Read {
    pub contents: HashMap<ChunkId, Vec<u8>>,
    /// Bytes that the bucket has sent.
    pub moved: u64,
}

/// Sorts chunks by their places into runs without gaps, of at most [`limits::FETCH_BYTES`] and one
/// chunk.
fn runs(wanted: &[Chunk]) -> Vec<Vec<Chunk>> {
    let mut sorted = wanted.to_vec();
    sorted.sort_by_key(|chunk| (chunk.pack, chunk.at));
    sorted.dedup();
    let mut runs: Vec<Vec<Chunk>> = Vec::new();
    let mut bytes = 0;
    for chunk in sorted {
        let joins = runs.last().and_then(|run| run.last()).is_some_and(|last| {
            let end = u64::from(last.at) + u64::from(last.length);
            last.pack == chunk.pack && end == u64::from(chunk.at) && bytes < limits::FETCH_BYTES
        });
        match runs.last_mut().filter(|_| joins) {
            Some(run) => run.push(chunk),
            None => {
                runs.push(vec![chunk]);
                bytes = 0;
            }
        }
        bytes += chunk.length as usize;
    }
    runs
}
