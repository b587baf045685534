//! State of NFSv4 that a connection keeps, to save look-ups of the session and states of its last
//! requests.

use super::session::Session;
use super::state::Recent;
use std::cell::RefCell;
use std::sync::Arc;

/// The connection that a call came over.
pub type ConnInfo = weir_conn::ConnInfo<ConnectionState>;

/// State of NFSv4 that a connection keeps.
#[derive(Clone, Default)]
pub struct ConnectionState {
    /// The session of its last request.
    pub(crate) session: RefCell<Option<Arc<Session>>>,
    /// The states under which its last requests read and wrote.
    pub(crate) states: Recent,
}

impl std::fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionState")
    }
}
