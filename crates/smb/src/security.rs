//! Security descriptors (MS-DTYP §2.4.6), made of a file's owner, group and mode: an entry each for owner, group and
//! everyone. They are shown and not taken: what decides is the mode, or the access control list of NFSv4.

use crate::session::mask;
use crate::wire::Put;
use weir_vfs::volume::Attr;

/// Which parts of a descriptor are asked for (§2.4.7).
pub const OWNER: u32 = 1;
/// The group.
pub const GROUP: u32 = 2;
/// The discretionary list.
pub const DACL: u32 = 4;

/// S-1-22-1-uid and S-1-22-2-gid: users and groups of UNIX, as Samba and Linux name them.
fn unix(kind: u32, id: u32) -> Vec<u8> {
    sid(22, &[kind, id])
}

/// S-1-1-0: everyone.
fn everyone() -> Vec<u8> {
    sid(1, &[0])
}

fn sid(authority: u8, subs: &[u32]) -> Vec<u8> {
    let mut out = vec![1, subs.len() as u8, 0, 0, 0, 0, 0, authority];
    subs.iter().for_each(|sub| out.put_u32(*sub));
    out
}

/// The access that three bits of a mode mean.
fn access(bits: u32, owner: bool) -> u32 {
    let mut out = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE | mask::READ_EA;
    if bits & 4 != 0 {
        out |= mask::READ_DATA;
    }
    if bits & 2 != 0 {
        out |= mask::WRITE_DATA
            | mask::APPEND_DATA
            | mask::WRITE_EA
            | mask::WRITE_ATTRIBUTES
            | mask::DELETE_CHILD;
    }
    if bits & 1 != 0 {
        out |= mask::EXECUTE;
    }
    if owner {
        out |= mask::WRITE_DAC | mask::WRITE_OWNER | mask::WRITE_ATTRIBUTES;
    }
    out
}

/// The parts of a file's descriptor that are asked for, self-relative.
pub fn descriptor(attr: &Attr, parts: u32) -> Vec<u8> {
    const SELF_RELATIVE: u16 = 0x8000;
    const DACL_PRESENT: u16 = 0x4;
    let (owner, group) = (unix(1, attr.uid), unix(2, attr.gid));
    let has_list = parts & DACL != 0;
    let mut out = Vec::with_capacity(200);
    out.put_u8(1);
    out.put_u8(0);
    out.put_u16(SELF_RELATIVE | if has_list { DACL_PRESENT } else { 0 });
    out.put_zeroes(16);
    for (part, at, sid) in [(OWNER, 4, &owner), (GROUP, 8, &group)] {
        if parts & part != 0 {
            let here = out.len() as u32;
            out.set_u32(at, here);
            out.put(sid);
        }
    }
    if has_list {
        let here = out.len() as u32;
        out.set_u32(16, here);
        let entries = [
            (&owner, access(attr.mode >> 6, true)),
            (&group, access(attr.mode >> 3, false)),
            (&everyone(), access(attr.mode, false)),
        ];
        let len: usize = entries.iter().map(|(sid, _)| 8 + sid.len()).sum();
        out.put_u16(2);
        out.put_u16((8 + len) as u16);
        out.put_u16(entries.len() as u16);
        out.put_u16(0);
        for (sid, access) in entries {
            out.put_u16(0); // Allowed, not inherited.
            out.put_u16((8 + sid.len()) as u16);
            out.put_u32(access);
            out.put(sid);
        }
    }
    out
}
