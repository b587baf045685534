//! Bits of an access mask (MS-SMB2 §2.2.13.1).
#![allow(missing_docs)]

pub const READ_DATA: u32 = 0x1;
pub const WRITE_DATA: u32 = 0x2;
pub const APPEND_DATA: u32 = 0x4;
pub const READ_EA: u32 = 0x8;
pub const WRITE_EA: u32 = 0x10;
pub const EXECUTE: u32 = 0x20;
pub const DELETE_CHILD: u32 = 0x40;
pub const READ_ATTRIBUTES: u32 = 0x80;
pub const WRITE_ATTRIBUTES: u32 = 0x100;
pub const DELETE: u32 = 0x1_0000;
pub const READ_CONTROL: u32 = 0x2_0000;
pub const WRITE_DAC: u32 = 0x4_0000;
pub const WRITE_OWNER: u32 = 0x8_0000;
pub const SYNCHRONIZE: u32 = 0x10_0000;
pub const MAXIMUM_ALLOWED: u32 = 0x200_0000;
pub const GENERIC_ALL: u32 = 0x1000_0000;
pub const GENERIC_EXECUTE: u32 = 0x2000_0000;
pub const GENERIC_WRITE: u32 = 0x4000_0000;
pub const GENERIC_READ: u32 = 0x8000_0000;
/// All access rights of a file.
pub const ALL: u32 = 0x1f_01ff;

/// Generic access as a file's own (MS-SMB2 §2.2.13.1.1).
pub(crate) fn generic(wanted: u32) -> u32 {
    let read = READ_DATA | READ_EA | READ_ATTRIBUTES;
    let write = WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES;
    let both = READ_CONTROL | SYNCHRONIZE;
    let mut out = wanted & 0x0fff_ffff;
    for (bit, own) in [
        (GENERIC_READ, read | both),
        (GENERIC_WRITE, write | both),
        (GENERIC_EXECUTE, EXECUTE | READ_ATTRIBUTES | both),
        (GENERIC_ALL, ALL),
    ] {
        if wanted & bit != 0 {
            out = out & !bit | own;
        }
    }
    out
}
