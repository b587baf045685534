//! Checks that claims never take more memory than is charged for them, whatever their shape, and
//! that all of it is released with them. The allocator counts it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;
use weir_base::{Budget, Ino, VolumeId};
use weir_vfs::claims::{
    CacheRights, Claims, Client, Kind, Lock, Modes, OpenOutcome, OpenRequest, Owner, OwnerId,
    Range, ServiceId, Verdict,
};
use weir_vfs::{FileId, Namespace};

struct CountingAllocator;

static USED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller guaranteed.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller guaranteed.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn used() -> isize {
    USED.load(Ordering::Relaxed)
}

fn file(n: u32) -> FileId {
    FileId {
        volume: VolumeId(1),
        ino: Ino(u64::from(n)),
        namespace: Namespace::Live,
    }
}

/// Process `process` at one of some addresses; names and what is shown are allocated anew, as for
/// each call.
fn owner(address: u32, process: u32, bytes: usize) -> Owner {
    Owner {
        client: Client {
            service: ServiceId(0),
            address: IpAddr::from([10, 0, (address >> 8) as u8, address as u8]),
            name: Arc::from(vec![b'n'; bytes.min(255)]),
        },
        who: OwnerId::Process(process),
        shown: Arc::from(vec![b's'; bytes]),
    }
}

fn lock(owner: Owner, start: u64, exclusive: bool) -> Lock {
    Lock {
        owner,
        range: Range::new(start, 1).unwrap(),
        exclusive,
        mandatory: false,
    }
}

fn open(owner: &Owner) -> OpenRequest<'_> {
    OpenRequest {
        owner,
        key: &owner.who,
        access: Modes::READ,
        deny: Modes::NONE,
        enforced: true,
        overwrite: false,
    }
}

/// One test, since the count is the process's.
#[test]
fn claims_take_no_more_than_is_charged() {
    let before_all = used();
    let table = Claims::new(Budget::new(1 << 30));
    // The hash tables of shards and ledger keep some room; it does not grow with the number of
    // locks.
    let fixed = 384 << 10;
    type Shape = (&'static str, fn(&Claims, u32));
    let shapes: [Shape; 13] = [
        ("many locks of one owner", |t, n| {
            take(t, 1, owner(1, 1, 12), 2 * u64::from(n))
        }),
        ("many owners", |t, n| take(t, 1, owner(1, n, 12), 0)),
        ("many owners who show much", |t, n| {
            take(t, 1, owner(1, n, 1024), 0)
        }),
        ("many files", |t, n| take(t, n, owner(1, 1, 12), 0)),
        ("many addresses in one file", |t, n| {
            take(t, 1, owner(n, 1, 12), 0)
        }),
        ("many addresses, each a file", |t, n| {
            take(t, n, owner(n, 1, 255), 0)
        }),
        ("many that wait", |t, n| {
            if n == 0 {
                let first = lock(owner(0, 0, 12), 0, true);
                assert_eq!(request_lock(t, 1, first, false), Verdict::Granted);
            } else {
                let want = lock(owner(n / 1000, n, 100), 0, true);
                assert_eq!(request_lock(t, 1, want, true), Verdict::Queued);
            }
        }),
        ("many opens", |t, n| {
            assert_eq!(
                t.open(file(1), &open(&owner(1, n, 12))),
                OpenOutcome::Granted
            )
        }),
        ("many opens, each of a file", |t, n| {
            assert_eq!(
                t.open(file(n), &open(&owner(1, n, 12))),
                OpenOutcome::Granted
            )
        }),
        ("many mandatory ranges", |t, n| {
            let mut want = lock(owner(1, n % 100, 12), u64::from(n / 7), false);
            want.mandatory = true;
            assert_eq!(request_lock(t, 1, want, false), Verdict::Granted);
        }),
        ("many leases", |t, n| {
            let kept = t.grant(
                file(1),
                &owner(1, n, 12),
                Kind::Lease,
                CacheRights::READ_HANDLE,
            );
            assert_eq!(kept, CacheRights::READ_HANDLE);
        }),
        ("many breaks", |t, n| {
            let holder = owner(1, n, 12);
            t.grant(file(n), &holder, Kind::Lease, CacheRights::ALL);
            let other = owner(2, n, 12);
            assert!(matches!(
                t.open(file(n), &open(&other)),
                OpenOutcome::Breaking(_)
            ));
        }),
        ("many that are parked", |t, n| {
            let holder = owner(n, 1, 12);
            t.open(file(1), &open(&holder));
            t.grant(file(2), &holder, Kind::Lease, CacheRights::READ_HANDLE);
            t.park(&holder.client);
        }),
    ];
    for (what, one) in shapes {
        for count in [3, 1000, 15_000] {
            let before = used();
            (0..count).for_each(|n| one(&table, n));
            let (taken, charged) = (used() - before, table.totals().bytes as isize);
            assert!(
                taken <= charged + fixed,
                "{what}, {count}: {taken} bytes taken, {charged} charged"
            );
            // And the charge is no fantasy either.
            assert!(
                count < 1000 || charged < 6 * taken,
                "{what}, {count}: {taken} bytes taken, {charged} charged"
            );
            // Most go, in no order: what is left is paid for.
            let rest = (0..count)
                .filter(|n| n % 50 != 0)
                .map(|n| owner(n, 1, 255).client);
            rest.for_each(|client| table.release(&[client]));
            let (taken, charged) = (used() - before, table.totals().bytes as isize);
            assert!(
                taken <= charged + fixed,
                "{what}, {count}, most gone: {taken} bytes taken, {charged} charged"
            );
            table.release_all(ServiceId(0));
            table.tick(Duration::ZERO);
            assert_eq!(table.totals().bytes, 0);
            let left = used() - before;
            assert!(left <= fixed, "{what}, {count}: {left} bytes are left");
        }
    }
    drop(table);
    let left = used() - before_all;
    assert!(left < 4096, "{left} bytes are left");
}

fn request_lock(table: &Claims, n: u32, want: Lock, wait: bool) -> Verdict {
    table.lock(file(n), &want, &want.owner.who, wait)
}

fn take(table: &Claims, n: u32, owner: Owner, start: u64) {
    assert_eq!(
        request_lock(table, n, lock(owner, start, false), false),
        Verdict::Granted
    );
}
