//! The tables of fields: no name is there twice, and the document lists them as they are.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weir_ontap::fields::{ALL, Access, FieldDescription};

const DOCUMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/ontap-fields.md"
);

#[test]
fn a_name_is_a_field_of_its_own() {
    let mut paths = BTreeSet::new();
    for of in ALL {
        assert!(paths.insert(of.path()), "{}", of.path());
        let fields = of.describe();
        for name in [
            |f: &FieldDescription| f.rest,
            |f: &FieldDescription| f.column,
        ] {
            let mut seen = BTreeSet::new();
            for name in fields.iter().map(name).filter(|name| !name.is_empty()) {
                assert!(seen.insert(name), "{} has {name} twice", of.path());
            }
        }
        for field in &fields {
            assert_eq!(field.column.is_empty(), field.label.is_empty(), "{field:?}");
            assert!(
                !field.rest.is_empty() || !field.column.is_empty(),
                "{field:?}"
            );
        }
    }
}

/// Returns the words for how a field is set, at creation and by a change.
fn set(access: Access) -> String {
    match access {
        Access::No => String::new(),
        Access::Yes => "yes".to_owned(),
        Access::Same => "as it is".to_owned(),
        Access::Only(values) => {
            let values = values.split('|').map(|value| match value {
                "" | "-" => "nothing".to_owned(),
                value => format!("`{value}`"),
            });
            let values: Vec<String> = values.collect();
            format!("only {}", values.join(" or "))
        }
    }
}

fn document() -> String {
    let mut out = "# Fields of ONTAP's resources\n\n\
        What REST and the command line have of each resource, from the tables that both are made of. \
        An empty cell in \"REST\" or\n\"Column\" is a field that only the other one has. \"Created\" and \
        \"Changed\" say whether the field can be given: at creation, by a\nchange. All others are \
        refused by name. [ontap.md](ontap.md) says what they mean.\n"
        .to_owned();
    for of in ALL {
        let command = of.command().join(" ");
        let _ = write!(out, "\n## `{}`", of.path());
        if !command.is_empty() {
            let _ = write!(out, ", `{command} show`");
        }
        out.push_str(
            "\n\n| REST | Column | Heading | Created | Changed |\n|---|---|---|---|---|\n",
        );
        for field in of.describe() {
            let code = |name: &str| match name {
                "" => String::new(),
                name => format!("`{name}`"),
            };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                code(field.rest),
                code(field.column),
                field.label,
                set(field.set[0]),
                set(field.set[1])
            );
        }
    }
    out
}

#[test]
fn the_document_lists_the_tables() {
    let made = document();
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(DOCUMENT, &made).unwrap();
    }
    let kept = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        kept == made,
        "docs/reference/ontap-fields.md (WEIR_BLESS=1 writes it anew)"
    );
}
