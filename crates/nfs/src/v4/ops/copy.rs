//! COPY within the server (RFC 7862 §15.2), from any file to any other, also between volumes and
//! out of snapshots.
//!
//! If the ends of a range are those of blocks, and both files are in one volume, the blocks are
//! shared ([`Operand::clone_range`](weir_vfs::Operand::clone_range)): at once, whatever their
//! length. Everything else is read and written as the client would do it, under the limits of both
//! volumes, in pieces. Holes are not read and stay holes. A long copy runs in the background if its
//! client allows that ([`crate::v4::offload`]). Otherwise a request copies at most [`MOST`] bytes:
//! a COPY may do less than is asked, and the client continues from there.

use super::read_write::Stated;
use crate::rpc::xdr::Put;
use crate::v4::args::Copy;
use crate::v4::copy_progress::{CopyProgress, MOST, Next};
use crate::v4::cursor::{Fh, OperationResult, Run};
use crate::v4::status::Status;
use crate::v4::types::put_written;
use std::ops::Range;
use weir_base::BLOCK_SIZE;
use weir_base::limits::MAX_IO;
use weir_vfs::volume::{AtEnd, FileKind, ReadOut, Seek, Sought, Stability};
use weir_vfs::{DataRead, DataWrite, Error, FileId, MetadataRead, MetadataWrite, Stop};

/// Number of bytes that a hole counts for, since making one is work as well.
const HOLE: u64 = BLOCK_SIZE as u64;

/// Number of bytes copied, and their durability.
struct CopyOutcome {
    count: u64,
    stable: Stability,
}

impl Run<'_> {
    /// COPY (RFC 7862 §15.2): from the saved file to the current one.
    pub(in crate::v4) fn copy(&mut self, a: &Copy) -> OperationResult {
        let to = self.file(Status::WrongType)?;
        let from = match self.c.saved {
            Fh::File(file) => file,
            Fh::Pseudo(_) => return Err(Status::WrongType.into()),
            Fh::None => return Err(Status::NoFileHandle.into()),
        };
        if a.between_servers {
            return Err(Status::NotSupp.into());
        }
        let (reads, writes) = (self.stated(&a.from, from)?, self.stated(&a.to, to)?);
        writes.may_write()?;
        if self.c.copying.is_none() {
            let count = self.wanted(a, (from, &reads))?;
            if from == to && a.from_offset.abs_diff(a.to_offset) < count {
                return Err(Status::Inval.into());
            }
            self.renew_context();
            self.c.copying = Some(Box::new(CopyProgress {
                count,
                ..CopyProgress::default()
            }));
        }
        let shared = self.shared(a, (from, &reads), (to, &writes))?;
        let verifier = {
            let (operand, _) = self.enter(to, writes.access(), weir_vfs::Exempt)?;
            operand.write_verifier()
        };
        let long = self.c.copying.as_ref().is_some_and(|c| c.is_long());
        if shared.is_none()
            && long
            && !a.synchronous
            && let Some(offload) = self.offload(a, (from, to), verifier)
        {
            let out = &mut self.c.out;
            out.put_u32(1);
            offload.id.put(out);
            put_written(out, 0, Stability::Unstable, &verifier);
            // `copy_requirements4`: in order, and after the reply.
            out.put_bool(true);
            out.put_bool(false);
            return Ok(Status::Ok);
        }
        let copied = match shared {
            Some(copied) => copied,
            None => self.piecewise(a, (from, &reads), (to, &writes))?,
        };
        let out = &mut self.c.out;
        // `write_response4`: no stateid, since the copy is complete.
        out.put_u32(0);
        put_written(out, copied.count, copied.stable, &verifier);
        // `copy_requirements4`: in order, and before the reply.
        out.put_bool(true);
        out.put_bool(true);
        Ok(Status::Ok)
    }

    /// Returns the number of bytes to copy. INVAL unless the source has them (§15.2.3).
    fn wanted(&mut self, a: &Copy, (from, reads): (FileId, &Stated)) -> Result<u64, Stop<Status>> {
        let (operand, _) = self.enter(from, reads.reading(), weir_vfs::Exempt)?;
        let attr = operand.getattr(&mut self.c.cx)?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IsDir.into()),
            _ => return Err(Status::WrongType.into()),
        }
        let there = attr.size.checked_sub(a.from_offset);
        match (there, a.count) {
            (Some(there), 0) => Ok(there),
            (Some(there), count) if count <= there => Ok(count),
            _ => Err(Status::Inval.into()),
        }
    }

    /// Shares the blocks, if possible.
    fn shared(
        &mut self,
        a: &Copy,
        (from, reads): (FileId, &Stated),
        (to, writes): (FileId, &Stated),
    ) -> Result<Option<CopyOutcome>, Stop<Status>> {
        let Some(copying) = &self.c.copying else {
            unreachable!("a COPY that has begun");
        };
        let count = copying.count;
        if copying.piecewise || count == 0 {
            return Ok((count == 0).then_some(CopyOutcome {
                count,
                stable: Stability::FileSync,
            }));
        }
        let source = self.admit(from, reads.reading())?;
        let (operand, charged) = self.enter(to, writes.access(), MetadataWrite)?;
        let source = operand.beside(&mut self.c.cx, source)?;
        let source = (&source, a.from_offset);
        match operand.clone_range(&mut self.c.cx, charged, a.to_offset, source, count) {
            Ok(done) => {
                self.c.wait_for(done.lsn);
                Ok(Some(CopyOutcome {
                    count,
                    stable: Stability::FileSync,
                }))
            }
            Err(Stop::Failed(Error::Invalid | Error::CrossDevice)) => {
                self.renew_context();
                if let Some(copying) = &mut self.c.copying {
                    copying.piecewise = true;
                }
                Ok(None)
            }
            Err(why) => Err(self.io_failed(why, &operand, Some(writes))),
        }
    }

    /// Reads and writes in pieces.
    fn piecewise(
        &mut self,
        a: &Copy,
        (from, reads): (FileId, &Stated),
        (to, writes): (FileId, &Stated),
    ) -> Result<CopyOutcome, Stop<Status>> {
        let mut copying = self.c.copying.take().unwrap_or_default();
        let outcome = self.pieces(&mut copying, MOST, a, (from, reads), (to, writes));
        let count = copying.done;
        self.c.copying = Some(copying);
        match outcome {
            // Reports the bytes copied before the failure; the next request fails.
            Err(Stop::Failed(_)) if count > 0 => {}
            outcome => outcome?,
        }
        Ok(CopyOutcome {
            count,
            stable: Stability::Unstable,
        })
    }

    /// Copies the next piece, if the client still has both files open.
    pub(in crate::v4) fn copy_piece(
        &mut self,
        c: &mut CopyProgress,
        a: &Copy,
        from: FileId,
        to: FileId,
    ) -> Result<(), Stop<Status>> {
        let (reads, writes) = (self.stated(&a.from, from)?, self.stated(&a.to, to)?);
        writes.may_write()?;
        c.moved = 0;
        self.pieces(c, MAX_IO as u64, a, (from, &reads), (to, &writes))
    }

    /// Copies until everything is done or `most` bytes are moved.
    fn pieces(
        &mut self,
        c: &mut CopyProgress,
        most: u64,
        a: &Copy,
        (from, reads): (FileId, &Stated),
        (to, writes): (FileId, &Stated),
    ) -> Result<(), Stop<Status>> {
        while c.done < c.count && c.moved < most {
            let at = a.from_offset + c.done;
            let target = a.to_offset.checked_add(c.done).ok_or(Status::FBig)?;
            match std::mem::take(&mut c.next) {
                Next::Unknown => {
                    let (operand, charged) = self.enter(from, reads.reading(), MetadataRead)?;
                    let end = match operand.seek(&mut self.c.cx, charged, at, Seek::Data) {
                        Ok(Sought::At(data) | Sought::NotBefore(data)) => data,
                        Ok(Sought::End(size)) => size,
                        Err(why) => return Err(self.io_failed(why, &operand, Some(reads))),
                    };
                    c.next = match end.min(a.from_offset + c.count) {
                        end if end > at => Next::Hole(end - at),
                        _ => Next::Data,
                    };
                }
                Next::Data => {
                    c.next = Next::Data;
                    let left = c.count - c.done;
                    let len = left.min(most - c.moved).min(MAX_IO as u64);
                    // Up to the end of a block, so that no hole of whole blocks is copied in two
                    // parts.
                    let over = (at + len) % BLOCK_SIZE as u64;
                    let len = if len < left && over < len {
                        len - over
                    } else {
                        len
                    } as usize;
                    let (operand, charged) = self.enter(from, reads.reading(), DataRead(len))?;
                    match operand.read(&mut self.c.cx, charged, at) {
                        // The source was truncated meanwhile.
                        Ok(read) if read.len == 0 => return Ok(()),
                        Ok(read) => c.next = Next::Read(Box::new(read), 0),
                        Err(why) => return Err(self.io_failed(why, &operand, Some(reads))),
                    }
                }
                Next::Hole(len) => {
                    c.next = Next::Hole(len);
                    self.copy_hole((target, len), (to, writes))?;
                    c.next = Next::Unknown;
                    c.done += len;
                    c.moved += HOLE;
                }
                Next::Read(read, within) => {
                    let Some((end, hole)) = read.run(within) else {
                        continue;
                    };
                    let written = match hole {
                        true => self.copy_hole((target, (end - within) as u64), (to, writes)),
                        false => self.copy_data((target, &*read, within..end), (to, writes)),
                    };
                    let len = match written {
                        Ok(()) => (end - within) as u64,
                        Err(fail) => {
                            c.next = Next::Read(read, within);
                            return Err(fail);
                        }
                    };
                    c.next = Next::Read(read, end);
                    c.done += len;
                    c.moved += if hole { HOLE } else { len };
                }
            }
            self.renew_context();
        }
        Ok(())
    }

    /// Makes a hole in the target, as long as that of the source.
    fn copy_hole(
        &mut self,
        hole: (u64, u64),
        (to, writes): (FileId, &Stated),
    ) -> Result<(), Stop<Status>> {
        let (operand, charged) = self.enter(to, writes.access(), MetadataWrite)?;
        match operand.punch(&mut self.c.cx, charged, hole, AtEnd::Grow) {
            Ok(done) => self.c.wait_for(done.lsn),
            Err(why) => return Err(self.io_failed(why, &operand, Some(writes))),
        }
        Ok(())
    }

    /// Writes a part of the data that was read.
    fn copy_data(
        &mut self,
        (at, read, part): (u64, &ReadOut, Range<usize>),
        (to, writes): (FileId, &Stated),
    ) -> Result<(), Stop<Status>> {
        let data = read.part(part);
        let (operand, charged) = self.enter(to, writes.access(), DataWrite(data.len()))?;
        // Unstable, so that it is written entirely or not at all.
        match operand.write(&mut self.c.cx, charged, at, &data, Stability::Unstable) {
            Ok(done) => self.c.wait_for(done.lsn),
            Err(why) => return Err(self.io_failed(why, &operand, Some(writes))),
        }
        Ok(())
    }
}
