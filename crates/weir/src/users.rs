//! Users of the system's name service: local files, LDAP, whatever nsswitch.conf says.
//!
//! Its calls may take as long as a directory server does, so they are made on threads of their own.

use std::ffi::{CStr, CString, c_int};
use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use weir_nfs::groups::{Answer, Directory};
use weir_nfs::idmap::{self, Accounts, Found, Query};
use weir_vfs::{Groups, Identity};

/// Threads that look users up.
const THREADS: usize = 2;
/// Users that wait to be looked up, at most.
const WAITING: usize = 1024;
/// Longest entry of a user, and most groups.
const MOST: usize = 1 << 20;

/// The user of this name, with all groups.
pub fn of_name(name: &CStr) -> Option<Identity> {
    let (_, uid, gid) = entry(|entry, strings, found| {
        // SAFETY: all places outlive the call; the entry's strings go into `strings`.
        unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry,
                strings.as_mut_ptr().cast(),
                strings.len(),
                found,
            )
        }
    })?;
    Some(Identity::unix(uid, gid, groups(name, gid)?))
}

/// All groups of the user with this id.
pub fn groups_of(uid: u32) -> Option<Groups> {
    let (name, _, gid) = entry(|entry, strings, found| {
        // SAFETY: as in `of_name`.
        unsafe {
            libc::getpwuid_r(
                uid,
                entry,
                strings.as_mut_ptr().cast(),
                strings.len(),
                found,
            )
        }
    })?;
    groups(&name, gid)
}

/// Name, user id and group id of the entry that `get` finds.
fn entry(
    get: impl Fn(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> c_int,
) -> Option<(CString, u32, u32)> {
    let mut strings = vec![0u8; 4096];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        let error = get(entry.as_mut_ptr(), &mut strings, &raw mut found);
        if error == libc::ERANGE && strings.len() < MOST {
            strings.resize(strings.len() * 4, 0);
            continue;
        }
        if error != 0 || found.is_null() {
            return None;
        }
        // SAFETY: found: the entry is filled.
        let entry = unsafe { entry.assume_init() };
        // SAFETY: the name is a C string in `strings`, which is still there.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        return Some((name.to_owned(), entry.pw_uid, entry.pw_gid));
    }
}

/// Name and id of the group that `get` finds.
fn group(
    get: impl Fn(*mut libc::group, &mut [u8], *mut *mut libc::group) -> c_int,
) -> Option<(CString, u32)> {
    let mut strings = vec![0u8; 4096];
    loop {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        let error = get(entry.as_mut_ptr(), &mut strings, &raw mut found);
        if error == libc::ERANGE && strings.len() < MOST {
            strings.resize(strings.len() * 4, 0);
            continue;
        }
        if error != 0 || found.is_null() {
            return None;
        }
        // SAFETY: found: the entry is filled.
        let entry = unsafe { entry.assume_init() };
        // SAFETY: the name is a C string in `strings`, which is still there.
        let name = unsafe { CStr::from_ptr(entry.gr_name) };
        return Some((name.to_owned(), entry.gr_gid));
    }
}

/// The number of a user or group, or its name.
fn account(query: &Query) -> Found {
    let c_string = |name: &[u8]| CString::new(name).ok();
    let number = |number: Option<u32>| number.map_or(Found::Nobody, Found::Number);
    let name = |name: Option<CString>| {
        name.map_or(Found::Nobody, |name| Found::Name(name.as_bytes().into()))
    };
    match query {
        Query::User(user) => number(c_string(user).and_then(|user| {
            let (_, uid, _) = entry(|entry, strings, found| {
                // SAFETY: as in `of_name`.
                unsafe {
                    libc::getpwnam_r(
                        user.as_ptr(),
                        entry,
                        strings.as_mut_ptr().cast(),
                        strings.len(),
                        found,
                    )
                }
            })?;
            Some(uid)
        })),
        Query::Group(wanted) => number(c_string(wanted).and_then(|wanted| {
            let (_, gid) = group(|entry, strings, found| {
                // SAFETY: as in `of_name`.
                unsafe {
                    libc::getgrnam_r(
                        wanted.as_ptr(),
                        entry,
                        strings.as_mut_ptr().cast(),
                        strings.len(),
                        found,
                    )
                }
            })?;
            Some(gid)
        })),
        Query::Uid(uid) => name(
            entry(|entry, strings, found| {
                // SAFETY: as in `of_name`.
                unsafe {
                    libc::getpwuid_r(
                        *uid,
                        entry,
                        strings.as_mut_ptr().cast(),
                        strings.len(),
                        found,
                    )
                }
            })
            .map(|(name, ..)| name),
        ),
        Query::Gid(gid) => name(
            group(|entry, strings, found| {
                // SAFETY: as in `of_name`.
                unsafe {
                    libc::getgrgid_r(
                        *gid,
                        entry,
                        strings.as_mut_ptr().cast(),
                        strings.len(),
                        found,
                    )
                }
            })
            .map(|(name, _)| name),
        ),
    }
}

fn groups(name: &CStr, gid: u32) -> Option<Groups> {
    let mut gids = vec![0; 64];
    loop {
        let mut count = c_int::try_from(gids.len()).ok()?;
        // SAFETY: `gids` has room for `count` groups, which is set to how many there are.
        let stored =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, gids.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).ok()?;
        if stored >= 0 {
            gids.truncate(count);
            return Some(gids.as_slice().into());
        }
        if count <= gids.len() || count > MOST {
            return None;
        }
        gids.resize(count, 0);
    }
}

/// What is looked up.
enum Job {
    Groups(u32, Answer),
    Account(Query, idmap::Answer),
}

/// The name service, for the groups of users that a credential has no room for, and for names of users and groups.
pub struct System {
    jobs: SyncSender<Job>,
}

impl System {
    /// Starts its threads, which end with the process.
    pub fn start() -> Result<System> {
        let (jobs, queue) = sync_channel(WAITING);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name("weir-users".to_owned())
                .spawn(move || serve(&queue))
                .context("starting a thread")?;
        }
        Ok(System { jobs })
    }
}

impl Directory for System {
    fn look_up(&self, uid: u32, answer: Answer) {
        // One that finds no room is dropped, and its user counts as unknown for a while.
        let _ = self.jobs.try_send(Job::Groups(uid, answer));
    }
}

impl Accounts for System {
    fn look_up(&self, query: Query, answer: idmap::Answer) {
        let _ = self.jobs.try_send(Job::Account(query, answer));
    }
}

fn serve(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(Job::Groups(uid, answer)) => answer.found(groups_of(uid)),
            Ok(Job::Account(query, answer)) => answer.found(account(&query)),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_this_machine_are_found() {
        let root = of_name(c"root").unwrap();
        assert_eq!((root.unix.uid, root.unix.gid), (0, 0));
        assert!(groups_of(0).unwrap().contains(0));
        assert_eq!(of_name(c"nobody-has-this-name"), None);
        assert_eq!(groups_of(0x7fff_fffe), None);
        let root = || Found::Name(Arc::from(&b"root"[..]));
        assert_eq!(
            account(&Query::User(Box::from(&b"root"[..]))),
            Found::Number(0)
        );
        assert_eq!(
            account(&Query::Group(Box::from(&b"root"[..]))),
            Found::Number(0)
        );
        assert_eq!(
            (account(&Query::Uid(0)), account(&Query::Gid(0))),
            (root(), root())
        );
        let nobody = Query::Group(Box::from(&b"nobody-has-this-name"[..]));
        assert_eq!(account(&nobody), Found::Nobody);
        assert_eq!(account(&Query::Uid(0x7fff_fffe)), Found::Nobody);
    }
}
