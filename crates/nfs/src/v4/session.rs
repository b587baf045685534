//! Sessions (RFC 8881 §2.10): slots, limits of the channels, and connections for callbacks.

use super::args::{Channel, CreateSession, Security};
use super::backchannel::BackChannel;
use super::client::Client;
use super::slot::Slots;
use super::status::Status;
use super::types::SessionId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_base::limits::net::MAX_RECORD;
use weir_base::{Budget, Reservation};

/// Maximum number of slots of a session (Linux's own limit).
pub const MAX_SLOTS: u32 = 1024;
/// Memory charged for a session besides its slots, in bytes.
const SESSION_BYTES: usize = 1024;
/// Maximum number of operations of a COMPOUND.
pub const MAX_OPERATIONS: u32 = 64;
/// Maximum size of a kept reply in bytes.
const MAX_CACHED: u32 = 8192;
/// Minimum message size in bytes of a channel, as SEQUENCE needs it.
const MIN_MESSAGE: u32 = 256;

/// `CREATE_SESSION4_FLAG_PERSIST`: requests are carried out once even over a restart of the server
/// (§18.36.3).
pub const PERSIST: u32 = 1;
/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`: this connection is also used for callbacks (§18.36.3).
pub const CONN_BACK_CHAN: u32 = 2;

/// See the module's head.
pub struct Session {
    /// The session id, as the client sends it with each SEQUENCE.
    pub id: SessionId,
    /// The client that created it.
    pub client: Arc<Client>,
    /// The slots of the fore channel.
    pub slots: Slots,
    /// The granted fore channel.
    pub fore: Channel,
    /// The back channel.
    pub back: BackChannel,
    /// The minor version under which it was created, which callbacks use.
    pub minor: u32,
    /// The granted bits of `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// Connections for requests, if the client has SP4_MACH_CRED: the machine has to bind them
    /// (§2.10.3.1). Other clients may use any connection.
    bound: Mutex<VecDeque<u64>>,
    dead: AtomicBool,
    _memory: Reservation,
}

/// Maximum number of bound connections that are remembered; the oldest of more have to be bound
/// again.
const MAX_BOUND: usize = 64;

impl Session {
    /// Creates a session as requested, within the server's limits.
    ///
    /// # Errors
    /// TOOSMALL; DELAY if the budget has no room.
    pub fn new(
        id: SessionId,
        client: &Arc<Client>,
        asked: &CreateSession<'_>,
        minor: u32,
        budget: &Arc<Budget>,
    ) -> Result<Session, Status> {
        let small = |channel: &Channel| channel.max_request.min(channel.max_response) < MIN_MESSAGE;
        if small(&asked.fore) || small(&asked.back) {
            return Err(Status::TooSmall);
        }
        let count = asked.fore.max_requests.clamp(1, MAX_SLOTS);
        let memory = budget.try_reserve(SESSION_BYTES).ok_or(Status::Delay)?;
        let slots = Slots::new(count, budget).ok_or(Status::Delay)?;
        let most = MAX_RECORD as u32;
        let fore = Channel {
            header_pad: 0,
            max_request: asked.fore.max_request.min(most),
            max_response: asked.fore.max_response.min(most),
            max_cached: asked.fore.max_cached.min(MAX_CACHED),
            max_operations: asked.fore.max_operations.clamp(1, MAX_OPERATIONS),
            max_requests: slots.count(),
        };
        let wanted = asked.flags & CONN_BACK_CHAN != 0;
        let back = BackChannel::new(wanted, asked.back, asked.program, &asked.security);
        let back_channel = match back.is_asked() {
            true => CONN_BACK_CHAN,
            false => 0,
        };
        let flags = asked.flags & PERSIST | back_channel;
        Ok(Session {
            id,
            client: Arc::clone(client),
            slots,
            fore,
            back,
            minor,
            flags,
            bound: Mutex::default(),
            dead: AtomicBool::new(false),
            _memory: memory,
        })
    }

    /// Returns true if its requests are carried out once even over a restart of the server.
    pub fn is_persistent(&self) -> bool {
        self.flags & PERSIST != 0
    }

    /// Binds a connection, so that requests may come over it. Only needed for a client with
    /// SP4_MACH_CRED.
    pub fn bind(&self, connection: u64) {
        if self.client.machine.is_none() {
            return;
        }
        let mut bound = self.bound.lock();
        bound.retain(|c| *c != connection);
        if bound.len() >= MAX_BOUND {
            bound.pop_front();
        }
        bound.push_back(connection);
    }

    /// Returns true if a connection is bound. Only meaningful for a client with SP4_MACH_CRED.
    pub fn is_bound(&self, connection: u64) -> bool {
        self.bound.lock().contains(&connection)
    }

    /// Returns true if it has been destroyed.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Marks the session as destroyed.
    pub fn end(&self) {
        self.dead.store(true, Ordering::Release);
    }
}

/// Returns the client id in a session id.
pub(super) fn client_of(id: &SessionId) -> u64 {
    let [client @ .., _, _, _, _, _, _, _, _] = *id;
    u64::from_be_bytes(client)
}

/// Returns the arguments for a stand-in of a session from before the restart: one slot, for one
/// request, and limits that the request does not exceed.
pub(super) fn as_asked(client: &Client) -> CreateSession<'static> {
    let channel = Channel {
        header_pad: 0,
        max_request: u32::MAX,
        max_response: u32::MAX,
        max_cached: u32::MAX,
        max_operations: MAX_OPERATIONS,
        max_requests: 1,
    };
    CreateSession {
        client: client.id,
        sequence: 1,
        flags: PERSIST,
        fore: channel,
        back: channel,
        program: 0,
        security: Security::None,
    }
}
