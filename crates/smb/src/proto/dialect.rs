//! Dialects of SMB, and bounds of their messages.

/// A dialect that is spoken, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Dialect {
    /// SMB 2.1.
    Smb210 = 0x0210,
    /// SMB 3.0.
    Smb300 = 0x0300,
    /// SMB 3.0.2.
    Smb302 = 0x0302,
    /// SMB 3.1.1.
    Smb311 = 0x0311,
}

impl Dialect {
    /// Returns its name in ONTAP's notation.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Smb210 => "SMB2_1",
            Dialect::Smb300 => "SMB3",
            Dialect::Smb302 => "SMB3",
            Dialect::Smb311 => "SMB3_1",
        }
    }

    pub(crate) const ALL: [Dialect; 4] = [
        Dialect::Smb311,
        Dialect::Smb302,
        Dialect::Smb300,
        Dialect::Smb210,
    ];
}

/// Longest READ, WRITE and other transfer in bytes.
pub const MAX_TRANSFER: u32 = 1 << 20;
