//! Changes that CHANGE_NOTIFY reports (MS-SMB2 §2.2.35).

pub const FILE_NAME: u32 = 0x1;
pub const DIR_NAME: u32 = 0x2;
pub const ATTRIBUTES: u32 = 0x4;
pub const SIZE: u32 = 0x8;
pub const LAST_WRITE: u32 = 0x10;
pub const LAST_ACCESS: u32 = 0x20;
pub const CREATION: u32 = 0x40;
pub const EA: u32 = 0x80;
pub const SECURITY: u32 = 0x100;
