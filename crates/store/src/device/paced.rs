//! An artificially slow disk, for measurements. Each operation takes at least a fixed time, and
//! operations and bytes a second are limited, as providers of disks do. So a load sees the same
//! disk on every machine with a faster one.

use std::io;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use weir_base::{BLOCK_SIZE, BlockAddr, Clock};

use super::{Device, Discards, Hints, Io, Meter};
use crate::error::IoKind;
use crate::frame::{Frame, FrameMut};

/// Speed of a paced disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Time from the start of an operation to its end, where no limit delays it.
    pub latency: Duration,
    /// Limit in operations a second.
    pub operations: u64,
    /// Limit in bytes a second.
    pub bytes: u64,
}

impl FromStr for Pace {
    type Err = String;

    /// Parses microseconds, operations a second and MB/s: `1900,15000,240`.
    fn from_str(text: &str) -> Result<Pace, String> {
        let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([micros, operations, mega]) if *operations > 0 && *mega > 0 => Ok(Pace {
                latency: Duration::from_micros(*micros),
                operations: *operations,
                bytes: mega * 1_000_000,
            }),
            _ => Err(format!(
                "'{text}' is no disk: write microseconds, operations a second and MB/s, as in 1900,15000,240"
            )),
        }
    }
}

/// The disk that several devices share.
pub(crate) struct PacedDisk {
    pace: Pace,
    clock: Arc<dyn Clock>,
    /// Time at which the limits admit another operation.
    free: Mutex<Duration>,
}

impl PacedDisk {
    pub(crate) fn new(pace: Pace, clock: Arc<dyn Clock>) -> Arc<PacedDisk> {
        Arc::new(PacedDisk {
            pace,
            clock,
            free: Mutex::default(),
        })
    }

    /// Returns the time at which an operation on `blocks` blocks ends that begins now.
    fn admit(&self, blocks: u64) -> Duration {
        let second = Duration::from_secs(1).as_nanos() as u64;
        let bytes = u128::from(blocks) * BLOCK_SIZE as u128;
        let carried = bytes * u128::from(second) / u128::from(self.pace.bytes);
        let takes = (second / self.pace.operations).max(carried as u64);
        let mut free = self.free.lock();
        let begins = self.clock.monotonic().max(*free);
        *free = begins + Duration::from_nanos(takes);
        free.max(begins + self.pace.latency)
    }
}

type ScheduledCompletion = (Duration, Box<dyn FnOnce() + Send>);

/// A device on a paced disk. Its operations end in the order in which they began.
pub(crate) struct PacedDevice {
    inner: Arc<dyn Device>,
    disk: Arc<PacedDisk>,
    meter: Arc<Meter>,
    endings: mpsc::Sender<ScheduledCompletion>,
}

impl PacedDevice {
    pub(crate) fn new(inner: Arc<dyn Device>, disk: &Arc<PacedDisk>) -> io::Result<PacedDevice> {
        let (endings, ending) = mpsc::channel::<ScheduledCompletion>();
        let clock = Arc::clone(&disk.clock);
        std::thread::Builder::new()
            .name("paced-disk".into())
            .spawn(move || {
                for (due, end) in ending {
                    // Saturates: the end may be due already.
                    std::thread::sleep(due.saturating_sub(clock.monotonic()));
                    end();
                }
            })?;
        Ok(PacedDevice {
            inner,
            disk: Arc::clone(disk),
            meter: Arc::default(),
            endings,
        })
    }

    fn pace<T: Send + 'static>(&self, kind: IoKind, blocks: u64, inner: Io<T>) -> Io<T> {
        let begun = self.meter.current_nanos();
        let meter = Arc::clone(&self.meter);
        let due = self.disk.admit(blocks);
        let (done, io) = Io::pair();
        let end = Box::new(move || {
            let result = inner.wait();
            if let Some(begun) = begun {
                meter.count(kind, begun);
            }
            done.complete(result);
        });
        // The thread lives as long as this device; an operation that it never ends fails as lost.
        let _ = self.endings.send((due, end));
        io
    }
}

impl Device for PacedDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        let blocks = into.len() as u64;
        self.pace(IoKind::Read, blocks, self.inner.read(addr, into))
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        let blocks = from.len() as u64;
        self.pace(IoKind::Write, blocks, self.inner.write(addr, from))
    }

    fn flush(&self) -> Io<()> {
        self.pace(IoKind::Flush, 0, self.inner.flush())
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        self.inner.discard(addr, count)
    }

    fn discards(&self) -> Discards {
        self.inner.discards()
    }

    fn provision(&self, addr: BlockAddr, count: u64) -> io::Result<()> {
        self.inner.provision(addr, count)
    }

    fn find_discarded(&self, found: &mut dyn FnMut(BlockAddr, u64)) -> io::Result<()> {
        self.inner.find_discarded(found)
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.inner.grow(blocks)
    }

    fn hints(&self) -> Hints {
        self.inner.hints()
    }

    fn host_free(&self) -> Option<u64> {
        self.inner.host_free()
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }

    fn max_length(&self) -> u64 {
        self.inner.max_length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::ManualClock;

    #[test]
    fn operations_take_their_time_and_no_more_pass_than_may() {
        let pace: Pace = "1900,1000,240".parse().unwrap();
        let clock = Arc::new(ManualClock::default());
        let disk = PacedDisk::new(pace, Arc::clone(&clock) as _);
        let now = clock.monotonic();
        let ends = |blocks| (disk.admit(blocks) - now).as_micros();
        assert_eq!(ends(2), 1900);
        assert_eq!(ends(2), 2900, "a thousand a second");
        // 2 MiB at 240 MB/s take 8.7 ms, after 2 ms.
        assert_eq!(ends(512), 2000 + 8738);
        for wrong in ["", "1,2", "1,0,1", "1,1,0", "1,1,1,1", "a,1,1"] {
            assert!(wrong.parse::<Pace>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_later() {
        let clock = Arc::new(weir_base::SystemClock::new());
        let disk = PacedDisk::new("3000,100000,1000".parse().unwrap(), Arc::clone(&clock) as _);
        let inner = Arc::new(crate::device::MemDevice::new(16));
        let device = PacedDevice::new(inner, &disk).unwrap();
        let pool = crate::frame::FramePool::new(4).unwrap();
        let frame = || pool.zeroed(crate::frame::Class::Cp).unwrap();
        let mut page = frame();
        page.fill(7);
        let began = clock.monotonic();
        device.meter().unwrap().begin(Arc::clone(&clock) as _);
        device
            .write(BlockAddr(3), vec![page.freeze()])
            .wait()
            .unwrap();
        let read = device.read(BlockAddr(3), vec![frame()]).wait().unwrap();
        assert!(read[0].iter().all(|byte| *byte == 7));
        assert!(clock.monotonic() - began >= Duration::from_millis(6));
        let [(_, reads), (_, writes), (_, flushes)] = device.meter().unwrap().latencies();
        assert_eq!((reads.count, writes.count, flushes.count), (1, 1, 0));
        assert!(
            reads.nanos.min(writes.nanos) >= 3_000_000,
            "as a user of the disk sees it"
        );
    }
}
