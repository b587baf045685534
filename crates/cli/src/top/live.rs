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
    loop {
        terminal.draw(|frame| frame_of(frame, &view))?;
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
                        terminal.draw(|frame| frame_of(frame, &view))?;
                    }
                    _ => {}
                }
            }
            left = left.saturating_sub(step);
        }
        let now = look(interval)?;
        view = between(last, &now);
        *last = now;
    }
}

fn frame_of(frame: &mut Frame<'_>, view: &View) {
    let pools = u16::try_from(view.pools.len()).unwrap_or(u16::MAX).min(8) + 3;
    let parts = [
        Constraint::Length(1),
        Constraint::Length(pools),
        Constraint::Fill(2),
        Constraint::Fill(1),
    ];
    let [top, one, two, three] = Layout::vertical(parts).areas(frame.area());
    let line = format!("weir top    {}    q ends", summary(view));
    frame.render_widget(Line::from(line).bold(), top);
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
        Drawn::new(cells.map(Cell::from)).style(style)
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(13),
        Constraint::Length(13),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Fill(1),
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
        .header(Drawn::new(headers).bold())
        .block(Block::bordered().title(title))
}
