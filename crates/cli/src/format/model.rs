//! A format: its kind, its attributes and its columns.

use super::key::Key;

/// The output formats, named as gcloud names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Aligned columns under headings, for people
    Table,
    /// The whole resource as JSON
    Json,
    /// The whole resource as YAML
    Yaml,
    /// Comma-separated values, quoted as they need it
    Csv,
    /// Tab-separated values, for scripts
    Value,
    /// Tab-separated values in full: without the transforms of the command's own format
    Get,
    /// One `path: value` a line
    Flattened,
    /// Indented lines, an item behind a dash
    List,
    /// Nothing is printed at all
    None,
}

/// Alignment of a column of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Align {
    /// To the left, as text is
    #[default]
    Left,
    /// In the middle of the column
    Center,
    /// To the right, as numbers are
    Right,
}

/// A column of a projection.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// The value that it shows
    pub key: Key,
    /// Its heading; none takes the key's last name
    pub label: Option<String>,
    /// Its place among the columns by which rows are ordered, from 1
    pub sort: Option<u32>,
    /// True if that order is descending
    pub reverse: bool,
    /// Place of cells in the width
    pub align: Align,
    /// True if it is not shown when no row has a value
    pub optional: bool,
}

/// A parsed `--format`, or a command's own.
#[derive(Debug, Clone)]
pub struct Format {
    /// The form of the output
    pub kind: Kind,
    /// Attributes, `no-heading` being the value `false` of `heading`
    pub attributes: Vec<(String, Option<String>)>,
    /// The projection; empty shows all
    pub columns: Vec<Column>,
}

impl Format {
    /// Creates a format that shows all.
    pub fn plain(kind: Kind) -> Self {
        Self {
            kind,
            attributes: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Takes what is open from a command's default.
    #[must_use]
    pub fn with_default(mut self, default: Option<&Self>) -> Self {
        let Some(default) = default else {
            return self;
        };
        let sorted = self.columns.iter().any(|c| c.sort.is_some());
        let cells = matches!(
            self.kind,
            Kind::Table | Kind::Csv | Kind::Value | Kind::List
        );
        for column in &mut self.columns {
            let same = |c: &&Column| c.key.path == column.key.path;
            if let Some(from) = default.columns.iter().find(same) {
                if column.label.is_none() {
                    column.label.clone_from(&from.label);
                }
                if cells && column.key.transforms.is_empty() {
                    column.key.transforms.clone_from(&from.key.transforms);
                }
                if !sorted {
                    column.sort = from.sort;
                }
            }
        }
        self
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let of_name = |(n, v): &'_ (String, Option<String>)| (n == name).then(|| v.clone());
        let found = self.attributes.iter().position(|a| of_name(a).is_some())?;
        self.attributes.get(found)?.1.as_deref()
    }

    pub(super) fn has_attribute(&self, name: &str) -> bool {
        self.attributes.iter().any(|(n, _)| n == name)
    }
}
