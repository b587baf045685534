//! Claims that a client may have had, as far as they are recorded: kinds, and the files or volumes
//! in which there may be some.

use crate::handle::FileId;
use std::collections::BTreeMap;
use weir_base::{Ino, VolumeId};

/// Kinds of claims, by what they conflict with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// No claim.
    pub const NONE: Kinds = Kinds(0);
    /// Binds others' reads: denials of reading, exclusive mandatory ranges, caches of unsent
    /// writes.
    pub const READS: Kinds = Kinds(1);
    /// Binds others' writes and changes of names: denials of writing, mandatory ranges, any cache.
    pub const WRITES: Kinds = Kinds(2);
    /// Byte-range locks, which conflict with each other.
    pub const RANGES: Kinds = Kinds(4);
    /// Opens, which conflict with others' denials.
    pub const OPENS: Kinds = Kinds(8);
    /// Denials that bind others' opens alone (NLM's SHARE).
    pub const SHARES: Kinds = Kinds(16);
    /// All kinds.
    pub const ALL: Kinds = Kinds(31);
    /// A read delegation: its holder opens the file for reading without asking.
    pub const READ_DELEGATION: Kinds = Kinds::WRITES.or(Kinds::OPENS);
    /// A write delegation: its holder opens and locks the file without asking.
    pub const WRITE_DELEGATION: Kinds = Kinds::READ_DELEGATION.or(Kinds::READS).or(Kinds::RANGES);
    /// Each kind, those first of which fewer claims are made and which bind more.
    pub const EACH: [Kinds; Kinds::COUNT] = [
        Kinds::READS,
        Kinds::WRITES,
        Kinds::SHARES,
        Kinds::RANGES,
        Kinds::OPENS,
    ];
    /// Number of kinds.
    pub(super) const COUNT: usize = 5;

    /// Returns the kinds of both.
    pub const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Returns these kinds if `is`, or none.
    pub const fn when(self, is: bool) -> Kinds {
        if is { self } else { Kinds::NONE }
    }

    /// Returns these kinds without those of another.
    pub const fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// Returns true if there is a kind that both have.
    pub const fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the kinds as a number, to be recorded.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the kinds that a record has; those of a later version are ignored.
    pub const fn from_bits(bits: u8) -> Kinds {
        Kinds(bits & Kinds::ALL.0)
    }

    /// Returns the kinds that an open conflicts with.
    pub const fn against_open(reads: bool, writes: bool, denies: bool) -> Kinds {
        let used = Kinds::READS.when(reads).or(Kinds::WRITES.when(writes));
        used.or(Kinds::SHARES).or(Kinds::OPENS.when(denies))
    }

    /// Returns the kinds that an advisory byte-range lock conflicts with.
    pub const fn against_lock(exclusive: bool) -> Kinds {
        let caches = Kinds::READS.or(Kinds::WRITES.when(exclusive));
        Kinds::RANGES.or(caches)
    }

    pub(super) fn contains(self, kind: usize) -> bool {
        self.0 >> kind & 1 != 0
    }
}

/// Kinds of claims that a client may have had, each with the volumes in which it may have had
/// them: a set by hash (the volume's id modulo 64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PossibleClaims(pub(super) [u64; Kinds::COUNT]);

impl PossibleClaims {
    /// Nothing in any volume.
    pub const NOWHERE: PossibleClaims = PossibleClaims([0; Kinds::COUNT]);
    /// Anything in any volume.
    pub const ANYWHERE: PossibleClaims = PossibleClaims([u64::MAX; Kinds::COUNT]);

    /// Returns these kinds in a volume.
    pub fn in_volume(kinds: Kinds, volume: VolumeId) -> PossibleClaims {
        PossibleClaims::in_bits(kinds, 1 << (volume.0 % 64))
    }

    /// Returns these kinds in any volume.
    pub fn anywhere(kinds: Kinds) -> PossibleClaims {
        PossibleClaims::in_bits(kinds, u64::MAX)
    }

    fn in_bits(kinds: Kinds, bits: u64) -> PossibleClaims {
        PossibleClaims(std::array::from_fn(|kind| match kinds.contains(kind) {
            true => bits,
            false => 0,
        }))
    }

    /// Both.
    #[must_use]
    pub fn or(self, other: PossibleClaims) -> PossibleClaims {
        PossibleClaims(std::array::from_fn(|kind| self.0[kind] | other.0[kind]))
    }

    /// Returns the kinds that there may be in a volume.
    pub fn kinds(self, volume: VolumeId) -> Kinds {
        let bit = volume.0 % 64;
        let kinds = (0..Kinds::COUNT).filter(|kind| self.0[*kind] >> bit & 1 != 0);
        Kinds(kinds.fold(0, |all, kind| all | 1 << kind))
    }

    /// Returns the sets as numbers, to be recorded; kinds that are added later come behind them.
    pub fn words(self) -> [u64; Kinds::COUNT] {
        self.0
    }

    /// Returns the sets that a record has. A kind that it does not have may be anywhere.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> PossibleClaims {
        let mut words = words.into_iter();
        PossibleClaims(std::array::from_fn(|_| words.next().unwrap_or(u64::MAX)))
    }
}

/// Bytes of a file and its kinds in a record.
pub const FILE_BYTES: usize = 17;

/// Appends files to a record: the volume's and the file's number (8 bytes each, big-endian), then
/// the kinds as bits.
pub fn put_files<'a>(out: &mut Vec<u8>, files: impl IntoIterator<Item = (&'a FileKey, &'a Kinds)>) {
    for (file, kinds) in files {
        out.extend_from_slice(&file.volume.0.to_be_bytes());
        out.extend_from_slice(&file.ino.0.to_be_bytes());
        out.push(kinds.bits());
    }
}

/// Returns the files that a record has ([`put_files`]); `None` if they are not whole.
pub fn files_of(bytes: &[u8]) -> Option<BTreeMap<FileKey, Kinds>> {
    let (all, rest) = bytes.as_chunks::<FILE_BYTES>();
    let file = |entry: &[u8; FILE_BYTES]| {
        let [volume @ .., _, _, _, _, _, _, _, _, _] = *entry;
        let [_, _, _, _, _, _, _, _, ino @ .., kinds] = *entry;
        let file = FileKey {
            volume: VolumeId(u64::from_be_bytes(volume)),
            ino: Ino(u64::from_be_bytes(ino)),
        };
        (file, Kinds::from_bits(kinds))
    };
    rest.is_empty().then(|| all.iter().map(file).collect())
}

/// A file as records name it: live and in snapshots it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Its volume.
    pub volume: VolumeId,
    /// Its number in the volume.
    pub ino: Ino,
}

impl From<FileId> for FileKey {
    fn from(file: FileId) -> FileKey {
        let (volume, ino) = (file.volume, file.ino);
        FileKey { volume, ino }
    }
}

/// Claims that a client may have had: those in files of which it is known that it had some, and
/// those that it may have had anywhere in a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Had {
    /// Claims in any file of volumes.
    pub whole: PossibleClaims,
    /// Claims in single files.
    pub files: BTreeMap<FileKey, Kinds>,
}

impl From<PossibleClaims> for Had {
    fn from(whole: PossibleClaims) -> Had {
        let files = BTreeMap::new();
        Had { whole, files }
    }
}

impl Had {
    /// Returns the kinds that there may be in a file.
    pub fn kinds(&self, file: FileKey) -> Kinds {
        let listed = self.files.get(&file).copied().unwrap_or_default();
        self.whole.kinds(file.volume).or(listed)
    }

    /// Returns true if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.whole == PossibleClaims::NOWHERE && self.files.is_empty()
    }

    /// Adds claims in a file: by name if there are fewer than `most` files yet, and otherwise
    /// anywhere in its volume.
    pub fn add(&mut self, kinds: Kinds, file: FileKey, most: usize) {
        let missing = kinds.without(self.kinds(file));
        let listed = self.files.len();
        match self.files.get_mut(&file) {
            Some(listed) => *listed = listed.or(missing),
            None if missing == Kinds::NONE => {}
            None if listed < most => drop(self.files.insert(file, missing)),
            None => {
                self.whole = self
                    .whole
                    .or(PossibleClaims::in_volume(missing, file.volume))
            }
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: Had) {
        self.whole = self.whole.or(other.whole);
        for (file, kinds) in other.files {
            let listed = self.files.entry(file).or_default();
            *listed = listed.or(kinds);
        }
    }

    /// Collects claims. The kinds of which there are claims in few files are listed by file, as
    /// long as there are no more than `most` files in all; the others may be anywhere in the
    /// volumes.
    pub fn collect(claims: impl Iterator<Item = (FileKey, Kinds)> + Clone, most: usize) -> Had {
        let mut had = Had::default();
        for kind in Kinds::EACH {
            let of_kind = claims.clone().filter(|(_, kinds)| kinds.meets(kind));
            let mut with = had.clone();
            for (file, _) in of_kind {
                with.add(kind, file, most);
                if with.whole != had.whole {
                    // It does not fit: anywhere.
                    break;
                }
            }
            if with.whole == had.whole {
                had = with;
            } else {
                let of_kind = claims.clone().filter(|(_, kinds)| kinds.meets(kind));
                let bound = of_kind.map(|(file, _)| PossibleClaims::in_volume(kind, file.volume));
                had.whole = bound.fold(had.whole, PossibleClaims::or);
            }
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(volume: u64, ino: u64) -> FileKey {
        let (volume, ino) = (VolumeId(volume), Ino(ino));
        FileKey { volume, ino }
    }

    #[test]
    fn files_are_listed_as_long_as_there_is_room() {
        let mut had = Had::default();
        had.add(Kinds::OPENS, file(1, 1), 2);
        had.add(Kinds::WRITES, file(1, 2), 2);
        had.add(Kinds::RANGES, file(1, 1), 2);
        assert_eq!(had.whole, PossibleClaims::NOWHERE);
        had.add(Kinds::OPENS, file(2, 3), 2);
        assert_eq!(
            had.whole,
            PossibleClaims::in_volume(Kinds::OPENS, VolumeId(2))
        );
        assert_eq!(had.kinds(file(1, 1)), Kinds::OPENS.or(Kinds::RANGES));
        assert_eq!(had.kinds(file(1, 2)), Kinds::WRITES);
        assert_eq!(had.kinds(file(1, 3)), Kinds::NONE);
        assert_eq!(had.kinds(file(2, 9)), Kinds::OPENS);
    }

    #[test]
    fn the_kinds_of_few_claims_are_listed_beside_those_of_many() {
        let opens = (0..100).map(|ino| (file(1, ino), Kinds::OPENS));
        let delegations = (0..3).map(|ino| (file(1, ino), Kinds::READ_DELEGATION));
        let had = Had::collect(opens.clone().chain(delegations), 10);
        assert_eq!(
            had.whole,
            PossibleClaims::in_volume(Kinds::OPENS, VolumeId(1))
        );
        assert_eq!(had.files.len(), 3);
        for ino in 0..100 {
            let write = Kinds::WRITES.when(ino < 3);
            assert_eq!(had.kinds(file(1, ino)), Kinds::OPENS.or(write), "{ino}");
        }
        let all = Had::collect(opens, 100);
        assert_eq!((all.whole, all.files.len()), (PossibleClaims::NOWHERE, 100));
    }

    #[test]
    fn files_round_trip() {
        let mut had = Had::default();
        had.add(Kinds::ALL, file(u64::MAX, 1), 9);
        had.add(Kinds::OPENS, file(1, u64::MAX - 1), 9);
        let mut bytes = Vec::new();
        put_files(&mut bytes, &had.files);
        assert_eq!(bytes.len(), 2 * FILE_BYTES);
        assert_eq!(files_of(&bytes), Some(had.files));
        assert_eq!(files_of(&bytes[1..]), None);
        assert_eq!(files_of(&[]), Some(BTreeMap::new()));
    }

    #[test]
    fn a_record_may_be_of_any_claim_of_a_kind_that_it_does_not_have() {
        let bound = PossibleClaims::in_volume(Kinds::RANGES, VolumeId(1));
        assert_eq!(PossibleClaims::from_words(bound.words()), bound);
        assert_eq!(PossibleClaims::from_words([]), PossibleClaims::ANYWHERE);
        let shorter = PossibleClaims::from_words([0, 0]);
        let kept = Kinds::RANGES.or(Kinds::OPENS).or(Kinds::SHARES);
        assert_eq!(shorter, PossibleClaims::anywhere(kept));
        let longer = bound.words().into_iter().chain([7]);
        assert_eq!(PossibleClaims::from_words(longer), bound);
    }
}
