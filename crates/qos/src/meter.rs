//! One rate limit: a virtual clock.
//!
//! A token bucket keeps a number of tokens and has to be refilled. A virtual clock (the generic
//! cell rate algorithm, ITU-T I.371 annex A) keeps one instant instead. It is the *theoretical
//! arrival time* (TAT), at which every admitted unit would have drained at exactly the limit's
//! rate. A request may start when `now ≥ TAT − burst`, and then advances TAT by `units / rate`.
//! Nothing is refilled, so the result does not depend on how often the meter is polled, and an idle
//! limit costs nothing.
//!
//! Two properties make the rate exact:
//! - **Remainders are kept.** `units × 10⁹ / rate` is rarely whole nanoseconds. The remainder of
//!   the division is carried to the next request. Dropping it lets truncating shapers admit up to
//!   twice the limit.
//! - **Late releases are compensated.** A request released a little after its time advances TAT
//!   from TAT, not from `now`, as long as it is late by less than the burst. So timer slack shorter
//!   than the burst costs no throughput.
//!
//! Over any window of length `w` a meter admits at most `rate × (w + burst)` units plus one
//! request. A request is never split; one larger than the burst is admitted whole and its debt
//! carried.

use weir_base::less;

/// Nanoseconds on the monotonic clock that the caller hands in.
pub type Nanos = u64;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A limit of `rate` units (bytes or operations) a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Units a second; never 0.
    rate: u64,
    /// Nanoseconds by which a request may start before the virtual clock.
    burst: Nanos,
    /// Theoretical arrival time, in whole nanoseconds.
    tat: Nanos,
    /// Numerator of the fraction of a nanosecond beyond `tat`; always below `rate`.
    remainder: u64,
    /// Outstanding reservations in units. They may start without another check and are charged when
    /// settled.
    ahead: u64,
}

impl Meter {
    /// Creates a limit of `rate` units a second (0 is taken as 1) with a credit of `burst`
    /// nanoseconds, full at the start.
    pub fn new(rate: u64, burst: Nanos) -> Self {
        Self {
            rate: rate.max(1),
            burst,
            tat: 0,
            remainder: 0,
            ahead: 0,
        }
    }

    /// Returns the limit in units a second; never 0.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the earliest instant at which the next request may start.
    pub fn ready_at(&self) -> Nanos {
        // Saturates: a request may start before the clock began.
        self.tat.saturating_sub(self.burst)
    }

    /// Returns the time at which every charge has drained.
    pub fn settled_at(&self) -> Nanos {
        self.tat
    }

    /// Charges `units` to a request that starts at `now`. Returns their cost on the virtual clock
    /// in whole nanoseconds, for comparing requests with each other.
    pub fn charge(&mut self, now: Nanos, units: u64) -> Nanos {
        if self.tat < now {
            self.tat = now;
            self.remainder = 0;
        }
        let (whole, remainder) = divide(units, self.remainder, self.rate);
        // Saturates: a charge may have any size at any rate.
        self.tat = self.tat.saturating_add(whole);
        self.remainder = remainder;
        whole
    }

    /// Returns true if the next request could start at `now` after `units` and all outstanding
    /// reservations.
    pub fn has_room(&self, now: Nanos, units: u64) -> bool {
        if units == 0 && self.ahead == 0 {
            return self.ready_at() <= now;
        }
        let (from, carried) = match self.tat < now {
            true => (now, 0),
            false => (self.tat, self.remainder),
        };
        // Saturates: the numbers are times.
        let Some(room) = now.saturating_add(self.burst).checked_sub(from) else {
            return false;
        };
        // Equal to the result of `charge` by a division, which costs several times a
        // multiplication.
        let units = u128::from(units) + u128::from(self.ahead);
        let cost = units * u128::from(SECOND) + u128::from(carried);
        cost < (u128::from(room) + 1) * u128::from(self.rate)
    }

    /// Reserves `units`, which may start without another check until the reservation is settled.
    /// Every other check counts a reservation as if its units came at that moment. It never leaks
    /// away, so no other request gets its units.
    pub fn reserve(&mut self, units: u64) {
        // The caller has checked that there is room.
        self.ahead += units;
    }

    /// Settles a reservation: `came` units have started by `at`, `left` are released.
    pub fn settle_reservation(&mut self, at: Nanos, came: u64, left: u64) {
        self.ahead = less(self.ahead, came + left, "units that may come ahead");
        if came > 0 {
            self.charge(at, came);
        }
    }

    /// Drains the accumulated credit: from `now` on exactly the rate is available.
    pub fn drain_credit(&mut self, now: Nanos) {
        // Saturates: the numbers are times.
        let spent = now.saturating_add(self.burst);
        if self.tat < spent {
            self.tat = spent;
            self.remainder = 0;
        }
    }

    /// Refunds `units` of an earlier charge (a READ that came out short).
    pub fn refund(&mut self, units: u64) {
        let (mut whole, mut part) = divide(units, 0, self.rate);
        if part > self.remainder {
            // Borrow one nanosecond: the fraction stays non-negative. Both are below the rate, so
            // this cannot overflow.
            // Saturates: a charge may have any size at any rate.
            whole = whole.saturating_add(1);
            part = self.rate - (part - self.remainder);
        } else {
            part = self.remainder - part;
        }
        match self.tat.checked_sub(whole) {
            Some(tat) => (self.tat, self.remainder) = (tat, part),
            None => (self.tat, self.remainder) = (0, 0),
        }
    }

    /// Changes the rate and the burst at `now`. Undrained units stay owed in units if the rate
    /// grows (a large debt shrinks at once) and in time if it shrinks. They were within the old
    /// limit, and making them up at the new rate would be a pause.
    pub fn retune(&mut self, now: Nanos, rate: u64, burst: Nanos) {
        let rate = rate.max(1);
        if let Some(ahead) = self.tat.checked_sub(now) {
            let owed = u128::from(ahead) * u128::from(self.rate);
            // Saturates: the numbers are times.
            self.tat = now.saturating_add(clamp(owed / u128::from(rate)).min(ahead));
        }
        self.remainder = 0;
        self.rate = rate;
        self.burst = burst;
    }
}

/// Returns the time of `units` at `rate` a second in nanoseconds, and the remainder in units of `1
/// / rate` of a nanosecond.
fn divide(units: u64, carried: u64, rate: u64) -> (Nanos, u64) {
    let rate = rate.max(1);
    // A division of 128 bits costs several times one of 64, which suffices for anything below 18 GB
    // at once.
    if let Some(total) = units
        .checked_mul(SECOND)
        .and_then(|total| total.checked_add(carried))
    {
        return (total / rate, total % rate);
    }
    let total = u128::from(units) * u128::from(SECOND) + u128::from(carried);
    let rate = u128::from(rate);
    (clamp(total / rate), (total % rate) as u64)
}

fn clamp(nanos: u128) -> Nanos {
    Nanos::try_from(nanos).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a backlogged meter for `span` nanoseconds and returns the units admitted.
    fn drain(meter: &mut Meter, request: u64, span: Nanos, slack: Nanos) -> u64 {
        let mut now = 0;
        let mut admitted = 0;
        loop {
            now = now.max(meter.ready_at()) + slack;
            if now >= span {
                return admitted;
            }
            meter.charge(now, request);
            admitted += request;
        }
    }

    #[test]
    fn hours_at_the_slowest_and_the_fastest_rate_are_exact() {
        const HOUR: Nanos = 3600 * 1_000_000_000;
        // 4 KB/s for ten hours in requests of 700 bytes; 100 GiB/s for a tenth of a second in
        // requests of 4 KiB.
        for (rate, request, span) in [
            (4_000, 700, 10 * HOUR),
            (100 << 30, 4096, 100_000_000),
            (999_983, 4096, HOUR / 60),
        ] {
            let mut meter = Meter::new(rate, 1_000_000);
            let admitted = u128::from(drain(&mut meter, request, span, 0));
            let due = u128::from(rate) * u128::from(span) / u128::from(SECOND);
            let credit =
                u128::from(rate) * 1_000_000 / u128::from(SECOND) + 1 + u128::from(request);
            assert!(
                admitted <= due + credit,
                "{rate}: {admitted} > {due} + {credit}"
            );
            assert!(
                admitted + u128::from(request) >= due,
                "{rate}: {admitted} < {due}"
            );
        }
    }

    #[test]
    fn slack_shorter_than_the_burst_costs_nothing() {
        let mut late = Meter::new(1 << 20, 2_000_000);
        let mut prompt = late;
        let span = 10_000_000_000;
        let (a, b) = (
            drain(&mut late, 512, span, 400_000),
            drain(&mut prompt, 512, span, 0),
        );
        assert!(b - a <= 2 * 1024, "late {a}, prompt {b}");
    }

    #[test]
    fn a_change_of_rate_never_lengthens_a_debt() {
        let mut meter = Meter::new(64 << 20, 0);
        meter.charge(0, 64 << 20);
        assert_eq!(meter.ready_at(), 1_000_000_000);
        meter.retune(500_000_000, 16 << 20, 0);
        assert_eq!(meter.ready_at(), 500_000_000 + 500_000_000);
        meter.retune(500_000_000, 128 << 20, 0);
        assert_eq!(meter.ready_at(), 500_000_000 + 62_500_000);
    }

    proptest! {
        #[test]
        fn a_refund_undoes_a_charge(rate in 1u64..1 << 40, first in 0u64..1 << 21, second in 0u64..1 << 21, now in 0u64..1 << 50) {
            let mut meter = Meter::new(rate, 0);
            meter.charge(now, first);
            let before = meter;
            meter.charge(now, second);
            meter.refund(second);
            prop_assert_eq!(meter, before);
        }

        #[test]
        fn there_is_room_if_the_next_request_could_start_after_a_charge(
            rate in 1u64..1 << 40, burst in 0u64..50_000_000, first in 0u64..1 << 21, second in 0u64..1 << 21,
            ahead in 0u64..1 << 21, now in 0u64..1 << 50, wait in 0u64..20_000_000,
        ) {
            let mut meter = Meter::new(rate, burst);
            meter.charge(now, first);
            let now = now + wait;
            // A random number of units, and those where the result changes.
            // Saturates: the numbers
            // are times.
            let most = u128::from(rate) * u128::from((now + burst).saturating_sub(meter.settled_at().max(now))) / u128::from(SECOND);
            // Saturates: any number of units.
            for units in [second, most as u64, (most as u64).saturating_add(1)] {
                let mut charged = meter;
                charged.charge(now, units);
                prop_assert_eq!(meter.has_room(now, units), charged.ready_at() <= now);
                let mut some = meter;
                some.reserve(ahead.min(units));
                prop_assert_eq!(some.has_room(now, units - ahead.min(units)), charged.ready_at() <= now);
                // The whole reservation was used, or none of it.
                let mut all = some;
                all.settle_reservation(now, ahead.min(units), 0);
                all.charge(now, units - ahead.min(units));
                some.settle_reservation(now, 0, ahead.min(units));
                prop_assert_eq!(all.ready_at() <= now, charged.ready_at() <= now);
                prop_assert_eq!(some, meter);
            }
        }

        #[test]
        fn no_window_admits_more_than_rate_and_burst(
            rate in 1_000u64..1 << 32, burst in 0u64..50_000_000,
            steps in prop::collection::vec((0u64..20_000_000, 1u64..1 << 20), 1..200),
        ) {
            let mut meter = Meter::new(rate, burst);
            let mut now = 1 << 40;
            let mut log: Vec<(Nanos, u64)> = Vec::new();
            for (wait, units) in steps {
                now = (now + wait).max(meter.ready_at());
                meter.charge(now, units);
                log.push((now, units));
            }
            for start in 0..log.len() {
                let mut sum: u128 = 0;
                for &(at, units) in &log[start..] {
                    // The last request of the window is the one that the bound admits whole.
                    let window = u128::from(at - log[start].0 + burst);
                    prop_assert!(sum * u128::from(SECOND) <= (window + 1) * u128::from(rate));
                    sum += u128::from(units);
                }
            }
        }
    }
}
