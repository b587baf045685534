//! Identities of clients for all protocols: users and domains, and the mechanisms that prove them.
//!
//! - **Contexts of Kerberos** for RPCSEC_GSS: [`gss`] is the interface between a protocol and a
//!   mechanism; [`krb5`] protects messages (RFC 4121); [`library`] establishes contexts with the
//!   system's MIT krb5, and reads what a [`keytab`] is for.
//! - **Logon over SMB**: [`spnego`] negotiates the mechanism (RFC 4178); [`ntlm`] verifies a
//!   password (MS-NLMP) and [`tickets`] a ticket; [`penalties`] delay guesses.
//! - **Users**: those of this server ([`users`]), of this machine ([`name_service`]), and of Active
//!   Directory: [`pac`] (MS-PAC), [`sid`], numbers for them ([`domains`]), membership ([`ad`]).
//! - [`legacy`] has NTLM's primitives, [`wire`] the encodings that Microsoft's protocols share.
//!
//! Decoders are total: any bytes give a value or an error.

pub mod ad;
pub mod domains;
pub mod gss;
pub mod keytab;
pub mod krb5;
pub mod legacy;
pub mod library;
pub mod name_service;
pub mod ntlm;
pub mod pac;
pub mod penalties;
pub mod sid;
pub mod spnego;
pub mod tickets;
pub mod users;
pub mod wire;
