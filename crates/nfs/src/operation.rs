//! One numbering of all protocols' operations, by which they are counted.

use crate::rpc::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM};
use crate::{mount3, nlm, v3, v4};

/// A protocol: its program, what metrics call it, and its procedures' names by number.
type Named = (u32, &'static str, &'static [&'static str]);

/// In the order of their numbers here.
const PROTOCOLS: [Named; 4] = [
    (NFS_PROGRAM, "nfsv3", &v3::procedure::PROCEDURES),
    (MOUNT_PROGRAM, "mountv3", &mount3::PROCEDURES),
    (NLM_PROGRAM, "nlmv4", &nlm::PROCEDURES),
    // No program of its own: operations of its one procedure.
    (0, "nfsv4", &v4::OPERATIONS),
];

/// Numbers before those of version 4's operations.
const BEFORE_4: usize =
    v3::procedure::PROCEDURES.len() + mount3::PROCEDURES.len() + nlm::PROCEDURES.len();

const _: () = assert!(BEFORE_4 + v4::OPERATIONS.len() <= weir_vfs::stats::SMB as usize);

/// The number of an operation of version 4.
pub(crate) fn nfs4(operation: u32) -> Option<u8> {
    let at = usize::try_from(operation).ok()?;
    v4::OPERATIONS.get(at)?;
    u8::try_from(BEFORE_4 + at).ok()
}

/// The number of a procedure of a program, below [`weir_vfs::stats::OPERATIONS`]; `None` for what is not counted.
pub(crate) fn number(program: u32, procedure: u32) -> Option<u8> {
    let mut first = 0;
    for (number, _, names) in PROTOCOLS {
        if number == program {
            let at = usize::try_from(procedure).ok()?;
            names.get(at)?;
            return u8::try_from(first + at).ok();
        }
        first += names.len();
    }
    None
}

/// The protocol and the name of an operation by its number, as metrics call them.
pub fn name(number: u8) -> Option<(&'static str, &'static str)> {
    let mut at = usize::from(number);
    for (_, protocol, names) in PROTOCOLS {
        match names.get(at) {
            Some(name) => return Some((protocol, name)),
            None => at -= names.len(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_number_of_its_own_and_its_name() {
        let all = [
            (NFS_PROGRAM, 6, ("nfsv3", "READ")),
            (NFS_PROGRAM, 21, ("nfsv3", "COMMIT")),
            (MOUNT_PROGRAM, 0, ("mountv3", "NULL")),
            (MOUNT_PROGRAM, 1, ("mountv3", "MNT")),
            (NLM_PROGRAM, 2, ("nlmv4", "LOCK")),
            (NLM_PROGRAM, 23, ("nlmv4", "FREE_ALL")),
        ];
        for (program, procedure, expected) in all {
            let number = number(program, procedure).unwrap();
            assert_eq!(name(number), Some(expected));
        }
        assert_eq!(number(NFS_PROGRAM, 22), None);
        assert_eq!(number(crate::rpc::NSM_PROGRAM, 1), None);
        assert_eq!(name(nfs4(3).unwrap()), Some(("nfsv4", "ACCESS")));
        assert_eq!(name(nfs4(75).unwrap()), Some(("nfsv4", "REMOVEXATTR")));
        assert_eq!((nfs4(76), name(128)), (None, None));
    }
}
