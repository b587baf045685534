//! Keytabs: files with the keys of services and machines, in MIT krb5's form 0x0502 ("The keytab
//! file format" of its documentation).
//!
//! The library reads the keys itself; this reads the principals that have keys in a file.

use anyhow::{Context, Result, ensure};

/// First bytes of a file.
const VERSION: [u8; 2] = [5, 2];

/// A principal: its components, without the realm.
pub type Principal = Vec<String>;

/// Takes `n` bytes from the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(taken)
}

/// A number of two bytes.
fn short(bytes: &mut &[u8]) -> Option<usize> {
    let bytes = take(bytes, 2)?.try_into().ok()?;
    Some(usize::from(u16::from_be_bytes(bytes)))
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let len = short(bytes)?;
    Some(String::from_utf8_lossy(take(bytes, len)?).into_owned())
}

/// Returns the principal of an entry.
fn principal(mut entry: &[u8]) -> Option<Principal> {
    let components = short(&mut entry)?;
    let _realm = text(&mut entry)?;
    (0..components).map(|_| text(&mut entry)).collect()
}

/// Returns the principals that have keys in a keytab.
///
/// # Errors
/// The file is not a keytab, or has no keys.
pub fn principals(file: &[u8]) -> Result<Vec<Principal>> {
    const NONE: &str = "not a keytab";
    let mut rest = file.strip_prefix(&VERSION).context(NONE)?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = take(&mut rest, 4).context(NONE)?.try_into()?;
        // Below zero: room that an entry has left. Zeroes are at the end of a file.
        let len = i32::from_be_bytes(len);
        if len == 0 {
            break;
        }
        let entry = take(&mut rest, len.unsigned_abs() as usize).context(NONE)?;
        if len > 0 {
            all.push(principal(entry).context(NONE)?);
        }
    }
    ensure!(!all.is_empty(), "no keys");
    Ok(all)
}

/// Returns true if clients of SMB ask for tickets of this principal: cifs/HOST, host/HOST (which
/// Active Directory accepts for all services of HOST), or a machine's account.
pub fn is_of_smb(principal: &Principal) -> bool {
    match &principal[..] {
        [account] => account.ends_with('$'),
        [service, _] => ["cifs", "host"]
            .iter()
            .any(|s| service.eq_ignore_ascii_case(s)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(components: &[&str]) -> Vec<u8> {
        let mut out = vec![0, components.len() as u8];
        for text in [&["REALM"], components].concat() {
            out.extend([0, text.len() as u8]);
            out.extend(text.as_bytes());
        }
        // Kind of name, time, version, kind of key, its length.
        out.extend([0; 4 + 4 + 1 + 2 + 2]);
        out
    }

    fn file(entries: &[(i32, Vec<u8>)]) -> Vec<u8> {
        let mut out = VERSION.to_vec();
        for (sign, entry) in entries {
            out.extend((sign * entry.len() as i32).to_be_bytes());
            out.extend(entry);
        }
        out
    }

    #[test]
    fn the_principals_of_a_keytab_are_found() {
        let all = [
            (1, entry(&["nfs", "host"])),
            (-1, entry(&["gone", "host"])),
            (1, entry(&["WEIR$"])),
        ];
        let mut bytes = file(&all);
        let expected = vec![vec!["nfs".to_owned(), "host".into()], vec!["WEIR$".into()]];
        assert_eq!(principals(&bytes).unwrap(), expected);
        bytes.extend([0; 4]);
        assert_eq!(principals(&bytes).unwrap(), expected);
        for cut in [0, 1, 2, 5, 8, 30] {
            assert!(principals(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(principals(&file(&[(1, vec![0, 9])])).is_err());
    }

    #[test]
    fn only_some_principals_are_asked_for_over_smb() {
        for (principal, is) in [
            (&["cifs", "host"][..], true),
            (&["HOST", "host"], true),
            (&["WEIR$"], true),
            (&["nfs", "host"], false),
            (&["alice"], false),
        ] {
            let principal = principal.iter().map(|&part| part.to_owned()).collect();
            assert_eq!(is_of_smb(&principal), is, "{principal:?}");
        }
    }
}
