//! Runs `adcli` (<https://www.freedesktop.org/software/realmd/adcli/>), which creates computer
//! accounts and sets their passwords.
//!
//! Passwords go over its standard input, since all users of the machine can read command lines. It
//! is killed if it has not ended after [`LIMIT`]. It changes the domain in its last steps, and can
//! be started again after any of them.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;

use super::{Failure, Member, Request};

const PROGRAM: &str = "adcli";
/// Time limit of a run. If a domain controller does not reply, adcli's own limits end it before.
const LIMIT: Duration = Duration::from_secs(180);
/// Number of bytes read of each output stream.
const MOST: u64 = 64 << 10;
/// Services whose names the account gets, and its keys: the machine itself, SMB and NFS.
const SERVICES: [&str; 3] = ["host", "cifs", "nfs"];
/// Exit code for credentials that the domain refuses (adcli(8), "EXIT STATUS" of its
/// `tools/tools.h`).
const CREDENTIALS: i32 = 3;

/// Creates the account, or sets a new password for it, and writes its keys to a file.
pub fn join(
    request: &Request,
    keytab: &Path,
    user: &str,
    password: &str,
) -> Result<Member, Failure> {
    let mut args = domain("join", &request.domain, &request.controller);
    args.push("--login-type=user".into());
    args.push(format!("--login-user={user}").into());
    args.push("--stdin-password".into());
    args.push(option("--host-keytab=", keytab));
    args.push(format!("--computer-name={}", request.computer).into());
    args.push(format!("--host-fqdn={}", request.host).into());
    args.push("--os-name=Weir".into());
    args.push(format!("--os-version={}", env!("CARGO_PKG_VERSION")).into());
    args.push("--show-details".into());
    let as_account = format!("{}.{}", request.computer, request.domain).to_lowercase();
    for service in SERVICES {
        args.push(format!("--service-name={service}").into());
        if !as_account.eq_ignore_ascii_case(&request.host) {
            args.push(format!("--add-service-principal={service}/{as_account}").into());
        }
    }
    if !request.unit.is_empty() {
        args.push(format!("--domain-ou={}", request.unit).into());
    }
    if request.ldaps {
        args.push("--use-ldaps".into());
    }
    let said = run(&args, password)?;
    let value = |name: &str| {
        let mut lines = said.lines().filter_map(|line| line.split_once(" = "));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    let known = |name, otherwise: &str| value(name).unwrap_or_else(|| otherwise.to_owned());
    Ok(Member {
        domain: known("domain-name", &request.domain),
        short: known("domain-short", ""),
        realm: known("domain-realm", &request.domain.to_uppercase()),
        controller: request.controller.clone(),
        computer: known("computer-name", &request.computer),
        account: known("computer-dn", ""),
        host: request.host.clone(),
    })
}

/// Deletes the account.
pub fn delete(member: &Member, user: &str, password: &str) -> Result<(), Failure> {
    let mut args = domain("delete-computer", &member.domain, &member.controller);
    args.push(format!("--login-user={user}").into());
    args.push("--stdin-password".into());
    args.push(member.computer.as_str().into());
    run(&args, password).map(drop)
}

/// Logs on with the account's keys.
pub fn test(member: &Member, keytab: &Path) -> Result<(), Failure> {
    let mut args = domain("testjoin", &member.domain, &member.controller);
    args.push(option("--host-keytab=", keytab));
    run(&args, "").map(drop)
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

fn domain(command: &str, domain: &str, controller: &str) -> Vec<OsString> {
    let mut args = vec![command.into(), format!("--domain={domain}").into()];
    if !controller.is_empty() {
        args.push(format!("--domain-controller={controller}").into());
    }
    args
}

/// Runs it; returns what it says.
fn run(args: &[OsString], password: &str) -> Result<String, Failure> {
    run_as(PROGRAM, args, password, LIMIT)
}

fn run_as(
    program: &str,
    args: &[OsString],
    password: &str,
    limit: Duration,
) -> Result<String, Failure> {
    let started = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::Refused(format!(
                "joining a domain takes {program}, which this machine does not have: install it (Debian, Ubuntu: apt-get install adcli; \
                 Fedora, RHEL: dnf install adcli). A keytab that another program has made serves with --krb5-keytab"
            )));
        }
        other => other.with_context(|| format!("starting {program}"))?,
    };
    if let Some(mut input) = child.stdin.take() {
        // It reads none if it has ended; its words say why.
        let _ = input.write_all(password.as_bytes());
    }
    let (out, errors) = heard(&mut child, limit)?;
    let status = child.wait().with_context(|| program.to_owned())?;
    if status.success() {
        return Ok(out);
    }
    // The last line is the error; those before are warnings.
    let why = errors.lines().rfind(|line| !line.trim().is_empty());
    let why = why.map_or("it says nothing", |line| line.trim());
    let why = why.trim_start_matches("adcli: ");
    let hint = match status.code() {
        Some(CREDENTIALS) => " (name or password are not right, or the account is locked)",
        _ => "",
    };
    let name = args.first().map(|name| name.to_string_lossy());
    Err(Failure::Refused(format!(
        "{program} {}: {why}{hint}",
        name.unwrap_or_default()
    )))
}

/// Reads both output streams of the child to their end. Kills the child if that takes longer than
/// `limit`.
fn heard(child: &mut Child, limit: Duration) -> Result<(String, String), Failure> {
    let (out, errors) = (reader(child.stdout.take())?, reader(child.stderr.take())?);
    match out.recv_timeout(limit) {
        Ok(out) => {
            let errors = errors.recv_timeout(limit).unwrap_or_default();
            Ok((out, errors))
        }
        Err(_) => {
            // Neither fails for a child of ours that was not waited for.
            let _ = child.kill();
            let _ = child.wait();
            Err(Failure::Refused(format!(
                "the domain has not replied within {} seconds",
                limit.as_secs()
            )))
        }
    }
}

/// Reads a stream on a thread of its own.
fn reader(stream: Option<impl Read + Send + 'static>) -> Result<mpsc::Receiver<String>, Failure> {
    let (done, text) = mpsc::channel();
    std::thread::Builder::new()
        .name("weir-adcli".to_owned())
        .spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                // An error ends it as the stream's end does.
                let _ = stream.take(MOST).read_to_end(&mut bytes);
            }
            let _ = done.send(String::from_utf8_lossy(&bytes).into_owned());
        })
        .context("starting a thread")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<String, Failure> {
        run_as("sh", &["-c".into(), script.into()], "secret", limit)
    }

    fn refused(outcome: Result<String, Failure>) -> String {
        match outcome {
            Err(Failure::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_password_goes_over_the_standard_input_and_the_last_words_are_the_reason() {
        assert_eq!(sh("cat; echo a warning >&2", LIMIT).unwrap(), "secret");
        let why = refused(sh("echo first >&2; echo 'adcli: no' >&2; exit 3", LIMIT));
        assert!(why.contains(": no (name or password"), "{why}");
        assert!(!why.contains("first"), "{why}");
        let why = refused(sh("exec 2>&-; exit 1", LIMIT));
        assert!(why.contains("it says nothing"), "{why}");
        // What says more than is read ends too.
        assert!(sh("head -c 1000000 /dev/zero", LIMIT).is_err());
    }

    #[test]
    fn what_does_not_end_is_killed_and_what_is_missing_is_named() {
        let why = refused(sh("exec sleep 1000", Duration::from_millis(50)));
        assert!(why.contains("has not replied"), "{why}");
        let missing = run_as("weir-has-no-such-program", &[], "", LIMIT);
        let why = refused(missing);
        assert!(why.contains("install it"), "{why}");
    }
}
