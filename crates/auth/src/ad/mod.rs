//! Membership of an Active Directory domain: this server's computer account, and the keys of that
//! account.
//!
//! A server that users reach with tickets of a domain has an account in it, with the names of its
//! services and a password that only the domain and the server know. Creating the account takes
//! LDAP, and setting the password the password protocol of Kerberos (RFC 3244). `adcli` does both,
//! as for `realm join`; it is run here, and its result is kept ([`adcli`]).
//!
//! Two files of the data folder are the membership: [`KEYTAB`] with the keys, and [`FILE`], which
//! names their account. The keys are written first: a crash in between leaves a server that is no
//! member, and can join again. Leaving empties the files and does not remove them, since a node of
//! a pair sends changed files to its partner, not removals.
//!
//! No password is kept. Of the computer account's own only the keys derived from it are.

mod adcli;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use weir_base::small_file;

use crate::keytab;

/// The file that says of which domain the server is a member, and as whom.
pub const FILE: &str = "ad-domain";
/// The file of the computer account's keys.
pub const KEYTAB: &str = "ad-keytab";
/// File to which `adcli` writes keys, before they become the server's.
const JOINING: &str = "ad-keytab.joining";
/// Longest name of a computer account, in characters: the limit of NetBIOS.
const MAX_COMPUTER: usize = 15;

/// Reason why a domain was not joined, left or verified.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something has to be changed first: the program is missing, the request is invalid, or the
    /// domain refuses.
    #[error("{0}")]
    Refused(String),
    /// A file, or a process that could not be started.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Request to join. No field may begin with a dash or have control characters, since `adcli` gets
/// them in its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The domain's name in the DNS.
    pub domain: String,
    /// A domain controller; empty: the DNS knows one.
    pub controller: String,
    /// The computer account's name, of [`MAX_COMPUTER`] characters at most; empty: this machine's.
    pub computer: String,
    /// Organizational unit of a new account, as an LDAP name below the domain's; empty: the
    /// domain's default.
    pub unit: String,
    /// This machine's name in the DNS; empty: as it calls itself, in the domain.
    pub host: String,
    /// Speak LDAP over TLS from the beginning. Otherwise Kerberos encrypts it.
    pub ldaps: bool,
}

/// A membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The domain's name in the DNS.
    pub domain: String,
    /// Its name for NetBIOS.
    pub short: String,
    /// The Kerberos realm.
    pub realm: String,
    /// The domain controller that was asked; empty: whichever the DNS names.
    pub controller: String,
    /// The computer account's name, without `$`.
    pub computer: String,
    /// The account's LDAP name.
    pub account: String,
    /// The name by which clients are to reach the server.
    pub host: String,
}

/// Field of a [`Member`]: its name in the file, and its accessor.
type Field = (&'static str, fn(&mut Member) -> &mut String);

const FIELDS: [Field; 7] = [
    ("domain", |m| &mut m.domain),
    ("short", |m| &mut m.short),
    ("realm", |m| &mut m.realm),
    ("controller", |m| &mut m.controller),
    ("computer", |m| &mut m.computer),
    ("account", |m| &mut m.account),
    ("host", |m| &mut m.host),
];

impl Member {
    fn text(&self) -> String {
        let mut all = self.clone();
        let line = |(name, field): Field| format!("{name}\t{}\n", field(&mut all));
        FIELDS.into_iter().map(line).collect()
    }

    fn parse(text: &str) -> Option<Member> {
        let mut member = Member::default();
        for line in text.lines() {
            let (name, value) = line.split_once('\t')?;
            // Fields of later versions are passed over.
            if let Some((_, field)) = FIELDS.into_iter().find(|(known, _)| *known == name) {
                value.clone_into(field(&mut member));
            }
        }
        let said = !member.domain.is_empty() && !member.computer.is_empty();
        said.then_some(member)
    }
}

/// The membership of a data folder's server, if it has one.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn read(folder: &Path) -> Result<Option<Member>> {
    let path = folder.join(FILE);
    let bytes = small_file::read(&path).with_context(|| path.display().to_string())?;
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    let member = String::from_utf8(bytes).ok();
    let member = member.and_then(|text| Member::parse(&text));
    let member = member.with_context(|| format!("{} is damaged", path.display()))?;
    Ok(Some(member))
}

/// Makes the server of a data folder a member of a domain, with the rights of `user`. `machine` is
/// the machine's name, for what the request leaves open. If the server is a member already, its
/// account gets a new password. The former files stay in force until the new keys are written.
///
/// # Errors
/// `adcli` is missing, or the domain refuses: then nothing has changed here.
pub fn join(
    folder: &Path,
    request: &Request,
    machine: &str,
    user: &str,
    password: &str,
) -> Result<Member, Failure> {
    let before = read(folder)?;
    let request = settled(request, machine)?;
    let keys = JoinKeytab::begin(folder, before.as_ref(), &request)?;
    let made = adcli::join(&request, &keys.path, user, password)?;
    let bytes = std::fs::read(&keys.path).context("reading the keys written by adcli")?;
    keytab::principals(&bytes).context("checking the keys written by adcli")?;
    small_file::replace(folder, KEYTAB, &bytes).context("writing the keys")?;
    small_file::replace(folder, FILE, made.text().as_bytes()).context("writing the membership")?;
    Ok(made)
}

/// Ends the membership, and with a user's password deletes the account in the domain. Without one
/// the account stays there unused.
///
/// # Errors
/// The domain refuses to delete the account: then the server is still a member.
pub fn leave(folder: &Path, user: Option<(&str, &str)>) -> Result<Member, Failure> {
    let member = read(folder)?.ok_or_else(no_member)?;
    if let Some((user, password)) = user {
        adcli::delete(&member, user, password)?;
    }
    for name in [FILE, KEYTAB] {
        small_file::replace(folder, name, b"").context("ending the membership")?;
    }
    Ok(member)
}

/// Logs on to the domain with the server's own keys.
///
/// # Errors
/// The domain does not know them, or cannot be reached.
pub fn test(folder: &Path) -> Result<Member, Failure> {
    let member = read(folder)?.ok_or_else(no_member)?;
    adcli::test(&member, &folder.join(KEYTAB))?;
    Ok(member)
}

fn no_member() -> Failure {
    Failure::Refused("this server is a member of no domain".to_owned())
}

/// Fills in what the request leaves to the machine of this name, and checks the names.
fn settled(request: &Request, machine: &str) -> Result<Request, Failure> {
    let refuse = |why: String| Err(Failure::Refused(why));
    let mut request = request.clone();
    let short = machine.split('.').next().unwrap_or_default();
    if request.computer.is_empty() {
        request.computer = short.chars().take(MAX_COMPUTER).collect();
    }
    request.computer = request.computer.to_uppercase();
    if request.host.is_empty() {
        request.host = match machine.contains('.') {
            true => machine.to_owned(),
            false => format!("{short}.{}", request.domain),
        };
    }
    let computer = request.computer.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if computer.len() > MAX_COMPUTER || !computer.chars().all(plain) {
        return refuse(format!(
            "{computer:?} is no name of a computer account: letters, digits and -, {MAX_COMPUTER} at most"
        ));
    }
    let names = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    for (what, text) in [
        ("domain", &request.domain),
        ("host", &request.host),
        ("domain controller", &request.controller),
    ] {
        let empty = text.is_empty() && what != "domain controller";
        if empty || text.len() > 255 || text.starts_with('-') || !text.chars().all(names) {
            return refuse(format!("{text:?} is no name of a {what}"));
        }
    }
    let unit = request.unit.as_str();
    let odd = unit.starts_with('-') || unit.chars().any(char::is_control) || unit.len() > 1024;
    match odd {
        true => refuse(format!("{unit:?} is no organizational unit")),
        false => Ok(request),
    }
}

/// The file that `adcli` writes keys to. It is gone when this is.
struct JoinKeytab {
    path: PathBuf,
}

impl JoinKeytab {
    /// Starts with the keys that the same account has already, since clients hold tickets for
    /// these.
    fn begin(
        folder: &Path,
        before: Option<&Member>,
        request: &Request,
    ) -> Result<JoinKeytab, anyhow::Error> {
        let path = folder.join(JOINING);
        let same = before.is_some_and(|member| {
            member.domain.eq_ignore_ascii_case(&request.domain)
                && member.computer == request.computer
        });
        let keys = match same {
            true => small_file::read(&folder.join(KEYTAB))?,
            false => None,
        };
        match keys.filter(|keys| !keys.is_empty()) {
            Some(keys) => small_file::replace(folder, JOINING, &keys)?,
            None => {
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(JoinKeytab { path })
    }
}

impl Drop for JoinKeytab {
    fn drop(&mut self) {
        // There is none if nothing was written.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member {
            domain: "weir.test".into(),
            short: "WEIR".into(),
            realm: "WEIR.TEST".into(),
            controller: String::new(),
            computer: "FILES-1".into(),
            account: "CN=FILES-1,CN=Computers,DC=weir,DC=test".into(),
            host: "files.weir.test".into(),
        }
    }

    #[test]
    fn a_membership_is_read_as_it_was_written_and_ends_with_empty_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let text = member().text();
        small_file::replace(folder.path(), FILE, text.as_bytes()).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(member()));
        let more = format!("{text}of-a-later-version\tx\n");
        assert_eq!(Member::parse(&more), Some(member()));
        for damaged in ["domain weir.test\n", "domain\tweir.test\n", "x\ty\n"] {
            assert_eq!(Member::parse(damaged), None, "{damaged}");
        }
        assert_eq!(leave(folder.path(), None).unwrap(), member());
        assert_eq!(read(folder.path()).unwrap(), None);
        let left = std::fs::read(folder.path().join(KEYTAB)).unwrap();
        assert!(left.is_empty());
        assert!(leave(folder.path(), None).is_err());
    }

    #[test]
    fn what_is_no_name_does_not_reach_the_program() {
        let good = Request {
            domain: "weir.test".into(),
            computer: "files".into(),
            ..Request::default()
        };
        let full = settled(&good, "files").unwrap();
        assert_eq!(full.computer, "FILES");
        assert!(full.host.contains('.'), "{}", full.host);
        for bad in [
            Request {
                domain: String::new(),
                ..good.clone()
            },
            Request {
                domain: "--help".into(),
                ..good.clone()
            },
            Request {
                computer: "sixteen-letters-".into(),
                ..good.clone()
            },
            Request {
                computer: "a b".into(),
                ..good.clone()
            },
            Request {
                controller: "-x".into(),
                ..good.clone()
            },
            Request {
                host: "a/b".into(),
                ..good.clone()
            },
            Request {
                unit: "-OU=x".into(),
                ..good.clone()
            },
            Request {
                unit: "OU=x\ny".into(),
                ..good.clone()
            },
        ] {
            assert!(
                matches!(settled(&bad, "files"), Err(Failure::Refused(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn only_keys_of_the_same_account_are_kept_over_another_join() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(JOINING);
        std::fs::write(folder.path().join(KEYTAB), "keys").unwrap();
        std::fs::write(&at, "of a join that was cut short").unwrap();
        let mut request = Request {
            domain: "WEIR.test".into(),
            computer: "FILES-1".into(),
            ..Request::default()
        };
        let begun = JoinKeytab::begin(folder.path(), Some(&member()), &request).unwrap();
        assert_eq!(std::fs::read(&at).unwrap(), b"keys");
        drop(begun);
        assert!(!at.exists());
        request.computer = "OTHER".into();
        std::fs::write(&at, "of a join that was cut short").unwrap();
        let _begun = JoinKeytab::begin(folder.path(), Some(&member()), &request).unwrap();
        assert!(!at.exists());
    }
}
