use super::*;
use crate::idmap::{Accounts, Answer, IdMap, Query, QueryOutcome};
use std::sync::Arc;
use weir_base::{Ino, Time};
use weir_vfs::volume::Guard;

fn attr() -> Attr {
    Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 4_294_967_294,
        gid: 0,
        size: 10,
        used: 4096,
        rdev: (0, 0),
        fsid: 5,
        tree: 0,
        constituent: 0,
        ino: Ino(9),
        atime: Time::EPOCH,
        mtime: Time { secs: -1, nanos: 5 },
        ctime: Time::EPOCH,
        btime: Time::EPOCH,
        dos: 0,
        change: 77,
        guard: Guard::Mode,
    }
}

/// Counts the bytes of each attribute, so that a value in the wrong place or of the wrong length is
/// found.
#[test]
fn every_attribute_that_is_announced_is_sent_in_its_length() {
    let attr = attr();
    let object = Object {
        minor: 2,
        attr: &attr,
        handle: &[1; 32],
        covers: None,
        space: None,
        acl: Some(Acl::from_mode(0o640, false)),
        names: None,
    };
    for number in supported(2).iter() {
        let mask = Bitmap::from_numbers(&[number]);
        let mut out = Vec::new();
        object.put_values(&mask, &mut out);
        let expected = match number {
            SUPPORTED_ATTRS | SUPPATTR_EXCLCREAT => 16,
            QUOTA_AVAIL_HARD | QUOTA_AVAIL_SOFT | QUOTA_USED => 8,
            CHANGE | SIZE | FILEID | FILES_AVAIL | FILES_FREE | FILES_TOTAL | FS_LOCATIONS
            | MAXFILESIZE | MAXREAD | MAXWRITE | RAWDEV | SPACE_AVAIL | SPACE_FREE
            | SPACE_TOTAL | SPACE_USED | MOUNTED_ON_FILEID => 8,
            FSID | FS_LOCATIONS_INFO => 16,
            FILEHANDLE => 36,
            OPEN_ARGUMENTS => 40,
            // Three entries: their number, and each with three words and a name.
            ACL => 4 + 3 * 12 + 12 + 12 + 16,
            DACL => 4 + 4 + 3 * 12 + 12 + 12 + 16,
            OWNER => 16,
            OWNER_GROUP => 8,
            TIME_ACCESS | TIME_CREATE | TIME_DELTA | TIME_METADATA | TIME_MODIFY => 12,
            _ if WRITE_ONLY.contains(number) => 0,
            _ => 4,
        };
        assert_eq!(out.len(), expected, "attribute {number}");
    }
    let mut out = Vec::new();
    object.put(&Bitmap::from_numbers(&[CHANGE, TIME_MODIFY, 32]), &mut out);
    let mut r = Reader::new(&out);
    assert_eq!(
        Bitmap::decode(&mut r),
        Ok(Bitmap::from_numbers(&[CHANGE, TIME_MODIFY]))
    );
    assert_eq!((r.u32(), r.u64()), (Ok(20), Ok(77)));
    assert_eq!(types::time(&mut r), Ok(Time { secs: -1, nanos: 5 }));
}

/// Attributes that Linux asks of every object are encoded in one piece. The result must equal that
/// of encoding each by itself.
#[test]
fn what_is_sent_at_once_is_what_is_sent_one_by_one() {
    let at = |secs| Time { secs, nanos: 7 };
    let attr = Attr {
        nlink: 2,
        uid: 7,
        gid: 1_234_567,
        rdev: (3, 4),
        atime: at(1),
        ctime: at(2),
        ..attr()
    };
    let object = Object {
        minor: 2,
        attr: &attr,
        handle: &[1; 32],
        covers: Some(5),
        space: None,
        acl: None,
        names: None,
    };
    let linux = FIRST.or(&SECOND);
    let others: [&[u32]; 6] = [
        &[],
        &[FILEID],
        &[RDATTR_ERROR, FILEHANDLE, FILEID],
        &[SUPPORTED_ATTRS],
        &[TIME_CREATE],
        &[XATTR_SUPPORT],
    ];
    for other in others {
        let mask = linux.or(&Bitmap::from_numbers(other));
        let (mut at_once, mut singly) = (Vec::new(), Vec::new());
        object.put_values(&mask, &mut at_once);
        for number in mask.iter() {
            object.put_values(&Bitmap::from_numbers(&[number]), &mut singly);
        }
        assert_eq!(at_once, singly, "with {other:?}");
    }
}

fn new(mask: &[u32], values: &[u8]) -> Result<New, Status> {
    New::decode(
        2,
        &Attrs {
            mask: Bitmap::from_numbers(mask),
            values,
        },
        &Names::default(),
    )
}

#[test]
fn what_cannot_be_set_is_refused() {
    assert_eq!(
        new(&[32], &[]).unwrap_err(),
        Status::AttrNotSupp,
        "mimetype"
    );
    assert_eq!(new(&[CHANGE], &[0; 8]).unwrap_err(), Status::Inval);
    assert_eq!(new(&[SIZE], &[0; 4]).unwrap_err(), Status::BadXdr);
    assert_eq!(new(&[SIZE], &[0; 12]).unwrap_err(), Status::BadXdr);
    assert_eq!(new(&[MODE], &[0, 1, 0, 0]).unwrap_err(), Status::Inval);
    let mut text = Vec::new();
    text.put_opaque(b"root@weir");
    assert_eq!(new(&[OWNER], &text).unwrap_err(), Status::BadOwner);
    let old = Attrs {
        mask: Bitmap::from_numbers(&[MODE_UMASK]),
        values: &[0; 8],
    };
    assert_eq!(
        New::decode(1, &old, &Names::default()).unwrap_err(),
        Status::AttrNotSupp
    );
}

#[test]
fn modes_are_set_whole_masked_or_under_a_umask() {
    let words = |a: u32, b: u32| [a.to_be_bytes(), b.to_be_bytes()].concat();
    let umask = new(&[MODE_UMASK], &words(0o666, 0o022)).unwrap();
    assert_eq!(
        (umask.combine_with((0, 0)).mode, umask.set.umask),
        (Some(0o666), 0o022)
    );
    let masked = new(&[MODE_SET_MASKED], &words(0o070, 0o077)).unwrap();
    assert!(masked.needs_old());
    assert_eq!(masked.combine_with((0o4755, 0)).mode, Some(0o4770));
    let mut text = Vec::new();
    text.put_opaque(b"4294967294");
    assert_eq!(new(&[OWNER], &text).unwrap().set.uid, Some(4_294_967_294));
}

/// Each is a bit that SMB shows and sets (MS-FSCC §2.6).
#[test]
fn attributes_of_dos_are_set_one_by_one() {
    let on = 1u32.to_be_bytes();
    let hide = new(&[HIDDEN], &on).unwrap();
    assert!(hide.needs_old());
    assert_eq!(hide.combine_with((0, 0x21)).dos, Some(0x23));
    let off_and_on = new(&[ARCHIVE, SYSTEM], &[[0; 4], on].concat()).unwrap();
    assert_eq!(off_and_on.combine_with((0, 0x23)).dos, Some(0x07));
    assert_eq!(
        new(&[SIZE], &[0; 8]).unwrap().combine_with((0, 0x23)).dos,
        None
    );
    assert_eq!(new(&[HIDDEN], &[0, 0, 0, 2]).unwrap_err(), Status::BadXdr);
    let attr = Attr {
        dos: 0x22,
        ..attr()
    };
    let object = Object {
        minor: 2,
        attr: &attr,
        handle: &[],
        covers: None,
        space: None,
        acl: None,
        names: None,
    };
    let mut out = Vec::new();
    object.put_values(&Bitmap::from_numbers(&[ARCHIVE, HIDDEN, SYSTEM]), &mut out);
    assert_eq!(out, [on, on, [0; 4]].concat());
}

#[test]
fn lists_are_sent_and_read_back() {
    let acl = Acl(vec![
        Entry {
            allows: false,
            who: Principal::User(1000),
            mask: mask::WRITE,
            flags: flags::FILE | flags::INHERIT_ONLY,
        },
        Entry {
            allows: true,
            who: Principal::NamedGroup(7),
            mask: mask::READ,
            flags: 0,
        },
    ]);
    let mut all = acl.clone();
    all.0.extend(Acl::from_mode(0o750, true).0);
    let mut values = Vec::new();
    put_acl(&mut values, Some(&all), None);
    let attrs = Attrs {
        mask: Bitmap::from_numbers(&[ACL]),
        values: &values,
    };
    let new = New::decode(2, &attrs, &Names::default()).unwrap();
    assert_eq!(new.list(&attrs, &Names::default()), Ok(Some(all.clone())));
    assert!(!new.sets_more());
    let made = New::decode_for_creation(2, &attrs, &Names::default()).unwrap();
    assert_eq!(made.list(&attrs, &Names::default()), Ok(Some(all.clone())));
    // The newer form has flags before it.
    let newer = |flags: u32| [&flags.to_be_bytes()[..], &values].concat();
    let decoded = |mask: &[u32], values: &[u8]| {
        let attrs = Attrs {
            mask: Bitmap::from_numbers(mask),
            values,
        };
        New::decode(2, &attrs, &Names::default()).map(|new| new.list(&attrs, &Names::default()))
    };
    assert_eq!(decoded(&[DACL], &newer(0)).unwrap(), Ok(Some(all.clone())));
    assert_eq!(
        decoded(&[DACL], &newer(2)).unwrap_err(),
        Status::AttrNotSupp,
        "protected"
    );
    let both = [&values[..], &newer(0)].concat();
    assert_eq!(decoded(&[ACL, DACL], &both).unwrap_err(), Status::Inval);
    let refused = |kind: u32, flags: u32, mask: u32, who: &[u8]| {
        let mut values = Vec::new();
        [1, kind, flags, mask]
            .into_iter()
            .for_each(|w| values.put_u32(w));
        values.put_opaque(who);
        super::acl(&mut Reader::new(&values), &Names::default()).unwrap_err()
    };
    assert_eq!(refused(2, 0, 1, b"OWNER@"), Status::AttrNotSupp, "audit");
    assert_eq!(refused(0, 0x80, 1, b"OWNER@"), Status::Inval, "inherited");
    assert_eq!(refused(0, 0, 1 << 30, b"OWNER@"), Status::Inval);
    assert_eq!(refused(0, 0, 1, b"user@domain"), Status::BadOwner);
}

/// Accounts that are known at once.
struct Everybody;

impl Accounts for Everybody {
    fn look_up(&self, query: Query, done: Answer) {
        done.found(match query {
            Query::Uid(1000) => QueryOutcome::Name(Arc::from(&b"alice"[..])),
            Query::Gid(7) => QueryOutcome::Name(Arc::from(&b"staff"[..])),
            Query::User(name) if *name == *b"alice" => QueryOutcome::Number(1000),
            Query::Group(name) if *name == *b"staff" => QueryOutcome::Number(7),
            _ => QueryOutcome::Nobody,
        });
    }
}

#[test]
fn users_and_groups_have_names_in_a_domain() {
    let clock = Arc::new(weir_base::ManualClock::default());
    let map = IdMap::new("example.org", Arc::new(Everybody), clock);
    let names = Names::new(Some(&map));
    let acl = Acl(vec![Entry {
        allows: true,
        who: Principal::NamedGroup(7),
        mask: mask::READ,
        flags: 0,
    }]);
    let mut values = Vec::new();
    put_acl(&mut values, Some(&acl), Some(&names));
    assert!(values.windows(17).any(|text| text == b"staff@example.org"));
    put_who(&mut values, Some(&names), false, 1000);
    put_who(&mut values, Some(&names), true, 8);
    let set = [ACL, OWNER, OWNER_GROUP];
    let attrs = Attrs {
        mask: Bitmap::from_numbers(&set),
        values: &values,
    };
    let new = New::decode(2, &attrs, &names).unwrap();
    assert_eq!((new.set.uid, new.set.gid), (Some(1000), Some(8)));
    assert_eq!(new.list(&attrs, &names), Ok(Some(acl)));
    let named = |text: &[u8]| who(text, false, &names);
    assert_eq!(named(b"alice@EXAMPLE.ORG"), Ok(1000));
    assert_eq!(named(b"4711"), Ok(4711));
    for unknown in [
        "bob@example.org",
        "alice@example.com",
        "alice",
        "@example.org",
        "4711@example.org",
    ] {
        assert_eq!(
            named(unknown.as_bytes()),
            Err(Status::BadOwner),
            "{unknown}"
        );
    }
    assert!(names.lacked().is_none());
}
