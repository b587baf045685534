//! Requests to a node of a pair that does not serve yet, and connections of strangers to the port
//! for nodes.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::api::Api;
use common::record;
use pairs::{BLOCK, Client, Node, World, block, does, free_port, until};
use weir_testclient::nfs3::{Call, FILE_SYNC, Reply, Sattr};
use weir_testclient::{Caller, rpc};

/// Silent connections that are kept to each port.
const SILENT: usize = 600;

fn kind(error: &io::Error) -> io::ErrorKind {
    error.kind()
}

/// Sends `bytes` to where nobody serves, and gives up without a reply.
fn give_up(at: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(at) else {
        return;
    };
    stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    if stream.write_all(bytes).is_ok() {
        let mut reply = [0; 4];
        assert!(stream.read_exact(&mut reply).is_err(), "a standby replies");
    }
}

/// Changes that a client has sent to a node that does not serve, while the primary continues.
struct Stale {
    file: weir_testclient::nfs3::Fh,
    root: weir_testclient::nfs3::Fh,
    udp: UdpSocket,
}

impl Stale {
    fn send(primary: &Node, standby: &Node, api: &str) -> Stale {
        let mut client = Client::connect(primary.nfs).unwrap();
        let root = client.root();
        let (file, _) = (client.file(&root, "file"), client.file(&root, "kept"));
        client.write(&file, 0, FILE_SYNC).unwrap();
        let changes = [
            Call::Write {
                fh: file.clone(),
                offset: 0,
                stable: FILE_SYNC,
                data: block(7),
            },
            Call::Remove(root.clone(), b"kept".to_vec()),
            Call::Setattr(
                file.clone(),
                Sattr {
                    size: Some(0),
                    ..Sattr::default()
                },
                None,
            ),
        ];
        for (xid, change) in (1..).zip(&changes) {
            give_up(
                standby.nfs,
                &record(&change.message(xid, &Caller::default())),
            );
        }
        let delete = format!("DELETE {api} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        give_up(standby.api, delete.as_bytes());
        // The lock manager's, over UDP: none is kept for later.
        let call = rpc::call(9, 100_021, 4, 0, &Caller::default()).0;
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let _ = udp.connect(standby.nfs).and_then(|()| udp.send(&call));
        assert!(
            udp.recv(&mut [0; 64]).is_err(),
            "a standby replies over UDP"
        );
        client.write(&file, 1, FILE_SYNC).unwrap();
        Stale { file, root, udp }
    }

    fn was_not_carried_out(&self, node: &Node, api: &str) {
        let mut client = Client::connect(node.nfs).unwrap();
        // Behind all that may have waited in the listeners.
        for _ in 0..64 {
            client.holds(&self.file, 2);
            let kept = Call::Lookup(self.root.clone(), b"kept".to_vec());
            match client.call(&kept).unwrap() {
                Reply::Found(..) => {}
                other => panic!("{other:?}"),
            }
        }
        let read = Call::Read {
            fh: self.file.clone(),
            offset: 0,
            count: 2 * BLOCK as u32,
        };
        match client.call(&read).unwrap() {
            Reply::Data { data, .. } => assert_eq!(data.len() as u64, 2 * BLOCK),
            other => panic!("{other:?}"),
        }
        assert!(self.udp.recv(&mut [0; 64]).is_err(), "it replies late");
        assert_eq!(Api(node.api).get(api).0, 200, "the volume is there");
    }
}

fn with_smb(node: &mut Node) -> SocketAddr {
    let smb = SocketAddr::from(([127, 0, 0, 1], free_port()));
    node.options.extend(["--smb".to_owned(), smb.to_string()]);
    smb
}

#[test]
fn what_was_sent_to_a_standby_is_never_carried_out() {
    let mut world = World::with_setup(|a| {
        with_smb(a);
    });
    let smb = with_smb(&mut world.b);
    let mut world = world.joined();
    let api = Api(world.a.api);
    api.pool("pool");
    api.make_volume("pool", "kept");
    let volume = Api::volume("kept");
    // It has all its ports, and nobody is let in.
    for at in [world.b.nfs, world.b.api, smb] {
        assert_eq!(
            kind(&TcpListener::bind(at).unwrap_err()),
            io::ErrorKind::AddrInUse
        );
        let refused = TcpStream::connect(at).map(drop).unwrap_err();
        assert_eq!(kind(&refused), io::ErrorKind::ConnectionRefused);
    }
    let stale = Stale::send(&world.a, &world.b, &volume);
    does(&["pair", "switch", "--data", world.a.data()]);
    world.b.serves();
    stale.was_not_carried_out(&world.b, &volume);
    // The other way round: one that has served and serves again, after a kill.
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    let _ = std::fs::remove_file(&world.a.ready);
    let stale = Stale::send(&world.b, &world.a, &volume);
    world.b.end();
    world.a.serves();
    stale.was_not_carried_out(&world.a, &volume);
    TcpStream::connect(world.a.nfs).unwrap();
}

/// Keeps silent connections to a port, and makes new ones for those that were closed.
fn silent(to: &str, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (to, stop) = (to.to_owned(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut held: Vec<TcpStream> = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            held.retain_mut(|stream| {
                stream.set_nonblocking(true).unwrap();
                let read = stream.read(&mut [0; 1]);
                read.is_err_and(|error| kind(&error) == io::ErrorKind::WouldBlock)
            });
            while held.len() < SILENT {
                match TcpStream::connect(&to) {
                    Ok(stream) => held.push(stream),
                    Err(_) => break,
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    })
}

#[test]
fn silent_connections_to_the_witness_and_to_the_pair_keep_no_node_out() {
    let mut world = World::in_sync();
    let stop = Arc::new(AtomicBool::new(false));
    let attacks: Vec<_> = world.doors.iter().map(|to| silent(to, &stop)).collect();
    let witness = world.doors[0].clone();
    until("they are connected", || {
        let held = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let port: u16 = witness.rsplit(':').next()?.parse().ok()?;
        let to = format!("0100007F:{port:04X} 01");
        (held.matches(&to).count() >= SILENT / 8).then_some(())
    });
    world.a.end();
    world.b.serves();
    world.a.start();
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    stop.store(true, Ordering::SeqCst);
    attacks
        .into_iter()
        .for_each(|attack| attack.join().unwrap());
}

#[test]
fn a_healthy_pair_names_its_states_and_warns_of_nothing() {
    let world = World::in_sync();
    world.a.is("state", "PRIMARY");
    world.b.is("state", "STANDBY");
    let log = |node: &Node| std::fs::read_to_string(node.data.with_extension("log")).unwrap();
    for (node, state) in [(&world.a, "PRIMARY"), (&world.b, "STANDBY")] {
        until("it is logged", || {
            node.said(&format!("pair state {state}")).then_some(())
        });
        let log = log(node);
        assert!(
            !log.contains("--force") && !log.contains("http://docs"),
            "{log}"
        );
        let pair = |line: &&str| line.contains("pair") && line.contains("WARN");
        assert_eq!(log.lines().find(pair), None, "{log}");
    }
    // A name does not run into its value.
    let shown = world.a.shows().unwrap();
    assert!(
        shown.contains("replies wait for  the partner's log"),
        "{shown}"
    );
    let mut world = world;
    world.b.end();
    world.a.is("state", "ALONE");
    until("it is logged", || {
        world.a.said("pair state ALONE, was PRIMARY").then_some(())
    });
    let log = log(&world.a);
    assert!(
        log.contains("WARN") && log.contains("pair state ALONE, was PRIMARY"),
        "{log}"
    );
    let shown = world.a.shows().unwrap();
    for said in [&log, &shown] {
        assert!(
            !said.contains("docs.rs") && !said.contains("close_notify"),
            "{said}"
        );
    }
}
