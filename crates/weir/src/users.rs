//! Users of the system's name service: local files, LDAP, whatever nsswitch.conf says.
//!
//! Its calls may take as long as a directory server does, so they are made on threads of their own.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use weir_base::Clock;
use weir_nfs::groups::{Answer, Directory};
use weir_nfs::idmap::{self, Accounts, Coming, Found, IdMap, Query};
use weir_smb::Machine;
use weir_vfs::{Groups, Identity};

/// Threads that look users up.
const THREADS: usize = 2;
/// Users that wait to be looked up, at most.
const WAITING: usize = 1024;
/// Longest entry of a user, and most groups.
const MOST: usize = 1 << 20;

/// The user of this name, with all groups.
pub fn of_name(name: &CStr) -> Option<Identity> {
    let user = user_by_name(name)?;
    Some(Identity::unix(user.uid, user.gid, groups(name, user.gid)?))
}

/// All groups of the user with this id.
pub fn groups_of(uid: u32) -> Option<Groups> {
    let user = user_by_number(uid)?;
    groups(&user.name, user.gid)
}

/// A user as the name service has it.
struct User {
    name: CString,
    uid: u32,
    gid: u32,
}

impl From<&libc::passwd> for User {
    fn from(entry: &libc::passwd) -> User {
        // SAFETY: `read` calls this while the strings of the entry are there.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        User {
            name: name.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        }
    }
}

/// A group as the name service has it.
struct Group {
    name: CString,
    gid: u32,
}

impl From<&libc::group> for Group {
    fn from(entry: &libc::group) -> Group {
        // SAFETY: as for a user.
        let name = unsafe { CStr::from_ptr(entry.gr_name) };
        Group {
            name: name.to_owned(),
            gid: entry.gr_gid,
        }
    }
}

fn user_by_name(name: &CStr) -> Option<User> {
    // SAFETY: here and below, all places outlive the call, and the buffers of `read` have the given
    // lengths.
    read(|entry, strings, len, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, strings, len, found)
    })
}

fn user_by_number(uid: u32) -> Option<User> {
    // SAFETY: as above.
    read(|entry, strings, len, found| unsafe { libc::getpwuid_r(uid, entry, strings, len, found) })
}

fn group_by_name(name: &CStr) -> Option<Group> {
    // SAFETY: as above.
    read(|entry, strings, len, found| unsafe {
        libc::getgrnam_r(name.as_ptr(), entry, strings, len, found)
    })
}

fn group_by_number(gid: u32) -> Option<Group> {
    // SAFETY: as above.
    read(|entry, strings, len, found| unsafe { libc::getgrgid_r(gid, entry, strings, len, found) })
}

/// Returns the entry that `get` finds; `None` if it fails, or if the entry's strings are longer
/// than [`MOST`].
fn read<E, T: for<'a> From<&'a E>>(
    get: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> c_int,
) -> Option<T> {
    let mut strings = vec![0u8; 4096];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        let (place, len) = (strings.as_mut_ptr().cast(), strings.len());
        let error = get(entry.as_mut_ptr(), place, len, &raw mut found);
        if error == libc::ERANGE && strings.len() < MOST {
            strings.resize(strings.len() * 4, 0);
            continue;
        }
        if error != 0 || found.is_null() {
            return None;
        }
        // SAFETY: found: the entry is filled, and its strings lie in `strings`.
        return Some(T::from(unsafe { entry.assume_init_ref() }));
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
        Query::User(user) => number(
            c_string(user)
                .and_then(|name| user_by_name(&name))
                .map(|user| user.uid),
        ),
        Query::Group(group) => number(
            c_string(group)
                .and_then(|name| group_by_name(&name))
                .map(|group| group.gid),
        ),
        Query::Uid(uid) => name(user_by_number(*uid).map(|user| user.name)),
        Query::Gid(gid) => name(group_by_number(*gid).map(|group| group.name)),
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

/// Users and groups of this machine as clients of SMB see them.
pub struct Named(IdMap);

impl Named {
    /// By the name service.
    pub fn new(system: Arc<System>, clock: Arc<dyn Clock>) -> Arc<Named> {
        // No domain: they are of this machine.
        Arc::new(Named(IdMap::new("", system, clock)))
    }
}

impl Machine for Named {
    fn name(&self, group: bool, number: u32) -> Result<Option<String>, Coming> {
        let name = self.0.name(group, number)?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    fn number(&self, group: bool, name: &str) -> Result<Option<u32>, Coming> {
        self.0.number_of(group, name.as_bytes())
    }

    fn tick(&self) {
        self.0.tick();
    }
}

/// A lookup, and the receiver of its result.
enum Job {
    Groups(u32, Answer),
    Account(Query, idmap::Answer),
}

/// The name service: groups that do not fit into a credential, and names of users and groups.
pub struct System {
    jobs: SyncSender<Job>,
}

impl System {
    /// Starts its threads, which end with the process.
    pub fn start() -> anyhow::Result<System> {
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
