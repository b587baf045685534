//! Disks that are full or damaged, against the real binary.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::client::Client;
use common::{Server, weir};
use weir_bench::nfs3::Stable;
use weir_store::Superblock;
use weir_store::layout::{self, Slot};

const NFS3ERR_IO: u32 = 5;
const NFS3ERR_NOSPC: u32 = 28;
const BLOCK: usize = 4096;

/// Contents that repeat nowhere: a block of it can be found on the device.
fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

fn device(data: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(data.join("device"))
        .unwrap()
}

/// Byte offset of the block of the device that holds exactly `block`.
fn find(device: &File, block: &[u8]) -> u64 {
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = device.read_at(&mut chunk, at).unwrap();
        assert!(n > 0, "the block is not on the device");
        if let Some(i) = chunk[..n].chunks(BLOCK).position(|b| b == block) {
            return at + (i * BLOCK) as u64;
        }
        at += n as u64;
    }
}

fn flip(device: &File, at: u64) {
    let mut byte = [0];
    device.read_exact_at(&mut byte, at).unwrap();
    device.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_damaged_block_is_an_error_for_what_it_covers_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let (good, bad) = (contents(1, 5 * BLOCK), contents(2, 5 * BLOCK));
    let server = Server::start(data.path(), &[]);
    let mut client = Client::mount(&server);
    client.file("good", &good);
    client.file("bad", &bad);
    server.stop();

    let place = device(data.path());
    let at = find(&place, &bad[2 * BLOCK..3 * BLOCK]);
    flip(&place, at + 1234);

    let server = Server::start(data.path(), &[]);
    let mut client = Client::mount(&server);
    let file = client.lookup("bad");
    let damaged = client.read(&file, 2 * BLOCK as u64, BLOCK as u32);
    assert_eq!(damaged.err(), Some(NFS3ERR_IO));
    // A larger read may end before the damage, and never has anything of it.
    match client.read(&file, 0, 5 * BLOCK as u32) {
        Ok(read) => assert!(read.len() <= 2 * BLOCK && bad.starts_with(&read)),
        Err(status) => assert_eq!(status, NFS3ERR_IO),
    }
    for i in [0, 1, 3, 4] {
        let read = client
            .read(&file, (i * BLOCK) as u64, BLOCK as u32)
            .unwrap();
        assert!(read == bad[i * BLOCK..(i + 1) * BLOCK], "block {i}");
    }
    let file = client.lookup("good");
    assert!(client.read(&file, 0, 5 * BLOCK as u32).unwrap() == good);
    // Its place is in the log, and both ways of checking find it.
    let block = (at / BLOCK as u64).to_string();
    assert!(server.logged(&format!("block={block} "), 1)[0].contains("ERROR"));
    let scrub = weir(&["scrub", data.path().to_str().unwrap(), "--rate", "10G"]);
    assert!(!scrub.status.success(), "{scrub:?}");
    assert!(
        String::from_utf8_lossy(&scrub.stdout).contains(&block),
        "{scrub:?}"
    );
    server.stop();
    let check = weir(&["check", data.path().to_str().unwrap()]);
    assert!(!check.status.success(), "{check:?}");
    assert!(
        String::from_utf8_lossy(&check.stdout).contains(&block),
        "{check:?}"
    );
}

#[test]
fn a_damaged_newest_superblock_falls_back_to_the_other() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    Client::mount(&server).file("first", &contents(3, 2 * BLOCK));
    server.stop();
    let server = Server::start(data.path(), &[]);
    Client::mount(&server).file("second", &contents(4, 2 * BLOCK));
    server.stop();

    let place = device(data.path());
    let generation = |slot: Slot| {
        let mut bytes = vec![0; layout::SUPER_BLOCKS as usize * BLOCK];
        let at = layout::superblock(slot)[0].0 * BLOCK as u64;
        place.read_exact_at(&mut bytes, at).unwrap();
        Superblock::decode(&bytes).unwrap().generation
    };
    let newest = match generation(Slot::A) > generation(Slot::B) {
        true => Slot::A,
        false => Slot::B,
    };
    for copy in layout::superblock(newest) {
        flip(&place, copy.0 * BLOCK as u64 + 40);
    }

    let server = Server::start(data.path(), &[]);
    assert!(!server.logged("superblock", 1).is_empty());
    let mut client = Client::mount(&server);
    let file = client.lookup("first");
    assert!(client.read(&file, 0, 2 * BLOCK as u32).unwrap() == contents(3, 2 * BLOCK));
    // The newest state is the older superblock and the log.
    let file = client.lookup("second");
    assert!(client.read(&file, 0, 2 * BLOCK as u32).unwrap() == contents(4, 2 * BLOCK));
    server.stop();
    let check = weir(&["check", data.path().to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_full_aggregate_says_so_and_deletion_makes_room() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--size", "64M"]);
    let mut client = Client::mount(&server);
    let block = contents(5, 1 << 20);
    let mut files = 0;
    let full = 'full: loop {
        let name = format!("file{files}");
        let file = match client.create(&name) {
            Ok(file) => file,
            Err(status) => break status,
        };
        files += 1;
        for i in 0..4 {
            if let Err(status) = client.write(&file, i << 20, &block, Stable::FileSync) {
                break 'full status;
            }
        }
        assert!(files < 32, "64 MiB take more than 128 MiB");
    };
    assert_eq!(full, NFS3ERR_NOSPC);
    assert!(files > 4, "64 MiB are full after {files} files of 4 MiB");
    // What is there stays readable.
    let first = client.lookup("file0");
    assert!(client.read(&first, 0, 1 << 20).unwrap() == block);
    for i in 0..files {
        client.remove(&format!("file{i}")).unwrap();
    }
    // Freed blocks come back with the next checkpoints.
    let again = loop {
        match client.create("again") {
            Ok(file) => break file,
            Err(NFS3ERR_NOSPC) => std::thread::yield_now(),
            Err(other) => panic!("nfsstat3 {other}"),
        }
    };
    for i in 0..16 {
        loop {
            match client.write(&again, i << 20, &block, Stable::FileSync) {
                Ok(_) => break,
                Err(NFS3ERR_NOSPC) => std::thread::yield_now(),
                Err(other) => panic!("nfsstat3 {other}"),
            }
        }
    }
    server.stop();
    let check = weir(&["check", data.path().to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");
}
