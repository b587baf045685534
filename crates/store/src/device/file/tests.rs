use weir_base::{Rng, SeededRng};

use super::*;
use crate::frame::{Class, FramePool};

fn modes() -> [(&'static str, FileOptions); 4] {
    let data = FileOptions::data(4096).create(1024);
    [
        ("io_uring", data),
        (
            "threads",
            FileOptions {
                uring: false,
                ..data
            },
        ),
        (
            "buffered",
            FileOptions {
                direct: false,
                ..data
            },
        ),
        (
            "durable",
            FileOptions {
                max_len: 4096,
                ..FileOptions::log().create(1024)
            },
        ),
    ]
}

fn page(pool: &FramePool, n: u64, version: u64) -> Frame {
    let mut f = pool.alloc(Class::Cp).unwrap();
    f[..8].copy_from_slice(&n.to_le_bytes());
    f[4088..].copy_from_slice(&version.to_le_bytes());
    f.freeze()
}

fn frames(pool: &FramePool, count: u64) -> Vec<FrameMut> {
    (0..count).map(|_| pool.alloc(Class::Cp).unwrap()).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn reads_what_was_written_with_many_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(8192).unwrap();
    for (name, options) in modes() {
        let device = FileDevice::open(&folder.path().join(name), options).unwrap();
        println!("{name}: {}", device.mode());
        device.flush().wait().unwrap();
        let clock = Arc::new(weir_base::SystemClock::new());
        device.meter().unwrap().begin(clock);
        let (mut written, rounds) = (0, 1..6);
        let rng = SeededRng::new(1);
        let mut versions = vec![0u64; 1024];
        for round in rounds.clone() {
            let mut writes = vec![];
            let mut at = 0;
            while at < 1024 {
                let count = (1 + rng.below(20)).min(1024 - at);
                if rng.below(3) > 0 {
                    let pages = (at..at + count).map(|n| page(&pool, n, round)).collect();
                    writes.push(device.write(BlockAddr(at), pages));
                    versions[at as usize..(at + count) as usize].fill(round);
                }
                at += count;
            }
            written += writes.len() as u64;
            for w in writes {
                w.wait().unwrap();
            }
            device.flush().wait().unwrap();
            // More reads than the ring has entries.
            let reads: Vec<_> = (0..1024)
                .map(|n| device.read(BlockAddr(n), frames(&pool, 1)))
                .collect();
            for (n, r) in (0..).zip(reads) {
                let got = r.wait().unwrap();
                let version = versions[n as usize];
                assert_eq!(number(&got[0][4088..]), version, "{name} block {n}");
                assert_eq!(number(&got[0][..8]), if version > 0 { n } else { 0 });
            }
        }
        let counted = device.meter().unwrap().latencies().map(|(_, l)| l.count);
        let rounds = rounds.count() as u64;
        assert_eq!(counted, [1024 * rounds, written, rounds], "{name}");
        // One transfer longer than a vectored call can carry.
        let pages: Vec<_> = (0..1024).map(|n| page(&pool, n, 9)).rev().collect();
        device.write(BlockAddr(0), pages).wait().unwrap();
        let mut into = frames(&pool, 1024);
        into.reverse();
        let got = device.read(BlockAddr(0), into).wait().unwrap();
        assert!((0..).zip(&got).all(|(n, f)| number(&f[..8]) == 1023 - n));
        drop(got);
        assert_eq!(pool.free(), 8192, "{name} keeps no frames");
    }
}

/// More operations are in flight than there are staging buffers, of every length. Each arrives
/// undamaged, and the buffers' frames return to the pool with the device.
#[test]
fn scattered_operations_go_through_buffers() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in modes() {
        let pool = FramePool::new(1 << 16).unwrap();
        let staging = |_| Staging::new(&pool, 4);
        let device = FileDevice::open_with(&folder.path().join(name), options, staging).unwrap();
        let lent = if options.direct { 4 * 128 } else { 0 };
        assert_eq!(pool.free(), (1 << 16) - lent);
        let scattered = |count| {
            let mut frames = frames(&pool, count);
            frames.sort_by_key(|f| std::cmp::Reverse(f.as_ptr() as usize));
            frames
        };
        let rng = SeededRng::new(2);
        for version in 0..20 {
            let mut writes = vec![];
            let mut at = 0;
            while at < 1024 {
                let count = (1 + rng.below(300)).min(1024 - at);
                let mut pages = scattered(count);
                for (n, page) in (at..).zip(&mut pages) {
                    page[..8].copy_from_slice(&n.to_le_bytes());
                    page[4088..].copy_from_slice(&(n + version).to_le_bytes());
                }
                let pages = pages.into_iter().map(FrameMut::freeze).collect();
                writes.push(device.write(BlockAddr(at), pages));
                at += count;
            }
            writes.into_iter().for_each(|w| w.wait().unwrap());
            let reads: Vec<_> = (0..32)
                .map(|_| {
                    let count = 1 + rng.below(300);
                    let first = rng.below(1024 - count);
                    (first, device.read(BlockAddr(first), scattered(count)))
                })
                .collect();
            for (first, read) in reads {
                for (n, frame) in (first..).zip(read.wait().unwrap()) {
                    let got = (number(&frame[..8]), number(&frame[4088..]));
                    assert_eq!(got, (n, n + version), "{name}");
                }
            }
        }
        drop(device);
        assert_eq!(pool.free(), 1 << 16, "{name}");
    }
}

#[test]
fn has_bounds_and_grows() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(64).unwrap();
    for (name, options) in modes() {
        let path = folder.path().join(name);
        let device = FileDevice::open(&path, options).unwrap();
        assert_eq!(device.length(), 1024);
        for addr in [1024, u64::MAX - 1, u64::MAX / 4096] {
            let e = device
                .write(BlockAddr(addr), vec![Frame::zero()])
                .wait()
                .unwrap_err();
            assert_eq!(e.source.kind(), io::ErrorKind::InvalidInput);
            device
                .read(BlockAddr(addr), frames(&pool, 1))
                .wait()
                .unwrap_err();
            device.discard(BlockAddr(addr), 1).wait().unwrap_err();
        }
        assert_eq!(device.grow(1025).unwrap(), 1025);
        assert_eq!(device.grow(3).unwrap(), 1025);
        assert_eq!(
            device.grow(4097).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        device
            .write(BlockAddr(1024), vec![page(&pool, 7, 7)])
            .wait()
            .unwrap();
        device.discard(BlockAddr(0), 3).wait().unwrap();
        device.write(BlockAddr(1), vec![]).wait().unwrap();
        drop(device);
        let again = FileDevice::open(&path, options.read_only()).unwrap();
        assert_eq!(again.length(), 1025);
        let got = again
            .read(BlockAddr(1024), frames(&pool, 1))
            .wait()
            .unwrap();
        assert_eq!(number(&got[0][..8]), 7);
        again
            .write(BlockAddr(0), vec![Frame::zero()])
            .wait()
            .unwrap_err();
    }
}

#[test]
fn a_file_cut_short_behind_our_back_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(64).unwrap();
    for (name, options) in modes() {
        let path = folder.path().join(name);
        let device = FileDevice::open(&path, options).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(8 * 4096)
            .unwrap();
        let e = device
            .read(BlockAddr(6), frames(&pool, 4))
            .wait()
            .unwrap_err();
        assert_eq!(e.source.kind(), io::ErrorKind::UnexpectedEof, "{name}");
        device.read(BlockAddr(4), frames(&pool, 4)).wait().unwrap();
    }
}

/// Handles and device are dropped with operations in flight: nothing hangs, and no buffer is freed
/// while the kernel uses it (the pool counts them).
#[test]
fn dropping_finishes_what_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(2048).unwrap();
    for (name, options) in modes() {
        let path = folder.path().join(name);
        let device = FileDevice::open(&path, options).unwrap();
        let mut last = vec![];
        for n in 0..600 {
            let io = device.write(BlockAddr(n), vec![page(&pool, n, 1)]);
            if n % 7 == 0 {
                last.push(io);
            }
            drop(device.read(BlockAddr(n), frames(&pool, 1)));
        }
        drop(device);
        for io in last {
            io.wait().unwrap();
        }
        assert_eq!(pool.free(), 2048, "{name}");
        let bytes = std::fs::read(&path).unwrap();
        for n in 0..600usize {
            assert_eq!(number(&bytes[n * 4096..n * 4096 + 8]), n as u64);
        }
    }
}

#[test]
fn many_threads_submit() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(1024).unwrap();
    for (name, options) in modes() {
        let device = FileDevice::open(&folder.path().join(name), options).unwrap();
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (device, pool) = (&device, &pool);
                s.spawn(move || {
                    for i in 0..100 {
                        let n = t * 256 + (i * 37) % 256;
                        device
                            .write(BlockAddr(n), vec![page(pool, n, i)])
                            .wait()
                            .unwrap();
                        let got = device.read(BlockAddr(n), frames(pool, 1)).wait().unwrap();
                        assert_eq!(number(&got[0][4088..]), i, "{name}");
                    }
                });
            }
        });
    }
}

#[test]
fn refuses_what_is_no_device() {
    let folder = tempfile::tempdir().unwrap();
    let options = FileOptions::data(10);
    let missing = FileDevice::open(&folder.path().join("missing"), options);
    assert_eq!(
        missing.map(|_| ()).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    let null = FileDevice::open(
        Path::new("/dev/null"),
        FileOptions {
            direct: false,
            ..options
        },
    );
    assert_eq!(
        null.map(|_| ()).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
fn has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let device = FileDevice::open(&path, FileOptions::data(64).create(64)).unwrap();
    let other = File::open(&path).unwrap();
    let refused = flock(&other, FlockOperation::NonBlockingLockShared);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    // Another opener waits until the first one closes the file.
    std::thread::scope(|s| {
        let second = s.spawn(|| FileDevice::open(&path, FileOptions::data(64)));
        drop(device);
        assert!(second.join().unwrap().is_ok());
    });
    let readers = [0, 1].map(|_| FileDevice::open(&path, FileOptions::data(64).read_only()));
    assert!(readers.iter().all(Result::is_ok));
}

/// Bytes that the file has on its file system.
fn host_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn discarded_space_goes_to_the_host_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(64).unwrap();
    let path = folder.path().join("device");
    let options = FileOptions::data(8192).create(8192);
    let device = FileDevice::open(&path, options).unwrap();
    assert_eq!(
        device.discards(),
        Discards::Deprovision,
        "the tests need a file system that can"
    );
    let holes = |device: &FileDevice| {
        let mut holes = Vec::new();
        let mut note = |addr: BlockAddr, count| holes.push((addr.0, count));
        device.find_discarded(&mut note).unwrap();
        holes
    };
    for at in [1023, 1024, 3071, 3072] {
        let written = device.write(BlockAddr(at), vec![page(&pool, at, 1)]);
        written.wait().unwrap();
    }
    assert_eq!(holes(&device), []);
    let before = host_bytes(&path);
    device.discard(BlockAddr(1024), 2048).wait().unwrap();
    assert!(before - host_bytes(&path) >= 2048 * 4096);
    assert_eq!(holes(&device), [(1024, 2048)]);
    drop(device);

    let reader = FileDevice::open(&path, FileOptions::data(8192).read_only()).unwrap();
    assert_eq!(reader.discards(), Discards::Never);
    assert_eq!(holes(&reader), []);
    drop(reader);

    let device = FileDevice::open(&path, FileOptions::data(8192)).unwrap();
    assert_eq!(
        (device.length(), holes(&device)),
        (8192, vec![(1024, 2048)])
    );
    device.provision(BlockAddr(1000), 1024).unwrap();
    assert_eq!(holes(&device), [(2024, 1048)]);
    device.provision(BlockAddr(2024), 1048).unwrap();
    assert_eq!(holes(&device), []);
    for (at, want) in [(1023, 1023), (1024, 0), (3071, 0), (3072, 3072)] {
        let got = device.read(BlockAddr(at), frames(&pool, 1)).wait().unwrap();
        assert_eq!(number(&got[0][..8]), want);
    }
    device.provision(BlockAddr(8000), 193).unwrap_err();
    let log = FileDevice::open(&folder.path().join("log"), FileOptions::log().create(64)).unwrap();
    assert_eq!(log.discards(), Discards::Never);
}
