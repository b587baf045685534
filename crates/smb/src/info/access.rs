//! Access of a caller to a file, in bits of [`mask`], and the modes that an open with such access
//! uses and denies in the table of claims.

use crate::context::run::Operand;
use crate::context::step::ResolvedFile;
use crate::proto::mask;
use weir_vfs::claims::Modes;
use weir_vfs::volume::{FileKind, Guard};
use weir_vfs::{FileRef, OpContext};

/// Returns the access that the caller could be granted to a file, by its mode or its list.
pub(crate) fn allowed(operand: &Operand<'_>, found: &ResolvedFile) -> u32 {
    let attr = &found.attr;
    let may = operand.permitted(attr);
    let directory = attr.kind == FileKind::Directory;
    let mut out = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::READ_EA | mask::SYNCHRONIZE;
    if may.read {
        out |= mask::READ_DATA;
    }
    // A caller who may read a file may run it, as far as the server is concerned.
    if may.execute || (may.read && !directory) {
        out |= mask::EXECUTE;
    }
    if may.write {
        out |= mask::WRITE_DATA
            | mask::APPEND_DATA
            | mask::WRITE_EA
            | mask::WRITE_ATTRIBUTES
            | mask::DELETE_CHILD;
    }
    if let Guard::Granted(granted) = attr.guard
        && operand.may_change()
    {
        // The list says more than a mode can.
        out |= granted & mask::ALL;
    }
    if operand.owns(attr) {
        out |= mask::WRITE_ATTRIBUTES | mask::WRITE_DAC | mask::WRITE_OWNER;
    }
    match found.removable {
        Some(true) => out | mask::DELETE,
        Some(false) => out & !mask::DELETE,
        None => out,
    }
}

/// Returns the modes that an open with this access uses.
pub(crate) fn modes(granted: u32) -> Modes {
    let mut modes = Modes::NONE;
    if granted & (mask::READ_DATA | mask::EXECUTE) != 0 {
        modes = modes | Modes::READ;
    }
    if granted & (mask::WRITE_DATA | mask::APPEND_DATA) != 0 {
        modes = modes | Modes::WRITE;
    }
    if granted & mask::DELETE != 0 {
        modes = modes | Modes::DELETE;
    }
    modes
}

/// Returns the modes that an open with this ShareAccess denies to others.
pub(crate) fn denied(share: u32) -> Modes {
    let mut deny = Modes::NONE;
    for (bit, mode) in [(1, Modes::READ), (2, Modes::WRITE), (4, Modes::DELETE)] {
        if share & bit == 0 {
            deny = deny | mode;
        }
    }
    deny
}

/// Returns the entry of a directory with a name, in any case if not `exact`, and the name as it is
/// stored.
pub(crate) fn listed(
    dir: &Operand<'_>,
    cx: &mut OpContext,
    name: &[u8],
    exact: bool,
) -> weir_vfs::OpResult<(weir_vfs::volume::LookupOut, FileRef, Box<[u8]>)> {
    match exact {
        true => {
            let (found, file) = dir.listed(cx, name)?;
            Ok((found, file, name.into()))
        }
        false => dir.listed_folded(cx, name),
    }
}
