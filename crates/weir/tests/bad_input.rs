//! Malformed, late and missing input to the real binary. Each peer gets the protocol's own
//! error or a closed connection with one log line, and all others continue to be served.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use common::client::Client;
use weir_bench::nfs3::Calls;

use common::{Server, call, closed, exchange_bytes, null, record, reply, serves, words};

const NFS: u32 = 100_003;

fn server() -> (tempfile::TempDir, Server) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    (data, server)
}

#[test]
fn unknown_programs_versions_and_procedures_get_rpc_errors() {
    let (_data, server) = server();
    let mut c = server.connect();
    // accept_stat: 1 PROG_UNAVAIL, 2 PROG_MISMATCH with the range, 3 PROC_UNAVAIL (RFC 5531 §9).
    assert_eq!(
        exchange_bytes(&mut c, &call(1, 99_999, 1, 0, &[])),
        [1, 1, 0, 0, 0, 1]
    );
    assert_eq!(
        exchange_bytes(&mut c, &call(2, NFS, 2, 0, &[])),
        [2, 1, 0, 0, 0, 2, 3, 4]
    );
    assert_eq!(
        exchange_bytes(&mut c, &call(3, NFS, 5, 1, &[])),
        [3, 1, 0, 0, 0, 2, 3, 4]
    );
    assert_eq!(
        exchange_bytes(&mut c, &call(4, NFS, 3, 22, &[])),
        [4, 1, 0, 0, 0, 3]
    );
    assert_eq!(
        exchange_bytes(&mut c, &call(5, NFS, 3, u32::MAX, &[])),
        [5, 1, 0, 0, 0, 3]
    );
    // RPC version 3: MSG_DENIED, RPC_MISMATCH, 2 to 2.
    let other = record(&words(&[6, 0, 3, NFS, 3, 0, 0, 0, 0, 0]));
    assert_eq!(exchange_bytes(&mut c, &other), [6, 1, 1, 0, 2, 2]);
    serves(&mut c);
}

#[test]
fn what_is_not_rpc_closes_the_connection_with_one_line() {
    let (_data, server) = server();
    let mut good = server.connect();
    let bad: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff; 64],                      // a fragment of 2 GiB - 1
        &[0x80, 0x20, 0, 0],              // 2 MiB
        &record(&[]),                     // nothing
        &record(&[1, 2, 3]),              // not even a transaction id
        &record(&words(&[1, 7, 2, NFS])), // neither call nor reply
    ];
    for (i, bytes) in bad.into_iter().enumerate() {
        let mut c = server.connect();
        serves(&mut c);
        c.write_all(bytes).unwrap();
        assert!(closed(&mut c), "input {i}");
        let address = c.local_addr().unwrap().to_string();
        assert_eq!(server.logged(&address, 1).len(), 1, "input {i}");
        serves(&mut good);
    }
}

#[test]
fn requests_cut_anywhere_hurt_nobody() {
    let (_data, server) = server();
    let mut good = server.connect();
    let whole = [null(1), call(2, NFS, 3, 1, &words(&[8, 1, 2]))].concat();
    for cut in 1..whole.len() {
        let mut c = server.connect();
        c.write_all(&whole[..cut]).unwrap();
        match cut % 3 {
            0 => drop(c),
            1 => c.shutdown(Shutdown::Both).unwrap(),
            _ => {
                c.shutdown(Shutdown::Write).unwrap();
                assert!(closed(&mut c));
            }
        }
        serves(&mut good);
    }
    // A WRITE of 1 MiB that never comes in full.
    let mut c = server.connect();
    c.write_all(&record(&vec![0; 1 << 20])[..700_000]).unwrap();
    drop(c);
    serves(&mut good);
}

#[test]
fn requests_in_many_fragments_are_put_together() {
    let (_data, server) = server();
    let mut c = server.connect();
    let body = &null(9)[4..];
    let mut bytes = Vec::new();
    for (i, byte) in body.iter().enumerate() {
        let last = if i + 1 == body.len() {
            0x8000_0000u32
        } else {
            0
        };
        bytes.extend_from_slice(&(1 | last).to_be_bytes());
        bytes.push(*byte);
    }
    assert_eq!(exchange_bytes(&mut c, &bytes), [9, 1, 0, 0, 0, 0]);
    // Fragments of nothing for ever.
    let empty = words(&[0; 1024]);
    while c.write_all(&empty).is_ok() {}
    assert!(closed(&mut c));
    serves(&mut server.connect());
}

/// Ten thousand connections at rest cost little, and one more is served as usual.
#[test]
fn ten_thousand_idle_connections() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place; raising the soft limit to the hard one is allowed.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    // An unprivileged user may have a lower hard limit; then as many as that allows.
    let count = usize::try_from(limit.rlim_max / 2)
        .unwrap_or(usize::MAX)
        .min(10_000);
    let (_data, server) = server();
    let mut good = server.connect();
    serves(&mut good);
    let before = server.resident();
    let mut idle: Vec<TcpStream> = (0..count).map(|_| server.connect()).collect();
    for c in &mut idle {
        serves(c);
    }
    let each = server.resident().saturating_sub(before) / count as u64;
    println!("{count} idle connections, {each} bytes of memory each");
    assert!(each < 8192, "{each} bytes of memory for an idle connection");
    serves(&mut good);
    drop(idle);
    serves(&mut good);
}

#[test]
fn a_peer_that_stops_within_a_request_is_dropped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--stall", "1"]);
    let (mut late, mut idle) = (server.connect(), server.connect());
    serves(&mut idle);
    late.write_all(&null(5)[..20]).unwrap();
    assert!(closed(&mut late));
    let address = late.local_addr().unwrap().to_string();
    assert_eq!(server.logged(&address, 1).len(), 1);
    serves(&mut idle);
}

/// Handles that this server did not make, and handles of files that are gone.
#[test]
fn foreign_and_stale_handles_get_their_errors() {
    let (_data, server) = server();
    let mut c = server.connect();
    let getattr = |xid, handle: &[u8]| {
        let mut args = words(&[handle.len() as u32]);
        args.extend_from_slice(handle);
        args.resize(args.len().next_multiple_of(4), 0);
        call(xid, NFS, 3, 1, &args)
    };
    // NFS3ERR_BADHANDLE, or NFS3ERR_STALE for what might once have been one (RFC 1813 §2.6).
    for (xid, len) in (0..).zip([0, 1, 8, 16, 24, 28, 32, 48, 64]) {
        let answer = exchange_bytes(&mut c, &getattr(xid, &vec![0xa5; len]));
        assert_eq!(answer[..6], [xid, 1, 0, 0, 0, 0], "{len} bytes");
        assert!([10_001, 70].contains(&answer[6]), "{len} bytes: {answer:?}");
    }
    // Longer than a handle may be: GARBAGE_ARGS.
    assert_eq!(
        exchange_bytes(&mut c, &getattr(99, &[1; 65])),
        [99, 1, 0, 0, 0, 4],
        "65 bytes"
    );
    let mut client = Client::mount(&server);
    let file = client.file("gone", &[1; 4096]);
    client.remove("gone").unwrap();
    assert_eq!(client.read(&file, 0, 4096).err(), Some(70));
    serves(&mut c);
}

/// Clients that ask for much and take nothing: bounded, then dropped, and no other client suffers.
#[test]
fn clients_that_never_read_are_bounded_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--stall", "2"]);
    let mut client = Client::mount(&server);
    let file = client.file("large", &vec![7; 1 << 20]);
    let mut read = Vec::new();
    Calls::new(Some(&common::root())).read(&mut read, 1, &file, 0, 1 << 20);
    let asks = read.repeat(64);
    let mut greedy: Vec<TcpStream> = (0..32).map(|_| server.connect()).collect();
    for c in &mut greedy {
        c.write_all(&asks).unwrap();
    }
    // Two gigabytes were asked for; the budget is 256 MiB for everything.
    serves(&mut server.connect());
    let resident = server.resident();
    assert!(resident < 400 << 20, "{resident} bytes resident");
    // Some for their memory, if a call had to wait for it.
    assert_eq!(server.logged("connection dropped: the peer", 32).len(), 32);
    assert!(client.read(&file, 0, 4096).unwrap() == [7; 4096]);
}

/// Many calls in one go are all answered, also when the sender says no more after them.
#[test]
fn a_burst_before_a_half_close_is_answered_in_full() {
    let (_data, server) = server();
    let mut c = server.connect();
    let calls: Vec<u8> = (0..3000).flat_map(null).collect();
    c.write_all(&calls).unwrap();
    c.shutdown(Shutdown::Write).unwrap();
    let mut xids: Vec<u32> = (0..3000).map(|_| reply(&mut c)[0]).collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..3000).collect::<Vec<_>>());
    assert!(closed(&mut c));
}
