//! The context of one request.

use std::sync::Arc;

use smallvec::SmallVec;
use weir_base::Time;
use weir_store::cache::Cache;
use weir_store::tree::{self, NodeSource};
use weir_store::{BlockPtr, Frame, StoreError};

use crate::format::calls::CallKey;
use crate::overlay::direct::Direct;
use crate::overlay::readahead::Plan;
use crate::overlay::root::RootState;
use crate::types::QuotaKind;

/// Quotas that limit a caller.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Limits {
    /// None: the caller is the server itself.
    #[default]
    None,
    /// Those of trees: the caller is root.
    Trees,
    /// All.
    All,
}

impl Limits {
    /// Returns true if limits of owners of this kind hold.
    pub(crate) fn hold_for(self, kind: QuotaKind) -> bool {
        match self {
            Limits::None => false,
            Limits::Trees => kind == QuotaKind::Tree,
            Limits::All => true,
        }
    }
}

/// The context of one request, kept over the retries of its operation.
///
/// It pins fetched blocks, so that each retry gets further than the one before even if the cache
/// has evicted them. It keeps the tree alive that the pointers came from, so that the blocks cannot
/// be reused while they are read.
pub struct EngineContext {
    /// Time of the request, which becomes the timestamps.
    pub now: Time,
    /// Key of the call, if it must not be carried out twice: it becomes part of the log record.
    pub call: Option<CallKey>,
    /// Access control list of an inode that the operation creates.
    pub list: Option<Box<[u8]>>,
    /// Quotas that limit the operation.
    pub limits: Limits,
    pins: Vec<(BlockPtr, Frame)>,
    bad: SmallVec<[BlockPtr; 1]>,
    roots: SmallVec<[Arc<RootState>; 1]>,
    /// Number of times that the operation has waited for space.
    pub(crate) space_waits: u8,
    /// Number of times that the operation has waited for memory to read into.
    pub(crate) memory_waits: u8,
    /// The checkpoint that a commit waits for.
    pub(crate) commit_epoch: Option<u64>,
    /// Number of rounds in which a commit has written pages in place.
    pub(crate) commit_rounds: u16,
    /// True once the request has been noted as part of a sequential stream.
    pub(crate) noted: bool,
    /// Read-ahead for the next requests, to be started once this one's own reads are in flight.
    pub(crate) ahead: Option<Plan>,
    /// The operation's direct write, in progress or complete.
    pub(crate) direct: Option<Direct>,
}

impl EngineContext {
    /// Creates the context of a request made at `now`.
    pub fn new(now: Time) -> EngineContext {
        EngineContext {
            now,
            call: None,
            list: None,
            limits: Limits::None,
            pins: Vec::new(),
            bad: SmallVec::new(),
            roots: SmallVec::new(),
            space_waits: 0,
            memory_waits: 0,
            commit_epoch: None,
            commit_rounds: 0,
            noted: false,
            ahead: None,
            direct: None,
        }
    }

    /// Resets it for the next operation of the same request, which needs none of the blocks fetched
    /// for the last one.
    pub fn renew(&mut self) {
        match self.is_untouched() {
            true => self.call = None,
            false => *self = EngineContext::new(self.now),
        }
    }

    /// Returns true if all operations so far needed only blocks in memory.
    fn is_untouched(&self) -> bool {
        self.pins.is_empty()
            && self.bad.is_empty()
            && self.roots.is_empty()
            && self.space_waits == 0
            && self.memory_waits == 0
            && self.commit_epoch.is_none()
            && self.commit_rounds == 0
            && !self.noted
            && self.ahead.is_none()
            && self.direct.is_none()
            && self.list.is_none()
    }

    /// Returns true if the operation has taken its data: see `Stop::Land`.
    pub fn has_data(&self) -> bool {
        self.direct.is_some()
    }

    pub(crate) fn pinned(&self, ptr: &BlockPtr) -> Option<&Frame> {
        if self.pins.is_empty() {
            return None;
        }
        let i = self
            .pins
            .binary_search_by_key(&(ptr.addr, ptr.birth), |(p, _)| (p.addr, p.birth))
            .ok()?;
        self.pins.get(i).map(|(_, frame)| frame)
    }

    pub(crate) fn is_bad(&self, ptr: &BlockPtr) -> bool {
        self.bad.contains(ptr)
    }

    /// Keeps the blocks of this root from being reused.
    pub(crate) fn hold(&mut self, root: &Arc<RootState>) {
        if !self.roots.iter().any(|r| Arc::ptr_eq(r, root)) {
            self.roots.push(Arc::clone(root));
        }
    }

    /// Records an unreadable block.
    pub(crate) fn note_bad(&mut self, ptr: BlockPtr) {
        self.bad.push(ptr);
    }

    /// Keeps fetched blocks for the retry.
    pub(crate) fn pin(&mut self, ptrs: &[BlockPtr], frames: Vec<Frame>) {
        self.pins.extend(ptrs.iter().copied().zip(frames));
        self.pins.sort_unstable_by_key(|(p, _)| (p.addr, p.birth));
        self.pins.dedup_by_key(|(p, _)| (p.addr, p.birth));
    }
}

/// A source of nodes for operations: the cache and the request's pins.
pub(crate) struct Source<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) cx: &'a EngineContext,
}

impl NodeSource for Source<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, tree::Stop> {
        if let Some(frame) = self.cache.get(ptr) {
            return Ok(frame);
        }
        if let Some(frame) = self.cx.pinned(ptr) {
            return Ok(frame.clone());
        }
        if self.cx.is_bad(ptr) {
            return Err(tree::Stop::Fail(StoreError::Corrupt {
                addr: ptr.addr,
                what: "could not be read",
            }));
        }
        Err(tree::Stop::fetch(*ptr))
    }
}
