//! Reasons why a log refuses, stops, or cannot be opened.

use super::position::{LogId, LogPos};
use crate::error::{IoError, StoreError};
use std::fmt;
use std::sync::Arc;

/// The log accepts and acknowledges nothing any more. The reason is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPoisonError(pub Arc<str>);

impl fmt::Display for LogPoisonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the intent log has stopped: {}", self.0)
    }
}

impl std::error::Error for LogPoisonError {}

impl From<LogPoisonError> for StoreError {
    fn from(p: LogPoisonError) -> StoreError {
        StoreError::Poisoned(p.0)
    }
}

/// Reason why a record was not appended. Nothing has changed in that case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppendError {
    /// An earlier write failed.
    Poisoned(LogPoisonError),
    /// The ring has no room until [`super::Log::release`].
    Full,
    /// The record exceeds [`super::Log::max_record`].
    TooLarge,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Poisoned(p) => p.fmt(f),
            AppendError::Full => f.write_str("the intent log is full"),
            AppendError::TooLarge => f.write_str("the record is too large for the intent log"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Reason why a log cannot be created or recovered.
#[derive(Clone, Debug)]
pub enum LogError {
    /// The device failed. An *unreadable* block is not taken for the end.
    Io(IoError),
    /// The device is too small to hold a ring.
    TooSmall,
    /// Both header blocks are damaged, or it is no log.
    NotALog,
    /// The log belongs to another aggregate.
    WrongId(LogId),
    /// The log was written by a newer version of the format.
    Version(u32),
    /// Acknowledged records are lost: the batch at `at` is damaged, although a later one at `later`
    /// shows that it had been durable.
    DamagedMiddle {
        /// The first damaged batch.
        at: LogPos,
        /// A batch that was written after the damaged one was durable.
        later: LogPos,
    },
    /// The log contradicts itself or the cut that recovery was given.
    Inconsistent {
        /// The position of the contradiction.
        at: LogPos,
        /// The contradiction, as a message.
        what: &'static str,
    },
    /// No page frame was free to read into.
    NoMemory,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io(e) => write!(f, "intent log: {e}"),
            LogError::TooSmall => f.write_str("the device is too small for an intent log"),
            LogError::NotALog => f.write_str("not an intent log, or its header is damaged"),
            LogError::WrongId(id) => {
                write!(f, "this intent log belongs to another aggregate ({id:?})")
            }
            LogError::Version(v) => write!(
                f,
                "intent log has format {v}, which is newer than this version supports"
            ),
            LogError::DamagedMiddle { at, later } => write!(
                f,
                "the intent log is damaged at position {at}: the batch at {later} shows that \
                 acknowledged records stood there"
            ),
            LogError::Inconsistent { at, what } => {
                write!(f, "the intent log is inconsistent at position {at}: {what}")
            }
            LogError::NoMemory => f.write_str("no page frame is free to read the intent log"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<IoError> for LogError {
    fn from(e: IoError) -> LogError {
        LogError::Io(e)
    }
}

impl From<LogError> for StoreError {
    fn from(e: LogError) -> StoreError {
        match e {
            LogError::Io(e) => StoreError::Io(e),
            LogError::NoMemory => StoreError::NoMemory,
            other => StoreError::Format(other.to_string().into()),
        }
    }
}
