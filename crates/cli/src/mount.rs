//! How to mount a volume: the options that make a Linux client fast and safe.
//!
//! `nconnect=16` is the largest that Linux has; every connection adds 128 requests in flight.
//! `hard,timeo=600,retrans=3` and transfers of 1 MiB are what Filestore recommends for its
//! clients. NFSv4.1 is shown for volumes that offer it.

use serde_json::Value;

use crate::format::text;

const TUNED: &str = "hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576,nconnect=16";

/// The lines for a volume as the API describes it; none if it has nothing to mount.
pub fn help(volume: &Value) -> Option<String> {
    let options = volume.get("mountOptions")?.as_array()?;
    let share = volume.get("shareName").map(text).unwrap_or_default();
    let folder = format!("/mnt/{share}");
    let mut out = String::new();
    for option in options {
        let field = |name: &str| option.get(name).map(text).unwrap_or_default();
        let (address, export, mut full) =
            (field("ipAddress"), field("export"), field("exportFull"));
        if full.is_empty() {
            full = format!("{address}:{export}");
        }
        let (name, version) = match field("protocol").as_str() {
            "NFSV3" => ("NFSv3", "vers=3,proto=tcp"),
            "NFSV4" => ("NFSv4.1", "vers=4.1,proto=tcp"),
            _ => continue,
        };
        let mut mount = format!("{version},{TUNED}");
        for port in ports(&field("instructions")) {
            mount.push(',');
            mount.push_str(port);
        }
        out.push_str(&format!(
            "# {name}\nsudo mkdir -p {folder}\nsudo mount -t nfs -o {mount} {full} {folder}\n\
             # in /etc/fstab:\n{full} {folder} nfs {mount},_netdev 0 0\n\n"
        ));
    }
    if out.is_empty() {
        return None;
    }
    out.push_str(
        "# 128 requests on each connection, before the first mount:\n\
         sudo sysctl -w sunrpc.tcp_max_slot_table_entries=128\n",
    );
    Some(out)
}

/// Options about ports (and the lock protocol) that the server's own instructions have: it may
/// listen elsewhere than at 2049.
fn ports(instructions: &str) -> Vec<&str> {
    let separators = |c: char| c == ',' || c.is_whitespace();
    let mut found: Vec<&str> = Vec::new();
    for word in instructions.split(separators) {
        let wanted = ["port=", "mountport=", "mountproto="]
            .iter()
            .any(|p| word.starts_with(p))
            || word == "nolock";
        if wanted && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}
