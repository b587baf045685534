//! The live view: three tables, drawn anew at every look.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row as Drawn, Table};
use ratatui::{DefaultTerminal, Frame};

use super::view::{Look, Row, View, between};
use super::{HEADERS, cells, summary};
use crate::error::Error;

/// Draws until the user has seen enough.
pub fn run(
    interval: Duration,
    look: &mut dyn FnMut(Duration) -> Result<Look, Error>,
) -> Result<(), Error> {
    // Before the screen is taken: a server that cannot be asked is said plainly.
    let mut last = look(Duration::ZERO)?;
    let mut terminal = ratatui::try_init()?;
    let outcome = draw(&mut terminal, interval, &mut last, look);
    ratatui::restore();
    outcome
}

fn draw(
    terminal: &mut DefaultTerminal,
    interval: Duration,
    last: &mut Look,
    look: &mut dyn FnMut(Duration) -> Result<Look, Error>,
) -> Result<(), Error> {
    let mut view = View::default();
    let mut trouble = "looking…".to_owned();
    loop {
        terminal.draw(|frame| frame_of(frame, &view, &trouble))?;
        // A look each interval: keys, which end it early, are few.
        let mut left = interval;
        let step = Duration::from_millis(50).min(interval);
        while !left.is_zero() {
            if event::poll(step)? {
                match event::read()? {
                    Event::Key(key) => {
                        let interrupt = key.code == KeyCode::Char('c')
                            && key.modifiers.contains(KeyModifiers::CONTROL);
                        if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                            return Ok(());
                        }
                    }
                    Event::Resize(..) => {
                        terminal.draw(|frame| frame_of(frame, &view, &trouble))?;
                    }
                    _ => {}
                }
            }
            left = left.saturating_sub(step);
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

fn frame_of(frame: &mut Frame<'_>, view: &View, trouble: &str) {
    // Tables as high as they are long, while there is room: pools and clients leave most of it to volumes.
    let height = |rows: &[Row]| {
        u16::try_from(rows.len())
            .unwrap_or(u16::MAX)
            .saturating_add(3)
    };
    let third = frame.area().height / 3;
    let parts = [
        Constraint::Length(1),
        Constraint::Length(height(&view.pools).min(11)),
        Constraint::Fill(1),
        Constraint::Length(height(&view.clients).min(third.max(4))),
    ];
    let [top, one, two, three] = Layout::vertical(parts).areas(frame.area());
    let line = match trouble {
        "" => Line::from(format!("{}    q ends", summary(view))).bold(),
        trouble => Line::from(format!("{trouble}    q ends"))
            .fg(Color::Red)
            .bold(),
    };
    frame.render_widget(line, top);
    frame.render_widget(table("Pools", &view.pools, true), one);
    frame.render_widget(table("Volumes", &view.volumes, true), two);
    frame.render_widget(table("Clients", &view.clients, false), three);
}

fn table<'a>(title: &'a str, rows: &[Row], with_direction: bool) -> Table<'a> {
    let drawn = rows.iter().map(|row| {
        let style = match row {
            row if !row.throttled.is_empty() => Style::new().fg(Color::Yellow),
            row if row.ops == 0.0 => Style::new().dim(),
            _ => Style::new(),
        };
        let cells = cells("", row, with_direction).into_iter().skip(1);
        let cells = cells.enumerate().map(|(at, cell)| aligned(at, cell));
        Drawn::new(cells).style(style)
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(24),
    ];
    let headers = HEADERS
        .iter()
        .skip(1)
        .map(|header| match (*header, with_direction) {
            ("READ", false) => "DATA",
            ("WRITE", false) => "",
            (header, _) => header,
        });
    Table::new(drawn, widths)
        .header(
            Drawn::new(
                headers
                    .enumerate()
                    .map(|(at, header)| aligned(at, header.to_owned())),
            )
            .bold(),
        )
        .block(Block::bordered().title(title))
}

/// A cell of a column: figures stand to the right, words to the left.
fn aligned<'a>(column: usize, text: String) -> Cell<'a> {
    let line = Line::from(text);
    Cell::from(match column {
        1..=7 => line.right_aligned(),
        _ => line,
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::parse;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The screen, line by line, without what is blank at the ends.
    fn drawn(view: &View, trouble: &str) -> String {
        let (width, height) = (120, 24);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| frame_of(frame, view, trouble))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            text.trim_end().to_owned() + "\n"
        };
        cells.chunks(usize::from(width)).map(line).collect()
    }

    /// Two pages of a server with a Flex pool whose limit binds and a volume with manual QoS at its limit.
    #[test]
    fn what_a_server_said_looks_like_this() {
        let look = |page| Look::new(parse(page), 0.0);
        let view = between(
            &look(include_str!("captured/before.txt")),
            &look(include_str!("captured/after.txt")),
        );
        assert_eq!(drawn(&view, ""), include_str!("captured/screen.txt"));
        let trouble = drawn(&view, "cannot reach it");
        assert!(trouble.starts_with("cannot reach it    q ends\n"));
        assert!(trouble.contains("flexp/f1"), "the last view stays");
    }
}
