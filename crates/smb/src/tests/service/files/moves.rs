//! Renames of directories with open files below them.

use super::*;
use crate::tests::durable::{again, first, first_back, lease, put_contexts};
use crate::tests::lease::{LEASE, with_mail};

const RENAME: u8 = 10;
const NORMALIZED_NAME: u8 = 48;
const DIRECTORY: u32 = 1;
const R_H: u32 = 3;

/// Asks what the server can do, as macOS does in each session.
fn as_apple(c: &mut Client<'_>) {
    let (_, mut body) = create("", 0x81, SHARE, OPEN, DIRECTORY);
    let data = [1, 1, 0u64].map(u64::to_le_bytes).concat();
    put_contexts(&mut body, &[(b"AAPL", data)]);
    let root = c.one(command::CREATE, body).file();
    c.send_chain(false, &[close(&root)]);
}

fn dir(c: &mut Client<'_>, name: &str) -> Vec<u8> {
    c.one(
        command::CREATE,
        create(name, ALL, SHARE, OPEN_IF, DIRECTORY).1,
    )
    .file()
}

fn rename(c: &mut Client<'_>, file: &[u8], to: &str) -> Status {
    let (mut data, to) = (vec![0; 16], utf16(to));
    data.put_u32(to.len() as u32);
    data.put(&to);
    c.send(set(file, FILE, RENAME, 0, &data)).status
}

fn path(c: &mut Client<'_>, file: &[u8]) -> String {
    let name = info(&c.send(query(file, FILE, NORMALIZED_NAME, 0)));
    weir_auth::wire::from_utf16(&name[4..]).unwrap()
}

#[test]
fn a_client_of_macos_renames_a_folder_and_opens_below_follow() {
    let world = world();
    let mut mac = Client::ready(&world, 1);
    let mut other = Client::ready(&world, 2);
    let folder = dir(&mut mac, "d");
    let again = dir(&mut other, "d");
    let inner = dir(&mut mac, "d\\inner");
    let file = mac.open("d\\inner\\f", ALL, CREATE).unwrap();
    let stream = mac.open("d:s", ALL, CREATE).unwrap();
    let beside = mac.open("dd", ALL, CREATE).unwrap();
    let others = other.open("d\\g", ALL, CREATE).unwrap();
    assert_eq!(rename(&mut mac, &folder, "e"), Status::ACCESS_DENIED);
    as_apple(&mut mac);
    assert_eq!(rename(&mut mac, &folder, "e"), Status::SUCCESS);
    for (open, expected) in [
        (&folder, "e"),
        (&inner, "e\\inner"),
        (&file, "e\\inner\\f"),
        (&stream, "e:s"),
        (&beside, "dd"),
    ] {
        assert_eq!(path(&mut mac, open), expected);
    }
    for (open, expected) in [(&others, "e\\g"), (&again, "e")] {
        assert_eq!(path(&mut other, open), expected);
    }
    // One below another, and both opens of the folder know where it is.
    assert_eq!(rename(&mut mac, &inner, "inner"), Status::SUCCESS);
    assert_eq!(path(&mut mac, &file), "inner\\f");
    let refused = rename(&mut other, &again, "x");
    assert_eq!(refused, Status::ACCESS_DENIED, "it is no client of macOS");
    as_apple(&mut other);
    assert_eq!(rename(&mut other, &again, "x"), Status::SUCCESS);
    assert_eq!(path(&mut other, &others), "x\\g");
    assert_eq!(path(&mut mac, &folder), "x");
    // A deletion finds the file at its new path.
    assert_eq!(
        other.send(set(&others, FILE, 13, 0, &[1])).status,
        Status::SUCCESS
    );
    other.send_chain(false, &[close(&others)]);
    assert_eq!(
        other.open("x\\g", ALL, OPEN),
        Err(Status::OBJECT_NAME_NOT_FOUND)
    );
}

#[test]
fn a_durable_open_is_found_by_the_path_that_it_has_by_now() {
    let (world, _) = with_mail();
    let mut mac = Client::ready(&world, 1);
    let mut other = Client::ready(&world, 7);
    as_apple(&mut other);
    let folder = dir(&mut other, "d");
    let asks = |name: &str, contexts: &[_]| {
        let (command, mut body) = create(name, 0x3, SHARE, OPEN_IF, 0);
        body[3] = LEASE;
        put_contexts(&mut body, contexts);
        (command, body)
    };
    let opened = mac.send(asks("d\\f", &[first(), lease(7, R_H)]));
    assert!(crate::tests::durable::has_context(&opened, b"DHnQ"));
    let file = opened.file();
    world.ended(1);
    assert_eq!(rename(&mut other, &folder, "e"), Status::SUCCESS);
    let mut mac = again(&world, 2, "Alice");
    let mut back = |name| {
        let answer = mac.send(asks(name, &[first_back(&file), lease(7, R_H)]));
        answer.status
    };
    assert_eq!(back("d\\f"), Status::INVALID_PARAMETER);
    assert_eq!(back("e\\f"), Status::SUCCESS);
    assert_eq!(rename(&mut other, &folder, "g"), Status::SUCCESS);
    assert_eq!(path(&mut mac, &file), "g\\f");
}

/// Opens that are made while the folder is renamed know their path in the end.
#[test]
fn opens_made_beside_renames_know_their_path() {
    const ROUNDS: usize = 300;
    let world = world();
    let mut mac = Client::ready(&world, 1);
    as_apple(&mut mac);
    let folder = dir(&mut mac, "a");
    dir(&mut mac, "a\\inner");
    let done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let opens = scope.spawn(|| {
            let mut other = Client::ready(&world, 2);
            let mut all = Vec::new();
            while !done.load(relaxed) {
                for name in ["a", "b", "c"] {
                    let name = format!("{name}\\inner\\f{}", all.len());
                    match other.open(&name, ALL, CREATE) {
                        Ok(file) if all.len() < 500 => all.push(file),
                        Ok(file) => {
                            other.send_chain(false, &[close(&file)]);
                        }
                        Err(Status::OBJECT_PATH_NOT_FOUND | Status::OBJECT_NAME_COLLISION) => {}
                        Err(status) => panic!("{status:?}"),
                    }
                }
            }
            assert!(!all.is_empty(), "nothing was opened meanwhile");
            let last = ["b", "c", "a"][(ROUNDS - 1) % 3];
            for file in &all {
                let path = path(&mut other, file);
                assert!(path.starts_with(&format!("{last}\\inner\\f")), "{path}");
            }
        });
        for n in 0..ROUNDS {
            let to = ["b", "c", "a"][n % 3];
            assert_eq!(rename(&mut mac, &folder, to), Status::SUCCESS, "{n}");
        }
        done.store(true, relaxed);
        opens.join().unwrap();
    });
}
