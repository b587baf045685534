//! A connection as other cores reach it.
//!
//! All other state of a connection belongs to its event loop ([`crate::conn::connection`]). This
//! part is reached when a session ends on another of its connections: the requests of the session
//! that wait on purpose end with it. Its lock is taken for such waits alone, not for each message.

use crate::proto::status::Status;
use parking_lot::Mutex;
use std::sync::Arc;
use weir_vfs::signal::Signal;

/// A connection, as its sessions see it.
#[derive(Default)]
pub struct Line {
    /// The connection's number, unique in this run of the server.
    pub id: u64,
    /// Requests that wait on purpose.
    waits: Mutex<Vec<Wait>>,
}

/// A request that waits on purpose.
pub(crate) struct Wait {
    /// Its async id.
    pub id: u64,
    /// Its message number.
    pub message: u64,
    /// Number of its session.
    pub session: u64,
    /// Status of its response if the session ends.
    pub over: Status,
    /// Set when the wait is cancelled.
    pub cancelled: Arc<Signal<Status>>,
}

impl Line {
    /// Returns the line of the connection with this number.
    pub fn new(id: u64) -> Line {
        Line {
            id,
            ..Line::default()
        }
    }

    /// Adds a request that waits. It is cancelled at once if its session has ended on another core
    /// since it was found, as `has_ended` tells.
    pub(crate) fn add(&self, wait: Wait, has_ended: impl Fn() -> bool) {
        let (cancelled, over) = (Arc::clone(&wait.cancelled), wait.over);
        self.waits.lock().push(wait);
        // A session is marked as ended before its waits are cancelled. So either that finds this
        // wait, or the mark is visible here.
        if has_ended() {
            cancelled.set(over);
        }
    }

    /// Removes the request with this async id.
    pub(crate) fn remove(&self, id: u64) {
        self.waits.lock().retain(|wait| wait.id != id);
    }

    /// Cancels the first request that `which` selects, if there is one.
    pub(crate) fn cancel(&self, which: impl Fn(&Wait) -> bool) {
        let found = {
            let waits = self.waits.lock();
            let mut found = waits.iter().filter(|wait| which(wait));
            found.next().map(|wait| Arc::clone(&wait.cancelled))
        };
        if let Some(cancelled) = found {
            cancelled.set(Status::CANCELLED);
        }
    }

    /// Cancels the requests of a session, which has ended.
    pub(crate) fn cancel_all_of(&self, session: u64) {
        let all: Vec<_> = {
            let waits = self.waits.lock();
            let of = waits.iter().filter(|wait| wait.session == session);
            of.map(|wait| (Arc::clone(&wait.cancelled), wait.over))
                .collect()
        };
        all.iter()
            .for_each(|(cancelled, over)| cancelled.set(*over));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request begins to wait on its connection's core while its session ends on another. In
    /// either order it does not wait on.
    #[test]
    fn no_request_of_a_session_that_ends_waits_on() {
        let line = Line::new(1);
        let add = |id, session, ended| {
            let cancelled = Arc::<Signal<Status>>::default();
            let wait = Wait {
                id,
                message: id,
                session,
                over: Status::NOTIFY_CLEANUP,
                cancelled: Arc::clone(&cancelled),
            };
            line.add(wait, || ended);
            cancelled
        };
        let (before, other) = (add(1, 7, false), add(2, 8, false));
        assert_eq!(before.get(), None);
        line.cancel_all_of(7);
        let after = add(3, 7, true);
        assert_eq!(before.get(), Some(Status::NOTIFY_CLEANUP));
        assert_eq!(after.get(), Some(Status::NOTIFY_CLEANUP));
        assert_eq!(other.get(), None);
        line.cancel(|wait| wait.message == 2);
        assert_eq!(other.get(), Some(Status::CANCELLED));
    }
}
