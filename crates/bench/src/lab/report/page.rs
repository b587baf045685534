//! The frame of a report: headings, tables, lists and charts as HTML.

use super::super::view::Row;
use super::svg::escape;

const STYLE: &str = include_str!("style.css");

/// A page that grows.
pub struct Page {
    body: String,
    title: String,
}

impl Page {
    /// An empty page under this title.
    pub fn new(title: &str) -> Self {
        Self {
            body: format!("<h1>{}</h1>\n", escape(title)),
            title: title.to_owned(),
        }
    }

    /// Adds a section's heading.
    pub fn heading(&mut self, text: &str) {
        self.body.push_str(&format!("<h2>{}</h2>\n", escape(text)));
    }

    /// Adds a heading within a section.
    pub fn subheading(&mut self, text: &str) {
        self.body.push_str(&format!("<h3>{}</h3>\n", escape(text)));
    }

    /// A line that says how, not what.
    pub fn soft(&mut self, text: &str) {
        self.body
            .push_str(&format!("<p class=\"soft\">{}</p>\n", escape(text)));
    }

    /// Adds a command, in a fixed-width font.
    pub fn code(&mut self, text: &str) {
        self.body
            .push_str(&format!("<p><code>{}</code></p>\n", escape(text)));
    }

    /// A list; nothing when it is empty.
    pub fn list(&mut self, lines: &[String], class: &str) {
        if lines.is_empty() {
            return;
        }
        self.body.push_str(&format!("<ul class=\"{class}\">\n"));
        for l in lines {
            self.body.push_str(&format!("<li>{}</li>\n", escape(l)));
        }
        self.body.push_str("</ul>\n");
    }

    /// Adds a table with `corner` above the row labels.
    pub fn table(&mut self, corner: &str, columns: &[String], rows: &[Row]) {
        let mut out = format!(
            "<div class=\"scroll\"><table><thead><tr><th>{}</th>",
            escape(corner)
        );
        for c in columns {
            out.push_str(&format!("<th>{}</th>", escape(c)));
        }
        out.push_str("</tr></thead><tbody>\n");
        for r in rows {
            let class = if r.main { " class=\"main\"" } else { "" };
            out.push_str(&format!("<tr{class}><td>{}</td>", escape(&r.label)));
            for c in &r.cells {
                out.push_str(&format!("<td>{}</td>", escape(c)));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        self.body.push_str(&out);
    }

    /// Charts beside each other.
    pub fn charts(&mut self, charts: &[String]) {
        if charts.iter().all(String::is_empty) {
            return;
        }
        self.body.push_str("<div class=\"charts\">\n");
        for c in charts {
            self.body.push_str(c);
        }
        self.body.push_str("</div>\n");
    }

    /// Adds a list of names and values.
    pub fn facts(&mut self, facts: &[(String, String)]) {
        self.body.push_str("<dl>");
        for (k, v) in facts {
            self.body
                .push_str(&format!("<dt>{}</dt><dd>{}</dd>", escape(k), escape(v)));
        }
        self.body.push_str("</dl>\n");
    }

    /// The whole file, as HTML.
    pub fn finish(self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
            escape(&self.title),
            self.body
        )
    }
}
