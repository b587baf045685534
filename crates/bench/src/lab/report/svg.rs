//! Charts as inline SVG: grouped bars with their spread, and lines.
//!
//! Drawn here rather than by a script in the page, so that they print, open without a network, and
//! are the same everywhere. Colours are CSS variables of the page (light and dark); series differ
//! in dashes and lightness as well, for paper without colours. The view box is small and scales
//! with the page, so that a phone shows text at a legible size.

use super::super::units::thousands;
use std::fmt::Write as _;

/// Width and height of a chart, in its own units (about a pixel on a phone).
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 10.0;
/// A character of a figure above a bar is this wide at most (digits of 10.5 units in common
/// sans-serif fonts: 6).
const FIGURE_WIDTH: f64 = 6.6;
/// Two figures this far apart in height do not touch.
const FIGURE_HEIGHT: f64 = 13.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;
/// Series that have a colour of their own.
pub const COLOURS: usize = 6;

/// Text escaped for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters other than white space are not allowed in HTML.
            c if c.is_control() && !c.is_whitespace() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number on an axis, short.
fn short(v: f64) -> String {
    let (v, unit) = match v.abs() {
        a if a >= 1e6 => (v / 1e6, "M"),
        a if a >= 1e4 => (v / 1e3, "k"),
        _ => (v, ""),
    };
    let text = if v.fract().abs() < 1e-9 || v.abs() >= 100.0 {
        thousands(v.round())
    } else if v.abs() >= 1.0 {
        format!("{v:.1}")
    } else {
        // 0.05, 0.002, but not 0.6000000000000001.
        let text = format!("{v:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    format!("{text}{unit}")
}

/// Round steps from 0 to at least `most`: 1, 2 or 5 times a power of ten, five or so.
fn ticks(most: f64) -> Vec<f64> {
    if most.is_nan() || most <= 0.0 || most.is_infinite() {
        return vec![0.0, 1.0];
    }
    let rough = most / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough * 0.999)
        .unwrap_or(power * 10.0);
    let count = (most / step).ceil() as usize;
    (0..=count).map(|i| i as f64 * step).collect()
}

/// Powers of ten around the values; at least one decade.
fn decades(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for v in values.filter(|v| *v > 0.0 && v.is_finite()) {
        least = least.min(v);
        most = most.max(v);
    }
    if most <= 0.0 {
        return vec![1.0, 10.0];
    }
    let low = least.log10().floor() as i32;
    let high = (most.log10().ceil() as i32).max(low + 1);
    (low..=high).map(|e| 10f64.powi(e)).collect()
}

/// Maps values to heights.
struct YAxis {
    ticks: Vec<f64>,
    log: bool,
}

impl YAxis {
    fn linear(most: f64) -> Self {
        Self {
            ticks: ticks(most),
            log: false,
        }
    }

    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        Self {
            ticks: decades(values),
            log: true,
        }
    }

    fn y(&self, v: f64) -> f64 {
        let first = self.ticks.first().copied().unwrap_or(0.0);
        let last = self.ticks.last().copied().unwrap_or(1.0);
        let share = if self.log {
            (v.max(first).log10() - first.log10()) / (last.log10() - first.log10())
        } else {
            v / last
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, out: &mut String, unit: &str) {
        for t in &self.ticks {
            let y = self.y(*t);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 5.0,
                y + 4.0,
                short(*t)
            );
        }
        let _ = write!(
            out,
            "<text class=\"unit\" x=\"4\" y=\"10\">{}</text>",
            escape(unit)
        );
    }
}

fn x_label(out: &mut String, text: &str) {
    let _ = write!(
        out,
        "<text class=\"unit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escape(text)
    );
}

fn figure(title: &str, svg: &str, series: &[(String, usize)], dashes: bool) -> String {
    let mut legend = String::new();
    if series.len() > 1 {
        for (name, colour) in series {
            let kind = if dashes { "line" } else { "box" };
            let _ = write!(
                legend,
                "<li><svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\">{}</svg>{}</li>",
                if dashes {
                    format!(
                        "<line class=\"{kind} s{}\" x1=\"0\" x2=\"22\" y1=\"5\" y2=\"5\"/>",
                        colour % COLOURS
                    )
                } else {
                    format!(
                        "<rect class=\"{kind} s{}\" width=\"22\" height=\"10\"/>",
                        colour % COLOURS
                    )
                },
                escape(name)
            );
        }
        legend = format!("<ul class=\"legend\">{legend}</ul>");
    }
    format!(
        "<figure class=\"chart\"><figcaption>{t}</figcaption>\
         <svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{t}\">{svg}</svg>{legend}</figure>\n",
        t = escape(title)
    )
}

/// A bar: its value, and the extremes of the repetitions.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Height of the bar.
    pub value: f64,
    /// The least of the repetitions.
    pub least: f64,
    /// The greatest of the repetitions.
    pub greatest: f64,
}

/// A chart of grouped bars.
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Unit of the heights.
    pub unit: String,
    /// Quantity in which the groups differ.
    pub x: String,
    /// Names of the bars in a group.
    pub series: Vec<String>,
    /// Name of each group, and a bar (or none) for each series.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
    /// A line across at this height, such as 1 for ratios.
    pub mark: Option<f64>,
}

impl Bars {
    /// The chart; empty when there is nothing in it.
    pub fn draw(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, b)| b.iter().flatten());
        if bars().next().is_none() {
            return String::new();
        }
        let most = bars().map(|b| b.greatest.max(b.value)).fold(0.0, f64::max);
        let axis = YAxis::linear(most.max(self.mark.unwrap_or(0.0)));
        let mut svg = String::new();
        axis.draw(&mut svg, &self.unit);
        x_label(&mut svg, &self.x);
        let group_width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let width = (group_width * 0.8 / self.series.len().max(1) as f64).min(44.0);
        // Where the last figure ends, and its height.
        let mut taken = (0.0, 0.0);
        if let Some(mark) = self.mark {
            let y = axis.y(mark);
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
        }
        for (g, (name, bars)) in self.groups.iter().enumerate() {
            let middle = LEFT + group_width * (g as f64 + 0.5);
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM + 15.0,
                escape(name)
            );
            let first = middle - width * bars.len() as f64 / 2.0;
            for (i, bar) in bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let x = first + width * i as f64;
                let y = axis.y(bar.value);
                let series = self.series.get(i).map_or("", String::as_str);
                let _ = write!(
                    svg,
                    "<rect class=\"box s{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                    i % COLOURS,
                    x + 1.0,
                    width - 2.0,
                    (axis.y(0.0) - y).max(0.0),
                    escape(&format!(
                        "{series} {name}: {} {} ({}–{})",
                        thousands(bar.value),
                        self.unit,
                        thousands(bar.least),
                        thousands(bar.greatest)
                    ))
                );
                let centre = x + width / 2.0;
                if bar.greatest > bar.least {
                    let (low, high) = (axis.y(bar.least), axis.y(bar.greatest));
                    let _ = write!(
                        svg,
                        "<path class=\"spread\" d=\"M{centre:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6\"/>",
                        centre - 3.0,
                        centre - 3.0
                    );
                }
                // A figure above the bar where there is room for it: none over its left
                // neighbour's.
                let label = value_label(bar.value);
                let half = label.chars().count() as f64 * FIGURE_WIDTH / 2.0;
                let foot = axis.y(bar.greatest.max(bar.value)) - 4.0;
                let (end, beside) = taken;
                let free = centre - half >= end || (foot - beside).abs() >= FIGURE_HEIGHT;
                if width >= 22.0 && bar.value > 0.0 && free {
                    taken = (centre + half, foot);
                    let _ = write!(
                        svg,
                        "<text class=\"value\" x=\"{centre:.1}\" y=\"{foot:.1}\" text-anchor=\"middle\">{label}</text>"
                    );
                }
            }
        }
        let names: Vec<(String, usize)> = self.series.iter().cloned().zip(0..).collect();
        figure(&self.title, &svg, &names, false)
    }
}

/// A figure above a bar, in as few letters as it can be read with.
fn value_label(v: f64) -> String {
    match v {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 1e3 => format!("{:.1}k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => thousands(rounded(v)),
    }
}

/// Two digits after the point, for labels.
fn rounded(v: f64) -> f64 {
    if v >= 100.0 {
        v.round()
    } else {
        (v * 100.0).round() / 100.0
    }
}

/// A line of a chart.
pub struct Line {
    /// Name of the line in the legend.
    pub name: String,
    /// Number of its colour, so that the same thing has the same one in all charts.
    pub colour: usize,
    /// Its points, as x and y.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a number.
pub struct Lines {
    /// Title of the chart.
    pub title: String,
    /// Unit of the heights.
    pub unit: String,
    /// Name of the x axis.
    pub x: String,
    /// Places along, with their labels; the first and last are the ends.
    pub x_ticks: Vec<(f64, String)>,
    /// Heights by their logarithm.
    pub log: bool,
    /// The lines, in the order of the legend.
    pub series: Vec<Line>,
    /// True if the points are drawn as dots.
    pub dots: bool,
}

impl Lines {
    /// The chart; empty when there is nothing in it.
    pub fn draw(&self) -> String {
        let values = || {
            self.series
                .iter()
                .flat_map(|l| l.points.iter().map(|p| p.1))
        };
        if values().next().is_none() {
            return String::new();
        }
        let axis = if self.log {
            YAxis::logarithmic(values())
        } else {
            YAxis::linear(values().fold(0.0, f64::max))
        };
        let first = self.x_ticks.first().map_or(0.0, |t| t.0);
        let last = self.x_ticks.last().map_or(1.0, |t| t.0);
        let span = if last > first { last - first } else { 1.0 };
        // Places along begin and end a little inside when they are few labelled ones.
        let inset = if self.dots { 24.0 } else { 0.0 };
        let x = |v: f64| {
            LEFT + inset
                + ((v - first) / span).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT - 2.0 * inset)
        };
        let mut svg = String::new();
        axis.draw(&mut svg, &self.unit);
        x_label(&mut svg, &self.x);
        for (v, label) in &self.x_ticks {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
                x(*v),
                HEIGHT - BOTTOM + 15.0,
                if !self.dots && *v >= last {
                    "end"
                } else {
                    "middle"
                },
                escape(label)
            );
        }
        for Line {
            name,
            colour,
            points,
        } in &self.series
        {
            let class = colour % COLOURS;
            let mut path = String::new();
            for (n, (px, py)) in points.iter().enumerate() {
                let _ = write!(
                    path,
                    "{}{:.1} {:.1}",
                    if n == 0 { "M" } else { "L" },
                    x(*px),
                    axis.y(*py)
                );
            }
            let _ = write!(
                svg,
                "<path class=\"line s{class}\" d=\"{path}\"><title>{}</title></path>",
                escape(name)
            );
            if self.dots {
                for (px, py) in points {
                    let _ = write!(
                        svg,
                        "<circle class=\"box s{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                        x(*px),
                        axis.y(*py),
                        escape(&format!(
                            "{name}: {} {}",
                            thousands(rounded(*py)),
                            self.unit
                        ))
                    );
                }
            }
        }
        let names: Vec<(String, usize)> = self
            .series
            .iter()
            .map(|l| (l.name.clone(), l.colour))
            .collect();
        figure(&self.title, &svg, &names, true)
    }
}

/// Round labels from 0 to `seconds`.
pub fn seconds_ticks(seconds: f64) -> Vec<(f64, String)> {
    let mut out: Vec<(f64, String)> = ticks(seconds)
        .into_iter()
        .filter(|t| *t <= seconds * 1.001)
        .map(|t| (t, short(t)))
        .collect();
    // The axis ends where the measurement does, labelled or not.
    if out.last().is_some_and(|l| l.0 < seconds) {
        out.push((seconds, String::new()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enough() {
        assert_eq!(ticks(5237.0), [0.0, 2000.0, 4000.0, 6000.0]);
        assert_eq!(ticks(1.0), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN), [0.0, 1.0]);
        assert_eq!(decades([0.3, 25.0].into_iter()), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(decades([0.0].into_iter()), [1.0, 10.0]);
        assert_eq!(short(126_397.0), "126k");
        assert_eq!(short(1_350_000.0), "1.4M");
        assert_eq!(short(0.05), "0.05");
    }

    #[test]
    fn figures_do_not_stand_over_each_other() {
        let pair = |a: f64, b: f64| {
            let bar = |value| {
                Some(Bar {
                    value,
                    least: value,
                    greatest: value,
                })
            };
            let bars = Bars {
                title: "t".into(),
                unit: "IOPS".into(),
                x: "mix".into(),
                series: vec!["Read".into(), "Write".into()],
                groups: (0..5)
                    .map(|i| (i.to_string(), vec![bar(a), bar(b)]))
                    .collect(),
                mark: None,
            };
            bars.draw().matches("class=\"value\"").count()
        };
        assert_eq!(
            pair(150_000.0, 151_000.0),
            5,
            "one figure for two bars as high"
        );
        assert_eq!(pair(150_000.0, 50_000.0), 10);
        assert_eq!(pair(1.0, 1.0), 10, "short figures fit side by side");
    }

    #[test]
    fn everything_lies_inside_the_view_box() {
        let bars = Bars {
            title: "a <b> & \"c\"".into(),
            unit: "IOPS".into(),
            x: "mix".into(),
            series: vec!["Read".into(), "Write".into()],
            groups: (0..5)
                .map(|i| {
                    let v = f64::from(i) * 77_000.0;
                    let bar = Bar {
                        value: v,
                        least: v * 0.9,
                        greatest: v * 1.3,
                    };
                    (format!("{i}"), vec![Some(bar), None])
                })
                .collect(),
            mark: Some(1.0),
        };
        let svg = bars.draw();
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !svg.contains("<b>"));
        for part in svg.split(" y=\"").skip(1) {
            let y: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=HEIGHT).contains(&y), "{y}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let empty = Bars {
            groups: vec![("x".into(), vec![None])],
            ..bars
        };
        assert_eq!(empty.draw(), "");
    }
}
