//! The way of every operation to a volume: **admit, charge, operate**.
//!
//! 1. [`Vfs::admit`](crate::Vfs::admit): a handle and a session become an [`AdmittedFile`], by the
//!    export's rules. Nothing can be done with one.
//! 2. [`AdmittedFile::charge`]: the session pays what the operation [`Cost`]s, or waits for its
//!    limits. What it gets is an [`Operand`], on which operations are defined, and one
//!    [`ChargeProof`] token.
//! 3. An operation takes the token of its own cost by value. So an operation that nobody has been
//!    charged for does not compile, nor one that was charged as something cheaper, nor two for one
//!    charge:
//!
//! ```
//! # use weir_vfs::{AccessModel, AdmittedFile, DataRead, MetadataRead, OpContext, OpResult, Vfs};
//! # use weir_vfs::volume::{Attr, ReadOut};
//! fn read<A: AccessModel>(
//!     vfs: &Vfs,
//!     cx: &mut OpContext,
//!     file: AdmittedFile<'_, A>,
//! ) -> OpResult<ReadOut> {
//!     let (file, charged) = file.charge(vfs, cx, DataRead(4096))?;
//!     file.read(cx, charged, 0)
//! }
//! ```
//! ```compile_fail
//! # use weir_vfs::{AccessModel, AdmittedFile, DataRead, MetadataRead, OpContext, OpResult, Vfs};
//! # use weir_vfs::volume::{Attr, ReadOut};
//! fn uncharged<A: AccessModel>(cx: &mut OpContext, file: AdmittedFile<'_, A>) -> OpResult<Attr> {
//!     file.getattr(cx)
//! }
//! ```
//! ```compile_fail
//! # use weir_vfs::{AccessModel, AdmittedFile, DataRead, MetadataRead, OpContext, OpResult, Vfs};
//! # use weir_vfs::volume::{Attr, ReadOut};
//! fn charged_as_less<A: AccessModel>(
//!     vfs: &Vfs,
//!     cx: &mut OpContext,
//!     file: AdmittedFile<'_, A>,
//! ) -> OpResult<ReadOut> {
//!     let (file, charged) = file.charge(vfs, cx, MetadataRead)?;
//!     file.read(cx, charged, 0)
//! }
//! ```
//! ```compile_fail
//! # use weir_vfs::{AccessModel, AdmittedFile, DataRead, MetadataRead, OpContext, OpResult, Vfs};
//! # use weir_vfs::volume::{Attr, ReadOut};
//! fn twice<A: AccessModel>(
//!     vfs: &Vfs,
//!     cx: &mut OpContext,
//!     file: AdmittedFile<'_, A>,
//! ) -> OpResult<ReadOut> {
//!     let (file, charged) = file.charge(vfs, cx, DataRead(4096))?;
//!     file.read(cx, charged, 0)?;
//!     file.read(cx, charged, 4096)
//! }
//! ```
//! ```compile_fail
//! # use weir_vfs::{Export, OpContext};
//! fn past_everything(export: &Export) -> weir_vfs::volume::StatFs {
//!     export.volume.statfs()
//! }
//! ```
//!
//! An operation that was suspended is run again from its start with the same [`OpContext`], which
//! remembers what was charged, so that each is charged once. What was charged and not moved is
//! refunded when the operation has ended.

use crate::Vfs;
use crate::acl::Acl;
use crate::claims::{Claims, Question};
use crate::error::{Error, Halt, OpResult, Suspend};
use crate::exports::Export;
use crate::grace::Grace;
use crate::handle::{FileId, Namespace};
use crate::identity::Identity;
use crate::large::Steps;
use crate::notify::Watchers;
use crate::snapshot_dir::{FileRef, ReadSource};
use crate::throttle::ClientKey;
use crate::throttle::{Charge, Request, Throttle};
use crate::trees::Caller;
use std::borrow::Cow;
use std::task::Poll;
use weir_base::{Time, VolumeId};
use weir_qos::{Direction, Metadata, Nanos};
use weir_volume::{CallKey, EngineContext, Limits};

/// One operation's context, kept while it is run again: what was fetched for it, and what it was
/// charged.
pub struct OpContext {
    pub(crate) engine: EngineContext,
    /// The connection that it came over: those of one client take turns.
    flow: u64,
    /// Time of arrival, on the monotonic clock, if the caller knows.
    arrived: Option<Nanos>,
    charge: Option<Charge>,
    /// True if it has been charged, or found to be free.
    passed: bool,
    /// Bytes of data moved.
    moved: usize,
    /// Bytes that a READ returns at most.
    reads: usize,
    /// Offset in a file that it has come to, in bytes.
    pub(crate) progress: u64,
    /// Question that it has asked the holder of a write cache of a file.
    pub(crate) question: Option<Box<(FileId, Question)>>,
    /// Steps that it has begun with other constituents of a large volume.
    pub(crate) steps: Option<Box<Steps>>,
}

impl OpContext {
    /// Returns the context of an operation requested at `now` over the connection `flow`.
    pub fn new(now: Time, flow: u64, arrived: Option<Nanos>) -> OpContext {
        OpContext {
            engine: EngineContext::new(now),
            flow,
            arrived,
            charge: None,
            passed: false,
            moved: 0,
            reads: usize::MAX,
            progress: 0,
            question: None,
            steps: None,
        }
    }

    /// Returns the bytes that a READ returns at most.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// Bounds the bytes that a READ returns.
    pub fn set_reads(&mut self, most: usize) {
        self.reads = most;
    }

    /// Makes it the context of the next operation of the same request. The last one is settled.
    pub fn renew(&mut self) {
        self.engine.renew();
        self.charge = None;
        self.passed = false;
        self.moved = 0;
        self.progress = 0;
        self.question = None;
        self.steps = None;
    }

    /// Sets the key of a call that must not be carried out twice: it becomes part of the
    /// operation's log record.
    pub fn set_call(&mut self, key: Option<CallKey>) {
        self.engine.call = key;
    }

    /// Returns true if the engine has taken the data of a WRITE, of which only the length counts
    /// from now on.
    pub fn has_data(&self) -> bool {
        self.engine.has_data()
    }

    /// Returns the time of arrival, in nanoseconds on the monotonic clock.
    pub fn arrived(&self) -> Option<Nanos> {
        self.arrived
    }

    /// Returns the number of the connection that it came over.
    pub(crate) fn flow(&self) -> u64 {
        self.flow
    }

    /// Returns the volume that it was charged for, if it was.
    pub(crate) fn volume(&self) -> Option<VolumeId> {
        self.charge.as_ref().map(Charge::volume)
    }

    /// Returns the bytes of data that it has read or written.
    pub fn moved(&self) -> usize {
        self.moved
    }

    pub(crate) fn set_moved(&mut self, bytes: usize) {
        self.moved = bytes;
    }

    /// Waits for what the operation was suspended for, so that it can be run again.
    ///
    /// # Errors
    /// The reason, if the operation has failed meanwhile.
    pub async fn resume(&mut self, vfs: &Vfs, suspend: Suspend) -> Result<(), Error> {
        match suspend {
            Suspend::Device(wait) => {
                let resumed = wait.volume.resume(&mut self.engine, wait.stop).await;
                resumed.map_err(Error::from)
            }
            Suspend::Room(wait) => {
                let over = wait.wait_for_room().await;
                over.map_err(Error::from)
            }
            Suspend::Record(records, lsn) => match records.settled(lsn).await {
                true => Ok(()),
                false => Err(Error::Io),
            },
            Suspend::Limit(held) => {
                self.charge = held.await;
                self.passed = true;
                Ok(())
            }
            Suspend::NameService(wait) => {
                vfs.names.news(wait).await;
                Ok(())
            }
            Suspend::Turn => {
                let mut waited = false;
                std::future::poll_fn(|cx| match std::mem::replace(&mut waited, true) {
                    true => Poll::Ready(Ok(())),
                    false => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await
            }
            Suspend::Users(found) => {
                found.settled().await;
                Ok(())
            }
            Suspend::Recall(ticket) => {
                ticket.wait().await;
                Ok(())
            }
            Suspend::Client(event) | Suspend::Thread(event) => {
                event.await;
                Ok(())
            }
        }
    }

    /// Ends the operation, whatever its outcome: bytes that it was charged for and did not move are
    /// refunded.
    pub fn settle_charge(&mut self, throttle: &Throttle) {
        // In place: to take it out means copying it, which costs more than the rest.
        if let Some(charge) = &self.charge {
            throttle.refund(charge, self.moved as u64);
        }
        self.charge = None;
    }
}

/// Cost of an operation to its session.
pub trait Cost: private::Sealed {
    #[doc(hidden)]
    fn class(&self) -> Class;
}

#[doc(hidden)]
pub enum Class {
    /// Bytes of data: limits may make it wait.
    Data(Direction, usize),
    /// Charged, and never made to wait.
    Metadata(Metadata),
}

mod private {
    pub trait Sealed {}
}

/// Reading so many bytes of data at most.
#[derive(Clone, Copy, Debug)]
pub struct DataRead(pub usize);
/// Writing so many bytes of data at most.
#[derive(Clone, Copy, Debug)]
pub struct DataWrite(pub usize);
/// A metadata operation that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct MetadataRead;
/// A metadata operation that changes something.
#[derive(Clone, Copy, Debug)]
pub struct MetadataWrite;
/// Cost that no limit counts: operations that a protocol needs to work at all, locks, COMMIT.
#[derive(Clone, Copy, Debug)]
pub struct Exempt;

macro_rules! cost {
    ($($cost:ty, |$of:pat_param| $class:expr;)*) => {
        $(
            impl private::Sealed for $cost {}
            impl Cost for $cost {
                #[inline]
                fn class(&self) -> Class {
                    let $of = self;
                    $class
                }
            }
        )*
    };
}

cost! {
    DataRead, |DataRead(bytes)| Class::Data(Direction::Read, *bytes);
    DataWrite, |DataWrite(bytes)| Class::Data(Direction::Write, *bytes);
    MetadataRead, |_| Class::Metadata(Metadata::Look);
    MetadataWrite, |_| Class::Metadata(Metadata::Change);
    Exempt, |_| Class::Metadata(Metadata::Protocol);
}

/// The proof that an operation was charged, which it takes. Made by [`AdmittedFile::charge`] alone.
#[derive(Debug)]
pub struct ChargeProof<C>(C);

impl ChargeProof<DataRead> {
    /// Returns the bytes that may be read.
    pub(crate) fn bytes(&self) -> usize {
        self.0.0
    }
}

impl ChargeProof<DataWrite> {
    /// Returns the bytes that may be written.
    pub(crate) fn bytes(&self) -> usize {
        self.0.0
    }
}

/// A file as a session may use it: the export, what its rule allows, and the identity after
/// squashing.
///
/// Operand of an operation. Its owner has been charged for an operation.
pub struct Operand<'t, A> {
    pub(crate) export: &'t Export,
    pub(crate) who: Cow<'t, Identity>,
    pub(crate) file: FileRef,
    pub(crate) access: A,
    /// True if the rule lets a caller of the session's flavour make changes.
    pub(crate) writes: bool,
    pub(crate) client: ClientKey,
    /// Table of what all clients have open, locked and cached.
    pub(crate) claims: &'t Claims,
    /// Clients that may claim again what they had.
    pub(crate) grace: &'t Grace,
    /// Watchers to which changes of names are reported.
    pub(crate) watchers: &'t Watchers,
    /// The access control list of what is made here, in place of what the directory passes on.
    pub(crate) list: Option<Acl>,
    /// The caller, until the rules of its tree are applied; `None` in volumes without such rules.
    pub(crate) caller: Option<Box<Caller<'t>>>,
}

impl<A> Operand<'_, A> {
    /// Returns the operand with an access control list for what is made in the directory, and the
    /// mode that it comes to. `None`: what the directory passes on, or none.
    #[must_use]
    pub fn with_list(mut self, list: Option<Acl>) -> Self {
        self.list = list;
        self
    }

    /// Returns the file within its volume.
    pub fn file(&self) -> FileRef {
        self.file
    }

    /// Returns the file among those of all volumes.
    pub fn file_id(&self) -> FileId {
        FileId {
            volume: self.export.volume.id(),
            ino: self.file.ino,
            namespace: self.file.namespace,
        }
    }

    /// Runs the engine's part of an operation.
    #[inline]
    pub(crate) fn run<T>(
        &self,
        cx: &mut OpContext,
        operation: impl FnOnce(&mut EngineContext) -> Result<T, Halt>,
    ) -> OpResult<T> {
        // Root is limited only by trees: what it writes counts for the owner of the file.
        cx.engine.limits = match self.who.unix.is_root() {
            true => Limits::Trees,
            false => Limits::All,
        };
        operation(&mut cx.engine).map_err(|halt| halt.into_stop(&self.export.volume))
    }
}

impl<'t, A> Operand<'t, A> {
    /// Applies the rules of the tree that the file is in, if it has its own (`trees`).
    ///
    /// # Errors
    /// They refuse it; `Stale`, `Io`; suspended while the inode is read, or as the rules are.
    fn enter_tree(&mut self, cx: &mut EngineContext) -> OpResult<()> {
        let Some(caller) = self.caller.take() else {
            return Ok(());
        };
        let namespace = match self.file.namespace {
            // The listing of snapshots is where its directory is.
            Namespace::Snapshots => Namespace::Live,
            namespace => namespace,
        };
        let volume = &self.export.volume;
        let reading = ReadSource::new(volume, namespace);
        let attr = reading.and_then(|reading| Ok(reading.getattr(cx, self.file.ino)?));
        let attr = attr.map_err(|halt| halt.into_stop(volume))?;
        if let Some(rules) = self.export.rules_of_tree(attr.tree) {
            let admitted = caller.admitted(rules)?;
            self.who = admitted.who;
            self.writes &= admitted.writes;
        }
        Ok(())
    }

    /// Returns the second file of the same operation, which was charged with the first.
    ///
    /// # Errors
    /// The rules of its tree refuse it, or the operation has to wait for them.
    pub fn beside(
        &self,
        cx: &mut OpContext,
        other: AdmittedFile<'t, A>,
    ) -> OpResult<Operand<'t, A>> {
        let mut other = other.0;
        other.enter_tree(&mut cx.engine)?;
        Ok(other)
    }
}

/// A file of an export that admits the session. See the module's head.
pub struct AdmittedFile<'t, A>(Operand<'t, A>);

impl<'t, A> AdmittedFile<'t, A> {
    pub(crate) fn new(operand: Operand<'t, A>) -> AdmittedFile<'t, A> {
        AdmittedFile(operand)
    }

    /// Lets the rules of its tree admit it by any of their flavours.
    pub(crate) fn by_any_flavour(mut self) -> AdmittedFile<'t, A> {
        if let Some(caller) = &mut self.0.caller {
            caller.any_flavour = true;
        }
        self
    }

    /// Returns the volume that the file is in.
    pub fn volume(&self) -> VolumeId {
        self.0.export.volume.id()
    }

    /// Charges the session for an operation on the file, once in all the times that it is run.
    ///
    /// # Errors
    /// The rules of its tree refuse it, or it has to wait for them or for its limits.
    #[inline]
    pub fn charge<C: Cost>(
        mut self,
        vfs: &Vfs,
        cx: &mut OpContext,
        cost: C,
    ) -> OpResult<(Operand<'t, A>, ChargeProof<C>)> {
        if self.0.caller.is_some() {
            self.0.enter_tree(&mut cx.engine)?;
        }
        if !cx.passed {
            let (throttle, volume, client) = (&vfs.throttle, self.volume(), self.0.client);
            match cost.class() {
                Class::Data(direction, bytes) => {
                    let request = Request {
                        volume,
                        client,
                        flow: cx.flow,
                        direction,
                        bytes: bytes as u64,
                    };
                    throttle
                        .gate(&request, cx.arrived, &mut cx.charge)
                        .map_err(Suspend::Limit)?;
                }
                Class::Metadata(kind) => {
                    throttle.charge_metadata(volume, client, kind, cx.arrived);
                }
            }
            cx.passed = true;
        }
        Ok((self.0, ChargeProof(cost)))
    }
}
