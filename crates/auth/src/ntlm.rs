//! NTLM version 2, the server's side (MS-NLMP): a challenge, and verification of the response.
//!
//! Only NTLMv2 with its time stamp and target information is accepted: no LM, no NTLMv1, no
//! anonymous user, no guest. A client that says that it has put an integrity code over the three
//! messages (MsvAvFlags) is refused if the code is missing. So the earlier messages cannot be
//! changed to weaken the later ones (§3.2.5.1.2). The NT hash of a user is stored. It is as good as
//! the password to anyone who has it, so only the server can read it.

pub mod client;

use crate::legacy::{Key, equal, hmac_md5, md4, md5, rc4};
use crate::wire::{DecodeError, Put, Reader, filetime, from_utf16, part, utf16};
use weir_base::Time;

const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";

/// Flags of NEGOTIATE and CHALLENGE (§2.2.2.5).
mod flag {
    pub const UNICODE: u32 = 1;
    pub const REQUEST_TARGET: u32 = 4;
    pub const SIGN: u32 = 0x10;
    pub const SEAL: u32 = 0x20;
    pub const NTLM: u32 = 0x200;
    pub const ALWAYS_SIGN: u32 = 0x8000;
    pub const TARGET_SERVER: u32 = 0x2_0000;
    pub const EXTENDED: u32 = 0x8_0000;
    pub const TARGET_INFO: u32 = 0x80_0000;
    pub const VERSION: u32 = 0x200_0000;
    pub const KEY_128: u32 = 0x2000_0000;
    pub const KEY_EXCHANGE: u32 = 0x4000_0000;
    pub const KEY_56: u32 = 0x8000_0000;
    /// Flags that a client may choose.
    pub const OPTIONAL: u32 = SIGN | SEAL | ALWAYS_SIGN | KEY_128 | KEY_EXCHANGE | KEY_56;
}

/// Kinds of target information (§2.2.2.1).
mod av {
    pub const END: u16 = 0;
    pub const COMPUTER: u16 = 1;
    pub const DOMAIN: u16 = 2;
    pub const DNS_COMPUTER: u16 = 3;
    pub const DNS_DOMAIN: u16 = 4;
    pub const FLAGS: u16 = 6;
    pub const TIME: u16 = 7;
    /// Bit of [`FLAGS`]: the AUTHENTICATE has an integrity code.
    pub const HAS_MIC: u32 = 2;
}

/// Bytes of an AUTHENTICATE up to its integrity code, and behind that.
const MIC: (usize, usize) = (72, 88);
/// Longest NEGOTIATE that is kept: names of a domain and a machine are all that varies in it.
const MOST: usize = 2 << 10;

/// The NT hash of a password (§3.3.1, NTOWFv1).
pub fn nt_hash(password: &str) -> Key {
    md4(&utf16(password))
}

/// A negotiation that waits for the client's AUTHENTICATE.
pub struct Challenge {
    negotiate: Vec<u8>,
    message: Vec<u8>,
    nonce: [u8; 8],
}

/// User that an AUTHENTICATE claims to be from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedUser {
    /// The user's name.
    pub user: String,
    /// The domain, or the name of the client's or the server's machine.
    pub domain: String,
}

/// Result of an authentication.
#[derive(Clone)]
pub struct SessionSecurity {
    /// The key that the session's are derived from.
    pub key: Key,
    flags: u32,
}

impl Challenge {
    /// Replies to a NEGOTIATE message (§2.2.1.1).
    ///
    /// # Errors
    /// It is none, or of a client that can do no NTLMv2.
    pub fn new(
        negotiate: &[u8],
        server: &str,
        nonce: [u8; 8],
        now: Time,
    ) -> Result<Challenge, DecodeError> {
        let mut r = Reader::new(negotiate);
        if r.array()? != SIGNATURE || r.u32()? != 1 || negotiate.len() > MOST {
            return Err(DecodeError);
        }
        let asked = r.u32()?;
        if asked & flag::UNICODE == 0 {
            return Err(DecodeError);
        }
        let flags = flag::UNICODE
            | flag::REQUEST_TARGET
            | flag::NTLM
            | flag::TARGET_SERVER
            | flag::EXTENDED
            | flag::TARGET_INFO
            | flag::VERSION
            | asked & flag::OPTIONAL;
        let name = utf16(&server.to_uppercase());
        let mut info = Vec::new();
        let mut pair = |kind: u16, value: &[u8]| {
            info.put_u16(kind);
            info.put_u16(value.len() as u16);
            info.put(value);
        };
        pair(av::DOMAIN, &name);
        pair(av::COMPUTER, &name);
        pair(av::DNS_DOMAIN, &[]);
        pair(av::DNS_COMPUTER, &utf16(&server.to_lowercase()));
        pair(av::TIME, &filetime(now).to_le_bytes());
        pair(av::END, &[]);
        const FIXED: usize = 56;
        let mut out = Vec::with_capacity(FIXED + name.len() + info.len());
        out.put(&SIGNATURE);
        out.put_u32(2);
        out.put_u16(name.len() as u16);
        out.put_u16(name.len() as u16);
        out.put_u32(FIXED as u32);
        out.put_u32(flags);
        out.put(&nonce);
        out.put_u64(0);
        out.put_u16(info.len() as u16);
        out.put_u16(info.len() as u16);
        out.put_u32((FIXED + name.len()) as u32);
        // A version: 6.1, NTLMSSP revision 15 (§2.2.2.10).
        out.put(&[6, 1, 0, 0, 0, 0, 0, 15]);
        out.put(&name);
        out.put(&info);
        Ok(Challenge {
            negotiate: negotiate.to_vec(),
            message: out,
            nonce,
        })
    }

    /// The CHALLENGE message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Verifies that the client that made `authenticate` (§2.2.1.3) knows the password. `hash_of`
    /// returns the hash of the user's password.
    ///
    /// # Errors
    /// The claimed user, if it can be read: the password is wrong, there is no such user, or the
    /// message is no NTLMv2.
    pub fn verify(
        &self,
        authenticate: &[u8],
        hash_of: impl FnOnce(&ClaimedUser) -> Option<Key>,
    ) -> Result<(ClaimedUser, SessionSecurity), Option<ClaimedUser>> {
        let parsed = Authenticate::decode(authenticate).map_err(|DecodeError| None)?;
        let claimed = parsed.claimed.clone();
        match hash_of(&claimed).and_then(|hash| self.established(authenticate, &parsed, &hash)) {
            Some(established) => Ok((claimed, established)),
            None => Err(Some(claimed)),
        }
    }

    fn established(
        &self,
        message: &[u8],
        a: &Authenticate<'_>,
        hash: &Key,
    ) -> Option<SessionSecurity> {
        let user = utf16(&a.claimed.user.to_uppercase());
        let owf = hmac_md5(hash, &[&user, &utf16(&a.claimed.domain)]);
        let (proof, blob) = a.response.split_at_checked(16)?;
        let expected = hmac_md5(&owf, &[&self.nonce, blob]);
        if !equal(&expected, proof) {
            return None;
        }
        let mut key = hmac_md5(&owf, &[proof]);
        if a.flags & flag::KEY_EXCHANGE != 0 {
            let mut exchanged: Key = a.key.try_into().ok()?;
            rc4(&key, &mut exchanged);
            key = exchanged;
        }
        if has_mic(blob).ok()? {
            let (before, rest) = message.split_at_checked(MIC.0)?;
            let (mic, after) = rest.split_at_checked(MIC.1 - MIC.0)?;
            let all: [&[u8]; 5] = [&self.negotiate, &self.message, before, &[0; 16], after];
            if !equal(&hmac_md5(&key, &all), mic) {
                return None;
            }
        }
        Some(SessionSecurity {
            key,
            flags: a.flags,
        })
    }
}

/// Returns true if the client's response says that its AUTHENTICATE has an integrity code.
fn has_mic(blob: &[u8]) -> Result<bool, DecodeError> {
    let mut r = Reader::new(blob);
    // Version 1 of the response's form (§2.2.2.7).
    if r.u8()? != 1 || r.u8()? != 1 {
        return Err(DecodeError);
    }
    r.bytes(26)?;
    let mut flags = 0;
    loop {
        let (kind, len) = (r.u16()?, usize::from(r.u16()?));
        let value = r.bytes(len)?;
        match kind {
            av::END => return Ok(flags & av::HAS_MIC != 0),
            av::FLAGS => flags = Reader::new(value).u32()?,
            _ => {}
        }
    }
}

struct Authenticate<'a> {
    claimed: ClaimedUser,
    response: &'a [u8],
    key: &'a [u8],
    flags: u32,
}

impl<'a> Authenticate<'a> {
    fn decode(message: &'a [u8]) -> Result<Authenticate<'a>, DecodeError> {
        let mut r = Reader::new(message);
        if r.array()? != SIGNATURE || r.u32()? != 3 {
            return Err(DecodeError);
        }
        let mut field = || {
            let len = usize::from(r.u16()?);
            r.u16()?;
            part(message, r.u32()? as usize, len)
        };
        let _lm = field()?;
        let response = field()?;
        let domain = from_utf16(field()?)?;
        let user = from_utf16(field()?)?;
        let _workstation = field()?;
        let key = field()?;
        Ok(Authenticate {
            claimed: ClaimedUser { user, domain },
            response,
            key,
            flags: r.u32()?,
        })
    }
}

impl SessionSecurity {
    /// The integrity code that a side puts over the mechanisms of SPNEGO (§3.4.4.2): its first
    /// signature.
    pub fn mic(&self, server: bool, message: &[u8]) -> [u8; 16] {
        let (side, other) = match server {
            true => ("server", "client"),
            false => ("client", "server"),
        };
        let name =
            |what: &str| format!("session key to {side}-to-{other} {what} key magic constant\0");
        let sign = md5(&[&self.key, name("signing").as_bytes()]);
        let mut code = [0; 8];
        code.copy_from_slice(&hmac_md5(&sign, &[&[0; 4], message])[..8]);
        if self.flags & flag::KEY_EXCHANGE != 0 {
            let bytes = match self.flags {
                flags if flags & flag::KEY_128 != 0 => 16,
                flags if flags & flag::KEY_56 != 0 => 7,
                _ => 5,
            };
            let seal = md5(&[&self.key[..bytes], name("sealing").as_bytes()]);
            rc4(&seal, &mut code);
        }
        let mut out = [0; 16];
        out[0] = 1;
        out[4..12].copy_from_slice(&code);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::client::{authenticate, negotiate};
    use super::*;
    use proptest::prelude::*;

    const ALICE: (&str, &str, &str) = ("Alice", "DOM", "Passw0rd!");

    fn challenge() -> Challenge {
        Challenge::new(&negotiate(), "weir", *b"12345678", Time::EPOCH).unwrap()
    }

    fn hash(claimed: &ClaimedUser) -> Option<Key> {
        (claimed.user == "Alice").then(|| nt_hash("Passw0rd!"))
    }

    /// MS-NLMP §4.2.4: the keys and proofs of the published example.
    #[test]
    fn the_published_example_comes_out() {
        let hash = nt_hash("Password");
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&hash), "a4f49c406510bdcab6824ee7c30fd852");
        let owf = hmac_md5(&hash, &[&utf16("USER"), &utf16("Domain")]);
        assert_eq!(hex(&owf), "0c868a403bfd7a93a3001ef22ef02e3f");
        let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
        blob.put_u64(0);
        blob.put(&[0xaa; 8]);
        blob.put_u32(0);
        for (kind, name) in [(av::DOMAIN, "Domain"), (av::COMPUTER, "Server")] {
            blob.put_u16(kind);
            blob.put_u16(12);
            blob.put_utf16(name);
        }
        blob.put_u64(0);
        let nonce = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let proof = hmac_md5(&owf, &[&nonce, &blob]);
        assert_eq!(hex(&proof), "68cd0ab851e51c96aabc927bebef6a1c");
        assert_eq!(
            hex(&hmac_md5(&owf, &[&proof])),
            "8de40ccadbc14a82f15cb0ad0de95ca3"
        );
    }

    #[test]
    fn who_knows_the_password_gets_in_with_the_same_key() {
        for mic in [false, true] {
            let challenge = challenge();
            let (message, key) = authenticate(challenge.message(), &negotiate(), ALICE, mic);
            let (claimed, established) = challenge.verify(&message, hash).ok().unwrap();
            assert_eq!((claimed.user.as_str(), established.key), ("Alice", key));
        }
    }

    #[test]
    fn nobody_else_gets_in() {
        let challenge = challenge();
        for who in [
            ("Alice", "DOM", "passw0rd!"),
            ("Bob", "DOM", "Passw0rd!"),
            ("", "", ""),
        ] {
            let (message, _) = authenticate(challenge.message(), &negotiate(), who, true);
            let refused = challenge.verify(&message, hash).err().unwrap().unwrap();
            assert_eq!(refused.user, who.0);
        }
        // Another challenge's response.
        let other = Challenge::new(&negotiate(), "weir", *b"87654321", Time::EPOCH).unwrap();
        let (message, _) = authenticate(other.message(), &negotiate(), ALICE, true);
        assert!(challenge.verify(&message, hash).is_err());
        // Messages before it that were changed.
        let mut changed = negotiate();
        changed[12] ^= 0x10;
        let (message, _) = authenticate(challenge.message(), &changed, ALICE, true);
        assert!(challenge.verify(&message, hash).is_err());
        // A response as short as LM's and NTLMv1's.
        let mut short = authenticate(challenge.message(), &negotiate(), ALICE, false).0;
        short[20..22].copy_from_slice(&24u16.to_le_bytes());
        assert!(challenge.verify(&short, hash).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..400,
            with in any::<u8>(),
        ) {
            let _ = Challenge::new(&bytes, "weir", [0; 8], Time::EPOCH);
            let challenge = challenge();
            prop_assert!(challenge.verify(&bytes, hash).is_err());
            let (mut message, _) = authenticate(challenge.message(), &negotiate(), ALICE, true);
            if let Some(byte) = message.get_mut(at) {
                let same = *byte == with;
                *byte = with;
                let verdict = challenge.verify(&message, hash);
                prop_assert!(same || verdict.is_err());
            }
            let _ = challenge.verify(&message[..at.min(message.len())], hash);
        }
    }
}
