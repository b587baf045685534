//! SP4_MACH_CRED (RFC 8881 §2.10.8.3): the principal that introduced a client, and the operations
//! that are refused to all others.
//!
//! A client that introduces itself by a protected message of its machine's principal may reserve
//! the operations on itself and on its sessions for that principal. Its machine may also end its
//! users' state when their tickets have expired.

use super::args::{
    BIND_CONN_TO_SESSION, CREATE_SESSION, DESTROY_CLIENTID, DESTROY_SESSION, EXCHANGE_ID,
};
use super::types::Bitmap;
use crate::rpc::message::Credential;
use weir_vfs::Flavour;

/// `state_protect4_a` (§18.35.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// SP4_NONE: no protection.
    None,
    /// SP4_MACH_CRED: some operations are reserved for the client's machine.
    Machine(MachineOps),
    /// SP4_SSV.
    Ssv,
}

/// `state_protect_ops4` (§18.35.1): operations of SP4_MACH_CRED, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineOps {
    /// Operations that only the machine may call.
    pub must: Bitmap,
    /// Operations that the machine may call in place of the users.
    pub may: Bitmap,
}

/// The principal under which a client introduced itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Flavour that established it. The protection of a message does not matter here: all flavours
    /// of Kerberos are `Krb5`.
    flavour: Flavour,
    /// The user id, if there is one.
    uid: Option<u32>,
    /// A hash of its name, if the mechanism has names.
    name: u64,
}

impl Principal {
    /// The anonymous principal.
    pub const NONE: Principal = Principal {
        flavour: Flavour::None,
        uid: None,
        name: 0,
    };

    /// Returns true if Kerberos has established it.
    pub fn is_proven(&self) -> bool {
        self.flavour == Flavour::Krb5
    }

    /// Returns the principal of a credential.
    pub fn from_credential(credential: &Credential) -> Principal {
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

/// Operations for which SP4_MACH_CRED is enforced: EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION,
/// BIND_CONN_TO_SESSION and DESTROY_CLIENTID, which affect the client and its sessions.
pub const MACHINE_MUST: Bitmap = Bitmap::from_numbers(&[
    BIND_CONN_TO_SESSION,
    EXCHANGE_ID,
    CREATE_SESSION,
    DESTROY_SESSION,
    DESTROY_CLIENTID,
]);
/// Operations that the machine may be allowed: CLOSE, COMMIT, DELEGRETURN, LOCKU, OPEN_DOWNGRADE,
/// SECINFO, WRITE, FREE_STATEID, SECINFO_NO_NAME, TEST_STATEID. None needs more than a state of the
/// client, and none shows contents.
pub const MACHINE_MAY: Bitmap = Bitmap::from_numbers(&[4, 5, 8, 14, 21, 33, 38, 45, 52, 55]);

/// Returns true if messages with a credential are protected against modification.
pub fn is_protected(credential: &Credential) -> bool {
    matches!(
        credential.flavour(),
        Flavour::Krb5Integrity | Flavour::Krb5Privacy
    )
}
