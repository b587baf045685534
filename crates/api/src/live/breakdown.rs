//! Split of the time of a volume's operations by cause, as figures and as a sentence.

use super::book::Heat;
use super::heat::{OperationTimes, WAITS};
use super::rounded;
use crate::words::{Language, Words};
use serde_json::{Map, Value, json};

/// Part of the time from which on a cause is the answer by itself.
const MOST: f32 = 0.5;
/// Part of the time below which limits do not matter.
const LITTLE: f32 = 0.05;

/// Names of the causes in sentences, in the order of [`WAITS`].
const CAUSES: [(&str, &str); WAITS.len()] = [
    ("its pool's limit", "プールの上限"),
    ("the volume's own limit", "ボリュームの上限"),
    ("the limit of single clients", "クライアントの上限"),
    ("the intent log", "インテント ログ"),
    ("the device", "デバイス"),
    ("what other clients hold", "ほかのクライアントの占有"),
];
/// The first causes are limits.
const LIMITS: usize = 3;

/// Returns the sum over all columns that the server looked at.
fn sum(heat: &Heat) -> OperationTimes {
    let mut sum = OperationTimes::default();
    for column in heat.columns.iter().flatten() {
        sum.add(&column.spent);
    }
    sum
}

/// Returns a latency as people write it.
fn time(seconds: f32) -> String {
    let (value, unit) = match seconds {
        s if s < 0.000_995 => (s * 1e6, "µs"),
        s if s < 0.9995 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    match value < 9.95 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    }
}

fn percent(part: f32) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Returns the sentence that says where the time goes, and one that says what follows.
fn words(spent: &OperationTimes) -> (Words, Words) {
    if spent.count <= 0.0 || spent.operations <= 0.0 {
        let nothing = Words::new(
            "Nothing has used it in the last minute.",
            "直近 1 分は使われていません。",
        );
        return (nothing, Words::default());
    }
    let part = |seconds: f32| (seconds / spent.operations).clamp(0.0, 1.0);
    let mean = time(spent.operations / spent.count);
    let waits = || spent.waits.iter().zip(CAUSES).enumerate();
    let longest = waits().max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
    let Some((at, (longest, (cause, cause_ja)))) = longest else {
        return (Words::default(), Words::default());
    };
    let limits: f32 = spent.waits.iter().take(LIMITS).sum();
    let most = percent(part(*longest));
    if part(*longest) >= MOST {
        let rest = time((spent.operations - longest).max(0.0) / spent.count);
        let headline = Words::new(
            format!("{most} of an operation's time is waiting for {cause}."),
            format!("操作の時間の {most} は{cause_ja}を待つ時間です。"),
        );
        let more = if at < LIMITS {
            Words::new(
                format!("Without that wait an operation takes {rest}."),
                format!("その待ちがなければ {rest} です。"),
            )
        } else {
            Words::new(
                format!("An operation takes {mean} on the average."),
                format!("操作は平均 {mean} かかります。"),
            )
        };
        return (headline, more);
    }
    let headline = if part(limits) < LITTLE {
        Words::new(
            format!("An operation takes {mean}; no limit holds it back."),
            format!("操作は {mean} で終わり、上限による待ちはありません。"),
        )
    } else {
        let held = percent(part(limits));
        Words::new(
            format!("An operation takes {mean}, of which {held} is waiting for limits."),
            format!("操作は {mean} かかり、その {held} は上限を待つ時間です。"),
        )
    };
    let more = if part(*longest) >= LITTLE {
        Words::new(
            format!("The longest wait is for {cause}: {most}."),
            format!("最も長い待ちは{cause_ja}で、{most} です。"),
        )
    } else {
        Words::new(
            "Almost all of it is the server's own work.",
            "ほとんどはサーバー自身の処理です。",
        )
    };
    (headline, more)
}

/// Adds to a response where the time of an operation went, over the columns of `heat`.
pub(super) fn add_to(out: &mut Map<String, Value>, heat: &Heat, language: Language) {
    let spent = sum(heat);
    let each = |seconds: f32| match spent.count > 0.0 {
        true => rounded(f64::from(seconds / spent.count)),
        false => json!(0),
    };
    let waits = WAITS.iter().zip(spent.waits);
    let waits: Map<String, Value> = waits
        .map(|(cause, seconds)| ((*cause).to_owned(), each(seconds)))
        .collect();
    let (headline, more) = words(&spent);
    out.insert("headline".to_owned(), json!(headline.text(language)));
    out.insert("details".to_owned(), json!(more.text(language)));
    out.insert(
        "recent".to_owned(),
        json!({
            "seconds": heat.columns.len() as u64 * heat.step,
            "operations": rounded(f64::from(spent.count)),
            "meanSeconds": each(spent.operations),
            "waitSeconds": waits,
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::super::heat::Column;
    use super::*;

    fn operation_times(count: f32, operations: f32, waits: [f32; WAITS.len()]) -> OperationTimes {
        OperationTimes {
            count,
            operations,
            waits,
        }
    }

    fn english(spent: &OperationTimes) -> (String, String) {
        let (headline, more) = words(spent);
        (headline.to_string(), more.to_string())
    }

    #[test]
    fn the_longest_wait_is_the_answer() {
        let (headline, more) = english(&operation_times(
            100.0,
            1.0,
            [0.03, 0.81, 0.0, 0.07, 0.05, 0.0],
        ));
        assert_eq!(
            headline,
            "81 % of an operation's time is waiting for the volume's own limit."
        );
        assert_eq!(more, "Without that wait an operation takes 1.9 ms.");
        let (headline, _) = words(&operation_times(
            100.0,
            1.0,
            [0.03, 0.81, 0.0, 0.07, 0.05, 0.0],
        ));
        assert_eq!(
            headline.text(Language::Japanese),
            "操作の時間の 81 % はボリュームの上限を待つ時間です。"
        );
        let (headline, more) = english(&operation_times(
            100.0,
            0.1,
            [0.0, 0.0, 0.0, 0.06, 0.0, 0.0],
        ));
        assert_eq!(
            headline,
            "60 % of an operation's time is waiting for the intent log."
        );
        assert_eq!(more, "An operation takes 1.0 ms on the average.");
        let (headline, more) = english(&operation_times(1000.0, 0.1, [0.0; WAITS.len()]));
        assert_eq!(
            headline,
            "An operation takes 100 µs; no limit holds it back."
        );
        assert_eq!(more, "Almost all of it is the server's own work.");
        let (headline, more) =
            english(&operation_times(10.0, 30.0, [3.0, 6.0, 0.0, 1.0, 9.0, 0.0]));
        assert_eq!(
            headline,
            "An operation takes 3.0 s, of which 30 % is waiting for limits."
        );
        assert_eq!(more, "The longest wait is for the device: 30 %.");
        let (headline, _) = english(&OperationTimes::default());
        assert_eq!(headline, "Nothing has used it in the last minute.");
        // A wait may be counted a moment before its operation.
        let (headline, _) = english(&operation_times(1.0, 0.5, [0.0, 0.0, 0.0, 0.6, 0.0, 0.0]));
        assert!(headline.starts_with("100 % of"), "{headline}");
    }

    #[test]
    fn figures_are_means_of_an_operation() {
        let column = Column {
            spent: operation_times(4.0, 2.0, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
            ..Column::default()
        };
        let heat = Heat {
            step: 5,
            end: 100,
            columns: vec![None, Some(column), Some(column)],
        };
        let mut out = Map::new();
        add_to(&mut out, &heat, Language::English);
        let recent = &out["recent"];
        assert_eq!(recent["operations"], 8);
        assert_eq!(recent["seconds"], 15);
        assert_eq!(recent["meanSeconds"], 0.5);
        assert_eq!(recent["waitSeconds"]["volume"], 0.25);
        assert_eq!(recent["waitSeconds"]["claim"], 0);
    }
}
