//! Stored state of a replication destination.

use weir_store::node::Key;

use super::{put_identity, read_identity};
use crate::format::codec::{Put, Reader};
use weir_base::SnapshotIdentity;

/// The transfer has a base.
const HAS_BASE: u8 = 1;

/// State of a replication destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MirrorRec {
    /// The snapshot that clients see; 0: none yet.
    pub(crate) exported: u32,
    /// The transfer in progress, if any.
    pub(crate) transfer: Option<TransferRec>,
}

/// A transfer in progress. The volume's tree is the base, with every record before `position` as in
/// the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransferRec {
    pub(crate) base: Option<SnapshotIdentity>,
    pub(crate) target: SnapshotIdentity,
    pub(crate) position: Key,
    /// Digest of the data received before the position.
    pub(crate) digest: u64,
    /// Bytes received, before compression and on the wire.
    pub(crate) logical: u64,
    pub(crate) wire: u64,
}

impl MirrorRec {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.exported);
        let Some(t) = &self.transfer else {
            out.put_u8(0);
            return;
        };
        out.put_u8(1);
        match &t.base {
            Some(base) => {
                out.put_u8(HAS_BASE);
                put_identity(out, base);
            }
            None => out.put_u8(0),
        }
        put_identity(out, &t.target);
        out.put(&t.position.encode());
        out.put_u64(t.digest);
        out.put_u64(t.logical);
        out.put_u64(t.wire);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Option<MirrorRec> {
        let exported = r.u32()?;
        let transfer = match r.u8()? {
            0 => None,
            1 => Some(TransferRec {
                base: match r.u8()? {
                    0 => None,
                    HAS_BASE => Some(read_identity(r)?),
                    _ => return None,
                },
                target: read_identity(r)?,
                position: Key::decode(&r.array()?),
                digest: r.u64()?,
                logical: r.u64()?,
                wire: r.u64()?,
            }),
            _ => return None,
        };
        Some(MirrorRec { exported, transfer })
    }
}
