//! The pipe `samr` (MS-SAMR), by which clients list users, and find names and numbers of accounts.
//!
//! **Accounts.** There are two domains: the server's own, with the users who log on (`weir users`),
//! and `Builtin`. The identifier of the server's is S-1-22-1, and a user's relative identifier is
//! the number that the user acts as, so identifiers here and in security descriptors are the same
//! ([`crate::proto::security`]). Of several users with one number, the first by name is listed.
//! Each domain has one group, as clients expect: `None`, with all users, and `Users`, with
//! everybody who can log on. Groups of the machine and accounts of other domains are not listed;
//! `lsarpc` has their names ([`crate::pipes::lsa`]).
//!
//! **Access.** Every user who has logged on may read; no information about passwords is given.
//! Calls that would change something are denied, and calls that no client needs do not exist.
//!
//! **Handles** contain the identity of their object and are stored nowhere, so a client may have
//! any number of them, and gains nothing by making one up. A listing resumes behind the number of
//! the last user that it has returned, even if users have come and gone since.

use crate::pipes::lsa::{self, MOST, kind, strings};
use crate::pipes::rpc::{POINTER, Results, Syntax};
use crate::pipes::samr_info as info;
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::sid::{Sid, sid};
use weir_auth::users::{User, Users};
use weir_auth::wire::{DecodeError, Reader};

/// 12345778-1234-abcd-ef00-0123456789ac, version 1.
pub const SAMR: Syntax = [
    0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89, 0xac,
    1, 0, 0, 0,
];

/// Operations (MS-SAMR §3.1.5).
mod op {
    pub const CONNECT: u16 = 0;
    pub const CLOSE: u16 = 1;
    pub const SET_SECURITY: u16 = 2;
    pub const QUERY_SECURITY: u16 = 3;
    pub const SHUTDOWN: u16 = 4;
    pub const LOOKUP_DOMAIN: u16 = 5;
    pub const ENUMERATE_DOMAINS: u16 = 6;
    pub const OPEN_DOMAIN: u16 = 7;
    pub const QUERY_DOMAIN: u16 = 8;
    pub const SET_DOMAIN: u16 = 9;
    pub const CREATE_GROUP: u16 = 10;
    pub const ENUMERATE_GROUPS: u16 = 11;
    pub const CREATE_USER: u16 = 12;
    pub const ENUMERATE_USERS: u16 = 13;
    pub const CREATE_ALIAS: u16 = 14;
    pub const ENUMERATE_ALIASES: u16 = 15;
    pub const ALIAS_MEMBERSHIP: u16 = 16;
    pub const LOOKUP_NAMES: u16 = 17;
    pub const LOOKUP_IDS: u16 = 18;
    pub const OPEN_GROUP: u16 = 19;
    pub const QUERY_GROUP: u16 = 20;
    pub const SET_GROUP: u16 = 21;
    pub const ADD_TO_GROUP: u16 = 22;
    pub const DELETE_GROUP: u16 = 23;
    pub const REMOVE_FROM_GROUP: u16 = 24;
    pub const MEMBERS_OF_GROUP: u16 = 25;
    pub const SET_MEMBER: u16 = 26;
    pub const OPEN_ALIAS: u16 = 27;
    pub const QUERY_ALIAS: u16 = 28;
    pub const SET_ALIAS: u16 = 29;
    pub const DELETE_ALIAS: u16 = 30;
    pub const ADD_TO_ALIAS: u16 = 31;
    pub const REMOVE_FROM_ALIAS: u16 = 32;
    pub const MEMBERS_OF_ALIAS: u16 = 33;
    pub const OPEN_USER: u16 = 34;
    pub const DELETE_USER: u16 = 35;
    pub const QUERY_USER: u16 = 36;
    pub const SET_USER: u16 = 37;
    pub const CHANGE_PASSWORD: u16 = 38;
    pub const GROUPS_OF_USER: u16 = 39;
    pub const QUERY_DISPLAY: u16 = 40;
    pub const PASSWORD_RULES: u16 = 44;
    pub const REMOVE_FOREIGN: u16 = 45;
    pub const QUERY_DOMAIN_2: u16 = 46;
    pub const QUERY_USER_2: u16 = 47;
    pub const QUERY_DISPLAY_2: u16 = 48;
    pub const CREATE_USER_2: u16 = 50;
    pub const QUERY_DISPLAY_3: u16 = 51;
    pub const ADD_ALL_TO_ALIAS: u16 = 52;
    pub const REMOVE_ALL_FROM_ALIAS: u16 = 53;
    pub const CHANGE_OEM_PASSWORD: u16 = 54;
    pub const CHANGE_PASSWORD_2: u16 = 55;
    pub const DOMAIN_PASSWORD_RULES: u16 = 56;
    pub const CONNECT_2: u16 = 57;
    pub const SET_USER_2: u16 = 58;
    pub const CONNECT_3: u16 = 61;
    pub const CONNECT_4: u16 = 62;
    pub const CHANGE_PASSWORD_3: u16 = 63;
    pub const CONNECT_5: u16 = 64;
    pub const ID_TO_SID: u16 = 65;
    pub const SET_DSRM_PASSWORD: u16 = 66;
}

/// Bytes of a listing in one response, whatever the client asks for.
const MOST_BYTES: u32 = 128 << 10;

/// The group of all users (DOMAIN_GROUP_RID_USERS), as servers that are in no domain name it.
/// Should a user have that number, it is the user's where it is not said which is meant.
pub(crate) const EVERY_USER: u32 = 513;
pub(crate) const EVERY_USER_NAME: &str = "None";
/// DOMAIN_ALIAS_RID_USERS.
pub(crate) const BUILTIN_USERS: u32 = 545;
pub(crate) const BUILTIN_USERS_NAME: &str = "Users";
const BUILTIN_NAME: &str = "Builtin";

/// Mandatory, enabled by default, and enabled (MS-SAMR §2.2.1.10).
pub(crate) const OF_GROUP: u32 = 7;
/// A normal account whose password does not expire (MS-SAMR §2.2.1.12).
pub(crate) const OF_USER: u32 = 0x210;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The server's users.
    Accounts,
    Builtin,
}

impl Domain {
    fn sid(self) -> Sid {
        match self {
            Domain::Accounts => lsa::users(),
            Domain::Builtin => sid(5, &[32]),
        }
    }
}

/// The object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Server,
    Domain(Domain),
    /// A user, by their number.
    User(u32),
    /// `None`.
    Group,
    /// `Users`.
    Alias,
}

/// A handle (MS-SAMR §2.2.7.1: ndr context).
type Handle = [u8; 20];
const NO_HANDLE: Handle = [0; 20];

impl Object {
    fn handle(self) -> Handle {
        let (kind, id) = match self {
            Object::Server => (1, 0),
            Object::Domain(Domain::Accounts) => (2, 0),
            Object::Domain(Domain::Builtin) => (3, 0),
            Object::User(id) => (4, id),
            Object::Group => (5, 0),
            Object::Alias => (6, 0),
        };
        let [a, b, c, d] = u32::to_le_bytes(id);
        [
            0, 0, 0, 0, b's', b'a', b'm', b'r', kind, 0, 0, 0, a, b, c, d, 0, 0, 0, 1,
        ]
    }

    fn from_handle(handle: &Handle) -> Option<Object> {
        let id = u32::from_le_bytes([handle[12], handle[13], handle[14], handle[15]]);
        let object = match handle[8] {
            1 => Object::Server,
            2 => Object::Domain(Domain::Accounts),
            3 => Object::Domain(Domain::Builtin),
            4 => Object::User(id),
            5 => Object::Group,
            6 => Object::Alias,
            _ => return None,
        };
        (object.handle() == *handle).then_some(object)
    }
}

/// The accounts.
pub struct Sam<'s> {
    users: &'s dyn Users,
    /// The users in ascending order of their numbers.
    pub(crate) all: Arc<[Arc<User>]>,
    /// The server's name, which its domain has.
    pub(crate) server: &'s str,
}

/// The number of a user.
pub(crate) fn number(user: &User) -> u32 {
    user.identity.unix.uid
}

impl<'s> Sam<'s> {
    /// Returns the accounts of the server with this name.
    pub fn new(users: &'s dyn Users, server: &'s str) -> Sam<'s> {
        Sam {
            users,
            all: users.list_users(),
            server,
        }
    }

    fn user(&self, id: u32) -> Option<&User> {
        let at = self.all.binary_search_by_key(&id, |user| number(user));
        Some(&self.all[at.ok()?])
    }

    pub(crate) fn domain_name(&self, domain: Domain) -> &'s str {
        match domain {
            Domain::Accounts => self.server,
            Domain::Builtin => BUILTIN_NAME,
        }
    }

    /// The account of a name, in any case: its relative identifier, and its kind.
    fn called(&self, domain: Domain, name: &str) -> Option<(u32, u16)> {
        let is = |own: &str| own.eq_ignore_ascii_case(name);
        match domain {
            Domain::Accounts => match self.users.find(name) {
                Some(user) => Some((number(&user), kind::USER)),
                None => is(EVERY_USER_NAME).then_some((EVERY_USER, kind::GROUP)),
            },
            Domain::Builtin => is(BUILTIN_USERS_NAME).then_some((BUILTIN_USERS, kind::ALIAS)),
        }
    }

    /// The account with a relative identifier: its name, and its kind.
    fn find_account(&self, domain: Domain, id: u32) -> Option<(&str, u16)> {
        match (domain, self.user(id), id) {
            (Domain::Accounts, Some(user), _) => Some((&user.name, kind::USER)),
            (Domain::Accounts, None, EVERY_USER) => Some((EVERY_USER_NAME, kind::GROUP)),
            (Domain::Builtin, _, BUILTIN_USERS) => Some((BUILTIN_USERS_NAME, kind::ALIAS)),
            _ => None,
        }
    }
}

/// Returns the response of a call that fails: the status behind as many null words as the pointers
/// and handles take.
fn failed(words: usize, status: Status) -> Vec<u8> {
    let mut out = Results::default();
    (0..words).for_each(|_| out.u32(0));
    out.done(status)
}

/// Words of a handle.
const HANDLE: usize = 5;

/// Runs a call. Returns its results in NDR, or `None` if there is no such operation.
///
/// # Errors
/// Its arguments cannot be read.
pub fn call(operation: u16, stub: &[u8], sam: &Sam<'_>) -> Result<Option<Vec<u8>>, DecodeError> {
    let r = &mut Reader::new(stub);
    Ok(Some(match operation {
        // Of whichever server, for whatever access: there is one, and it can be read.
        op::CONNECT | op::CONNECT_2 | op::CONNECT_3 | op::CONNECT_4 => opened(Object::Server),
        op::CONNECT_5 => {
            let mut out = Results::default();
            // Its version: the third of the protocol (SAMPR_REVISION_INFO_V1), without more
            // features.
            out.u32s([1, 1, 3, 0]);
            out.bytes(&Object::Server.handle());
            out.done(Status::SUCCESS)
        }
        op::CLOSE => {
            let status = match Object::from_handle(&r.array()?) {
                Some(_) => Status::SUCCESS,
                None => Status::INVALID_HANDLE,
            };
            let mut out = Results::default();
            out.bytes(&NO_HANDLE);
            out.done(status)
        }
        op::QUERY_SECURITY => match Object::from_handle(&r.array()?) {
            Some(object) => info::security(object, r.u32()?),
            None => failed(1, Status::INVALID_HANDLE),
        },
        op::PASSWORD_RULES | op::DOMAIN_PASSWORD_RULES => {
            // No least length, and no other rules.
            failed(2, Status::SUCCESS)
        }
        op::LOOKUP_DOMAIN | op::ENUMERATE_DOMAINS | op::OPEN_DOMAIN => {
            of_server(operation, Object::from_handle(&r.array()?), r, sam)?
        }
        op::QUERY_DOMAIN
        | op::QUERY_DOMAIN_2
        | op::ENUMERATE_GROUPS
        | op::ENUMERATE_USERS
        | op::ENUMERATE_ALIASES
        | op::ALIAS_MEMBERSHIP
        | op::LOOKUP_NAMES
        | op::LOOKUP_IDS
        | op::OPEN_GROUP
        | op::OPEN_ALIAS
        | op::OPEN_USER
        | op::QUERY_DISPLAY
        | op::QUERY_DISPLAY_2
        | op::QUERY_DISPLAY_3
        | op::ID_TO_SID => of_domain(operation, Object::from_handle(&r.array()?), r, sam)?,
        op::QUERY_USER | op::QUERY_USER_2 | op::GROUPS_OF_USER => {
            let user = match Object::from_handle(&r.array()?) {
                Some(Object::User(id)) => sam.user(id).ok_or(Status::NO_SUCH_USER),
                _ => Err(Status::INVALID_HANDLE),
            };
            match (user, operation) {
                (Err(status), _) => failed(1, status),
                (Ok(_), op::GROUPS_OF_USER) => {
                    let mut out = Results::default();
                    out.u32s([POINTER, 1, POINTER, 1, EVERY_USER, OF_GROUP]);
                    out.done(Status::SUCCESS)
                }
                (Ok(user), _) => info::user(user, r.u16()?),
            }
        }
        op::QUERY_GROUP => match Object::from_handle(&r.array()?) {
            Some(Object::Group) => info::group(r.u16()?, sam),
            _ => failed(1, Status::INVALID_HANDLE),
        },
        op::MEMBERS_OF_GROUP => match Object::from_handle(&r.array()?) {
            Some(Object::Group) => members(sam),
            _ => failed(1, Status::INVALID_HANDLE),
        },
        op::QUERY_ALIAS => match Object::from_handle(&r.array()?) {
            Some(Object::Alias) => info::alias(r.u16()?),
            _ => failed(1, Status::INVALID_HANDLE),
        },
        op::MEMBERS_OF_ALIAS => match Object::from_handle(&r.array()?) {
            Some(Object::Alias) => {
                let mut out = Results::default();
                out.u32s([1, POINTER, 1, POINTER]);
                // Authenticated users.
                out.sid(&sid(5, &[11]));
                out.done(Status::SUCCESS)
            }
            _ => failed(2, Status::INVALID_HANDLE),
        },
        // Changes are denied.
        op::CREATE_GROUP | op::CREATE_USER | op::CREATE_ALIAS => {
            failed(HANDLE + 1, Status::ACCESS_DENIED)
        }
        op::CREATE_USER_2 => failed(HANDLE + 2, Status::ACCESS_DENIED),
        op::DELETE_GROUP | op::DELETE_ALIAS | op::DELETE_USER => {
            let handle: Handle = r.array()?;
            let mut out = Results::default();
            out.bytes(&handle);
            out.done(Status::ACCESS_DENIED)
        }
        op::CHANGE_PASSWORD_3 => failed(2, Status::ACCESS_DENIED),
        op::SET_SECURITY
        | op::SHUTDOWN
        | op::SET_DOMAIN
        | op::SET_GROUP
        | op::ADD_TO_GROUP
        | op::REMOVE_FROM_GROUP
        | op::SET_MEMBER
        | op::SET_ALIAS
        | op::ADD_TO_ALIAS
        | op::REMOVE_FROM_ALIAS
        | op::SET_USER
        | op::SET_USER_2
        | op::CHANGE_PASSWORD
        | op::CHANGE_PASSWORD_2
        | op::CHANGE_OEM_PASSWORD
        | op::REMOVE_FOREIGN
        | op::ADD_ALL_TO_ALIAS
        | op::REMOVE_ALL_FROM_ALIAS
        | op::SET_DSRM_PASSWORD => failed(0, Status::ACCESS_DENIED),
        _ => return Ok(None),
    }))
}

fn opened(object: Object) -> Vec<u8> {
    let mut out = Results::default();
    out.bytes(&object.handle());
    out.done(Status::SUCCESS)
}

/// A call on the server.
fn of_server(
    operation: u16,
    object: Option<Object>,
    r: &mut Reader<'_>,
    sam: &Sam<'_>,
) -> Result<Vec<u8>, DecodeError> {
    let status = match object {
        Some(Object::Server) => Status::SUCCESS,
        _ => Status::INVALID_HANDLE,
    };
    let both = [Domain::Accounts, Domain::Builtin];
    let mut out = Results::default();
    Ok(match operation {
        op::LOOKUP_DOMAIN => {
            let names = strings(r, 1)?;
            let is = |domain: &Domain| sam.domain_name(*domain).eq_ignore_ascii_case(&names[0]);
            let found = both.into_iter().find(is).ok_or(Status::NO_SUCH_DOMAIN);
            match (status, found) {
                (Status::SUCCESS, Ok(domain)) => {
                    out.u32(POINTER);
                    out.sid(&domain.sid());
                    out.done(status)
                }
                (Status::SUCCESS, Err(status)) | (status, _) => failed(1, status),
            }
        }
        op::ENUMERATE_DOMAINS => {
            let (resume, most) = (r.u32()?, r.u32()?);
            let all = both.iter().zip(1..);
            let all = all.map(|(domain, next)| (next, 0, sam.domain_name(*domain)));
            listed(status, resume, all.skip(resume as usize), most)
        }
        _ => {
            let _access = r.u32()?;
            let asked = one_sid(r)?;
            let found = both.into_iter().find(|domain| domain.sid() == asked);
            match (status, found) {
                (Status::SUCCESS, Some(domain)) => opened(Object::Domain(domain)),
                (Status::SUCCESS, None) => failed(HANDLE, Status::NO_SUCH_DOMAIN),
                (status, _) => failed(HANDLE, status),
            }
        }
    })
}

fn one_sid(r: &mut Reader<'_>) -> Result<Sid, DecodeError> {
    let count = r.u32()?;
    let sid = Sid::read(r)?;
    (sid.count() == count).then_some(sid).ok_or(DecodeError)
}

/// A call on a domain.
fn of_domain(
    operation: u16,
    object: Option<Object>,
    r: &mut Reader<'_>,
    sam: &Sam<'_>,
) -> Result<Vec<u8>, DecodeError> {
    let Some(Object::Domain(domain)) = object else {
        let words = match operation {
            op::OPEN_GROUP | op::OPEN_ALIAS | op::OPEN_USER => HANDLE,
            op::QUERY_DOMAIN | op::QUERY_DOMAIN_2 | op::ID_TO_SID => 1,
            op::ALIAS_MEMBERSHIP => 2,
            op::LOOKUP_NAMES | op::LOOKUP_IDS => 4,
            op::QUERY_DISPLAY | op::QUERY_DISPLAY_2 | op::QUERY_DISPLAY_3 => {
                return Ok(info::no_display(r.u16()?, Status::INVALID_HANDLE));
            }
            _ => 3,
        };
        return Ok(failed(words, Status::INVALID_HANDLE));
    };
    Ok(match operation {
        op::QUERY_DOMAIN | op::QUERY_DOMAIN_2 => info::domain(domain, r.u16()?, sam),
        op::ENUMERATE_USERS => {
            let (resume, wanted, most) = (r.u32()?, r.u32()?, r.u32()?);
            let all: &[Arc<User>] = match domain {
                // Kinds of accounts may be asked for of which there are none.
                Domain::Accounts if wanted == 0 || wanted & OF_USER != 0 => &sam.all,
                _ => &[],
            };
            let from = all.partition_point(|user| number(user) < resume);
            let users = all[from..].iter().map(|user| {
                let id = number(user);
                (id.saturating_add(1), id, &*user.name)
            });
            listed(Status::SUCCESS, resume, users, most)
        }
        op::ENUMERATE_GROUPS | op::ENUMERATE_ALIASES => {
            let (resume, most) = (r.u32()?, r.u32()?);
            let one = match (domain, operation) {
                (Domain::Accounts, op::ENUMERATE_GROUPS) => Some((EVERY_USER, EVERY_USER_NAME)),
                (Domain::Builtin, op::ENUMERATE_ALIASES) => {
                    Some((BUILTIN_USERS, BUILTIN_USERS_NAME))
                }
                _ => None,
            };
            let one = one.filter(|_| resume == 0).map(|(id, name)| (1, id, name));
            listed(Status::SUCCESS, resume, one.into_iter(), most)
        }
        op::ALIAS_MEMBERSHIP => {
            let asked = lsa::sids(r)?;
            let logs_on = |who: &Sid| {
                who.as_user().is_some() || who.in_domain().is_some() || *who == sid(5, &[11])
            };
            let is_in = domain == Domain::Builtin && asked.iter().any(logs_on);
            let mut out = Results::default();
            put_ids(&mut out, if is_in { &[BUILTIN_USERS] } else { &[] });
            out.done(Status::SUCCESS)
        }
        op::LOOKUP_NAMES => {
            let count = place(r)?;
            let names = strings(r, count)?;
            let found = names.iter().map(|name| sam.called(domain, name));
            let found: Vec<(u32, u16)> = found.map(|f| f.unwrap_or((0, kind::UNKNOWN))).collect();
            let status = mapped(found.iter().map(|(_, kind)| *kind));
            let (ids, kinds): (Vec<u32>, Vec<u32>) = match status {
                Status::NONE_MAPPED => Default::default(),
                _ => found
                    .iter()
                    .map(|(id, kind)| (*id, u32::from(*kind)))
                    .unzip(),
            };
            let mut out = Results::default();
            put_ids(&mut out, &ids);
            put_ids(&mut out, &kinds);
            out.done(status)
        }
        op::LOOKUP_IDS => {
            let count = place(r)?;
            let mut found = Vec::new();
            for _ in 0..count {
                let named = sam.find_account(domain, r.u32()?);
                found.push(named.unwrap_or(("", kind::UNKNOWN)));
            }
            let status = mapped(found.iter().map(|(_, kind)| *kind));
            if status == Status::NONE_MAPPED {
                found.clear();
            }
            let count = found.len() as u32;
            let mut out = Results::default();
            out.u32s([count, POINTER, count]);
            found.iter().for_each(|(name, _)| out.text(name));
            out.put_texts();
            let kinds = found.iter().map(|(_, kind)| u32::from(*kind));
            put_ids(&mut out, &kinds.collect::<Vec<u32>>());
            out.done(status)
        }
        op::OPEN_GROUP | op::OPEN_ALIAS | op::OPEN_USER => {
            let (_access, id) = (r.u32()?, r.u32()?);
            match (operation, domain, id) {
                (op::OPEN_GROUP, Domain::Accounts, EVERY_USER) => opened(Object::Group),
                (op::OPEN_GROUP, ..) => failed(HANDLE, Status::NO_SUCH_GROUP),
                (op::OPEN_ALIAS, Domain::Builtin, BUILTIN_USERS) => opened(Object::Alias),
                (op::OPEN_ALIAS, ..) => failed(HANDLE, Status::NO_SUCH_ALIAS),
                (_, Domain::Accounts, id) if sam.user(id).is_some() => opened(Object::User(id)),
                _ => failed(HANDLE, Status::NO_SUCH_USER),
            }
        }
        op::ID_TO_SID => {
            let mut out = Results::default();
            out.u32(POINTER);
            out.sid(&domain.sid().with(r.u32()?));
            out.done(Status::SUCCESS)
        }
        _ => {
            let level = r.u16()?;
            r.u16()?; // Padding.
            let (start, entries, bytes) = (r.u32()?, r.u32()?, r.u32()?);
            let most = (entries, bytes.min(MOST_BYTES));
            info::display(domain, level, start as usize, most, sam)
        }
    })
}

/// The head of an array of so many places of which the first are there; the number of those.
fn place(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let (count, _most, first, there) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    match first == 0 && there == count && count <= MOST {
        true => Ok(count),
        false => Err(DecodeError),
    }
}

/// Returns the status of a lookup that found these kinds.
fn mapped(mut kinds: impl ExactSizeIterator<Item = u16>) -> Status {
    let all = kinds.len();
    match kinds.by_ref().filter(|kind| *kind != kind::UNKNOWN).count() {
        found if found == all => Status::SUCCESS,
        0 => Status::NONE_MAPPED,
        _ => Status::SOME_NOT_MAPPED,
    }
}

/// An array of numbers (SAMPR_ULONG_ARRAY).
fn put_ids(out: &mut Results, ids: &[u32]) {
    let count = ids.len() as u32;
    out.u32s([count, POINTER, count]);
    ids.iter().for_each(|id| out.u32(*id));
}

/// A listing (SAMPR_ENUMERATION_BUFFER): of the entries behind `resume` as many as `most` bytes
/// have room for, and one at least; each says where to go on behind it.
fn listed<'n>(
    status: Status,
    resume: u32,
    all: impl Iterator<Item = (u32, u32, &'n str)>,
    most: u32,
) -> Vec<u8> {
    if status != Status::SUCCESS {
        return failed(3, status);
    }
    let most = most.min(MOST_BYTES) as usize;
    let (mut entries, mut bytes, mut more) = (Vec::new(), 0, false);
    for entry in all {
        bytes += 24 + 2 * entry.2.len();
        if bytes > most && !entries.is_empty() {
            more = true;
            break;
        }
        entries.push(entry);
    }
    let count = entries.len() as u32;
    let mut out = Results::default();
    let next = entries.last().map_or(resume, |(next, ..)| *next);
    out.u32s([next, POINTER, count, POINTER, count]);
    for (_, id, name) in &entries {
        out.u32(*id);
        out.text(name);
    }
    out.put_texts();
    out.u32(count);
    out.done(match more {
        true => Status::MORE_ENTRIES,
        false => Status::SUCCESS,
    })
}

/// SamrGetMembersInGroup: all users.
fn members(sam: &Sam<'_>) -> Vec<u8> {
    let count = sam.all.len() as u32;
    let mut out = Results::default();
    out.u32s([POINTER, count, POINTER, POINTER, count]);
    sam.all.iter().for_each(|user| out.u32(number(user)));
    out.u32(count);
    sam.all.iter().for_each(|_| out.u32(OF_GROUP));
    out.done(Status::SUCCESS)
}

#[cfg(test)]
mod tests;
