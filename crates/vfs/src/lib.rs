//! The waist between protocols and volumes: identity, export policy, access
//! checks, file handles, locks. Nothing below knows a protocol; nothing above
//! touches a volume except through here.

mod identity;

pub use identity::Creds;
