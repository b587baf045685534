//! An address that moves with a pair: two nodes and their client in networks of their own.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pairs::network::{Machine, connected};
use pairs::{Client, Node, Process, does, free_port, refuses, until, word};
use socket2::{Domain, Socket, Type};
use weir_testclient::nfs3::{FILE_SYNC, Fh};

const MOVING: [&str; 2] = ["10.9.0.100", "fd09::100"];
const PORT: u16 = 2049;

/// Two nodes in networks of their own, and a third machine with the witness and the clients.
struct World {
    client: Machine,
    machines: [Machine; 2],
    nodes: [Node; 2],
    _witness: Process,
    _top: tempfile::TempDir,
}

impl World {
    fn in_sync() -> World {
        let own: [&[&str]; 2] = [
            &["10.9.0.1/24", "fd09::1/64"],
            &["10.9.0.2/24", "fd09::2/64"],
        ];
        let (client, machines) = connected(&["10.9.0.9/24", "fd09::9/64"], own);
        let top = tempfile::tempdir().unwrap();
        let node = |name: &str| Node {
            nfs: SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], PORT)),
            ..Node::new(top.path(), name)
        };
        let nodes = [node("a"), node("b")];
        let folder = top.path().join("witness");
        let folder = folder.to_str().unwrap();
        let print = does(&["witness", "--data", folder, "--show"]);
        let print = print.trim();
        let witness_at = "10.9.0.9:2052";
        let moving =
            MOVING.map(|ip| format!("{ip}/{}@eth0", if ip.contains(':') { 64 } else { 24 }));
        let same = [
            "--witness",
            witness_at,
            "--witness-certificate",
            print,
            "--address",
            &moving[0],
            "--address",
            &moving[1],
        ];
        let listen = "10.9.0.1:2051";
        let [a, b] = &nodes;
        let mut create = vec!["pair", "create", "--data", a.data(), "--listen", listen];
        create.extend(same);
        let made = does(&create);
        assert!(made.contains(&format!("--address {}", moving[0])), "{made}");
        let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
        let mut join = vec!["pair", "join", "--data", b.data(), "--aggregate", &id];
        join.extend(["--partner", listen, "--partner-certificate", &print_a]);
        join.extend(same);
        let print_b = word(&does(&join), "certificate");
        does(&["pair", "accept", "--data", a.data(), &print_b]);
        let ready = top.path().join("witness.ready");
        let log = top.path().join("witness.log");
        let witness = client.run(|| {
            Process::start(
                &log,
                &[
                    "witness",
                    "--data",
                    folder,
                    "--listen",
                    witness_at,
                    "--node",
                    &print_a,
                    "--node",
                    &print_b,
                    "--ready-file",
                    ready.to_str().unwrap(),
                ],
            )
        });
        until("the witness serves", || ready.exists().then_some(()));
        let mut world = World {
            client,
            machines,
            nodes,
            _witness: witness,
            _top: top,
        };
        world.start(0);
        world.nodes[0].serves();
        world.start(1);
        world.are_in_sync();
        world
    }

    fn start(&mut self, n: usize) {
        self.machines[n].run(|| self.nodes[n].start());
    }

    fn are_in_sync(&self) {
        self.nodes.iter().for_each(|node| node.is("in sync", "yes"));
    }

    /// Waits until this node has both addresses and the other one neither; their processes may not
    /// run.
    fn is_at(&self, n: usize) {
        until("one node has the addresses", || {
            let has = |n: usize| MOVING.map(|ip| self.machines[n].has_address(ip));
            (has(n) == [true; 2] && has(1 - n) == [false; 2]).then_some(())
        });
    }
}

/// Writes stable blocks one after the other to the node that has the address. If its connection
/// ends, it connects again from the same port, as Linux' NFS client does, and sends unacknowledged
/// writes again. It waits for a reply without limit.
struct Persistent {
    acknowledged: Arc<AtomicU64>,
    /// Connections that were ended.
    ended: Arc<AtomicU64>,
    /// Attempts to connect that were refused.
    refused: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Fh>,
}

impl Persistent {
    fn start(at: &Machine, to: SocketAddr, name: &'static str) -> Persistent {
        let (acknowledged, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (stop, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (count, ends, stops, refusals) = (
            Arc::clone(&acknowledged),
            Arc::clone(&ended),
            Arc::clone(&stop),
            Arc::clone(&refused),
        );
        let port = if to.is_ipv6() { 706 } else { 704 };
        let first = at.run(|| until("the address is served", || open(port, to).ok()));
        let remote = at.remote();
        let thread = std::thread::spawn(move || {
            remote.enter();
            let mut client = first;
            let root = client.root();
            let fh = client.file(&root, name);
            let mut n = 0;
            while !stops.load(Ordering::Relaxed) {
                match client.write(&fh, n, FILE_SYNC) {
                    Ok(_) => {
                        n += 1;
                        count.store(n, Ordering::SeqCst);
                    }
                    Err(error) => {
                        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "nobody ends it");
                        ends.fetch_add(1, Ordering::SeqCst);
                        client = until("the address is served", || match open(port, to) {
                            Ok(client) => Some(client),
                            Err(error) => {
                                let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                                refusals.fetch_add(u64::from(refused), Ordering::SeqCst);
                                None
                            }
                        });
                    }
                }
            }
            fh
        });
        Persistent {
            acknowledged,
            ended,
            refused,
            stop,
            thread,
        }
    }

    /// Waits until it goes on, over a connection that is not `before`.
    fn goes_on(&self, before: u64) -> u64 {
        until("its connection is another one", || {
            (self.ended.load(Ordering::SeqCst) > before).then_some(())
        });
        let written = self.acknowledged.load(Ordering::SeqCst);
        until("it writes", || {
            (self.acknowledged.load(Ordering::SeqCst) > written + 20).then_some(())
        });
        self.ended.load(Ordering::SeqCst)
    }

    fn ended(self) -> (Fh, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let fh = self.thread.join().unwrap();
        (fh, self.acknowledged.load(Ordering::SeqCst))
    }
}

/// From this port; 0: any.
fn open(port: u16, to: SocketAddr) -> io::Result<Client> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], port)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], port)),
    };
    socket.bind(&any.into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
    let stream = std::net::TcpStream::from(socket);
    stream.set_nodelay(true)?;
    // Longer than the test waits for anything.
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    Ok(Client { stream, xid: 1 })
}

fn connect(at: &Machine, to: SocketAddr) -> Client {
    at.run(|| until("the address is served", || open(0, to).ok()))
}

#[test]
fn the_node_that_serves_has_the_addresses_whatever_becomes_of_the_other() {
    let mut world = World::in_sync();
    world.is_at(0);
    let writers = MOVING.map(|ip| {
        let to = SocketAddr::new(ip.parse().unwrap(), PORT);
        let name = if ip.contains(':') { "six" } else { "four" };
        Persistent::start(&world.client, to, name)
    });
    let mut ended = [0, 0];
    let mut goes_on = |why: &str| {
        for (writer, ended) in writers.iter().zip(&mut ended) {
            eprintln!("{why}: {} connections ended before", *ended);
            *ended = writer.goes_on(*ended);
        }
    };
    for writer in &writers {
        until("it writes", || {
            (writer.acknowledged.load(Ordering::SeqCst) > 20).then_some(())
        });
    }
    let shown = world.nodes[1].shows().unwrap();
    assert!(word(&shown, "address").ends_with("(not here)"), "{shown}");
    // In order.
    does(&["pair", "switch", "--data", world.nodes[0].data()]);
    world.is_at(1);
    goes_on("switched");
    world.are_in_sync();
    let shown = world.nodes[1].shows().unwrap();
    assert!(word(&shown, "address").ends_with("(here)"), "{shown}");
    // The process is gone and cannot remove them. Clients get no reply until the other node serves.
    let heard = |writer: &Persistent| {
        let now = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (now(&writer.ended), now(&writer.refused))
    };
    let before = writers.each_ref().map(heard);
    world.nodes[1].process().kill();
    world.is_at(0);
    goes_on("killed");
    for (writer, (ended, refused)) in writers.iter().zip(before) {
        assert_eq!(heard(writer), (ended + 1, refused));
    }
    // What is left behind, for whatever reason, is removed by the next start.
    for (ip, bits) in MOVING.into_iter().zip([24, 64]) {
        world.machines[1].ip(&format!("addr add {ip}/{bits} dev eth0"));
    }
    world.start(1);
    world.is_at(0);
    world.are_in_sync();
    // Its kernel has acknowledged what clients sent: they learn from the other that it is gone.
    world.nodes[0].process().suspend();
    world.is_at(1);
    goes_on("stopped");
    world.nodes[0].process().signal(libc::SIGCONT);
    world.are_in_sync();
    world.is_at(1);
    // Its cable is pulled.
    world.machines[1].ip("link set eth0 down");
    until("the other one has the addresses", || {
        MOVING
            .iter()
            .all(|ip| world.machines[0].has_address(ip))
            .then_some(())
    });
    goes_on("without a link");
    world.machines[1].ip("link set eth0 up");
    // The kernel has removed it with the link.
    world.machines[1].ip("addr replace fd09::2/64 dev eth0 nodad");
    world.are_in_sync();
    world.is_at(0);
    let written = writers.map(Persistent::ended);
    let to = SocketAddr::new(MOVING[0].parse().unwrap(), PORT);
    let mut client = connect(&world.client, to);
    world.client.run(|| {
        for (fh, blocks) in &written {
            client.holds(fh, *blocks);
        }
    });
}

/// Makes a node of a pair with `address` and starts it, `without` a capability if one is given.
/// The start has to fail; returns its error.
fn why_not(top: &Path, name: &str, address: &str, without: Option<libc::c_ulong>) -> String {
    let data = top.join(name);
    let data = data.to_str().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let create = ["pair", "create", "--data", data, "--listen", &listen];
    let more = ["--preferred", "a", "--address", address];
    does(&[&create[..], &more].concat());
    does(&["pair", "accept", "--data", data, &"ab".repeat(32)]);
    let out = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(capability) = without {
                // SAFETY: this thread, and what it starts, loses a right.
                let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
                assert_eq!(done, 0, "this test needs root");
            }
            Command::new(env!("CARGO_BIN_EXE_weir"))
                .args([
                    "serve",
                    "--data",
                    data,
                    "--nfs",
                    "127.0.0.1:0",
                    "--no-rpcbind",
                ])
                .args(["--api", "off", "--memory", "256M"])
                .output()
                .unwrap()
        });
        thread.join().unwrap()
    });
    assert!(!out.status.success());
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn an_address_that_cannot_be_moved_is_refused_by_name() {
    const NET_ADMIN: libc::c_ulong = 12;
    const NET_RAW: libc::c_ulong = 13;
    let top = tempfile::tempdir().unwrap();
    let data = top.path().join("never");
    let create = [
        "pair",
        "create",
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:1",
    ];
    for (addresses, why) in [
        (&["10.0.0.1"][..], "is not ADDR/PREFIX@IFACE"),
        (&["10.0.0.1/40@eth0"], "1 to 32 bits"),
        (&["127.0.0.1/8@lo"], "no address that can move"),
        (&["10.0.0.1/24@eth0", "10.0.0.1/32@eth1"], "is said twice"),
    ] {
        let more = addresses.iter().flat_map(|address| ["--address", address]);
        let all: Vec<&str> = create
            .into_iter()
            .chain(["--preferred", "a"])
            .chain(more)
            .collect();
        let said = refuses(&all);
        assert!(said.contains(why), "{said}");
        assert!(!data.exists());
    }
    let why = why_not(top.path(), "none", "10.9.0.100/24@none0", None);
    assert!(why.contains("no interface none0 is there"), "{why}");
    for capability in [NET_ADMIN, NET_RAW] {
        let name = format!("without {capability}");
        let why = why_not(top.path(), &name, "10.9.0.100/24@lo", Some(capability));
        assert!(why.contains("needs CAP_NET_ADMIN and CAP_NET_RAW"), "{why}");
    }
}
