//! State of the screen: which table has the keys, what is filtered out, in which order, from which
//! row on.
//!
//! Apart from drawing, so that keys are tested without a terminal.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::{Row, View};

/// A table of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    /// Storage pools, one a row.
    Pools,
    /// Volumes of all pools, one a row.
    Volumes,
    /// Client addresses, one a row.
    Clients,
    /// Operations of all protocols, one a row; at the place of the clients while it has the keys.
    Operations,
}

impl Pane {
    /// From top to bottom.
    pub const ALL: [Pane; 4] = [Pane::Pools, Pane::Volumes, Pane::Clients, Pane::Operations];

    /// Returns the title on the screen.
    pub fn title(self) -> &'static str {
        match self {
            Pane::Pools => "Pools",
            Pane::Volumes => "Volumes",
            Pane::Clients => "Clients",
            Pane::Operations => "Operations",
        }
    }

    /// Returns its rows of a view.
    pub fn rows(self, view: &View) -> &[Row] {
        match self {
            Pane::Pools => &view.pools,
            Pane::Volumes => &view.volumes,
            Pane::Clients => &view.clients,
            Pane::Operations => &view.operations,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Order of rows; what is most of it comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Bytes and operations together
    #[default]
    Rate,
    /// Operations a second
    Ops,
    /// The 99th percentile of the latency
    Latency,
    /// The part of the tightest limit that is used
    Used,
    /// The name
    Name,
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Ops,
            Sort::Ops => Sort::Latency,
            Sort::Latency => Sort::Used,
            Sort::Used => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }

    /// Returns the word for it in a table's title.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Ops => "operations",
            Sort::Latency => "latency",
            Sort::Used => "limit used",
            Sort::Name => "name",
        }
    }
}

/// Choice of the user of what to see.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The order of the rows.
    pub sort: Sort,
    /// A part of the names of rows that are shown; empty for all.
    pub filter: String,
    /// True if rows without operations and waiting requests are left out.
    pub hide_idle: bool,
}

impl Choice {
    /// Returns the rows that are shown, in order.
    pub fn rows<'v>(&self, rows: &'v [Row]) -> Vec<&'v Row> {
        let mut shown: Vec<&Row> = rows
            .iter()
            .filter(|row| row.full_name().contains(&self.filter))
            .filter(|row| !self.hide_idle || !row.is_idle())
            .collect();
        let by = |of: fn(&Row) -> f64| move |a: &&Row, b: &&Row| of(b).total_cmp(&of(a));
        match self.sort {
            // As the view has them.
            Sort::Rate => {}
            Sort::Ops => shown.sort_by(by(|row| row.ops)),
            Sort::Latency => shown.sort_by(by(|row| row.p99)),
            Sort::Used => shown.sort_by(by(|row| row.share.unwrap_or(-1.0))),
            Sort::Name => shown.sort_by_key(|row| row.full_name()),
        }
        shown
    }
}

/// Step that follows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    /// Draw the screen again.
    Draw,
    /// End the live view.
    End,
}

/// The state of the screen.
#[derive(Debug, Clone)]
pub struct Screen {
    /// Choice of the user of what to see.
    pub choice: Choice,
    /// The table that keys move in.
    pub focus: Pane,
    /// True if it has the whole screen.
    pub zoomed: bool,
    /// True if keys write the filter.
    pub typing: bool,
    offsets: [usize; Pane::ALL.len()],
    /// Rows that each table had room for when it was drawn.
    room: [usize; Pane::ALL.len()],
}

impl Screen {
    /// Creates the screen of a whole view.
    pub fn new(choice: Choice) -> Screen {
        Screen {
            choice,
            focus: Pane::Volumes,
            zoomed: false,
            typing: false,
            offsets: [0; Pane::ALL.len()],
            room: [0; Pane::ALL.len()],
        }
    }

    /// Returns the first row that a table shows, where it has room for `room` of `rows`: never so
    /// far down that room is left.
    pub fn offset(&mut self, pane: Pane, rows: usize, room: usize) -> usize {
        let [offset, known] = [&mut self.offsets, &mut self.room].map(|all| &mut all[pane.index()]);
        *known = room;
        *offset = (*offset).min(rows.saturating_sub(room));
        *offset
    }

    /// Applies a key, and returns what to do after it.
    pub fn key(&mut self, key: KeyEvent) -> KeyOutcome {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return KeyOutcome::End;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.choice.filter.clear();
                }
                KeyCode::Backspace => {
                    self.choice.filter.pop();
                }
                KeyCode::Char(c) => self.choice.filter.push(c),
                _ => {}
            }
            return KeyOutcome::Draw;
        }
        let at = self.focus.index();
        let page = self.room[at].max(1);
        let offset = &mut self.offsets[at];
        match key.code {
            KeyCode::Char('q') => return KeyOutcome::End,
            KeyCode::Esc if self.choice.filter.is_empty() => return KeyOutcome::End,
            KeyCode::Esc => self.choice.filter.clear(),
            // Beyond the end is put right when it is drawn.
            KeyCode::Down | KeyCode::Char('j') => *offset = offset.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => *offset = offset.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => *offset = offset.saturating_add(page),
            KeyCode::PageUp => *offset = offset.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => *offset = 0,
            KeyCode::End | KeyCode::Char('G') => *offset = usize::MAX,
            KeyCode::Tab | KeyCode::Right => self.focus = Pane::ALL[(at + 1) % Pane::ALL.len()],
            KeyCode::BackTab | KeyCode::Left => {
                self.focus = Pane::ALL[(at + Pane::ALL.len() - 1) % Pane::ALL.len()];
            }
            KeyCode::Char('s') => self.choice.sort = self.choice.sort.next(),
            KeyCode::Char('i') => self.choice.hide_idle = !self.choice.hide_idle,
            KeyCode::Char('z') | KeyCode::Enter => self.zoomed = !self.zoomed,
            KeyCode::Char('/') => self.typing = true,
            _ => {}
        }
        KeyOutcome::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ops: f64, p99: f64, share: Option<f64>) -> Row {
        Row {
            name: name.to_owned(),
            ops,
            p99,
            share,
            ..Row::default()
        }
    }

    fn press(screen: &mut Screen, keys: &str) -> KeyOutcome {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            'v' => KeyCode::PageDown,
            c => KeyCode::Char(c),
        };
        let keys = keys.chars().map(code);
        keys.map(|code| screen.key(code.into())).last().unwrap()
    }

    #[test]
    fn rows_are_filtered_and_sorted() {
        let rows = [
            row("db", 5.0, 0.1, Some(0.5)),
            row("home", 0.0, 0.0, None),
            row("web-db", 9.0, 0.01, Some(0.9)),
        ];
        let names = |choice: &Choice| -> Vec<String> {
            choice
                .rows(&rows)
                .iter()
                .map(|row| row.name.clone())
                .collect()
        };
        let mut choice = Choice::default();
        assert_eq!(names(&choice), ["db", "home", "web-db"]);
        choice.hide_idle = true;
        assert_eq!(names(&choice), ["db", "web-db"]);
        for (sort, first) in [
            (Sort::Ops, "web-db"),
            (Sort::Latency, "db"),
            (Sort::Used, "web-db"),
            (Sort::Name, "db"),
        ] {
            choice.sort = sort;
            assert_eq!(names(&choice)[0], first, "{sort:?}");
        }
        choice.filter = "web".to_owned();
        assert_eq!(names(&choice), ["web-db"]);
    }

    #[test]
    fn every_row_is_reached() {
        let mut screen = Screen::new(Choice::default());
        let shown = |screen: &mut Screen| screen.offset(Pane::Volumes, 25, 10);
        assert_eq!(shown(&mut screen), 0);
        press(&mut screen, "j");
        assert_eq!(shown(&mut screen), 1);
        press(&mut screen, "v");
        assert_eq!(shown(&mut screen), 11);
        press(&mut screen, "vv");
        assert_eq!(shown(&mut screen), 15, "the last row is the last line");
        press(&mut screen, "k");
        assert_eq!(shown(&mut screen), 14);
        press(&mut screen, "G");
        assert_eq!(shown(&mut screen), 15);
        press(&mut screen, "g");
        assert_eq!(shown(&mut screen), 0);
        press(&mut screen, "\t");
        assert_eq!(screen.focus, Pane::Clients);
        press(&mut screen, "G");
        assert_eq!(screen.offset(Pane::Clients, 3, 10), 0);
        press(&mut screen, "\t");
        assert_eq!(screen.focus, Pane::Operations);
        screen.key(KeyCode::BackTab.into());
        assert_eq!(screen.focus, Pane::Clients);
        press(&mut screen, "\t\t");
        assert_eq!(screen.focus, Pane::Pools);
    }

    #[test]
    fn a_filter_is_written_and_taken_back() {
        let mut screen = Screen::new(Choice::default());
        assert_eq!(press(&mut screen, "/qs"), KeyOutcome::Draw);
        assert_eq!(screen.choice.filter, "qs");
        press(&mut screen, "\n");
        assert!(!screen.typing);
        press(&mut screen, "s");
        assert_eq!(
            (screen.choice.filter.as_str(), screen.choice.sort),
            ("qs", Sort::Ops)
        );
        assert_eq!(press(&mut screen, "\x1b"), KeyOutcome::Draw);
        assert_eq!(screen.choice.filter, "");
        assert_eq!(press(&mut screen, "\x1b"), KeyOutcome::End);
    }
}
