//! Users who may log on, names of this machine, and membership of a domain. The mechanisms are
//! [`weir_auth`]'s.

pub mod accounts;
pub mod ad;
pub mod domains;
pub mod users;
