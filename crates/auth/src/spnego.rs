//! SPNEGO (RFC 4178, MS-SPNG): the wrapping in which a client and a server agree on Kerberos or
//! NTLM. It implements only the DER that its two tokens need. A client that sends NTLM without a
//! wrapping gets it without one (MS-SMB2 §3.3.5.5.3).

use crate::wire::{DecodeError, Put};

/// 1.3.6.1.5.5.2, with tag and length.
const SPNEGO: [u8; 8] = [0x06, 6, 0x2b, 6, 1, 5, 5, 2];
/// The server's name in its first token (MS-SPNG §3.2.5.2).
const HINT: &[u8] = b"not_defined_in_RFC4178@please_ignore";

const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const SEQUENCE: u8 = 0x30;
const APPLICATION: u8 = 0x60;
/// Maximum number of mechanisms that are read.
const MOST_MECHANISMS: usize = 32;

const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Authentication mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Kerberos: 1.2.840.113554.1.2.2 (RFC 4121).
    Kerberos,
    /// Kerberos under the identifier that Windows lists first: 1.2.840.48018.1.2.2 (MS-SPNG §1.9).
    WindowsKerberos,
    /// NTLMSSP: 1.3.6.1.4.1.311.2.2.10.
    Ntlm,
}

impl Mechanism {
    /// All mechanisms, in the order in which the server offers them.
    const ALL: [Mechanism; 3] = [
        Mechanism::WindowsKerberos,
        Mechanism::Kerberos,
        Mechanism::Ntlm,
    ];

    /// Its object identifier, encoded.
    fn oid(self) -> &'static [u8] {
        match self {
            Mechanism::Kerberos => &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2],
            Mechanism::WindowsKerberos => &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2],
            Mechanism::Ntlm => &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10],
        }
    }

    /// Returns true if a server, with Kerberos or without, can speak it.
    fn is_served(self, kerberos: bool) -> bool {
        kerberos || self == Mechanism::Ntlm
    }
}

/// State of the negotiation (RFC 4178 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It has succeeded.
    Completed = 0,
    /// More messages follow.
    Incomplete = 1,
    /// More messages follow, and the client has to prove which mechanisms it offered.
    RequestMic = 3,
}

/// A client's token.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Token<'a> {
    /// The mechanisms that it offers, as they are encoded, which the integrity codes are over. The
    /// first token alone has them.
    pub mechanisms: Option<&'a [u8]>,
    /// The known ones of them, in the client's order.
    offered: Vec<Mechanism>,
    /// The mechanism that it prefers, whose message it sends, if that is known here.
    preferred: Option<Mechanism>,
    /// The mechanism's message.
    pub message: &'a [u8],
    /// The integrity code over the mechanisms.
    pub mic: Option<&'a [u8]>,
}

impl Token<'_> {
    /// Returns the mechanism to use with a client that sent this first token, and whether the
    /// message is that mechanism's. `kerberos`: the server has Kerberos.
    pub fn chosen(&self, kerberos: bool) -> Option<(Mechanism, bool)> {
        let mut offered = self.offered.iter().copied();
        let chosen = offered.find(|mechanism| mechanism.is_served(kerberos))?;
        Some((chosen, self.preferred == Some(chosen)))
    }
}

/// DER, from its front.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: tag and content.
    fn next(&mut self) -> Result<(u8, &'a [u8]), DecodeError> {
        let (&tag, rest) = self.0.split_first().ok_or(DecodeError)?;
        let (&first, mut rest) = rest.split_first().ok_or(DecodeError)?;
        let mut len = usize::from(first);
        if first >= 0x80 {
            let (bytes, after) = rest.split_at_checked(len & 0x7f).ok_or(DecodeError)?;
            if bytes.is_empty() || bytes.len() > 4 {
                return Err(DecodeError);
            }
            len = bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(len).ok_or(DecodeError)?;
        self.0 = after;
        Ok((tag, content))
    }

    /// The content of the next value, which has this tag.
    fn expect(&mut self, tag: u8) -> Result<&'a [u8], DecodeError> {
        match self.next()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(DecodeError),
        }
    }
}

/// The content of the one value of this tag that `bytes` are.
fn only(bytes: &[u8], tag: u8) -> Result<&[u8], DecodeError> {
    let mut der = Der(bytes);
    let content = der.expect(tag)?;
    match der.0 {
        [] => Ok(content),
        _ => Err(DecodeError),
    }
}

/// Reads a client's token.
///
/// # Errors
/// It is none.
pub fn decode(bytes: &[u8]) -> Result<Token<'_>, DecodeError> {
    let mut der = Der(bytes);
    let mut token = Token::default();
    let fields = match der.next()? {
        (APPLICATION, content) => {
            let inner = content.strip_prefix(&SPNEGO).ok_or(DecodeError)?;
            only(only(inner, context(0))?, SEQUENCE)?
        }
        (tag, content) if tag == context(1) => only(content, SEQUENCE)?,
        _ => return Err(DecodeError),
    };
    let first = bytes[0] == APPLICATION;
    let mut fields = Der(fields);
    while !fields.0.is_empty() {
        let (tag, content) = fields.next()?;
        match tag {
            0xa0 if first => {
                token.mechanisms = Some(content);
                let mut list = Der(only(content, SEQUENCE)?);
                for n in 0..MOST_MECHANISMS {
                    if list.0.is_empty() {
                        break;
                    }
                    let oid = list.expect(OID)?;
                    let known = Mechanism::ALL.into_iter().find(|m| m.oid() == oid);
                    token.offered.extend(known);
                    if n == 0 {
                        token.preferred = known;
                    }
                }
            }
            0xa2 => token.message = only(content, OCTETS)?,
            0xa3 => token.mic = Some(only(content, OCTETS)?),
            _ => {}
        }
    }
    match first && token.mechanisms.is_none() {
        true => Err(DecodeError),
        false => Ok(token),
    }
}

/// A value with its tag and length.
fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match len {
        0..0x80 => out.put_u8(len as u8),
        0x80..0x100 => out.put(&[0x81, len as u8]),
        _ => out.put(&[0x82, (len >> 8) as u8, len as u8]),
    }
    parts.iter().for_each(|part| out.put(part));
    out
}

/// The server's first token, in NEGOTIATE: what it speaks.
pub fn offer(kerberos: bool) -> Vec<u8> {
    const GENERAL_STRING: u8 = 0x1b;
    let served = Mechanism::ALL.into_iter().filter(|m| m.is_served(kerberos));
    let oids: Vec<Vec<u8>> = served.map(|m| value(OID, &[m.oid()])).collect();
    let oids: Vec<&[u8]> = oids.iter().map(|oid| &oid[..]).collect();
    let list = value(SEQUENCE, &oids);
    let hint = value(context(0), &[&value(GENERAL_STRING, &[HINT])]);
    let fields = value(
        SEQUENCE,
        &[
            &value(context(0), &[&list]),
            &value(context(3), &[&value(SEQUENCE, &[&hint])]),
        ],
    );
    value(APPLICATION, &[&SPNEGO, &value(context(0), &[&fields])])
}

/// A token in reply to a client's; in the first one `chosen` is what the server has chosen.
pub fn reply(
    state: State,
    chosen: Option<Mechanism>,
    message: &[u8],
    mic: Option<&[u8]>,
) -> Vec<u8> {
    let mut fields = value(context(0), &[&value(ENUMERATED, &[&[state as u8]])]);
    if let Some(chosen) = chosen {
        fields.put(&value(context(1), &[&value(OID, &[chosen.oid()])]));
    }
    if !message.is_empty() {
        fields.put(&value(context(2), &[&value(OCTETS, &[message])]));
    }
    if let Some(mic) = mic {
        fields.put(&value(context(3), &[&value(OCTETS, &[mic])]));
    }
    value(context(1), &[&value(SEQUENCE, &[&fields])])
}

/// Returns the first token of a client, for tests of servers. `None` among the mechanisms stands
/// for one that is not known here.
pub fn first(mechanisms: &[Option<Mechanism>], message: &[u8], mic: Option<&[u8]>) -> Vec<u8> {
    let oid = |m: &Option<Mechanism>| value(OID, &[m.map_or(&[0x2b, 9], |m| m.oid())]);
    let oids: Vec<Vec<u8>> = mechanisms.iter().map(oid).collect();
    let oids: Vec<&[u8]> = oids.iter().map(|oid| &oid[..]).collect();
    let mut fields = value(context(0), &[&value(SEQUENCE, &oids)]);
    fields.put(&value(context(2), &[&value(OCTETS, &[message])]));
    if let Some(mic) = mic {
        fields.put(&value(context(3), &[&value(OCTETS, &[mic])]));
    }
    let fields = value(SEQUENCE, &[&fields]);
    value(APPLICATION, &[&SPNEGO, &value(context(0), &[&fields])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_read_as_they_were_written() {
        let long = vec![7; 300];
        for message in [&b"NTLM"[..], &[0; 0x7f], &[0; 0x80], &long] {
            let bytes = first(&[Some(Mechanism::Ntlm)], message, None);
            assert_eq!(decode(&bytes).unwrap().message, message);
            let chosen = Some(Mechanism::Ntlm);
            let bytes = reply(State::Incomplete, chosen, message, Some(b"code"));
            let token = decode(&bytes).unwrap();
            assert_eq!((token.message, token.mic), (message, Some(&b"code"[..])));
        }
        // The place of a code has the hint in the server's own first token.
        for kerberos in [false, true] {
            let offer = offer(kerberos);
            assert_eq!(offer[1] as usize, offer.len() - 2);
            assert!(offer.ends_with(HINT));
            for mechanism in Mechanism::ALL {
                let oid = mechanism.oid();
                let offers = offer.windows(oid.len()).any(|w| w == oid);
                assert_eq!(offers, kerberos || mechanism == Mechanism::Ntlm);
            }
        }
        assert_eq!(decode(&[]), Err(DecodeError));
        assert_eq!(
            decode(&[0x60, 0x84, 0xff, 0xff, 0xff, 0xff]),
            Err(DecodeError)
        );
    }

    /// The client's order counts, and its message is taken only if it is of the mechanism that is
    /// chosen.
    #[test]
    fn the_first_mechanism_that_both_have_is_chosen() {
        use Mechanism::{Kerberos, Ntlm, WindowsKerberos};
        let all = [Some(WindowsKerberos), Some(Kerberos), None, Some(Ntlm)];
        for (offered, kerberos, chosen) in [
            (&all[..], true, Some((WindowsKerberos, true))),
            (&all[1..], true, Some((Kerberos, true))),
            (&all[2..], true, Some((Ntlm, false))),
            (&all[..], false, Some((Ntlm, false))),
            (&[Some(Ntlm), Some(Kerberos)], true, Some((Ntlm, true))),
            (&[None, Some(Kerberos)], true, Some((Kerberos, false))),
            (&[Some(Kerberos)], false, None),
            (&[None], true, None),
        ] {
            let bytes = first(offered, b"message", None);
            assert_eq!(decode(&bytes).unwrap().chosen(kerberos), chosen);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_token_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            at in 0usize..80,
            with in any::<u8>(),
        ) {
            let _ = decode(&bytes);
            let (kerberos, ntlm) = (Some(Mechanism::Kerberos), Some(Mechanism::Ntlm));
            for mut token in [first(&[kerberos, ntlm], b"message", Some(b"mic")), reply(State::Completed, kerberos, b"m", Some(b"mic"))] {
                if let Some(byte) = token.get_mut(at) {
                    *byte = with;
                }
                let _ = decode(&token);
                let _ = decode(&token[..at.min(token.len())]);
            }
        }
    }
}
