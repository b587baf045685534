//! A client's side of NTLM, for tests of servers and for fuzzing.

use super::{MIC, SIGNATURE, av, flag, nt_hash};
use crate::legacy::{Key, hmac_md5, rc4};
use crate::wire::{Put, filetime, utf16};
use weir_base::Time;

/// Returns the AUTHENTICATE of a user (MS-NLMP §2.2.1.3) in reply to a CHALLENGE, and the session's
/// key. `user` is the user's name, domain and password; with `mic`, the message has a code over all
/// three messages.
pub fn authenticate(
    challenge: &[u8],
    negotiate: &[u8],
    (user, domain, password): (&str, &str, &str),
    mic: bool,
) -> (Vec<u8>, Key) {
    let nonce = &challenge[24..32];
    let mut blob = vec![1, 1, 0, 0, 0, 0, 0, 0];
    blob.put_u64(filetime(Time::EPOCH));
    blob.put(&[0xcc; 8]);
    blob.put_u32(0);
    if mic {
        blob.put_u16(av::FLAGS);
        blob.put_u16(4);
        blob.put_u32(av::HAS_MIC);
    }
    blob.put_u32(0);
    let upper = utf16(&user.to_uppercase());
    let owf = hmac_md5(&nt_hash(password), &[&upper, &utf16(domain)]);
    let proof = hmac_md5(&owf, &[nonce, &blob]);
    let base = hmac_md5(&owf, &[&proof]);
    let key = [0x5a; 16];
    let mut sent = key;
    rc4(&base, &mut sent);
    let response = [&proof[..], &blob].concat();
    let fields = [
        Vec::new(),
        response,
        utf16(domain),
        utf16(user),
        Vec::new(),
        sent.to_vec(),
    ];
    let mut out = SIGNATURE.to_vec();
    out.put_u32(3);
    let mut at = MIC.1;
    for field in &fields {
        out.put_u16(field.len() as u16);
        out.put_u16(field.len() as u16);
        out.put_u32(at as u32);
        at += field.len();
    }
    out.put_u32(flag::KEY_EXCHANGE | flag::KEY_128 | flag::EXTENDED);
    out.put_zeroes(MIC.1 - out.len());
    fields.iter().for_each(|field| out.put(field));
    if mic {
        let code = hmac_md5(&key, &[negotiate, challenge, &out]);
        out[MIC.0..MIC.1].copy_from_slice(&code);
    }
    (out, key)
}

/// Returns the first message (MS-NLMP §2.2.1.1).
pub fn negotiate() -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.put_u32(1);
    out.put_u32(flag::UNICODE | flag::OPTIONAL | flag::EXTENDED);
    out.put_zeroes(16);
    out
}
