//! Two real nodes and a witness on loopback, and clients that survive them.

#![allow(dead_code)] // Each test uses a part.

pub mod network;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use weir_base::{SystemClock, SystemRng};
use weir_store::aggregate::FolderLocation;
use weir_store::{Aggregate, Env, FramePool};
use weir_testclient::nfs3::{Call, CreateHow3, FILE_SYNC, Fh, Reply, Sattr, UNSTABLE, Verifier};
use weir_testclient::{Caller, In, rpc};
use weir_volume::{Engine, EngineOptions, VolumeState};

use crate::common::api::Api;
use crate::common::{record, unique, weir};

/// Waits so often for a state, of 10 ms each.
pub const TRIES: u32 = 6000;

pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: it does not come to that")
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Runs `weir`, which has to succeed; what it prints.
pub fn does(args: &[&str]) -> String {
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
pub fn refuses(args: &[&str]) -> String {
    let out = weir(args);
    assert!(!out.status.success(), "{args:?} succeeds");
    String::from_utf8(out.stderr).unwrap()
}

pub fn word(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .trim()
        .to_owned()
}

/// A process that ends with this.
pub struct Process {
    pub child: Child,
    pub log: PathBuf,
}

impl Process {
    pub fn start(log: &Path, args: &[&str]) -> Process {
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

    pub fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Suspends all of its threads; none of them runs on return.
    pub fn suspend(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            // The state comes behind the name in parentheses. A thread may have ended.
            stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T')))
        };
        until("all threads are stopped", || {
            let mut tasks = std::fs::read_dir(&tasks).unwrap();
            tasks.all(stopped).then_some(())
        });
    }

    pub fn kill(&mut self) {
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
pub struct Node {
    pub data: PathBuf,
    pub nfs: SocketAddr,
    pub api: SocketAddr,
    pub ready: PathBuf,
    /// The log's folder, where it is one of its own: on a disk that is lost with its machine.
    pub log: Option<PathBuf>,
    /// Further options of `weir serve`.
    pub options: Vec<String>,
    pub process: Option<Process>,
}

impl Node {
    pub fn new(top: &Path, name: &str) -> Node {
        Node {
            data: top.join(name),
            nfs: SocketAddr::from(([127, 0, 0, 1], free_port())),
            api: SocketAddr::from(([127, 0, 0, 1], free_port())),
            ready: top.join(format!("{name}.ready")),
            log: None,
            options: Vec::new(),
            process: None,
        }
    }

    /// As [`Node::new`], with a log that is lost with its machine.
    pub fn with_log(top: &Path, name: &str) -> Node {
        Node {
            log: Some(top.join(format!("{name}-log"))),
            ..Node::new(top, name)
        }
    }

    /// Its machine is gone, and what it had beside the data folder.
    pub fn loses_log(&mut self) {
        self.end();
        std::fs::remove_dir_all(self.log.as_ref().unwrap()).unwrap();
    }

    pub fn data(&self) -> &str {
        self.data.to_str().unwrap()
    }

    pub fn start(&mut self) {
        let _ = std::fs::remove_file(&self.ready);
        let (nfs, api) = (self.nfs.to_string(), self.api.to_string());
        let mut args = vec![
            "serve",
            "--data",
            self.data(),
            "--nfs",
            &nfs,
            "--memory",
            "256M",
        ];
        args.extend(["--no-rpcbind", "--api", &api]);
        args.extend(["--ready-file", self.ready.to_str().unwrap()]);
        if let Some(log) = &self.log {
            args.extend(["--log-dir", log.to_str().unwrap(), "--log-ephemeral"]);
        }
        args.extend(self.options.iter().map(String::as_str));
        self.process = Some(Process::start(&self.data.with_extension("log"), &args));
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Returns the output of `weir pair show`, if the node runs.
    pub fn shows(&self) -> Option<String> {
        let out = weir(&["pair", "show", "--data", self.data()]);
        out.status
            .success()
            .then(|| String::from_utf8(out.stdout).unwrap())
    }

    /// Waits until `weir pair show` has this value.
    pub fn is(&self, name: &str, value: &str) {
        until(&format!("{name} of {} is {value}", self.data()), || {
            let shown = self.shows()?;
            (word(&shown, name) == value).then_some(())
        });
    }

    pub fn serves(&self) {
        until("it serves", || self.ready.exists().then_some(()));
    }

    /// Stops the process by SIGTERM and waits for its end.
    pub fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(libc::SIGTERM);
        assert!(process.child.wait().unwrap().success());
    }

    /// Kills the process.
    pub fn end(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Limits what goes out to other nodes; `unlimited` or KB/s.
    pub fn limits(&self, limit: &str) {
        let line = format!("options -option-name replication.throttle.outgoing.max_kbs {limit}");
        let body = json!({"input": line});
        let (status, said) = Api(self.api)
            .send("POST", "/api/private/cli", &body)
            .unwrap();
        assert_eq!(status, 200, "{said}");
    }

    /// Returns true if the node's log contains `words`.
    pub fn said(&self, words: &str) -> bool {
        self.times(words) > 0
    }

    /// Returns the number of times that the node's log contains `words`.
    pub fn times(&self, words: &str) -> usize {
        let log = std::fs::read_to_string(self.data.with_extension("log"));
        log.unwrap_or_default().matches(words).count()
    }

    /// Opens the node's engine; its process must not run.
    pub fn engine(&self) -> Engine {
        let env = Env {
            pool: FramePool::new(8192).unwrap(),
            clock: Arc::new(SystemClock::new()),
            rng: Arc::new(SystemRng),
        };
        let mut location = FolderLocation::new(&self.data);
        location.log.clone_from(&self.log);
        let (aggregate, replay) = Aggregate::open(&location.into(), env).unwrap();
        let options = EngineOptions {
            standby: true,
            ..EngineOptions::default()
        };
        Engine::open(aggregate, replay, &SystemRng, options).unwrap()
    }

    /// Returns the contents of the node's copy; its process must not run.
    pub fn holds(&self) -> Vec<VolumeState> {
        let engine = self.engine();
        engine.cp_now().unwrap();
        while engine.reclaiming() {
            engine.cp_now().unwrap();
        }
        let mut held = engine.state_hash().unwrap();
        for volume in &mut held {
            // A mark that was being made has no name that clients could give.
            volume
                .snapshots
                .retain(|(_, name, ..)| !name.starts_with('\0'));
        }
        engine.shutdown().unwrap();
        held
    }
}

pub struct World {
    pub a: Node,
    pub b: Node,
    pub witness: Process,
    /// Addresses of the witness, and of the first node for the second.
    pub doors: [String; 2],
    pub _top: tempfile::TempDir,
}

impl World {
    /// Two nodes in sync.
    pub fn in_sync() -> World {
        World::with_setup(|_| {}).joined()
    }

    /// The second is started, and has everything.
    pub fn joined(mut self) -> World {
        self.b.start();
        self.b.is("in sync", "yes");
        self.a.is("in sync", "yes");
        self
    }

    /// Makes a pair whose first node serves and whose second is not started. `before` runs with the
    /// first node before it becomes one of a pair.
    pub fn with_setup(before: impl FnOnce(&mut Node)) -> World {
        let top = tempfile::tempdir().unwrap();
        let (mut a, b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
        before(&mut a);
        World::made_of(top, a, b)
    }

    /// Two in sync, each with a log that is lost with its machine.
    pub fn with_logs() -> World {
        let top = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| Node::with_log(top.path(), name));
        World::made_of(top, a, b).joined()
    }

    fn made_of(top: tempfile::TempDir, mut a: Node, b: Node) -> World {
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
        let logs = [&a, &b].map(|node| {
            node.log
                .as_ref()
                .map(|log| log.to_str().unwrap().to_owned())
        });
        create.extend(logs[0].iter().flat_map(|log| ["--log-dir", log]));
        let made = does(&create);
        let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
        let mut join = vec!["pair", "join", "--data", b.data(), "--aggregate", &id];
        join.extend(["--partner", &listen, "--partner-certificate", &print_a]);
        join.extend(decider);
        join.extend(logs[1].iter().flat_map(|log| ["--log-dir", log]));
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
        World {
            a,
            b,
            witness,
            doors: [witness_at, listen],
            _top: top,
        }
    }

    /// Stops both while nothing changes, the one that does not serve first: they hold the same.
    pub fn hold_the_same(mut self, serves_a: bool) {
        self.a.is("in sync", "yes");
        self.b.is("in sync", "yes");
        let (first, last) = match serves_a {
            true => (&mut self.b, &mut self.a),
            false => (&mut self.a, &mut self.b),
        };
        first.end();
        last.is("role", "primary, alone");
        last.stop();
        let (a, b) = (self.a.holds(), self.b.holds());
        assert!(!a.is_empty());
        assert_eq!(a, b);
    }
}

/// A client of `/vol1` that survives its server.
pub struct Client {
    pub stream: TcpStream,
    pub xid: u32,
}

impl Client {
    /// Connects once a node serves there: others refuse.
    pub fn connect(to: SocketAddr) -> io::Result<Client> {
        let stream = until("a node listens", || match TcpStream::connect(to) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
            other => Some(other),
        })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client {
            stream,
            xid: unique() as u32,
        })
    }

    pub fn call(&mut self, call: &Call) -> io::Result<Reply> {
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

    pub fn root(&mut self) -> Fh {
        match self.call(&Call::Mnt(b"/vol1".to_vec())).unwrap() {
            Reply::Root(root) => root,
            other => panic!("{other:?}"),
        }
    }

    pub fn file(&mut self, dir: &Fh, name: &str) -> Fh {
        let how = CreateHow3::Unchecked(Sattr::mode(0o644));
        match self
            .call(&Call::Create(dir.clone(), name.as_bytes().to_vec(), how))
            .unwrap()
        {
            Reply::Made(Some(fh), ..) => fh,
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, fh: &Fh, n: u64, stable: u32) -> io::Result<Verifier> {
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
    pub fn holds(&mut self, fh: &Fh, blocks: u64) {
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

pub const BLOCK: u64 = 8192;

pub fn block(n: u64) -> Vec<u8> {
    n.to_le_bytes()
        .into_iter()
        .cycle()
        .take(BLOCK as usize)
        .collect()
}

/// Writes stable blocks one after the other until its server is gone.
pub struct Writer {
    pub fh: Fh,
    pub acknowledged: Arc<AtomicU64>,
    pub thread: std::thread::JoinHandle<()>,
    pub stop: Arc<AtomicBool>,
    /// So many blocks may be written.
    pub limit: Arc<AtomicU64>,
}

impl Writer {
    pub fn start(to: SocketAddr, name: &str) -> Writer {
        Writer::limited(to, name, u64::MAX)
    }

    /// Writes so many blocks, and [more](Writer::goes_on) on request: blocks written while the
    /// primary is alone have to fit into its memory.
    pub fn limited(to: SocketAddr, name: &str, blocks: u64) -> Writer {
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

    pub fn has_written(&self, blocks: u64) {
        until("blocks are written", || {
            (self.acknowledged.load(Ordering::SeqCst) >= blocks).then_some(())
        });
    }

    /// Writes and waits for more.
    pub fn goes_on(&self) {
        let blocks = self.limit.load(Ordering::SeqCst) + 20;
        self.limit.store(blocks, Ordering::SeqCst);
        self.has_written(blocks);
    }

    /// Ends the writer; returns its file and the number of acknowledged blocks.
    pub fn ended(self) -> (Fh, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        (self.fh, self.acknowledged.load(Ordering::SeqCst))
    }
}

/// Writes so many blocks without stability, and commits.
pub fn fill(client: &mut Client, fh: &Fh, blocks: u64) {
    for n in 0..blocks {
        client.write(fh, n, UNSTABLE).unwrap();
    }
    client.write(fh, blocks, FILE_SYNC).unwrap();
}
