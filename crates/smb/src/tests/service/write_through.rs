//! Writes that are durable when they are answered: how many changes of the volume one of them is.

use super::*;
use weir_base::Lsn;
use weir_store::log::stream::Sequence;

/// FILE_WRITE_THROUGH (MS-SMB2 §2.2.13).
const THROUGH: u32 = 2;
/// FILE_APPEND_DATA alone.
const APPEND: u32 = 4;

/// A WRITE with SMB2_WRITEFLAG_WRITE_THROUGH.
fn flagged(file: &[u8], offset: u64, data: &[u8]) -> (u16, Vec<u8>) {
    let (command, mut body) = write(file, offset, data);
    body.set_u32(44, 1);
    (command, body)
}

/// Sends a WRITE that must not wait for anything but the log; returns the record that it waits for.
fn written(c: &mut Client<'_>, (command, body): (u16, Vec<u8>), charge: u16) -> Lsn {
    let len = u32::from_le_bytes(body[4..8].try_into().unwrap());
    let mut record = c.chain(false, &[(command, body)]);
    record[6..8].copy_from_slice(&charge.to_le_bytes());
    c.message += u64::from(charge) - 1;
    record[48..64].fill(0);
    let signature = c.signer.as_ref().unwrap().sign(&record, std::iter::empty());
    record[48..64].copy_from_slice(&signature);
    let (reply, lsn) = c.world.reply(c.connection, &record);
    let answer = answers(&reply.to_vec()).remove(0);
    assert_eq!(answer.status, Status::SUCCESS);
    assert_eq!(answer.u32(4), len, "all of it is written");
    lsn.expect("it waits for the log")
}

fn opened(c: &mut Client<'_>, name: &str, access: u32, options: u32) -> Vec<u8> {
    c.send_chain(false, &[create(name, access, SHARE, OPEN_IF, options)])
        .remove(0)
        .file()
}

#[test]
fn a_stable_write_is_one_change_of_the_volume() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let plain = opened(&mut c, "plain", ALL, 0);
    let through = opened(&mut c, "through", ALL, THROUGH);
    let append = opened(&mut c, "append", APPEND, THROUGH);
    let log = world.engine.aggregate().log();
    // A partner sees every change, not only those that are logged.
    log.attach_following(Sequence(0), 1 << 20).unwrap();
    let changes = || log.streamed().unwrap().0;
    for (request, what) in [
        (flagged(&plain, 0, &[1; 8192]), "the flag"),
        (write(&through, 0, &[2; 8192]), "the open"),
        (write(&through, 100, &[3; 10]), "a piece of a block"),
        (write(&append, 0, &[4; 100]), "an append"),
    ] {
        let (before, durable) = (changes(), log.durable());
        let lsn = written(&mut c, request, 1);
        assert_eq!(changes() - before, 1, "{what}");
        world.outlast(lsn);
        assert_eq!(log.durable().0 - durable.0, 1, "{what}: records of the log");
    }
}

#[test]
fn a_stable_write_longer_than_a_record_is_written_wholly() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = opened(&mut c, "f", ALL, THROUGH);
    let log = world.engine.aggregate().log();
    let data: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n / 4096) as u8 ^ n as u8)
        .collect();
    let pages = log.max_record().1;
    let records = 256usize.div_ceil(pages) as u64;
    assert!(records > 1, "the log of this test is small");
    let durable = log.durable();
    let lsn = written(&mut c, write(&file, 0, &data), 16);
    world.outlast(lsn);
    assert_eq!(log.durable().0 - durable.0, records);
    let world = world.crashed();
    let volume = world.engine.volumes().remove(0);
    let mut cx = weir_vfs::EngineContext::new(weir_base::Time::EPOCH);
    let ino = volume.lookup(&mut cx, volume.root(), b"f").unwrap().ino;
    let mut read = Vec::new();
    while read.len() < data.len() {
        let out = volume.read(&mut cx, ino, read.len() as u64, 65_536);
        out.unwrap()
            .slices()
            .for_each(|slice| read.extend_from_slice(slice));
    }
    assert!(read == data, "what was answered is there after a crash");
}
