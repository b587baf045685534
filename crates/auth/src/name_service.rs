//! Users and groups of this machine, from the system's name service: local files, LDAP, whatever
//! nsswitch.conf says. A call may take as long as a directory server does.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use weir_vfs::{Groups, Identity};

/// Longest entry of a user, and most groups.
const MOST: usize = 1 << 20;

/// Returns the identity of the user of this name, with all groups.
pub fn identity_of(name: &CStr) -> Option<Identity> {
    let user = user_by_name(name)?;
    Some(Identity::unix(user.uid, user.gid, groups(name, user.gid)?))
}

/// Returns all groups of the user with this number.
pub fn groups_of(uid: u32) -> Option<Groups> {
    let user = user_by_number(uid)?;
    groups(&user.name, user.gid)
}

/// A user as the name service has it.
pub struct User {
    /// The name.
    pub name: CString,
    /// The number.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
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
pub struct Group {
    /// The name.
    pub name: CString,
    /// The number.
    pub gid: u32,
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

/// Returns the user of this name.
pub fn user_by_name(name: &CStr) -> Option<User> {
    // SAFETY: here and below, all places outlive the call, and the buffers of `read` have the given
    // lengths.
    read(|entry, strings, len, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, strings, len, found)
    })
}

/// Returns the user with this number.
pub fn user_by_number(uid: u32) -> Option<User> {
    // SAFETY: as above.
    read(|entry, strings, len, found| unsafe { libc::getpwuid_r(uid, entry, strings, len, found) })
}

/// Returns the group of this name.
pub fn group_by_name(name: &CStr) -> Option<Group> {
    // SAFETY: as above.
    read(|entry, strings, len, found| unsafe {
        libc::getgrnam_r(name.as_ptr(), entry, strings, len, found)
    })
}

/// Returns the group with this number.
pub fn group_by_number(gid: u32) -> Option<Group> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_this_machine_are_found() {
        let root = identity_of(c"root").unwrap();
        assert_eq!((root.unix.uid, root.unix.gid), (0, 0));
        assert!(groups_of(0).unwrap().contains(0));
        assert_eq!(identity_of(c"nobody-has-this-name"), None);
        assert_eq!(groups_of(0x7fff_fffe), None);
    }
}
