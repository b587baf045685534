//! ONTAP's command language, for people and programs that speak it.
//!
//! A line is a command of one or several words (`snapmirror policy add-rule`), any of which may be
//! abbreviated as long as it stays unique. Behind it are arguments `-name value`, whose names may
//! be abbreviated likewise. Where a word was abbreviated the reply begins with the command that was
//! understood, in parentheses. `show` takes queries in place of values (`*`, `|`, `!`, `<`, `..`)
//! and `-fields` to choose columns.
//!
//! Replies are text in the form that operators know and scripts parse, down to where columns wrap:
//! [`table`] has the rules. What a command does is asked of a [`Cluster`], so that the language is
//! tested without one that stores data.
//!
//! - [`words`]: a line into words; [`grammar`]: words into a command with arguments; [`mod@help`]:
//!   what may follow;
//! - [`query`]: what a value matches; [`value`]: sizes, durations, throttles as text;
//! - [`cluster`], [`storage`]: what is read and changed;
//! - [`fields`]: what resources have, in REST and as columns;
//! - [`table`]: wrapped columns; [`commands`]: what each command does and returns.

pub mod cluster;
pub mod commands;
pub mod fields;
pub mod grammar;
pub mod help;
pub mod query;
mod refusal;
#[cfg(feature = "script")]
pub mod script;
pub mod storage;
pub mod table;
pub mod value;
pub mod words;

pub use cluster::{Change, Cluster, Clusters, Failure, Reason, Snapshot};
pub use commands::{Answer, call, execute, run};
pub use fields::Scalar;
pub use help::{complete, help};
pub use storage::{Movement, Settings};
