//! Schedules: every so many seconds, or at minutes of hours of days like cron. All times are UTC.
//!
//! A schedule survives restarts and changes of the clock because it counts nothing down: only the
//! time of the last run is kept, and [`due`] compares the slot after it with the current time. Runs
//! that were missed while the server was down collapse into one. A clock that is set back causes no
//! second run in a slot. It does not silence a schedule either: a last run in the future counts as
//! now.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use weir_base::limits::replica::SCHEDULE_DAYS as FARTHEST_DAYS;

/// The months by name, January first.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The days of a week by name, Sunday first.
pub const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

/// A set of numbers in 0 ..= 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers(u64);

impl Numbers {
    /// Returns the set of all numbers in `from ..= to`.
    pub const fn from_range(from: u32, to: u32) -> Numbers {
        let mut bits = 0;
        let mut at = from;
        while at <= to {
            bits |= 1 << at;
            at += 1;
        }
        Numbers(bits)
    }

    /// Returns the set of one number.
    pub const fn one(number: u32) -> Numbers {
        Numbers(1 << number)
    }

    /// Returns the set of a list's numbers; `None` if one is outside `from ..= to`, or the list is
    /// empty.
    pub fn from_numbers(
        numbers: impl IntoIterator<Item = u32>,
        from: u32,
        to: u32,
    ) -> Option<Numbers> {
        let mut bits = 0;
        for number in numbers {
            if !(from..=to).contains(&number) || number > 63 {
                return None;
            }
            bits |= 1 << number;
        }
        (bits != 0).then_some(Numbers(bits))
    }

    /// Parses `*`, `*/5`, `1,15`, `1-5` and lists of these.
    pub fn parse(text: &str, from: u32, to: u32) -> Option<Numbers> {
        let mut bits = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
                None => (part, 1),
            };
            let (low, high) = match range {
                "*" => (from, to),
                _ => match range.split_once('-') {
                    Some((low, high)) => (low.parse().ok()?, high.parse().ok()?),
                    None => {
                        let one = range.parse().ok()?;
                        (one, if part.contains('/') { to } else { one })
                    }
                },
            };
            if low < from || high > to || low > high {
                return None;
            }
            bits |= Numbers::from_numbers((low..=high).step_by(step), from, to)?.0;
        }
        Some(Numbers(bits))
    }

    /// Returns the numbers in ascending order.
    pub fn list(self) -> Vec<u32> {
        (0..64).filter(|number| self.contains(*number)).collect()
    }

    fn contains(self, number: u32) -> bool {
        number < 64 && self.0 >> number & 1 == 1
    }
}

/// The times at which something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// At multiples of so many seconds since 1970.
    Every(u32),
    /// At each minute that is in all sets. If days of the month and of the week are both limited,
    /// either suffices, as in crontab(5).
    At {
        /// Minutes of the hour, 0 ..= 59.
        minutes: Numbers,
        /// Hours of the day, 0 ..= 23.
        hours: Numbers,
        /// Days of the month, 1 ..= 31.
        days: Numbers,
        /// Months of the year, 1 ..= 12.
        months: Numbers,
        /// Days of the week, 0 (Sunday) ..= 6.
        weekdays: Numbers,
    },
}

const EVERY_DAY: Numbers = Numbers::from_range(1, 31);
const EVERY_MONTH: Numbers = Numbers::from_range(1, 12);
const EVERY_WEEKDAY: Numbers = Numbers::from_range(0, 6);
const EVERY_HOUR: Numbers = Numbers::from_range(0, 23);

impl Schedule {
    /// Returns the schedule for a minute of each hour.
    pub const fn hourly(minute: u32) -> Schedule {
        Schedule::At {
            minutes: Numbers::one(minute),
            hours: EVERY_HOUR,
            days: EVERY_DAY,
            months: EVERY_MONTH,
            weekdays: EVERY_WEEKDAY,
        }
    }

    /// Returns the schedule for a time of each day.
    pub const fn daily(hour: u32, minute: u32) -> Schedule {
        Schedule::At {
            minutes: Numbers::one(minute),
            hours: Numbers::one(hour),
            days: EVERY_DAY,
            months: EVERY_MONTH,
            weekdays: EVERY_WEEKDAY,
        }
    }

    /// Returns the schedule for a time on days of the week.
    pub const fn weekly(weekdays: Numbers, hour: u32, minute: u32) -> Schedule {
        Schedule::At {
            minutes: Numbers::one(minute),
            hours: Numbers::one(hour),
            days: EVERY_DAY,
            months: EVERY_MONTH,
            weekdays,
        }
    }

    /// Returns the schedule for a time on days of the month.
    pub const fn monthly(days: Numbers, hour: u32, minute: u32) -> Schedule {
        Schedule::At {
            minutes: Numbers::one(minute),
            hours: Numbers::one(hour),
            days,
            months: EVERY_MONTH,
            weekdays: EVERY_WEEKDAY,
        }
    }

    /// Parses the five fields of crontab(5): minute, hour, day of the month, month, day of the
    /// week.
    pub fn cron(text: &str) -> Option<Schedule> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return None;
        };
        Some(Schedule::At {
            minutes: Numbers::parse(minutes, 0, 59)?,
            hours: Numbers::parse(hours, 0, 23)?,
            days: Numbers::parse(days, 1, 31)?,
            months: Numbers::parse(months, 1, 12)?,
            weekdays: Numbers::parse(weekdays, 0, 6)?,
        })
    }

    /// Returns the first slot after `after`, both in seconds since 1970; `None` if there is none
    /// (30 February).
    pub fn next(&self, after: i64) -> Option<i64> {
        let Schedule::At { minutes, hours, .. } = self else {
            let Schedule::Every(seconds) = self else {
                return None;
            };
            let seconds = i64::from(*seconds).max(1);
            return after
                .div_euclid(seconds)
                .checked_add(1)?
                .checked_mul(seconds);
        };
        let first = after.div_euclid(60).checked_add(1)?;
        let (day, minute) = (first.div_euclid(24 * 60), first.rem_euclid(24 * 60));
        let mut today = date(first.checked_mul(60)?)?;
        for ahead in 0..=FARTHEST_DAYS {
            let from = if ahead == 0 { minute } else { 0 };
            let found = (from..24 * 60)
                .find(|m| hours.contains((m / 60) as u32) && minutes.contains((m % 60) as u32));
            match found {
                Some(found) if self.on_day(today) => {
                    return Some(((day + ahead) * 24 * 60 + found) * 60);
                }
                _ => today = today.tomorrow().ok()?,
            }
        }
        None
    }

    fn on_day(&self, day: Date) -> bool {
        let Schedule::At {
            days,
            months,
            weekdays,
            ..
        } = self
        else {
            return true;
        };
        let in_month = days.contains(day.day() as u32);
        let in_week = weekdays.contains(day.weekday().to_sunday_zero_offset() as u32);
        let either = *days != EVERY_DAY && *weekdays != EVERY_WEEKDAY;
        months.contains(day.month() as u32)
            && if either {
                in_month || in_week
            } else {
                in_month && in_week
            }
    }
}

/// Returns the UTC date of a second since 1970; `None` beyond the years that `jiff` knows (-9999 to
/// 9999).
fn date(second: i64) -> Option<Date> {
    let at = Timestamp::from_second(second).ok()?;
    Some(TimeZone::UTC.to_datetime(at).date())
}

/// Returns true if a run is due at `now`. `last` is the time of the last run; `None` is never, and
/// then the first slot after `since` counts. All times are seconds since 1970.
pub fn due(schedule: &Schedule, last: Option<i64>, since: i64, now: i64) -> bool {
    let from = last.unwrap_or(since).min(now);
    schedule.next(from).is_some_and(|slot| slot <= now)
}

/// Returns the built-in schedules: ONTAP's name, the times, and ONTAP's description.
pub fn built_in_schedules() -> Vec<(&'static str, Schedule, &'static str)> {
    vec![
        (
            "5min",
            Schedule::Every(300),
            "@:00,:05,:10,:15,:20,:25,:30,:35,:40,:45,:50,:55",
        ),
        ("10min", Schedule::Every(600), "@:00,:10,:20,:30,:40,:50"),
        ("hourly", Schedule::hourly(5), "@:05"),
        (
            "8hour",
            Schedule::At {
                minutes: Numbers::one(15),
                hours: Numbers(1 << 2 | 1 << 10 | 1 << 18),
                days: EVERY_DAY,
                months: EVERY_MONTH,
                weekdays: EVERY_WEEKDAY,
            },
            "@2:15,10:15,18:15",
        ),
        ("daily", Schedule::daily(0, 10), "@0:10"),
        (
            "weekly",
            Schedule::weekly(Numbers::one(0), 0, 15),
            "Sun@0:15",
        ),
        (
            "monthly",
            Schedule::monthly(Numbers::one(1), 0, 20),
            "1@0:20",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 May 2023, 10:41:30, a Thursday.
    const NOW: i64 = 1_683_196_890;
    const DAY: i64 = 86_400;
    const MIDNIGHT: i64 = NOW - NOW % DAY;

    #[test]
    fn slots() {
        let at = |day: i64, hour: i64, minute: i64| {
            Some(MIDNIGHT + day * DAY + hour * 3600 + minute * 60)
        };
        let of = |name: &str| {
            built_in_schedules()
                .into_iter()
                .find(|(n, ..)| *n == name)
                .unwrap()
                .1
        };
        assert_eq!(of("5min").next(NOW), at(0, 10, 45));
        assert_eq!(of("hourly").next(NOW), at(0, 11, 5));
        assert_eq!(of("8hour").next(NOW), at(0, 18, 15));
        assert_eq!(of("daily").next(NOW), at(1, 0, 10));
        assert_eq!(of("weekly").next(NOW), at(3, 0, 15), "Sunday, 7 May");
        assert_eq!(of("monthly").next(NOW), at(28, 0, 20), "1 June");
        let slot = of("daily").next(NOW).unwrap();
        assert_eq!(
            of("daily").next(slot),
            Some(slot + DAY),
            "a slot is not its own successor"
        );
        assert_eq!(
            Schedule::cron("30 12 29 2 *").unwrap().next(NOW),
            Some(1_709_209_800),
            "29 February 2024, 12:30"
        );
        assert_eq!(Schedule::cron("0 0 30 2 *").unwrap().next(NOW), None);
        // Either suffices where both are limited: the 6th, or a Monday.
        let either = Schedule::cron("0 0 6 * 1").unwrap();
        assert_eq!(either.next(NOW), at(2, 0, 0));
        assert_eq!(either.next(NOW + 2 * DAY), at(4, 0, 0));
    }

    #[test]
    fn what_cron_refuses() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "* * * * * *",
            "1,,2 * * * *",
        ] {
            assert_eq!(Schedule::cron(text), None, "{text}");
        }
        assert_eq!(
            Schedule::cron("*/15 8-10 * * 1-5").unwrap().next(NOW),
            Some(NOW - NOW % 60 + 4 * 60),
            "10:45, a Thursday"
        );
    }

    #[test]
    fn missed_runs_collapse_and_clocks_may_jump() {
        let hourly = Schedule::hourly(5);
        assert!(!due(&hourly, Some(NOW - 60), NOW - DAY, NOW));
        assert!(due(&hourly, Some(NOW - 3600), NOW - DAY, NOW));
        assert!(
            due(&hourly, Some(NOW - 30 * DAY), 0, NOW),
            "once, however many were missed"
        );
        assert!(!due(&hourly, Some(NOW), 0, NOW), "and then not again");
        assert!(
            !due(&hourly, None, NOW, NOW),
            "never ran: its first slot is ahead"
        );
        assert!(due(&hourly, None, NOW - 3600, NOW));
        // The clock was set back by a day: there is no second run in this slot, and the next slot
        // is not a day away.
        assert!(!due(&hourly, Some(NOW + DAY), 0, NOW));
        assert!(due(&hourly, Some(NOW), 0, NOW + 3600));
    }
}
