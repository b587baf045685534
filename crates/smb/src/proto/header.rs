//! The header of a message, and the chain that several of them make (MS-SMB2 §2.2.1, §3.3.5.2.7).

use weir_auth::wire::{DecodeError, Put, Reader};

/// Bytes of a header.
pub const HEADER: usize = 64;
/// First bytes of a message.
pub const PROTOCOL: [u8; 4] = [0xfe, b'S', b'M', b'B'];
/// First bytes of an SMB1 message.
pub const SMB1: [u8; 4] = [0xff, b'S', b'M', b'B'];

/// Bits of [`Header::flags`].
pub mod flag {
    /// A response.
    pub const RESPONSE: u32 = 1;
    /// The tree id's place has an async id.
    pub const ASYNC: u32 = 2;
    /// It takes session, tree and file from the one before it in the chain.
    pub const RELATED: u32 = 4;
    /// It is signed.
    pub const SIGNED: u32 = 8;
    /// The request was sent before, on a channel that is lost.
    pub const REPLAY: u32 = 0x2000_0000;
}

/// Numbers of the commands (§2.2.1.2).
#[allow(missing_docs)]
pub mod command {
    pub const NEGOTIATE: u16 = 0;
    pub const SESSION_SETUP: u16 = 1;
    pub const LOGOFF: u16 = 2;
    pub const TREE_CONNECT: u16 = 3;
    pub const TREE_DISCONNECT: u16 = 4;
    pub const CREATE: u16 = 5;
    pub const CLOSE: u16 = 6;
    pub const FLUSH: u16 = 7;
    pub const READ: u16 = 8;
    pub const WRITE: u16 = 9;
    pub const LOCK: u16 = 10;
    pub const IOCTL: u16 = 11;
    pub const CANCEL: u16 = 12;
    pub const ECHO: u16 = 13;
    pub const QUERY_DIRECTORY: u16 = 14;
    pub const CHANGE_NOTIFY: u16 = 15;
    pub const QUERY_INFO: u16 = 16;
    pub const SET_INFO: u16 = 17;
    pub const OPLOCK_BREAK: u16 = 18;
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Message numbers that it uses.
    pub charge: u16,
    /// Channel sequence: the client increases it when it loses a channel (§3.2.4.1.4).
    pub sequence: u16,
    /// The command's number.
    pub command: u16,
    /// Credits that it asks for.
    pub credits: u16,
    /// See [`flag`].
    pub flags: u32,
    /// Offset of the chain's next message from this header; 0 in the last one.
    pub next: u32,
    /// The first of its message numbers.
    pub message: u64,
    /// The client's process, which the server ignores; with [`flag::ASYNC`] half of the async id.
    pub process: u32,
    /// The tree connect; with [`flag::ASYNC`] the other half.
    pub tree: u32,
    /// The session of the request.
    pub session: u64,
}

impl Header {
    /// The header that `message` begins with.
    ///
    /// # Errors
    /// It begins with none.
    pub fn decode(message: &[u8]) -> Result<Header, DecodeError> {
        let mut r = Reader::new(message.get(..HEADER).ok_or(DecodeError)?);
        if r.array()? != PROTOCOL || r.u16()? != HEADER as u16 {
            return Err(DecodeError);
        }
        let charge = r.u16()?;
        let sequence = r.u16()?;
        r.u16()?;
        let command = r.u16()?;
        let credits = r.u16()?;
        let flags = r.u32()?;
        let next = r.u32()?;
        let message = r.u64()?;
        let process = r.u32()?;
        Ok(Header {
            process,
            charge,
            sequence,
            command,
            credits,
            flags,
            next,
            message,
            tree: r.u32()?,
            session: r.u64()?,
        })
    }

    /// The async id, which is where others have the process and the tree connect.
    pub fn async_id(&self) -> u64 {
        u64::from(self.tree) << 32 | u64::from(self.process)
    }

    /// Returns true if a bit of [`flag`] is set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Writes the response's header: this one with what the response says in its place; not signed.
    pub fn put_response(&self, out: &mut Vec<u8>, status: u32, credits: u16) {
        out.put(&PROTOCOL);
        out.put_u16(HEADER as u16);
        out.put_u16(self.charge);
        out.put_u32(status);
        out.put_u16(self.command);
        out.put_u16(credits);
        out.put_u32(flag::RESPONSE | self.flags & (flag::RELATED | flag::SIGNED));
        out.put_u32(0);
        out.put_u64(self.message);
        out.put_u32(0xfeff);
        out.put_u32(self.tree);
        out.put_u64(self.session);
        out.put_zeroes(16);
    }
}

/// The message at `at` of a chain: its header, and itself without those behind it.
///
/// # Errors
/// It is none, or the next one would begin within its header, behind the chain's end or at no
/// multiple of 8 bytes (§3.3.5.2.7).
pub fn link(record: &[u8], at: usize) -> Result<(Header, &[u8]), DecodeError> {
    let rest = record.get(at..).ok_or(DecodeError)?;
    let header = Header::decode(rest)?;
    let end = match header.next as usize {
        0 => rest.len(),
        next if next < HEADER || next % 8 != 0 || next >= rest.len() => return Err(DecodeError),
        next => next,
    };
    Ok((header, &rest[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            charge: 3,
            sequence: 0x22,
            command: command::READ,
            credits: 9,
            flags: flag::SIGNED,
            next: 0,
            message: 77,
            process: 0xfeff,
            tree: 5,
            session: 0x1234_5678_9abc,
        }
    }

    #[test]
    fn a_response_has_what_its_request_had() {
        let mut out = Vec::new();
        header().put_response(&mut out, 0xc000_0022, 17);
        assert_eq!(out.len(), HEADER);
        let back = Header::decode(&out).unwrap();
        let expected = Header {
            credits: 17,
            flags: flag::SIGNED | flag::RESPONSE,
            ..header()
        };
        assert_eq!(back, expected);
        assert_eq!(Header::decode(&out[..63]), Err(DecodeError));
        out[0] = 0xff;
        assert_eq!(Header::decode(&out), Err(DecodeError));
    }

    #[test]
    fn chains_are_cut_where_they_say() {
        let mut one = Vec::new();
        header().put_response(&mut one, 0, 0);
        one.extend_from_slice(&[1; 8]);
        let mut chain = one.clone();
        chain[20..24].copy_from_slice(&72u32.to_le_bytes());
        chain.extend_from_slice(&one);
        let (first, bytes) = link(&chain, 0).unwrap();
        assert_eq!((first.next, bytes.len()), (72, 72));
        let (second, bytes) = link(&chain, 72).unwrap();
        assert_eq!((second.next, bytes.len()), (0, 72));
        for bad in [1u32, 63, 65, 70, 144, 1 << 31, u32::MAX] {
            chain[20..24].copy_from_slice(&bad.to_le_bytes());
            assert_eq!(link(&chain, 0), Err(DecodeError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_chain_or_none(mut bytes in prop::collection::vec(any::<u8>(), 0..300), whole in any::<bool>()) {
            if whole && bytes.len() >= 6 {
                bytes[..4].copy_from_slice(&PROTOCOL);
                bytes[4..6].copy_from_slice(&64u16.to_le_bytes());
            }
            let mut at = 0;
            while let Ok((header, message)) = link(&bytes, at) {
                prop_assert!(message.len() >= HEADER);
                if header.next == 0 {
                    break;
                }
                at += header.next as usize;
            }
        }
    }
}
