//! Two real nodes and a witness on loopback: paired, killed, stopped and switched, with writes that are verified afterwards.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{record, unique, weir};
use weir_testclient::nfs3::{Call, FILE_SYNC, Fh, How, Reply, Sattr, UNSTABLE, Verifier};
use weir_testclient::{Caller, In, rpc};

/// Waits so often for a state, of 10 ms each.
const TRIES: u32 = 6000;

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: it does not come to that")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Runs `weir`, which has to succeed; what it prints.
fn does(args: &[&str]) -> String {
    let out = weir(args);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.status.success(),
        "{args:?}: {said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    said
}

/// Runs `weir`, which has to refuse; why.
fn refuses(args: &[&str]) -> String {
    let out = weir(args);
    assert!(!out.status.success(), "{args:?} succeeds");
    String::from_utf8(out.stderr).unwrap()
}

fn word(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .trim()
        .to_owned()
}

/// A process that ends with this.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(log: &Path, args: &[&str]) -> Process {
        let out = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Process {
            child,
            log: log.to_owned(),
        }
    }

    fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("{}:\n{log}", self.log.display());
        }
    }
}

/// A node of the pair, running or not.
struct Node {
    data: PathBuf,
    nfs: SocketAddr,
    ready: PathBuf,
    process: Option<Process>,
}

impl Node {
    fn new(top: &Path, name: &str) -> Node {
        Node {
            data: top.join(name),
            nfs: SocketAddr::from(([127, 0, 0, 1], free_port())),
            ready: top.join(format!("{name}.ready")),
            process: None,
        }
    }

    fn data(&self) -> &str {
        self.data.to_str().unwrap()
    }

    fn start(&mut self) {
        let _ = std::fs::remove_file(&self.ready);
        let log = self.data.with_extension("log");
        self.process = Some(Process::start(
            &log,
            &[
                "serve",
                "--data",
                self.data(),
                "--nfs",
                &self.nfs.to_string(),
                "--memory",
                "256M",
                "--no-rpcbind",
                "--api",
                "127.0.0.1:0",
                "--ready-file",
                self.ready.to_str().unwrap(),
            ],
        ));
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// What `weir pair show` says, if the node runs.
    fn shows(&self) -> Option<String> {
        let out = weir(&["pair", "show", "--data", self.data()]);
        out.status
            .success()
            .then(|| String::from_utf8(out.stdout).unwrap())
    }

    /// Waits until `weir pair show` has this value.
    fn is(&self, name: &str, value: &str) {
        until(&format!("{name} of {} is {value}", self.data()), || {
            let shown = self.shows()?;
            (word(&shown, name) == value).then_some(())
        });
    }

    fn serves(&self) {
        until("it serves", || self.ready.exists().then_some(()));
    }
}

struct World {
    a: Node,
    b: Node,
    witness: Process,
    _top: tempfile::TempDir,
}

impl World {
    /// Two nodes in sync.
    fn in_sync() -> World {
        let top = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
        let folder = top.path().join("witness");
        let folder = folder.to_str().unwrap();
        let witness_at = format!("127.0.0.1:{}", free_port());
        let print = does(&["witness", "--data", folder, "--show"]);
        let decider = [
            "--witness",
            &witness_at,
            "--witness-certificate",
            print.trim(),
        ];
        let listen = format!("127.0.0.1:{}", free_port());
        let mut create = vec!["pair", "create", "--data", a.data(), "--listen", &listen];
        create.extend(decider);
        let made = does(&create);
        let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
        let mut join = vec!["pair", "join", "--data", b.data(), "--aggregate", &id];
        join.extend(["--partner", &listen, "--partner-certificate", &print_a]);
        join.extend(decider);
        let print_b = word(&does(&join), "certificate");
        does(&["pair", "accept", "--data", a.data(), &print_b]);
        let third = refuses(&["pair", "accept", "--data", a.data(), &print_b]);
        assert!(third.contains("a pair has two nodes"), "{third}");
        let ready = top.path().join("witness.ready");
        let witness = Process::start(
            &top.path().join("witness.log"),
            &[
                "witness",
                "--data",
                folder,
                "--listen",
                &witness_at,
                "--node",
                &print_a,
                "--node",
                &print_b,
                "--ready-file",
                ready.to_str().unwrap(),
            ],
        );
        until("the witness serves", || ready.exists().then_some(()));
        a.start();
        a.serves();
        b.start();
        b.is("in sync", "yes");
        a.is("in sync", "yes");
        World {
            a,
            b,
            witness,
            _top: top,
        }
    }
}

/// A client of `/vol1` that survives its server.
struct Client {
    stream: TcpStream,
    xid: u32,
}

impl Client {
    fn connect(to: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client {
            stream,
            xid: unique() as u32,
        })
    }

    fn call(&mut self, call: &Call) -> io::Result<Reply> {
        self.xid = self.xid.wrapping_add(1);
        let message = call.message(self.xid, &Caller::default());
        self.stream.write_all(&record(&message))?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut body)?;
        let results: In<'_> = rpc::results(&body, self.xid).unwrap();
        Ok(call.decode(results).unwrap())
    }

    fn root(&mut self) -> Fh {
        match self.call(&Call::Mnt(b"/vol1".to_vec())).unwrap() {
            Reply::Root(root) => root,
            other => panic!("{other:?}"),
        }
    }

    fn file(&mut self, dir: &Fh, name: &str) -> Fh {
        let how = How::Unchecked(Sattr::mode(0o644));
        match self
            .call(&Call::Create(dir.clone(), name.as_bytes().to_vec(), how))
            .unwrap()
        {
            Reply::Made(Some(fh), ..) => fh,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, fh: &Fh, n: u64, stable: u32) -> io::Result<Verifier> {
        let call = Call::Write {
            fh: fh.clone(),
            offset: n * BLOCK,
            stable,
            data: block(n),
        };
        match self.call(&call)? {
            Reply::Written {
                count, verifier, ..
            } => {
                assert_eq!(u64::from(count), BLOCK);
                Ok(verifier)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Blocks of a file that are as they were written.
    fn holds(&mut self, fh: &Fh, blocks: u64) {
        for n in 0..blocks {
            let call = Call::Read {
                fh: fh.clone(),
                offset: n * BLOCK,
                count: BLOCK as u32,
            };
            match self.call(&call).unwrap() {
                Reply::Data { data, .. } => assert!(data == block(n), "block {n} of {blocks}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

const BLOCK: u64 = 8192;

fn block(n: u64) -> Vec<u8> {
    n.to_le_bytes()
        .into_iter()
        .cycle()
        .take(BLOCK as usize)
        .collect()
}

/// Writes stable blocks one after the other until its server is gone.
struct Writer {
    fh: Fh,
    acknowledged: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
    stop: Arc<AtomicBool>,
    /// So many blocks may be written.
    limit: Arc<AtomicU64>,
}

impl Writer {
    fn start(to: SocketAddr, name: &str) -> Writer {
        Writer::limited(to, name, u64::MAX)
    }

    /// Writes so many blocks, and [more](Writer::goes_on): what is written alone is to fit into the primary's memory.
    fn limited(to: SocketAddr, name: &str, blocks: u64) -> Writer {
        let mut client = Client::connect(to).unwrap();
        let root = client.root();
        let fh = client.file(&root, name);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let limit = Arc::new(AtomicU64::new(blocks));
        let most = Arc::clone(&limit);
        let (file, count, ends) = (fh.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for n in 0.. {
                while n >= most.load(Ordering::SeqCst) && !ends.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if ends.load(Ordering::Relaxed) || client.write(&file, n, FILE_SYNC).is_err() {
                    return;
                }
                count.store(n + 1, Ordering::SeqCst);
            }
        });
        Writer {
            fh,
            acknowledged,
            thread,
            stop,
            limit,
        }
    }

    fn has_written(&self, blocks: u64) {
        until("blocks are written", || {
            (self.acknowledged.load(Ordering::SeqCst) >= blocks).then_some(())
        });
    }

    /// Writes and waits for more.
    fn goes_on(&self) {
        let blocks = self.limit.load(Ordering::SeqCst) + 20;
        self.limit.store(blocks, Ordering::SeqCst);
        self.has_written(blocks);
    }

    /// How many blocks were acknowledged in all.
    fn ended(self) -> (Fh, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        (self.fh, self.acknowledged.load(Ordering::SeqCst))
    }
}

#[test]
fn the_standby_serves_all_that_was_acknowledged_when_the_primary_is_killed() {
    let mut world = World::in_sync();
    let mut client = Client::connect(world.a.nfs).unwrap();
    let root = client.root();
    let file = client.file(&root, "unstable");
    let verifier = client.write(&file, 0, UNSTABLE).unwrap();
    let writer = Writer::start(world.a.nfs, "stable");
    writer.has_written(100);
    let refused = refuses(&["pair", "switch", "--data", world.b.data()]);
    assert!(refused.contains("does not serve"), "{refused}");
    world.a.process().kill();
    let (fh, blocks) = writer.ended();
    assert!(blocks >= 100);
    // The listener was there before; the same handles lead to the same files.
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&fh, blocks);
    assert_eq!(client.root(), root);
    assert_ne!(client.write(&file, 0, UNSTABLE).unwrap(), verifier);
    world.b.is("role", "primary, alone");
    client.write(&fh, blocks, FILE_SYNC).unwrap();
    // The one that was killed may hold what nobody acknowledged. It serves nobody.
    world.a.start();
    world.a.is("role", "standby, behind");
    until("it is said why", || {
        world
            .b
            .shows()?
            .contains("needs a synchronisation")
            .then_some(())
    });
    assert!(!world.a.ready.exists());
}

#[test]
fn a_lost_partner_is_left_and_goes_on_when_it_is_back() {
    let mut world = World::in_sync();
    let writer = Writer::limited(world.a.nfs, "file", 50);
    writer.has_written(50);
    world.b.process().kill();
    world.a.is("role", "primary, alone");
    writer.goes_on();
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    // A standby that stands still and goes on.
    world.b.process().signal(libc::SIGSTOP);
    world.a.is("role", "primary, alone");
    world.b.process().signal(libc::SIGCONT);
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    writer.limit.store(u64::MAX, Ordering::SeqCst);
    writer.has_written(writer.acknowledged.load(Ordering::SeqCst) + 20);
    world.a.process().kill();
    let (fh, blocks) = writer.ended();
    world.b.serves();
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
}

#[test]
fn a_primary_that_stands_still_finds_another_and_answers_nobody() {
    let mut world = World::in_sync();
    let writer = Writer::start(world.a.nfs, "file");
    writer.has_written(50);
    let mut reader = Client::connect(world.a.nfs).unwrap();
    let root = reader.root();
    world.a.process().signal(libc::SIGSTOP);
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.file(&root, "made at the other");
    // The call is there before the process goes on; what it would say is no longer so.
    let call =
        Call::Lookup(root.clone(), b"made at the other".to_vec()).message(7, &Caller::default());
    reader.stream.write_all(&record(&call)).unwrap();
    world.a.process().signal(libc::SIGCONT);
    let mut said = [0; 4];
    assert!(reader.stream.read_exact(&mut said).is_err(), "it replies");
    world.a.is("role", "standby, behind");
    let (fh, blocks) = writer.ended();
    client.holds(&fh, blocks);
}

#[test]
fn a_switch_and_a_stop_hand_over_and_both_are_in_sync_again() {
    let mut world = World::in_sync();
    let writer = Writer::start(world.a.nfs, "file");
    writer.has_written(50);
    does(&["pair", "switch", "--data", world.a.data()]);
    let (fh, blocks) = writer.ended();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&fh, blocks);
    world.a.is("role", "standby");
    world.b.is("in sync", "yes");
    let writer = Writer::start(world.b.nfs, "another");
    writer.has_written(50);
    let _ = std::fs::remove_file(&world.a.ready);
    world.b.process().signal(libc::SIGTERM);
    world.a.serves();
    let (another, more) = writer.ended();
    let mut client = Client::connect(world.a.nfs).unwrap();
    client.holds(&fh, blocks);
    client.holds(&another, more);
    assert!(world.b.process().child.wait().unwrap().success());
    world.b.start();
    world.b.is("role", "standby");
    world.a.is("in sync", "yes");
    let used = refuses(&["pair", "delete", "--data", world.a.data()]);
    assert!(used.contains("stop it first"), "{used}");
    drop(world.witness);
}

/// Without a witness the side that is not preferred takes over by hand alone, and the hook is run at each turn.
#[test]
fn without_a_witness_a_user_has_the_last_word() {
    let top = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
    let hook = top.path().join("hook");
    let said = top.path().join("said");
    std::fs::write(&hook, format!("#!/bin/sh\necho $1 >> {}\n", said.display())).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let hook = hook.to_str().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let create = [
        "pair",
        "create",
        "--data",
        a.data(),
        "--listen",
        &listen,
        "--preferred",
        "a",
    ];
    let made = does(&create);
    let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
    let join = [
        "pair",
        "join",
        "--data",
        b.data(),
        "--aggregate",
        &id,
        "--partner",
        &listen,
        "--partner-certificate",
        &print_a,
        "--preferred",
        "a",
        "--address-hook",
        hook,
    ];
    let print_b = word(&does(&join), "certificate");
    does(&["pair", "accept", "--data", a.data(), &print_b]);
    a.start();
    a.serves();
    b.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");
    let writer = Writer::start(a.nfs, "file");
    writer.has_written(50);
    a.process().kill();
    let (fh, blocks) = writer.ended();
    until("it wants to serve", || {
        word(&b.shows()?, "role")
            .starts_with("taking over")
            .then_some(())
    });
    until("it is said why", || {
        b.shows()?.contains("takeover --force").then_some(())
    });
    assert!(!b.ready.exists());
    does(&["pair", "takeover", "--data", b.data(), "--force"]);
    b.serves();
    Client::connect(b.nfs).unwrap().holds(&fh, blocks);
    let words = std::fs::read_to_string(said).unwrap();
    assert_eq!(
        words.split_whitespace().collect::<Vec<_>>(),
        ["remove", "remove", "add"]
    );
}

#[test]
fn what_cannot_be_a_pair_is_refused_by_name() {
    let top = tempfile::tempdir().unwrap();
    let full = top.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("something"), "x").unwrap();
    let full = full.to_str().unwrap();
    let create = ["pair", "create", "--data", full, "--listen", "127.0.0.1:1"];
    let why = refuses(&create);
    assert!(
        why.contains("who decides when the nodes do not hear each other?"),
        "{why}"
    );
    let with = |more: &[&'static str]| -> Vec<&str> {
        create.iter().copied().chain(more.iter().copied()).collect()
    };
    let why = refuses(&with(&["--preferred", "a"]));
    assert!(
        why.contains("first synchronisation, which it does not have"),
        "{why}"
    );
    let why = refuses(&with(&[
        "--witness",
        "w:1",
        "--witness-certificate",
        "short",
    ]));
    assert!(why.contains("64 hexadecimal digits"), "{why}");
    let none = top.path().join("none");
    let why = refuses(&["pair", "show", "--data", none.to_str().unwrap()]);
    assert!(why.contains("is not one of a pair"), "{why}");
    let half = top.path().join("half");
    let half = half.to_str().unwrap();
    does(&[
        "pair",
        "create",
        "--data",
        half,
        "--listen",
        "127.0.0.1:0",
        "--preferred",
        "a",
    ]);
    let why = refuses(&[
        "serve",
        "--data",
        half,
        "--nfs",
        "127.0.0.1:0",
        "--api",
        "127.0.0.1:0",
        "--no-rpcbind",
    ]);
    assert!(
        why.contains("the partner's certificate is not known yet"),
        "{why}"
    );
    does(&["pair", "delete", "--data", half]);
}
