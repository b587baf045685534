//! Decoding of a CREATE request (MS-SMB2 §2.2.13): its fixed part and its contexts.

use crate::info::ea::{self, Ea};
use crate::info::{apple, previous};
use crate::open::durable;
use crate::open::leases::{self, level};
use crate::proto::names;
use crate::proto::negotiate::POSIX_TAG;
use crate::proto::security::{self, DescriptorUpdate};
use crate::proto::status::Status;
use weir_auth::wire::{DecodeError, Reader, from_utf16, part};

/// Longest path in UTF-16 units.
const MAX_PATH: usize = 32_767;
/// Create contexts that are looked through.
const MOST_CONTEXTS: usize = 32;

/// Bits of CreateOptions (§2.2.13).
pub(crate) mod option {
    pub const DIRECTORY: u32 = 0x1;
    pub const WRITE_THROUGH: u32 = 0x2;
    pub const NON_DIRECTORY: u32 = 0x40;
    pub const DELETE_ON_CLOSE: u32 = 0x1000;
    pub const OPEN_BY_FILE_ID: u32 = 0x2000;
    pub const OPEN_REPARSE_POINT: u32 = 0x20_0000;
}

/// CreateDisposition (§2.2.13), and whether each opens and makes what is there and what is not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    Supersede,
    Open,
    Create,
    OpenIf,
    Overwrite,
    OverwriteIf,
}

impl Disposition {
    fn from_number(number: u32) -> Option<Disposition> {
        use Disposition::{Create, Open, OpenIf, Overwrite, OverwriteIf, Supersede};
        let all = [Supersede, Open, Create, OpenIf, Overwrite, OverwriteIf];
        all.get(number as usize).copied()
    }

    /// Returns true if it creates a missing file.
    pub fn makes(self) -> bool {
        !matches!(self, Disposition::Open | Disposition::Overwrite)
    }

    /// Returns true if it truncates an existing file.
    pub fn cuts(self) -> bool {
        use Disposition::{Overwrite, OverwriteIf, Supersede};
        matches!(self, Supersede | Overwrite | OverwriteIf)
    }
}

/// A CREATE.
pub(crate) struct Request {
    pub wanted: u32,
    pub attributes: u32,
    pub share: u32,
    pub disposition: Disposition,
    pub options: u32,
    pub path: String,
    /// The oplock level that is asked for, or that a lease is.
    pub oplock: u8,
    pub lease: Option<leases::LeaseRequest>,
    /// The durability that is asked for, or the earlier open to take over.
    pub durable: Option<durable::DurableRequest>,
    pub back: Option<durable::Back>,
    /// MxAc and QFid were asked for.
    pub maximal: bool,
    pub disk_id: bool,
    /// The second of a snapshot (TWrp).
    pub second: Option<i64>,
    /// Extended attributes and security of a file that is created (ExtA, SecD).
    pub eas: Vec<Ea>,
    pub security: Option<DescriptorUpdate>,
    /// The mode of a file that is created; only clients with POSIX extensions send it.
    pub posix: Option<u32>,
    /// The query of macOS about the server.
    pub apple: Option<apple::Query>,
    /// Bytes to allocate for what is made or overwritten (AlSi).
    pub allocation: u64,
}

/// Kind of object that a share leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShareType {
    Files,
    Pipes,
}

/// ImpersonationLevel Delegate (§2.2.13), the highest one.
const DELEGATE: u32 = 3;

impl Request {
    /// Decodes the message of a request to open one of `shared`.
    ///
    /// # Errors
    /// The request is malformed, or contradicts itself.
    pub fn decode(message: &[u8], shared: ShareType) -> Result<Request, Status> {
        let mut r = Reader::new(
            message
                .get(crate::proto::header::HEADER..)
                .ok_or(DecodeError)?,
        );
        if r.u16()? != 57 {
            return Err(Status::INVALID_PARAMETER);
        }
        r.u8()?; // Security flags.
        let oplock = r.u8()?;
        let impersonation = r.u32()?;
        r.bytes(16)?;
        let (wanted, attributes, share) = (r.u32()?, r.u32()?, r.u32()?);
        let disposition = Disposition::from_number(r.u32()?);
        let options = r.u32()?;
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let (contexts, contexts_len) = (r.u32()? as usize, r.u32()? as usize);
        if len > 2 * MAX_PATH {
            return Err(Status::INVALID_PARAMETER);
        }
        let mut request = Request {
            wanted,
            attributes,
            share,
            disposition: disposition.unwrap_or(Disposition::Open),
            options,
            path: from_utf16(part(message, offset, len)?)?,
            oplock,
            lease: None,
            durable: None,
            back: None,
            maximal: false,
            disk_id: false,
            second: None,
            eas: Vec::new(),
            security: None,
            posix: None,
            apple: None,
            allocation: 0,
        };
        request.contexts(part(message, contexts, contexts_len)?)?;
        if request.back.is_some() {
            // It is as it was opened, whatever else this says (§3.3.5.9.7).
            return Ok(request);
        }
        request.lease = request.lease.filter(|_| oplock == level::LEASE);
        // No pipe lets its server act for the client on other hosts (MS-SMB §3.3.5.5).
        let delegates = shared == ShareType::Pipes && impersonation == DELEGATE;
        if impersonation > DELEGATE || delegates {
            return Err(Status::BAD_IMPERSONATION_LEVEL);
        }
        let both = option::DIRECTORY | option::NON_DIRECTORY;
        let contradicts = options & both == both;
        // ShareAccess and CreateDisposition of a pipe are ignored (§2.2.13).
        let of_files = || {
            let cuts_directory = request.asks(option::DIRECTORY) && request.disposition.cuts();
            share & !7 != 0 || disposition.is_none() || cuts_directory
        };
        if contradicts || (shared == ShareType::Files && of_files()) {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(request)
    }

    /// Decodes the create contexts (§2.2.13.2). Unknown contexts are skipped.
    fn contexts(&mut self, mut rest: &[u8]) -> Result<(), Status> {
        let mut durable = Vec::new();
        for _ in 0..MOST_CONTEXTS {
            if rest.is_empty() {
                break;
            }
            let mut r = Reader::new(rest);
            let next = r.u32()? as usize;
            let (name_at, name_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
            r.u16()?;
            let (data_at, data_len) = (usize::from(r.u16()?), r.u32()? as usize);
            let data = part(rest, data_at, data_len)?;
            match part(rest, name_at, name_len)? {
                b"RqLs" => self.lease = Some(leases::LeaseRequest::decode(data)?),
                b"TWrp" => self.second = previous::of_context(Reader::new(data).u64()?),
                b"ExtA" => self.eas = ea::decode(data)?,
                b"SecD" => self.security = Some(DescriptorUpdate::decode(data, security::ALL)?),
                b"AlSi" => self.allocation = allocation(data)?,
                b"MxAc" => self.maximal = true,
                b"DHnQ" => durable.push(Ask::New(durable::DurableRequest::first(data)?)),
                b"DH2Q" => durable.push(Ask::New(durable::DurableRequest::second(data)?)),
                b"DHnC" => durable.push(Ask::Back(durable::Back::first(data)?)),
                b"DH2C" => durable.push(Ask::Back(durable::Back::second(data)?)),
                b"QFid" => self.disk_id = true,
                name if name == apple::TAG => self.apple = apple::Query::decode(data)?,
                name if name == POSIX_TAG => self.posix = Some(Reader::new(data).u32()?),
                _ => {}
            }
            match next {
                0 => break,
                next => rest = rest.get(next..).ok_or(DecodeError)?,
            }
        }
        // They exclude each other, but for those of the first version, of which the one that takes
        // over counts (§3.3.5.9.6).
        use durable::DurableRequest::First;
        match durable[..] {
            [] => {}
            [Ask::New(wanted)] => self.durable = Some(wanted),
            [Ask::Back(back)] => self.back = Some(back),
            [Ask::New(First), Ask::Back(back)] | [Ask::Back(back), Ask::New(First)]
                if back.is_first() =>
            {
                self.back = Some(back);
            }
            _ => return Err(Status::INVALID_PARAMETER),
        }
        Ok(())
    }

    /// Leaves the POSIX extensions to clients that have negotiated them: the path is taken as
    /// theirs, or as everybody's.
    pub fn for_client(mut self, has_posix: bool) -> Request {
        self.posix = self.posix.filter(|_| has_posix);
        if self.posix.is_some() {
            self.path = names::of_posix(&self.path);
        }
        self
    }

    /// Returns true if a bit of CreateOptions is set.
    pub fn asks(&self, option: u32) -> bool {
        self.options & option != 0
    }
}

/// Decodes the data of SMB2_CREATE_ALLOCATION_SIZE, a count of bytes (§2.2.13.2.6).
fn allocation(data: &[u8]) -> Result<u64, DecodeError> {
    let size = u64::from_le_bytes(data.try_into().map_err(|_| DecodeError)?);
    match i64::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(DecodeError),
    }
}

/// A context of durable opens.
enum Ask {
    New(durable::DurableRequest),
    Back(durable::Back),
}
