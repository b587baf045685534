//! RQUOTA versions 1 and 2: the quotas of the caller, for `quota` on clients (the program of
//! rquotad; no RFC has it. Version 2 asks for groups as well). It changes nothing: quotas are set
//! by the APIs.

use crate::rpc::message::Credential;
use crate::rpc::xdr::{self, Put, Reader};
use weir_base::BLOCK_SIZE;
use weir_base::limits::MAX_MOUNT_PATH;
use weir_vfs::names::Wait;
use weir_vfs::volume::{QuotaEntry, QuotaId, QuotaKind};
use weir_vfs::{ExportTable, Protocol, Verdict, Vfs};

/// `qr_status`.
mod status {
    pub const OK: u32 = 1;
    pub const NO_QUOTA: u32 = 2;
    pub const NOT_PERMITTED: u32 = 3;
}

/// The decoded arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL: no arguments, no results.
    Null,
    /// GETQUOTA and GETACTIVEQUOTA: the path of an export, or of a directory in it, and an owner;
    /// `None` for a kind of owner that has no quotas.
    Get(&'a [u8], Option<QuotaId>),
}

/// Decodes the arguments of `procedure`; `None` if there is no such procedure. Those that change
/// quotas are not served.
pub fn decode(version: u32, procedure: u32, args: &[u8]) -> Option<xdr::Result<Args<'_>>> {
    let mut r = Reader::new(args);
    match procedure {
        0 => Some(Ok(Args::Null)),
        1 | 2 => Some(get(version, &mut r)),
        _ => None,
    }
}

fn get<'a>(version: u32, r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    let path = r.opaque(MAX_MOUNT_PATH)?;
    let kind = match version {
        1 => 0,
        _ => r.u32()?,
    };
    let id = r.u32()?;
    let owner = match kind {
        0 => Some(QuotaId::user(id)),
        1 => Some(QuotaId::group(id)),
        _ => None,
    };
    Ok(Args::Get(path, owner))
}

/// One call being served.
pub(crate) struct Op<'a> {
    pub(crate) vfs: &'a Vfs,
    pub(crate) table: &'a ExportTable,
    pub(crate) client: std::net::IpAddr,
    /// The address of the server that the client called.
    pub(crate) local: std::net::IpAddr,
    pub(crate) credential: Credential,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Op<'_> {
    /// Serves a call. Returns the look-up to wait for, if the client's admission depends on a name
    /// that is not known yet.
    pub(crate) fn run(&mut self, args: &Args<'_>) -> Option<Wait> {
        let Args::Get(path, owner) = args else {
            return None;
        };
        let text = String::from_utf8_lossy(path);
        let Some((export, _)) = self.table.of_path_at(self.local, &text) else {
            self.out.put_u32(status::NO_QUOTA);
            return None;
        };
        let verdict = |protocol| self.vfs.verdict(export, self.client, protocol);
        let verdict = match verdict(Protocol::Nfsv3) {
            Verdict::Denied => verdict(Protocol::Nfsv4),
            verdict => verdict,
        };
        match verdict {
            Verdict::Rule(_) => {}
            Verdict::Denied => {
                self.out.put_u32(status::NOT_PERMITTED);
                return None;
            }
            Verdict::Unknown(wait) => {
                self.out.put_u32(status::NOT_PERMITTED);
                return Some(wait);
            }
        }
        if owner.is_some_and(|owner| !self.may_ask(owner)) {
            self.out.put_u32(status::NOT_PERMITTED);
            return None;
        }
        match owner.and_then(|owner| export.quota_of(owner)) {
            Some(entry) => {
                self.out.put_u32(status::OK);
                put_quota(self.out, &entry);
            }
            None => self.out.put_u32(status::NO_QUOTA),
        }
        None
    }

    /// Returns true if the caller may know the owner's usage: a user its own and that of its
    /// groups, root everybody's.
    fn may_ask(&self, owner: QuotaId) -> bool {
        let Some(caller) = self.credential.identity() else {
            return false;
        };
        match owner.kind {
            _ if caller.unix.is_root() => true,
            QuotaKind::User => caller.unix.uid == owner.id,
            QuotaKind::Group => caller.unix.in_group(owner.id),
            QuotaKind::Tree => false,
        }
    }
}

/// Appends an `rquota`: numbers of 32 bits, in blocks large enough for them.
fn put_quota(out: &mut Vec<u8>, entry: &QuotaEntry) {
    let blocks = |bytes: u64| bytes.div_ceil(BLOCK_SIZE as u64);
    let used = u64::try_from(entry.usage.blocks).unwrap_or(0);
    let files = u64::try_from(entry.usage.files).unwrap_or(0);
    let limit = &entry.limit;
    let space = [blocks(limit.bytes), blocks(limit.soft_bytes), used];
    let most = space.iter().copied().max().unwrap_or(0);
    let mut scale = 0u32;
    while most >> scale > u64::from(u32::MAX) {
        scale += 1;
    }
    let scaled = |blocks: u64| blocks.div_ceil(1 << scale) as u32;
    // Saturates: more files than 32 bits can count are reported as the maximum.
    let count = |files: u64| u32::try_from(files).unwrap_or(u32::MAX);
    out.put_u32((BLOCK_SIZE as u32) << scale.min(18));
    // Quotas are active.
    out.put_bool(true);
    space.into_iter().for_each(|n| out.put_u32(scaled(n)));
    for n in [limit.files, limit.soft_files, files] {
        out.put_u32(count(n));
    }
    // Soft limits have no grace time.
    out.put_u32(0);
    out.put_u32(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_vfs::volume::{QuotaLimit, QuotaUsage};

    fn words(entry: &QuotaEntry) -> Vec<u32> {
        let mut out = Vec::new();
        put_quota(&mut out, entry);
        let (words, rest) = out.as_chunks::<4>();
        assert!(rest.is_empty());
        words.iter().map(|word| u32::from_be_bytes(*word)).collect()
    }

    #[test]
    fn blocks_are_as_large_as_numbers_of_32_bits_need() {
        let mut entry = QuotaEntry {
            id: QuotaId::user(7),
            usage: QuotaUsage {
                blocks: 3,
                files: 2,
            },
            limit: QuotaLimit {
                bytes: 40_960,
                soft_bytes: 8192,
                files: 5,
                soft_files: 4,
            },
        };
        assert_eq!(words(&entry), [4096, 1, 10, 2, 3, 5, 4, 2, 0, 0]);
        entry.limit.bytes = 1 << 50;
        entry.limit.soft_bytes = 0;
        // 2^38 blocks of 4096 bytes.
        let [size, _, hard, soft, used, ..] = words(&entry)[..] else {
            panic!("too few");
        };
        assert_eq!(u64::from(size) * u64::from(hard), 1 << 50);
        assert_eq!((soft, used), (0, 1));
    }

    #[test]
    fn arguments_of_both_versions() {
        let mut args = Vec::new();
        args.put_opaque(b"/vol1");
        args.put_u32(1);
        args.put_u32(9);
        let group = Args::Get(b"/vol1", Some(QuotaId::group(9)));
        assert_eq!(decode(2, 1, &args), Some(Ok(group)));
        let user = Args::Get(b"/vol1", Some(QuotaId::user(1)));
        assert_eq!(decode(1, 2, &args), Some(Ok(user)));
        assert!(decode(2, 1, &args[..16]).unwrap().is_err());
        assert_eq!(decode(2, 3, &args), None);
    }
}
