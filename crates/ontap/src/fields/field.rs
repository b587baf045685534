//! Fields, tables of them, and what they say of themselves.

use super::kind::{Input, Kind};
use super::parameters::Way;
use super::value::Value;
use crate::cluster::{Cluster, Failure};
use crate::grammar::ParsedCommand;
use crate::refusal::{invalid, refused};

/// The reader of a field.
#[derive(Debug)]
pub enum Read<T> {
    /// Reads it from a record.
    By(fn(&T) -> Value),
    /// It is the same in all records. Behind a `|` are other spellings that may be given for it.
    Always(&'static str),
}

/// The effect of giving a field.
#[derive(Debug)]
pub enum Set<D> {
    /// It is refused.
    No,
    /// It is taken if it is this value, or one of those separated by `|`, and refused otherwise.
    Only(&'static str),
    /// It is taken as it is already, and refused otherwise.
    Same,
    /// It goes into the draft.
    By(fn(&mut D, Input)),
}

/// A field of a resource with records of type `T`, which drafts of type `D` set.
#[derive(Debug)]
pub struct Field<T, D = ()> {
    /// Dotted name in REST; empty: REST does not have it.
    pub rest: &'static str,
    /// In a list of objects, their fields.
    pub parts: &'static [&'static str],
    /// Column of the command line; empty: it does not have it.
    pub column: &'static str,
    /// Heading in `-instance`.
    pub label: &'static str,
    /// Reads it.
    pub read: Read<T>,
    /// Number that records are ordered by on the command line, for a key, where its text is not.
    pub order: Option<fn(&T) -> u64>,
    /// Part of the command line's key: a column of every `-fields` table.
    pub key: bool,
    /// Shown on the command line only if it is asked for by its whole name.
    pub aside: bool,
    /// Read only if it is asked for.
    pub costly: bool,
    /// Kind of the values that it is set to.
    pub kind: Kind,
    /// Effect at creation.
    pub create: Set<D>,
    /// Effect of a change.
    pub modify: Set<D>,
    /// A resource is not created without it.
    pub required: bool,
    /// The command line shows it, and does not set it.
    pub shown: bool,
    /// The command line sets it at creation alone.
    pub early: bool,
    /// A key that may be left out.
    pub optional: bool,
    /// Reason why no other value may be given; empty: that of the resource.
    pub why: &'static str,
}

impl<T, D> Field<T, D> {
    const fn row(
        rest: &'static str,
        column: &'static str,
        label: &'static str,
        read: Read<T>,
    ) -> Field<T, D> {
        Field {
            rest,
            parts: &[],
            column,
            label,
            read,
            order: None,
            key: false,
            aside: false,
            costly: false,
            kind: Kind::Text,
            create: Set::No,
            modify: Set::No,
            required: false,
            shown: false,
            early: false,
            optional: false,
            why: "",
        }
    }

    /// Creates a field of both REST and the command line.
    pub const fn new(
        rest: &'static str,
        column: &'static str,
        label: &'static str,
        read: fn(&T) -> Value,
    ) -> Field<T, D> {
        Field::row(rest, column, label, Read::By(read))
    }

    /// Creates a field of REST alone.
    pub const fn rest(rest: &'static str, read: fn(&T) -> Value) -> Field<T, D> {
        Field::row(rest, "", "", Read::By(read))
    }

    /// Creates a field of the command line alone.
    pub const fn column(
        column: &'static str,
        label: &'static str,
        read: fn(&T) -> Value,
    ) -> Field<T, D> {
        Field::row("", column, label, Read::By(read))
    }

    /// Creates a field with one value everywhere, which cannot be given.
    pub const fn always(
        rest: &'static str,
        column: &'static str,
        label: &'static str,
        value: &'static str,
    ) -> Field<T, D> {
        Field::row(rest, column, label, Read::Always(value))
    }

    /// Creates a field with one value everywhere, which may be given, as may those separated from
    /// it by `|`. Any other value is refused.
    pub const fn fixed(
        rest: &'static str,
        column: &'static str,
        label: &'static str,
        value: &'static str,
    ) -> Field<T, D> {
        Field::always(rest, column, label, value).only(value)
    }

    /// Returns the field with the values that may be given, separated by `|`.
    pub const fn only(mut self, values: &'static str) -> Field<T, D> {
        self.create = Set::Only(values);
        self.modify = Set::Only(values);
        self
    }

    /// Returns the field as one that may be given as it is.
    pub const fn same(mut self) -> Field<T, D> {
        self.create = Set::Same;
        self.modify = Set::Same;
        self
    }

    /// Returns the field as part of the command line's key.
    pub const fn key(mut self) -> Field<T, D> {
        self.key = true;
        self
    }

    /// Returns the key with records ordered by a number.
    pub const fn ordered(mut self, order: fn(&T) -> u64) -> Field<T, D> {
        self.order = Some(order);
        self
    }

    /// Returns the field as one that the command line shows only if it is asked for by its name.
    pub const fn aside(mut self) -> Field<T, D> {
        self.aside = true;
        self
    }

    /// Returns the field as one that is read only if it is asked for.
    pub const fn costly(mut self) -> Field<T, D> {
        self.costly = true;
        self
    }

    /// Returns the field as a list of objects with these fields.
    pub const fn parts(mut self, parts: &'static [&'static str]) -> Field<T, D> {
        self.parts = parts;
        self
    }

    /// Returns the field as one that creation sets.
    pub const fn creates(mut self, kind: Kind, set: fn(&mut D, Input)) -> Field<T, D> {
        self.kind = kind;
        self.create = Set::By(set);
        self
    }

    /// Returns the field as one that a change sets.
    pub const fn modifies(mut self, kind: Kind, set: fn(&mut D, Input)) -> Field<T, D> {
        self.kind = kind;
        self.modify = Set::By(set);
        self
    }

    /// Returns the field as one that creation and changes set.
    pub const fn sets(self, kind: Kind, set: fn(&mut D, Input)) -> Field<T, D> {
        self.creates(kind, set).modifies(kind, set)
    }

    /// Returns the field as one that the resource reads from bodies by itself.
    pub const fn itself(self) -> Field<T, D> {
        self.sets(Kind::Nested, |_, _| {}).rest_only()
    }

    /// Returns the field as one that creation takes and cannot do without.
    pub const fn required(mut self) -> Field<T, D> {
        self.required = true;
        self
    }

    /// Returns the field as one that the command line shows, and does not set.
    pub const fn rest_only(mut self) -> Field<T, D> {
        self.shown = true;
        self
    }

    /// Returns the field as one that the command line sets at creation alone.
    pub const fn early(mut self) -> Field<T, D> {
        self.early = true;
        self
    }

    /// Returns the key as one that may be left out.
    pub const fn optional(mut self) -> Field<T, D> {
        self.optional = true;
        self
    }

    /// Returns the field with the reason why no other value may be given.
    pub const fn why(mut self, why: &'static str) -> Field<T, D> {
        self.why = why;
        self
    }

    /// Returns the effect of giving the field.
    pub const fn effect(&self, way: Way) -> &Set<D> {
        match way {
            Way::Create => &self.create,
            Way::Modify => &self.modify,
            Way::Show => &Set::No,
        }
    }

    /// Returns its value in a record.
    pub fn value(&self, record: &T) -> Value {
        match self.read {
            Read::By(read) => read(record),
            Read::Always(text) => Value::constant(text.split('|').next().unwrap_or_default()),
        }
    }

    /// Returns its value as people read it.
    pub fn text(&self, record: &T) -> String {
        self.value(record).line()
    }

    /// Returns the value that the command line orders records by.
    pub(crate) fn place(&self, record: &T) -> String {
        match self.order {
            Some(order) => order(record).to_string(),
            None => self.text(record),
        }
    }
}

/// Returns true if a value is one of those separated by `|`, whatever its case and its dashes.
pub fn is_only(values: &str, given: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    values.split('|').any(|value| plain(value) == plain(given))
}

/// A resource of REST and of the command line.
#[derive(Debug)]
pub struct Table<T: 'static, D: 'static = ()> {
    /// Path of its collection in REST, below `/api/`; `*` is the identity of what it is a part of.
    pub path: &'static str,
    /// The command that shows it, without `show`; empty: there is none.
    pub command: &'static [&'static str],
    /// The fields.
    pub fields: &'static [Field<T, D>],
    /// REST names of further fields of ONTAP's: known, never with a value, never set.
    pub absent: &'static [&'static str],
    /// REST names of the fields that every record has.
    pub keys: &'static [&'static str],
    /// REST names of the fields that lists are ordered by; together they are unique.
    pub order: &'static [&'static str],
    /// Returns the identities in the path of a record: those for each `*`, then its own.
    pub ids: fn(&T) -> Vec<String>,
    /// Reason why fields that may be given as they are may not be given otherwise.
    pub why: &'static str,
}

impl<T, D> Table<T, D> {
    /// Returns the path of a record.
    pub fn link(&self, record: &T) -> String {
        let ids = (self.ids)(record);
        let mut ids = ids.into_iter();
        let fill = |part: &str| match part {
            "*" => ids.next().unwrap_or_default(),
            part => part.to_owned(),
        };
        let parts: Vec<String> = self.path.split('/').map(fill).collect();
        let parts: Vec<String> = parts.into_iter().chain(ids).collect();
        format!("/api/{}", parts.join("/"))
    }

    /// Returns the reason why a field may not be given otherwise.
    pub fn why(&self, field: &Field<T, D>) -> &'static str {
        if field.why.is_empty() {
            self.why
        } else {
            field.why
        }
    }

    /// Returns the fields that REST has.
    pub fn rest(&self) -> impl Iterator<Item = &'static Field<T, D>> {
        self.fields.iter().filter(|field| !field.rest.is_empty())
    }

    /// Returns all names that REST knows.
    pub fn names(&self) -> Vec<String> {
        let own = self.rest().flat_map(|field| match field.parts {
            [] => vec![field.rest.to_owned()],
            parts => parts
                .iter()
                .map(|part| format!("{}.{part}", field.rest))
                .collect(),
        });
        let absent = self.absent.iter().map(|name| (*name).to_owned());
        own.chain(absent).collect()
    }

    /// Returns true if REST asks for a field that is costly.
    pub fn is_costly(&self, asks: impl Fn(&str) -> bool) -> bool {
        self.rest().any(|field| field.costly && asks(field.rest))
    }
}

/// Puts what a line or a program's command gives into a draft. Arguments that are no fields, and
/// the key, are the command's own. `record`: the one that is changed, or that the new one is like.
///
/// # Errors
/// A value that is not of its kind, not the only one that there may be, or the name of nothing.
pub fn read<T, D>(
    table: &Table<T, D>,
    parsed: &ParsedCommand,
    way: Way,
    draft: &mut D,
    cluster: &dyn Cluster,
    record: Option<&T>,
) -> Result<(), Failure> {
    for (name, text) in &parsed.arguments {
        let mut own = table.fields.iter().filter(|f| !f.key);
        let Some(field) = own.find(|f| f.column == *name) else {
            continue;
        };
        let other = |here: &str| match table.why(field) {
            "" => invalid(text, name, here),
            why => invalid(text, name, &format!("{here}: {why}")),
        };
        match field.effect(way) {
            Set::No => {}
            Set::Only(values) if is_only(values, text) => {}
            Set::Only(values) => {
                let here = values.split('|').next().unwrap_or_default();
                return Err(other(here));
            }
            Set::Same => match record.map(|record| field.text(record)) {
                Some(here) if here != *text => return Err(other(&here)),
                _ => {}
            },
            Set::By(set) => match field.kind.of_line(text) {
                Some(input) => {
                    field.kind.check_line(&input, cluster)?;
                    set(draft, input);
                }
                None => return Err(refused(field.kind.refuse_line(name, text))),
            },
        }
    }
    Ok(())
}

/// A field as documents and tests see it.
#[derive(Clone, Debug)]
pub struct FieldDescription {
    /// Dotted name in REST; empty: REST does not have it.
    pub rest: &'static str,
    /// Column of the command line; empty: it does not have it.
    pub column: &'static str,
    /// Heading in `-instance`.
    pub label: &'static str,
    /// Kind of the values that it is set to.
    pub kind: Kind,
    /// Effect at creation and by a change.
    pub set: [Access; 2],
    /// The command line shows it, and does not set it.
    pub shown: bool,
    /// Part of the command line's key.
    pub key: bool,
    /// Read only if it is asked for.
    pub costly: bool,
}

/// The effect of giving a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is refused.
    No,
    /// It is taken with these values alone, separated by `|`.
    Only(&'static str),
    /// It is taken as it is.
    Same,
    /// It is set.
    Yes,
}

impl<D> Set<D> {
    fn access(&self) -> Access {
        match self {
            Set::No => Access::No,
            Set::Only(values) => Access::Only(values),
            Set::Same => Access::Same,
            Set::By(_) => Access::Yes,
        }
    }
}

/// A resource, whatever its records are.
pub trait Resource: Sync {
    /// Returns the path of its collection in REST.
    fn path(&self) -> &'static str;
    /// Returns the command that shows it, without `show`; empty: there is none.
    fn command(&self) -> &'static [&'static str];
    /// Returns its fields.
    fn describe(&self) -> Vec<FieldDescription>;
}

impl<T, D> Resource for Table<T, D> {
    fn path(&self) -> &'static str {
        self.path
    }

    fn command(&self) -> &'static [&'static str] {
        self.command
    }

    fn describe(&self) -> Vec<FieldDescription> {
        let each = |field: &Field<T, D>| FieldDescription {
            rest: field.rest,
            column: field.column,
            label: field.label,
            kind: field.kind,
            set: [field.create.access(), field.modify.access()],
            shown: field.shown,
            key: field.key,
            costly: field.costly,
        };
        self.fields.iter().map(each).collect()
    }
}

impl Value {
    /// Creates the object of a record within another one.
    pub fn record<T, D>(fields: &[Field<T, D>], record: &T) -> Value {
        let own = fields.iter().filter(|field| !field.rest.is_empty());
        Value::Object(own.map(|field| (field.rest, field.value(record))).collect())
    }
}
