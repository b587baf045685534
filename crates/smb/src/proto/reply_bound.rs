//! Upper bound of a reply's size, known before its request is run.

use crate::proto::header::{self, HEADER, PROTOCOL, command};
use weir_base::limits::MAX_IO;

/// Returns the maximum number of data bytes in the reply to `record`: the lengths that its READs,
/// queries and listings ask for (MS-SMB2 §2.2.19, §2.2.31, §2.2.33, §2.2.37). For an encrypted or
/// compressed message, whose requests cannot be read, it is the maximum length of a READ.
pub fn reply_bound(record: &[u8]) -> usize {
    if record.first_chunk() != Some(&PROTOCOL) {
        return MAX_IO;
    }
    let (mut at, mut bound) = (0, 0);
    while let Ok((header, message)) = header::link(record, at) {
        let asked = match header.command {
            command::READ => 4,
            command::QUERY_INFO => 4,
            command::QUERY_DIRECTORY => 28,
            command::IOCTL => 44,
            _ => 0,
        };
        let word = message
            .get(HEADER + asked..)
            .and_then(|rest| rest.first_chunk());
        bound += match (asked, word) {
            (0, _) | (_, None) => 0,
            (_, Some(word)) => (u32::from_le_bytes(*word) as usize).min(MAX_IO),
        };
        match header.next {
            0 => break,
            next => at += next as usize,
        }
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(command: u16, next: u32, at: usize, asked: u32, len: usize) -> Vec<u8> {
        let mut out = vec![0; HEADER + len];
        out[..4].copy_from_slice(&PROTOCOL);
        out[4..6].copy_from_slice(&(HEADER as u16).to_le_bytes());
        out[12..14].copy_from_slice(&command.to_le_bytes());
        out[20..24].copy_from_slice(&next.to_le_bytes());
        out[HEADER + at..HEADER + at + 4].copy_from_slice(&asked.to_le_bytes());
        out
    }

    #[test]
    fn what_is_asked_for_adds_up_over_a_chain() {
        let read = message(command::READ, 0, 4, 65_536, 48);
        assert_eq!(reply_bound(&read), 65_536);
        let first = message(command::READ, 112, 4, u32::MAX, 48);
        let listing = message(command::QUERY_DIRECTORY, 0, 28, 1000, 32);
        assert_eq!(reply_bound(&[first, listing].concat()), MAX_IO + 1000);
        assert_eq!(reply_bound(&message(command::CLOSE, 0, 4, 9, 24)), 0);
        // Sealed: nobody knows.
        assert_eq!(reply_bound(&[0xfd, b'S', b'M', b'B', 1, 2]), MAX_IO);
        assert_eq!(reply_bound(&read[..HEADER + 6]), 0);
    }
}
