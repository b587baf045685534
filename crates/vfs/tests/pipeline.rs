//! Sessions and operations on a volume, without any protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

use std::net::IpAddr;
use std::sync::Arc;

use weir_base::{Clock, ManualClock, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_vfs::volume::{Attr, CreateHow, SetAttr, SetTime, Stability};
use weir_vfs::{
    AccessModel, Admissions, AdmittedFile, ChargeProof, Clients, Cost, DataRead, DataWrite, Error,
    Export, FileId, Flavour, Flavours, GrantedAccess, Groups, HandleKey, Identity, MetadataRead,
    MetadataWrite, Namespace, OpContext, OpResult, Operand, Protocol, Rule, Session, Squash, Stop,
    Suspend, Transport, Vfs, Volume,
};
use weir_volume::{Engine, EngineOptions};

/// A server over devices in memory, which can lose what it has in memory.
struct Server {
    device: Arc<MemDevice>,
    log: Arc<MemDevice>,
    engine: Option<Engine>,
    volume: Option<Arc<Volume>>,
    vfs: Arc<Vfs>,
}

fn env() -> Env {
    Env {
        pool: FramePool::new(8192).unwrap(),
        clock: Arc::new(ManualClock::default()),
        rng: Arc::new(SeededRng::new(43)),
    }
}

fn current_time() -> Time {
    ManualClock::default().current_time()
}

impl Server {
    fn new() -> Server {
        Server::with_log(16 << 8)
    }

    /// With a log of so many blocks.
    fn with_log(blocks: u64) -> Server {
        let device = Arc::new(MemDevice::new(64 << 8));
        let log = Arc::new(MemDevice::new(blocks));
        let (agg, replay) = Aggregate::create_on(device.clone(), log.clone(), env()).unwrap();
        let rng = SeededRng::new(42);
        let engine = Engine::open(agg, replay, &rng, EngineOptions::default()).unwrap();
        engine
            .create_volume("vol1", (0, 0), 0o777, current_time(), &rng)
            .unwrap();
        let mut server = Server {
            device,
            log,
            engine: Some(engine),
            volume: None,
            vfs: Vfs::new(HandleKey::new([9; 16], [9; 16])),
        };
        server.publish();
        server
    }

    fn publish(&mut self) {
        let volume = self.engine.as_ref().unwrap().volume("vol1").unwrap();
        let rules = vec![Rule::open(Squash::None)];
        self.volume = Some(Arc::clone(&volume));
        self.vfs.publish(vec![Export::new("/vol1", volume, rules)]);
    }

    /// Stops and starts again: nothing of the volume is in memory then.
    fn cold_start(&mut self, options: EngineOptions) {
        self.vfs.publish(Vec::new());
        self.volume = None;
        self.engine.take().unwrap().shutdown().unwrap();
        let (agg, replay) =
            Aggregate::open_on(self.device.clone(), self.log.clone(), env()).unwrap();
        self.engine = Some(Engine::open(agg, replay, &SeededRng::new(44), options).unwrap());
        self.publish();
    }

    fn root(&self) -> FileId {
        let volume = self.volume.as_ref().unwrap();
        FileId {
            volume: volume.id(),
            ino: volume.root(),
            namespace: Namespace::Live,
        }
    }

    /// One run of an operation on `file` as `who`, checked by `access`.
    fn run<A: AccessModel, C: Cost, T>(
        &self,
        cx: &mut OpContext,
        (who, access): (&Identity, A),
        file: FileId,
        cost: C,
        operation: impl FnOnce(&mut OpContext, Operand<'_, A>, ChargeProof<C>) -> OpResult<T>,
    ) -> OpResult<T> {
        let table = self.vfs.exports();
        let admitted = Admissions::default();
        let origin = IpAddr::from([10, 0, 0, 1]);
        let session = Session {
            origin,
            protocol: Protocol::Nfsv3,
            flavour: Flavour::Sys,
            transport: Transport::Clear,
            identity: Some(who),
            access,
            client: origin.into(),
            admitted: &admitted,
        };
        let handle = self.vfs.handle_of(file);
        let file: AdmittedFile<'_, A> = self.vfs.admit(&table, &handle, &session)?;
        let (file, charged) = file.charge(&self.vfs, cx, cost)?;
        operation(cx, file, charged)
    }

    /// Waits for what a run was suspended for.
    fn resume(&self, cx: &mut OpContext, suspend: Suspend) {
        let resumed = block_on(cx.resume(&self.vfs, suspend));
        resumed.unwrap();
    }

    fn create(&self, name: &[u8], owner: u32, mode: u32) -> FileId {
        let attrs = SetAttr {
            mode: Some(mode),
            uid: Some(owner),
            gid: Some(owner),
            ..SetAttr::default()
        };
        let how = CreateHow::Guarded;
        let done = self.run(&mut cx(), (&root(), EACH), self.root(), MetadataWrite, {
            |cx, dir, charged| dir.create(cx, charged, name, how, &attrs)
        });
        FileId {
            ino: finished(done).value.ino,
            ..self.root()
        }
    }

    /// More files than one node of the tree holds.
    fn crowd(&self) {
        for n in 0..300 {
            self.create(format!("other{n}").as_bytes(), 0, 0o600);
        }
    }

    fn write(&self, file: FileId, data: &[u8]) {
        self.write_at(file, 0, data, Stability::FileSync);
    }

    fn write_at(&self, file: FileId, at: u64, data: &[u8], how: Stability) {
        let done = self.run(&mut cx(), (&root(), EACH), file, DataWrite(data.len()), {
            |cx, file, charged| file.write(cx, charged, at, data, how)
        });
        finished(done);
    }

    /// Returns the bytes that are there, wherever they are.
    fn read_at(&self, file: FileId, at: usize, len: usize) -> Vec<u8> {
        let read = |cx: &mut OpContext| {
            self.run(cx, (&root(), EACH), file, DataRead(len), {
                |cx, file, charged| file.read(cx, charged, at as u64)
            })
        };
        to_the_end(self, &mut cx(), read, || ()).0.unwrap().to_vec()
    }
}

/// May read and write, whatever the mode.
const EACH: GrantedAccess = GrantedAccess {
    read: true,
    write: true,
};

fn root() -> Identity {
    Identity::default()
}

fn user(uid: u32) -> Identity {
    Identity::unix(uid, uid, Groups::default())
}

fn cx() -> OpContext {
    OpContext::new(current_time(), 1, None)
}

fn finished<T>(outcome: OpResult<T>) -> T {
    match outcome {
        Ok(value) => value,
        Err(Stop::Failed(error)) => panic!("{error:?}"),
        Err(Stop::Suspended(_)) => panic!("it waits"),
    }
}

fn failed<T>(outcome: OpResult<T>) -> Error {
    match outcome {
        Err(Stop::Failed(error)) => error,
        Err(Stop::Suspended(_)) => panic!("it waits"),
        Ok(_) => panic!("it was done"),
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = std::pin::pin!(future);
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

/// A clone needs the source to be readable and the target to be writable, which the session says of
/// each; it is charged as metadata, once, with the target.
#[test]
fn a_range_is_cloned_by_who_may_read_and_write() {
    let server = Server::new();
    let (source, target) = (
        server.create(b"source", 10, 0o000),
        server.create(b"target", 10, 0o4755),
    );
    server.write(source, &[7; 8192]);
    let clone = |reads: bool, writes: bool, len: u64| {
        let (who, table) = (user(11), server.vfs.exports());
        let admissions = Admissions::default();
        let origin = IpAddr::from([10, 0, 0, 1]);
        let admit = |file, access| {
            let session = Session {
                origin,
                protocol: Protocol::Nfsv3,
                flavour: Flavour::Sys,
                transport: Transport::Clear,
                identity: Some(&who),
                access,
                client: origin.into(),
                admitted: &admissions,
            };
            server
                .vfs
                .admit(&table, &server.vfs.handle_of(file), &session)
        };
        let (read, write) = (reads, writes);
        let giver = admit(source, GrantedAccess { read, write: false })?;
        let taker = admit(target, GrantedAccess { read: false, write })?;
        let mut cx = cx();
        let (taker, charged) = taker.charge(&server.vfs, &mut cx, MetadataWrite)?;
        let giver = taker.beside(&mut cx, giver)?;
        taker.clone_range(&mut cx, charged, 4096, (&giver, 0), len)
    };
    assert_eq!(failed(clone(false, true, 0)), Error::Access);
    assert_eq!(failed(clone(true, false, 0)), Error::Access);
    assert_eq!(failed(clone(true, true, 4095)), Error::Invalid);
    assert_eq!(server.attr(target).size, 0);
    assert_eq!(server.attr(target).mode & 0o7777, 0o4755);
    let change = finished(clone(true, true, 0)).value;
    assert_eq!((change.before.size, change.after.size), (0, 12_288));
    assert_eq!(server.attr(target).mode & 0o7777, 0o755, "as by a write");
    let got = server.run(&mut cx(), (&root(), EACH), target, DataRead(20_000), {
        |cx, file, charged| file.read(cx, charged, 0)
    });
    assert_eq!(
        finished(got).to_vec(),
        [[0; 4096], [7; 4096], [7; 4096]].concat()
    );
}

/// Concurrent appends do not overwrite each other, whether clients give the offset or leave it to
/// the server.
#[test]
fn appends_at_once_lie_behind_each_other() {
    const THREADS: u64 = 4;
    const EACH_OF: u64 = 2000;
    let server = &Server::new();
    let file = server.create(b"file", 10, 0o644);
    let append = |from: Option<u64>, record: u64| {
        server.run(&mut cx(), (&root(), EACH), file, DataWrite(8), {
            |cx, file, charged| match from {
                None => file.append(cx, charged, &record.to_le_bytes()),
                Some(from) => {
                    let how = Stability::Unstable;
                    file.append_at(cx, charged, from, &record.to_le_bytes(), how)
                }
            }
        })
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for n in 0..EACH_OF {
                    let record = thread * EACH_OF + n;
                    if n % 2 == 0 {
                        finished(append(None, record));
                        continue;
                    }
                    // Another one may have been there first.
                    while let Err(Stop::Failed(error)) =
                        append(Some(server.attr(file).size), record)
                    {
                        assert_eq!(error, Error::Access);
                    }
                }
            });
        }
    });
    let bytes = server.read_at(file, 0, (THREADS * EACH_OF * 8) as usize + 8);
    let mut records: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|record| u64::from_le_bytes(record.try_into().unwrap()))
        .collect();
    records.sort_unstable();
    assert!(
        records.into_iter().eq(0..THREADS * EACH_OF),
        "{} bytes",
        bytes.len()
    );
    let size = server.attr(file).size;
    assert_eq!(failed(append(Some(size - 1), 0)), Error::Access);
    finished(append(Some(size + 8), 1));
    assert_eq!(server.attr(file).size, size + 16);
}

/// Checks that access granted when a file was opened counts for its content, whatever the mode says
/// by now; and nothing more.
#[test]
fn contents_are_checked_as_the_session_says() {
    let server = Server::new();
    let file = server.create(b"file", 10, 0o000);
    server.write(file, b"content");
    let granted = |read, write| (user(11), GrantedAccess { read, write });
    let read = |(who, access): (Identity, GrantedAccess)| {
        server.run(&mut cx(), (&who, access), file, DataRead(100), {
            |cx, file, charged| file.read(cx, charged, 0)
        })
    };
    let write = |(who, access): (Identity, GrantedAccess)| {
        server.run(&mut cx(), (&who, access), file, DataWrite(1), {
            |cx, file, charged| file.write(cx, charged, 0, b"C", Stability::Unstable)
        })
    };
    assert_eq!(failed(write(granted(true, false))), Error::Access);
    assert_eq!(failed(read(granted(false, true))), Error::Access);
    finished(write(granted(false, true)));
    assert_eq!(finished(read(granted(true, false))).to_vec(), b"Content");
}

#[test]
fn no_more_is_read_than_was_charged() {
    let server = Server::new();
    let file = server.create(b"file", 10, 0o644);
    server.write(file, &[7; 9000]);
    let mut cx = cx();
    let read = server.run(&mut cx, (&root(), EACH), file, DataRead(5000), {
        |cx, file, charged| file.read(cx, charged, 1000)
    });
    assert_eq!(finished(read).to_vec(), [7; 5000]);
    assert_eq!(cx.moved(), 5000);
}

/// A file's name service, device and limits are waited for by the caller that runs the operation,
/// which gets the one to wait for.
#[test]
fn what_is_not_in_memory_is_waited_for_and_changes_nothing() {
    let mut server = Server::new();
    let file = server.create(b"file", 10, 0o644);
    server.crowd();
    server.cold_start(EngineOptions::default());
    let mut cx = cx();
    let mut waits = 0;
    let attr = loop {
        let attr = server.run(&mut cx, (&user(11), EACH), file, MetadataRead, {
            |cx, file, _charged| file.getattr(cx)
        });
        match attr {
            Err(Stop::Suspended(suspend)) => {
                assert!(matches!(suspend, Suspend::Device(_)));
                waits += 1;
                server.resume(&mut cx, suspend);
            }
            other => break finished(other),
        }
    };
    assert!(waits > 0);
    assert_eq!((attr.uid, attr.mode), (10, 0o644));
}

/// Runs an operation to its end; `untouched` is called whenever it waits.
fn to_the_end<T>(
    server: &Server,
    cx: &mut OpContext,
    mut run: impl FnMut(&mut OpContext) -> OpResult<T>,
    mut untouched: impl FnMut(),
) -> (Result<T, Error>, usize) {
    let mut waits = 0;
    loop {
        match run(cx) {
            Ok(value) => return (Ok(value), waits),
            Err(Stop::Failed(error)) => return (Err(error), waits),
            Err(Stop::Suspended(suspend)) => {
                untouched();
                waits += 1;
                server.resume(cx, suspend);
            }
        }
    }
}

impl Server {
    fn attr(&self, file: FileId) -> Attr {
        let mut cx = cx();
        let run = |cx: &mut OpContext| {
            self.run(cx, (&root(), EACH), file, MetadataRead, {
                |cx, file, _charged| file.getattr(cx)
            })
        };
        to_the_end(self, &mut cx, run, || ()).0.unwrap()
    }
}

/// A WRITE that has to read what is around it first leaves the mode and the change time as they are
/// until then: the bits go with the data, in one log record, or stay.
#[test]
fn set_user_id_goes_with_the_data_and_not_before() {
    let mut server = Server::new();
    let file = server.create(b"file", 10, 0o6755);
    // By root, whose writes clear no bits.
    server.write(file, &[1; 9000]);
    server.crowd();
    server.cold_start(EngineOptions::default());
    let before = server.attr(file);
    assert_eq!(before.mode, 0o6755);
    let owner = user(10);
    let write = |cx: &mut OpContext| {
        server.run(cx, (&owner, EACH), file, DataWrite(5), {
            |cx, file, charged| file.write(cx, charged, 4000, b"lines", Stability::FileSync)
        })
    };
    let untouched = || assert_eq!(server.attr(file), before);
    let (done, waits) = to_the_end(&server, &mut cx(), write, untouched);
    assert!(waits > 0, "the block is on the device");
    let done = done.unwrap().value;
    assert_eq!(done.change.before, before);
    assert_eq!(done.change.after.mode, 0o755);
    assert_eq!(done.change.after.change, before.change + 1);
}

/// A WRITE whose first block, or last one, has to be read first, and one whose data goes to its
/// place before it is recorded: what others see meanwhile is the file as it was, and nothing of it
/// with the new data.
#[test]
fn a_write_that_waits_has_written_nothing() {
    const SIZE: usize = 900_000;
    let old: Vec<u8> = (0..SIZE).map(|i| (i / 13) as u8).collect();
    let sent = EngineOptions {
        behind: 0,
        ..EngineOptions::default()
    };
    let (kept, whole) = (EngineOptions::default(), 4096..SIZE - 3000);
    for (options, range, warm, how) in [
        (kept, 5000..SIZE - 3000, 5000, Stability::Unstable),
        (kept, 5000..SIZE - 3000, SIZE - 3500, Stability::Unstable),
        (kept, 5000..13_000, 5000, Stability::FileSync),
        (kept, 5000..13_000, 12_500, Stability::FileSync),
        (sent, 5000..SIZE - 3000, 5000, Stability::FileSync),
        (sent, whole, SIZE - 3500, Stability::FileSync),
    ] {
        let mut server = Server::new();
        let file = server.create(b"file", 10, 0o6755);
        server.write_at(file, 0, &old, Stability::Unstable);
        server.crowd();
        server.cold_start(options);
        // One of the blocks at the ends is in memory.
        assert_eq!(server.read_at(file, warm, 10), old[warm..warm + 10]);
        let before = server.attr(file);
        let new = vec![0xee; range.len()];
        let owner = user(10);
        let write = |cx: &mut OpContext| {
            server.run(cx, (&owner, EACH), file, DataWrite(new.len()), {
                |cx, file, charged| file.write(cx, charged, range.start as u64, &new, how)
            })
        };
        let untouched = || {
            assert_eq!(server.attr(file), before);
            assert_eq!(server.read_at(file, warm, 10), old[warm..warm + 10]);
        };
        let (done, waits) = to_the_end(&server, &mut cx(), write, untouched);
        assert!(waits > 0, "it has what it needs");
        assert_eq!(done.unwrap().value.len, new.len());
        let mut expected = old.clone();
        expected[range].fill(0xee);
        assert!(server.read_at(file, 0, SIZE) == expected);
    }
}

/// A stable WRITE that no record of a small log holds is done as far as one does.
#[test]
fn a_stable_write_ends_where_a_record_does() {
    let server = Server::with_log(4 << 8);
    let file = server.create(b"file", 10, 0o644);
    let data: Vec<u8> = (0..1 << 20).map(|i| (i / 13) as u8).collect();
    let (mut at, mut parts) = (0, 0);
    while at < data.len() {
        let rest = &data[at..];
        let mut cx = cx();
        let write = |cx: &mut OpContext| {
            server.run(cx, (&root(), EACH), file, DataWrite(rest.len()), {
                |cx, file, charged| file.write(cx, charged, at as u64, rest, Stability::FileSync)
            })
        };
        let done = to_the_end(&server, &mut cx, write, || ()).0.unwrap();
        assert!(done.value.len > 0 && done.value.granted == Stability::FileSync);
        assert_eq!(cx.moved(), done.value.len);
        assert!(done.lsn.is_some());
        (at, parts) = (at + done.value.len, parts + 1);
        assert_eq!(server.attr(file).size, at as u64);
    }
    assert!(parts > 1);
    assert!(server.read_at(file, 0, data.len()) == data);
}

/// Checks that it does not depend on memory whether a name exists.
#[test]
fn making_what_exists_waits_to_know_that_it_does() {
    let mut server = Server::new();
    server.crowd();
    let attrs = SetAttr {
        mode: Some(0o755),
        ..SetAttr::default()
    };
    // Others may search the root, and not write it.
    let closed = server.run(&mut cx(), (&root(), EACH), server.root(), MetadataWrite, {
        |cx, dir, charged| dir.setattr(cx, charged, &attrs, None)
    });
    finished(closed);
    server.cold_start(EngineOptions::default());
    let stranger = user(11);
    let mkdir = |cx: &mut OpContext, name: &[u8]| {
        server.run(cx, (&stranger, EACH), server.root(), MetadataWrite, {
            |cx, dir, charged| dir.mkdir(cx, charged, name, &attrs)
        })
    };
    let (made, waits) = to_the_end(&server, &mut cx(), |cx| mkdir(cx, b"other7"), || ());
    assert!(waits > 0);
    assert_eq!(made.unwrap_err(), Error::Exists);
    let (made, _) = to_the_end(&server, &mut cx(), |cx| mkdir(cx, b"new"), || ());
    assert_eq!(made.unwrap_err(), Error::Access);
}

/// A READ that is refused reads nothing from the device and is no access.
#[test]
fn a_refused_read_leaves_no_trace() {
    let mut server = Server::new();
    let file = server.create(b"file", 10, 0o600);
    server.write(file, &[1; 9000]);
    server.crowd();
    server.cold_start(EngineOptions::default());
    let before = server.attr(file);
    let none = GrantedAccess {
        read: false,
        write: false,
    };
    let later = Time {
        secs: before.mtime.secs + 100_000,
        nanos: 0,
    };
    let mut cx = OpContext::new(later, 1, None);
    let read = server.run(&mut cx, (&user(11), none), file, DataRead(100), {
        |cx, file, charged| file.read(cx, charged, 0)
    });
    assert_eq!(failed(read), Error::Access, "without waiting for the data");
    // Now the data are in memory.
    let data = |cx: &mut OpContext| {
        server.run(cx, (&root(), EACH), file, DataRead(9000), {
            |cx, file, charged| file.read(cx, charged, 0)
        })
    };
    let early = OpContext::new(before.atime, 1, None);
    to_the_end(&server, &mut { early }, data, || ()).0.unwrap();
    let before = server.attr(file);
    let read = server.run(&mut cx, (&user(11), none), file, DataRead(100), {
        |cx, file, charged| file.read(cx, charged, 0)
    });
    assert_eq!(failed(read), Error::Access);
    assert_eq!(server.attr(file).atime, before.atime);
}

/// Checks who sets permissions in a volume of NTFS style, and with which permissions things are
/// made.
#[test]
fn permissions_of_windows_are_set_by_windows_alone() {
    use weir_vfs::acl::{Acl, Principal};
    let server = Server::new();
    let volume = Arc::clone(server.volume.as_ref().unwrap());
    let rules = vec![Rule::open(Squash::None)];
    let mut export = Export::new("/vol1", volume, rules);
    export.style = weir_vfs::claims::Style::Ntfs;
    server.vfs.publish(vec![export]);
    let (alice, bob) = (user(10), user(11));
    let list = |file: FileId| {
        let list = server.run(
            &mut cx(),
            (&alice, EACH),
            file,
            MetadataRead,
            |cx, file, _| file.acl(cx),
        );
        finished(list)
    };
    let made = |who: &Identity, dir: FileId, name: &[u8], mode: u32| {
        let attrs = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        let how = CreateHow::Guarded;
        let done = server.run(
            &mut cx(),
            (who, EACH),
            dir,
            MetadataWrite,
            |cx, dir, charged| dir.create(cx, charged, name, how, &attrs),
        );
        done.map(|done| FileId {
            ino: done.value.ino,
            ..server.root()
        })
    };
    // The root of a new volume is everyone's, and passes that on, whatever mode NFS says.
    let everyone = Acl::full(Principal::Everyone, true);
    assert_eq!(list(server.root()), everyone);
    let file = finished(made(&alice, server.root(), b"file", 0o600));
    assert_eq!(list(file), Acl::full(Principal::Everyone, false));
    let attr = |file: FileId| {
        finished(server.run(
            &mut cx(),
            (&bob, EACH),
            file,
            MetadataRead,
            |cx, file, _| file.getattr(cx),
        ))
    };
    assert_eq!(attr(file).mode, 0o777);
    // A change over NFS is refused, even from the owner and root; what is there already may be
    // said.
    let change = |who: &Identity, set: SetAttr| {
        let done = server.run(
            &mut cx(),
            (who, EACH),
            file,
            MetadataWrite,
            |cx, file, charged| file.setattr(cx, charged, &set, None),
        );
        done.map(drop)
    };
    for (set, may) in [
        (
            SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
            false,
        ),
        (
            SetAttr {
                uid: Some(11),
                ..SetAttr::default()
            },
            false,
        ),
        (
            SetAttr {
                gid: Some(11),
                ..SetAttr::default()
            },
            false,
        ),
        (
            SetAttr {
                mode: Some(0o777),
                uid: Some(10),
                ..SetAttr::default()
            },
            true,
        ),
        // As Linux does behind an exclusive CREATE.
        (
            SetAttr {
                mode: Some(0o600),
                atime: SetTime::Server,
                mtime: SetTime::Server,
                ..SetAttr::default()
            },
            true,
        ),
        (
            SetAttr {
                size: Some(5),
                ..SetAttr::default()
            },
            true,
        ),
    ] {
        for who in [&alice, &user(0)] {
            let done = change(who, set);
            match may {
                true => finished(done),
                false => assert!(matches!(done, Err(Stop::Failed(Error::Perm)))),
            }
        }
    }
    assert_eq!(attr(file).mode, 0o777);
    let set_list = |access, list: &Acl| {
        let done = server.run(
            &mut cx(),
            (&alice, access),
            server.root(),
            MetadataWrite,
            |cx, file, charged| file.set_acl(cx, charged, list),
        );
        done.map(drop)
    };
    assert!(matches!(
        set_list(EACH, &everyone),
        Err(Stop::Failed(Error::Perm))
    ));
}

/// The rules of a tree are asked besides the volume's, decide what may be done in the tree and as
/// whom, and count for nothing outside.
#[test]
fn a_tree_has_rules_of_its_own() {
    let server = Server::new();
    let outside = server.create(b"outside", 0, 0o600);
    let engine = server.engine.as_ref().unwrap();
    let volume = engine.volume("vol1").unwrap();
    let tree = |name: &[u8]| {
        let mut cx = weir_volume::EngineContext::new(current_time());
        let attrs = SetAttr {
            mode: Some(0o777),
            ..SetAttr::default()
        };
        let made = volume.drive_blocking(&mut cx, |cx| volume.create_tree(cx, name, &attrs));
        let made = made.unwrap().value.attr;
        let ino = volume.tree_named(current_time(), name).unwrap().ino;
        (
            FileId {
                ino,
                ..server.root()
            },
            made.tree,
        )
    };
    let rule = |bits: u8, writes: bool| Rule {
        clients: Clients::parse(&format!("10.0.0.0/{bits}")).unwrap(),
        writers: match writes {
            true => Flavours::SYS,
            false => Flavours::NONE,
        },
        anon_uid: 77,
        ..Rule::open(Squash::All)
    };
    let other = Rule {
        clients: Clients::parse("10.9.0.0/16").unwrap(),
        ..rule(8, true)
    };
    let mut trees = Vec::new();
    let mut dirs = Vec::new();
    for (name, rules) in [
        (b"none" as &[u8], None),
        (b"mine", Some(vec![other.clone(), rule(8, true)])),
        (b"read", Some(vec![rule(8, false)])),
        (b"other", Some(vec![other])),
        (b"nobody", Some(Vec::new())),
    ] {
        let (dir, number) = tree(name);
        dirs.push(dir);
        trees.extend(rules.map(|rules| (number, rules)));
    }
    trees.sort_by_key(|(number, _)| *number);
    let mut export = Export::new("/vol1", Arc::clone(&volume), vec![Rule::open(Squash::None)]);
    export.trees = trees;
    drop(volume);
    server.vfs.publish(vec![export]);
    let create = |dir: FileId| {
        let how = CreateHow::Guarded;
        let attrs = SetAttr::default();
        server.run(&mut cx(), (&root(), EACH), dir, MetadataWrite, {
            |cx, dir, charged| dir.create(cx, charged, b"new", how, &attrs)
        })
    };
    let [none, mine, read, other, nobody] = dirs[..] else {
        panic!("five trees");
    };
    assert_eq!(finished(create(none)).value.attr.uid, 0);
    // By the rule of the tree everybody is anonymous.
    let made = finished(create(mine)).value;
    assert_eq!(made.attr.uid, 77);
    assert_eq!(failed(create(read)), Error::ReadOnly);
    for shut in [other, nobody] {
        assert_eq!(failed(create(shut)), Error::Denied);
        let look = server.run(
            &mut cx(),
            (&root(), EACH),
            shut,
            MetadataRead,
            |cx, dir, _| dir.getattr(cx),
        );
        assert_eq!(failed(look), Error::Denied);
    }
    server.write(outside, &[1; 4096]);

    // Also as the second file of an operation; the first is in no tree.
    let source = FileId {
        ino: made.ino,
        ..mine
    };
    let (admitted, who) = (Admissions::default(), root());
    let table = server.vfs.exports();
    let origin = IpAddr::from([11, 0, 0, 1]);
    let session = Session {
        origin,
        protocol: Protocol::Nfsv3,
        flavour: Flavour::Sys,
        transport: Transport::Clear,
        identity: Some(&who),
        access: EACH,
        client: origin.into(),
        admitted: &admitted,
    };
    let admit = |file| {
        let handle = server.vfs.handle_of(file);
        server.vfs.admit(&table, &handle, &session)
    };
    let mut cx = cx();
    let target = finished(admit(outside));
    let (target, _) = finished(target.charge(&server.vfs, &mut cx, MetadataWrite));
    let beside = target.beside(&mut cx, finished(admit(source)));
    assert_eq!(failed(beside.map(drop)), Error::Denied);
}
