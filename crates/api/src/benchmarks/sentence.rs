//! The sentence that sums a run up.

use serde_json::{Value, json};

use super::Summary;
use crate::words::Words;

/// A tier of published figures, and how many reach its own.
type Tier = (String, Reach);

/// Figures beside published ones: how many reach theirs, and the least and the greatest multiple.
#[derive(Debug, PartialEq)]
pub(super) struct Reach {
    pub figures: usize,
    pub reached: usize,
    least: f64,
    greatest: f64,
}

impl Reach {
    pub fn from_ratios(ratios: impl Iterator<Item = f64>) -> Option<Reach> {
        let none = Reach {
            figures: 0,
            reached: 0,
            least: f64::INFINITY,
            greatest: 0.0,
        };
        let all = ratios
            .filter(|r| r.is_finite())
            .fold(none, |sum, ratio| Reach {
                figures: sum.figures + 1,
                reached: sum.reached + usize::from(ratio >= 1.0),
                least: sum.least.min(ratio),
                greatest: sum.greatest.max(ratio),
            });
        (all.figures > 0).then_some(all)
    }

    /// Says how many do, as the beginning of a sentence.
    fn words(&self, of: &str) -> String {
        match (self.reached, self.figures) {
            (1, 1) => format!("The one figure reaches the published one of {of}"),
            (_, 1) => format!("The one figure does not reach the published one of {of}"),
            (0, n) => format!("None of {n} figures reaches the published one of {of}"),
            (k, n) if k == n => format!("All {n} figures reach the published ones of {of}"),
            (1, n) => format!("1 of {n} figures reaches the published one of {of}"),
            (k, n) => format!("{k} of {n} figures reach the published ones of {of}"),
        }
    }

    /// Says how many do, of figures that were named before.
    fn count(&self) -> String {
        match (self.reached, self.figures) {
            (0, _) => "none does".to_owned(),
            (k, n) if k == n => "all do".to_owned(),
            (k, n) => format!("{k} of {n} do"),
        }
    }

    /// Says how many do, in Japanese.
    fn japanese(&self) -> String {
        let (reached, figures) = (self.reached, self.figures);
        let (shown, unit): (fn(f64) -> String, _) = match self.greatest < TIMES {
            true => (percent, ""),
            false => (times, " 倍"),
        };
        let range = match (shown(self.least), shown(self.greatest)) {
            (least, greatest) if least == greatest => format!("{least}{unit}"),
            (least, greatest) => format!("{least}〜{greatest}{unit}"),
        };
        format!("{figures} 個中 {reached} 個です（{range}）。")
    }

    fn range(&self) -> String {
        let (shown, unit): (fn(f64) -> String, _) = match self.greatest < TIMES {
            true => (percent, "of it"),
            false => (times, "times it"),
        };
        match (shown(self.least), shown(self.greatest)) {
            (least, greatest) if least == greatest => format!("{least} {unit}"),
            (least, greatest) => format!("{least} to {greatest} {unit}"),
        }
    }

    /// Describes the comparison for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "figures": self.figures,
            "reached": self.reached,
            "leastRatio": self.least,
            "greatestRatio": self.greatest,
        })
    }
}

/// Multiple of a published figure from which on it is no longer written in percent.
const TIMES: f64 = 9.95;

/// Writes a multiple of a published figure in percent.
fn percent(ratio: f64) -> String {
    match ratio {
        small if small < 0.00995 => format!("{:.1} %", small * 100.0),
        part => format!("{:.0} %", part * 100.0),
    }
}

/// Writes a multiple as a number.
fn times(ratio: f64) -> String {
    match ratio {
        small if small < TIMES => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

impl Summary {
    /// Returns the sentence that sums the run up.
    pub(super) fn sentence(&self) -> Words {
        Words::new(self.english(), self.japanese())
    }

    fn english(&self) -> String {
        let set = self.published.as_ref().map_or("", |p| p.set.as_str());
        let comparison = self.comparison();
        let mut out = match (&comparison.whole, &comparison.per_core) {
            (Some(whole), Some(per_core)) => format!(
                "{} ({}); per core of the clients {} ({}).",
                whole.words(set),
                whole.range(),
                per_core.count(),
                per_core.range()
            ),
            (Some(whole), None) => format!("{} ({}).", whole.words(set), whole.range()),
            (None, _) => english_tiers(&comparison.tiers).unwrap_or_else(|| {
                let n = self.rows().count();
                format!("{n} figures, and none is published beside them.")
            }),
        };
        match (self.state.as_str(), &self.reason) {
            ("interrupted", _) => out.push_str(" The run was interrupted."),
            ("running", _) => out.push_str(" The run has not ended."),
            ("failed", Some(why)) => out.push_str(&format!(" The run ended early: {why}.")),
            _ => {}
        }
        out
    }

    fn japanese(&self) -> String {
        let set = self.published.as_ref().map_or("", |p| p.set.as_str());
        let comparison = self.comparison();
        let mut out = match &comparison.whole {
            Some(whole) => format!("{set} の公表値に達した値は {}", whole.japanese()),
            None => japanese_tiers(&comparison.tiers).unwrap_or_else(|| {
                let n = self.rows().count();
                format!("値は {n} 個で、並べられる公表値はありません。")
            }),
        };
        if let (Some(_), Some(per_core)) = (&comparison.whole, &comparison.per_core) {
            out += "クライアントのコアあたりでは ";
            out += &per_core.japanese();
        }
        match (self.state.as_str(), &self.reason) {
            ("interrupted", _) => out.push_str("実行は中断されました。"),
            ("running", _) => out.push_str("実行中です。"),
            ("failed", Some(why)) => out.push_str(&format!("途中で終了しました：{why}。")),
            _ => {}
        }
        out
    }
}

/// Returns the highest of several tiers that all figures reach, and the next.
fn steps(all: &[Tier]) -> (Option<&Tier>, Option<&Tier>) {
    let whole = all.iter().rposition(|(_, r)| r.reached == r.figures);
    let next = all.get(whole.map_or(0, |at| at + 1));
    (whole.and_then(|at| all.get(at)), next)
}

/// Says which of several tiers all figures reach, and how far the next is.
fn english_tiers(all: &[Tier]) -> Option<String> {
    let (first, next) = steps(all);
    let next = next.map(|(name, r)| format!("{} of {} reach {name}", r.reached, r.figures));
    let first = first.map(|(name, r)| format!("All {} figures reach {name}", r.figures));
    let parts: Vec<String> = first.into_iter().chain(next).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// Says the same in Japanese.
fn japanese_tiers(all: &[Tier]) -> Option<String> {
    let (first, next) = steps(all);
    let first = first.map(|(name, r)| format!("全 {} 個の値が {name} に達しています。", r.figures));
    let next =
        next.map(|(name, r)| format!("{name} には {} 個中 {} 個です。", r.figures, r.reached));
    let parts: String = first.into_iter().chain(next).collect();
    (!parts.is_empty()).then_some(parts)
}
