//! SP4_MACH_CRED (RFC 8881 §2.10.8.3): by whom a client introduced itself, and what is refused to all others.
//!
//! A client that introduces itself by a protected message of its machine's principal may have what decides on it and on its
//! sessions refused to anyone else, and may end what its users began when their tickets have run out.

use super::args::{
    BIND_CONN_TO_SESSION, CREATE_SESSION, DESTROY_CLIENTID, DESTROY_SESSION, EXCHANGE_ID,
};
use super::types::Bitmap;
use crate::rpc::message::Credential;
use weir_vfs::Flavour;

/// `state_protect4_a` (§18.35.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// SP4_NONE: not at all.
    None,
    /// SP4_MACH_CRED: some operations are refused to anyone but the client's machine.
    Machine(MachineOps),
    /// SP4_SSV.
    Ssv,
}

/// `state_protect_ops4` (§18.35.1): operations of SP4_MACH_CRED, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineOps {
    /// Those that the machine alone may ask for.
    pub must: Bitmap,
    /// Those that it may ask for in place of the users who otherwise do.
    pub may: Bitmap,
}

/// The principal under which a client introduced itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// How it was established. The protection of a message is no part of who sent it: any of Kerberos's is `Krb5`.
    flavour: Flavour,
    /// The user id, if there is one.
    uid: Option<u32>,
    /// A hash of its name, if the mechanism has names.
    name: u64,
}

impl Principal {
    /// Nobody.
    pub const NONE: Principal = Principal {
        flavour: Flavour::None,
        uid: None,
        name: 0,
    };

    /// Returns true if Kerberos has established it.
    pub fn is_proven(&self) -> bool {
        self.flavour == Flavour::Krb5
    }

    /// The principal of a credential.
    pub fn of(credential: &Credential) -> Principal {
        Principal {
            flavour: match credential.flavour() {
                Flavour::Krb5Integrity | Flavour::Krb5Privacy => Flavour::Krb5,
                flavour => flavour,
            },
            uid: credential.identity().map(|i| i.unix.uid),
            name: credential.name(),
        }
    }
}

/// Operations that SP4_MACH_CRED is enforced for: EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, BIND_CONN_TO_SESSION and
/// DESTROY_CLIENTID, which decide on the client and its sessions.
pub const MACHINE_MUST: Bitmap = Bitmap::of(&[
    BIND_CONN_TO_SESSION,
    EXCHANGE_ID,
    CREATE_SESSION,
    DESTROY_SESSION,
    DESTROY_CLIENTID,
]);
/// Operations that the machine may be allowed: CLOSE, COMMIT, DELEGRETURN, LOCKU, OPEN_DOWNGRADE, SECINFO, WRITE,
/// FREE_STATEID, SECINFO_NO_NAME, TEST_STATEID. None needs more than a state of the client, and none shows contents.
pub const MACHINE_MAY: Bitmap = Bitmap::of(&[4, 5, 8, 14, 21, 33, 38, 45, 52, 55]);

/// Whether messages with a credential are protected against change.
pub fn is_protected(credential: &Credential) -> bool {
    matches!(
        credential.flavour(),
        Flavour::Krb5Integrity | Flavour::Krb5Privacy
    )
}
