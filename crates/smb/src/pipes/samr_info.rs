//! Information that `samr` returns about a domain, a user and a group, by levels (MS-SAMR §2.2.3,
//! §2.2.4, §2.2.5, §2.2.6, §2.2.8), and its security descriptors.
//!
//! Users have a name and a number. The other fields of the levels are empty, and times are never.

use crate::pipes::rpc::{POINTER, Results};
use crate::pipes::samr::{
    BUILTIN_USERS_NAME, Domain, EVERY_USER, EVERY_USER_NAME, OF_GROUP, OF_USER, Object, Sam, number,
};
use crate::proto::security::{DACL, GROUP, OWNER};
use crate::proto::status::Status;
use weir_auth::sid::{Sid, sid};
use weir_auth::users::User;
use weir_auth::wire::Put;

/// A time that never comes.
const NEVER: u64 = i64::MAX as u64;
/// A span of time that never ends (MS-SAMR §2.2.4.1: negative).
const FOR_EVER: u64 = 1 << 63;

/// Returns a response without information.
fn none(status: Status) -> Vec<u8> {
    let mut out = Results::default();
    out.u32(0);
    out.done(status)
}

/// SamrQueryInformationDomain: passwords have no rules, and accounts are not locked out.
pub(crate) fn domain(domain: Domain, level: u16, sam: &Sam<'_>) -> Vec<u8> {
    /// The SERVER_ROLE of a server that has the accounts.
    const PRIMARY: u32 = 3;
    let own = domain == Domain::Accounts;
    let name = sam.domain_name(domain);
    let mut out = Results::default();
    out.u32(POINTER);
    out.u16(level);
    let general = |out: &mut Results| {
        out.large(FOR_EVER);
        out.text("");
        out.text(name);
        out.text("");
        out.large(1);
        // It is enabled, and compatible with UAS.
        out.u32s([1, PRIMARY, 1]);
        let users = if own { sam.all.len() as u32 } else { 0 };
        out.u32s([users, u32::from(own), u32::from(!own)]);
    };
    let lockout = |out: &mut Results| {
        // Half an hour each, of nothing.
        const TIME: u64 = (30 * 60 * 10_000_000_u64).wrapping_neg();
        out.hyper(TIME);
        out.hyper(TIME);
        out.u16(0);
    };
    match level {
        1 => {
            out.u32s([0, 0]);
            out.large(FOR_EVER);
            out.large(0);
        }
        2 => general(&mut out),
        3 => out.large(FOR_EVER),
        4 | 6 => out.text(""),
        5 => out.text(name),
        7 => out.u32(PRIMARY),
        8 => {
            out.hyper(1);
            out.hyper(0);
        }
        9 => out.u32(1),
        11 => {
            // The whole is aligned as its times are.
            general(&mut out);
            lockout(&mut out);
        }
        12 => lockout(&mut out),
        13 => {
            out.hyper(1);
            out.hyper(0);
            out.hyper(0);
        }
        _ => return none(Status::INVALID_INFO_CLASS),
    }
    out.put_texts();
    out.done(Status::SUCCESS)
}

/// SamrQueryInformationUser.
pub(crate) fn user(user: &User, level: u16) -> Vec<u8> {
    let name = &*user.name;
    let mut out = Results::default();
    out.u32(POINTER);
    out.u16(level);
    let empty = |out: &mut Results, count: usize| (0..count).for_each(|_| out.text(""));
    // Any hour of the week, and the pointer to them.
    let hours = |out: &mut Results| {
        out.u32(HOURS);
        out.u32(POINTER);
    };
    let mut has_hours = false;
    match level {
        1 => {
            out.text(name);
            out.text("");
            out.u32(EVERY_USER);
            empty(&mut out, 2);
        }
        2 => {
            empty(&mut out, 2);
            out.u32(0);
        }
        3 => {
            out.text(name);
            out.text("");
            out.u32s([number(user), EVERY_USER]);
            empty(&mut out, 5);
            for time in [0, 0, 0, 0, NEVER] {
                out.large(time);
            }
            hours(&mut out);
            out.u32s([0, OF_USER]);
            has_hours = true;
        }
        4 => {
            hours(&mut out);
            has_hours = true;
        }
        5 => {
            out.text(name);
            out.text("");
            out.u32s([number(user), EVERY_USER]);
            empty(&mut out, 6);
            out.large(0);
            out.large(0);
            hours(&mut out);
            out.u32(0);
            out.large(0);
            out.large(NEVER);
            out.u32(OF_USER);
            has_hours = true;
        }
        6 => {
            out.text(name);
            out.text("");
        }
        7 => out.text(name),
        8 | 11..=14 => out.text(""),
        9 => out.u32(EVERY_USER),
        10 => empty(&mut out, 2),
        16 => out.u32(OF_USER),
        17 => out.large(NEVER),
        20 => out.u32s([0, 0]),
        21 => {
            put_all_information(&mut out, user);
            has_hours = true;
        }
        _ => return none(Status::INVALID_INFO_CLASS),
    }
    out.put_texts();
    if has_hours {
        put_hours(&mut out);
    }
    out.done(Status::SUCCESS)
}

/// Hours of a week.
const HOURS: u32 = 168;

/// A bit for each hour, of so many as there could be minutes.
fn put_hours(out: &mut Results) {
    out.u32s([1260, 0, HOURS / 8]);
    out.bytes(&[0xff; HOURS as usize / 8]);
}

/// SAMPR_USER_ALL_INFORMATION: all but what has to do with a password.
fn put_all_information(out: &mut Results, user: &User) {
    /// All fields but those of passwords, private data and the descriptor (MS-SAMR §2.2.1.8).
    const WHICH: u32 = 0x00ff_ffff;
    for time in [0, 0, 0, NEVER, 0, NEVER] {
        out.large(time);
    }
    out.text(&user.name);
    (0..8).for_each(|_| out.text(""));
    // Parameters; the two hashes; private data; the descriptor.
    out.u32s([0; 10]);
    out.u32s([number(user), EVERY_USER, OF_USER, WHICH]);
    out.u32(HOURS);
    out.u32(POINTER);
    // Counts of bad passwords and logons; country and code page.
    out.u32s([0, 0]);
    // Of passwords and private data nothing is said.
    out.bytes(&[0; 4]);
}

/// SamrQueryInformationGroup of `None`.
pub(crate) fn group(level: u16, sam: &Sam<'_>) -> Vec<u8> {
    let mut out = Results::default();
    out.u32(POINTER);
    out.u16(level);
    match level {
        1 | 5 => {
            out.text(EVERY_USER_NAME);
            out.u32s([OF_GROUP, sam.all.len() as u32]);
            out.text("");
        }
        2 => out.text(EVERY_USER_NAME),
        3 => out.u32(OF_GROUP),
        4 => out.text(""),
        _ => return none(Status::INVALID_INFO_CLASS),
    }
    out.put_texts();
    out.done(Status::SUCCESS)
}

/// SamrQueryInformationAlias of `Users`.
pub(crate) fn alias(level: u16) -> Vec<u8> {
    let mut out = Results::default();
    out.u32(POINTER);
    out.u16(level);
    match level {
        1 => {
            out.text(BUILTIN_USERS_NAME);
            out.u32(1);
            out.text("");
        }
        2 => out.text(BUILTIN_USERS_NAME),
        3 => out.text(""),
        _ => return none(Status::INVALID_INFO_CLASS),
    }
    out.put_texts();
    out.done(Status::SUCCESS)
}

/// SamrQueryDisplayInformation: users (1), machines (2) and groups (3) of a domain from the place
/// `start` on; so many, of so many bytes at most, and one at least.
pub(crate) fn display(
    domain: Domain,
    level: u16,
    start: usize,
    (most, most_bytes): (u32, u32),
    sam: &Sam<'_>,
) -> Vec<u8> {
    if !(1..=3).contains(&level) {
        return no_display(level, Status::INVALID_INFO_CLASS);
    }
    let users = sam.all.iter().map(|user| (number(user), &*user.name));
    let all: Vec<(u32, &str)> = match (level, domain) {
        (1, Domain::Accounts) => users.collect(),
        (3, Domain::Accounts) => vec![(EVERY_USER, EVERY_USER_NAME)],
        _ => Vec::new(),
    };
    let size = |(_, name): &(u32, &str)| 48 + 2 * name.len() as u32;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for (place, entry) in (1u32..).zip(&all).skip(start).take(most.max(1) as usize) {
        if bytes + size(entry) > most_bytes && bytes > 0 {
            break;
        }
        bytes += size(entry);
        entries.push((place, entry));
    }
    let more = start.saturating_add(entries.len()) < all.len();
    let mut out = Results::default();
    out.u32s([all.iter().map(size).sum(), bytes]);
    out.u16(level);
    let count = entries.len() as u32;
    out.u32s([count, POINTER, count]);
    for (place, (id, name)) in entries {
        let attributes = if level == 1 { OF_USER } else { OF_GROUP };
        out.u32s([place, *id, attributes]);
        out.text(name);
        out.text("");
        if level == 1 {
            out.text("");
        }
    }
    out.put_texts();
    out.done(match more {
        true => Status::MORE_ENTRIES,
        false => Status::SUCCESS,
    })
}

/// SamrQueryDisplayInformation without entries.
pub(crate) fn no_display(level: u16, status: Status) -> Vec<u8> {
    let mut out = Results::default();
    out.u32s([0; 2]);
    out.u16(level);
    out.u32s([0; 2]);
    out.done(status)
}

/// SamrQuerySecurityObject: everybody may read, nobody more (MS-SAMR §2.2.1.3 to §2.2.1.7: read and
/// execute of each kind).
pub(crate) fn security(object: Object, parts: u32) -> Vec<u8> {
    const SELF_RELATIVE: u16 = 0x8000;
    const DACL_PRESENT: u16 = 4;
    let access: u32 = match object {
        Object::Server => 0x2_0031,
        Object::Domain(_) => 0x2_0385,
        Object::User(_) => 0x2_031b,
        Object::Group => 0x2_0011,
        Object::Alias => 0x2_000c,
    };
    let administrators: Sid = sid(5, &[32, 544]);
    let mut descriptor = vec![1, 0];
    let has_list = parts & DACL != 0;
    descriptor.put_u16(SELF_RELATIVE | if has_list { DACL_PRESENT } else { 0 });
    descriptor.put_zeroes(16);
    for (part, at) in [(OWNER, 4), (GROUP, 8)] {
        if parts & part != 0 {
            let here = descriptor.len() as u32;
            descriptor.set_u32(at, here);
            administrators.put(&mut descriptor);
        }
    }
    if has_list {
        let here = descriptor.len() as u32;
        descriptor.set_u32(16, here);
        // A list of 28 bytes, of one entry of 20 that allows.
        for half in [2, 28, 1, 0, 0, 20] {
            descriptor.put_u16(half);
        }
        descriptor.put_u32(access);
        sid(1, &[0]).put(&mut descriptor);
    }
    let len = descriptor.len() as u32;
    let mut out = Results::default();
    out.u32s([POINTER, len, POINTER, len]);
    out.bytes(&descriptor);
    out.done(Status::SUCCESS)
}
