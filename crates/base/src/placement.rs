//! File system and device below a folder, and whether the device outlives its machine.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File system and device below a folder, as far as the system tells.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Type of the file system.
    pub filesystem: Option<String>,
    /// The disk's name in the system, such as `nvme0n1`.
    pub disk: Option<String>,
    /// The disk's model, as it states it.
    pub model: Option<String>,
}

/// Models of disks that lose their contents when the virtual machine stops, as the clouds name
/// them: Amazon's instance store, Google's local SSDs (NVMe and SCSI), Azure's local NVMe disks.
/// Google's persistent disks are `nvme_card-pd`.
const EPHEMERAL: [&str; 5] = [
    "Amazon EC2 NVMe Instance Storage",
    "nvme_card",
    "EphemeralDisk",
    "Microsoft NVMe Direct Disk",
    "Microsoft NVMe Direct Disk v2",
];

impl Placement {
    /// Reads the placement of a folder.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.display()));
        let device = fs::metadata(dir).map_err(failed)?.dev();
        let dir = dir.canonicalize().map_err(failed)?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let disk = disk(Path::new(&format!("/sys/dev/block/{major}:{minor}")));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let said = |path: PathBuf| fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
        Ok(Self {
            filesystem: filesystem(&mounts, &dir),
            model: disk.as_ref().and_then(|d| said(d.join("device/model"))),
            disk: disk.and_then(|d| Some(d.file_name()?.to_str()?.to_owned())),
        })
    }

    /// Returns why this is not stable storage, if it is not.
    pub fn ephemeral(&self) -> Option<String> {
        if let Some(memory @ ("tmpfs" | "ramfs")) = self.filesystem.as_deref() {
            return Some(format!("{memory} is memory"));
        }
        let model = self.lost_with_machine()?;
        Some(format!("{model} is a disk of the virtual machine's host"))
    }

    /// Returns the disk's model if disks of that model are lost when the virtual machine stops.
    pub fn lost_with_machine(&self) -> Option<&str> {
        let model = self.model.as_deref()?;
        EPHEMERAL.contains(&model).then_some(model)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.filesystem.as_deref().unwrap_or("a file system"))?;
        if let Some(disk) = &self.disk {
            write!(f, " on {disk}")?;
        }
        match &self.model {
            Some(model) => write!(f, " ({model})"),
            None => Ok(()),
        }
    }
}

/// The whole disk of a block device, a folder of /sys: a partition is in its disk's folder.
fn disk(device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    match device.join("partition").exists() {
        true => device.parent().map(Path::to_owned),
        false => Some(device),
    }
}

/// The type of the file system that `dir` is on, by the lines of /proc/self/mountinfo: of the
/// mounts whose mount point is a prefix the longest, and of equals the last, which covers the
/// others.
fn filesystem(mountinfo: &str, dir: &Path) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let point = mount.split(' ').nth(4)?;
            dir.starts_with(point)
                .then_some((point.len(), source.split(' ').next()?))
        })
        .max_by_key(|&(length, _)| length)
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_covers_a_folder_counts() {
        let mounts = "\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:26 / /data rw shared:2 - tmpfs none rw
31 30 259:1 / /data rw - xfs /dev/nvme0n1p1 rw
32 21 0:27 / /database rw - btrfs /dev/sda rw
";
        let of = |dir| filesystem(mounts, Path::new(dir));
        assert_eq!(of("/var/tmp").as_deref(), Some("ext4"));
        assert_eq!(of("/data/log").as_deref(), Some("xfs"));
        assert_eq!(of("/database").as_deref(), Some("btrfs"));
    }

    #[test]
    fn a_persistent_disk_is_told_from_a_local_one() {
        let of = |model: &str| {
            let placement = Placement {
                filesystem: Some("ext4".to_owned()),
                disk: Some("nvme0n1".to_owned()),
                model: Some(model.to_owned()),
            };
            placement.ephemeral()
        };
        assert!(of("nvme_card").is_some());
        assert!(of("nvme_card-pd").is_none());
        let memory = Placement {
            filesystem: Some("tmpfs".to_owned()),
            disk: None,
            model: None,
        };
        assert!(memory.ephemeral().is_some());
    }
}
