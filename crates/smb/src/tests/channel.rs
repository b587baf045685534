//! Encryption and sessions of several connections, with the client of [`crate::tests::service`].

use crate::proto::dialect::Dialect;
use crate::proto::encryption::Cipher;
use crate::proto::header::{HEADER, command, flag};
use crate::proto::keys::{Preauth, Signer, Signing};
use crate::proto::negotiate::Protection;
use crate::proto::status::Status;
use crate::tests::service::*;
use std::sync::Arc;
use weir_auth::wire::Put;
use weir_vfs::ExportTable;

const CIPHERS: [Cipher; 4] = [
    Cipher::Aes128Ccm,
    Cipher::Aes128Gcm,
    Cipher::Aes256Ccm,
    Cipher::Aes256Gcm,
];

#[test]
fn what_is_asked_encrypted_is_answered_encrypted() {
    let world = world();
    let data: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    let kinds = CIPHERS.map(|cipher| (Dialect::Smb311, cipher));
    let old = [Dialect::Smb300, Dialect::Smb302].map(|d| (d, Cipher::Aes128Ccm));
    for (n, (dialect, cipher)) in kinds.into_iter().chain(old).enumerate() {
        let mut c = Client::new(&world, n as u64 + 1);
        c.cipher = Some(cipher);
        assert_eq!(c.log_on(dialect, PASSWORD), Status::SUCCESS);
        assert_eq!(c.flags, 0, "nothing has to be encrypted");
        assert_eq!(c.connect("vol1"), Status::SUCCESS);
        c.seals = true;
        let name = format!("file{n}");
        let all = c.send_chain(
            true,
            &[
                create(&name, ALL, SHARE, CREATE, 0),
                write(&SAME, 0, &data),
                read(&SAME, 0, 20_000),
            ],
        );
        assert_eq!(statuses(&all), [Status::SUCCESS; 3]);
        assert!(all.iter().all(|a| !a.header.has_flag(flag::SIGNED)));
        assert!(all[2].body[16..] == data);
        // The same session in the clear: signed as before.
        c.seals = false;
        let again = c.send_chain(false, &[create(&name, ALL, SHARE, OPEN, 0)]);
        assert_eq!(statuses(&again), [Status::SUCCESS]);
    }
}

/// The log fails before what was answered is durable: that is said encrypted too, under another
/// nonce.
#[test]
fn a_failure_after_an_encrypted_answer_is_encrypted() {
    let world = world();
    let mut c = Client::new(&world, 1);
    c.cipher = Some(Cipher::Aes128Gcm);
    c.log_on(Dialect::Smb311, PASSWORD);
    c.connect("vol1");
    c.seals = true;
    let plain = c.chain(false, &[create("x", ALL, SHARE, CREATE, 0)]);
    let (reply, lsn) = world.reply(1, &c.seal(&plain));
    assert!(lsn.is_some());
    let before = reply.to_vec();
    let failed = reply.into_failure();
    assert_eq!(failed.len(), failed.to_vec().len() + 4);
    let sealing = c.sealing.as_ref().unwrap();
    for (message, status) in [
        (&before, Status::SUCCESS),
        (&failed.to_vec(), Status::UNEXPECTED_IO_ERROR),
    ] {
        let plain = sealing.open(message).unwrap();
        assert_eq!(statuses(&answers(&plain)), [status]);
    }
    assert_ne!(before[20..36], failed.to_vec()[20..36], "the nonce");
}

#[test]
fn an_encrypted_message_that_is_wrong_ends_the_connection() {
    let world = world();
    for (n, spoil) in ["code", "session", "flags", "size", "inner", "other"]
        .into_iter()
        .enumerate()
    {
        let mut c = Client::new(&world, n as u64 + 1);
        c.cipher = Some(Cipher::Aes128Gcm);
        c.log_on(Dialect::Smb311, PASSWORD);
        c.connect("vol1");
        c.seals = true;
        let plain = c.chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)]);
        let mut record = c.seal(&plain);
        match spoil {
            "code" => record[5] ^= 1,
            "session" => record[44] ^= 1,
            "flags" => record[42] = 2,
            "size" => record[36] ^= 1,
            "inner" => record = c.seal(b"no message"),
            _ => record = c.seal(&record),
        }
        assert!(
            matches!(world.send(c.connection, &record), Came::Closed),
            "{spoil}"
        );
    }
}

/// Keys of one session encrypt for no other session of the same connection.
#[test]
fn an_encrypted_message_speaks_for_its_session_alone() {
    let world = world();
    let mut c = Client::new(&world, 1);
    c.cipher = Some(Cipher::Aes256Gcm);
    c.log_on(Dialect::Smb311, PASSWORD);
    c.connect("vol1");
    let (mut other, first) = (Client::new(&world, 2), c.session);
    other.cipher = c.cipher;
    other.log_on(Dialect::Smb311, PASSWORD);
    let plain = {
        c.session = other.session;
        c.seals = true;
        c.chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)])
    };
    c.session = first;
    let Came::Answer(reply) = world.send(1, &c.seal(&plain)) else {
        panic!("no answer")
    };
    let reply = c.sealing.as_ref().unwrap().open(&reply).unwrap();
    // The other session is of another connection.
    assert_eq!(statuses(&answers(&reply)), [Status::USER_SESSION_DELETED]);
}

#[test]
fn a_server_that_requires_encryption_takes_nothing_else() {
    let world = world_with(Protection::Encrypted);
    let mut c = Client::new(&world, 1);
    c.cipher = Some(Cipher::Aes128Gcm);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(c.flags, 4, "SMB2_SESSION_FLAG_ENCRYPT_DATA");
    assert_eq!(c.connect("vol1"), Status::ACCESS_DENIED);
    c.seals = true;
    assert_eq!(c.connect("vol1"), Status::SUCCESS);
    // A client that cannot gets no session.
    for dialect in [Dialect::Smb210, Dialect::Smb311] {
        let mut c = Client::new(&world, 2 + dialect as u64);
        assert_eq!(c.log_on(dialect, PASSWORD), Status::ACCESS_DENIED);
    }
}

/// The client comes to 127.0.0.2.
#[test]
fn at_an_address_of_a_single_export_its_share_is_the_only_one() {
    let world = world();
    let mut c = Client::new(&world, 1);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    let homes = [
        (None, Status::SUCCESS),
        (Some([127, 0, 0, 2]), Status::SUCCESS),
        (Some([127, 0, 0, 3]), Status::BAD_NETWORK_NAME),
    ];
    for (home, found) in homes {
        let block = home.map(|_| "127.0.0.2/31".parse().unwrap());
        let table = ExportTable::with_addresses(block);
        published_in(&world, &table, |export| {
            export.home = home.map(|at: [u8; 4]| (at.into(), "/vol1".to_owned()));
        });
        assert_eq!(c.connect("vol1"), found, "{home:?}");
    }
}

/// A client learns that a share requires encryption by connecting to it in the clear. Nothing else
/// is accepted there in the clear.
#[test]
fn a_share_that_requires_encryption_takes_nothing_else() {
    let world = world();
    let required = |required| {
        published(&world, |export| {
            export.share.as_mut().unwrap().encrypted = required;
        });
    };
    let share_flags = |c: &mut Client<'_>| {
        let answer = c.one(command::TREE_CONNECT, tree_connect("vol1"));
        c.tree = answer.header.tree;
        assert_eq!(answer.status, Status::SUCCESS);
        answer.u32(4)
    };
    let some = |name| create(name, ALL, SHARE, OPEN_IF, 0);
    let mut c = Client::new(&world, 1);
    c.cipher = Some(Cipher::Aes128Gcm);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(share_flags(&mut c), 0x30);
    // A client that is connected already goes on encrypted, or not at all.
    required(true);
    for sealed in [false, true] {
        c.seals = sealed;
        let came = statuses(&c.send_chain(true, &[some("x"), read(&SAME, 0, 10)]));
        assert_eq!(came[0] == Status::SUCCESS, sealed, "{came:?}");
        assert_eq!(came.contains(&Status::ACCESS_DENIED), !sealed);
    }
    c.seals = false;
    assert_eq!(share_flags(&mut c), 0x8030, "SMB2_SHAREFLAG_ENCRYPT_DATA");
    assert_eq!(
        statuses(&c.send_chain(false, &[some("x")])),
        [Status::ACCESS_DENIED]
    );
    // Other shares need no encryption.
    assert_eq!(c.connect("IPC$"), Status::SUCCESS);
    for dialect in [Dialect::Smb210, Dialect::Smb311] {
        let mut c = Client::new(&world, 2 + dialect as u64);
        assert_eq!(c.log_on(dialect, PASSWORD), Status::SUCCESS);
        assert_eq!(
            c.connect("vol1"),
            Status::ACCESS_DENIED,
            "it cannot encrypt"
        );
        assert_eq!(c.connect("IPC$"), Status::SUCCESS);
    }
    required(false);
    assert_eq!(c.connect("vol1"), Status::SUCCESS);
    assert_eq!(
        statuses(&c.send_chain(false, &[some("x")])),
        [Status::SUCCESS]
    );
}

#[test]
fn requests_on_a_volume_are_counted_with_what_they_moved() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    c.cipher = Some(Cipher::Aes128Gcm);
    let counted = |c: &mut Client<'_>, requests: &[(u16, Vec<u8>)]| {
        let record = c.chain(true, requests);
        let (reply, _) = world.reply(1, &record);
        let names = reply.done().map(|done| {
            let (protocol, name) = crate::conn::operation::name(done.operation).unwrap();
            assert_eq!((protocol, done.arrived), ("smb", ARRIVED));
            (name, done.bytes)
        });
        names.collect::<Vec<_>>()
    };
    let made = create("x", ALL, SHARE, CREATE, 0);
    let written = write(&SAME, 0, &[7; 5000]);
    let was_read = read(&SAME, 1000, 9000);
    assert_eq!(
        counted(&mut c, &[made.clone(), written, was_read, close(&SAME)]),
        [("CREATE", 0), ("WRITE", 5000), ("READ", 4000), ("CLOSE", 0)]
    );
    // Failed operations on volumes count. Others do not, nor do commands that are not run.
    assert_eq!(counted(&mut c, &[made]), [("CREATE", 0)]);
    let echo = (command::ECHO, vec![4, 0, 0, 0]);
    assert_eq!(counted(&mut c, &[echo]), []);
    c.tree += 1;
    assert_eq!(counted(&mut c, &[close(&SAME)]), []);
}

#[test]
fn gmac_signs_where_it_was_negotiated() {
    let world = world();
    for (n, signing) in [Signing::Gmac, Signing::Hmac, Signing::Cmac]
        .into_iter()
        .enumerate()
    {
        let mut c = Client::new(&world, n as u64 + 1);
        c.signing = signing;
        assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        assert_eq!(c.connect("vol1"), Status::SUCCESS);
        let data = vec![n as u8; 30_000];
        let made = c.send_chain(
            true,
            &[
                create("signed", ALL, SHARE, OPEN_IF, 0),
                write(&SAME, 0, &data),
                read(&SAME, 0, 30_000),
            ],
        );
        assert_eq!(statuses(&made), [Status::SUCCESS; 3]);
        let mut record = c.chain(false, &[create("signed", ALL, SHARE, OPEN, 0)]);
        record[100] ^= 1;
        let Came::Answer(reply) = world.send(c.connection, &record) else {
            panic!("no answer")
        };
        assert_eq!(statuses(&answers(&reply)), [Status::ACCESS_DENIED]);
    }
}

/// A client on connection `n` that is about to bind it to the session of `first`.
fn second<'w>(world: &'w World, n: u64, first: &Client<'w>) -> Client<'w> {
    let mut c = Client::new(world, n);
    (c.guid, c.signing, c.cipher) = (first.guid, first.signing, first.cipher);
    c.binds = first.signer.clone().map(|signer| (first.session, signer));
    c
}

#[test]
fn a_session_has_several_connections_and_outlives_all_but_the_last() {
    let world = world();
    for (round, dialect) in [Dialect::Smb300, Dialect::Smb311].into_iter().enumerate() {
        let base = 10 * round as u64;
        let mut a = Client::new(&world, base + 1);
        a.cipher = Some(Cipher::Aes128Gcm);
        assert_eq!(a.log_on(dialect, PASSWORD), Status::SUCCESS);
        assert_eq!(a.connect("vol1"), Status::SUCCESS);
        let file = a
            .send_chain(false, &[create("f", ALL, SHARE, OPEN_IF, 0)])
            .remove(0)
            .file();
        let mut b = second(&world, base + 2, &a);
        assert_eq!(b.log_on(dialect, PASSWORD), Status::SUCCESS);
        b.tree = a.tree;
        // The new channel has a key of its own, and the session's keys of encryption.
        assert_eq!(
            statuses(&b.send_chain(false, &[write(&file, 0, b"over b")])),
            [Status::SUCCESS]
        );
        b.sealing = a.sealing.take();
        (b.seals, b.nonces) = (true, crate::proto::encryption::Nonces::new(1));
        assert_eq!(
            statuses(&b.send_chain(false, &[read(&file, 0, 6)])),
            [Status::SUCCESS]
        );
        b.seals = false;
        let before = world.service.counts();
        assert_eq!(before.0, 1);
        world.ended(base + 1);
        assert_eq!(world.service.counts(), before, "it has another channel");
        assert_eq!(
            statuses(&b.send_chain(false, &[read(&file, 0, 6)])),
            [Status::SUCCESS]
        );
        world.ended(base + 2);
        assert_eq!(world.service.counts(), (0, 0, 0));
    }
}

#[test]
fn a_binding_that_is_wrong_is_refused_and_harms_nothing() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let file = a
        .send_chain(false, &[create("f", ALL, SHARE, OPEN_IF, 0)])
        .remove(0)
        .file();
    let mut n = 1;
    let mut try_it = |spoil: &dyn Fn(&mut Client<'_>), dialect, password| {
        n += 1;
        let mut b = second(&world, n, &a);
        spoil(&mut b);
        b.log_on(dialect, password)
    };
    let d = Dialect::Smb311;
    let cmac = (Dialect::Smb311, Signing::Cmac);
    let other = || Arc::new(Signer::new(cmac, &[1; 16], &Preauth::default()));
    assert_eq!(
        try_it(&|b| b.guid = 99, d, PASSWORD),
        Status::USER_SESSION_DELETED
    );
    assert_eq!(
        try_it(&|b| b.binds.as_mut().unwrap().0 ^= 1, d, PASSWORD),
        Status::USER_SESSION_DELETED
    );
    assert_eq!(
        try_it(&|b| b.binds.as_mut().unwrap().1 = other(), d, PASSWORD),
        Status::ACCESS_DENIED
    );
    assert_eq!(
        try_it(&|b| b.signing = Signing::Gmac, d, PASSWORD),
        Status::NOT_SUPPORTED
    );
    assert_eq!(
        try_it(&|b| b.cipher = Some(Cipher::Aes128Gcm), d, PASSWORD),
        Status::INVALID_PARAMETER
    );
    assert_eq!(
        try_it(&|_| (), Dialect::Smb302, PASSWORD),
        Status::INVALID_PARAMETER
    );
    assert_eq!(
        try_it(&|_| (), Dialect::Smb210, PASSWORD),
        Status::REQUEST_NOT_ACCEPTED
    );
    assert_eq!(try_it(&|_| (), d, "guess"), Status::LOGON_FAILURE);
    assert_eq!(
        statuses(&a.send_chain(false, &[read(&file, 0, 0)])),
        [Status::SUCCESS]
    );
}

#[test]
fn channels_are_bounded_and_logoff_ends_them_all() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let mut all = Vec::new();
    for n in 2..=crate::open::session::MAX_CHANNELS as u64 {
        let mut b = second(&world, n, &a);
        assert_eq!(b.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        b.tree = a.tree;
        all.push(b);
    }
    let mut over = second(&world, 100, &a);
    assert_eq!(
        over.log_on(Dialect::Smb311, PASSWORD),
        Status::INSUFFICIENT_RESOURCES
    );
    let known = |n: u64| world.on(n, |conn| world.service.knows(conn));
    assert!((1..=2).all(known));
    a.one(command::LOGOFF, vec![4, 0, 0, 0]);
    assert!(!(1..=2).any(known), "connections without a user");
    let late = all[5].chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)]);
    let Came::Answer(reply) = world.send(all[5].connection, &late) else {
        panic!("no answer")
    };
    assert_eq!(statuses(&answers(&reply)), [Status::USER_SESSION_DELETED]);
    assert_eq!(world.service.counts(), (0, 0, 0));
}

/// Each channel remembers tree connects that its requests have named.
#[test]
fn a_tree_connect_is_gone_on_all_channels_once_it_is_disconnected() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let mut b = second(&world, 2, &a);
    assert_eq!(b.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    let first = a.tree;
    b.tree = first;
    let open =
        |c: &mut Client<'_>| statuses(&c.send_chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)]));
    assert_eq!(open(&mut b), [Status::SUCCESS]);
    let gone = a.one(command::TREE_DISCONNECT, vec![4, 0, 0, 0]);
    assert_eq!(gone.status, Status::SUCCESS);
    assert_eq!(open(&mut b), [Status::NETWORK_NAME_DELETED]);
    // More than a channel remembers, and each is another.
    let trees: Vec<u32> = (0..9)
        .map(|_| {
            assert_eq!(a.connect("vol1"), Status::SUCCESS);
            a.tree
        })
        .collect();
    for tree in trees.iter().chain(&trees) {
        b.tree = *tree;
        assert_eq!(open(&mut b), [Status::SUCCESS]);
    }
    b.tree = first;
    assert_eq!(open(&mut b), [Status::NETWORK_NAME_DELETED]);
}

/// A request that was sent before its client lost a channel changes nothing after the client has
/// gone on.
#[test]
fn an_old_channel_sequence_changes_nothing() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let opened = a.send_chain(false, &[create("f", ALL, SHARE, OPEN_IF, 0)]);
    let file = opened[0].file();
    let mut wrote = |sequence: u16, request: (u16, Vec<u8>)| {
        a.sequence = sequence;
        a.send_chain(false, &[request]).remove(0).status
    };
    for (sequence, status) in [
        (0, Status::SUCCESS),
        (2, Status::SUCCESS),
        (2, Status::SUCCESS),
        (1, Status::FILE_NOT_AVAILABLE),
        (0x8002, Status::FILE_NOT_AVAILABLE),
        (0x8001, Status::SUCCESS),
        (0, Status::SUCCESS),
        (0xffff, Status::FILE_NOT_AVAILABLE),
    ] {
        assert_eq!(
            wrote(sequence, write(&file, 0, b"x")),
            status,
            "{sequence:x}"
        );
    }
    assert_eq!(wrote(0xffff, read(&file, 0, 1)), Status::SUCCESS);
}

#[test]
fn more_connections_go_where_the_first_went() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let mut body = Vec::new();
    body.put_u16(57);
    body.put_u16(0);
    body.put_u32(0x0014_01fc);
    body.put(&SAME);
    body.put_zeroes(20);
    body.put_u32(4096);
    body.put_u32(1);
    body.put_u32(0);
    let answer = a.one(command::IOCTL, body);
    assert_eq!((answer.status, answer.u32(36)), (Status::SUCCESS, 152));
    let out = &answer.body[48..];
    assert_eq!((out[4], out[8]), (1, 1), "an index, and RSS");
    assert_eq!(out[24..32], [2, 0, 0, 0, 127, 0, 0, 2]);
}

#[test]
fn message_numbers_are_used_once() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let record = c.chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)]);
    assert!(matches!(world.send(1, &record), Came::Answer(_)));
    assert!(matches!(world.send(1, &record), Came::Closed));
    let mut other = Client::new(&world, 2);
    let early = other.chain(false, &[create("x", ALL, SHARE, OPEN_IF, 0)]);
    assert!(
        matches!(world.send(2, &early), Came::Closed),
        "NEGOTIATE comes first"
    );
}

/// If signatures are only offered, a request without one gets a response without one, unless a
/// client or the protocol requires it.
#[test]
fn signatures_are_left_out_where_both_sides_agree() {
    let world = world_with(Protection::Offered);
    let made = || create("f", ALL, SHARE, OPEN_IF, 0);
    let mut c = Client::new(&world, 1);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    let unsigned = c.signer.take();
    let connects = c.chain(false, &[(command::TREE_CONNECT, tree_connect("vol1"))]);
    assert!(matches!(world.send(1, &connects), Came::Closed));

    let mut c = Client::new(&world, 2);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(c.connect("vol1"), Status::SUCCESS);
    let signer = c.signer.take();
    let plain = c.send_chain(false, &[made()]).remove(0);
    assert_eq!(plain.status, Status::SUCCESS);
    assert!(!plain.header.has_flag(flag::SIGNED));
    // A signature that is there has to be right.
    c.signer = unsigned;
    let record = c.chain(false, &[made()]);
    let Came::Answer(refused) = world.send(2, &record) else {
        panic!("no answer")
    };
    assert_eq!(statuses(&answers(&refused)), [Status::ACCESS_DENIED]);
    c.signer = signer;
    let signed = c.send_chain(false, &[made()]).remove(0);
    assert_eq!(signed.status, Status::SUCCESS);
    assert!(signed.header.has_flag(flag::SIGNED));

    // Of a client that wants them, whichever way it says so, nothing else is taken.
    for (connection, modes) in [(3, [3, 1]), (4, [1, 3])] {
        let mut c = Client::new(&world, connection);
        c.modes = modes;
        assert_eq!(c.log_on(Dialect::Smb302, PASSWORD), Status::SUCCESS);
        assert_eq!(c.connect("vol1"), Status::SUCCESS);
        c.signer = None;
        let refused = c.send_chain(false, &[made()]).remove(0);
        assert_eq!(refused.status, Status::ACCESS_DENIED);
    }
    // The security mode in the response to every client.
    let said = |protection| {
        let world = world_with(protection);
        let (_, Came::Answer(reply)) = Client::new(&world, 1).negotiate(0x302) else {
            panic!("no answer")
        };
        reply[HEADER + 2]
    };
    let kinds = [
        Protection::Offered,
        Protection::Signed,
        Protection::Encrypted,
    ];
    assert_eq!(kinds.map(said), [1, 3, 3]);
}
