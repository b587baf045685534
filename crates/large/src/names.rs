//! The records of the rules as changes of a volume.
//!
//! Each record is one [`Volume::change_constituent`]. The durable state of the rules is the
//! volume's tokens: one for the epoch, one for each prepared part, one for each decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Clock, Ino, Lsn, invariant};
use weir_constituents::codec::Entry;
use weir_constituents::number::local_number;
use weir_constituents::{
    Change, Constituent, Durable, Kind, Namespace, Note, Object, ROOT, Record, Refusal, Target,
    Ticket, Token,
};
use weir_volume::{
    CallKey, ConstituentChange, EngineContext, FileKind, FsError, SetAttr, Stop, Volume, elsewhere,
    is_elsewhere,
};

/// Identity of a token's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Epoch,
    Part(Ticket),
    Decision(Token),
}

/// Translation between the numbers of a volume and those of the large volume.
#[derive(Clone, Copy)]
pub(crate) struct Numbers(pub(crate) Constituent);

impl Numbers {
    /// Returns the number by which the volume names an inode of the large volume.
    pub(crate) fn stored(self, ino: Ino) -> Ino {
        let (constituent, local) = (Constituent::of_inode(ino), Ino(local_number(ino)));
        if constituent == self.0 {
            return local;
        }
        // Constituents are below CONSTITUENTS_MAX, so that their number plus 1 is a byte.
        elsewhere(constituent.0, local).unwrap_or(local)
    }

    /// Returns the number in the large volume of an inode that the volume names.
    pub(crate) fn global(self, ino: Ino) -> Ino {
        let local = local_number(ino);
        let constituent = match is_elsewhere(ino) {
            true => Constituent(Constituent::of_inode(ino).0 - 1),
            false => self.0,
        };
        constituent.inode(local).unwrap_or(ino)
    }
}

/// A volume as a constituent's part of the tree.
pub(crate) struct Names {
    pub(crate) numbers: Numbers,
    volume: Arc<Volume>,
    clock: Arc<dyn Clock>,
    tokens: BTreeMap<Key, u64>,
    next_token: u64,
    /// Keys of clients' calls by the numbers of their requests.
    pub(crate) calls: BTreeMap<u64, CallKey>,
    /// The newest record.
    pub(crate) last: Option<Lsn>,
}

impl Names {
    /// Reads the state of the rules from the volume's tokens.
    ///
    /// # Errors
    /// `Io`, also for a token that cannot be decoded; `Stale`.
    pub(crate) fn open(
        own: Constituent,
        volume: &Arc<Volume>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Names, Durable), FsError> {
        let mut names = Names {
            numbers: Numbers(own),
            volume: Arc::clone(volume),
            clock: Arc::clone(clock),
            tokens: BTreeMap::new(),
            next_token: 0,
            calls: BTreeMap::new(),
            last: None,
        };
        let mut durable = Durable::default();
        for (number, value) in names.drive(|cx| volume.tokens(cx))? {
            let key = match Entry::decode(&value).ok_or(FsError::Io)? {
                Entry::Epoch(epoch) => {
                    durable.epoch = epoch;
                    Key::Epoch
                }
                Entry::Prepared(ticket, prepared) => {
                    durable.prepared.insert(ticket, prepared);
                    Key::Part(ticket)
                }
                Entry::Decided(token, parts) => {
                    durable.decided.insert(token, parts);
                    Key::Decision(token)
                }
            };
            names.tokens.insert(key, number);
            names.next_token = names.next_token.max(number + 1);
        }
        Ok((names, durable))
    }

    fn drive<T>(
        &self,
        op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let mut cx = EngineContext::new(self.clock.current_time());
        self.volume.drive_blocking(&mut cx, op)
    }

    fn change<'a>(&self, change: &'a Change) -> Option<ConstituentChange<'a>> {
        let stored = |ino: &Ino| self.numbers.stored(*ino);
        Some(match change {
            Change::Make {
                ino,
                object,
                attributes,
            } => ConstituentChange::Make {
                ino: stored(ino),
                kind: file_kind(object.kind),
                parent: stored(&object.parent),
                attrs: SetAttr {
                    mode: Some(u32::from(attributes.mode)),
                    uid: Some(attributes.uid),
                    gid: Some(attributes.gid),
                    ..SetAttr::default()
                },
            },
            Change::Delete { ino } => ConstituentChange::RemoveDirectory { ino: stored(ino) },
            Change::AddLink { ino } => ConstituentChange::AddLink { ino: stored(ino) },
            Change::DropLink { ino } => ConstituentChange::DropLink { ino: stored(ino) },
            Change::SetParent { ino, parent, .. } => ConstituentChange::SetParent {
                ino: stored(ino),
                parent: stored(parent),
            },
            Change::Insert {
                directory,
                name,
                target,
            } => ConstituentChange::Insert {
                dir: stored(directory),
                name,
                ino: stored(&target.ino),
                kind: file_kind(target.kind),
            },
            Change::Remove {
                directory, name, ..
            } => ConstituentChange::Remove {
                dir: stored(directory),
                name,
            },
            // Nobody requests snapshots of a large volume.
            Change::TakeSnapshot { .. }
            | Change::KeepSnapshot { .. }
            | Change::DropSnapshot { .. } => return None,
        })
    }
}

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::Directory => FileKind::Directory,
        Kind::File => FileKind::Regular,
    }
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Directory,
        _ => Kind::File,
    }
}

impl Namespace for Names {
    fn object(&self, ino: Ino) -> Option<Object> {
        let stored = self.numbers.stored(ino);
        let found = self.drive(|cx| self.volume.constituent_inode(cx, stored));
        let found = found.ok()?;
        let parent = self.numbers.global(found.parent);
        Some(Object {
            kind: kind_of(found.attr.kind),
            links: found.attr.nlink,
            entries: found.entries,
            parent,
            depth: match (ino, parent) {
                (ROOT, _) => 0,
                (_, ROOT) => 1,
                _ => 2,
            },
        })
    }

    fn entry(&self, directory: Ino, name: &[u8]) -> Option<Target> {
        let directory = self.numbers.stored(directory);
        let found = self.drive(|cx| self.volume.entry(cx, directory, name));
        let (ino, kind) = found.ok()?;
        Some(Target {
            ino: self.numbers.global(ino),
            kind: kind_of(kind),
        })
    }

    fn new_number(&mut self) -> Ino {
        let local = self.volume.new_inode_number();
        self.numbers.global(local)
    }

    fn append(&mut self, record: Record) -> Result<(), Refusal> {
        let changes = record.changes.iter().map(|change| self.change(change));
        let changes: Option<Vec<_>> = changes.collect();
        let changes = changes.ok_or(Refusal::Busy)?;
        let (key, entry) = match &record.note {
            Note::None => (None, None),
            Note::Epoch(epoch) => (Some(Key::Epoch), Some(Entry::Epoch(*epoch))),
            Note::Prepared { ticket, prepared } => {
                let entry = Entry::Prepared(*ticket, prepared.clone());
                (Some(Key::Part(*ticket)), Some(entry))
            }
            Note::Finished(ticket) => (Some(Key::Part(*ticket)), None),
            Note::Decided { token, parts } => {
                let entry = Entry::Decided(*token, parts.clone());
                (Some(Key::Decision(*token)), Some(entry))
            }
            Note::Forgotten(token) => (Some(Key::Decision(*token)), None),
        };
        let value = entry.map(|entry| entry.encode());
        let number = key.map(|key| self.tokens.get(&key).copied().unwrap_or(self.next_token));
        let tokens = number.map(|number| (number, value.as_deref()));
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut cx = EngineContext::new(self.clock.current_time());
        let caller = record.caller;
        cx.call = caller.and_then(|caller| self.calls.get(&caller).copied());
        let volume = Arc::clone(&self.volume);
        let done = volume.drive_blocking(&mut cx, |cx| {
            volume.change_constituent(cx, &changes, &tokens)
        });
        match done {
            Ok(done) => self.last = self.last.max(done.lsn),
            Err(error) => return Err(refusal_of(error, &record)),
        }
        if let (Some(key), Some(number)) = (key, number) {
            match value {
                Some(_) => self.tokens.insert(key, number),
                None => self.tokens.remove(&key),
            };
            self.next_token = self.next_token.max(number + 1);
        }
        Ok(())
    }
}

/// Returns the refusal of a record that the volume has refused.
fn refusal_of(error: FsError, record: &Record) -> Refusal {
    match error {
        FsError::NoSpace | FsError::Quota => Refusal::Full,
        FsError::TooManyLinks => Refusal::TooManyLinks,
        // The engine is stopping, or was poisoned, or the volume is being deleted.
        FsError::Delay | FsError::ReadOnly | FsError::Stale | FsError::Io => Refusal::Busy,
        error => {
            invariant!(false, "{record:?} is refused: {error}");
            Refusal::Busy
        }
    }
}
