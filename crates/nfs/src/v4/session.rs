//! Sessions (RFC 8881 §2.10): slots, limits of the channels, the connections that callbacks may take.

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

/// Slots of a session at most (Linux's own limit).
pub const MAX_SLOTS: u32 = 1024;
/// Bytes that a session is charged when it is made, besides its slots.
const SESSION_BYTES: usize = 1024;
/// Operations of a COMPOUND at most.
pub const MAX_OPERATIONS: u32 = 64;
/// Bytes of a reply that is kept, at most.
const MAX_CACHED: u32 = 8192;
/// Bytes below which a channel carries no SEQUENCE.
const MIN_MESSAGE: u32 = 256;

/// `CREATE_SESSION4_FLAG_PERSIST`: requests are carried out once over restarts of the server, too (§18.36.3).
pub const PERSIST: u32 = 1;
/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`: this connection takes callbacks, too (§18.36.3).
pub const CONN_BACK_CHAN: u32 = 2;

/// See the module's head.
pub struct Session {
    /// The session id, as the client sends it with each SEQUENCE.
    pub id: SessionId,
    /// The client that created it.
    pub client: Arc<Client>,
    /// The slots of the fore channel.
    pub slots: Slots,
    /// The fore channel, as granted.
    pub fore: Channel,
    /// The back channel.
    pub back: BackChannel,
    /// The minor version under which it was created: that of callbacks.
    pub minor: u32,
    /// Bits of `CREATE_SESSION4_FLAG_*`, as granted.
    pub flags: u32,
    /// Connections that requests may come over, of a client with SP4_MACH_CRED: they have to be bound by the machine
    /// (§2.10.3.1). Others take any connection.
    bound: Mutex<VecDeque<u64>>,
    dead: AtomicBool,
    _memory: Reservation,
}

/// Connections at most that are known to be bound; of more the oldest have to be bound again.
const MAX_BOUND: usize = 64;

impl Session {
    /// A session as it is asked for, as far as it is granted.
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

    /// Whether its requests are carried out once over restarts of the server, too.
    pub fn is_persistent(&self) -> bool {
        self.flags & PERSIST != 0
    }

    /// Requests may come over this connection.
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

    /// Whether that is so, of a client with SP4_MACH_CRED.
    pub fn is_bound(&self, connection: u64) -> bool {
        self.bound.lock().contains(&connection)
    }

    /// Whether it has been destroyed.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Marks the session as destroyed.
    pub fn end(&self) {
        self.dead.store(true, Ordering::Release);
    }
}

/// The client id that a session's id begins with.
pub(super) fn client_of(id: &SessionId) -> u64 {
    let [client @ .., _, _, _, _, _, _, _, _] = *id;
    u64::from_be_bytes(client)
}

/// A session of before the restart as it would be asked for now: one slot, for one request, and limits that the request does not exceed.
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
