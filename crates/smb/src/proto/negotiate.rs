//! NEGOTIATE (MS-SMB2 §2.2.3, §2.2.4, §3.3.5.3, §3.3.5.4): choice of the dialect and its options.
//!
//! Clients that may speak SMB1 begin with its NEGOTIATE; the server only reads whether it offers
//! SMB2. From 3.1.1 on both sides hash all messages up to the session key, so that an attacker who
//! changes a NEGOTIATE gains nothing; 3.0 and 3.0.2 repeat it under signature ([`validate`]).
//! Unknown contexts are skipped, as the clause says.

use crate::proto::compression::Algorithms;
use crate::proto::dialect::{Dialect, MAX_TRANSFER};
use crate::proto::encryption::Cipher;
use crate::proto::keys::Signing;
use crate::proto::status::Status;
use weir_auth::wire::{DecodeError, Put, Reader, filetime, part};
use weir_base::Time;

/// The dialect of a response that asks for another NEGOTIATE (§3.3.5.3.1).
const ANY: u16 = 0x02ff;
/// A bit of the security mode: the side that sets it wants every message of a session signed
/// (§2.2.3).
const SIGNING_REQUIRED: u16 = 2;

/// The least that protects the messages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// A signature, where the client wants one.
    Offered,
    /// A signature.
    Signed,
    /// Encryption.
    Encrypted,
}

impl Protection {
    /// The server's security mode: signing is possible, and maybe required.
    fn mode(self) -> u16 {
        const ENABLED: u16 = 1;
        match self {
            Protection::Offered => ENABLED,
            Protection::Signed | Protection::Encrypted => ENABLED | SIGNING_REQUIRED,
        }
    }

    /// Returns the least protection of a session with a client that has the security mode `client`.
    pub fn agreed(self, client: u16) -> Protection {
        match self {
            Protection::Offered if client & SIGNING_REQUIRED != 0 => Protection::Signed,
            required => required,
        }
    }
}
/// SMB2_GLOBAL_CAP_DFS: shares may be in a namespace of DFS.
const DFS: u32 = 1;
/// SMB2_GLOBAL_CAP_LARGE_MTU: requests of more than 64 KiB.
const LARGE_MTU: u32 = 4;
/// SMB2_GLOBAL_CAP_LEASING.
const LEASING: u32 = 2;
/// SMB2_GLOBAL_CAP_MULTI_CHANNEL: a session may have several connections.
const MULTI_CHANNEL: u32 = 8;
/// SMB2_GLOBAL_CAP_PERSISTENT_HANDLES: opens may outlive the server.
const PERSISTENT: u32 = 0x10;
/// SMB2_GLOBAL_CAP_DIRECTORY_LEASING.
const DIRECTORY_LEASING: u32 = 0x20;
/// SMB2_GLOBAL_CAP_ENCRYPTION: of 3.0 and 3.0.2 alone, 3.1.1 has a context for it.
const ENCRYPTION: u32 = 0x40;
/// Types of negotiate contexts (§2.2.3.1).
const PREAUTH: u16 = 1;
const CIPHERS: u16 = 2;
const COMPRESSION: u16 = 3;
const SIGNERS: u16 = 8;
const POSIX: u16 = 0x100;
/// Data of the POSIX extensions' negotiate context, and name of their create context
/// (smb3-posix-spec, POSIX-SMB2 §2.2.3.1, §2.2.13.2.16).
pub const POSIX_TAG: [u8; 16] = [
    0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c,
];
/// SHA-512, the only hash (§2.2.3.1.1).
const SHA_512: u16 = 1;
/// Maximum number of contexts that are read.
const MOST_CONTEXTS: u16 = 64;

/// The client's side of a NEGOTIATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its signing requirements.
    pub mode: u16,
    /// Its capabilities.
    pub capabilities: u32,
    /// The client, over all its connections.
    pub guid: [u8; 16],
    /// The best dialect that both speak.
    pub dialect: Option<Dialect>,
    /// The cipher for its messages; `None`: they cannot be encrypted.
    pub cipher: Option<Cipher>,
    /// The algorithm that signs its messages.
    pub signing: Signing,
    /// The algorithms that may compress its messages; `None`: it did not ask.
    pub compression: Option<Algorithms>,
    /// It speaks the POSIX extensions.
    pub posix: bool,
    /// The server was in a cluster then.
    pub dfs: bool,
    /// It sent ciphers to choose from.
    ciphers: bool,
    /// It sent signing algorithms to choose from.
    signers: bool,
}

impl Offer {
    /// Returns true if opens of the client may outlive the server.
    pub fn has_persistent(&self) -> bool {
        self.granted() & PERSISTENT != 0
    }

    /// Returns true if the client may have leases of directories.
    pub fn has_directory_leases(&self) -> bool {
        self.granted() & DIRECTORY_LEASING != 0
    }

    /// Returns the capabilities that the server grants this client (§2.2.4).
    fn granted(&self) -> u32 {
        let always = match self.dialect {
            Some(Dialect::Smb300 | Dialect::Smb302) => LARGE_MTU | self.capabilities & ENCRYPTION,
            _ => LARGE_MTU,
        };
        let of_3 = match self.dialect {
            Some(Dialect::Smb210) | None => 0,
            Some(_) => self.capabilities & (MULTI_CHANNEL | PERSISTENT | DIRECTORY_LEASING),
        };
        let dfs = if self.dfs { DFS } else { 0 };
        always | of_3 | LEASING | dfs
    }
}

/// The server's side of every response.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The ServerGuid, the same as long as the server runs.
    pub guid: [u8; 16],
    /// Protection that the server requires.
    pub protection: Protection,
    /// The time of the response.
    pub now: Time,
    /// Random bytes for the preauthentication hash.
    pub salt: [u8; 32],
}

/// Returns true if an SMB1 NEGOTIATE (MS-SMB §2.2.4.5.1) offers SMB 2.1 or later. It does not say
/// which dialect.
pub fn offers_smb2(record: &[u8]) -> bool {
    const NEGOTIATE: u8 = 0x72;
    /// Bytes of the header, of which only the command counts.
    const HEADER: usize = 32;
    let dialects = || {
        let mut r = Reader::new(record);
        let header = r.bytes(HEADER)?;
        let no_words = r.u8()? == 0;
        let count = usize::from(r.u16()?);
        let begins = header.starts_with(&crate::proto::header::SMB1) && header[4] == NEGOTIATE;
        match begins && no_words {
            true => r.bytes(count),
            false => Err(DecodeError),
        }
    };
    let names = dialects().unwrap_or_default();
    let mut names = names.split(|byte| *byte == 0);
    names.any(|name| name == b"\x02SMB 2.???")
}

/// Reads a NEGOTIATE, of which `message` is all, from its header on.
///
/// # Errors
/// The status that the clause names (§3.3.5.4).
pub fn decode(message: &[u8]) -> Result<Offer, Status> {
    let mut r = Reader::new(
        message
            .get(crate::proto::header::HEADER..)
            .ok_or(DecodeError)?,
    );
    if r.u16()? != 36 {
        return Err(Status::INVALID_PARAMETER);
    }
    let count = usize::from(r.u16()?);
    let mode = r.u16()?;
    r.u16()?;
    let capabilities = r.u32()?;
    let guid = r.array()?;
    let (offset, contexts) = (r.u32()?, r.u16()?);
    r.u16()?;
    if count == 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    let (numbers, _) = r.bytes(2 * count)?.as_chunks::<2>();
    let offered = |dialect: &Dialect| {
        let mut numbers = numbers.iter();
        numbers.any(|n| u16::from_le_bytes(*n) == *dialect as u16)
    };
    let dialect = Dialect::ALL.into_iter().find(offered);
    let mut offer = Offer {
        mode,
        capabilities,
        guid,
        dialect,
        cipher: match dialect {
            Some(Dialect::Smb300 | Dialect::Smb302) if capabilities & ENCRYPTION != 0 => {
                Some(Cipher::Aes128Ccm)
            }
            _ => None,
        },
        signing: match dialect {
            Some(Dialect::Smb210) => Signing::Hmac,
            _ => Signing::Cmac,
        },
        compression: None,
        posix: false,
        dfs: false,
        ciphers: false,
        signers: false,
    };
    if dialect == Some(Dialect::Smb311) {
        read_contexts(&mut offer, message, offset as usize, contexts)?;
    }
    Ok(offer)
}

fn read_contexts(
    offer: &mut Offer,
    message: &[u8],
    mut at: usize,
    count: u16,
) -> Result<(), Status> {
    if count > MOST_CONTEXTS {
        return Err(Status::INVALID_PARAMETER);
    }
    let mut hashes = false;
    for n in 0..count {
        if n > 0 {
            at = at.next_multiple_of(8);
        }
        let mut r = Reader::new(message.get(at..).ok_or(DecodeError)?);
        let (kind, len) = (r.u16()?, usize::from(r.u16()?));
        r.u32()?;
        let mut data = Reader::new(r.bytes(len)?);
        at += 8 + len;
        let twice = |seen: &mut bool| match std::mem::replace(seen, true) {
            true => Err(Status::INVALID_PARAMETER),
            false => Ok(()),
        };
        match kind {
            PREAUTH => {
                twice(&mut hashes)?;
                let (count, _) = (usize::from(data.u16()?), data.u16()?);
                let (offered, _) = data.bytes(2 * count)?.as_chunks::<2>();
                if count == 0 {
                    return Err(Status::INVALID_PARAMETER);
                }
                if !offered.contains(&SHA_512.to_le_bytes()) {
                    return Err(Status::NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                }
            }
            CIPHERS => {
                twice(&mut offer.ciphers)?;
                let count = usize::from(data.u16()?);
                offer.cipher = Cipher::choose(data.bytes(2 * count)?.as_chunks().0);
                if count == 0 {
                    return Err(Status::INVALID_PARAMETER);
                }
            }
            SIGNERS => {
                twice(&mut offer.signers)?;
                let count = usize::from(data.u16()?);
                offer.signing = Signing::choose(data.bytes(2 * count)?.as_chunks().0);
                if count == 0 {
                    return Err(Status::INVALID_PARAMETER);
                }
            }
            COMPRESSION => {
                let both = Algorithms::choose(data.rest())?;
                if offer.compression.replace(both).is_some() {
                    return Err(Status::INVALID_PARAMETER);
                }
            }
            // Of several versions, each with a tag, this is the one.
            POSIX => offer.posix |= data.rest().as_chunks().0.contains(&POSIX_TAG),
            _ => {}
        }
    }
    match hashes {
        true => Ok(()),
        false => Err(Status::INVALID_PARAMETER),
    }
}

/// Writes the body of the response to `offer` with `dialect`; `token` begins the authentication.
pub fn put_response(
    out: &mut Vec<u8>,
    server: &Server,
    dialect: Dialect,
    offer: &Offer,
    token: &[u8],
) {
    let contexts = match dialect {
        Dialect::Smb311 => contexts(server, offer),
        _ => Vec::new(),
    };
    let number = dialect as u16;
    put_body(out, server, (number, offer.granted()), token, &contexts);
}

/// Writes the body of the response that asks a client of SMB1 to negotiate again.
pub fn put_again(out: &mut Vec<u8>, server: &Server, token: &[u8]) {
    put_body(out, server, (ANY, LARGE_MTU), token, &[]);
}

fn put_body(
    out: &mut Vec<u8>,
    server: &Server,
    (number, capabilities): (u16, u32),
    token: &[u8],
    contexts: &[Vec<u8>],
) {
    const FIXED: usize = 64;
    let start = out.len();
    let token_at = crate::proto::header::HEADER + FIXED;
    let contexts_at = match contexts {
        [] => 0,
        _ => (token_at + token.len()).next_multiple_of(8),
    };
    out.put_u16(65);
    out.put_u16(server.protection.mode());
    out.put_u16(number);
    out.put_u16(contexts.len() as u16);
    out.put(&server.guid);
    out.put_u32(capabilities);
    for _ in ["transact", "read", "write"] {
        out.put_u32(MAX_TRANSFER);
    }
    out.put_u64(filetime(server.now));
    out.put_u64(0);
    out.put_u16(token_at as u16);
    out.put_u16(token.len() as u16);
    out.put_u32(contexts_at as u32);
    out.put(token);
    for context in contexts {
        out.align(start, 8);
        out.put(context);
    }
}

fn contexts(server: &Server, offer: &Offer) -> Vec<Vec<u8>> {
    let context = |kind: u16, data: &[u8]| {
        let mut out = Vec::with_capacity(8 + data.len());
        out.put_u16(kind);
        out.put_u16(data.len() as u16);
        out.put_u32(0);
        out.put(data);
        out
    };
    let mut hash = Vec::with_capacity(38);
    hash.put_u16(1);
    hash.put_u16(server.salt.len() as u16);
    hash.put_u16(SHA_512);
    hash.put(&server.salt);
    let mut all = vec![context(PREAUTH, &hash)];
    if offer.ciphers {
        // One, or 0 for none (§3.3.5.4).
        let id = offer.cipher.map_or(0, |cipher| cipher as u8);
        all.push(context(CIPHERS, &[1, 0, id, 0]));
    }
    if offer.signers {
        // Also where it was not offered (§3.3.5.4).
        all.push(context(SIGNERS, &[1, 0, offer.signing as u8, 0]));
    }
    if let Some(both) = offer.compression {
        all.push(context(COMPRESSION, &both.context()));
    }
    if offer.posix {
        all.push(context(POSIX, &POSIX_TAG));
    }
    all
}

/// FSCTL_VALIDATE_NEGOTIATE_INFO (§3.3.5.15.12): whether the client has seen the NEGOTIATE that
/// arrived; the answer.
pub fn validate(
    input: &[u8],
    offer: &Offer,
    dialect: Dialect,
    (server, protection): (&[u8; 16], Protection),
) -> Option<Vec<u8>> {
    let mut r = Reader::new(input);
    let same = r.u32() == Ok(offer.capabilities)
        && r.array() == Ok(offer.guid)
        && r.u16() == Ok(offer.mode);
    let count = usize::from(r.u16().ok()?);
    let (numbers, _) = r.bytes(2 * count).ok()?.as_chunks::<2>();
    let offered = |d: &Dialect| numbers.contains(&(*d as u16).to_le_bytes());
    if !same || Dialect::ALL.into_iter().find(offered) != Some(dialect) {
        return None;
    }
    let mut out = Vec::with_capacity(24);
    out.put_u32(offer.granted());
    out.put(server);
    out.put_u16(protection.mode());
    out.put_u16(dialect as u16);
    Some(out)
}

/// The body of a SESSION_SETUP (§2.2.5).
pub struct SessionSetup<'m> {
    /// SMB2_SESSION_FLAG_BINDING.
    pub flags: u8,
    /// The client's signing requirements, for this session.
    pub mode: u16,
    /// The session that it is to replace; 0: none.
    pub previous: u64,
    /// The security token.
    pub token: &'m [u8],
}

/// Reads a SESSION_SETUP, of which `message` is all.
///
/// # Errors
/// It is malformed.
pub fn session_setup(message: &[u8]) -> Result<SessionSetup<'_>, DecodeError> {
    let mut r = Reader::new(
        message
            .get(crate::proto::header::HEADER..)
            .ok_or(DecodeError)?,
    );
    if r.u16()? != 25 {
        return Err(DecodeError);
    }
    let flags = r.u8()?;
    let mode = u16::from(r.u8()?);
    r.u32()?;
    r.u32()?;
    let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
    let previous = r.u64()?;
    Ok(SessionSetup {
        flags,
        mode,
        previous,
        token: part(message, offset, len)?,
    })
}

/// The outcome of NEGOTIATE.
#[derive(Clone, Debug)]
pub struct Negotiation {
    /// The dialect that is spoken.
    pub dialect: Dialect,
    /// The client's offer.
    pub offer: Offer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVER: Server = Server {
        guid: [9; 16],
        protection: Protection::Signed,
        now: Time::EPOCH,
        salt: [3; 32],
    };

    /// A NEGOTIATE with these dialects and contexts.
    fn request(dialects: &[u16], contexts: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; crate::proto::header::HEADER];
        out.put_u16(36);
        out.put_u16(dialects.len() as u16);
        out.put_u16(1);
        out.put_u16(0);
        out.put_u32(0x7f);
        out.put(&[5; 16]);
        let at = out.len();
        out.put_u32(0);
        out.put_u16(contexts.len() as u16);
        out.put_u16(0);
        dialects.iter().for_each(|d| out.put_u16(*d));
        if !contexts.is_empty() {
            out.align(0, 8);
            let here = out.len() as u32;
            out.set_u32(at, here);
        }
        for (kind, data) in contexts {
            out.align(0, 8);
            out.put_u16(*kind);
            out.put_u16(data.len() as u16);
            out.put_u32(0);
            out.put(data);
        }
        out
    }

    const HASH: (u16, &[u8]) = (PREAUTH, &[1, 0, 0, 0, 1, 0]);

    #[test]
    fn the_best_common_dialect_is_chosen() {
        for (offered, chosen) in [
            (&[0x0202u16][..], None),
            (&[0x0202, 0x0210, 0x0300], Some(Dialect::Smb300)),
            (&[0x0302, 0x0300], Some(Dialect::Smb302)),
            (&[0x0400], None),
        ] {
            assert_eq!(decode(&request(offered, &[])).unwrap().dialect, chosen);
        }
        let all = [0x0210, 0x0300, 0x0302, 0x0311];
        let offer = decode(&request(&all, &[HASH])).unwrap();
        assert_eq!(offer.dialect, Some(Dialect::Smb311));
        assert_eq!(
            (offer.cipher, offer.granted()),
            (
                None,
                LARGE_MTU | LEASING | MULTI_CHANNEL | PERSISTENT | DIRECTORY_LEASING
            )
        );
        // The request has all capabilities: 3.0 encrypts with the one cipher that it has.
        let offer = decode(&request(&all[..2], &[])).unwrap();
        assert_eq!(offer.cipher, Some(Cipher::Aes128Ccm));
        assert_eq!(offer.granted() & ENCRYPTION, ENCRYPTION);
        assert_eq!(decode(&request(&[], &[])), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn contexts_are_checked_and_unknown_ones_skipped() {
        let decode = |contexts: &[(u16, &[u8])]| decode(&request(&[0x0311], contexts));
        assert!(decode(&[(0x77, b"whatever"), HASH, (0x100, &[1; 16])]).is_ok());
        assert_eq!(decode(&[]), Err(Status::INVALID_PARAMETER));
        assert_eq!(decode(&[HASH, HASH]), Err(Status::INVALID_PARAMETER));
        assert_eq!(
            decode(&[(PREAUTH, &[1, 0, 0, 0, 9, 0])]),
            Err(Status::NO_PREAUTH_INTEGRITY_HASH_OVERLAP)
        );
        assert_eq!(
            decode(&[(PREAUTH, &[9, 0, 0, 0, 1, 0])]),
            Err(Status::INVALID_PARAMETER)
        );
        assert_eq!(
            decode(&[HASH, (CIPHERS, &[0, 0])]),
            Err(Status::INVALID_PARAMETER)
        );
        let offer = decode(&[HASH, (0x77, &[0, 0]), (SIGNERS, &[1, 0, 2, 0])]).unwrap();
        let kinds: Vec<u8> = contexts(&SERVER, &offer).iter().map(|c| c[0]).collect();
        assert_eq!(kinds, [PREAUTH as u8, SIGNERS as u8]);
        // Compression, once, with what both have or none.
        let linux: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 1, 0];
        let offer = decode(&[HASH, (COMPRESSION, linux)]).unwrap();
        let all = contexts(&SERVER, &offer);
        assert_eq!(
            all[1],
            [3, 0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0]
        );
        for wrong in [
            &[(COMPRESSION, linux); 2][..],
            &[(COMPRESSION, &linux[..13])],
        ] {
            let wrong = [&[HASH], wrong].concat();
            assert_eq!(decode(&wrong), Err(Status::INVALID_PARAMETER));
        }
        // The POSIX extensions, by their tag alone.
        for (tags, has) in [
            (POSIX_TAG.to_vec(), true),
            ([[7; 16], POSIX_TAG].concat(), true),
            (vec![7; 17], false),
        ] {
            let offer = decode(&[HASH, (POSIX, &tags)]).unwrap();
            let last = contexts(&SERVER, &offer).pop().unwrap();
            assert_eq!((offer.posix, last[8..] == POSIX_TAG), (has, has));
        }
        // One cipher is answered, or none.
        for (ids, chosen) in [(&[2, 0, 1, 0, 4, 0][..], 4), (&[1, 0, 7, 0], 0)] {
            let offer = decode(&[HASH, (CIPHERS, ids)]).unwrap();
            assert_eq!(contexts(&SERVER, &offer)[1][8..], [1, 0, chosen, 0]);
        }
    }

    #[test]
    fn clients_of_smb1_are_asked_again_or_refused() {
        let smb1 = |names: &[u8]| {
            let mut out = crate::proto::header::SMB1.to_vec();
            out.put_u8(0x72);
            out.put_zeroes(28);
            out.put_u16(names.len() as u16);
            out.put(names);
            out
        };
        let both = smb1(b"\x02NT LM 0.12\0\x02SMB 2.002\0\x02SMB 2.???\0");
        assert!(offers_smb2(&both));
        assert!(!offers_smb2(&both[..40]));
        assert!(!offers_smb2(&smb1(b"\x02NT LM 0.12\0\x02SMB 2.002\0")));
    }

    #[test]
    fn a_negotiation_that_was_changed_is_noticed() {
        let offer = decode(&request(&[0x0210, 0x0302], &[])).unwrap();
        let input = |dialects: &[u16], mode: u16| {
            let mut out = Vec::new();
            out.put_u32(0x7f);
            out.put(&[5; 16]);
            out.put_u16(mode);
            out.put_u16(dialects.len() as u16);
            dialects.iter().for_each(|d| out.put_u16(*d));
            out
        };
        let check = |input: &[u8]| {
            validate(
                input,
                &offer,
                Dialect::Smb302,
                (&[9; 16], Protection::Signed),
            )
        };
        assert_eq!(check(&input(&[0x0210, 0x0302], 1)).unwrap().len(), 24);
        assert_eq!(check(&input(&[0x0210, 0x0302, 0x0311], 1)), None);
        assert_eq!(check(&input(&[0x0210], 1)), None);
        assert_eq!(check(&input(&[0x0210, 0x0302], 3)), None);
        assert_eq!(check(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_offer_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            contexts in prop::collection::vec((prop_oneof![0u16..10, Just(POSIX)], prop::collection::vec(any::<u8>(), 0..20)), 0..5),
        ) {
            let _ = decode(&bytes);
            let _ = offers_smb2(&bytes);
            let _ = session_setup(&bytes);
            let contexts: Vec<(u16, &[u8])> = contexts.iter().map(|(k, d)| (*k, &d[..])).collect();
            let message = request(&[0x0311], &contexts);
            for cut in [message.len(), message.len() - 1, message.len() / 2] {
                let _ = decode(&message[..cut]);
            }
        }
    }
}
