//! Completeness of `weir volumes mount-help`: its lines are run on a new machine, and `weir doctor`
//! finds no fault there, nor after the next start.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "../../doctor/tests/machine/mod.rs"]
mod machine;

use common::{Server, weir};
use machine::{LAYOUTS, Layout, Machine};

/// Lines to run, and lines for files.
fn parts(help: &str) -> (Vec<String>, Vec<(String, String)>) {
    let mut commands = Vec::new();
    let mut files: Vec<(String, String)> = Vec::new();
    let mut file: Option<String> = None;
    for line in help.lines() {
        if let Some(rest) = line.strip_prefix("# in ") {
            file = rest.split([' ', ':']).next().map(str::to_owned);
        } else if line.starts_with('#') || line.is_empty() {
            file = None;
        } else if let Some(file) = &file {
            files.push((file.clone(), format!("{line}\n")));
        } else {
            // Only /mnt itself is outside of the tree, and nothing needs it.
            let command = line.replace("sudo mkdir", "true").replace("sudo ", "");
            commands.push(command.replace("| tee ", "> "));
        }
    }
    (commands, files)
}

/// Rules that find something, but for local locks: rpcbind does not know this server, and a mount
/// without `nolock` would fail every lock.
fn rules(machine: &Machine) -> Vec<&'static str> {
    let found = machine.diagnose().0;
    let rules = found.iter().map(|f| f.rule);
    rules.filter(|rule| *rule != "local-locks").collect()
}

/// Runs a section on a new machine of each kind: the doctor finds nothing, nor after the next
/// start.
fn content(commands: &[String], files: &[(String, String)], help: &str) {
    for layout in LAYOUTS {
        let machine = Machine::new(layout);
        machine.run(commands);
        for (path, line) in files {
            machine.append(path.trim_start_matches('/'), line);
        }
        assert_eq!(rules(&machine), [""; 0], "{layout:?}: {help}");
        machine.shell("reboot");
        let ahead: &[&str] = match layout {
            Layout::Ubuntu2204 => &["read-ahead"],
            _ => &[],
        };
        assert_eq!(rules(&machine), ahead, "{layout:?}: {help}");
    }
}

#[test]
fn the_doctor_is_content_with_mount_help() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = format!("http://{}", server.api.unwrap());
    let ran = weir(&["volumes", "mount-help", "vol1", "--server", &api]);
    let help = String::from_utf8(ran.stdout).unwrap();
    // A section for each protocol that the volume offers, any one of which is enough.
    let sections: Vec<_> = help.split("\n\n").map(parts).collect();
    for (commands, files) in &sections {
        let mounts = commands.iter().any(|c| c.starts_with("mount -t nfs"));
        assert!(mounts, "{help}");
        assert!(files.iter().any(|(path, _)| path == "/etc/fstab"), "{help}");
        content(commands, files, &help);
    }
    let (commands, _) = &sections[0];
    // What the API says to clients that show it themselves (gcloud, Terraform): the same options.
    let ran = weir(&[
        "volumes",
        "describe",
        "vol1",
        "--server",
        &api,
        "--format=json",
    ]);
    let volume: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let said = volume["mountOptions"][0]["instructions"].as_str().unwrap();
    let mount = said
        .lines()
        .find_map(|line| line.strip_prefix("sudo mount "))
        .unwrap();
    let from_api: Vec<String> = commands
        .iter()
        .map(|c| match c.starts_with("mount -t nfs") {
            true => format!("mount {mount}"),
            false => c.clone(),
        })
        .collect();
    let machine = Machine::new(Layout::Debian12);
    machine.run(&from_api);
    assert_eq!(rules(&machine), [""; 0], "{said}");
    // One line, the server's: with its ports, and with what holds without rpcbind.
    assert!(help.contains(&format!("sudo mount {mount}\n")), "{help}");
    let port = server.address.port();
    let own = format!("port={port},mountport={port},mountproto=tcp,nolock ");
    assert!(mount.contains(&own), "{mount}");
    server.stop();
}
