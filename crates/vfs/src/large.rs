//! The constituents of large volumes that this server has, and file handles of large volumes.

use std::sync::{Arc, OnceLock};
use weir_base::signal::Signal;
use weir_base::{Ino, VolumeId};
use weir_large::{Constituent, InodeAnswer, Link, Member, ROOT, Refusal, Reply};

use crate::directory::{Directory, Remote};
use crate::handle::{FileId, HANDLE_BYTES, LargeFile, Namespace};
use crate::rare::Rare;

/// The link to other servers, once there is one. Frames before that are dropped.
#[derive(Default)]
struct LateLink(OnceLock<Arc<dyn Link>>);

impl Link for LateLink {
    fn send(&self, large: u64, to: Constituent, frame: Vec<u8>) {
        if let Some(link) = self.0.get() {
            link.send(large, to, frame);
        }
    }
}

/// Inode of a large volume of which this server has a constituent, which another server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Identity of the large volume.
    pub(crate) large: u64,
    /// Number of the inode in the large volume.
    pub(crate) ino: Ino,
}

/// Steps of an operation that other constituents take part in. Each is begun once in all the times
/// that the operation is run.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) request: Option<Arc<Signal<Reply>>>,
    pub(crate) inspected: Vec<Arc<Signal<Result<InodeAnswer, Refusal>>>>,
}

/// See the module's head.
#[derive(Default)]
pub struct Constituents {
    /// At most one of a large volume.
    members: Rare<Vec<Arc<Member>>>,
    link: Arc<LateLink>,
}

impl Constituents {
    /// Returns the way to the servers of other constituents.
    pub fn link(&self) -> Arc<dyn Link> {
        Arc::clone(&self.link) as Arc<dyn Link>
    }

    /// Sends what goes to other servers by `link` from now on. Only the first call has an effect.
    pub fn connect(&self, link: Arc<dyn Link>) {
        let _ = self.link.0.set(link);
    }

    /// Adds a constituent.
    pub fn add(&self, member: &Arc<Member>) {
        self.members.change(|members| {
            members.retain(|one| one.volume().id() != member.volume().id());
            members.push(Arc::clone(member));
        });
    }

    #[inline]
    fn member(&self, is: impl Fn(&Member) -> bool) -> Option<Arc<Member>> {
        let members = self.members.read()?;
        members.iter().find(|one| is(one)).cloned()
    }

    /// Returns the constituent that a volume is.
    pub fn find(&self, volume: VolumeId) -> Option<Arc<Member>> {
        self.member(|one| one.volume().id() == volume)
    }

    /// Removes the constituent that a volume is, and ends its thread.
    pub fn remove(&self, volume: VolumeId) {
        if let Some(member) = self.find(volume) {
            self.members
                .change(|members| members.retain(|one| one.volume().id() != volume));
            member.stop();
        }
    }

    /// Takes a frame from another server.
    pub fn deliver(&self, frame: &[u8]) {
        let to = weir_large::frame::destination(frame);
        let member = self.member(|one| Some((one.membership().large, one.membership().own)) == to);
        if let Some(member) = member {
            member.deliver(frame);
        }
    }

    /// Returns the handle of a file, if its volume is a constituent.
    #[inline]
    pub(crate) fn handle_of(&self, file: FileId) -> Option<[u8; HANDLE_BYTES]> {
        let member = self.find(file.volume)?;
        let membership = member.membership();
        let file = LargeFile {
            large: membership.large,
            ino: member.global(file.ino),
        };
        Some(file.encode(membership.secret))
    }

    /// Returns the handle of the root of the large volume of which `volume` is a constituent, if
    /// another constituent has it.
    pub(crate) fn root_elsewhere(&self, volume: VolumeId) -> Option<[u8; HANDLE_BYTES]> {
        let membership = *self.find(volume)?.membership();
        let file = LargeFile {
            large: membership.large,
            ino: ROOT,
        };
        (membership.own != Constituent::of_inode(ROOT)).then(|| file.encode(membership.secret))
    }

    /// Returns the server that has the root of the large volume of which `volume` is a constituent,
    /// if it is another one.
    pub fn root_server(&self, directory: &Directory, volume: VolumeId) -> Option<Arc<Remote>> {
        let file = LargeFile {
            large: self.find(volume)?.membership().large,
            ino: ROOT,
        };
        self.remote_of(directory, file)
    }

    /// Verifies a handle of a large volume. Returns its constituent here, and what it names.
    fn verified(&self, handle: &[u8]) -> Option<(Arc<Member>, LargeFile)> {
        let file = LargeFile::of_handle(handle)?;
        let member = self.member(|one| one.membership().large == file.large)?;
        let right = file.encode(member.membership().secret) == *handle;
        right.then_some((member, file))
    }

    /// Returns the file of a constituent here that a handle names.
    pub(crate) fn file_id(&self, handle: &[u8]) -> Option<FileId> {
        let (member, file) = self.verified(handle)?;
        let here = Constituent::of_inode(file.ino) == member.membership().own;
        here.then(|| FileId {
            volume: member.volume().id(),
            ino: member.stored(file.ino),
            namespace: Namespace::Live,
        })
    }

    /// Returns the inode of another server's constituent that a handle names.
    pub fn elsewhere(&self, handle: &[u8]) -> Option<Elsewhere> {
        let (member, LargeFile { large, ino }) = self.verified(handle)?;
        let here = Constituent::of_inode(ino) == member.membership().own;
        (!here).then_some(Elsewhere { large, ino })
    }

    /// Returns the server of the constituent that has an inode, if it is another one.
    pub(crate) fn remote_of(&self, directory: &Directory, file: LargeFile) -> Option<Arc<Remote>> {
        let constituent = Constituent::of_inode(file.ino);
        let is_own = |one: &Member| {
            (one.membership().large, one.membership().own) == (file.large, constituent)
        };
        if self.member(is_own).is_some() {
            return None;
        }
        directory
            .of_constituent(file.large, constituent.0)
            .map(Arc::clone)
    }
}
