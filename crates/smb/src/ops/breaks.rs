//! OPLOCK_BREAK: the answers to breaks of oplocks and leases (MS-SMB2 §3.3.5.22).

use crate::context::run::{CommandResult, Run};
use crate::open::leases::Hold;
use crate::proto::status::Status;
use weir_auth::wire::{Put, Reader};

impl Run<'_> {
    /// OPLOCK_BREAK.
    pub(crate) fn oplock_break(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        match r.u16()? {
            24 => self.break_of_oplock(r),
            36 => self.break_of_lease(r),
            _ => Err(Status::INVALID_PARAMETER.into()),
        }
    }

    fn break_of_oplock(&mut self, mut r: Reader<'_>) -> CommandResult {
        let level = r.u8()?;
        r.bytes(5)?;
        let halves = (r.u64()?, r.u64()?);
        let open = self.open(halves)?;
        let level = match &open.hold {
            Hold::Oplock(oplock) => self.s.leases.answer_oplock(oplock, level)?,
            Hold::Lease(_) => return Err(Status::INVALID_PARAMETER.into()),
            Hold::Nothing => return Err(Status::INVALID_OPLOCK_PROTOCOL.into()),
        };
        let out = &mut self.c.out;
        out.put_u16(24);
        out.put_u8(level);
        out.put_zeroes(5);
        out.put_u64(halves.0);
        out.put_u64(halves.1);
        Ok(Status::SUCCESS)
    }

    fn break_of_lease(&mut self, mut r: Reader<'_>) -> CommandResult {
        r.u16()?;
        r.u32()?;
        let (key, bits) = (r.array()?, r.u32()?);
        r.u64()?;
        let guid = self.session()?.negotiated.offer.guid;
        self.s.leases.answer_lease((guid, key), bits)?;
        let out = &mut self.c.out;
        out.put_u16(36);
        out.put_u16(0);
        out.put_u32(0);
        out.put(&key);
        out.put_u32(bits);
        out.put_u64(0);
        Ok(Status::SUCCESS)
    }
}
