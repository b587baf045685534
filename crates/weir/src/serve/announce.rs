//! Text that the server prints when it is ready: addresses, sizes of a new aggregate, and commands
//! to copy.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use weir_api::{Mounts, nfs_command};
use weir_control::Protocol;

use weir_node::backend::ExportSummary;
use weir_node::os;
use weir_node::size::Size;

/// Facts about a server that is ready.
pub struct ServerFacts<'a> {
    /// Addresses that clients mount from.
    pub mounts: Mounts,
    /// Address of the API, if it is served.
    pub api: Option<&'a str>,
    /// Address of SMB, if it is served.
    pub smb: Option<SocketAddr>,
    /// The sizes of what a first start has created.
    pub created: Option<NewAggregate<'a>>,
    /// The exports.
    pub exports: &'a [ExportSummary],
}

/// A new aggregate.
pub struct NewAggregate<'a> {
    /// Name of the place: a data folder, or an aggregate elsewhere.
    pub place: String,
    /// Size that the device has now, and up to which it grows.
    pub device: (Size, Size),
    /// Size of the intent log.
    pub log: Size,
    /// The folder of the log, if it is another one.
    pub log_folder: Option<&'a Path>,
}

/// Styles of text on a terminal.
#[derive(Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// Returns colours for a terminal, unless the environment says that none are wanted
    /// (<https://no-color.org>).
    pub fn from_terminal(terminal: &impl std::io::IsTerminal) -> Paint {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Paint(terminal.is_terminal() && !set("NO_COLOR") && !dumb)
    }

    fn heading(self, text: impl fmt::Display) -> String {
        match self.0 {
            true => format!("\x1b[1m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    fn command(self, text: impl fmt::Display) -> String {
        match self.0 {
            true => format!("\x1b[36m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }
}

impl NewAggregate<'_> {
    fn write(&self, text: &mut String, paint: Paint) -> fmt::Result {
        let NewAggregate { place, device, .. } = self;
        let log = match self.log_folder {
            Some(folder) => format!("{} in {}", self.log, folder.display()),
            None => format!("{}", self.log),
        };
        let title = format!("Created {place}:");
        writeln!(text, "\n{}", paint.heading(title))?;
        writeln!(
            text,
            "  device  {} now, grows as it fills, to {} at most",
            device.0, device.1
        )?;
        writeln!(text, "  log     {log}, allocated now")?;
        // The control plane counts in whole GiB.
        let volume = Size(device.1.0.div_ceil(GIB).saturating_mul(GIB));
        writeln!(text, "  pool    default, with the volume vol1 of {volume}")
    }
}

const GIB: u64 = 1 << 30;

/// First commands to try, each with its purpose.
const NEXT: [(&str, &str); 3] = [
    ("weir top", "throughput, latency and limits, live"),
    (
        "weir volumes snapshots create NAME --volume=vol1",
        "keep the volume as it is now",
    ),
    (
        "weir volumes mount-help vol1",
        "mount options, and settings of clients",
    ),
];

/// Returns the host of an address as clients write it: this machine's name for an unspecified
/// address, an IPv6 address in brackets.
fn host_of(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => os::host_name(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    }
}

impl ServerFacts<'_> {
    /// Returns the text to print.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, paint);
        text
    }

    fn write(&self, text: &mut String, paint: Paint) -> fmt::Result {
        writeln!(text, "listening on {}", self.mounts.nfs)?;
        if let Some(api) = self.api {
            writeln!(text, "API on {api}")?;
        }
        if let Some(smb) = self.smb {
            writeln!(text, "SMB on {smb} (users: `weir users create NAME`)")?;
        }
        if let Some(created) = &self.created {
            created.write(text, paint)?;
        }
        let Some((first, others)) = self.exports.split_first() else {
            return Ok(());
        };
        self.mounting(first, text, paint)?;
        if !others.is_empty() {
            writeln!(
                text,
                "\nand {} more (`weir volumes list`, `weir volumes mount-help VOLUME`)",
                others.len()
            )?;
        }
        if self.created.is_some() && self.api.is_some() {
            writeln!(text, "\n{}", paint.heading("Next:"))?;
            for (command, purpose) in NEXT {
                let command = paint.command(format!("{command:<49}"));
                writeln!(text, "  {command} {purpose}")?;
            }
        }
        Ok(())
    }

    /// Writes the commands that mount an export.
    fn mounting(&self, export: &ExportSummary, text: &mut String, paint: Paint) -> fmt::Result {
        let address = self.mounts.nfs;
        let (host, port) = (host_of(address), address.port());
        let local = address.ip().is_loopback();
        let path = export.path.trim_start_matches('/');
        let folder = format!("/mnt/{}", path.rsplit('/').next().unwrap_or_default());
        let from = match local {
            true => "on this machine",
            false => "on this machine or another",
        };
        let title = format!("Mount /{path} {from}:");
        let mut lines = vec![("", format!("sudo mkdir -p {folder}"))];
        for (name, protocol, served) in [
            ("NFSv4", Protocol::Nfsv4, export.nfsv4),
            ("NFSv3", Protocol::Nfsv3, export.nfsv3),
        ] {
            if served {
                lines.push((
                    name,
                    nfs_command(protocol, &host, self.mounts, path, &folder),
                ));
            }
        }
        if let (Some(share), Some(smb)) = (&export.share, self.smb) {
            let (host, port) = (host_of(smb), smb.port());
            let options = format!("vers=3.1.1,port={port},username=NAME");
            let command = format!("sudo mount -t cifs -o {options} //{host}/{share} {folder}");
            lines.push(("SMB", command));
        }
        if export.nfsv3 {
            let query = format!("version=3&nfsport={port}&mountport={port}");
            lines.push(("libnfs", format!("nfs://{host}/{path}?{query}")));
        }
        writeln!(text, "\n{}", paint.heading(title))?;
        for (name, command) in lines {
            writeln!(text, "  {name:<6}  {}", paint.command(command))?;
        }
        if local {
            writeln!(
                text,
                "\nOther machines cannot reach {host}: start with --nfs 0.0.0.0:{port}, and name the clients\n\
                 that may mount in export rules (docs/operating/server.md)."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint(false);

    fn export(path: &str) -> ExportSummary {
        ExportSummary {
            path: path.to_owned(),
            nfsv3: true,
            nfsv4: true,
            share: Some(path.trim_start_matches('/').to_owned()),
        }
    }

    fn mounts(address: &str, registered: bool) -> Mounts {
        Mounts {
            nfs: address.parse().unwrap(),
            smb: Some(4450),
            registered,
        }
    }

    #[test]
    fn the_lines_are_complete_commands() {
        let exports = [export("/vol1")];
        let ready = |address: &str, registered| {
            let first = NewAggregate {
                place: "the data folder ./weir-data".to_owned(),
                device: (Size(64 << 20), Size((36 << 30) - 1)),
                log: Size(2 << 30),
                log_folder: None,
            };
            ServerFacts {
                mounts: mounts(address, registered),
                api: Some("http://127.0.0.1:8049"),
                smb: Some("127.0.0.1:4450".parse().unwrap()),
                created: registered.then_some(first),
                exports: &exports,
            }
            .text(PLAIN)
        };
        let text = ready("127.0.0.1:2049", false);
        assert!(text.starts_with("listening on 127.0.0.1:2049\nAPI on http://127.0.0.1:8049\n"));
        for line in [
            ",port=2049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/vol1 /mnt/vol1\n",
            "\n          sudo mkdir -p /mnt/vol1\n",
            "nfs://127.0.0.1/vol1?version=3&nfsport=2049&mountport=2049\n",
            "\nSMB on 127.0.0.1:4450 ",
            "sudo mount -t cifs -o vers=3.1.1,port=4450,username=NAME //127.0.0.1/vol1 /mnt/vol1\n",
            "\nOther machines cannot reach 127.0.0.1: start with --nfs 0.0.0.0:2049,",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("Created") && !text.contains("Next"));
        let first = ready("127.0.0.1:2049", true);
        assert!(!first.contains("nolock"));
        for line in [
            "Created the data folder ./weir-data:\n  device  64 MiB now, grows as it fills, to 35.9 GiB at most\n",
            "  log     2 GiB, allocated now\n",
            "  pool    default, with the volume vol1 of 36 GiB\n",
            "\nNext:\n  weir top  ",
        ] {
            assert!(first.contains(line), "{line}: {first}");
        }
        // One screen of 24 lines, where lines do not wrap.
        assert!(first.lines().count() <= 24, "{first}");
        assert!(ready("[::1]:2049", true).contains(" [::1]:/vol1 /mnt/vol1"));
        let everywhere = ready("0.0.0.0:9", true);
        let line = format!(",port=9 {}:/vol1 /mnt/vol1", os::host_name());
        assert!(everywhere.contains(&line), "{everywhere}");
        assert!(everywhere.contains("Mount /vol1 on this machine or another:"));
        assert!(!everywhere.contains("cannot reach"));
    }

    #[test]
    fn protocols_that_are_not_served_have_no_line() {
        let smb_alone = ExportSummary {
            nfsv3: false,
            nfsv4: false,
            ..export("/docs")
        };
        let text = |smb: Option<&str>| {
            ServerFacts {
                mounts: mounts("127.0.0.1:2049", true),
                api: None,
                smb: smb.map(|smb| smb.parse().unwrap()),
                created: None,
                exports: std::slice::from_ref(&smb_alone),
            }
            .text(PLAIN)
        };
        let said = text(Some("127.0.0.1:445"));
        assert!(said.contains("cifs") && !said.contains("-t nfs"), "{said}");
        assert!(!text(None).contains("cifs"));
    }

    #[test]
    fn commands_are_printed_of_one_export() {
        let exports: Vec<ExportSummary> = (0..1000).map(|i| export(&format!("/v{i}"))).collect();
        let text = ServerFacts {
            mounts: mounts("127.0.0.1:2049", true),
            api: None,
            smb: None,
            created: None,
            exports: &exports,
        }
        .text(PLAIN);
        for line in [
            "sudo mount -t nfs -o vers=4.2,",
            "sudo mount -t nfs -o vers=3,",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
        assert!(text.contains("and 999 more"));
        assert!(!text.contains("API"));
    }

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(PLAIN.heading("x") + &PLAIN.command("y"), "xy");
        assert_eq!(Paint(true).heading("x"), "\x1b[1mx\x1b[0m");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!Paint::from_terminal(&file).0);
    }
}
