//! One numbering of all protocols' operations, by which they are counted.

use crate::rpc::message::{MOUNT_PROGRAM, NFS_PROGRAM, NLM_PROGRAM, Refusal};
use weir_vfs::stats::REFUSED_CALL;

/// Declares the statuses of a protocol, by number and with their names in its documents.
macro_rules! statuses {
    ($(#[$doc:meta])* $($name:ident = $number:literal, $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(missing_docs)] // The names are the protocol's.
        pub enum Status {
            $($name = $number,)*
        }

        impl Status {
            /// Returns the name of a status by its number, for metrics.
            pub fn name(number: u32) -> Option<&'static str> {
                match number {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use statuses;

/// A protocol: its program, its name in metrics, and its procedures' names by number.
type ProtocolNames = (u32, &'static str, &'static [&'static str]);

/// The procedures' names, by number (RFC 1813 §3.3).
const NFS3: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// The procedures' names, by number (RFC 1813 §5.2).
const MOUNT3: [&str; 6] = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];

/// The procedures' names, by number (RFC 1813 §6.2; 16 to 19 are none).
const NLM4: [&str; 24] = [
    "NULL",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
    "",
    "",
    "",
    "",
    "SHARE",
    "UNSHARE",
    "NM_LOCK",
    "FREE_ALL",
];

/// Names of the operations. Numbers 0 and 1 are the program's procedures.
pub(crate) const NFS4: [&str; 76] = [
    "NULL",
    "COMPOUND",
    "",
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "CREATE",
    "DELEGPURGE",
    "DELEGRETURN",
    "GETATTR",
    "GETFH",
    "LINK",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "LOOKUP",
    "LOOKUPP",
    "NVERIFY",
    "OPEN",
    "OPENATTR",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "PUTFH",
    "PUTPUBFH",
    "PUTROOTFH",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "RENAME",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SECINFO",
    "SETATTR",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "VERIFY",
    "WRITE",
    "RELEASE_LOCKOWNER",
    "BACKCHANNEL_CTL",
    "BIND_CONN_TO_SESSION",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "FREE_STATEID",
    "GET_DIR_DELEGATION",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "LAYOUTCOMMIT",
    "LAYOUTGET",
    "LAYOUTRETURN",
    "SECINFO_NO_NAME",
    "SEQUENCE",
    "SET_SSV",
    "TEST_STATEID",
    "WANT_DELEGATION",
    "DESTROY_CLIENTID",
    "RECLAIM_COMPLETE",
    "ALLOCATE",
    "COPY",
    "COPY_NOTIFY",
    "DEALLOCATE",
    "IO_ADVISE",
    "LAYOUTERROR",
    "LAYOUTSTATS",
    "OFFLOAD_CANCEL",
    "OFFLOAD_STATUS",
    "READ_PLUS",
    "SEEK",
    "WRITE_SAME",
    "CLONE",
    "GETXATTR",
    "SETXATTR",
    "LISTXATTRS",
    "REMOVEXATTR",
];

/// Protocols in the order of their numbers here.
const PROTOCOLS: [ProtocolNames; 4] = [
    (NFS_PROGRAM, "nfsv3", &NFS3),
    (MOUNT_PROGRAM, "mountv3", &MOUNT3),
    (NLM_PROGRAM, "nlmv4", &NLM4),
    // No program of its own: operations of its one procedure.
    (0, "nfsv4", &NFS4),
];

/// Numbers before those of version 4's operations.
const BEFORE_4: usize = NFS3.len() + MOUNT3.len() + NLM4.len();

const _: () = assert!(BEFORE_4 + NFS4.len() <= weir_vfs::stats::SMB as usize);

/// Returns the number of an operation of version 4.
pub(crate) fn nfs4(operation: u32) -> Option<u8> {
    let at = usize::try_from(operation).ok()?;
    NFS4.get(at)?;
    u8::try_from(BEFORE_4 + at).ok()
}

/// Returns the number of a procedure of a program, below [`weir_vfs::stats::OPERATIONS`]; `None` if
/// it is not counted.
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

/// Returns the protocol and the name of an operation by its number, for metrics.
pub fn name(number: u8) -> Option<(&'static str, &'static str)> {
    if number == REFUSED_CALL {
        return Some(("rpc", "CALL"));
    }
    let mut at = usize::from(number);
    for (_, protocol, names) in PROTOCOLS {
        match names.get(at) {
            Some(name) => return Some((protocol, name)),
            None => at -= names.len(),
        }
    }
    None
}

/// Returns the name of a refusal by RPC by the number under which it is counted.
pub fn refusal_name(number: u32) -> Option<&'static str> {
    Refusal::name(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::{AuthStat, put_accepted, put_refusal};

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
        assert_eq!(number(crate::rpc::message::NSM_PROGRAM, 1), None);
        assert_eq!(name(nfs4(3).unwrap()), Some(("nfsv4", "ACCESS")));
        assert_eq!(name(nfs4(75).unwrap()), Some(("nfsv4", "REMOVEXATTR")));
        assert_eq!((nfs4(76), name(128)), (None, None));
        assert_eq!(name(REFUSED_CALL), Some(("rpc", "CALL")));
        for (refusal, name) in [
            (Refusal::ProgMismatch { low: 3, high: 4 }, "PROG_MISMATCH"),
            (Refusal::RpcMismatch, "RPC_MISMATCH"),
            (Refusal::Auth(AuthStat::TooWeak), "AUTH_TOOWEAK"),
        ] {
            let mut reply = Vec::new();
            put_refusal(&mut reply, 7, refusal);
            let number = Refusal::number_in(&reply).unwrap();
            assert_eq!(refusal_name(number), Some(name));
        }
        assert_eq!((refusal_name(0), refusal_name(201 + 20)), (None, None));
        let mut accepted = Vec::new();
        put_accepted(&mut accepted, 7);
        assert_eq!(Refusal::number_in(&accepted), None);
        assert_eq!(Refusal::number_in(&accepted[..20]), None);
    }
}
