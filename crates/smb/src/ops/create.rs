//! CREATE (MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1): opens, makes or replaces a file or directory, or
//! opens a pipe.
//!
//! Its steps, in this order: walk the path from the share's root, comparing names in any case;
//! choose the action by the disposition and the existing file; create a missing file; check the
//! access that is asked for, once for the life of the open; enter the claim, which other opens may
//! conflict with; truncate a file that is overwritten. A wait repeats none of them ([`Step`]).

use crate::context::run::{CommandResult, Failure, Operand, Run};
use crate::context::step::{ClaimedOpen, ResolvedFile, Step};
use crate::info::access::{allowed, listed};
use crate::info::attributes::{NetworkOpenInfo, ResponseContexts, put_response};
use crate::info::entry::{self, attributes};
use crate::info::{apple, previous, reparse};
use crate::open::durable;
use crate::open::leases::{self, Hold};
use crate::open::persistent::Deletes;
use crate::open::session::{Access, Kind, Open, OpenName, Session, Target, Tree};
use crate::open::shares;
use crate::ops::claim::action;
use crate::ops::quota;
use crate::ops::request::{Disposition, Request, ShareType, option};
use crate::pipes::pipe::Pipe;
use crate::proto::mask::{self, generic};
use crate::proto::status::Status;
use crate::proto::{filter, names};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::invariant;
use weir_vfs::claims::DeleteMode;
use weir_vfs::volume::{Attr, CreateHow, FileKind, SetAttr};
use weir_vfs::{ChargeProof, Error, FileId, FileRef, MetadataWrite, Namespace, Stop, Suspend};

/// The mode of files and directories that are made, of which the umask is left where their
/// directory passes no list on: what a client of SMB says of permissions is in no mode.
const MODE: u32 = 0o777;
const FILE_UMASK: u32 = 0o133;
const DIRECTORY_UMASK: u32 = 0o022;

/// Result of walking a path.
enum WalkOutcome {
    Found(ResolvedFile),
    /// The directory in which a name is missing, and the name.
    Missing {
        dir: FileRef,
        named: OpenName,
    },
    /// A symbolic link on the way, and the number of names behind it.
    Link(FileRef, usize),
}

/// Returns the kind of objects under a tree connect.
fn shared(target: Target) -> Result<ShareType, Status> {
    match target {
        Target::Referred => Err(Status::PATH_NOT_COVERED),
        Target::Pipes => Ok(ShareType::Pipes),
        Target::Volume(_) => Ok(ShareType::Files),
    }
}

impl<'a> Run<'a> {
    /// CREATE.
    pub(crate) fn create(&mut self) -> CommandResult {
        let (session, tree) = (self.session()?, self.tree()?);
        let request = Request::decode(self.message, shared(tree.target)?)?;
        let request = request.for_client(session.negotiated.offer.posix);
        let root = match tree.target {
            Target::Volume(root) if !quota::is_index(&request.path) => root,
            _ => return self.open_special(&session, &tree, &request),
        };
        if let Some(back) = request.back {
            return self.come_back(&session.session, &tree, &request, back);
        }
        if let Step::Claimed(claimed) = &self.c.step {
            let claimed = claimed.clone();
            return self.claimed(&session.session, claimed, &request);
        }
        let wanted = self.durable(&request);
        if let Some(durable::DurableRequest::Second { guid, .. }) = wanted
            && let Some(outcome) = self.replayed(&session.session, &tree, guid, &request)?
        {
            return outcome;
        }
        if request.asks(option::OPEN_BY_FILE_ID) {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let (second, path) = previous::split(&request.path);
        let (path, stream) = names::split_stream(path)?;
        let path = names::path(path)?;
        if path.is_empty() && stream.is_none() && request.asks(option::DELETE_ON_CLOSE) {
            return Err(Status::CANNOT_DELETE.into());
        }
        // The owner of the open to be, so that its own claims are in its way at no point.
        let lease = self.lease(&request);
        let parent = lease.and_then(|wanted| wanted.parent(&session.client));
        let within = Access::Within(&session.walker, parent.as_ref());
        let (operand, charged) = self.enter(&session, root, within, MetadataWrite)?;
        let root = match second.or(request.second) {
            None => root,
            Some(second) => {
                let snapshots = operand.snapshots();
                let mut taken = snapshots.iter().rev();
                let found = taken.find(|(at, _)| at.secs == second);
                let (_, file) = found.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
                FileId {
                    namespace: file.namespace,
                    ..root
                }
            }
        };
        let found = match std::mem::take(&mut self.c.step) {
            Step::Made(found) => {
                let kept = (*found).clone();
                self.c.step = Step::Made(found);
                kept
            }
            Step::Opened(open) => {
                self.c.step = Step::Opened(Arc::clone(&open));
                return self.cut(&session.session, &open, &request);
            }
            _ => {
                self.c.walked = self.s.moves.read().count();
                let found = match self.walk(&operand, root, &path, request.posix.is_some())? {
                    WalkOutcome::Link(link, others) => {
                        let at = (root, link);
                        return Err(self.stopped_on(&session, at, &request.path, others));
                    }
                    WalkOutcome::Found(found)
                        if reparse::is_link(&found.attr)
                            && !request.asks(option::OPEN_REPARSE_POINT) =>
                    {
                        let at = (root, found.file);
                        return Err(self.stopped_on(&session, at, &request.path, 0));
                    }
                    WalkOutcome::Found(found) => self.made_before(root, found, &request),
                    WalkOutcome::Missing { dir, named } => {
                        self.make(&operand, charged, dir, named, &request)?
                    }
                };
                match stream {
                    None => found,
                    Some(name) => {
                        // Of what was made with it no more is known when this goes on after a wait.
                        self.c.step = Step::Nothing;
                        self.stream(&session, &operand, found, &name, &request)?
                    }
                }
            }
        };
        match found.made {
            true => self.dress(&session, &operand, &found, &request)?,
            false => check(&found, &request)?,
        }
        let here = operand.with_file(found.file);
        if !found.made && request.disposition.cuts() {
            has_room(&here, &found.attr, request.allocation, found.attr.used)?;
        }
        let granted = self.grant(&here, &found, &request)?;
        let open = self.claim(&session.session, &tree, &here, &found, granted, &request)?;
        let cut = !found.made && request.disposition.cuts();
        if cut {
            self.c.step = Step::Opened(Arc::clone(&open));
            return self.cut(&session.session, &open, &request);
        }
        self.claimed(
            &session.session,
            ClaimedOpen::new(open, found.attr),
            &request,
        )
    }

    /// Marks a file that was found as made, if this CREATE made it and a crash came before its open
    /// was recorded.
    fn made_before(
        &mut self,
        root: FileId,
        mut found: ResolvedFile,
        request: &Request,
    ) -> ResolvedFile {
        let name = self.create_name(request);
        let before = name.and_then(|name| self.s.made.before(name, self.s.clock.monotonic()));
        if before == Some((root.volume, found.file.ino)) && root.namespace == Namespace::Live {
            found.made = true;
            self.c.step = Step::Made(Box::new(found.clone()));
        }
        found
    }

    /// Makes an open persistent that is to be, and answers.
    fn claimed(
        &mut self,
        session: &Arc<Session>,
        claimed: ClaimedOpen,
        request: &Request,
    ) -> CommandResult {
        let ClaimedOpen { open, attr } = claimed.clone();
        // A wait from here on repeats nothing of what was before.
        self.c.step = Step::Claimed(claimed);
        match self.persist(session, &open, request) {
            Ok(()) => {}
            Err(Stop::Suspended(suspend)) => return Err(suspend.into()),
            Err(Stop::Failed(error)) => {
                session.take(open.id);
                open.end(&self.s.vfs, &self.s.leases);
                return Err(error.into());
            }
        }
        let action = open.action.load(Ordering::Relaxed);
        self.opened(session, open, &attr, (action, true), request)
    }

    /// Records an open that is to be persistent, if it can be.
    fn persist(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        request: &Request,
    ) -> Result<(), Stop> {
        let Some(durable::DurableRequest::Second { timeout, .. }) = self.persistent(request) else {
            return Ok(());
        };
        let Some(file) = open
            .file()
            .filter(|f| f.claimed && !f.directory() && f.base.is_none())
        else {
            return Ok(());
        };
        if open.persistent.get().is_some() {
            return Ok(());
        }
        let lease = open.hold.lease().and_then(|_| self.lease(request));
        let head = open.head(&session.user, request.share, timeout, lease);
        let deletes = match request.asks(option::DELETE_ON_CLOSE) {
            true => Deletes::Yes {
                when: DeleteMode::OnClose,
                alone: file.posix,
            },
            false => Deletes::No,
        };
        let (persistents, claims) = (&self.s.leases.persistents, &self.s.vfs.claims);
        let Some(head) = head else {
            return Ok(());
        };
        if let Some((persistent, lsn)) = persistents.add(claims, &head, file, deletes)? {
            self.c.wait_for(Some(lsn));
            open.hold.persists();
            let set = open.persistent.set(persistent).is_ok();
            invariant!(set, "an open becomes persistent once");
            persistents.enter(open);
        }
        Ok(())
    }

    /// The persistent open that is asked for, of a share that has them.
    fn persistent(&self, request: &Request) -> Option<durable::DurableRequest> {
        let wanted = self.durable(request)?;
        let target = self.tree().ok()?.target;
        let can = self.session().ok()?.negotiated.offer.has_persistent();
        (wanted.is_persistent() && can && shares::is_continuous(self.table, target))
            .then_some(wanted)
    }

    /// Returns the name of a CREATE whose open is to be persistent.
    fn create_name(&self, request: &Request) -> Option<durable::Name> {
        match self.persistent(request) {
            Some(durable::DurableRequest::Second { guid, .. }) => {
                Some((self.session().ok()?.negotiated.offer.guid, guid))
            }
            _ => None,
        }
    }

    /// Walks a path, in any case if not `exact`. All names but the last have to be directories.
    fn walk(
        &mut self,
        root: &Operand<'_>,
        volume: FileId,
        path: &[Vec<u8>],
        exact: bool,
    ) -> Result<WalkOutcome, Stop<Failure>> {
        let cx = &mut self.c.cx;
        let mut file = FileRef {
            ino: volume.ino,
            namespace: volume.namespace,
        };
        let mut named = OpenName::default();
        let Some((last, dirs)) = path.split_last() else {
            let attr = root.getattr(cx)?;
            return Ok(WalkOutcome::Found(ResolvedFile {
                file,
                attr,
                named,
                removable: None,
                made: false,
                base: None,
            }));
        };
        for (n, name) in dirs.iter().enumerate() {
            let (found, next, stored) = match listed(&root.with_file(file), cx, name, exact) {
                Err(Stop::Failed(Error::NotFound | Error::NotDir)) => {
                    return Err(Status::OBJECT_PATH_NOT_FOUND.into());
                }
                found => found?,
            };
            if reparse::is_link(&found.attr) {
                return Ok(WalkOutcome::Link(next, dirs.len() - n));
            }
            if found.attr.kind != FileKind::Directory {
                return Err(Status::OBJECT_PATH_NOT_FOUND.into());
            }
            named.path.push_str(&names::to_client_name(&stored));
            named.path.push('\\');
            file = next;
        }
        named.dir = Some(file.ino);
        let dir = root.with_file(file);
        match listed(&dir, cx, last, exact) {
            Ok((found, child, stored)) => {
                let removable = dir.removes(&found.dir, &found.attr);
                named.path.push_str(&names::to_client_name(&stored));
                named.name = stored;
                Ok(WalkOutcome::Found(ResolvedFile {
                    file: child,
                    attr: found.attr,
                    named,
                    removable: Some(removable),
                    made: false,
                    base: None,
                }))
            }
            Err(Stop::Failed(Error::NotFound)) => {
                named.path.push_str(&names::to_client_name(last));
                named.name = last.clone().into();
                Ok(WalkOutcome::Missing { dir: file, named })
            }
            Err(Stop::Failed(Error::NotDir)) => Err(Status::OBJECT_PATH_NOT_FOUND.into()),
            Err(why) => Err(why.into()),
        }
    }

    /// Makes what is missing.
    fn make(
        &mut self,
        root: &Operand<'_>,
        charged: ChargeProof<MetadataWrite>,
        dir: FileRef,
        named: OpenName,
        request: &Request,
    ) -> Result<ResolvedFile, Stop<Failure>> {
        if !request.disposition.makes() {
            return Err(Status::OBJECT_NAME_NOT_FOUND.into());
        }
        let directory = request.asks(option::DIRECTORY);
        if directory && request.attributes & attributes::TEMPORARY != 0 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if !directory && request.allocation > 0 {
            let dir = root.with_file(dir);
            let attr = dir.getattr(&mut self.c.cx)?;
            has_room(&dir, &attr, request.allocation, 0)?;
        }
        let readonly = request.attributes & attributes::READONLY != 0;
        if readonly && request.asks(option::DELETE_ON_CLOSE) {
            return Err(Status::CANNOT_DELETE.into());
        }
        let dos = request.attributes & attributes::SETTABLE;
        let set = SetAttr {
            mode: Some(request.posix.map_or(MODE, |mode| mode & 0o7777)),
            umask: match (request.posix, directory) {
                (Some(_), _) => 0,
                (None, true) => DIRECTORY_UMASK,
                (None, false) => FILE_UMASK,
            },
            dos: Some(match directory {
                true => dos & !attributes::ARCHIVE,
                false => dos | attributes::ARCHIVE,
            } as u16),
            ..SetAttr::default()
        };
        let dir = root.with_file(dir);
        let call = self.create_name(request).map(|name| self.s.made.key(name));
        let (cx, name) = (&mut self.c.cx, &named.name);
        let done = match directory {
            true => dir.mkdir(cx, charged, name, &set),
            false => {
                cx.set_call(call);
                let done = dir.create(cx, charged, name, CreateHow::Guarded, &set);
                cx.set_call(None);
                done
            }
        };
        let done = match done {
            // Another client made it since the path was walked: now it is there to be opened.
            Err(Stop::Failed(Error::Exists)) if request.disposition != Disposition::Create => {
                return Err(Suspend::Turn.into());
            }
            done => done?,
        };
        self.c.wait_for(done.lsn);
        let found = ResolvedFile {
            file: dir.near(done.value.ino),
            attr: done.value.attr,
            named,
            removable: Some(true),
            made: true,
            base: None,
        };
        self.c.step = Step::Made(Box::new(found.clone()));
        Ok(found)
    }

    /// The access that the open gets (MS-FSA §2.1.5.1.2.1).
    fn grant(
        &self,
        operand: &Operand<'_>,
        found: &ResolvedFile,
        request: &Request,
    ) -> Result<u32, Status> {
        let attr = &found.attr;
        let directory = attr.kind == FileKind::Directory;
        let stored = directory || attr.kind == FileKind::Regular;
        let may = match found.made {
            true => mask::ALL,
            false => allowed(operand, found),
        };
        let wanted = generic(request.wanted);
        let most = wanted & mask::MAXIMUM_ALLOWED != 0;
        let mut granted = wanted & !mask::MAXIMUM_ALLOWED;
        let changes = mask::WRITE_DATA | mask::APPEND_DATA | mask::WRITE_EA | mask::DELETE;
        if operand.file().namespace != Namespace::Live && granted & changes != 0 {
            return Err(Status::MEDIA_WRITE_PROTECTED);
        }
        if granted & !mask::ALL != 0 || request.wanted == 0 || granted & !may != 0 {
            return Err(Status::ACCESS_DENIED);
        }
        if most {
            granted |= may;
        }
        if request.asks(option::DELETE_ON_CLOSE) && granted & mask::DELETE == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        let data = mask::WRITE_DATA | mask::APPEND_DATA;
        if request.disposition.cuts() && !found.made && may & mask::WRITE_DATA == 0 {
            return Err(Status::ACCESS_DENIED);
        }
        // Symbolic links, devices, pipes and sockets of NFS clients are shown, and have no data.
        if reparse::is_link(attr) && most {
            granted &= !data;
        }
        let content = match reparse::is_link(attr) {
            true => data,
            false => data | mask::READ_DATA | mask::EXECUTE,
        };
        if !stored && granted & content != 0 {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(granted)
    }

    /// The lease that is asked for, if the client may have it: from 2.1 on of version 1, from 3.0
    /// on of version 2 as well.
    pub(super) fn lease(&self, request: &Request) -> Option<leases::LeaseRequest> {
        let second = self.conn.dialect() > Some(crate::proto::dialect::Dialect::Smb210);
        request.lease.filter(|wanted| second || !wanted.is_second())
    }

    /// Cuts an open file that is to be overwritten.
    fn cut(
        &mut self,
        session: &Arc<Session>,
        open: &Arc<Open>,
        request: &Request,
    ) -> CommandResult {
        let Some(file) = open.file() else {
            return Err(Status::INVALID_PARAMETER.into());
        };
        let dos = request.attributes & attributes::SETTABLE | attributes::ARCHIVE;
        let set = SetAttr {
            size: Some(0),
            dos: Some(dos as u16),
            ..SetAttr::default()
        };
        let made = Access::Made(&open.owner, &open.key);
        let (operand, charged) = self.enter(session, file.id, made, MetadataWrite)?;
        let done = operand.setattr(&mut self.c.cx, charged, &set, None);
        // Attributes are the owner's to set, the content is not.
        let done = match done {
            Err(Stop::Failed(Error::Perm)) => {
                let (operand, charged) = self.enter(session, file.id, made, MetadataWrite)?;
                let set = SetAttr { dos: None, ..set };
                operand.setattr(&mut self.c.cx, charged, &set, None)
            }
            done => done,
        };
        match done {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                let all = filter::ATTRIBUTES | filter::SIZE | filter::LAST_WRITE;
                self.modified(session, open, all);
                let attr = self.whole(session, open, file, done.value.after)?;
                self.claimed(session, ClaimedOpen::new(Arc::clone(open), attr), request)
            }
            Err(Stop::Failed(error)) => {
                // The client learns of no open.
                session.take(open.id);
                open.end(&self.s.vfs, &self.s.leases);
                Err(error.into())
            }
            Err(why) => Err(why.into()),
        }
    }

    /// The response (§2.2.14).
    pub(crate) fn opened(
        &mut self,
        session: &Session,
        open: Arc<Open>,
        attr: &Attr,
        (action, is_new): (u32, bool),
        request: &Request,
    ) -> CommandResult {
        let maximal = match (request.maximal, open.file()) {
            (true, Some(file)) => {
                let access = Access::Permissions(&session.walker);
                let (operand, _) = self.enter(session, file.id, access, MetadataWrite)?;
                let named = file.named.lock().clone();
                let removable = match named.dir.filter(|_| file.base.is_none()) {
                    Some(dir) => {
                        let dir = operand.with_file(operand.near(dir)).getattr(&mut self.c.cx);
                        match dir {
                            Ok(dir) => Some(operand.removes(&dir, attr)),
                            Err(Stop::Failed(_)) => Some(false),
                            Err(why) => return Err(why.into()),
                        }
                    }
                    None => None,
                };
                let found = ResolvedFile {
                    file: operand.file(),
                    attr: *attr,
                    named,
                    removable,
                    made: false,
                    base: file.base,
                };
                Some(allowed(&operand, &found) | open.access)
            }
            _ => None,
        };
        let id = open.file().map(|file| file.main().id);
        let id = id.map(|id| (id.ino, id.volume));
        let lease = self.c.lease.take();
        let posix = request.posix.map(|_| {
            let mut out = Vec::new();
            entry::put_posix(&mut out, attr, &self.s.domains().known());
            out
        });
        if let Some(form) = request.apple.and_then(apple::Query::form) {
            session.listings.store(form as u8, Ordering::Relaxed);
        }
        if request.apple.is_some() {
            session.is_apple.store(true, Ordering::Relaxed);
        }
        let apple = request.apple.map(apple::Query::answer);
        put_response(
            &mut self.c.out,
            &open,
            action,
            &NetworkOpenInfo::from_attr(attr),
            &ResponseContexts {
                maximal,
                disk_id: id.filter(|_| request.disk_id),
                lease: lease.as_deref(),
                durable: open.durable().filter(|_| is_new),
                posix: posix.as_deref(),
                apple: apple.as_deref(),
            },
        );
        Ok(Status::SUCCESS)
    }

    /// Opens what is no file: a pipe, or the index of quotas.
    fn open_special(&mut self, session: &Session, tree: &Tree, request: &Request) -> CommandResult {
        if let Target::Volume(root) = tree.target {
            return self.open_quotas(session, (tree, root), request);
        }
        let name = request.path.strip_prefix('\\').unwrap_or(&request.path);
        let pipe = Pipe::open(name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let kind = Kind::Pipe(Box::new(Mutex::new(pipe)));
        let open = self.add_open(session, tree, kind, mask::ALL)?;
        let shown = NetworkOpenInfo {
            times: [0; 4],
            allocated: 4096,
            size: 0,
            attributes: attributes::NORMAL,
        };
        put_response(
            &mut self.c.out,
            &open,
            action::OPENED,
            &shown,
            &ResponseContexts::default(),
        );
        Ok(Status::SUCCESS)
    }

    /// Adds an open of what is no file, which has no claim.
    pub(crate) fn add_open(
        &mut self,
        session: &Session,
        tree: &Tree,
        kind: Kind,
        access: u32,
    ) -> Result<Arc<Open>, Status> {
        let id = self.s.open_number();
        let open = Arc::new(Open {
            id,
            session: AtomicU64::new(0),
            tree: AtomicU32::new(tree.id),
            kind,
            access,
            owner: session.walker.clone(),
            key: session.walker.who.clone(),
            hold: Hold::Nothing,
            durable: None,
            persistent: OnceLock::new(),
            parent: None,
            create_guid: None,
            action: AtomicU32::new(action::OPENED),
            sequence: AtomicU16::new(self.header.sequence),
            write_through: false,
        });
        if !session.add(Arc::clone(&open)) {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        self.c.file = Some(id);
        Ok(open)
    }
}

/// Fails unless there is room to allocate `size` bytes to a file beside the one of `attr` that has
/// `used` of them. Nothing is allocated: space is taken as it is written.
pub(crate) fn has_room(
    operand: &Operand<'_>,
    attr: &Attr,
    size: u64,
    used: u64,
) -> Result<(), Status> {
    let more = size.saturating_sub(used);
    match more > 0 && more > operand.available_to_caller(attr) {
        true => Err(Status::DISK_FULL),
        false => Ok(()),
    }
}

/// Checks that the existing file may be opened by this request.
fn check(found: &ResolvedFile, request: &Request) -> Result<(), Status> {
    let attr = &found.attr;
    let directory = entry::shows_directory(attr);
    if request.disposition == Disposition::Create {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    if directory && request.asks(option::NON_DIRECTORY) {
        return Err(Status::FILE_IS_A_DIRECTORY);
    }
    if !directory && request.asks(option::DIRECTORY) {
        return Err(Status::NOT_A_DIRECTORY);
    }
    if request.disposition.cuts() {
        if directory {
            return Err(Status::OBJECT_NAME_COLLISION);
        }
        // To overwrite a hidden file, the request must repeat its hiding attributes (MS-FSA
        // §2.1.5.1.2.1).
        let hides = attributes::HIDDEN | attributes::SYSTEM;
        if u32::from(attr.dos) & hides & !request.attributes != 0 {
            return Err(Status::ACCESS_DENIED);
        }
    }
    if u32::from(attr.dos) & attributes::READONLY != 0 && !directory {
        let writes = mask::WRITE_DATA | mask::APPEND_DATA;
        if generic(request.wanted) & writes != 0 || request.disposition.cuts() {
            return Err(Status::ACCESS_DENIED);
        }
        if request.asks(option::DELETE_ON_CLOSE) {
            return Err(Status::CANNOT_DELETE);
        }
    }
    Ok(())
}
