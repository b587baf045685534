//! The live view: three tables, drawn anew at every sample and every key.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row as Drawn, Table};
use ratatui::{DefaultTerminal, Frame};

use super::screen::{KeyOutcome, Pane, Screen};
use super::view::{MetricsSample, Row, View, between};
use super::{Column, NARROW, WIDE, summary};
use crate::error::Error;

/// Below this width a table has the narrow columns.
const ROOMY: u16 = 116;

/// Lines of a table's height for its borders and header.
const FRAME: u16 = 3;

/// Draws until the user has seen enough.
pub fn run(
    interval: Duration,
    mut screen: Screen,
    look: &mut dyn FnMut(Duration) -> Result<MetricsSample, Error>,
) -> Result<(), Error> {
    // Before the screen is taken: a server that cannot be asked is said plainly.
    let mut last = look(Duration::ZERO)?;
    let mut terminal = ratatui::try_init()?;
    let outcome = draw(&mut terminal, interval, &mut screen, &mut last, look);
    ratatui::restore();
    outcome
}

fn draw(
    terminal: &mut DefaultTerminal,
    interval: Duration,
    screen: &mut Screen,
    last: &mut MetricsSample,
    look: &mut dyn FnMut(Duration) -> Result<MetricsSample, Error>,
) -> Result<(), Error> {
    let mut view = View::default();
    let mut trouble = "measuring…".to_owned();
    loop {
        terminal.draw(|frame| frame_of(frame, &view, screen, &trouble))?;
        // A sample each interval: keys, which end it early, are few.
        let mut left = interval;
        let step = Duration::from_millis(50).min(interval);
        while !left.is_zero() {
            left = left.saturating_sub(step);
            if !event::poll(step)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if screen.key(key) == KeyOutcome::End {
                        return Ok(());
                    }
                }
                Event::Resize(..) => {}
                _ => continue,
            }
            terminal.draw(|frame| frame_of(frame, &view, screen, &trouble))?;
        }
        // A server that is being restarted is waited for.
        match look(interval) {
            Ok(now) => {
                view = between(last, &now);
                *last = now;
                trouble.clear();
            }
            Err(Error::Unreachable(why)) => trouble = why,
            Err(other) => return Err(other),
        }
    }
}

/// Parts in as many lines of a width as they take.
fn lines(parts: &[String], width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 2 <= usize::from(width) => {
                line.push_str("; ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

fn frame_of(frame: &mut Frame<'_>, view: &View, screen: &mut Screen, trouble: &str) {
    let area = frame.area();
    let top: Vec<Line<'_>> = match trouble {
        "" => lines(&summary(view), area.width)
            .into_iter()
            .map(|line| Line::from(line).bold())
            .collect(),
        trouble => vec![Line::from(trouble.to_owned()).fg(Color::Red).bold()],
    };
    let head = u16::try_from(top.len()).unwrap_or(1);
    let [above, middle, below] = Layout::vertical([
        Constraint::Length(head),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(ratatui::text::Text::from(top), above);
    frame.render_widget(Line::from(keys(screen)).dim(), below);
    if screen.zoomed {
        return pane(frame, middle, screen.focus, view, screen);
    }
    // Tables as high as they are long, while there is room. Pools and clients leave most of it to
    // volumes, and each has a row at least.
    let wanted = |pane: Pane| {
        let rows = screen.choice.rows(pane.rows(view)).len().max(1);
        u16::try_from(rows)
            .unwrap_or(u16::MAX)
            .saturating_add(FRAME)
    };
    let third = (middle.height / 3).max(FRAME + 1);
    let last = match screen.focus {
        Pane::Operations => Pane::Operations,
        _ => Pane::Clients,
    };
    let parts = [
        Constraint::Length(wanted(Pane::Pools).min(third)),
        Constraint::Fill(1),
        Constraint::Length(wanted(last).min(third)),
    ];
    let areas: [Rect; 3] = Layout::vertical(parts).areas(middle);
    for (each, area) in [Pane::Pools, Pane::Volumes, last].into_iter().zip(areas) {
        pane(frame, area, each, view, screen);
    }
}

/// Returns the last line: what keys do, or the filter that is being written.
fn keys(screen: &Screen) -> String {
    let filter = &screen.choice.filter;
    match (screen.typing, filter.is_empty()) {
        (true, _) => format!("filter: {filter}▏  Enter keeps it, Esc clears it"),
        (false, false) => format!("filter: {filter}  Esc clears it  Tab ↑↓ s i z q"),
        (false, true) => {
            "Tab table  ↑↓ PgUp PgDn scroll  / filter  s sort  i idle  z zoom  q end".to_owned()
        }
    }
}

fn pane(frame: &mut Frame<'_>, area: Rect, pane: Pane, view: &View, screen: &mut Screen) {
    let all = pane.rows(view);
    let rows = screen.choice.rows(all);
    let room = usize::from(area.height.saturating_sub(FRAME));
    let offset = screen.offset(pane, rows.len(), room);
    let shown = rows.get(offset..).unwrap_or_default();
    let shown = shown.get(..room.min(shown.len())).unwrap_or_default();
    let mut title = pane.title().to_owned();
    if shown.len() < rows.len() {
        title.push_str(&format!(" {}–{}", offset + 1, offset + shown.len()));
    }
    if shown.len() < all.len() {
        title.push_str(&format!(" of {}", rows.len()));
    }
    if rows.len() < all.len() {
        title.push_str(&format!(", {} hidden", all.len() - rows.len()));
    }
    if screen.focus == pane {
        title.push_str(&format!(", by {}", screen.choice.sort.word()));
    }
    let mut block = Block::bordered().title(title);
    if screen.focus == pane {
        block = block.border_style(Style::new().fg(Color::Cyan));
    }
    frame.render_widget(table(pane, shown, area.width).block(block), area);
}

/// Returns a column's width; the names take what is left.
fn width(column: Column, narrow: bool) -> Constraint {
    let (wide, brief) = match column {
        Column::Name => return Constraint::Fill(1),
        Column::Read | Column::Written | Column::Limit => (12, 7),
        Column::Ops => (7, 6),
        Column::Mean | Column::P99 => (8, 8),
        Column::Used => (5, 5),
        Column::Queue => (5, 5),
        Column::Throttled => (24, 14),
    };
    Constraint::Length(if narrow { brief } else { wide })
}

fn table<'a>(pane: Pane, rows: &[&Row], across: u16) -> Table<'a> {
    let narrow = across < ROOMY;
    let columns = if narrow { NARROW } else { WIDE };
    let fixed = columns.iter().map(|column| match width(*column, narrow) {
        Constraint::Length(n) => n + 1,
        _ => 0,
    });
    // Two for the borders.
    let names = across.saturating_sub(fixed.sum::<u16>() + 2);
    let drawn = rows.iter().map(|row| {
        let style = match row {
            row if !row.throttled.is_empty() => Style::new().fg(Color::Yellow),
            row if row.is_idle() => Style::new().dim(),
            _ => Style::new(),
        };
        let cells = columns.iter().map(|column| {
            let text = column.cell(row, pane, narrow);
            aligned(
                *column,
                match column {
                    Column::Name => elided(&text, usize::from(names)),
                    _ => text,
                },
            )
        });
        Drawn::new(cells).style(style)
    });
    let headers = columns
        .iter()
        .map(|column| aligned(*column, column.header(pane).to_owned()));
    let header = Drawn::new(headers).bold();
    let widths: Vec<Constraint> = columns
        .iter()
        .map(|column| width(*column, narrow))
        .collect();
    Table::new(drawn.collect::<Vec<_>>(), widths).header(header)
}

/// Returns the end of a name that is too long: names of one pool differ there.
fn elided(name: &str, width: usize) -> String {
    let long = name.chars().count();
    match long > width {
        true => std::iter::once('…')
            .chain(name.chars().skip(long + 1 - width.max(1)))
            .collect(),
        false => name.to_owned(),
    }
}

/// Returns a cell of a column: figures are aligned to the right, words to the left.
fn aligned<'a>(column: Column, text: String) -> Cell<'a> {
    let line = Line::from(text);
    Cell::from(match column.is_figure() {
        true => line.right_aligned(),
        false => line,
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::parse;
    use super::super::screen::{Choice, Sort};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The screen, line by line, without what is blank at the ends.
    fn drawn(
        view: &View,
        screen: &mut Screen,
        trouble: &str,
        (width, height): (u16, u16),
    ) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| frame_of(frame, view, screen, trouble))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            text.trim_end().to_owned() + "\n"
        };
        cells.chunks(usize::from(width)).map(line).collect()
    }

    /// Two pages of a server with a Flex pool whose limit binds and a volume with manual QoS at its
    /// limit.
    fn captured() -> View {
        let look = |page| MetricsSample::new(parse(page), 0.0);
        between(
            &look(include_str!("captured/before.txt")),
            &look(include_str!("captured/after.txt")),
        )
    }

    /// `WEIR_BLESS=1` writes what is drawn in place of what should be.
    #[test]
    fn what_a_server_said_looks_like_this() {
        let view = captured();
        for size in [(80, 24), (120, 24), (200, 50)] {
            let mut screen = Screen::new(Choice::default());
            let seen = drawn(&view, &mut screen, "", size);
            let file = format!(
                "{}/src/top/captured/screen-{}x{}.txt",
                env!("CARGO_MANIFEST_DIR"),
                size.0,
                size.1
            );
            if std::env::var_os("WEIR_BLESS").is_some() {
                std::fs::write(&file, &seen).unwrap();
            }
            assert_eq!(seen, std::fs::read_to_string(&file).unwrap(), "{file}");
            // Names, rates, limits and what binds, at any size.
            for part in [
                "flexp/f1",
                "man/m1",
                "127.0.0.1",
                "20.0",
                "volume bytes",
                "pool bytes",
                "q end",
            ] {
                assert!(seen.contains(part), "{part} at {size:?}:\n{seen}");
            }
            screen.focus = Pane::Operations;
            let operations = drawn(&view, &mut screen, "", size);
            assert!(operations.contains("nfsv3 READ"), "{operations}");
            assert!(!operations.contains("127.0.0.1"), "{operations}");
            let trouble = drawn(&view, &mut screen, "cannot reach it", size);
            assert!(trouble.starts_with("cannot reach it\n"));
            assert!(trouble.contains("flexp/f1"), "the last view stays");
        }
    }

    /// Three hundred volumes on 80 × 24: each can be reached, found, and distinguished from the
    /// idle.
    #[test]
    fn more_rows_than_the_screen_has() {
        let mut view = captured();
        let some = view.volumes[0].clone();
        view.volumes = (0..300)
            .map(|n| Row {
                name: format!("a-volume-with-a-long-name-{n:03}"),
                ops: if n % 2 == 0 { 5.0 } else { 0.0 },
                bytes: 0.0,
                queue: 0.0,
                ..some.clone()
            })
            .collect();
        let mut screen = Screen::new(Choice {
            sort: Sort::Name,
            ..Choice::default()
        });
        let size = (80, 24);
        let first = drawn(&view, &mut screen, "", size);
        assert!(
            first.contains("name-000") && !first.contains("name-299"),
            "{first}"
        );
        assert!(first.contains("of 300, by name"), "{first}");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..300 {
            let now = drawn(&view, &mut screen, "", size);
            for n in 0..300 {
                if now.contains(&format!("name-{n:03} ")) {
                    seen.insert(n);
                }
            }
            screen.key(ratatui::crossterm::event::KeyCode::PageDown.into());
        }
        assert_eq!(seen.len(), 300);
        screen.choice.hide_idle = true;
        assert!(drawn(&view, &mut screen, "", size).contains("of 150, 150 hidden"));
        screen.choice.filter = "name-298".to_owned();
        let found = drawn(&view, &mut screen, "", size);
        assert!(
            found.contains("name-298") && found.contains("filter: name-298"),
            "{found}"
        );
        screen.zoomed = true;
        assert!(!drawn(&view, &mut screen, "", size).contains("Pools"));
    }
}
