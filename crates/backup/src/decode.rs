//! Decoders of what a bucket returns, without a bucket: for fuzzing.

use crate::vault::Backup;
use crate::{index, manifest, refs, s3};

/// Number of kinds that [`decode_any`] knows.
pub const KINDS: u8 = 7;

/// Decodes bytes of a kind, modulo [`KINDS`]: a segment, a list of segments, an index, references,
/// the object of a backup, a page of a list of objects, a refusal. Returns true if they are of the
/// kind.
#[must_use]
pub fn decode_any(kind: u8, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match kind % KINDS {
        0 => manifest::decode_entries(bytes).is_some(),
        1 => manifest::decode_segments(bytes).is_some(),
        2 => index::decode(bytes).is_some(),
        3 => refs::decode(bytes).is_some(),
        4 => serde_json::from_slice::<Backup>(bytes)
            .is_ok_and(|backup| backup.identity().is_some() && backup.lists().is_ok()),
        5 => s3::page_of_list(&text).is_ok(),
        _ => {
            let status = 300 + bytes.first().map_or(0, |byte| u16::from(*byte));
            !s3::refusal("object", status, &text).to_string().is_empty()
        }
    }
}
