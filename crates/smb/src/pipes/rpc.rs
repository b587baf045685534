//! DCE/RPC over a named pipe (MS-RPCE, C706 §12): BIND and REQUEST of one interface, in
//! little-endian NDR32.
//!
//! A pipe keeps the responses that have not been read. Requests have one fragment, since the calls
//! that are served have short arguments. A request that is not understood is answered with a fault,
//! or ends the binding.

use crate::proto::status::Status;
use weir_auth::sid::Sid;
use weir_auth::wire::{DecodeError, Put, Reader, from_utf16};

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const FAULT: u8 = 3;
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const ALTER_CONTEXT: u8 = 14;
const ALTER_CONTEXT_RESPONSE: u8 = 15;
/// First and last fragment.
const WHOLE: u8 = 3;
const FIRST: u8 = 1;
const LAST: u8 = 2;
/// Longest fragment that is sent.
const FRAGMENT: usize = 4280;
/// Bytes before a response's stub.
const HEADER: usize = 24;
/// Contexts of one BIND.
const MOST_CONTEXTS: usize = 16;
/// nca_s_op_rng_error: no such operation.
pub const NO_SUCH_OPERATION: u32 = 0x1c01_0002;
/// nca_s_fault_ndr: the arguments cannot be read.
pub const BAD_ARGUMENTS: u32 = 0x0000_06f7;

/// An interface: its identity with its version, as on the wire.
pub type Syntax = [u8; 20];

/// NDR32, version 2 (C706 §14).
const NDR: Syntax = [
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60,
    2, 0, 0, 0,
];

/// A call that was read: its number and its arguments.
pub struct Call<'a> {
    id: u32,
    context: u16,
    /// Number of the operation.
    pub operation: u16,
    /// Its arguments in NDR.
    pub stub: &'a [u8],
}

/// The request in a fragment.
pub enum FragmentOutcome<'a> {
    /// The fragment is answered already.
    Nothing,
    /// A call.
    Call(Call<'a>),
}

/// A binding to an interface.
pub struct Binding {
    interface: Syntax,
    /// The name of the endpoint, as the response to BIND has it.
    endpoint: &'static str,
    /// The presentation context of the interface, once it is bound.
    context: Option<u16>,
}

fn put_header(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32) {
    out.put(&[5, 0, kind, flags, 0x10, 0, 0, 0]);
    out.put_u16(0);
    out.put_u16(0);
    out.put_u32(id);
}

fn close(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u16;
    out[start + 8..start + 10].copy_from_slice(&len.to_le_bytes());
}

impl Binding {
    /// Returns a binding without a presentation context.
    pub fn new(interface: Syntax, endpoint: &'static str) -> Binding {
        Binding {
            interface,
            endpoint,
            context: None,
        }
    }

    /// Reads a fragment. Responses that do not need the interface are appended to `out`.
    ///
    /// # Errors
    /// The fragment is malformed, and the pipe cannot be used any more.
    pub fn accept<'f>(
        &mut self,
        fragment: &'f [u8],
        out: &mut Vec<u8>,
    ) -> Result<FragmentOutcome<'f>, DecodeError> {
        let mut r = Reader::new(fragment);
        let [5, _, kind, flags, 0x10, _, _, _] = r.array()? else {
            return Err(DecodeError);
        };
        let (len, auth) = (usize::from(r.u16()?), r.u16()?);
        let id = r.u32()?;
        if len != fragment.len() || auth != 0 || flags & WHOLE != WHOLE {
            return Err(DecodeError);
        }
        match kind {
            BIND | ALTER_CONTEXT => {
                self.bind(kind, id, r, out)?;
                Ok(FragmentOutcome::Nothing)
            }
            REQUEST => {
                r.u32()?;
                let (context, operation) = (r.u16()?, r.u16()?);
                let call = Call {
                    id,
                    context,
                    operation,
                    stub: r.rest(),
                };
                if self.context != Some(context) {
                    fault(out, &call, NO_SUCH_OPERATION);
                    return Ok(FragmentOutcome::Nothing);
                }
                Ok(FragmentOutcome::Call(call))
            }
            _ => Err(DecodeError),
        }
    }

    fn bind(
        &mut self,
        kind: u8,
        id: u32,
        mut r: Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        r.bytes(8)?;
        let count = usize::from(r.u8()?);
        r.bytes(3)?;
        if count == 0 || count > MOST_CONTEXTS {
            return Err(DecodeError);
        }
        let mut results = Vec::new();
        for _ in 0..count {
            let (context, transfers) = (r.u16()?, r.u8()?);
            r.u8()?;
            let interface: Syntax = r.array()?;
            let mut ndr = false;
            for _ in 0..transfers {
                let transfer: Syntax = r.array()?;
                ndr |= transfer == NDR;
            }
            // Refused by the provider (2): no such interface (1), or no such transfer syntax (2).
            results.push(match (interface == self.interface, ndr) {
                (true, true) => {
                    self.context = Some(context);
                    (0u16, 0u16)
                }
                (false, _) => (2, 1),
                (true, false) => (2, 2),
            });
        }
        let start = out.len();
        let answer = match kind {
            BIND => BIND_ACK,
            _ => ALTER_CONTEXT_RESPONSE,
        };
        put_header(out, answer, WHOLE, id);
        out.put_u16(FRAGMENT as u16);
        out.put_u16(FRAGMENT as u16);
        out.put_u32(1);
        let endpoint = format!("\\PIPE\\{}\0", self.endpoint);
        out.put_u16(endpoint.len() as u16);
        out.put(endpoint.as_bytes());
        out.align(start, 4);
        out.put_u8(results.len() as u8);
        out.put_zeroes(3);
        for (result, reason) in results {
            out.put_u16(result);
            out.put_u16(reason);
            match result {
                0 => out.put(&NDR),
                _ => out.put_zeroes(20),
            }
        }
        close(out, start);
        Ok(())
    }
}

/// Writes the response to a call, in as many fragments as it takes.
pub fn respond(out: &mut Vec<u8>, call: &Call<'_>, stub: &[u8]) {
    let pieces: Vec<&[u8]> = match stub {
        [] => vec![&[]],
        stub => stub.chunks(FRAGMENT - HEADER).collect(),
    };
    let mut left = stub.len();
    for (n, piece) in pieces.iter().enumerate() {
        let start = out.len();
        let mut flags = 0;
        if n == 0 {
            flags |= FIRST;
        }
        if n + 1 == pieces.len() {
            flags |= LAST;
        }
        put_header(out, RESPONSE, flags, call.id);
        out.put_u32(left as u32);
        out.put_u16(call.context);
        out.put_u16(0);
        out.put(piece);
        close(out, start);
        left -= piece.len();
    }
}

/// Writes a fault in response to a call.
pub fn fault(out: &mut Vec<u8>, call: &Call<'_>, status: u32) {
    let start = out.len();
    put_header(out, FAULT, WHOLE, call.id);
    out.put_u32(0);
    out.put_u16(call.context);
    out.put_u16(0);
    out.put_u32(status);
    out.put_u32(0);
    close(out, start);
}

/// A pointer that leads somewhere; the number has no meaning.
pub const POINTER: u32 = 0x0002_0000;

/// Encoder of a call's results in NDR32 (C706 §14). The objects of a structure's pointers follow
/// the whole structure. Its strings are written by [`Results::put_texts`], in their order.
#[derive(Default)]
pub struct Results {
    out: Vec<u8>,
    texts: Vec<String>,
}

impl Results {
    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.out.align(0, 2);
        self.out.put_u16(value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.out.align(0, 4);
        self.out.put_u32(value);
    }

    /// Several times four bytes.
    pub fn u32s<const N: usize>(&mut self, values: [u32; N]) {
        values.into_iter().for_each(|value| self.u32(value));
    }

    /// Eight bytes in two halves (OLD_LARGE_INTEGER, MS-SAMR §2.2.2.2).
    pub fn large(&mut self, value: u64) {
        self.out.align(0, 4);
        self.out.put_u64(value);
    }

    /// Eight bytes (LARGE_INTEGER).
    pub fn hyper(&mut self, value: u64) {
        self.out.align(0, 8);
        self.out.put_u64(value);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.put(bytes);
    }

    /// A string (RPC_UNICODE_STRING, MS-DTYP §2.3.10) of 32,767 units at most, whose letters follow
    /// with [`Results::put_texts`].
    pub fn text(&mut self, text: &str) {
        let len = 2 * text.encode_utf16().count() as u16;
        self.u32(u32::from(len) << 16 | u32::from(len));
        self.u32(POINTER);
        self.texts.push(text.to_owned());
    }

    /// The letters of the strings so far.
    pub fn put_texts(&mut self) {
        for text in std::mem::take(&mut self.texts) {
            let units = text.encode_utf16().count() as u32;
            self.u32s([units, 0, units]);
            self.out.put_utf16(&text);
        }
    }

    /// An identifier, to which a pointer leads (RPC_SID).
    pub fn sid(&mut self, sid: &Sid) {
        self.u32(sid.count());
        sid.put(&mut self.out);
    }

    /// All of them, with what the call came to.
    pub fn done(mut self, status: Status) -> Vec<u8> {
        self.u32(status.0);
        self.out
    }
}

/// Reads a pointer to a string (a unique one, with its string behind it).
///
/// # Errors
/// It is none.
pub fn string(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let (most, first, units) = (r.u32()?, r.u32()?, r.u32()?);
    if first != 0 || units > most {
        return Err(DecodeError);
    }
    let bytes = r.bytes(2 * units as usize)?;
    if units % 2 == 1 {
        // The padding may be missing at the very end.
        let _ = r.bytes(2);
    }
    let text = from_utf16(bytes)?;
    Ok(text.trim_end_matches('\0').to_owned())
}

/// Reads past the name of the server that is asked, which may be left out.
///
/// # Errors
/// It is none.
pub fn server_name(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    if r.u32()? != 0 {
        string(r)?;
    }
    Ok(())
}

/// Writes a string that ends with a zero, aligned.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    let units = text.encode_utf16().count() as u32 + 1;
    out.put_u32(units);
    out.put_u32(0);
    out.put_u32(units);
    out.put_utf16(text);
    out.put_u16(0);
    out.align(0, 4);
}
