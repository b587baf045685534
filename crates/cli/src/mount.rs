//! Commands that mount a volume: all that makes a Linux client fast and safe, so that `weir doctor`
//! has nothing to add.
//!
//! The mount command is the server's own (`mountOptions`), which knows its ports and its lock
//! manager. Every connection adds 128 requests in flight, which is a setting of the kernel's and
//! has to be made before the first mount. Since 5.4 the kernel reads 128 KiB ahead whatever the
//! transfer size is; before, it was 15 transfers. NFSv4 is shown for volumes that offer it.

use serde_json::Value;

use crate::format::text;

/// KiB: 15 × 1 MiB.
const READ_AHEAD: u32 = 15_360;

/// Settings that one version of the protocol needs.
struct Version {
    name: &'static str,
    /// Settings of the kernel, before the first mount.
    kernel: &'static str,
    /// The settings for the next start: the file, and its line.
    file: (&'static str, &'static str),
}

const NFS3: Version = Version {
    name: "NFSv3",
    kernel: "sudo modprobe sunrpc\nsudo sysctl -w sunrpc.tcp_max_slot_table_entries=128\n",
    file: (
        "/etc/modprobe.d/sunrpc.conf",
        "options sunrpc tcp_max_slot_table_entries=128",
    ),
};

const NFS4: Version = Version {
    name: "NFSv4",
    kernel: "sudo modprobe nfs\necho 180 | sudo tee /sys/module/nfs/parameters/max_session_slots\n",
    file: (
        "/etc/modprobe.d/nfsclient.conf",
        "options nfs max_session_slots=180",
    ),
};

/// Returns the lines for a volume as the API describes it; none if it has nothing to mount.
pub fn help(volume: &Value) -> Option<String> {
    let options = volume.get("mountOptions")?.as_array()?;
    let share = volume.get("shareName").map(text).unwrap_or_default();
    let folder = format!("/mnt/{share}");
    let mut out = String::new();
    for option in options {
        let field = |name: &str| option.get(name).map(text).unwrap_or_default();
        let version = match field("protocol").as_str() {
            "NFSV3" => NFS3,
            "NFSV4" => NFS4,
            "SMB" => {
                smb(&mut out, &field("instructions"));
                continue;
            }
            _ => continue,
        };
        let instructions = field("instructions");
        let Some((line, options, export)) = command(&instructions) else {
            continue;
        };
        let Version {
            name,
            kernel,
            file: (file, setting),
        } = version;
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!(
            "# {name}; the settings of the kernel have to be made before the first mount of this server\n{kernel}\
             sudo mkdir -p {folder}\n{line}\n\
             echo {READ_AHEAD} | sudo tee /sys/class/bdi/$(mountpoint -d {folder})/read_ahead_kb\n\
             # in /etc/fstab:\n{export} {folder} nfs {options},_netdev 0 0\n\
             # in {file}:\n{setting}\n\
             # in /etc/nfs.conf.d/read-ahead.conf (nfs-utils 2.6.2 or later):\n\
             [nfsrahead]\nnfs={READ_AHEAD}\nnfs4={READ_AHEAD}\n"
        ));
    }
    (!out.is_empty()).then_some(out)
}

/// Writes the lines of SMB, which are the server's: a user has to be named, and no setting of the
/// kernel matters.
fn smb(out: &mut String, instructions: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str("# SMB; the last line is for Windows (weir users create USER makes a user)\n");
    out.push_str(instructions);
    out.push('\n');
}

/// Returns the mount command of the server's instructions, its options and its export.
fn command(instructions: &str) -> Option<(&str, &str, &str)> {
    let line = instructions
        .lines()
        .find(|line| line.starts_with("sudo mount -t nfs"))?;
    let (_, rest) = line.split_once(" -o ")?;
    let mut words = rest.split_whitespace();
    Some((line, words.next()?, words.next()?))
}
