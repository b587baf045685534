//! The command line, run in this process.

use std::collections::HashMap;

use clap::{CommandFactory, Parser};

#[derive(Debug, Parser)]
#[command(name = "weir")]
pub struct Cli {
    #[command(subcommand)]
    pub command: weir_cli::Command,
}

/// Outcome of a command.
#[derive(Debug)]
pub struct Ran {
    pub exit: u8,
    pub out: String,
    pub err: String,
    /// Lines that an interrupt would have printed, one after the other.
    #[allow(dead_code)] // Only some of the tests read it.
    pub interrupted: Vec<String>,
}

/// Runs `weir ARGS` with these variables; `answer` is what the user says to questions. No password
/// is there to be read.
pub fn weir(args: &[&str], environment: &[(&str, &str)], answer: Option<&str>) -> Ran {
    with_password(args, environment, answer, None)
}

/// Runs `weir ARGS` like [`weir`], with the password that is typed where one is asked for.
pub fn with_password(
    args: &[&str],
    environment: &[(&str, &str)],
    answer: Option<&str>,
    password: Option<&str>,
) -> Ran {
    let environment: HashMap<String, String> = environment
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let words = std::iter::once("weir")
        .chain(args.iter().copied())
        .map(Into::into);
    let words = match weir_cli::arguments(words, &Cli::command()) {
        Ok(words) => words,
        Err(error) => {
            return Ran {
                exit: 2,
                out: String::new(),
                err: error,
                interrupted: Vec::new(),
            };
        }
    };
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            return Ran {
                exit: 2,
                out: String::new(),
                err: error.to_string(),
                interrupted: Vec::new(),
            };
        }
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut secret = |user: &str| match password {
        Some(password) => Ok(password.to_owned()),
        None => Err(format!("nobody says {user}'s password")),
    };
    let mut say = || answer.map(str::to_owned);
    let mut interrupted = Vec::new();
    let mut io = weir_cli::Io {
        out: &mut out,
        err: &mut err,
        progress: false,
        answer: if answer.is_some() {
            Some(&mut say)
        } else {
            None
        },
        secret: &mut secret,
        interrupted: &mut |line| interrupted.push(line.to_owned()),
    };
    let exit = weir_cli::run_with(&cli.command, &environment, &mut io);
    Ran {
        exit,
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        interrupted,
    }
}
