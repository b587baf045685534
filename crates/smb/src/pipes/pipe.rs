//! Named pipes of IPC$: `srvsvc` (MS-SRVS), by which clients list shares, with calls that are
//! answered from the export table; `lsarpc` ([`crate::pipes::lsa`]), by which they show the names
//! of users; `samr` ([`crate::pipes::samr`]), by which they list users; and `wkssvc`
//! ([`crate::pipes::wkssvc`]), by which they ask what machine this is.

use crate::pipes::rpc::{Binding, Syntax};
use crate::pipes::{lsa, samr, wkssvc};

/// 4b324fc8-1670-01d3-1278-5a47bf6ee188, version 3.
pub(crate) const SRVSVC: Syntax = [
    0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88,
    3, 0, 0, 0,
];

/// Bytes that wait to be read from a pipe, at most; then it takes no more calls.
pub(crate) const MOST_UNREAD: usize = 1 << 20;

/// The service behind a pipe.
#[derive(Clone, Copy)]
pub(crate) enum Endpoint {
    Srvsvc,
    Lsarpc,
    Samr,
    Wkssvc,
}

/// An open pipe.
pub struct Pipe {
    pub(crate) endpoint: Endpoint,
    pub(crate) binding: Binding,
    pub(crate) unread: Vec<u8>,
}

impl Pipe {
    /// The pipe of this name, in any case.
    pub fn open(name: &str) -> Option<Pipe> {
        let all = [
            ("srvsvc", SRVSVC, Endpoint::Srvsvc),
            ("lsarpc", lsa::LSARPC, Endpoint::Lsarpc),
            ("samr", samr::SAMR, Endpoint::Samr),
            ("wkssvc", wkssvc::WKSSVC, Endpoint::Wkssvc),
        ];
        let found = all
            .into_iter()
            .find(|(own, ..)| name.eq_ignore_ascii_case(own));
        found.map(|(name, interface, endpoint)| Pipe {
            endpoint,
            binding: Binding::new(interface, name),
            unread: Vec::new(),
        })
    }

    /// Reads up to `most` bytes, of one fragment at most; and whether more of it is there.
    pub fn read(&mut self, most: usize) -> (Vec<u8>, bool) {
        let fragment = self
            .unread
            .get(8..10)
            .map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let whole = match fragment {
            // The rest of one that was read in part has no length in front.
            0 => self.unread.len(),
            len => len.min(self.unread.len()),
        };
        let rest = self.unread.split_off(most.min(whole));
        let data = std::mem::replace(&mut self.unread, rest);
        let more = data.len() < whole;
        (data, more)
    }
}
