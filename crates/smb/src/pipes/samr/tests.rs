use super::*;
use proptest::prelude::*;
use weir_auth::wire::Put;
use weir_vfs::{Groups, Identity};

const HASH: [u8; 16] = [0xa7; 16];

/// Users of the numbers 1000, 1001 and 513.
struct Three;

impl Users for Three {
    fn find(&self, name: &str) -> Option<Arc<User>> {
        let all = self.list_users();
        let found = all.iter().find(|user| user.name.eq_ignore_ascii_case(name));
        found.cloned()
    }

    fn with_uid(&self, uid: u32) -> Option<Arc<User>> {
        self.list_users()
            .iter()
            .find(|user| number(user) == uid)
            .cloned()
    }

    fn list_users(&self) -> Arc<[Arc<User>]> {
        let all = [(513, "carol"), (1000, "Alice"), (1001, "bob")];
        let all = all.map(|(uid, name)| {
            Arc::new(User {
                name: name.into(),
                nt_hash: HASH,
                identity: Identity::unix(uid, 100, Groups::default()),
            })
        });
        all.into()
    }
}

fn call_operation(operation: u16, object: Object, arguments: &[u32]) -> Vec<u8> {
    let mut stub = object.handle().to_vec();
    arguments.iter().for_each(|v| stub.put_u32(*v));
    sent(operation, &stub)
}

fn sent(operation: u16, stub: &[u8]) -> Vec<u8> {
    let sam = Sam::new(&Three, "weir");
    call(operation, stub, &sam).unwrap().unwrap()
}

fn status(result: &[u8]) -> Status {
    let (_, last) = result.split_last_chunk::<4>().unwrap();
    Status(u32::from_le_bytes(*last))
}

fn word(result: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(result[4 * at..4 * at + 4].try_into().unwrap())
}

fn has_text(result: &[u8], text: &str) -> bool {
    let letters = weir_auth::wire::utf16(text);
    result.windows(letters.len()).any(|w| w == letters)
}

/// Names as arguments of SamrLookupNamesInDomain.
fn names(domain: Domain, all: &[&str]) -> Vec<u8> {
    let mut stub = Object::Domain(domain).handle().to_vec();
    let count = all.len() as u32;
    for v in [count, 1000, 0, count] {
        stub.put_u32(v);
    }
    for name in all {
        let len = 2 * name.len() as u32;
        stub.put_u32(len << 16 | len);
        stub.put_u32(POINTER);
    }
    for name in all {
        let units = name.len() as u32;
        for v in [units, 0, units] {
            stub.put_u32(v);
        }
        stub.put_utf16(name);
        stub.align(0, 4);
    }
    stub
}

const ACCOUNTS: Object = Object::Domain(Domain::Accounts);
const BUILTIN: Object = Object::Domain(Domain::Builtin);
const ALL: [Object; 6] = [
    Object::Server,
    ACCOUNTS,
    BUILTIN,
    Object::User(1000),
    Object::Group,
    Object::Alias,
];

#[test]
fn handles_say_what_they_are_of() {
    for object in ALL {
        let handle = object.handle();
        assert_eq!(Object::from_handle(&handle), Some(object));
        for at in (0..12).chain(16..20) {
            let mut other = handle;
            other[at] ^= 0x40;
            assert_eq!(Object::from_handle(&other), None, "{object:?} at {at}");
        }
        let closed = call_operation(op::CLOSE, object, &[]);
        assert_eq!(
            (&closed[..20], status(&closed)),
            (&[0; 20][..], Status::SUCCESS)
        );
    }
    assert_eq!(Object::from_handle(&NO_HANDLE), None);
}

#[test]
fn a_call_on_something_else_is_refused() {
    let on_domain = [
        op::QUERY_DOMAIN,
        op::ENUMERATE_USERS,
        op::ENUMERATE_GROUPS,
        op::ENUMERATE_ALIASES,
        op::LOOKUP_NAMES,
        op::LOOKUP_IDS,
        op::OPEN_USER,
        op::QUERY_DISPLAY_3,
        op::ID_TO_SID,
    ];
    let on_user = [op::QUERY_USER, op::QUERY_USER_2, op::GROUPS_OF_USER];
    let on_group = [op::QUERY_GROUP, op::MEMBERS_OF_GROUP];
    let on_alias = [op::QUERY_ALIAS, op::MEMBERS_OF_ALIAS];
    let kinds = [
        (&on_domain[..], Object::Server),
        (&on_domain[..], Object::User(1000)),
        (&on_user, ACCOUNTS),
        (&on_group, Object::Alias),
        (&on_alias, Object::Group),
        (&[op::ENUMERATE_DOMAINS], ACCOUNTS),
    ];
    for (operations, object) in kinds {
        for operation in operations {
            let came = call_operation(*operation, object, &[1; 8]);
            assert_eq!(status(&came), Status::INVALID_HANDLE, "{operation}");
        }
    }
    let gone = call_operation(op::QUERY_USER, Object::User(7), &[1]);
    assert_eq!(status(&gone), Status::NO_SUCH_USER);
}

#[test]
fn users_are_listed_in_parts_behind_the_last_one() {
    let list = |operation, object, resume: u32, most: u32| {
        let arguments = match operation {
            op::ENUMERATE_USERS => vec![resume, 0, most],
            _ => vec![resume, most],
        };
        call_operation(operation, object, &arguments)
    };
    let (mut resume, mut found) = (0, Vec::new());
    loop {
        let part = list(op::ENUMERATE_USERS, ACCOUNTS, resume, 1);
        // The place to go on at; pointer, count, pointer, count; then the entry.
        assert_eq!((word(&part, 2), word(&part, 4)), (1, 1));
        resume = word(&part, 0);
        found.push(word(&part, 5));
        match status(&part) {
            Status::MORE_ENTRIES => {}
            done => break assert_eq!(done, Status::SUCCESS),
        }
    }
    assert_eq!(found, [513, 1000, 1001]);
    let none = list(op::ENUMERATE_USERS, ACCOUNTS, resume, u32::MAX);
    assert_eq!((word(&none, 2), status(&none)), (0, Status::SUCCESS));
    let all = list(op::ENUMERATE_USERS, ACCOUNTS, 0, u32::MAX);
    assert_eq!((word(&all, 2), status(&all)), (3, Status::SUCCESS));
    assert!(has_text(&all, "Alice") && has_text(&all, "bob"));
    // Of other kinds of accounts there are none.
    let machines = call_operation(op::ENUMERATE_USERS, ACCOUNTS, &[0, 0x80, 1000]);
    assert_eq!(
        (word(&machines, 2), status(&machines)),
        (0, Status::SUCCESS)
    );
    for (operation, object, count) in [
        (op::ENUMERATE_USERS, BUILTIN, 0),
        (op::ENUMERATE_GROUPS, ACCOUNTS, 1),
        (op::ENUMERATE_GROUPS, BUILTIN, 0),
        (op::ENUMERATE_ALIASES, ACCOUNTS, 0),
        (op::ENUMERATE_ALIASES, BUILTIN, 1),
        (op::ENUMERATE_DOMAINS, Object::Server, 2),
    ] {
        let came = list(operation, object, 0, 4096);
        assert_eq!((word(&came, 2), status(&came)), (count, Status::SUCCESS));
    }
    let (first, second) = (
        list(op::ENUMERATE_DOMAINS, Object::Server, 0, 1),
        list(op::ENUMERATE_DOMAINS, Object::Server, 1, 1),
    );
    assert_eq!(status(&first), Status::MORE_ENTRIES);
    assert!(has_text(&first, "weir") && has_text(&second, "Builtin"));
}

#[test]
fn a_display_goes_on_by_place() {
    let show = |level: u32, start: u32, entries: u32| {
        call_operation(op::QUERY_DISPLAY, ACCOUNTS, &[level, start, entries, 4096])
    };
    let part = show(1, 1, 1);
    assert_eq!((word(&part, 3), status(&part)), (1, Status::MORE_ENTRIES));
    // Place, number, flags of the first entry.
    assert_eq!([6, 7, 8].map(|at| word(&part, at)), [2, 1000, OF_USER]);
    let rest = show(1, 2, 100);
    assert_eq!((word(&rest, 3), status(&rest)), (1, Status::SUCCESS));
    assert_eq!(word(&show(1, u32::MAX, 1), 3), 0);
    assert_eq!((word(&show(2, 0, 9), 3), word(&show(3, 0, 9), 3)), (0, 1));
    assert_eq!(status(&show(4, 0, 9)), Status::INVALID_INFO_CLASS);
}

#[test]
fn names_and_numbers_lead_to_each_other() {
    let look = |domain, all: &[&str]| sent(op::LOOKUP_NAMES, &names(domain, all));
    let found = look(Domain::Accounts, &["ALICE", "none", "nobody"]);
    let words: Vec<u32> = (0..12).map(|at| word(&found, at)).collect();
    let (kinds, ids) = ([1, 2, 8], [1000, 513, 0]);
    assert_eq!(words[..6], [&[3, POINTER, 3][..], &ids].concat());
    assert_eq!(words[6..], [&[3, POINTER, 3][..], &kinds].concat());
    assert_eq!(status(&found), Status::SOME_NOT_MAPPED);
    let alone = look(Domain::Builtin, &["users"]);
    assert_eq!((word(&alone, 3), word(&alone, 7)), (545, 4));
    let none = look(Domain::Builtin, &["alice"]);
    assert_eq!((word(&none, 0), status(&none)), (0, Status::NONE_MAPPED));

    let ids = [3, 1000, 0, 3, 1001, 513, 7];
    let found = call_operation(op::LOOKUP_IDS, ACCOUNTS, &ids);
    assert_eq!(status(&found), Status::SOME_NOT_MAPPED);
    // The user has the number, and not the group.
    assert!(has_text(&found, "bob") && has_text(&found, "carol") && !has_text(&found, "None"));
    let kinds = &found[found.len() - 16..found.len() - 4];
    assert_eq!(kinds, [1, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0]);
    let sid = call_operation(op::ID_TO_SID, ACCOUNTS, &[1000]);
    let mut r = Reader::new(&sid[8..]);
    assert_eq!(Sid::read(&mut r), Ok(Sid::user(1000)));
    for (operation, object, id, came) in [
        (op::OPEN_USER, ACCOUNTS, 1000, Status::SUCCESS),
        (op::OPEN_USER, ACCOUNTS, 7, Status::NO_SUCH_USER),
        (op::OPEN_USER, BUILTIN, 1000, Status::NO_SUCH_USER),
        (op::OPEN_GROUP, ACCOUNTS, 513, Status::SUCCESS),
        (op::OPEN_GROUP, ACCOUNTS, 1000, Status::NO_SUCH_GROUP),
        (op::OPEN_ALIAS, BUILTIN, 545, Status::SUCCESS),
        (op::OPEN_ALIAS, ACCOUNTS, 545, Status::NO_SUCH_ALIAS),
    ] {
        assert_eq!(status(&call_operation(operation, object, &[0, id])), came);
    }
}

/// No password, and nothing that comes of one, is in any response.
#[test]
fn nothing_is_said_of_passwords_and_nothing_is_changed() {
    let hashed = |came: &[u8]| came.windows(16).any(|w| w == HASH);
    for level in 0..40 {
        for (operation, object) in [
            (op::QUERY_USER, Object::User(1000)),
            (op::QUERY_DOMAIN, ACCOUNTS),
            (op::QUERY_GROUP, Object::Group),
            (op::QUERY_ALIAS, Object::Alias),
        ] {
            let came = call_operation(operation, object, &[level]);
            assert!(!hashed(&came));
            let known = match operation {
                op::QUERY_USER => matches!(level, 1..=14 | 16 | 17 | 20 | 21),
                op::QUERY_DOMAIN => matches!(level, 1..=9 | 11..=13),
                op::QUERY_GROUP => (1..=5).contains(&level),
                _ => (1..=3).contains(&level),
            };
            let expected = match known {
                true => Status::SUCCESS,
                false => Status::INVALID_INFO_CLASS,
            };
            assert_eq!(status(&came), expected, "{operation} {level}");
        }
    }
    let changing = [
        2, 4, 9, 10, 12, 14, 21, 22, 23, 24, 26, 29, 30, 31, 32, 35, 37, 38, 45, 50, 52, 53, 54,
        55, 58, 63, 66,
    ];
    for operation in changing {
        let came = call_operation(operation, Object::User(1000), &[21; 100]);
        assert_eq!(status(&came), Status::ACCESS_DENIED, "{operation}");
    }
    let sam = Sam::new(&Three, "weir");
    for operation in [41, 42, 43, 49, 59, 60, 67, 70] {
        assert_eq!(call(operation, &[0; 400], &sam), Ok(None), "{operation}");
    }
}

#[test]
fn descriptors_have_the_parts_that_are_asked_for() {
    for object in ALL {
        for (parts, len) in [(0, 20), (1, 36), (4, 48), (7, 80)] {
            let came = call_operation(op::QUERY_SECURITY, object, &[parts]);
            assert_eq!((word(&came, 1), status(&came)), (len, Status::SUCCESS));
            assert_eq!(came.len() as u32, 16 + len + 4);
        }
    }
}

proptest! {
    #[test]
    fn any_arguments_are_taken_or_refused(
        which in 0u16..70,
        object in 0usize..6,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0usize..100,
        with in any::<u8>(),
    ) {
        let sam = Sam::new(&Three, "weir");
        let mut stub = names(Domain::Accounts, &["alice", "bob"]);
        if let Some(byte) = stub.get_mut(at) {
            *byte = with;
        }
        let handle = ALL[object].handle();
        let arguments = [&bytes[..], &[&handle[..], &bytes].concat(), &stub].map(<[u8]>::to_vec);
        for stub in arguments {
            if let Ok(Some(came)) = call(which, &stub, &sam) {
                prop_assert!(came.len() < 64 * 1024);
            }
        }
    }
}
