//! Users and groups of Active Directory domains, and the numbers that they have here.
//!
//! Files and their access lists have numbers for users and groups; a domain has identifiers (SIDs).
//! The mapping must not depend on the order of logons, must need no request to another server, and
//! must never change. So the number of an identifier is computed. Each domain has a range of 2^20
//! numbers, in the order in which the domains were first seen, and the relative identifier (RID) is
//! the offset in it. A domain with larger relative identifiers has several ranges.
//!
//! Only the ranges are stored, and the users that have been seen, for their names. A user who is
//! also a user of this machine, by the realm's rules, has that user's number from the first logon
//! on, so that they own the same files over NFS. That number is stored too.
//!
//! **User or group.** An identifier does not say which it is, so a number of a range may be either.
//! An entry for it is an entry for a group, which also applies to the user with that number
//! ([`weir_vfs::acl`]).

use crate::pac::Logon;
use crate::sid::{Sid, sid};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use weir_vfs::{Creds, DOMAIN_NUMBERS, Identity, Token};

/// Numbers of a range.
const RANGE: u32 = 1 << 20;
/// Ranges at most.
const MOST_RANGES: usize = ((DOMAIN_NUMBERS.end - DOMAIN_NUMBERS.start) / RANGE) as usize;
/// Users that are remembered. Those beyond have numbers all the same, but no names, and none is a
/// user of this machine.
const MOST_USERS: usize = 10_000;

/// A user who has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DomainUser {
    sid: Sid,
    /// The number of the user of this machine who it is.
    uid: Option<u32>,
    /// The domain's short name.
    domain: String,
    name: String,
}

/// Known domains and users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SidMap {
    /// The domain of each range, in order, and which of its ranges it is.
    ranges: Vec<(Sid, u32)>,
    users: HashMap<Sid, Arc<DomainUser>>,
    by_uid: HashMap<u32, Arc<DomainUser>>,
    by_name: HashMap<String, Arc<DomainUser>>,
}

/// The name by which a user is found.
fn key(domain: &str, name: &str) -> String {
    format!("{domain}\\{name}").to_lowercase()
}

impl SidMap {
    fn range(&self, domain: &Sid, part: u32) -> Option<usize> {
        let mut ranges = self.ranges.iter();
        ranges.position(|(of, which)| of == domain && *which == part)
    }

    fn see(&mut self, seen: DomainUser) {
        let seen = Arc::new(seen);
        self.by_name
            .insert(key(&seen.domain, &seen.name), Arc::clone(&seen));
        if let Some(uid) = seen.uid {
            self.by_uid.insert(uid, Arc::clone(&seen));
        }
        self.users.insert(seen.sid.clone(), seen);
    }

    /// The number of an identifier of a domain; `None` of others, and of domains that have not been
    /// seen.
    pub fn number(&self, sid: &Sid) -> Option<u32> {
        if let Some(uid) = self.users.get(sid).and_then(|seen| seen.uid) {
            return Some(uid);
        }
        let (domain, relative) = sid.in_domain()?;
        let at = self.range(&domain, relative / RANGE)?;
        Some(DOMAIN_NUMBERS.start + at as u32 * RANGE + relative % RANGE)
    }

    /// The identifier of a domain that has this number.
    fn in_a_range(&self, number: u32) -> Option<Sid> {
        let within = number.checked_sub(DOMAIN_NUMBERS.start)?;
        let (domain, part) = self.ranges.get((within / RANGE) as usize)?;
        Some(domain.with(part * RANGE + within % RANGE))
    }

    /// Returns the identifier of the user with this number.
    pub fn user(&self, uid: u32) -> Sid {
        let seen = self.by_uid.get(&uid).map(|seen| seen.sid.clone());
        let domain = || self.in_a_range(uid);
        seen.or_else(domain).unwrap_or_else(|| Sid::user(uid))
    }

    /// Returns the identifier of the group with this number.
    pub fn group(&self, gid: u32) -> Sid {
        self.in_a_range(gid).unwrap_or_else(|| Sid::group(gid))
    }

    /// The domain and the name of a user who has been seen.
    pub fn name(&self, sid: &Sid) -> Option<(&str, &str)> {
        let seen = self.users.get(sid)?;
        Some((&seen.domain, &seen.name))
    }

    /// The short name of a domain of which a user has been seen.
    pub fn domain(&self, domain: &Sid) -> Option<&str> {
        let of = |seen: &&Arc<DomainUser>| seen.sid.in_domain().is_some_and(|(d, _)| d == *domain);
        let seen = self.users.values().find(of)?;
        Some(&seen.domain)
    }

    /// A user who has been seen under this name.
    pub fn called(&self, domain: &str, name: &str) -> Option<&Sid> {
        self.by_name.get(&key(domain, name)).map(|seen| &seen.sid)
    }

    /// Encodes the state as text, a line for each range and user.
    fn text(&self) -> String {
        let mut out = String::new();
        for (domain, part) in &self.ranges {
            out += &format!("range\t{domain}\t{part}\n");
        }
        let mut users: Vec<&Arc<DomainUser>> = self.users.values().collect();
        users.sort_by(|a, b| a.sid.cmp(&b.sid));
        for seen in users {
            let uid = seen.uid.map_or("-".to_owned(), |uid| uid.to_string());
            let DomainUser {
                sid, domain, name, ..
            } = &**seen;
            out += &format!("user\t{sid}\t{uid}\t{domain}\t{name}\n");
        }
        out
    }

    /// Decodes the state; `None` if the text is malformed.
    fn parse(text: &str) -> Option<SidMap> {
        let mut known = SidMap::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["range", domain, part] => {
                    let range = (domain.parse().ok()?, part.parse().ok()?);
                    known.ranges.push(range);
                }
                ["user", sid, uid, domain, name] => known.see(DomainUser {
                    sid: sid.parse().ok()?,
                    uid: match uid {
                        "-" => None,
                        uid => Some(uid.parse().ok()?),
                    },
                    domain: domain.to_owned(),
                    name: name.to_owned(),
                }),
                _ => return None,
            }
        }
        (known.ranges.len() <= MOST_RANGES).then_some(known)
    }
}

/// Stores the text of all that is known.
type Keep = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// See the module's head. Reading takes no file and waits for none.
pub struct Domains {
    known: RwLock<Arc<SidMap>>,
    /// Held while something is added.
    keep: Mutex<Keep>,
}

impl Default for Domains {
    /// Knows nothing and stores nothing.
    fn default() -> Domains {
        Domains {
            known: RwLock::default(),
            keep: Mutex::new(Box::new(|_| Ok(()))),
        }
    }
}

impl Domains {
    /// Restores the state from `text`. Additions are stored by `keep`, which takes the whole text
    /// each time.
    ///
    /// # Errors
    /// It is damaged.
    pub fn open(
        text: &str,
        keep: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Option<Domains> {
        Some(Domains {
            known: RwLock::new(Arc::new(SidMap::parse(text)?)),
            keep: Mutex::new(Box::new(keep)),
        })
    }

    /// Returns the current state.
    pub fn known(&self) -> Arc<SidMap> {
        Arc::clone(&self.known.read())
    }

    /// Returns the identity of a domain's user who logs on; `here` is the user of this machine by
    /// the same name. Additions are stored first, so this may block.
    ///
    /// # Errors
    /// It could not be kept, or there are no more numbers.
    pub fn meet(&self, logon: &Logon, here: Option<&Identity>) -> io::Result<Identity> {
        let keep = self.keep.lock();
        let mut known = (*self.known()).clone();
        let everybody = [&logon.user, &logon.primary].into_iter();
        for sid in everybody.chain(&logon.groups) {
            if let Some((domain, relative)) = sid.in_domain()
                && known.range(&domain, relative / RANGE).is_none()
            {
                if known.ranges.len() == MOST_RANGES {
                    return Err(io::Error::other("no more numbers for domains"));
                }
                known.ranges.push((domain, relative / RANGE));
            }
        }
        let old = known.users.get(&logon.user).map(|seen| (**seen).clone());
        // Nobody becomes root by a name, and nobody becomes who another one is already.
        let free = |unix: &&Creds| !unix.is_root() && !known.by_uid.contains_key(&unix.uid);
        let here = here.map(|here| &here.unix);
        let uid = match &old {
            Some(seen) => seen.uid,
            None => here.filter(free).map(|unix| unix.uid),
        };
        let plain = |text: &str| text.replace(|c: char| c.is_control(), "?");
        let seen = DomainUser {
            sid: logon.user.clone(),
            uid,
            domain: plain(&logon.domain),
            name: plain(&logon.name),
        };
        let remembered = old.is_some() || known.users.len() < MOST_USERS;
        if remembered && old.as_ref() != Some(&seen) {
            known.see(seen);
        }
        if known != *self.known() {
            keep(&known.text())?;
            *self.known.write() = Arc::new(known.clone());
        }
        let numbered = |sid: &Sid| known.number(sid);
        let none = || io::Error::other("a user who is of no domain");
        let same = here.filter(|unix| remembered && uid == Some(unix.uid));
        let (uid, gid) = match same {
            Some(unix) => (unix.uid, unix.gid),
            None => (
                numbered(&logon.user).ok_or_else(none)?,
                numbered(&logon.primary).ok_or_else(none)?,
            ),
        };
        let own = same.map_or(&[][..], |unix| unix.gids.as_slice());
        let primary = numbered(&logon.primary);
        let groups = logon.groups.iter().filter_map(numbered);
        let gids = own.iter().copied().chain(primary).chain(groups).collect();
        let mut sids: Vec<_> = [&logon.primary].into_iter().chain(&logon.groups).collect();
        sids.sort_unstable();
        sids.dedup();
        let token = Token {
            user: logon.user.whole().ok_or_else(none)?,
            groups: sids.into_iter().filter_map(Sid::whole).collect(),
        };
        Ok(Identity {
            unix: Creds { uid, gid, gids },
            windows: Some(Arc::new(token)),
        })
    }
}

impl FromStr for Sid {
    type Err = ();

    /// Parses `S-1-5-21-…`.
    fn from_str(text: &str) -> Result<Sid, ()> {
        let mut parts = text.strip_prefix("S-1-").ok_or(())?.split('-');
        let authority = parts.next().and_then(|part| part.parse().ok()).ok_or(())?;
        let subs: Vec<u32> = parts
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| ())?;
        match subs.len() {
            0..=15 => Ok(sid(authority, &subs)),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_vfs::Groups;

    const DOMAIN: [u32; 4] = [21, 1, 2, 3];

    fn within(relative: u32) -> Sid {
        sid(5, &DOMAIN).with(relative)
    }

    fn logon(relative: u32, name: &str) -> Logon {
        Logon {
            name: name.into(),
            domain: "WEIR".into(),
            user: within(relative),
            primary: within(513),
            groups: vec![within(513), within(1200), sid(5, &[21, 7, 8, 9, 1300])],
            is_machine: false,
        }
    }

    /// The stored text, and the domains that store it.
    fn kept() -> (Arc<Mutex<String>>, Domains) {
        let file = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&file);
        let keep = move |new: &str| {
            *text.lock() = new.to_owned();
            Ok(())
        };
        (file, Domains::open("", keep).unwrap())
    }

    #[test]
    fn numbers_are_computed_and_come_back() {
        let (file, domains) = kept();
        let alice = domains.meet(&logon(1105, "alice"), None).unwrap();
        let first = DOMAIN_NUMBERS.start;
        assert_eq!(
            (alice.unix.uid, alice.unix.gid),
            (first + 1105, first + 513)
        );
        let gids = [first + 513, first + 1200, first + RANGE + 1300];
        assert!(gids.iter().all(|gid| alice.unix.in_group(*gid)));
        let token = alice.windows.unwrap();
        assert_eq!(token.user, within(1105).whole().unwrap());
        assert_eq!(token.groups.len(), 3);
        let known = domains.known();
        for sid in [within(1105), within(0), sid(5, &[21, 7, 8, 9, RANGE - 1])] {
            let number = known.number(&sid).unwrap();
            assert_eq!(
                (known.user(number), known.group(number)),
                (sid.clone(), sid)
            );
        }
        // Users may come in any order: the numbers stay, also over a restart.
        domains.meet(&logon(RANGE + 5, "late"), None).unwrap();
        assert_eq!(
            domains.known().number(&within(RANGE + 5)),
            Some(first + 2 * RANGE + 5)
        );
        let again = Domains::open(&file.lock(), |_| Ok(())).unwrap();
        assert_eq!(again.known(), domains.known());
        assert_eq!(again.known().name(&within(1105)), Some(("WEIR", "alice")));
        assert_eq!(again.known().called("weir", "ALICE"), Some(&within(1105)));
        assert_eq!(known.number(&sid(5, &[32, 545])), None);
        assert_eq!(known.number(&sid(5, &[21, 4, 4, 4, 500])), None);
        assert_eq!(known.user(1000), Sid::user(1000));
        assert_eq!(
            known.group(first + 9 * RANGE),
            Sid::group(first + 9 * RANGE)
        );
    }

    #[test]
    fn a_user_of_this_machine_stays_who_the_first_logon_found() {
        let (file, domains) = kept();
        let here = Identity::unix(1000, 100, Groups::from(&[4, 24][..]));
        let alice = domains.meet(&logon(1105, "alice"), Some(&here)).unwrap();
        assert_eq!((alice.unix.uid, alice.unix.gid), (1000, 100));
        assert!(alice.unix.in_group(24) && alice.unix.in_group(DOMAIN_NUMBERS.start + 1200));
        assert_eq!(domains.known().user(1000), within(1105));
        assert_eq!(domains.known().number(&within(1105)), Some(1000));
        // Another account of the same name is another one.
        let other = domains.meet(&logon(1999, "alice"), Some(&here)).unwrap();
        assert_eq!(other.unix.uid, DOMAIN_NUMBERS.start + 1999);
        // The machine has lost its user: the number stays.
        let again = Domains::open(&file.lock(), |_| Ok(())).unwrap();
        let alice = again.meet(&logon(1105, "alice"), None).unwrap();
        assert_eq!(alice.unix.uid, 1000);
        // One whom the machine did not have at first, and root.
        domains.meet(&logon(1106, "bob"), None).unwrap();
        let bob = Identity::unix(1001, 100, Groups::default());
        let bob = domains.meet(&logon(1106, "bob"), Some(&bob)).unwrap();
        assert_eq!(bob.unix.uid, DOMAIN_NUMBERS.start + 1106);
        let root = domains.meet(&logon(1107, "root"), Some(&Identity::default()));
        assert_eq!(root.unwrap().unix.uid, DOMAIN_NUMBERS.start + 1107);
    }

    #[test]
    fn what_cannot_be_kept_is_not_known() {
        let full = |_: &str| Err(io::Error::from(io::ErrorKind::StorageFull));
        let domains = Domains::open("", full).unwrap();
        assert!(domains.meet(&logon(1105, "alice"), None).is_err());
        assert_eq!(domains.known().number(&within(1105)), None);
        for damaged in [
            "x",
            "range\tS-1-5-21",
            "user\tS-1-5-21-1\tx\tD\tn",
            "range\tS-2-1\t0",
        ] {
            assert!(Domains::open(damaged, full).is_none(), "{damaged}");
        }
    }
}
