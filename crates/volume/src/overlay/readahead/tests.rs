use weir_base::{Rng, SeededRng};

use super::*;

const SIZE: u64 = 1_500_000;
const PLENTY: u64 = 1 << 20;
const FILE: FileId = FileId {
    view: 1,
    ino: Ino(7),
};

/// A detector, with the blocks read ahead and requested so far.
struct Run {
    detector: Detector,
    room: u64,
    ahead: Vec<Range<u64>>,
    asked: Vec<bool>,
    greatest: u64,
}

impl Run {
    fn new() -> Run {
        Run {
            detector: Detector::default(),
            room: PLENTY,
            ahead: Vec::new(),
            asked: vec![false; SIZE as usize],
            greatest: 0,
        }
    }

    fn request(&mut self, start: u64, len: u64) -> Option<Range<u64>> {
        for block in start..start + len {
            self.asked[block as usize] = true;
        }
        let found = self
            .detector
            .request(FILE, start..start + len, SIZE, self.room);
        if let Some(range) = &found {
            assert!(range.start < range.end && range.end <= SIZE);
            self.greatest = self.greatest.max(range.end - range.start);
            self.ahead.push(range.clone());
        }
        found
    }

    fn is_ahead(&self, block: u64) -> bool {
        self.ahead.iter().any(|r| r.contains(&block))
    }

    fn blocks_ahead(&self) -> u64 {
        self.ahead.iter().map(|r| r.end - r.start).sum()
    }

    fn wasted(&self) -> u64 {
        let unasked = |r: &Range<u64>| r.clone().filter(|b| !self.asked[*b as usize]).count();
        self.ahead.iter().map(unasked).sum::<usize>() as u64
    }

    /// Asserts that nothing is read ahead twice.
    fn check_disjoint(&mut self) {
        self.ahead.sort_by_key(|r| r.start);
        for pair in self.ahead.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
    }
}

#[test]
fn a_sequential_reader_is_ahead_after_its_second_request() {
    let mut run = Run::new();
    assert_eq!(run.request(0, 64), None, "one request is no pattern");
    assert_eq!(run.request(64, 64), Some(128..256));
    for n in 2..400 {
        assert!(run.is_ahead(n * 64), "request {n} was not foreseen");
        run.request(n * 64, 64);
    }
    run.check_disjoint();
    assert!(run.greatest >= MOST / 2, "windows have grown");
    assert!(run.wasted() <= MOST);
}

#[test]
fn small_requests_need_one_more_unless_they_begin_the_file() {
    let mut run = Run::new();
    assert_eq!(run.request(1000, 1), None);
    assert_eq!(run.request(1001, 1), None);
    assert_eq!(run.request(1002, 1), Some(1003..1005));
    let mut run = Run::new();
    assert_eq!(run.request(0, 1), None);
    assert_eq!(run.request(1, 1), Some(2..4));
}

#[test]
fn the_end_of_the_file_ends_it() {
    let mut run = Run::new();
    run.request(SIZE - 192, 64);
    assert_eq!(run.request(SIZE - 128, 64), Some(SIZE - 64..SIZE));
    assert_eq!(run.request(SIZE - 64, 64), None);
}

/// A client with nconnect=16 and four requests in flight on each connection: each request may be
/// overtaken by the 64 in flight with it.
#[test]
fn requests_in_the_order_of_sixteen_connections_are_one_stream() {
    for seed in 0..20 {
        let mut run = Run::new();
        let rng = SeededRng::new(seed);
        let requests = 2000;
        let mut order: Vec<u64> = (0..requests).collect();
        order.sort_by_cached_key(|n| n + rng.next_u64() % 64);
        let mut foreseen = 0;
        for n in order {
            foreseen += u64::from(run.is_ahead(n * 32));
            run.request(n * 32, 32);
        }
        assert!(
            foreseen > requests * 9 / 10,
            "{foreseen} of {requests} (seed {seed})"
        );
        run.check_disjoint();
        assert!(run.wasted() <= MOST, "{}", run.wasted());
    }
}

#[test]
fn streams_in_one_file_do_not_disturb_one_another() {
    let mut run = Run::new();
    let streams = 16;
    let apart = SIZE / streams;
    let mut foreseen = 0;
    for n in 0..200 {
        for s in 0..streams {
            let start = s * apart + n * 16;
            foreseen += u64::from(run.is_ahead(start));
            run.request(start, 16);
        }
    }
    assert!(foreseen >= (200 - 3) * streams, "{foreseen}");
    run.check_disjoint();
}

#[test]
fn random_requests_read_nothing_ahead() {
    for (len, region) in [(1, SIZE), (1, 65_536), (16, SIZE), (64, SIZE)] {
        let mut run = Run::new();
        let rng = SeededRng::new(len);
        let requests = 100_000;
        for _ in 0..requests {
            let start = rng.next_u64() % (region / len) * len;
            run.request(start, len);
        }
        let share = run.blocks_ahead() as f64 / (requests * len) as f64;
        assert!(
            share <= 0.03,
            "{share} of what was asked for was read in vain ({len} blocks of {region})"
        );
    }
}

#[test]
fn strided_requests_read_nothing_ahead() {
    for stride in [2, 3, 8, 100] {
        let mut run = Run::new();
        for n in 0..5000 {
            assert_eq!(run.request(n * stride, 1), None, "stride {stride}");
        }
    }
}

#[test]
fn a_stream_that_becomes_strided_is_given_up() {
    let mut run = Run::new();
    for n in 0..1000 {
        run.request(n * 4, 4);
    }
    run.ahead.clear();
    let mut last = 0;
    for n in 0..3000 {
        if run.request(4000 + n * 16, 4).is_some() {
            last = n;
        }
    }
    assert!(last < 2000, "still read ahead at request {last}");
}

#[test]
fn the_same_blocks_again_are_no_evidence() {
    let mut run = Run::new();
    for _ in 0..1000 {
        assert_eq!(run.request(10, 4), None);
        assert_eq!(run.request(500, 4), None);
    }
}

#[test]
fn a_stream_goes_on_beside_random_requests() {
    let mut run = Run::new();
    let rng = SeededRng::new(3);
    let mut foreseen = 0;
    for n in 0..500 {
        foreseen += u64::from(run.is_ahead(n * 64));
        run.request(n * 64, 64);
        for _ in 0..20 {
            let far = 200_000 + rng.next_u64() % 1_000_000;
            run.request(far, 1);
        }
    }
    assert!(foreseen > 480, "{foreseen}");
}

#[test]
fn no_more_is_ahead_than_there_is_room_for() {
    let mut run = Run::new();
    run.room = 100;
    for n in 0..2000u64 {
        run.request(n * 8, 8);
        let end = run.ahead.last().map_or(0, |r| r.end);
        assert!(end <= (n + 1) * 8 + 100, "{end} ahead at {n}");
    }
    assert!(run.is_ahead(1999 * 8));
    run.room = 0;
    let before = run.blocks_ahead();
    for n in 2000..2100 {
        run.request(n * 8, 8);
    }
    assert_eq!(run.blocks_ahead(), before, "no room at all");
}

#[test]
fn the_table_is_bounded_and_files_are_apart() {
    let mut detector = Detector::default();
    for ino in 0..100_000 {
        let file = FileId {
            view: 0,
            ino: Ino(ino),
        };
        assert_eq!(detector.request(file, ino..ino + 1, SIZE, PLENTY), None);
    }
    assert!(detector.streams.is_empty());
    for ino in 0..100_000 {
        let file = FileId {
            view: 0,
            ino: Ino(ino),
        };
        detector.request(file, 0..1, SIZE, PLENTY);
        assert!(detector.request(file, 1..2, SIZE, PLENTY).is_some());
    }
    assert_eq!(detector.streams.len(), STREAMS);
}
