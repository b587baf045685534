//! Settings of `weir serve`: the command line, else the environment, else the configuration file,
//! else the default.
//!
//! Every option has a variable and an entry in the file by its own name: `--log-dir` is
//! `WEIR_LOG_DIR` and `log-dir`. Entries of the file that the command line and the environment lack
//! are appended to the command line, so that one parser checks all settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use toml::de::{DeTable, DeValue};

use crate::cli::Cli;

/// The configuration file, if `--config` names no other; it need not exist.
const FILE: &str = "/etc/weir/weir.toml";

/// The command with settings of this kind.
const SERVE: &str = "serve";

/// Options that a configuration file cannot have.
const NOT_IN_FILE: [&str; 3] = ["config", "check-config", "help"];

/// Why a command line cannot be followed.
#[derive(Debug)]
pub enum Invalid {
    /// clap's words, also for `--help`.
    Usage(clap::Error),
    /// A configuration file that cannot be read, or an entry of it.
    File(String),
}

impl Invalid {
    /// Prints it and ends the process.
    pub fn exit(self) -> ! {
        match self {
            Invalid::Usage(error) => error.exit(),
            Invalid::File(message) => {
                eprintln!("weir: {message}");
                std::process::exit(2)
            }
        }
    }
}

/// The whole command line, with the environment's variables.
pub fn command() -> Command {
    Cli::command().mut_subcommand(SERVE, |serve| serve.mut_args(with_variable))
}

fn with_variable(arg: Arg) -> Arg {
    let Some(long) = arg.get_long().filter(|long| *long != "help") else {
        return arg;
    };
    let name: &'static str = match long {
        // WEIR_CONFIG is the file of the client's settings.
        "config" => "WEIR_SERVE_CONFIG",
        // clap keeps names for as long as the process lives; there are some forty.
        long => Box::leak(format!("WEIR_{}", long.replace('-', "_").to_uppercase()).into()),
    };
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    };
    arg.env(name).hide_env_values(true)
}

/// Reads a command line, and for `weir serve` the environment and the configuration file.
///
/// # Errors
/// See [`Invalid`].
pub fn parse(mut arguments: Vec<OsString>) -> Result<Cli, Invalid> {
    let mut from = Source::default();
    if arguments.get(1).is_some_and(|word| word == SERVE) {
        from = Source::read(&arguments)?;
        arguments.extend(from.entries.iter().map(|entry| entry.argument.clone()));
    }
    let matches = command().try_get_matches_from(arguments);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|error| from.blame(error))
}

/// A configuration file, and those of its entries that count.
#[derive(Default)]
struct Source {
    file: PathBuf,
    entries: Vec<Entry>,
}

/// An entry of the file as an argument.
struct Entry {
    key: String,
    line: usize,
    argument: OsString,
}

impl Source {
    /// The file that a command line of `weir serve` has.
    fn read(arguments: &[OsString]) -> Result<Source, Invalid> {
        let mut all = command();
        all.build();
        let Some(serve) = all.find_subcommand(SERVE) else {
            return Ok(Source::default());
        };
        // What is wrong with it is found when everything is there.
        let lenient = serve.clone().ignore_errors(true);
        let Ok(given) = lenient.try_get_matches_from(&arguments[1..]) else {
            return Ok(Source::default());
        };
        let named = given.try_get_one::<PathBuf>("config").ok().flatten();
        let file = match named {
            Some(file) => file.clone(),
            None if Path::new(FILE).exists() => PathBuf::from(FILE),
            None => return Ok(Source::default()),
        };
        let text = std::fs::read_to_string(&file).map_err(|error| {
            Invalid::File(format!(
                "cannot read configuration file {}: {error}",
                file.display()
            ))
        })?;
        let entries = entries(&text, serve, &given)
            .map_err(|(line, why)| Invalid::File(format!("{}:{line}: {why}", file.display())))?;
        Ok(Source { file, entries })
    }

    /// An error that an entry of the file is the cause of, with its line.
    fn blame(&self, error: clap::Error) -> Invalid {
        let about = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let option = about
            .as_deref()
            .and_then(|about| about.split([' ', '=']).next());
        let key = option.and_then(|option| option.strip_prefix("--"));
        match self.entries.iter().find(|entry| Some(&*entry.key) == key) {
            None => Invalid::Usage(error),
            Some(entry) => {
                let words = error.to_string();
                let first = words.lines().next().unwrap_or_default();
                let why = first.trim_start_matches("error: ");
                Invalid::File(format!("{}:{}: {why}", self.file.display(), entry.line))
            }
        }
    }
}

/// Entries of a configuration file that `given` does not have, as arguments of `serve`.
///
/// # Errors
/// The line, counted from 1, and the fault in it.
fn entries(text: &str, serve: &Command, given: &ArgMatches) -> Result<Vec<Entry>, (usize, String)> {
    let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (line(at), error.message().to_owned())
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, line) = (key.get_ref().as_ref(), line(key.span().start));
        let known = serve
            .get_arguments()
            .find(|arg| arg.get_long() == Some(name));
        let Some(arg) = known.filter(|_| !NOT_IN_FILE.contains(&name)) else {
            return Err((
                line,
                format!("unknown key '{name}' (`weir serve --help` has all)"),
            ));
        };
        let wrong = |wanted: &str| (line, format!("'{name}' takes {wanted}"));
        let arguments: Vec<String> = match (arg.get_action(), value.get_ref()) {
            (ArgAction::SetTrue, DeValue::Boolean(true)) => vec![format!("--{name}")],
            (ArgAction::SetTrue, DeValue::Boolean(false)) => Vec::new(),
            (ArgAction::SetTrue, _) => return Err(wrong("true or false")),
            (ArgAction::Append, DeValue::Array(values)) => {
                let all = values.iter().map(|value| scalar(value.get_ref()));
                let all: Option<Vec<String>> = all.collect();
                let all = all.ok_or_else(|| wrong("strings"))?;
                all.iter()
                    .map(|value| format!("--{name}={value}"))
                    .collect()
            }
            (_, value) => match scalar(value) {
                Some(value) => vec![format!("--{name}={value}")],
                None => return Err(wrong("a string or a number")),
            },
        };
        let source = given.value_source(arg.get_id().as_str());
        if matches!(
            source,
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        ) {
            continue;
        }
        entries.extend(arguments.into_iter().map(|argument| Entry {
            key: name.to_owned(),
            line,
            argument: argument.into(),
        }));
    }
    Ok(entries)
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command as Words, Serve};

    fn with_file(text: &str, words: &[&str]) -> Result<Box<Serve>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, text).unwrap();
        let mut arguments: Vec<OsString> = ["weir", "serve"].map(OsString::from).to_vec();
        arguments.push(format!("--config={}", file.display()).into());
        arguments.extend(words.iter().map(OsString::from));
        match parse(arguments) {
            Ok(Cli {
                command: Words::Serve(serve),
            }) => Ok(serve),
            Ok(_) => unreachable!("it is `weir serve`"),
            Err(Invalid::Usage(error)) => Err(error.to_string()),
            Err(Invalid::File(message)) => {
                Err(message.replace(folder.path().to_str().unwrap(), "DIR"))
            }
        }
    }

    #[test]
    fn every_option_has_a_variable_and_may_be_in_a_file() {
        let command = command();
        let serve = command.find_subcommand(SERVE).unwrap();
        let mut options = 0;
        for arg in serve.get_arguments() {
            let long = arg.get_long().expect("options only");
            let variable = arg
                .get_env()
                .unwrap_or_else(|| panic!("--{long} has no variable"));
            assert!(variable.to_str().unwrap().starts_with("WEIR_"), "--{long}");
            options += 1;
        }
        assert!(options > 25, "{options}");
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let text = "data = \"/srv/weir\"\nmemory = \"1G\"\nlookup-groups = true\nno-rpcbind = false\n\
                    nfs4-referral = [\"/a=10.0.0.1:/a\", \"/b=10.0.0.2:/b,10.0.0.3:/b\"]\nstall = 7\n";
        let serve = with_file(text, &["--memory", "2G"]).unwrap();
        assert_eq!(serve.data, PathBuf::from("/srv/weir"));
        assert_eq!(serve.memory.unwrap().0, 2 << 30);
        assert!(serve.lookup_groups && !serve.no_rpcbind);
        assert_eq!(serve.nfs4_referral.len(), 2);
        assert_eq!(serve.stall, Some(7));
        assert_eq!(serve.nfs.port(), 2049);
    }

    #[test]
    fn faults_have_their_line() {
        for (text, fault) in [
            (
                "data = \"d\"\nmemry = 1\n",
                "DIR/weir.toml:2: unknown key 'memry' (`weir serve --help` has all)",
            ),
            (
                "data = \"d\"\n\nconfig = \"x\"\n",
                "DIR/weir.toml:3: unknown key 'config' (`weir serve --help` has all)",
            ),
            (
                "data = \"d\"\nno-rpcbind = 1\n",
                "DIR/weir.toml:2: 'no-rpcbind' takes true or false",
            ),
            (
                "data = [\"d\"]\n",
                "DIR/weir.toml:1: 'data' takes a string or a number",
            ),
            (
                "data = \"d\"\n# Where\nnfs = \"localhost\"\n",
                "DIR/weir.toml:3: invalid value 'localhost' for '--nfs <ADDR:PORT>': it must be an IP address of this machine with a port of 0 to 65535, such as 0.0.0.0:2049 or [::1]:2049",
            ),
            ("data = \"d\"\nlog = \"=,\"\n", "DIR/weir.toml:2: "),
            ("data = \n", "DIR/weir.toml:1: "),
        ] {
            let message = with_file(text, &[]).unwrap_err();
            assert!(message.starts_with(fault), "{text:?}: {message}");
        }
        let message = with_file("nfs-tls-cert = \"c\"\ndata = \"d\"\n", &[]).unwrap_err();
        assert!(message.contains("--nfs-tls-key"), "{message}");
        assert!(with_file("", &[]).unwrap_err().contains("--data"));
    }
}
