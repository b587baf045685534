//! IOCTL (MS-SMB2 §3.3.5.15): requests to the server. Controls of files: [`crate::ops::fsctl`].

use crate::context::run::{CommandResult, Failure, Run};
use crate::open::session::Kind;
use crate::proto::dialect::MAX_TRANSFER;
use crate::proto::negotiate;
use crate::proto::status::Status;
use std::net::IpAddr;
use weir_auth::wire::{Put, Reader, part};
use weir_vfs::Stop;

/// Control codes (§2.2.31).
mod code {
    pub const DFS_GET_REFERRALS: u32 = 0x0006_0194;
    pub const DFS_GET_REFERRALS_EX: u32 = 0x0006_01b0;
    pub const PIPE_TRANSCEIVE: u32 = 0x0011_c017;
    pub const QUERY_NETWORK_INTERFACE_INFO: u32 = 0x0014_01fc;
    pub const VALIDATE_NEGOTIATE_INFO: u32 = 0x0014_0204;
}

/// The request is of a file system control: none else exists (§3.3.5.15).
const IS_FSCTL: u32 = 1;
/// Bytes of the response before its output.
const FIXED: usize = 48;

/// Reported speed of an interface in bit/s. Clients only compare it.
const SPEED: u64 = 10_000_000_000;
/// RSS_CAPABLE (§2.2.32.5): several connections to the interface gain something, as cores serve
/// them side by side.
const RSS: u32 = 1;
/// Address families (§2.2.32.5.1).
const INTERNET: u16 = 2;
const INTERNET_6: u16 = 0x17;

/// NETWORK_INTERFACE_INFO (§2.2.32.5) of the address that the client has reached: more connections
/// go there.
fn interface(address: IpAddr) -> [u8; 152] {
    let mut out = Vec::with_capacity(152);
    out.put_u32(0);
    out.put_u32(1);
    out.put_u32(RSS);
    out.put_u32(0);
    out.put_u64(SPEED);
    match address {
        IpAddr::V4(address) => {
            out.put_u16(INTERNET);
            out.put_u16(0);
            out.put(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u16(INTERNET_6);
            out.put_u16(0);
            out.put_u32(0);
            out.put(&address.octets());
        }
    }
    let mut all = [0; 152];
    all[..out.len()].copy_from_slice(&out);
    all
}

impl Run<'_> {
    /// IOCTL.
    pub(crate) fn ioctl(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 57 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        r.u16()?;
        let code = r.u32()?;
        let halves = (r.u64()?, r.u64()?);
        let (at, len) = (r.u32()? as usize, r.u32()? as usize);
        r.u32()?;
        r.bytes(8)?;
        let most = r.u32()?;
        let flags = r.u32()?;
        if most > MAX_TRANSFER || flags != IS_FSCTL {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let input = part(self.message, at, len)?;
        self.charged(input.len().max(most as usize))?;
        let (status, output) = match code {
            code::VALIDATE_NEGOTIATE_INFO => (Status::SUCCESS, self.validate(input)?),
            code::QUERY_NETWORK_INTERFACE_INFO => {
                if self.conn.dialect() < Some(crate::proto::dialect::Dialect::Smb300) {
                    return Err(Status::INVALID_DEVICE_REQUEST.into());
                }
                (Status::SUCCESS, interface(self.conn.local).to_vec())
            }
            code::DFS_GET_REFERRALS | code::DFS_GET_REFERRALS_EX => {
                let extended = code == code::DFS_GET_REFERRALS_EX;
                (Status::SUCCESS, self.referrals(input, extended)?)
            }
            code::PIPE_TRANSCEIVE => {
                let open = self.open(halves)?;
                let Kind::Pipe(pipe) = &open.kind else {
                    return Err(Status::INVALID_DEVICE_REQUEST.into());
                };
                self.transact(pipe, input)?;
                match pipe.lock().read(most as usize) {
                    (data, true) => (Status::BUFFER_OVERFLOW, data),
                    (data, false) => (Status::SUCCESS, data),
                }
            }
            crate::info::previous::ENUMERATE => {
                let (session, open) = (self.session()?, self.open(halves)?);
                let file = open.file().ok_or(Status::INVALID_DEVICE_REQUEST)?;
                self.enumerate_snapshots(&session, &open, file, most as usize)?
            }
            code => self.file_control(code, halves, input, most as usize)?,
        };
        if output.len() > most as usize {
            return Err(Status::BUFFER_TOO_SMALL.into());
        }
        let out = &mut self.c.out;
        let place = (crate::proto::header::HEADER + FIXED) as u32;
        out.put_u16(49);
        out.put_u16(0);
        out.put_u32(code);
        out.put_u64(halves.0);
        out.put_u64(halves.1);
        out.put_u32(place);
        out.put_u32(0);
        out.put_u32(place);
        out.put_u32(output.len() as u32);
        out.put_u32(0);
        out.put_u32(0);
        out.put(&output);
        Ok(status)
    }

    /// FSCTL_VALIDATE_NEGOTIATE_INFO (§3.3.5.15.12): one who changed the negotiation is hung up on.
    fn validate(&self, input: &[u8]) -> Result<Vec<u8>, Stop<Failure>> {
        const CHANGED: Stop<Failure> =
            Stop::Failed(Failure::Close("the negotiation was changed on its way"));
        let negotiated = self.conn.negotiated.get().ok_or(CHANGED)?;
        let (offer, dialect) = (&negotiated.offer, negotiated.dialect);
        if dialect == crate::proto::dialect::Dialect::Smb311 {
            return Err(CHANGED);
        }
        negotiate::validate(input, offer, dialect, (&self.s.guid, self.s.protection)).ok_or(CHANGED)
    }
}
