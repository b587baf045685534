//! Authentication and identifiers of users.

pub mod domains;
pub mod kerberos;
pub mod ntlm;
pub mod pac;
pub(crate) mod penalties;
pub mod security;
pub mod sid;
pub mod spnego;
pub(crate) mod users;
