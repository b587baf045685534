//! Sentences on what a change would give, and on what would fit where it does not.

use weir_control::Refusal;
use weir_control::figures::PoolFigures;

use crate::words::Words;

/// Returns a number as people write it: whole, or with one decimal.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Says which limit a volume would have, in MiB/s, and where it would come from.
pub fn of_volume(mibps: Option<f64>, source: Option<&str>) -> Words {
    let Some(mibps) = mibps else {
        return Words::new(
            "It fits, and has no limit of its own.",
            "可能です。固有の上限はありません。",
        );
    };
    let n = number(mibps);
    match source {
        Some(source) => Words::new(
            format!("It fits: {n} MiB/s ({source})."),
            format!("可能です：{n} MiB/s（{source}）。"),
        ),
        None => Words::new(
            format!("It fits: {n} MiB/s."),
            format!("可能です：{n} MiB/s。"),
        ),
    }
}

/// Says what a pool would have, and what of it would be unallocated: throughput, or where that is
/// not allocated its `capacity` in GiB, of which `left` are.
pub fn of_pool((capacity, left): (u64, u64), figures: &PoolFigures) -> Words {
    let throughput = figures.total_throughput_mibps;
    let (total, free, unit) = match (throughput, figures.available_throughput_mibps) {
        (Some(total), Some(free)) => (total, free, "MiB/s"),
        _ => (capacity as f64, left as f64, "GiB"),
    };
    let (total, free) = (number(total), number(free));
    Words::new(
        format!("It fits: the pool has {total} {unit}, {free} of them unallocated."),
        format!("可能です：プールは {total} {unit}、うち未割り当ては {free} です。"),
    )
}

/// Says what would fit instead of what was asked for, by the numbers of the refusal. `None`: it is
/// not about an amount.
pub fn of_refusal(refusal: &Refusal) -> Option<Words> {
    let value = |name: &str| -> Option<f64> {
        let mut all = refusal.metadata.iter();
        let (_, value) = all.find(|(key, _)| key == name)?;
        value.parse().ok()
    };
    let amounts = [
        (
            "requestedThroughputMibps",
            "availableThroughputMibps",
            "MiB/s",
        ),
        ("requestedThroughputMibps", "maxThroughputMibps", "MiB/s"),
        ("requestedGib", "availableGib", "GiB"),
    ];
    let of = |(asked, most, unit)| Some((value(asked)?, value(most)?, unit));
    let (asked, most, unit) = amounts.into_iter().find_map(of)?;
    let asked = number(asked);
    // Amounts are whole.
    let most = most.floor();
    if most < 1.0 {
        return Some(Words::new(
            format!("{asked} {unit} do not fit: nothing is left."),
            format!("{asked} {unit} は入りません。残りがありません。"),
        ));
    }
    let most = number(most);
    Some(Words::new(
        format!("{asked} {unit} do not fit, {most} do."),
        format!("{asked} {unit} は入りません。{most} なら可能です。"),
    ))
}

#[cfg(test)]
mod tests {
    use weir_control::Status;

    use super::*;
    use crate::words::Language;

    fn refusal(numbers: &[(&'static str, &str)]) -> Refusal {
        let refusal = Refusal::new(Status::FailedPrecondition, "X", "too much");
        let with =
            |refusal: Refusal, (name, value): &(&'static str, &str)| refusal.with(name, value);
        numbers.iter().fold(refusal, with)
    }

    #[test]
    fn a_refusal_says_what_fits() {
        for (numbers, expected) in [
            (
                &[
                    ("requestedThroughputMibps", "500"),
                    ("availableThroughputMibps", "384.5"),
                ][..],
                Some("500 MiB/s do not fit, 384 do."),
            ),
            (
                &[
                    ("requestedThroughputMibps", "0.5"),
                    ("availableThroughputMibps", "0.25"),
                ],
                Some("0.5 MiB/s do not fit: nothing is left."),
            ),
            (
                &[
                    ("requestedThroughputMibps", "5000"),
                    ("maxThroughputMibps", "4700"),
                ],
                Some("5000 MiB/s do not fit, 4700 do."),
            ),
            (
                &[
                    ("requestedGib", "2048"),
                    ("availableGib", "1024"),
                    ("poolGibNeeded", "3072"),
                ],
                Some("2048 GiB do not fit, 1024 do."),
            ),
            (&[("availableGib", "1024")], None),
            (&[], None),
        ] {
            let words = of_refusal(&refusal(numbers));
            let english = words.as_ref().map(|words| words.text(Language::English));
            assert_eq!(english, expected);
        }
    }

    #[test]
    fn a_volume_is_told_its_limit_and_where_that_comes_from() {
        let says = |words: Words| words.text(Language::English).to_owned();
        assert_eq!(
            says(of_volume(Some(64.0), Some("EXTREME"))),
            "It fits: 64 MiB/s (EXTREME)."
        );
        assert_eq!(says(of_volume(Some(0.5), None)), "It fits: 0.5 MiB/s.");
        assert_eq!(
            says(of_volume(None, None)),
            "It fits, and has no limit of its own."
        );
    }
}
