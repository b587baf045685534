//! Previous versions: snapshots by the second at which they were taken (MS-SMB2 §2.2.32.2,
//! §3.3.5.15.1).
//!
//! A client lists the times of a file's snapshots and opens one by its time: in a create context,
//! or in a path whose first name is `@GMT-YYYY.MM.DD-HH.MM.SS`. Files in a snapshot cannot be
//! changed. Of two snapshots of one second the later one counts.

use crate::context::run::{Failure, Run};
use crate::open::session::{Access, File, Open, Session};
use crate::proto::status::Status;
use weir_auth::wire::{Put, from_filetime};
use weir_base::Time;
use weir_vfs::{MetadataRead, Stop};

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS.
pub(crate) const ENUMERATE: u32 = 0x0014_4064;
/// Characters of a time.
const LEN: usize = "@GMT-2000.01.01-00.00.00".len();
const DAY: i64 = 86_400;

/// The day of a date of the Gregorian calendar, counted from 1970 (H. Hinnant, "chrono-compatible
/// low-level date algorithms").
fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// A second as clients write it.
fn token(secs: i64) -> String {
    let (year, month, day) = date_of(secs.div_euclid(DAY));
    let of_day = secs.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("@GMT-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}")
}

/// The second that a client wrote; `None`: it is no time.
fn second_of(token: &str) -> Option<i64> {
    let digits = token.strip_prefix("@GMT-").filter(|_| token.len() == LEN)?;
    let mut numbers = digits.split(['.', '-']).map(|n| n.parse::<i64>().ok());
    let mut next = || numbers.next().flatten();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let whole = day_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    // Only a time that is written so.
    (self::token(whole) == token).then_some(whole)
}

/// Takes the time off a path that begins with one.
pub(crate) fn split(path: &str) -> (Option<i64>, &str) {
    let (first, rest) = path.split_once('\\').unwrap_or((path, ""));
    match second_of(first) {
        Some(second) => (Some(second), rest),
        None => (None, path),
    }
}

/// The second of a TWrp create context (§2.2.13.2.7).
pub(crate) fn of_context(filetime: u64) -> Option<i64> {
    from_filetime(filetime).map(|Time { secs, .. }| secs)
}

impl Run<'_> {
    /// FSCTL_SRV_ENUMERATE_SNAPSHOTS: the times of the snapshots, the newest first, as many as fit;
    /// or how much room they need.
    pub(crate) fn enumerate_snapshots(
        &mut self,
        session: &Session,
        open: &Open,
        file: &File,
        most: usize,
    ) -> Result<(Status, Vec<u8>), Stop<Failure>> {
        if most < 16 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (operand, _) = self.enter(session, file.id, Access::Open(open), MetadataRead)?;
        let mut seconds: Vec<i64> = operand.snapshots().iter().map(|(at, _)| at.secs).collect();
        seconds.sort_unstable_by(|a, b| b.cmp(a));
        seconds.dedup();
        let mut names = Vec::new();
        for second in &seconds {
            names.put_utf16(&token(*second));
            names.put_u16(0);
        }
        names.put_u16(0);
        let fits = 12 + names.len() <= most && !seconds.is_empty();
        let mut out = Vec::new();
        out.put_u32(seconds.len() as u32);
        out.put_u32(if fits { seconds.len() as u32 } else { 0 });
        out.put_u32(names.len() as u32);
        match fits {
            true => out.put(&names),
            // The least that the clause lets a response have.
            false => out.put_u32(0),
        }
        Ok((Status::SUCCESS, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_and_read() {
        for (second, text) in [
            (0, "@GMT-1970.01.01-00.00.00"),
            (951_782_400, "@GMT-2000.02.29-00.00.00"),
            (1_763_913_599, "@GMT-2025.11.23-15.59.59"),
            (4_102_444_799, "@GMT-2099.12.31-23.59.59"),
        ] {
            assert_eq!(
                (token(second), second_of(text)),
                (text.to_owned(), Some(second))
            );
        }
        for day in -1000..40_000 {
            let (y, m, d) = date_of(day);
            assert_eq!(day_of(y, m, d), day);
        }
        for bad in [
            "@GMT-2001.02.29-00.00.00",
            "@GMT-2000.1.1-0.0.0",
            "@GMT-",
            "x",
            "",
        ] {
            assert_eq!(second_of(bad), None, "{bad}");
        }
        assert_eq!(split("@GMT-1970.01.01-00.00.01\\a\\b"), (Some(1), "a\\b"));
        assert_eq!(split("@GMT-1970.01.01-00.00.01"), (Some(1), ""));
        assert_eq!(
            split("a\\@GMT-1970.01.01-00.00.01"),
            (None, "a\\@GMT-1970.01.01-00.00.01")
        );
    }
}
