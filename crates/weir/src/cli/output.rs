//! Output of the commands that work on a data folder: text for people, or JSON for programs.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use weir_node::control_socket::{self, Reply};

/// Form of what a command prints.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints a result: `data` for programs, or `text` for people.
    pub fn print(self, data: &Value, text: impl std::fmt::Display) -> Result<()> {
        let mut out = std::io::stdout();
        match self.json {
            true => writeln!(out, "{data:#}")?,
            false => writeln!(out, "{text}")?,
        }
        Ok(())
    }

    /// Asks the server of a data folder for something that it shows: as lines, or with `--json` in
    /// its request as data.
    ///
    /// # Errors
    /// There is no server, or it refuses.
    pub fn show(self, folder: &std::path::Path, request: &str) -> Result<()> {
        if !self.json {
            return control_socket::send_request(folder, request).map(drop);
        }
        self.print(&control_socket::data(folder, request)?, "")
    }

    /// Sends a request to the server of a data folder, and prints its reply.
    ///
    /// # Errors
    /// The reply has faults, or there is no server.
    pub fn send_request(self, folder: &std::path::Path, request: &str) -> Result<()> {
        if !self.json {
            let summary = control_socket::send_request(folder, request)?;
            return Ok(writeln!(std::io::stdout(), "{summary}")?);
        }
        let reply = control_socket::query(folder, request)?;
        let Reply {
            notes,
            faults,
            summary,
        } = &reply;
        let data = json!({"summary": summary, "notes": notes, "faults": faults});
        self.print(&data, "")?;
        reply.checked().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::settings;

    /// Commands without `--json`, and why they have none.
    const WITHOUT: [(&str, &str); 9] = [
        ("serve", "runs until it is stopped"),
        ("node", "runs until it is stopped"),
        (
            "bench",
            "another program, whose loads have --json of their own",
        ),
        ("csi", "another program, which runs until it is stopped"),
        ("doctor", "another program, which has --json of its own"),
        ("manual", "writes files"),
        ("completion", "prints a script for a shell"),
        ("config set", "prints no table and no state"),
        ("config unset", "prints no table and no state"),
    ];

    fn leaves(command: &clap::Command, words: &str, out: &mut Vec<(String, bool)>) {
        for below in command.get_subcommands() {
            if below.get_name() == "help" {
                continue;
            }
            let words = format!("{words} {}", below.get_name());
            if below.has_subcommands() {
                leaves(below, &words, out);
                continue;
            }
            let json = below
                .get_arguments()
                .any(|argument| argument.get_long() == Some("json"));
            out.push((words.trim_start().to_owned(), json));
        }
    }

    #[test]
    fn every_command_that_prints_a_table_or_a_state_has_json() {
        let mut all = Vec::new();
        leaves(&settings::command(), "", &mut all);
        assert!(all.len() > 100, "{}", all.len());
        let without: Vec<&str> = all
            .iter()
            .filter(|(_, json)| !json)
            .map(|(words, _)| words.as_str())
            .collect();
        let excepted: Vec<&str> = WITHOUT.iter().map(|(words, _)| *words).collect();
        assert_eq!(sorted(without), sorted(excepted));
    }

    fn sorted(mut all: Vec<&str>) -> Vec<&str> {
        all.sort_unstable();
        all
    }
}
