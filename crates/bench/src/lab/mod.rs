//! The benchmark lab: matrices of measurements as tables, and reports of them.
//!
//! It makes of single measurements (of the own generator in [`mod@crate::run`], or of fio)
//! what can be believed and compared: the published tables' own form, repetitions with
//! their spread, and beside each figure what it rests on.
//!
//! | Module | Responsibility |
//! |---|---|
//! | [`cli`] | command line |
//! | [`spec`], [`presets`], [`scale`] | definitions: reading, built-in ones, fitting to a machine |
//! | [`plan`] | points of a definition, their order, their working sets |
//! | [`target`] | what is measured: export, folder, block device |
//! | [`driver`] | measuring one point |
//! | [`drive_nfs`], [`drive_smb`] ([`live`]) | measuring with our own generator |
//! | [`fio`] ([`fio_job`], [`fio_json`]) | measuring with fio |
//! | [`runner`] | the whole run: order, failures, interruption, resuming |
//! | [`outcome`], [`files`] | results, and where they are kept |
//! | [`stats`], [`trust`], [`facts`] | what makes them trustworthy |
//! | [`view`], [`text`], [`overhead`], [`report`] | results as tables, text, Markdown and HTML |
//! | [`summary`] | results in short, for a server that shows them |
//! | [`compare`], [`published`] | runs beside each other and beside published figures |
//! | [`progress`], [`units`] | display; numbers for people |

pub mod cli;
pub mod compare;
pub mod drive_nfs;
pub mod drive_smb;
pub mod driver;
pub mod facts;
pub mod files;
pub mod fio;
pub mod fio_job;
pub mod fio_json;
pub mod live;
pub mod outcome;
pub mod overhead;
pub mod plan;
pub mod presets;
pub mod progress;
pub mod published;
pub mod report;
pub mod runner;
pub mod scale;
pub mod spec;
pub mod stats;
pub mod summary;
pub mod target;
pub mod text;
pub mod trust;
pub mod units;
pub mod view;

use crate::error::BenchError;
use cli::{PresetsArgs, PresetsCommand, ReportArgs};

/// `weir bench presets`: what is to be printed.
pub fn presets_text(args: &PresetsArgs) -> Result<String, BenchError> {
    Ok(match &args.command {
        PresetsCommand::Show { name } => presets::text(name)?.to_owned(),
        PresetsCommand::List => {
            let mut out = String::new();
            for (name, _) in presets::PRESETS {
                let d = presets::load(name)?;
                out.push_str(&format!("{name:<16}{}\n", d.title));
            }
            out
        }
    })
}

/// `weir bench report`: writes the files asked for; returns what is to be printed.
pub fn report_again(args: &ReportArgs) -> Result<String, BenchError> {
    let run = files::read(&args.run)?;
    let mut written = String::new();
    for (path, content) in [
        (&args.html, report::run_page as fn(&outcome::Run) -> String),
        (&args.markdown, text::markdown),
        (&args.summary, summary::json),
    ] {
        if let Some(path) = path {
            files::refuse_existing(path, args.force)?;
            files::write(path, &content(&run))?;
            written.push_str(&format!("written to {}\n", path.display()));
        }
    }
    if written.is_empty() {
        written = text::terminal(&run);
    }
    Ok(written)
}
