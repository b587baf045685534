//! Clients and sessions that one host invents must not exclude another host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::time::Duration;
use support::compound::*;
use support::{Server, X};

const CROWD: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";

/// EXCHANGE_ID under this name: returns the client id, or the error.
fn introduce(s: &Server, from: &str, owner: &[u8]) -> Result<u64, u32> {
    let ops = Ops::new().op(42, exchange(owner, 1, 0));
    let args = X::new().o(b"tag").u(2).u(1).raw(&ops.out.0);
    let mut r = send(s, from, &args);
    match r.status {
        OK => Ok(r.ok(42).h()),
        status => Err(status),
    }
}

/// CREATE_SESSION, the first or a later one of a client: returns its status.
fn begin(s: &Server, from: &str, client: u64, sequence: u32, slots: u32) -> u32 {
    let ops = Ops::new().op(43, creation(client, sequence, slots));
    let args = X::new().o(b"tag").u(2).u(1).raw(&ops.out.0);
    send(s, from, &args).status
}

/// Creates clients with a session each until no more are accepted; returns their number.
fn crowd(s: &Server) -> u32 {
    let mut made = 0;
    loop {
        match introduce(s, CROWD, &u32::to_be_bytes(made)) {
            Ok(client) if begin(s, CROWD, client, 1, 1) == OK => made += 1,
            Ok(_) | Err(DELAY) => return made,
            Err(status) => panic!("{status}"),
        }
    }
}

#[test]
fn clients_of_one_address_are_bounded() {
    let s = Server::new();
    let made = crowd(&s);
    assert!((1000..=4096).contains(&made), "{made}");
    // Another host does not notice.
    let other = Client::new(&s, OTHER, b"other");
    assert_eq!(other.status(&Ops::new().root()), OK);
    let used = s.vfs.claims.budget().used();
    assert!(used <= s.vfs.claims.budget().total() / 2, "{used}");
}

#[test]
fn who_is_silent_and_has_nothing_makes_room() {
    let s = Server::new();
    let holder = Client::new(&s, CROWD, b"holder");
    let (file, state) = holder.open(b"f", b"o", (3, 0));
    let made = crowd(&s);
    assert_eq!(introduce(&s, CROWD, b"late"), Err(DELAY), "all are alive");
    s.clock.advance(Duration::from_secs(31));
    s.service.tick();
    let late = introduce(&s, CROWD, b"late").expect("room");
    assert_eq!(begin(&s, CROWD, late, 1, 1), OK);
    // The oldest of those without anything went, and not the one that has a file open.
    assert_eq!(begin(&s, CROWD, late, 2, 1), OK);
    let write = Ops::new().fh(&file).write(&state, 0, b"x");
    assert_eq!(holder.status(&write), OK);
    assert!(made > 0);
}

#[test]
fn a_client_that_cannot_be_replaced_for_want_of_memory_is_still_known() {
    let s = Server::new();
    let a = Client::new(&s, CROWD, b"a");
    a.open(b"f", b"o", (3, 3));
    // Another principal takes over the name of a client whose lease has run out.
    s.clock.advance(Duration::from_secs(31));
    s.uid.set((77, 77));
    let budget = s.vfs.claims.budget();
    let memory = budget.try_reserve(budget.available()).expect("memory");
    assert_eq!(introduce(&s, CROWD, b"a"), Err(DELAY));
    drop(memory);
    assert!(introduce(&s, CROWD, b"a").is_ok());
    assert_eq!(s.vfs.claims.totals().held, 0, "what it had open");
}

#[test]
fn sessions_of_one_address_take_a_part_of_the_memory() {
    let s = Server::new();
    let budget = s.vfs.claims.budget();
    let client = introduce(&s, CROWD, b"greedy").expect("a client");
    let mut sequence = 0;
    // Each with fewer slots as less is left.
    while sequence < 1_000_000 {
        sequence += 1;
        if begin(&s, CROWD, client, sequence, 1024) != OK {
            break;
        }
    }
    let used = budget.used();
    assert!(
        used > budget.total() / 8,
        "{used}: it was not stopped by that"
    );
    assert!(used <= budget.total() / 4, "{used}");
    let other = Client::new(&s, OTHER, b"other");
    assert_eq!(other.status(&Ops::new().root()), OK);
}

/// Lets every host create clients and sessions until no more are accepted.
fn exhausted(s: &Server, hosts: &[String]) {
    for host in hosts {
        let Ok(client) = introduce(s, host, host.as_bytes()) else {
            continue;
        };
        let mut sequences = 1..100_000;
        while sequences
            .next()
            .is_some_and(|n| begin(s, host, client, n, 1024) == OK)
        {}
    }
}

#[test]
fn hosts_that_take_all_memory_leave_some_to_those_that_have_little() {
    let s = Server::with_memory(1 << 20);
    let hosts: Vec<String> = (1..=8).map(|n| format!("10.0.1.{n}")).collect();
    exhausted(&s, &hosts);
    let budget = s.vfs.claims.budget();
    assert!(budget.used() <= budget.total() * 3 / 4);
    let used = budget.used();
    let other = Client::new(&s, OTHER, b"other");
    other.open(b"f", b"o", (3, 0));
    assert!(used < budget.used(), "nobody gave way");
}

#[test]
fn clients_without_state_give_way_to_those_that_have_less() {
    let s = Server::with_memory(1 << 20);
    let holder = Client::new(&s, "10.0.1.1", b"holder");
    let (file, state) = holder.open(b"f", b"o", (3, 0));
    // Hosts enough to take the reserve as well.
    let hosts: Vec<String> = (1..=250).map(|n| format!("10.0.1.{n}")).collect();
    exhausted(&s, &hosts);
    let small: Vec<String> = (1..=250).map(|n| format!("10.0.2.{n}")).collect();
    exhausted(&s, &small);
    let before = s.service.nfs4_counts().clients;
    for n in 0..250 {
        let name = Box::leak(format!("10.0.3.{n}").into_boxed_str());
        Client::new(&s, name, name.as_bytes());
    }
    let clients = s.service.nfs4_counts().clients;
    assert!(clients < before + 250, "{before} {clients}");
    let write = Ops::new().fh(&file).write(&state, 0, b"x");
    assert_eq!(holder.status(&write), OK, "it has a file open");
}
