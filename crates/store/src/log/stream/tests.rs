//! The stream against a scripted partner, and a device whose writes can be blocked.

use std::io;

use proptest::prelude::*;
use smallvec::smallvec;
use weir_base::BlockAddr;

use super::{ChangeStream, NotShipped, Sequence};
use crate::device::{Io, MemDevice};
use crate::error::{IoError, IoKind};
use crate::frame::{Class, Frame, FrameMut};
use crate::log::advance::{Advance, AdvancedPages, Carrier};
use crate::log::*;

const ID: LogId = LogId([0x33; 16]);
const WINDOW: u32 = 64 << 10;

/// A device whose writes wait while it is closed.
struct GatedDevice {
    disk: MemDevice,
    closed: Mutex<bool>,
    opened: Condvar,
    broken: AtomicBool,
}

impl GatedDevice {
    fn new() -> Arc<GatedDevice> {
        Arc::new(GatedDevice {
            disk: MemDevice::new(1026),
            closed: Mutex::new(false),
            opened: Condvar::new(),
            broken: AtomicBool::new(false),
        })
    }

    fn close(&self) {
        *self.closed.lock() = true;
    }

    fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }
}

impl Device for GatedDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        self.disk.read(addr, into)
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        let mut closed = self.closed.lock();
        while *closed {
            self.opened.wait(&mut closed);
        }
        if self.broken.load(Ordering::Relaxed) {
            let e = io::Error::other("broken");
            return Io::ready(Err(IoError::new(IoKind::Write, addr, 0, e)));
        }
        self.disk.write(addr, from)
    }

    fn flush(&self) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn grow(&self, _: u64) -> io::Result<u64> {
        Ok(self.length())
    }
}

struct Bench {
    device: Arc<GatedDevice>,
    log: Arc<Log>,
    pool: Arc<FramePool>,
}

impl Bench {
    fn new() -> Bench {
        let device = GatedDevice::new();
        Bench {
            log: Log::create(Arc::clone(&device) as Arc<dyn Device>, ID).unwrap(),
            device,
            pool: FramePool::new(512).unwrap(),
        }
    }

    fn record(&self, meta: &str, pages: usize) -> Record {
        let mut record = Record {
            meta: meta.into(),
            pages: smallvec![],
        };
        for i in 0..pages {
            let mut frame = self.pool.alloc(Class::Cp).unwrap();
            frame.fill(i as u8 + 1);
            record.pages.push(frame.freeze());
        }
        record
    }

    fn append(&self, meta: &str) -> Lsn {
        self.log.append(self.record(meta, 0)).unwrap()
    }

    fn attach(&self) -> Arc<ChangeStream> {
        self.log.attach(Sequence(100), WINDOW).unwrap()
    }
}

/// Returns the messages sent before entries: for each advance its number and its pages, 0 for one
/// taken back.
fn advances(carrier: &Carrier) -> Vec<(u64, usize)> {
    let sent = carrier.take().into_iter();
    sent.map(|advance| match advance {
        Advance::Pages { id, pages, sums } => {
            let right = pages.iter().map(|page| page_crc(page));
            assert!(right.eq(sums));
            (id.0, pages.len())
        }
        Advance::Back(id) => (id.0, 0),
    })
    .collect()
}

/// Sends these pages before their entry.
fn advance(b: &Bench, pages: &[Frame]) -> Option<AdvancedPages> {
    let summed = pages.iter().map(|page| (page.clone(), page_crc(page)));
    b.log.advance(summed)
}

#[test]
fn pages_are_sent_before_their_entry_by_the_newest_connection_alone() {
    let b = Bench::new();
    let pages = b.record("", 3).pages;
    assert!(advance(&b, &pages).is_none(), "there is no stream");
    let stream = b.attach();
    assert!(advance(&b, &pages).is_none(), "nobody carries them");
    assert!(!b.log.advances());
    let old = Carrier::new(&stream);
    assert!(b.log.advances() && old.is_idle());
    let lost = advance(&b, &pages).unwrap();
    assert!(!old.is_idle());

    let new = Carrier::new(&stream);
    assert!(
        old.is_idle() && new.is_idle(),
        "the old one has not sent it"
    );
    let used = advance(&b, &pages).unwrap();
    let at = used.within(1);
    let shipped = b.record("there", 5);
    b.log
        .append_as(b.record("here", 0), shipped, Some(at))
        .unwrap();
    used.used();
    drop(advance(&b, &pages[..2]).unwrap());
    drop(lost);
    assert_eq!(advances(&old), []);
    assert_eq!(advances(&new), [(2, 3), (3, 2), (3, 0), (1, 0)]);
    let entry = stream.after(Sequence(100)).unwrap();
    assert_eq!(entry.advance, Some(at));
    assert_eq!(
        (at.id.0, at.first, at.count, entry.pages.len()),
        (2, 1, 3, 5)
    );

    drop(old);
    assert!(b.log.advances(), "the new one is there");
    drop(new);
    assert!(!b.log.advances());
}

#[test]
fn an_advance_wakes_a_sender_that_rests() {
    let b = Bench::new();
    let stream = b.attach();
    let woken = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&woken);
    stream.wake_by(Box::new(move || {
        counts.fetch_add(1, Ordering::SeqCst);
    }));
    let _carrier = Carrier::new(&stream);
    stream.rest();
    let advanced = advance(&b, &b.record("", 1).pages);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    stream.rest();
    drop(advanced);
    assert_eq!(woken.load(Ordering::SeqCst), 2);
}

/// Returns the entries that a partner gets that begins after `from`.
fn entries(stream: &ChangeStream, mut from: Sequence) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some(entry) = stream.after(from) {
        from = entry.sequence;
        all.push((
            entry.sequence.0,
            String::from_utf8(entry.meta.clone()).unwrap(),
        ));
    }
    all
}

#[test]
fn a_record_is_durable_when_both_have_it() {
    let b = Bench::new();
    let before = b.append("before");
    b.log.wait_blocking(before).unwrap();
    let stream = b.attach();
    assert_eq!(b.log.durable(), before, "what was before needs no partner");

    // Written locally first.
    let one = b.append("one");
    b.log.wait_written(one).unwrap();
    assert_eq!(b.log.durable(), before);
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert_eq!(b.log.durable(), one);

    // Acknowledged by the partner first.
    b.device.close();
    let two = b.append("two");
    b.log.acknowledge(&stream, Sequence(102)).unwrap();
    assert_eq!(b.log.durable(), one);
    b.device.open();
    b.log.wait_blocking(two).unwrap();
    assert_eq!(b.log.durable(), two);
}

#[test]
fn entries_are_in_one_order_with_what_is_not_logged() {
    let b = Bench::new();
    b.append("before");
    let stream = b.attach();
    b.append("one");
    b.log.ship(b.record("soft", 2)).unwrap();
    let as_another = b
        .log
        .append_as(b.record("here", 1), b.record("there", 3), None);
    let last = as_another.unwrap();
    let want = [(101, "one"), (102, "soft"), (103, "there")];
    let got = entries(&stream, Sequence(100));
    assert!(got.iter().map(|(n, s)| (*n, &**s)).eq(want), "{got:?}");
    assert_eq!(entries(&stream, Sequence(102)).len(), 1);
    let there = stream.after(Sequence(102)).unwrap();
    assert_eq!(there.pages.len(), 3);
    let sums: Vec<u32> = there.pages.iter().map(|page| page_crc(page)).collect();
    assert_eq!(there.sums[..], sums[..]);
    // An unlogged change is acknowledged with the entries after it.
    b.log.acknowledge(&stream, Sequence(102)).unwrap();
    assert_eq!(entries(&stream, Sequence(100)), [], "it is acknowledged");
    b.log.wait_written(last).unwrap();
    assert_eq!(b.log.durable(), Lsn(last.0 - 1));
    b.log.acknowledge(&stream, Sequence(103)).unwrap();
    assert_eq!(b.log.durable(), last);
    assert_eq!(
        b.log.acknowledge(&stream, Sequence(104)),
        Err(NotShipped),
        "it was never sent"
    );
}

#[test]
fn the_window_is_full_until_the_partner_acknowledges() {
    let b = Bench::new();
    assert!(!b.log.stream_full() && !b.log.ships());
    let stream = b.attach();
    assert!(b.log.attach(Sequence(0), WINDOW).is_none(), "one at a time");
    let mut count = 0;
    while !b.log.stream_full() {
        b.log.ship(b.record("data", 4)).unwrap();
        count += 1;
    }
    assert_eq!(count, 4, "as many as 64 KiB are full with");
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert!(!b.log.stream_full());
    assert_eq!(b.pool.free(), 512 - 3 * 4, "acknowledged pages are free");
    b.log.ship(b.record("data", 4)).unwrap();
    assert!(b.log.stream_full());
    b.log.detach();
    assert!(!b.log.stream_full() && !b.log.ships() && stream.is_detached());
    assert_eq!(b.pool.free(), 512);
    b.log.ship(b.record("nowhere", 1)).unwrap();
    assert_eq!(stream.last(), Sequence(105));
}

#[test]
fn a_partner_that_is_followed_is_waited_for_by_nobody() {
    let b = Bench::new();
    let stream = b.attach();
    let one = b.append("one");
    b.log.wait_written(one).unwrap();
    b.log.follow(&stream);
    assert_eq!(b.log.durable(), one);
    assert_eq!(b.log.acknowledged(), None, "nobody is waited for");
    let two = b.append("two");
    b.log.wait_blocking(two).unwrap();
    assert_eq!(entries(&stream, Sequence(100)).len(), 2, "they are kept");
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert!(b.log.join(&stream));
    let three = b.append("three");
    b.log.wait_written(three).unwrap();
    assert_eq!(b.log.durable(), two);
    b.log.acknowledge(&stream, Sequence(103)).unwrap();
    assert_eq!(b.log.durable(), three);
    assert_eq!(b.log.acknowledged(), Some(Sequence(103)));

    // A full window delays nothing while nobody waits, and dropped entries are gone for good.
    b.log.follow(&stream);
    let mut count = 0;
    while !stream.is_overrun() {
        assert!(!b.log.stream_full());
        b.log.ship(b.record("data", 4)).unwrap();
        count += 1;
    }
    assert_eq!(count, 4, "as many as do not fit into 64 KiB");
    assert_eq!(b.pool.free(), 512, "nothing is kept");
    assert_eq!(entries(&stream, Sequence(103)), []);
    assert!(!b.log.join(&stream));
    let four = b.append("four");
    b.log.wait_blocking(four).unwrap();
    assert_eq!(stream.held(), 0);
}

#[test]
fn the_sender_is_woken_once_when_there_is_more() {
    let b = Bench::new();
    let stream = b.attach();
    let rung = Arc::new(AtomicU64::new(0));
    let rings = Arc::clone(&rung);
    stream.wake_by(Box::new(move || {
        rings.fetch_add(1, Ordering::SeqCst);
    }));
    b.append("one");
    assert_eq!(rung.load(Ordering::SeqCst), 0, "it is at work");
    stream.rest();
    b.append("two");
    b.append("three");
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    // Gathered entries are sent with one wake-up, after the last of them.
    stream.rest();
    let gather = b.log.gather();
    b.append("four");
    b.log.ship(b.record("five", 1)).unwrap();
    assert_eq!(rung.load(Ordering::SeqCst), 1, "for the first already");
    drop(gather);
    assert_eq!(rung.load(Ordering::SeqCst), 2);
    // A thread that waits for the partner has its entries sent first.
    stream.rest();
    let _gather = b.log.gather();
    let six = b.append("six");
    b.log.wait_written(six).unwrap();
    assert_eq!(rung.load(Ordering::SeqCst), 3);
}

#[test]
fn a_partner_that_is_left_holds_nothing_up() {
    let b = Bench::new();
    let stream = b.attach();
    let one = b.append("one");
    b.log.wait_written(one).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| b.log.wait_blocking(one));
        assert_eq!(b.log.durable(), Lsn(0));
        b.log.detach();
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    let two = b.append("two");
    b.log.wait_blocking(two).unwrap();
    // A late acknowledgement of a detached stream.
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert_eq!(b.log.durable(), two);
    // The next partner has all earlier entries.
    let next = b.log.attach(Sequence(7), WINDOW).unwrap();
    let three = b.append("three");
    b.log.wait_written(three).unwrap();
    assert_eq!(b.log.durable(), two);
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert_eq!(b.log.durable(), two, "the older stream does not count");
    b.log.acknowledge(&next, Sequence(8)).unwrap();
    assert_eq!(b.log.durable(), three);
}

#[test]
fn what_waits_for_the_partner_hears_of_a_poisoned_log() {
    let b = Bench::new();
    let stream = b.attach();
    b.device.broken.store(true, Ordering::Relaxed);
    let lost = b.append("lost");
    assert!(b.log.wait_blocking(lost).is_err());
    b.log.acknowledge(&stream, Sequence(101)).unwrap();
    assert_eq!(b.log.durable(), Lsn(0));
    assert!(b.log.ship(b.record("late", 0)).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Append,
    Ship,
    AppendAs,
    /// Acknowledges this part, in eighths, of the unacknowledged entries.
    Acknowledge(u8),
    /// The device completes all writes.
    Write,
    Close,
    Attach,
    Detach,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Append),
        2 => Just(Step::Ship),
        1 => Just(Step::AppendAs),
        3 => (0..=8u8).prop_map(Step::Acknowledge),
        2 => Just(Step::Write),
        2 => Just(Step::Close),
        1 => Just(Step::Attach),
        1 => Just(Step::Detach),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    /// A record that one of the two sides lacks is not durable, one that both have is. The stream
    /// has every change once and in order.
    #[test]
    fn durable_is_what_both_have(steps in steps()) {
        let b = Bench::new();
        let mut stream: Option<Arc<ChangeStream>> = None;
        // For each unacknowledged entry, the LSN up to it and its name.
        let mut open: VecDeque<(u64, String)> = VecDeque::new();
        let (mut last, mut written, mut mirrored, mut durable) = (0, 0, u64::MAX, 0);
        let (mut acknowledged, mut closed) = (100, false);
        for (i, step) in steps.into_iter().enumerate() {
            let name = format!("{i}");
            match step {
                Step::Append | Step::AppendAs => {
                    let record = b.record(&name, i % 3);
                    let lsn = match step {
                        Step::Append => b.log.append(record),
                        _ => b.log.append_as(b.record("here", 1), record, None),
                    };
                    last += 1;
                    prop_assert_eq!(lsn, Ok(Lsn(last)));
                    if stream.is_some() {
                        open.push_back((last, name));
                    }
                }
                Step::Ship => {
                    b.log.ship(b.record(&name, 1)).unwrap();
                    if stream.is_some() {
                        open.push_back((last, name));
                    }
                }
                Step::Acknowledge(part) => {
                    let count = open.len() * usize::from(part) / 8;
                    if let Some(stream) = &stream {
                        acknowledged += count as u64;
                        if let Some((lsn, _)) = open.drain(..count).next_back() {
                            mirrored = lsn;
                        }
                        b.log.acknowledge(stream, Sequence(acknowledged)).unwrap();
                    }
                }
                Step::Write => {
                    b.device.open();
                    closed = false;
                }
                Step::Close => {
                    b.device.close();
                    closed = true;
                }
                Step::Attach => {
                    let next = b.log.attach(Sequence(100), 1 << 30);
                    prop_assert_eq!(next.is_none(), stream.is_some());
                    if next.is_some() {
                        (stream, mirrored, acknowledged) = (next, last, 100);
                    }
                }
                Step::Detach => {
                    b.log.detach();
                    (stream, mirrored) = (None, u64::MAX);
                    open.clear();
                }
            }
            if !closed {
                b.log.wait_written(Lsn(last)).unwrap();
                written = last;
            }
            durable = durable.max(written.min(mirrored));
            let now = b.log.durable().0;
            // A blocked device may still complete the write that it had begun.
            let most = durable.max(last.min(mirrored));
            let sound = match closed {
                true => durable <= now && now <= most,
                false => now == durable,
            };
            prop_assert!(sound, "{} is durable, not {} to {}", now, durable, most);
            durable = now;
            written = written.max(now);
            if let Some(stream) = &stream {
                let got = entries(stream, Sequence(acknowledged));
                let got: Vec<_> = got.into_iter().map(|(_, name)| name).collect();
                let want: Vec<_> = open.iter().map(|(_, name)| name.clone()).collect();
                prop_assert_eq!(got, want);
            }
        }
        b.device.open();
    }
}
