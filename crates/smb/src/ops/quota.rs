//! Quotas of users (MS-SMB2 §2.2.37.1, §3.3.5.20.4, §3.3.5.21.4; MS-FSCC §2.4.41).
//!
//! A user may ask for his own quota, root for everybody's. Nobody has the right to change quotas
//! over SMB: that is what the APIs are for. Queries are answered on any open of the volume, and on
//! an open of the index of quotas, which is the name that programs open for this purpose.

use crate::context::run::{CommandResult, Operand, Run};
use crate::info::attributes::{NetworkOpenInfo, ResponseContexts, put_response};
use crate::info::entry::attributes;
use crate::open::session::{Access, Kind, Open, Session, Tree};
use crate::ops::request::{Disposition, Request};
use crate::proto::mask;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::domains::SidMap;
use weir_auth::sid::Sid;
use weir_auth::wire::{DecodeError, Put, Reader, part};
use weir_base::BLOCK_SIZE;
use weir_vfs::volume::{QuotaEntry, QuotaId, QuotaLimit, QuotaUsage};
use weir_vfs::{FileId, MetadataRead};

/// The index of the quotas of a volume (MS-FSCC §2.1.5.3), relative to a share's root.
const INDEX: &str = r"$Extend\$Quota:$Q:$INDEX_ALLOCATION";
/// Bytes of a FILE_QUOTA_INFORMATION before its SID.
const FIXED: usize = 40;
/// Least bytes of an entry: a SID has one subauthority or more.
const LEAST: usize = FIXED + 12;
/// A limit that is none.
const NO_LIMIT: u64 = u64::MAX;

/// Returns true if this is the path of the index of quotas.
pub(crate) fn is_index(path: &str) -> bool {
    path.eq_ignore_ascii_case(INDEX)
}

/// Users whose quotas are queried.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UserSelection {
    /// These.
    Listed(Vec<Sid>),
    /// All, from this one on.
    From(Sid),
    /// All, from where the last query ended.
    Next,
}

/// An SMB2_QUERY_QUOTA_INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    /// One entry is returned at most.
    single: bool,
    /// All are listed from the first one on.
    restart: bool,
    wanted: UserSelection,
}

impl Query {
    /// Decodes a query.
    ///
    /// # Errors
    /// INVALID_PARAMETER: it is malformed.
    fn decode(input: &[u8]) -> Result<Query, Status> {
        let mut r = Reader::new(input);
        let (single, restart) = (r.u8()? != 0, r.u8()? != 0);
        r.u16()?;
        let list = r.u32()? as usize;
        let (start, start_at) = (r.u32()? as usize, r.u32()? as usize);
        let wanted = match (list, start) {
            (0, 0) => UserSelection::Next,
            (0, len) => UserSelection::From(read_sid(part(r.rest(), start_at, len)?)?),
            // The start is ignored.
            (len, _) => UserSelection::Listed(read_list(r.bytes(len)?)?),
        };
        Ok(Query {
            single,
            restart,
            wanted,
        })
    }
}

/// Reads a SID that takes all of `bytes`.
fn read_sid(bytes: &[u8]) -> Result<Sid, DecodeError> {
    let mut r = Reader::new(bytes);
    let sid = Sid::read(&mut r)?;
    match r.rest() {
        [] => Ok(sid),
        _ => Err(DecodeError),
    }
}

/// Reads a list of FILE_GET_QUOTA_INFORMATION (MS-FSCC §2.4.41.1).
fn read_list(mut rest: &[u8]) -> Result<Vec<Sid>, DecodeError> {
    let mut all = Vec::new();
    loop {
        let mut r = Reader::new(rest);
        let (next, len) = (r.u32()? as usize, r.u32()? as usize);
        all.push(read_sid(r.bytes(len)?)?);
        match next {
            0 => return Ok(all),
            // Entries that do not overlap are at most as many as their bytes have room for.
            next if next % 4 != 0 || next < rest.len() - r.rest().len() => return Err(DecodeError),
            next => rest = rest.get(next..).ok_or(DecodeError)?,
        }
    }
}

/// Returns the number of the user that a SID means.
fn user(sid: &Sid, known: &SidMap) -> Option<u32> {
    known.number(sid).or_else(|| sid.as_user())
}

/// Appends one FILE_QUOTA_INFORMATION after `last`, the offset of the one before. Returns false,
/// and appends nothing, if `out` would have more than `most` bytes.
fn put_entry(
    out: &mut Vec<u8>,
    last: Option<usize>,
    sid: &Sid,
    entry: &QuotaEntry,
    most: usize,
) -> bool {
    let at = out.len().next_multiple_of(8);
    let sid_len = 8 + 4 * sid.count() as usize;
    if at + FIXED + sid_len > most {
        return false;
    }
    out.align(0, 8);
    if let Some(last) = last {
        out.set_u32(last, (at - last) as u32);
    }
    let limit = |bytes| match bytes {
        0 => NO_LIMIT,
        bytes => bytes,
    };
    let used = u64::try_from(entry.usage.blocks).unwrap_or(0) * BLOCK_SIZE as u64;
    out.put_u32(0);
    out.put_u32(sid_len as u32);
    // The time of the last change is not kept.
    out.put_u64(0);
    out.put_u64(used);
    out.put_u64(limit(entry.limit.soft_bytes));
    out.put_u64(limit(entry.limit.bytes));
    sid.put(out);
    true
}

impl Run<'_> {
    /// Opens the index of quotas of a volume, on which quotas are queried and nothing else.
    pub(crate) fn open_quotas(
        &mut self,
        session: &Session,
        (tree, root): (&Tree, FileId),
        request: &Request,
    ) -> CommandResult {
        if !matches!(request.disposition, Disposition::Open | Disposition::OpenIf) {
            return Err(Status::ACCESS_DENIED.into());
        }
        let (operand, _) = self.enter(
            session,
            root,
            Access::Permissions(&session.walker),
            MetadataRead,
        )?;
        operand.getattr(&mut self.c.cx)?;
        let wanted = mask::generic(request.wanted);
        let read = mask::READ_DATA | mask::READ_ATTRIBUTES | mask::READ_CONTROL;
        // It gives no right that is not checked with each request.
        let granted = match wanted & mask::MAXIMUM_ALLOWED {
            0 => wanted,
            _ => wanted & !mask::MAXIMUM_ALLOWED | read,
        };
        if granted & !mask::ALL != 0 || granted == 0 {
            return Err(Status::ACCESS_DENIED.into());
        }
        let kind = Kind::Quotas(root, Box::default());
        let open = self.add_open(session, tree, kind, granted)?;
        // As Windows has it.
        let attributes =
            attributes::HIDDEN | attributes::SYSTEM | attributes::DIRECTORY | attributes::ARCHIVE;
        let shown = NetworkOpenInfo {
            times: [0; 4],
            allocated: 0,
            size: 0,
            attributes,
        };
        let said = ResponseContexts {
            maximal: request.maximal.then_some(granted | read),
            ..ResponseContexts::default()
        };
        put_response(&mut self.c.out, &open, 1, &shown, &said);
        Ok(Status::SUCCESS)
    }

    /// QUERY_INFO of quotas: `input` says whose, and `most` is the room for the reply in bytes.
    pub(crate) fn query_quotas(
        &mut self,
        session: &Session,
        open: &Arc<Open>,
        (input, most): (&[u8], usize),
    ) -> CommandResult {
        let query = Query::decode(input)?;
        let known = self.s.domains().known();
        let (file, access) = open.in_volume(session).ok_or(Status::NOT_SUPPORTED)?;
        let listing = open.listing().ok_or(Status::NOT_SUPPORTED)?;
        let (operand, _) = self.enter(session, file, access, MetadataRead)?;
        let room = if query.single { 1 } else { most / LEAST + 1 };
        let (listed, users) = match &query.wanted {
            UserSelection::Listed(sids) => (true, those_listed(sids, &operand, &known)?),
            wanted => {
                let first = match wanted {
                    UserSelection::From(sid) => {
                        u64::from(user(sid, &known).ok_or(Status::INVALID_PARAMETER)?)
                    }
                    _ if query.restart => 0,
                    _ => listing.lock().next_user,
                };
                (false, those_from(first, room, &operand, &known))
            }
        };
        let (mut data, mut last, mut put) = (Vec::new(), None, 0);
        for (sid, entry) in users.iter().take(room) {
            let at = data.len().next_multiple_of(8);
            if !put_entry(&mut data, last, sid, entry, most) {
                break;
            }
            (last, put) = (Some(at), put + 1);
            if !listed {
                listing.lock().next_user = u64::from(entry.id.id) + 1;
            }
        }
        let status = match (users.is_empty(), put) {
            (true, _) => return Err(Status::NO_MORE_ENTRIES.into()),
            (false, 0) => return Err(Status::BUFFER_TOO_SMALL.into()),
            (false, put) if listed && put < users.len().min(room) => Status::BUFFER_OVERFLOW,
            _ => Status::SUCCESS,
        };
        self.put_info(&data);
        Ok(status)
    }
}

/// Returns the quotas of the users with these SIDs; all 0 for one that is nobody's here.
///
/// # Errors
/// ACCESS_DENIED: one is of another user than the caller, who is not root.
fn those_listed(
    sids: &[Sid],
    operand: &Operand<'_>,
    known: &SidMap,
) -> Result<Vec<(Sid, QuotaEntry)>, Status> {
    let quota = |sid: &Sid| {
        let uid = user(sid, known);
        if !operand.is_root() && uid != Some(operand.uid()) {
            return Err(Status::ACCESS_DENIED);
        }
        let nothing = QuotaEntry {
            id: QuotaId::user(uid.unwrap_or(0)),
            usage: QuotaUsage::default(),
            limit: QuotaLimit::default(),
        };
        let entry = uid.and_then(|uid| operand.quota_of_user(uid));
        Ok((sid.clone(), entry.unwrap_or(nothing)))
    };
    sids.iter().map(quota).collect()
}

/// Returns the quotas of up to `most` users that the caller may see, from the number `first` on.
fn those_from(
    first: u64,
    most: usize,
    operand: &Operand<'_>,
    known: &SidMap,
) -> Vec<(Sid, QuotaEntry)> {
    let Ok(first) = u32::try_from(first) else {
        // The last number was listed.
        return Vec::new();
    };
    let entries = match operand.is_root() {
        true => operand.quota_users(first, most),
        false => {
            let own = Some(operand.uid()).filter(|uid| *uid >= first);
            own.and_then(|uid| operand.quota_of_user(uid))
                .into_iter()
                .collect()
        }
    };
    let with_sid = |entry: QuotaEntry| (known.user(entry.id.id), entry);
    entries.into_iter().map(with_sid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get_list(sids: &[Sid]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, sid) in sids.iter().enumerate() {
            let len = 8 + 4 * sid.count();
            out.put_u32(if n + 1 < sids.len() { 8 + len } else { 0 });
            out.put_u32(len);
            sid.put(&mut out);
        }
        out
    }

    fn query(flags: [u8; 2], list: u32, start: (u32, u32), rest: &[u8]) -> Vec<u8> {
        let mut out = flags.to_vec();
        out.put_u16(0);
        for n in [list, start.0, start.1] {
            out.put_u32(n);
        }
        out.put(rest);
        out
    }

    #[test]
    fn queries_say_whose_quotas_they_are_of() {
        let sids = [Sid::user(7), Sid::user(8)];
        let list = get_list(&sids);
        let whole = query([1, 0], list.len() as u32, (99, 99), &list);
        assert_eq!(
            Query::decode(&whole),
            Ok(Query {
                single: true,
                restart: false,
                wanted: UserSelection::Listed(sids.to_vec()),
            })
        );
        let mut start = vec![0; 4];
        sids[0].put(&mut start);
        let from = query([0, 1], 0, (16, 4), &start);
        let decoded = Query::decode(&from).unwrap();
        assert_eq!(decoded.wanted, UserSelection::From(sids[0].clone()));
        assert!(decoded.restart && !decoded.single);
        let all = Query::decode(&query([0, 0], 0, (0, 5), &[])).unwrap();
        assert_eq!(all.wanted, UserSelection::Next);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let list = get_list(&[Sid::user(7), Sid::user(8)]);
        let mut overlapping = list.clone();
        overlapping.set_u32(0, 4);
        let mut beyond = list.clone();
        beyond.set_u32(0, 4000);
        let mut odd = list.clone();
        odd.set_u32(0, 25);
        let mut longer = list.clone();
        longer.set_u32(4, 20);
        for bad in [&overlapping, &beyond, &odd, &longer, &list[..30].to_vec()] {
            let whole = query([0, 0], bad.len() as u32, (0, 0), bad);
            assert_eq!(
                Query::decode(&whole),
                Err(Status::INVALID_PARAMETER),
                "{bad:?}"
            );
        }
        // The list, and the start, are within the query.
        let short = query([0, 0], list.len() as u32 + 1, (0, 0), &list);
        assert_eq!(Query::decode(&short), Err(Status::INVALID_PARAMETER));
        let start = query([0, 0], 0, (16, u32::MAX), &list);
        assert_eq!(Query::decode(&start), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn the_index_is_found_in_any_case() {
        assert!(is_index("$extend\\$quota:$q:$index_allocation"));
        assert!(
            !is_index("$Extend\\$Quota") && !is_index("a\\$Extend\\$Quota:$Q:$INDEX_ALLOCATION")
        );
    }

    proptest! {
        #[test]
        fn any_query_is_decoded_or_refused(input in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Query { wanted: UserSelection::Listed(sids), .. }) = Query::decode(&input) {
                prop_assert!(sids.len() <= input.len() / 16);
            }
        }
    }
}
