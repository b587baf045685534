//! The arguments of a command, from the fields of its resource.

use super::{Field, Set};
use crate::grammar::{Parameter, may, must, switch};

/// The way in which a command uses fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It shows them, and takes queries on all of them.
    Show,
    /// It takes the key, and what creation sets.
    Create,
    /// It takes the key, and what a change sets.
    Modify,
}

/// Returns true for a field that is an argument.
const fn takes<T, D>(field: &Field<T, D>, way: Way) -> bool {
    let given = match way {
        Way::Show => true,
        Way::Modify if field.early => false,
        _ => field.key || !field.shown && !matches!(field.effect(way), Set::No),
    };
    given && !field.column.is_empty()
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn among(name: &str, names: &[&str]) -> bool {
    let mut at = 0;
    while at < names.len() {
        if same(name, names[at]) {
            return true;
        }
        at += 1;
    }
    false
}

const fn parameter<T, D>(field: &Field<T, D>, way: Way) -> Parameter {
    let value = field.kind.help();
    let must_be = match way {
        Way::Show => false,
        Way::Create => field.key && !field.optional || field.required,
        Way::Modify => field.key && !field.optional,
    };
    let mut parameter = match must_be {
        true => must(field.column, value),
        false => may(field.column, value),
    };
    parameter.aside = field.aside;
    parameter
}

/// Returns the number of arguments of a command.
pub const fn count<T, D>(fields: &[Field<T, D>], way: Way, more: &[Parameter]) -> usize {
    let mut n = more.len() + if matches!(way, Way::Show) { 2 } else { 0 };
    let mut at = 0;
    while at < fields.len() {
        if takes(&fields[at], way) {
            n += 1;
        }
        at += 1;
    }
    n
}

/// Returns the arguments of a command: the columns in `first`, the rest of the key, `-fields` and
/// `-instance` where it shows, all other columns, and `more`. A value without its name belongs to
/// the first of them that is open.
pub const fn parameters<T, D, const N: usize>(
    fields: &[Field<T, D>],
    way: Way,
    first: &[&str],
    more: &[Parameter],
) -> [Parameter; N] {
    let mut out = [switch("instance"); N];
    let mut n = 0;
    let mut at = 0;
    while at < first.len() {
        let mut of = 0;
        while of < fields.len() {
            if takes(&fields[of], way) && same(fields[of].column, first[at]) {
                out[n] = parameter(&fields[of], way);
                n += 1;
            }
            of += 1;
        }
        at += 1;
    }
    let mut keys = true;
    loop {
        let mut at = 0;
        while at < fields.len() {
            let field = &fields[at];
            if takes(field, way) && field.key == keys && !among(field.column, first) {
                out[n] = parameter(field, way);
                n += 1;
            }
            at += 1;
        }
        if !keys {
            break;
        }
        keys = false;
        if matches!(way, Way::Show) {
            out[n] = may("fields", "names");
            out[n + 1] = switch("instance");
            n += 2;
        }
    }
    let mut at = 0;
    while at < more.len() {
        out[n] = more[at];
        n += 1;
        at += 1;
    }
    assert!(n == N, "an argument is there twice, or no column");
    out
}

/// The arguments of a command, from the fields of its resource: the fields, the way they are used,
/// and the columns that come first; and arguments that are no fields.
macro_rules! options {
    ($fields:expr, $way:ident) => {
        options!($fields, $way, [], [])
    };
    ($fields:expr, $way:ident, $first:expr) => {
        options!($fields, $way, $first, [])
    };
    ($fields:expr, $way:ident, $first:expr, $more:expr) => {{
        const WAY: crate::fields::Way = crate::fields::Way::$way;
        const N: usize = crate::fields::count($fields, WAY, &$more);
        const ALL: [crate::grammar::Parameter; N] =
            crate::fields::parameters($fields, WAY, &$first, &$more);
        &ALL
    }};
}
pub(crate) use options;
