//! The pipe `lsarpc` (MS-LSAD, MS-LSAT), by which clients show names for the identifiers of a
//! security descriptor, and find the identifier of a name.
//!
//! Users and groups are numbers (see [`crate::proto::security`]). S-1-22-1-uid is `Unix User\NAME`,
//! with the name of the user who logs on and acts as that number, or else of the machine's user.
//! S-1-22-2-gid is `Unix Group\NAME`. Samba has the same names. A number without a name is its own
//! name. The machine's names come from its name service, which may take seconds: a call that lacks
//! one waits and is run again. Users of Active Directory domains have the names from their tickets.
//! Groups of domains have names only if these are the same in every domain; a domain controller
//! knows the others. Nothing here can be changed, and all policy handles are the same.

use crate::pipes::rpc::{POINTER, Results, Syntax};
use crate::proto::status::Status;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use weir_auth::domains::SidMap;
use weir_auth::sid::{Sid, sid};
use weir_auth::users::{Machine, Users};
use weir_auth::wire::{DecodeError, Put, Reader, from_utf16, utf16};
use weir_vfs::signal::Signal;

/// 12345778-1234-abcd-ef00-0123456789ab, version 0.
pub const LSARPC: Syntax = [
    0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
    0, 0, 0, 0,
];

/// Operations (MS-LSAD §3.1.4, MS-LSAT §3.1.4).
mod operation {
    pub const CLOSE: u16 = 0;
    pub const OPEN_POLICY: u16 = 6;
    pub const QUERY_POLICY: u16 = 7;
    pub const LOOKUP_NAMES: u16 = 14;
    pub const LOOKUP_SIDS: u16 = 15;
    pub const OPEN_POLICY_2: u16 = 44;
    pub const QUERY_POLICY_2: u16 = 46;
    pub const LOOKUP_SIDS_2: u16 = 57;
    pub const LOOKUP_NAMES_2: u16 = 58;
    pub const LOOKUP_NAMES_3: u16 = 68;
}

/// SID_NAME_USE (MS-LSAT §2.2.13).
pub(crate) mod kind {
    pub const USER: u16 = 1;
    pub const GROUP: u16 = 2;
    pub const ALIAS: u16 = 4;
    pub const WELL_KNOWN: u16 = 5;
    pub const UNKNOWN: u16 = 8;
}

/// A policy handle that leads somewhere (MS-LSAD §2.2.2.1), and none.
const POLICY: [u8; 20] = [
    0, 0, 0, 0, b'w', b'e', b'i', b'r', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
];
const NO_POLICY: [u8; 20] = [0; 20];
/// Identifiers and names of one call at most: as many as MS-LSAT §2.2.9 allows clients that know
/// the least.
pub(crate) const MOST: u32 = 1000;

/// The workgroup that the server reports as its own. Its Active Directory domain is known only from
/// tickets ([`weir_auth::domains`]).
pub(crate) const NO_DOMAIN: &str = "WORKGROUP";

const UNIX_USER: &str = "Unix User";
const UNIX_GROUP: &str = "Unix Group";

/// Identifiers with names of their own: the authority, what follows, the domain, the name, the
/// kind.
const KNOWN: [(u8, &[u32], &str, &str, u16); 6] = [
    (1, &[0], "", "Everyone", kind::WELL_KNOWN),
    (3, &[0], "", "CREATOR OWNER", kind::WELL_KNOWN),
    (3, &[1], "", "CREATOR GROUP", kind::WELL_KNOWN),
    (
        5,
        &[11],
        "NT AUTHORITY",
        "Authenticated Users",
        kind::WELL_KNOWN,
    ),
    (5, &[18], "NT AUTHORITY", "SYSTEM", kind::WELL_KNOWN),
    (5, &[32, 545], "BUILTIN", "Users", kind::ALIAS),
];

/// Users and groups that every domain has, by what ends their identifier (MS-DTYP §2.4.2.4).
const IN_EVERY_DOMAIN: [(u32, &str, u16); 11] = [
    (500, "Administrator", kind::USER),
    (501, "Guest", kind::USER),
    (502, "krbtgt", kind::USER),
    (512, "Domain Admins", kind::GROUP),
    (513, "Domain Users", kind::GROUP),
    (514, "Domain Guests", kind::GROUP),
    (515, "Domain Computers", kind::GROUP),
    (516, "Domain Controllers", kind::GROUP),
    (518, "Schema Admins", kind::GROUP),
    (519, "Enterprise Admins", kind::GROUP),
    (520, "Group Policy Creator Owners", kind::GROUP),
];

/// Runs a call on the server with this name. Returns its results in NDR, or `None` if there is no
/// such operation.
///
/// # Errors
/// Its arguments cannot be read.
pub fn call(
    operation: u16,
    stub: &[u8],
    names: &Names<'_>,
    server: &str,
) -> Result<Option<Vec<u8>>, DecodeError> {
    let mut r = Reader::new(stub);
    let mut out = Vec::new();
    match operation {
        // There is one policy, for every access and every server name.
        operation::OPEN_POLICY | operation::OPEN_POLICY_2 => {
            out.put(&POLICY);
            out.put_u32(Status::SUCCESS.0);
        }
        operation::CLOSE => {
            let status = has_policy(&mut r)?;
            out.put(&NO_POLICY);
            out.put_u32(status.0);
        }
        operation::QUERY_POLICY | operation::QUERY_POLICY_2 => {
            let status = has_policy(&mut r)?;
            let level = r.u16()?;
            out = match status {
                Status::SUCCESS => policy(level, server),
                status => nothing(status),
            };
        }
        operation::LOOKUP_SIDS | operation::LOOKUP_SIDS_2 => {
            let status = has_policy(&mut r)?;
            let asked = sids(&mut r)?;
            let found = asked
                .iter()
                .map(|sid| Translation::from_sid(sid, names))
                .collect();
            let extended = operation == operation::LOOKUP_SIDS_2;
            put_found(
                &mut out,
                status,
                found,
                |out, found, domain| {
                    out.put_u16(found.kind);
                    out.put_u16(0);
                    let len = found.name.encode_utf16().count() as u16 * 2;
                    out.put_u16(len);
                    out.put_u16(len);
                    out.put_u32(POINTER);
                    out.put_u32(domain);
                    if extended {
                        out.put_u32(0);
                    }
                },
                |out, found| put_name(out, &found.name),
            );
        }
        operation::LOOKUP_NAMES | operation::LOOKUP_NAMES_2 | operation::LOOKUP_NAMES_3 => {
            let status = has_policy(&mut r)?;
            let asked = texts(&mut r)?;
            let found = asked
                .iter()
                .map(|name| Translation::called(name, names))
                .collect();
            let whole = operation == operation::LOOKUP_NAMES_3;
            put_found(
                &mut out,
                status,
                found,
                |out, found, domain| {
                    out.put_u16(found.kind);
                    out.put_u16(0);
                    match (whole, found.sid.as_ref()) {
                        (true, Some(_)) => out.put_u32(POINTER),
                        (true, None) => out.put_u32(0),
                        (false, sid) => out.put_u32(sid.and_then(Sid::last).unwrap_or(u32::MAX)),
                    }
                    out.put_u32(domain);
                    if operation != operation::LOOKUP_NAMES {
                        out.put_u32(0);
                    }
                },
                |out, found| {
                    if let Some(sid) = found.sid.as_ref().filter(|_| whole) {
                        put_sid(out, sid);
                    }
                },
            );
        }
        _ => return Ok(None),
    }
    Ok(Some(out))
}

/// Returns a response without results.
fn nothing(status: Status) -> Vec<u8> {
    let mut out = Results::default();
    out.u32(0);
    out.done(status)
}

/// LsarQueryInformationPolicy (MS-LSAD §3.1.4.4.4): which domains the server has accounts of.
fn policy(level: u16, server: &str) -> Vec<u8> {
    const PRIMARY: u16 = 3;
    const ACCOUNTS: u16 = 5;
    const DNS: u16 = 12;
    let mut out = Results::default();
    out.u32(POINTER);
    out.u16(level);
    match level {
        PRIMARY => {
            out.text(NO_DOMAIN);
            out.u32(0);
            out.put_texts();
        }
        ACCOUNTS => {
            out.text(server);
            out.u32(POINTER);
            out.put_texts();
            out.sid(&users());
        }
        DNS => {
            out.text(NO_DOMAIN);
            out.text("");
            out.text("");
            out.bytes(&[0; 16]);
            out.u32(0);
            out.put_texts();
        }
        _ => return nothing(Status::INVALID_INFO_CLASS),
    }
    out.done(Status::SUCCESS)
}

/// The domain of the users who log on: their identifiers end with the numbers that they act as.
pub(crate) fn users() -> Sid {
    sid(22, &[1])
}

fn has_policy(r: &mut Reader<'_>) -> Result<Status, DecodeError> {
    Ok(match r.array()? {
        POLICY => Status::SUCCESS,
        _ => Status::INVALID_HANDLE,
    })
}

/// An array of pointers to identifiers (LSAPR_SID_ENUM_BUFFER).
pub(crate) fn sids(r: &mut Reader<'_>) -> Result<Vec<Sid>, DecodeError> {
    let (count, pointer) = (r.u32()?, r.u32()?);
    if count > MOST {
        return Err(DecodeError);
    }
    if pointer == 0 {
        return Ok(Vec::new());
    }
    r.u32()?;
    for _ in 0..count {
        if r.u32()? == 0 {
            return Err(DecodeError);
        }
    }
    let each = (0..count).map(|_| {
        let subs = r.u32()?;
        let sid = Sid::read(r)?;
        match sid.count() == subs {
            true => Ok(sid),
            false => Err(DecodeError),
        }
    });
    each.collect()
}

/// An array of names (RPC_UNICODE_STRING).
fn texts(r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = r.u32()?;
    r.u32()?;
    strings(r, count)
}

/// Reads `count` strings (RPC_UNICODE_STRING), whose letters follow the array.
pub(crate) fn strings(r: &mut Reader<'_>, count: u32) -> Result<Vec<String>, DecodeError> {
    if count > MOST {
        return Err(DecodeError);
    }
    let mut lens = Vec::new();
    for _ in 0..count {
        let (len, _most, pointer) = (r.u16()?, r.u16()?, r.u32()?);
        lens.push((pointer != 0).then_some(len));
    }
    let each = lens.into_iter().map(|len| {
        let Some(len) = len else {
            return Ok(String::new()); // A null string is empty.
        };
        let (_most, first, units) = (r.u32()?, r.u32()?, r.u32()?);
        if first != 0 || units != u32::from(len) / 2 {
            return Err(DecodeError);
        }
        let text = from_utf16(r.bytes(2 * units as usize)?)?;
        if units % 2 == 1 {
            // The padding may be missing at the very end.
            let _ = r.u16();
        }
        Ok(text)
    });
    each.collect()
}

/// Sources of names.
pub struct Names<'n> {
    users: &'n dyn Users,
    known: &'n SidMap,
    machine: Option<&'n dyn Machine>,
    lacked: RefCell<Option<Arc<Signal<()>>>>,
}

impl<'n> Names<'n> {
    /// Returns names of the users who log on, of domains, and of this machine.
    pub fn new(
        users: &'n dyn Users,
        known: &'n SidMap,
        machine: Option<&'n dyn Machine>,
    ) -> Names<'n> {
        Names {
            users,
            known,
            machine,
            lacked: RefCell::default(),
        }
    }

    /// Takes the signal for a name that is being looked up, if one was missing.
    pub fn lacked(&self) -> Option<Arc<Signal<()>>> {
        self.lacked.take()
    }

    fn found<T>(&self, found: Result<Option<T>, Arc<Signal<()>>>) -> Option<T> {
        found.unwrap_or_else(|coming| {
            self.lacked.replace(Some(coming));
            None
        })
    }

    fn machine_name(&self, group: bool, number: u32) -> Option<String> {
        self.found(self.machine?.name(group, number))
    }

    fn machine_number(&self, group: bool, name: &str) -> Option<u32> {
        self.found(self.machine?.number(group, name))
    }
}

/// An identifier and its name.
struct Translation {
    domain: Option<(Cow<'static, str>, Sid)>,
    name: String,
    sid: Option<Sid>,
    kind: u16,
}

fn unix_user(uid: u32, name: String) -> Translation {
    Translation {
        domain: Some((UNIX_USER.into(), users())),
        name,
        sid: Some(Sid::user(uid)),
        kind: kind::USER,
    }
}

impl Translation {
    fn unknown(name: String) -> Translation {
        Translation {
            domain: None,
            name,
            sid: None,
            kind: kind::UNKNOWN,
        }
    }

    /// Someone of a domain of which a user has been seen.
    fn in_domain(asked: &Sid, known: &SidMap) -> Option<Translation> {
        let (domain, relative) = asked.in_domain()?;
        let everywhere = IN_EVERY_DOMAIN.iter().find(|(id, ..)| *id == relative);
        let (short, name, kind) = match (known.name(asked), everywhere) {
            (Some((short, name)), _) => (short, name, kind::USER),
            (None, Some((_, name, kind))) => (known.domain(&domain)?, *name, *kind),
            (None, None) => return None,
        };
        Some(Translation {
            domain: Some((short.to_owned().into(), domain)),
            name: name.to_owned(),
            sid: Some(asked.clone()),
            kind,
        })
    }

    fn well_known(
        (authority, subs, domain, name, kind): &(u8, &[u32], &'static str, &str, u16),
    ) -> Translation {
        let above = subs.len() - 1;
        Translation {
            domain: Some(((*domain).into(), sid(*authority, &subs[..above]))),
            name: (*name).to_owned(),
            sid: Some(sid(*authority, subs)),
            kind: *kind,
        }
    }

    fn from_sid(asked: &Sid, names: &Names<'_>) -> Translation {
        if let Some(named) = KNOWN.iter().find(|known| *asked == sid(known.0, known.1)) {
            return Translation::well_known(named);
        }
        if let Some(named) = Translation::in_domain(asked, names.known) {
            return named;
        }
        if let Some(uid) = asked.as_user() {
            let own = names.users.with_uid(uid).map(|user| user.name.clone());
            let name = own.or_else(|| names.machine_name(false, uid));
            return unix_user(uid, name.unwrap_or_else(|| uid.to_string()));
        }
        if let Some(gid) = asked.as_group() {
            return Translation {
                domain: Some((UNIX_GROUP.into(), sid(22, &[2]))),
                name: names
                    .machine_name(true, gid)
                    .unwrap_or_else(|| gid.to_string()),
                sid: Some(asked.clone()),
                kind: kind::ALIAS,
            };
        }
        Translation::unknown(asked.to_string())
    }

    /// A name, with or without a domain in front.
    fn called(asked: &str, names: &Names<'_>) -> Translation {
        let (domain, name) = asked.split_once('\\').unwrap_or(("", asked));
        let is = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let in_domain = |own: &str| domain.is_empty() || is(domain, own);
        let everywhere = KNOWN
            .iter()
            .find(|known| is(known.3, name) && in_domain(known.2));
        if let Some(named) = everywhere {
            return Translation::well_known(named);
        }
        let known = names.known;
        let of_a_domain = known.called(domain, name);
        if let Some(named) = of_a_domain.and_then(|sid| Translation::in_domain(sid, known)) {
            return named;
        }
        // Users and groups of the machine are found by name or number in the domains of their kind.
        if is(domain, UNIX_GROUP) {
            let gid = name
                .parse()
                .ok()
                .or_else(|| names.machine_number(true, name));
            return gid.map_or_else(
                || Translation::unknown(name.to_owned()),
                |gid| Translation::from_sid(&Sid::group(gid), names),
            );
        }
        let found = names.users.find(name);
        if is(domain, UNIX_USER) && found.is_none() {
            let uid = name
                .parse()
                .ok()
                .or_else(|| names.machine_number(false, name));
            return uid.map_or_else(
                || Translation::unknown(name.to_owned()),
                |uid| Translation::from_sid(&Sid::user(uid), names),
            );
        }
        // The domain of users is whatever clients take the server for.
        match found {
            Some(user) => unix_user(user.identity.unix.uid, user.name.clone()),
            None => Translation::unknown(name.to_owned()),
        }
    }
}

fn put_sid(out: &mut Vec<u8>, sid: &Sid) {
    out.put_u32(sid.count());
    sid.put(out);
}

/// The letters of a name, which its RPC_UNICODE_STRING points to.
fn put_name(out: &mut Vec<u8>, name: &str) {
    let letters = utf16(name);
    let units = letters.len() as u32 / 2;
    for v in [units, 0, units] {
        out.put_u32(v);
    }
    out.put(&letters);
    out.align(0, 4);
}

/// The domains that the findings are of, then the findings: `fixed` puts one with the place of its
/// domain, `rest` what it points to.
fn put_found(
    out: &mut Vec<u8>,
    status: Status,
    found: Vec<Translation>,
    fixed: impl Fn(&mut Vec<u8>, &Translation, u32),
    rest: impl Fn(&mut Vec<u8>, &Translation),
) {
    let found = match status {
        Status::SUCCESS => found,
        _ => Vec::new(),
    };
    let mut domains: Vec<&(Cow<'_, str>, Sid)> = Vec::new();
    let mut places = Vec::new();
    for named in &found {
        let place = named.domain.as_ref().map(|domain| {
            let there = domains.iter().position(|other| *other == domain);
            there.unwrap_or_else(|| {
                domains.push(domain);
                domains.len() - 1
            })
        });
        places.push(place.map_or(u32::MAX, |place| place as u32));
    }
    let count = domains.len() as u32;
    for v in [POINTER, count, POINTER, MOST, count] {
        out.put_u32(v);
    }
    for (name, _) in &domains {
        let len = 2 * name.encode_utf16().count() as u16;
        out.put_u16(len);
        out.put_u16(len);
        out.put_u32(POINTER);
        out.put_u32(POINTER);
    }
    for (name, sid) in &domains {
        put_name(out, name);
        put_sid(out, sid);
    }
    let count = found.len() as u32;
    for v in [count, POINTER, count] {
        out.put_u32(v);
    }
    for (named, place) in found.iter().zip(&places) {
        fixed(out, named, *place);
    }
    found.iter().for_each(|named| rest(out, named));
    let mapped = found.iter().filter(|named| named.sid.is_some()).count() as u32;
    out.put_u32(mapped);
    let status = match status {
        Status::SUCCESS if mapped == count => Status::SUCCESS,
        Status::SUCCESS if mapped > 0 => Status::SOME_NOT_MAPPED,
        Status::SUCCESS => Status::NONE_MAPPED,
        status => status,
    };
    out.put_u32(status.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_auth::users::User;
    use weir_vfs::{Groups, Identity};

    /// No domain is known.
    fn none() -> SidMap {
        SidMap::default()
    }

    fn names(known: &SidMap) -> Names<'_> {
        Names::new(&Mouse, known, None)
    }

    struct Mouse;

    impl Users for Mouse {
        fn find(&self, name: &str) -> Option<Arc<User>> {
            self.with_uid(1234)
                .filter(|user| user.name.eq_ignore_ascii_case(name))
        }

        fn list_users(&self) -> Arc<[Arc<User>]> {
            self.with_uid(1234).into_iter().collect()
        }

        fn with_uid(&self, uid: u32) -> Option<Arc<User>> {
            (uid == 1234).then(|| {
                Arc::new(User {
                    name: "Mouse".into(),
                    nt_hash: [0; 16],
                    identity: Identity::unix(uid, uid, Groups::default()),
                })
            })
        }
    }

    fn name_parts(found: &Translation) -> (String, String, u16) {
        let domain = found.domain.as_ref().map_or("", |(domain, _)| domain);
        (domain.to_owned(), found.name.clone(), found.kind)
    }

    #[test]
    fn identifiers_and_names_lead_to_each_other() {
        for (authority, subs, domain, name, kind) in [
            (22, &[1, 1234][..], "Unix User", "Mouse", kind::USER),
            (22, &[1, 77], "Unix User", "77", kind::USER),
            (22, &[2, 77], "Unix Group", "77", kind::ALIAS),
            (1, &[0], "", "Everyone", kind::WELL_KNOWN),
            (5, &[32, 545], "BUILTIN", "Users", kind::ALIAS),
        ] {
            let asked = sid(authority, subs);
            let expected = (domain.to_owned(), name.to_owned(), kind);
            assert_eq!(
                name_parts(&Translation::from_sid(&asked, &names(&none()))),
                expected
            );
            let back = Translation::called(&format!("{domain}\\{name}"), &names(&none()));
            assert_eq!((name_parts(&back), back.sid), (expected, Some(asked)));
        }
        // As clients say it who take the server for the domain.
        for name in ["mouse", "WEIR\\MOUSE"] {
            assert_eq!(
                Translation::called(name, &names(&none())).sid,
                Some(Sid::user(1234))
            );
        }
        for name in ["Unix Group\\mouse", "nobody", "77", ""] {
            assert_eq!(
                Translation::called(name, &names(&none())).sid,
                None,
                "{name}"
            );
        }
        let stranger = Translation::from_sid(&sid(5, &[21, 1, 2, 3, 500]), &names(&none()));
        assert_eq!(stranger.name, "S-1-5-21-1-2-3-500");
        assert!(stranger.sid.is_none() && stranger.domain.is_none());
    }

    #[test]
    fn those_of_a_domain_have_the_names_of_their_tickets() {
        let domain = sid(5, &[21, 1, 2, 3]);
        let domains = weir_auth::domains::Domains::default();
        let logon = weir_auth::pac::Logon {
            name: "Alice".into(),
            domain: "WEIR".into(),
            user: domain.with(1105),
            primary: domain.with(513),
            groups: vec![domain.with(1200)],
            is_machine: false,
        };
        domains.meet(&logon, None).unwrap();
        let known = domains.known();
        for (relative, name, kind) in [
            (1105, "Alice", kind::USER),
            (513, "Domain Users", kind::GROUP),
            (500, "Administrator", kind::USER),
        ] {
            let found = Translation::from_sid(&domain.with(relative), &names(&known));
            assert_eq!(name_parts(&found), ("WEIR".into(), name.into(), kind));
            assert_eq!(found.domain.unwrap().1, domain);
        }
        let back = Translation::called("weir\\ALICE", &names(&known));
        assert_eq!(back.sid, Some(domain.with(1105)));
        assert!(
            Translation::from_sid(&domain.with(1200), &names(&known))
                .sid
                .is_none()
        );
    }

    /// The name service has replied for number 7, and looks up all others.
    struct Service;

    impl Machine for Service {
        fn name(&self, group: bool, number: u32) -> Result<Option<String>, Arc<Signal<()>>> {
            match (group, number) {
                (true, 7) => Ok(Some("wheel".into())),
                (false, 7) => Ok(None),
                _ => Err(Arc::default()),
            }
        }
        fn number(&self, group: bool, name: &str) -> Result<Option<u32>, Arc<Signal<()>>> {
            match (group, name) {
                (true, "wheel") => Ok(Some(7)),
                (false, "wheel") => Ok(None),
                _ => Err(Arc::default()),
            }
        }
        fn tick(&self) {}
    }

    #[test]
    fn the_machine_s_own_are_named_by_its_name_service() {
        let known = none();
        let names = Names::new(&Mouse, &known, Some(&Service));
        let wheel = Translation::from_sid(&Sid::group(7), &names);
        assert_eq!(
            name_parts(&wheel),
            ("Unix Group".into(), "wheel".into(), kind::ALIAS)
        );
        assert_eq!(
            Translation::called("Unix Group\\wheel", &names).sid,
            Some(Sid::group(7))
        );
        assert_eq!(Translation::from_sid(&Sid::user(7), &names).name, "7");
        assert!(
            Translation::called("Unix User\\wheel", &names)
                .sid
                .is_none()
        );
        assert_eq!(
            Translation::from_sid(&Sid::user(1234), &names).name,
            "Mouse"
        );
        assert!(names.lacked().is_none());
        // A name that is being looked up is reported as missing.
        Translation::from_sid(&Sid::group(8), &names);
        assert!(names.lacked().is_some() && names.lacked().is_none());
        Translation::called("Unix User\\later", &names);
        assert!(names.lacked().is_some());
    }

    /// A call of LookupSids for these.
    fn lookup(all: &[Sid]) -> Vec<u8> {
        let mut stub = POLICY.to_vec();
        for v in [all.len() as u32, POINTER, all.len() as u32] {
            stub.put_u32(v);
        }
        all.iter().for_each(|_| stub.put_u32(POINTER));
        all.iter().for_each(|sid| put_sid(&mut stub, sid));
        for v in [0, 0, 1, 0] {
            stub.put_u32(v);
        }
        stub
    }

    fn status(stub: &[u8]) -> Status {
        let result = call(operation::LOOKUP_SIDS, stub, &names(&none()), "weir")
            .unwrap()
            .unwrap();
        let (_, last) = result.split_last_chunk::<4>().unwrap();
        Status(u32::from_le_bytes(*last))
    }

    #[test]
    fn what_is_not_known_is_said() {
        let (user, stranger) = ([Sid::user(1)], sid(5, &[21, 9]));
        assert_eq!(status(&lookup(&user)), Status::SUCCESS);
        assert_eq!(
            status(&lookup(&[Sid::user(1), stranger.clone()])),
            Status::SOME_NOT_MAPPED
        );
        assert_eq!(status(&lookup(&[stranger])), Status::NONE_MAPPED);
        let mut other = lookup(&user);
        other[0] = 1;
        assert_eq!(status(&other), Status::INVALID_HANDLE);
    }

    /// The server's accounts are of its own domain, whose identifier those of users begin with.
    #[test]
    fn the_domain_of_accounts_is_the_server_s() {
        let ask = |level: u16| {
            let stub = [&POLICY[..], &level.to_le_bytes()].concat();
            call(operation::QUERY_POLICY, &stub, &names(&none()), "weir")
                .unwrap()
                .unwrap()
        };
        let mut expected = Vec::new();
        for v in [POINTER, 5, 8 << 16 | 8, POINTER, POINTER, 4, 0, 4] {
            expected.put_u32(v);
        }
        expected.put_utf16("weir");
        put_sid(&mut expected, &sid(22, &[1]));
        expected.put_u32(0);
        assert_eq!(ask(5), expected);
        assert_eq!(ask(7)[4..], Status::INVALID_INFO_CLASS.0.to_le_bytes());
        assert!(ask(3).ends_with(&[0; 4]) && ask(12).ends_with(&[0; 4]));
    }

    proptest! {
        #[test]
        fn any_arguments_are_taken_or_refused(
            which in 0u16..70,
            at in 0usize..100,
            with in any::<u8>(),
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = call(which, &bytes, &names(&none()), "weir");
            let mut stub = lookup(&[Sid::user(1), Sid::group(2)]);
            if let Some(byte) = stub.get_mut(at) {
                *byte = with;
            }
            for which in [which, operation::LOOKUP_SIDS, operation::LOOKUP_NAMES] {
                if let Ok(Some(result)) = call(which, &stub, &names(&none()), "weir") {
                    prop_assert!(result.len() < 100 * 1024);
                }
            }
        }
    }
}
