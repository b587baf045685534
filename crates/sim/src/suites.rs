//! The suites by name.

use crate::suite::Suite;

/// All of them.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "restart",
        about: "random operations against the engine, with consistency points and clean restarts",
        run: crate::restart::story,
    },
    Suite {
        name: "crash",
        about: "power failures at any moment, recovery included",
        run: crate::crash::story,
    },
];

/// The suite of this name.
#[must_use]
pub fn suite(name: &str) -> Option<Suite> {
    SUITES.iter().find(|suite| suite.name == name).copied()
}
