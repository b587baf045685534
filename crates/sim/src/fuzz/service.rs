//! Whole calls against a live service on a small volume: whatever is sent, there is a well-formed
//! reply or a refusal.

use std::cell::RefCell;

use weir_base::Time;
use weir_nfs::Outcome;
use weir_store::aggregate::Aggregate;
use weir_store::log::Log;
use weir_volume::{
    CreateHow, DiffItem, EngineContext, SetAttr, SetHow, SnapshotDiff, Stability, StreamPosition,
};

use super::wire::{calls_on, every_op};
use crate::machine::{DATA, LOG, Machine, RunningEngine, Sizes};
use crate::model::{Op, Slot};
use crate::nfs::server::Server;
use crate::rand::Choices;
use crate::subject::{Handle, Subject};

/// Inputs that one volume serves: mutated calls change it, and a failure should not depend on too
/// much history.
const USES: u32 = 500;

struct Fixture {
    machine: Machine,
    running: RunningEngine,
    server: Server,
    handles: Vec<Handle>,
    uses: u32,
}

thread_local! {
    static FIXTURE: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

fn fixture() -> Fixture {
    let choices = Choices::new(1);
    let sizes = Sizes {
        background: true,
        ..Sizes::small()
    };
    let machine = Machine::new(sizes, &choices).unwrap();
    let running = machine.boot().unwrap();
    let mut server = Server::new(&machine, &running).unwrap();
    // Slots of the seeds: 0 the root, 1 a file, 2 a symbolic link.
    let mut handles = vec![server.root()];
    for op in every_op() {
        let wanted = match &op {
            Op::Create { .. } => handles.len() == 1,
            Op::Symlink { .. } => true,
            _ => false,
        };
        if wanted || matches!(op, Op::Mkdir { .. }) {
            let root = handles[0].clone();
            let made = server.call(&op, machine.current_time(), &|_| root.clone(), None);
            match made.map(|answer| answer.object) {
                Ok(Some(handle)) if !matches!(op, Op::Mkdir { .. }) => handles.push(handle),
                _ => {}
            }
        }
    }
    if handles.len() == 3
        && matches!(
            every_op().iter().find(|op| op.creates()),
            Some(Op::Symlink { .. })
        )
    {
        handles.swap(1, 2);
    }
    Fixture {
        machine,
        running,
        server,
        handles,
        uses: 0,
    }
}

fn with_fixture<T>(call: impl FnOnce(&mut Fixture) -> T) -> T {
    FIXTURE.with(|cell| {
        let mut slot = cell.borrow_mut();
        if slot.as_ref().is_some_and(|fixture| fixture.uses >= USES) {
            *slot = None;
        }
        call(slot.get_or_insert_with(fixture))
    })
}

/// One RPC message of a client.
pub(super) fn service(input: &[u8]) {
    with_fixture(|fixture| {
        fixture.uses += 1;
        match fixture.server.handle(input, fixture.machine.current_time()) {
            Outcome::Reply(reply, _) => {
                let bytes = reply.message();
                assert!(
                    bytes.len() >= 12 && bytes.len() % 4 == 0,
                    "a reply of {} bytes",
                    bytes.len()
                );
                assert_eq!(bytes[..4], input[..4], "the reply to another transaction");
            }
            Outcome::Later(_) | Outcome::Held(_) | Outcome::Parked(..) | Outcome::Larger(..) => {
                unreachable!("waited for")
            }
            Outcome::Drop | Outcome::Close(_) | Outcome::StartTls(_) | Outcome::SpeaksFor(..) => {}
        }
        assert!(fixture.running.engine.poisoned().is_none());
    });
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    with_fixture(|fixture| {
        let handles = fixture.handles.clone();
        calls_on(&|slot: Slot| handles[slot.0 as usize % handles.len()].clone())
    })
}

/// Operations that no call of NFSv3 asks for.
fn beyond_nfs3(running: &RunningEngine) {
    let (engine, vol) = (&running.engine, &running.volume);
    let set = SetAttr::default();
    let _ = vol.drive_blocking(&mut EngineContext::new(Time::EPOCH), |cx| {
        let how = CreateHow::Unchecked;
        let file = vol.create(cx, vol.root(), b"beyond", how, &set)?.value.ino;
        vol.write(cx, file, 0, &[7; 9000], Stability::FileSync)?;
        vol.punch(cx, file, 100, 8000)?;
        vol.set_xattr(cx, file, b"user.a", Some(&[1; 3000]), SetHow::Either)?;
        vol.set_xattr(cx, file, b"user.a", None, SetHow::Either)?;
        vol.set_acl(cx, file, Some(b"list"))?;
        let pin = vol.pin(cx, file)?;
        vol.remove(cx, vol.root(), b"beyond")?;
        drop(pin);
        engine.client_records().set(1, Some(b"client"))?;
        engine.client_records().set(1, None)?;
        let at = StreamPosition {
            term: 1,
            sequence: 2,
        };
        engine.note_position(at)
    });
}

/// Records of trees, with their keys in front.
pub(super) fn tree_records() -> Vec<Vec<u8>> {
    let mut fixture = fixture();
    let handles = fixture.handles.clone();
    for op in every_op() {
        let handle = |slot: Slot| handles[slot.0 as usize % handles.len()].clone();
        let _ = fixture
            .server
            .call(&op, fixture.machine.current_time(), &handle, None);
    }
    beyond_nfs3(&fixture.running);
    let vol = &fixture.running.volume;
    let taken = vol.snapshot_take("s", "", fixture.machine.current_time());
    let Some(snapshot) = taken.ok().and_then(|_| vol.snapshot("s")) else {
        return Vec::new();
    };
    let mut seeds = Vec::new();
    if let Ok(mut outgoing) = SnapshotDiff::new(vol, None, snapshot.identity) {
        while let Ok(Some(sent)) = outgoing.advance() {
            if let DiffItem::Put { at, value } = sent {
                seeds.push([&at.0[..], &value[..]].concat());
            }
        }
    }
    seeds
}

/// Records as operations write them, with the number of their pages in front.
pub(super) fn log_records() -> Vec<Vec<u8>> {
    let mut fixture = fixture();
    let handles = fixture.handles.clone();
    for op in every_op() {
        let handle = |slot: Slot| handles[slot.0 as usize % handles.len()].clone();
        // Some are refused; the others write records.
        let _ = fixture
            .server
            .call(&op, fixture.machine.current_time(), &handle, None);
    }
    beyond_nfs3(&fixture.running);
    let aggregate = fixture.running.engine.aggregate();
    let last = aggregate.log().cut().last();
    // A log that failed shows as a missing seed.
    let _ = aggregate.log().wait_blocking(last);
    let pool = aggregate.pool();
    let world = fixture.machine.world.copy();
    let superblock = Aggregate::inspect_on(world.device(DATA), pool)
        .unwrap()
        .superblock;
    let records = Log::inspect(world.device(LOG), superblock.log, superblock.cut, pool).unwrap();
    records
        .filter_map(Result::ok)
        .map(|record| {
            let mut seed = vec![record.pages.len() as u8];
            seed.extend_from_slice(&record.meta);
            seed
        })
        .collect()
}
