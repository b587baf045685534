//! Plots of throughput over time, as SVG.

use std::fmt::Write;

/// One line of a plot.
pub struct Line {
    /// Name of the line.
    pub name: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Its limit over time, as steps: from when, how much.
    pub limit: Vec<(f64, f64)>,
    /// Values, the first at time zero.
    pub values: Vec<f64>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;

/// One plot below the other; `step` is the time between two values in seconds.
pub fn svg(title: &str, step: f64, lines: &[Line]) -> String {
    let total = TOP + lines.len() as f64 * (HEIGHT + 46.0);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {total}\" font-family=\"sans-serif\" font-size=\"12\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}</text>",
        LEFT + WIDTH + 20.0
    );
    for (n, line) in lines.iter().enumerate() {
        let unit = line.unit;
        let top = TOP + n as f64 * (HEIGHT + 46.0);
        let most = line
            .values
            .iter()
            .chain(line.limit.iter().map(|(_, limit)| limit))
            .fold(1e-9, |a: f64, b| a.max(*b))
            * 1.1;
        let end = (line.values.len() as f64 * step).max(step);
        let x = |t: f64| LEFT + t / end * WIDTH;
        let y = |v: f64| top + HEIGHT - v / most * HEIGHT;
        let _ = write!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\">{}</text><rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#ccc\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} {unit}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">0</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{end:.0} s</text>",
            top - 5.0,
            line.name,
            LEFT - 6.0,
            top + 10.0,
            most,
            LEFT - 6.0,
            top + HEIGHT,
            LEFT + WIDTH,
            top + HEIGHT + 15.0
        );
        let mut path = String::new();
        for (at, value) in line.values.iter().enumerate() {
            let start = at as f64 * step;
            let _ = write!(
                path,
                "{}{:.1} {:.1}L{:.1} {:.1}",
                if at == 0 { 'M' } else { 'L' },
                x(start),
                y(*value),
                x(start + step),
                y(*value)
            );
        }
        let _ = write!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#0b66c3\" stroke-width=\"1.2\"/>"
        );
        let mut path = String::new();
        for (at, (from, limit)) in line.limit.iter().enumerate() {
            let to = line.limit.get(at + 1).map_or(end, |(next, _)| *next);
            let _ = write!(
                path,
                "M{:.1} {:.1}L{:.1} {:.1}",
                x(*from),
                y(*limit),
                x(to),
                y(*limit)
            );
        }
        let _ = write!(
            out,
            "<path d=\"{path}\" stroke=\"#c3390b\" stroke-dasharray=\"5 4\" fill=\"none\"/>"
        );
    }
    out.push_str("</svg>\n");
    out
}
