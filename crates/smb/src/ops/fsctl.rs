//! Controls of files (MS-FSCC §2.3): holes, copies within the server, object ids.
//!
//! **Copies.** Chunks that begin and end at block boundaries share the blocks with their source.
//! Others are read as a whole and written, under the limits of the volume. Holes stay holes. A copy
//! that resumes after a wait repeats nothing ([`CopyProgress`]).

use crate::context::run::{Failure, Run};
use crate::context::step::{CopyProgress, Ranges, Step};
use crate::info::entry::attributes;
use crate::open::session::{Access, File, Open, Session};
use crate::proto::mask;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::wire::{Put, Reader};
use weir_base::BLOCK_SIZE;
use weir_vfs::volume::{AtEnd, Seek, SetAttr, Sought, Stability};
use weir_vfs::{DataRead, DataWrite, Error, MetadataRead, MetadataWrite, Stop};

/// Control codes.
mod code {
    pub const IS_PATHNAME_VALID: u32 = 0x0009_002c;
    pub const GET_COMPRESSION: u32 = 0x0009_003c;
    pub const SET_COMPRESSION: u32 = 0x0009_c040;
    pub const GET_OBJECT_ID: u32 = 0x0009_009c;
    pub const SET_REPARSE_POINT: u32 = 0x0009_00a4;
    pub const GET_REPARSE_POINT: u32 = 0x0009_00a8;
    pub const DELETE_REPARSE_POINT: u32 = 0x0009_00ac;
    pub const CREATE_OR_GET_OBJECT_ID: u32 = 0x0009_00c0;
    pub const SET_SPARSE: u32 = 0x0009_00c4;
    pub const SET_ZERO_DATA: u32 = 0x0009_80c8;
    pub const QUERY_ALLOCATED_RANGES: u32 = 0x0009_40cf;
    pub const DUPLICATE_EXTENTS: u32 = 0x0009_8344;
    pub const REQUEST_RESUME_KEY: u32 = 0x0014_0078;
    pub const COPYCHUNK: u32 = 0x0014_40f2;
    pub const COPYCHUNK_WRITE: u32 = 0x0014_80f2;
}

/// Chunks of one copy, bytes of a chunk and bytes of a copy at most: what Windows has (MS-SMB2
/// §3.3.3).
const MOST_CHUNKS: u32 = 256;
const MOST_OF_CHUNK: u32 = 1 << 20;
const MOST_OF_COPY: u32 = 16 << 20;
/// Ranges that a response has at most.
const MOST_RANGES: usize = 65_536;
const BLOCK: u64 = BLOCK_SIZE as u64;
/// Marks the key of a file that is to be copied from.
const KEY: u64 = u64::from_le_bytes(*b"copyfrom");

/// A range to be copied: source, target and length in bytes.
#[derive(Clone, Copy)]
struct Chunk {
    from: u64,
    to: u64,
    len: u32,
}

impl Run<'_> {
    /// A control of an open file: its status and output.
    pub(crate) fn file_control(
        &mut self,
        code: u32,
        halves: (u64, u64),
        input: &[u8],
        most: usize,
    ) -> Result<(Status, Vec<u8>), Stop<Failure>> {
        let known = [
            code::IS_PATHNAME_VALID,
            code::GET_COMPRESSION,
            code::SET_COMPRESSION,
            code::GET_OBJECT_ID,
            code::SET_REPARSE_POINT,
            code::GET_REPARSE_POINT,
            code::DELETE_REPARSE_POINT,
            code::CREATE_OR_GET_OBJECT_ID,
            code::SET_SPARSE,
            code::SET_ZERO_DATA,
            code::QUERY_ALLOCATED_RANGES,
            code::DUPLICATE_EXTENTS,
            code::REQUEST_RESUME_KEY,
            code::COPYCHUNK,
            code::COPYCHUNK_WRITE,
        ];
        if !known.contains(&code) {
            return Err(Status::INVALID_DEVICE_REQUEST.into());
        }
        let (session, open) = (self.session()?, self.open(halves)?);
        let file = open.file().ok_or(Status::INVALID_DEVICE_REQUEST)?;
        let done = |()| (Status::SUCCESS, Vec::new());
        match code {
            code::IS_PATHNAME_VALID => Ok(done(())),
            // Nothing is compressed.
            code::GET_COMPRESSION => Ok((Status::SUCCESS, vec![0; 2])),
            code::SET_COMPRESSION => match Reader::new(input).u16()? {
                0 => Ok(done(())),
                _ => Err(Status::NOT_SUPPORTED.into()),
            },
            code::SET_REPARSE_POINT => self
                .set_reparse_point(&session, &open, file, input)
                .map(done),
            code::GET_REPARSE_POINT => {
                let output = self.reparse_point(&session, &open, file)?;
                Ok((Status::SUCCESS, output))
            }
            code::DELETE_REPARSE_POINT => self
                .delete_reparse_point(&session, &open, file, input)
                .map(done),
            code::CREATE_OR_GET_OBJECT_ID | code::GET_OBJECT_ID => {
                Ok((Status::SUCCESS, object_id(file)))
            }
            code::SET_SPARSE => {
                let sparse = input.first().is_none_or(|flag| *flag != 0);
                self.set_sparse(&session, &open, file, sparse).map(done)
            }
            code::SET_ZERO_DATA => {
                let mut r = Reader::new(input);
                let (from, to) = (r.u64()?, r.u64()?);
                self.set_zero(&session, &open, file, from, to).map(done)
            }
            code::QUERY_ALLOCATED_RANGES => {
                let mut r = Reader::new(input);
                let (from, len) = (r.u64()?, r.u64()?);
                self.ranges(&session, &open, file, (from, len), most)
            }
            code::DUPLICATE_EXTENTS => self.duplicate(&session, &open, file, input).map(done),
            code::REQUEST_RESUME_KEY => {
                if most < 32 {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                let mut out = Vec::new();
                [open.id, session.id, KEY]
                    .iter()
                    .for_each(|word| out.put_u64(*word));
                // No context, of which four bytes are there all the same.
                out.put_u64(0);
                Ok((Status::SUCCESS, out))
            }
            code => self.copy_chunks(&session, &open, file, (code, input), most),
        }
    }

    fn set_sparse(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        sparse: bool,
    ) -> Result<(), Stop<Failure>> {
        let writes = mask::WRITE_DATA | mask::WRITE_ATTRIBUTES;
        if file.directory() {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if open.access & writes == 0 {
            return Err(Status::ACCESS_DENIED.into());
        }
        let (operand, charged) = self.enter(
            session,
            file.id,
            Access::Made(&open.owner, &open.key),
            MetadataWrite,
        )?;
        let attr = operand.getattr(&mut self.c.cx)?;
        let old = attr.dos;
        let bit = attributes::SPARSE as u16;
        let dos = if sparse { old | bit } else { old & !bit };
        if dos == old {
            return Ok(());
        }
        let set = SetAttr {
            dos: Some(dos),
            ..SetAttr::default()
        };
        self.set_attributes(&operand, charged, &set, Some(attr.ctime))
    }

    /// FSCTL_SET_ZERO_DATA: the range becomes a hole, and the file no longer.
    fn set_zero(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        from: u64,
        to: u64,
    ) -> Result<(), Stop<Failure>> {
        if file.directory() {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if !open.may(mask::WRITE_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        if to > i64::MAX as u64 || from > to {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
        let end = to.min(operand.getattr(&mut self.c.cx)?.size);
        if from >= end {
            return Ok(());
        }
        let hole = (from, end - from);
        match operand.punch(&mut self.c.cx, charged, hole, AtEnd::Keep) {
            Err(Stop::Failed(Error::Locked)) => Err(Status::FILE_LOCK_CONFLICT.into()),
            done => {
                self.c.wait_for(done?.lsn);
                Ok(())
            }
        }
    }

    /// FSCTL_QUERY_ALLOCATED_RANGES. A file that was not made sparse has no holes as far as clients
    /// are concerned.
    fn ranges(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        (start, len): (u64, u64),
        most: usize,
    ) -> Result<(Status, Vec<u8>), Stop<Failure>> {
        if file.directory() {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if !open.may(mask::READ_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let end = start.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        let end = end.ok_or(Status::INVALID_PARAMETER)?;
        let mut so_far = match std::mem::take(&mut self.c.step) {
            Step::Ranges(so_far) => *so_far,
            _ => Ranges {
                from: start,
                ..Ranges::default()
            },
        };
        let (operand, _) = self.enter(session, file.id, Access::Open(open), MetadataRead)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        let attr = self.whole(session, open, file, attr)?;
        let end = end.min(attr.size);
        if u32::from(attr.dos) & attributes::SPARSE == 0 {
            so_far.from = end;
            if start < end {
                so_far.found = vec![(start, end - start)];
            }
        }
        while so_far.from < end && so_far.found.len() < MOST_RANGES {
            let (operand, charged) =
                self.enter(session, file.id, Access::Open(open), MetadataRead)?;
            let what = match so_far.begun {
                Some(_) => Seek::Hole,
                None => Seek::Data,
            };
            let sought = match operand.seek(&mut self.c.cx, charged, so_far.from, what) {
                Err(Stop::Suspended(suspend)) => {
                    self.c.step = Step::Ranges(Box::new(so_far));
                    return Err(suspend.into());
                }
                sought => sought?,
            };
            let at = match sought {
                Sought::At(at) => at.min(end),
                Sought::End(_) | Sought::NotBefore(_) => end,
            };
            match so_far.begun.take() {
                Some(begun) => so_far.found.push((begun, at - begun)),
                None if at < end => so_far.begun = Some(at),
                None => {}
            }
            // A range's end may be the place where the next search begins.
            so_far.from = at;
            self.c.renew(&self.s.vfs);
        }
        let fit = most / 16;
        if fit == 0 && !so_far.found.is_empty() {
            return Err(Status::BUFFER_TOO_SMALL.into());
        }
        let status = match so_far.found.len() > fit {
            true => Status::BUFFER_OVERFLOW,
            false => Status::SUCCESS,
        };
        let mut out = Vec::new();
        for (from, len) in so_far.found.iter().take(fit) {
            out.put_u64(*from);
            out.put_u64(*len);
        }
        Ok((status, out))
    }

    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE: whole blocks, shared.
    fn duplicate(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        input: &[u8],
    ) -> Result<(), Stop<Failure>> {
        let mut r = Reader::new(input);
        let source = (r.u64()?, r.u64()?);
        let (from, to, len) = (r.u64()?, r.u64()?, r.u64()?);
        let source = match source {
            (a, b) if a == b => session.open(a),
            _ => None,
        };
        let source = source.ok_or(Status::INVALID_HANDLE)?;
        let of = source.file().ok_or(Status::INVALID_PARAMETER)?;
        if file.directory() || of.directory() {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if !open.may(mask::WRITE_DATA) || !source.may(mask::READ_DATA) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let fits = |at: u64| {
            at.checked_add(len)
                .is_some_and(|end| end <= i64::MAX as u64)
        };
        if !fits(from) || !fits(to) {
            return Err(Status::INVALID_PARAMETER.into());
        }
        if len == 0 {
            return Ok(());
        }
        if file.id == of.id && from.abs_diff(to) < len {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let (operand, charged) = self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
        let (giver, _) = self.enter(session, of.id, Access::Open(&source), MetadataWrite)?;
        let cx = &mut self.c.cx;
        let end = giver.getattr(cx)?.size;
        // Whole clusters, which the source has (MS-FSCC §2.3.8).
        if from >= end || from + len > end.next_multiple_of(BLOCK) {
            return Err(Status::NOT_SUPPORTED.into());
        }
        // A part of a cluster ends where its file does, so that no success covers bytes that were
        // not copied.
        if from + len > end && !len.is_multiple_of(BLOCK) {
            return Err(Status::INVALID_PARAMETER.into());
        }
        match operand.clone_range(cx, charged, to, (&giver, from), len.min(end - from)) {
            Err(Stop::Failed(Error::Locked)) => Err(Status::FILE_LOCK_CONFLICT.into()),
            Err(Stop::Failed(Error::Invalid | Error::CrossDevice)) => {
                Err(Status::INVALID_PARAMETER.into())
            }
            done => {
                self.c.wait_for(done?.lsn);
                Ok(())
            }
        }
    }

    /// FSCTL_SRV_COPYCHUNK and its kind for targets that cannot be read (MS-SMB2 §3.3.5.15.6).
    fn copy_chunks(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        (code, input): (u32, &[u8]),
        most: usize,
    ) -> Result<(Status, Vec<u8>), Stop<Failure>> {
        if most < 12 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let mut r = Reader::new(input);
        let (id, of_session, key) = (r.u64()?, r.u64()?, r.u64()?);
        let count = r.u32()?;
        r.u32()?;
        let limits = || {
            let words = [MOST_CHUNKS, MOST_OF_CHUNK, MOST_OF_COPY];
            (
                Status::INVALID_PARAMETER,
                words.map(u32::to_le_bytes).concat(),
            )
        };
        if count == 0 || count > MOST_CHUNKS {
            return Ok(limits());
        }
        let mut chunks = Vec::with_capacity(count as usize);
        let mut all = 0u32;
        for _ in 0..count {
            let (from, to, len) = (r.u64()?, r.u64()?, r.u32()?);
            r.u32()?;
            if len == 0 || len > MOST_OF_CHUNK {
                return Ok(limits());
            }
            let end = |at: u64| {
                at.checked_add(u64::from(len))
                    .filter(|e| *e <= i64::MAX as u64)
            };
            if end(from).is_none() || end(to).is_none() {
                return Err(Status::INVALID_PARAMETER.into());
            }
            all += len;
            chunks.push(Chunk { from, to, len });
        }
        if all > MOST_OF_COPY {
            return Ok(limits());
        }
        let found = session
            .open(id)
            .filter(|_| (of_session, key) == (session.id, KEY));
        let source = found.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let of = source.file().ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        if file.directory() || of.directory() {
            return Err(Status::INVALID_DEVICE_REQUEST.into());
        }
        let reads_target = code == code::COPYCHUNK_WRITE || open.may(mask::READ_DATA);
        let reads_source = source.access & (mask::READ_DATA | mask::EXECUTE) != 0;
        if !reads_source || !open.may(mask::WRITE_DATA) || !reads_target {
            return Err(Status::ACCESS_DENIED.into());
        }
        let mut copying = match std::mem::take(&mut self.c.step) {
            Step::Copying(copying) => *copying,
            _ => CopyProgress::default(),
        };
        let status = loop {
            let Some(chunk) = chunks.get(copying.chunks) else {
                break Status::SUCCESS;
            };
            match self.copy_chunk(session, (&source, of), (open, file), *chunk, &mut copying) {
                Ok(()) => {}
                Err(Stop::Failed(Failure::Status(status))) => break status,
                Err(Stop::Suspended(suspend)) => {
                    self.c.step = Step::Copying(Box::new(copying));
                    return Err(suspend.into());
                }
                Err(close) => return Err(close),
            }
        };
        if copying.total > 0 && open.writes_through() {
            match self.commit(session, open, file, (0, 0)) {
                Err(Stop::Suspended(suspend)) => {
                    self.c.step = Step::Copying(Box::new(copying));
                    return Err(suspend.into());
                }
                committed => committed?,
            }
        }
        let words = [copying.chunks as u32, copying.within, copying.total];
        Ok((status, words.map(u32::to_le_bytes).concat()))
    }

    /// Copies what is left of a chunk, or a piece of it.
    fn copy_chunk(
        &mut self,
        session: &Session,
        (source, of): (&Arc<Open>, &File),
        (open, file): (&Open, &File),
        chunk: Chunk,
        copying: &mut CopyProgress,
    ) -> Result<(), Stop<Failure>> {
        let lock = |why: Stop| match why {
            Stop::Failed(Error::Locked) => Status::FILE_LOCK_CONFLICT.into(),
            why => Stop::<Failure>::from(why),
        };
        let within = u64::from(copying.within);
        let whole = [chunk.from, chunk.to, u64::from(chunk.len)];
        let shares = whole.iter().all(|n| n % BLOCK == 0) && !copying.piecewise && within == 0;
        if shares {
            let (operand, charged) =
                self.enter(session, file.id, Access::Open(open), MetadataWrite)?;
            let (giver, _) = self.enter(session, of.id, Access::Open(source), MetadataWrite)?;
            let cx = &mut self.c.cx;
            if chunk.from + u64::from(chunk.len) > giver.getattr(cx)?.size {
                return Err(Status::INVALID_VIEW_SIZE.into());
            }
            let len = u64::from(chunk.len);
            match operand.clone_range(cx, charged, chunk.to, (&giver, chunk.from), len) {
                Ok(done) => {
                    self.c.wait_for(done.lsn);
                    copying.chunks += 1;
                    copying.total += chunk.len;
                }
                Err(Stop::Failed(Error::Invalid | Error::CrossDevice)) => {
                    copying.piecewise = true;
                }
                Err(why) => return Err(lock(why)),
            }
            self.c.renew(&self.s.vfs);
            return Ok(());
        }
        let Some(read) = &copying.read else {
            let len = chunk.len as usize;
            let (giver, reads) = self.enter(session, of.id, Access::Open(source), DataRead(len))?;
            let cx = &mut self.c.cx;
            let read = giver.read(cx, reads, chunk.from).map_err(lock)?;
            if read.len < len {
                return Err(Status::INVALID_VIEW_SIZE.into());
            }
            copying.read = Some(read);
            self.c.renew(&self.s.vfs);
            return Ok(());
        };
        let (access, at) = (Access::Open(open), chunk.to + within);
        if let Some((end, hole)) = read.run(within as usize) {
            let part = within as usize..end;
            let len = part.len();
            let lsn = match hole {
                true => {
                    let (operand, charged) = self.enter(session, file.id, access, MetadataWrite)?;
                    let hole = (at, len as u64);
                    let done = operand.punch(&mut self.c.cx, charged, hole, AtEnd::Grow);
                    done.map_err(lock)?.lsn
                }
                false => {
                    let (operand, charged) =
                        self.enter(session, file.id, access, DataWrite(len))?;
                    // Not stable, so that it is written wholly or not at all.
                    let (cx, how) = (&mut self.c.cx, Stability::Unstable);
                    let done = operand.write(cx, charged, at, &read.part(part), how);
                    done.map_err(lock)?.lsn
                }
            };
            self.c.wait_for(lsn);
            copying.within += len as u32;
            copying.total += len as u32;
        }
        if copying.within >= chunk.len {
            copying.within = 0;
            copying.piecewise = false;
            copying.read = None;
            copying.chunks += 1;
        }
        self.c.renew(&self.s.vfs);
        Ok(())
    }
}

/// FILE_OBJECTID_BUFFER (MS-FSCC §2.1.3.1): an inode's number is never used again, so that it is
/// the id.
fn object_id(file: &File) -> Vec<u8> {
    let (id, mut out) = (file.main().id, Vec::with_capacity(64));
    for _ in 0..2 {
        // The id, and the same as that of its birth, with the volume between.
        out.put_u64(id.ino.0);
        out.put_u64(id.volume.0);
    }
    out.put_zeroes(32);
    out
}
