//! Kerberos' message tokens (RFC 4121 §4.2), implemented without the library.
//!
//! **Reason.** The library establishes contexts, which involves tickets, keytabs and realms. After
//! that, each message needs only a checksum or a cipher, with keys that do not change. The library
//! takes three to six times as long for it as the processor needs, copies each message several
//! times, and admits one thread at a time to a context. So the context's keys are exported from the
//! library ([`Keys`]), and all threads use the context at once. Contexts of types that are not
//! implemented here ([`enctype`]) stay with the library.
//!
//! **Tokens.** A token has a header of 16 bytes:
//! - the kind of token;
//! - flags: the sender accepted the context; the message is encrypted; the acceptor's key is used;
//! - for encrypted messages, the number of filler bytes behind the message (EC), and the number of
//!   bytes by which the part behind the header was rotated right (RRC);
//! - a number that counts the sender's tokens.
//!
//! A MIC is the header and a checksum of message and header. A Wrap token that encrypts is the
//! header and the cipher text of message, filler and header, there with an RRC of 0.
//!
//! **Numbers.** RPCSEC_GSS has a window of its own and does not use the
//! mechanism's (RFC 2203 §5.2.2). So the number of a token is not compared with earlier ones; it is
//! checked only that the header is the encrypted one.

mod cbc;
mod enctype;
#[cfg(target_arch = "x86_64")]
mod ni;

use crate::gss::{Mic, Protection, UnwrappedMessage};
use cbc::Aes;
use enctype::{CONFOUNDER, Checksum, Cipher, Enctype};
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::Rng;

/// Bytes of a token's header.
const HEADER: usize = 16;
type Header = [u8; HEADER];

/// First two bytes of a token: MIC and Wrap.
const MIC: [u8; 2] = [4, 4];
const WRAP: [u8; 2] = [5, 4];

/// Flags of a token (RFC 4121 §4.2.2).
mod flag {
    /// By the acceptor of the context.
    pub const ACCEPTOR: u8 = 1;
    /// The message of a Wrap token is encrypted, not only protected by a checksum.
    pub const SEALED: u8 = 2;
    /// Under the key that the acceptor chose.
    pub const SUBKEY: u8 = 4;
}

/// Usages of keys (RFC 4121 §2).
mod usage {
    pub const ACCEPTOR_SEAL: u32 = 22;
    pub const ACCEPTOR_SIGN: u32 = 23;
    pub const INITIATOR_SEAL: u32 = 24;
    pub const INITIATOR_SIGN: u32 = 25;
}

/// The keys of a context that is established, as its mechanism exports them.
pub struct Keys<'k> {
    /// True if this side initiated the context, false if it accepted it.
    pub initiator: bool,
    /// Number of the next token.
    pub next: u64,
    /// Type and bytes of the initiator's key.
    pub key: (u32, &'k [u8]),
    /// Type and bytes of the key that the acceptor chose, if it did.
    pub subkey: Option<(u32, &'k [u8])>,
}

/// Cipher and checksum for the tokens of one side, under one key.
struct Sender {
    cipher: Box<dyn Cipher>,
    checksum: Box<dyn Checksum>,
}

impl Sender {
    fn new((number, key): (u32, &[u8]), initiator: bool) -> Option<Sender> {
        let enctype = Enctype::from_number(number)?;
        let (seal, sign) = match initiator {
            true => (usage::INITIATOR_SEAL, usage::INITIATOR_SIGN),
            false => (usage::ACCEPTOR_SEAL, usage::ACCEPTOR_SIGN),
        };
        Some(Sender {
            cipher: enctype.cipher(key, seal)?,
            checksum: enctype.checksum(key, sign)?,
        })
    }
}

/// A context: see the module's head.
pub struct Context {
    /// Flags of the tokens of this side.
    flags: u8,
    next: AtomicU64,
    own: Sender,
    /// Protects the peer's tokens: under the initiator's key, and under the acceptor's.
    peer: Sender,
    peer_subkey: Option<Sender>,
    /// Encrypts the numbers of tokens: the results are unpredictable and never repeat.
    confounders: Aes,
}

impl Context {
    /// Creates a context with these keys; `None` if they are of a type that is not implemented
    /// here.
    pub fn new(keys: &Keys<'_>, rng: &dyn Rng) -> Option<Context> {
        let own_key = keys.subkey.unwrap_or(keys.key);
        let subkey = keys.subkey.map(|key| Sender::new(key, !keys.initiator));
        let mut secret = [0; 16];
        rng.fill(&mut secret);
        let acceptor = match keys.initiator {
            true => 0,
            false => flag::ACCEPTOR,
        };
        let chosen = match keys.subkey {
            Some(_) => flag::SUBKEY,
            None => 0,
        };
        Some(Context {
            flags: acceptor | chosen,
            next: AtomicU64::new(keys.next),
            own: Sender::new(own_key, keys.initiator)?,
            peer: Sender::new(keys.key, !keys.initiator)?,
            peer_subkey: match subkey {
                Some(made) => Some(made?),
                None => None,
            },
            confounders: Aes::new(&secret)?,
        })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn confounder(&self, number: u64) -> [u8; CONFOUNDER] {
        let mut block = [0; CONFOUNDER];
        block[..8].copy_from_slice(&number.to_be_bytes());
        self.confounders.encrypt_block(&mut block);
        block
    }

    /// Returns the key set for a token of the peer, selected by its header; `None` if the token is
    /// of another kind, or not by the peer.
    fn sender(&self, header: &Header, kind: [u8; 2], sealed: u8) -> Option<&Sender> {
        let flags = header[2];
        let by_acceptor = self.flags & flag::ACCEPTOR == 0;
        let fits = header[..2] == kind
            && (flags & flag::ACCEPTOR != 0) == by_acceptor
            && flags & flag::SEALED == sealed;
        match flags & flag::SUBKEY {
            _ if !fits => None,
            0 => Some(&self.peer),
            _ => self.peer_subkey.as_ref(),
        }
    }
}

/// Returns the header of a token: of a MIC unless `flags` says that it is encrypted.
fn header(kind: [u8; 2], flags: u8, number: u64) -> Header {
    let mut header = [0xff; HEADER];
    header[..2].copy_from_slice(&kind);
    header[2] = flags;
    if flags & flag::SEALED != 0 {
        // No filler, not rotated.
        header[4..8].fill(0);
    }
    header[8..].copy_from_slice(&number.to_be_bytes());
    header
}

impl Protection for Context {
    fn verify(&self, message: &[u8], mic: &[u8]) -> bool {
        let Some((header, sum)) = mic.split_first_chunk::<HEADER>() else {
            return false;
        };
        let filler = header[3..8] == [0xff; 5];
        let sender = self.sender(header, MIC, 0).filter(|_| filler);
        sender.is_some_and(|sender| sender.checksum.verify(&[message, header], sum))
    }

    fn mic(&self, parts: &[&[u8]]) -> Option<Mic> {
        let header = header(MIC, self.flags, self.number());
        let mut all: smallvec::SmallVec<[&[u8]; 8]> = parts.into();
        all.push(&header);
        let mut mic = Mic::from_slice(&header);
        mic.extend_from_slice(&self.own.checksum.sum(&all));
        Some(mic)
    }

    fn wrap(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> bool {
        let number = self.number();
        let header = header(WRAP, self.flags | flag::SEALED, number);
        let mut all: smallvec::SmallVec<[&[u8]; 8]> = parts.into();
        all.push(&header);
        // Reserves the whole length at once, since a reallocation would copy the token.
        let bytes: usize = all.iter().map(|part| part.len()).sum();
        out.reserve(HEADER + CONFOUNDER + bytes + 24 + 3);
        out.extend_from_slice(&header);
        self.own.cipher.encrypt(&self.confounder(number), &all, out);
        true
    }

    fn unwrap(&self, sealed: &[u8]) -> Option<UnwrappedMessage> {
        let (header, body) = sealed.split_first_chunk::<HEADER>()?;
        let sender = self.sender(header, WRAP, flag::SEALED)?;
        let filling = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let turned = usize::from(u16::from_be_bytes([header[6], header[7]]));
        let straight;
        let body = match turned.checked_rem(body.len())? {
            0 => body,
            turned => {
                let (end, start) = body.split_at(turned);
                straight = [start, end].concat();
                &straight
            }
        };
        let mut bytes = Vec::with_capacity(body.len());
        if !sender.cipher.decrypt(body, &mut bytes) {
            return None;
        }
        let end = bytes.len().checked_sub(HEADER + filling)?;
        let copy = bytes.get(end + filling..)?;
        // RRC is not protected, and does not matter.
        let same = copy[..6] == header[..6] && copy[8..] == header[8..];
        (same && end >= CONFOUNDER).then_some(UnwrappedMessage {
            message: CONFOUNDER..end,
            bytes,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_base::SeededRng;

    /// Converts hexadecimal digits to bytes.
    pub fn bytes(digits: &str) -> Vec<u8> {
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
        let digits = digits.as_bytes();
        digits
            .chunks(2)
            .map(|two| value(two[0]) << 4 | value(two[1]))
            .collect()
    }

    fn secret(number: u32) -> &'static [u8] {
        let long = matches!(number, 18 | 20);
        &b"thirty-two bytes that are secret"[..if long { 32 } else { 16 }]
    }

    fn side(number: u32, initiator: bool, subkey: bool) -> Context {
        let other: Vec<u8> = secret(number).iter().map(|b| b ^ 1).collect();
        let keys = Keys {
            initiator,
            next: 7,
            key: (number, secret(number)),
            subkey: subkey.then_some((number, &other)),
        };
        Context::new(&keys, &SeededRng::new(u64::from(number))).unwrap()
    }

    fn wrapped(by: &Context, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(by.wrap(parts, &mut out));
        out
    }

    fn message(unwrapped: &UnwrappedMessage) -> &[u8] {
        &unwrapped.bytes[unwrapped.message.clone()]
    }

    const ALL: [u32; 4] = [17, 18, 19, 20];

    #[test]
    fn other_types_are_none() {
        for number in [0, 1, 3, 16, 23, 25, 26] {
            let keys = Keys {
                initiator: false,
                next: 0,
                key: (number, secret(18)),
                subkey: None,
            };
            assert!(Context::new(&keys, &SeededRng::new(0)).is_none());
            let keys = Keys {
                key: (18, secret(18)),
                subkey: Some((number, secret(18))),
                ..keys
            };
            assert!(Context::new(&keys, &SeededRng::new(0)).is_none());
        }
    }

    #[test]
    fn headers_are_those_of_the_standard() {
        let by = side(18, false, true);
        assert_eq!(
            by.mic(&[b"text"]).unwrap()[..16],
            bytes("040405ffffffffff0000000000000007")
        );
        assert_eq!(
            wrapped(&by, &[b"text"])[..16],
            bytes("050407ff000000000000000000000008")
        );
        let by = side(17, true, false);
        assert_eq!(
            by.mic(&[b"text"]).unwrap()[..16],
            bytes("040400ffffffffff0000000000000007")
        );
        assert_eq!(
            wrapped(&by, &[b"text"])[..16],
            bytes("050402ff000000000000000000000008")
        );
    }

    #[test]
    fn each_bit_counts() {
        for number in ALL {
            let (a, b) = (side(number, true, true), side(number, false, true));
            let text = b"a message of more than two blocks, and of some more bytes";
            let mic = a.mic(&[text]).unwrap();
            let sealed = wrapped(&a, &[text]);
            assert!(b.verify(text, &mic));
            assert_eq!(message(&b.unwrap(&sealed).unwrap()), text);
            for bit in 0..8 * mic.len() {
                let mut bad = mic.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                // Unknown flags are protected, too.
                assert!(!b.verify(text, &bad), "{number}: bit {bit} of a MIC");
            }
            for bit in 0..8 * text.len() {
                let mut bad = text.to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!b.verify(&bad, &mic), "{number}: bit {bit} of a message");
            }
            for bit in 0..8 * sealed.len() {
                let mut bad = sealed.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    b.unwrap(&bad).is_none(),
                    "{number}: bit {bit} of a Wrap token"
                );
            }
            for len in 0..sealed.len() {
                assert!(b.unwrap(&sealed[..len]).is_none());
            }
            for len in 0..mic.len() {
                assert!(!b.verify(text, &mic[..len]));
            }
        }
    }

    /// A token of one side is not valid as the other's, nor under another key.
    #[test]
    fn sides_and_keys_are_kept_apart() {
        for number in ALL {
            let (a, b) = (side(number, true, true), side(number, false, true));
            let without = side(number, true, false);
            for (by, to, good) in [
                (&a, &b, true),
                (&b, &a, true),
                (&a, &a, false),
                (&b, &b, false),
                // Under the initiator's key: the acceptor has it as well.
                (&without, &b, true),
                (&a, &side(number, false, false), false),
            ] {
                let (mic, sealed) = (by.mic(&[b"text"]).unwrap(), wrapped(by, &[b"text"]));
                assert_eq!(to.verify(b"text", &mic), good);
                assert_eq!(to.unwrap(&sealed).is_some(), good);
                assert!(!to.verify(b"text", &sealed));
                assert!(to.unwrap(&mic).is_none());
            }
        }
    }

    #[test]
    fn equal_messages_are_encrypted_differently() {
        let by = side(18, false, true);
        let (one, two) = (wrapped(&by, &[b"text"]), wrapped(&by, &[b"text"]));
        assert_ne!(one[16..32], two[16..32]);
        let again = wrapped(&side(18, false, true), &[b"text"]);
        assert_eq!(one, again, "the generator has the same seed");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_one_side_wraps_the_other_unwraps(
            number in prop::sample::select(&ALL[..]),
            text in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                proptest::collection::vec(any::<u8>(), 4000..9000),
            ],
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
            (initiator, subkey) in any::<(bool, bool)>(),
            (filling, turned) in (0usize..40, any::<u16>()),
        ) {
            let (by, to) = (side(number, initiator, subkey), side(number, !initiator, subkey));
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([text.len()]);
            let parts: Vec<&[u8]> = std::iter::once(0).chain(cuts.iter().copied()).zip(ends)
                .map(|(start, end)| &text[start..end]).collect();
            let mic = by.mic(&parts).unwrap();
            prop_assert!(to.verify(&text, &mic));
            let sealed = wrapped(&by, &parts);
            let opened = to.unwrap(&sealed).unwrap();
            prop_assert_eq!(message(&opened), &text[..]);

            // As others make them: with filling, and turned.
            let mut header = header(WRAP, by.flags | flag::SEALED, 99);
            header[4..6].copy_from_slice(&(filling as u16).to_be_bytes());
            let mut sealed = Vec::new();
            let parts: [&[u8]; 3] = [&text, &vec![0xee; filling], &header];
            by.own.cipher.encrypt(&[3; 16], &parts, &mut sealed);
            let turns = usize::from(turned) % sealed.len();
            sealed.rotate_right(turns);
            header[6..8].copy_from_slice(&turned.to_be_bytes());
            let token = [&header[..], &sealed].concat();
            let opened = to.unwrap(&token).unwrap();
            prop_assert_eq!(message(&opened), &text[..]);
        }
    }
}
