//! `/proc/self/mountinfo` (proc_pid_mountinfo(5)): the device number of each mount, which leads to
//! its read-ahead.

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Device number, as `major:minor`.
    pub device: String,
    /// Path of the mount point.
    pub point: String,
    /// The file system's type, such as `nfs4`.
    pub kind: String,
    /// Source of the mount, such as `server:/share`.
    pub what: String,
    /// The file system's own options.
    pub options: String,
    /// Options of this mount point: `nosuid`, `noexec`, and so on.
    pub flags: String,
}

/// Lines that are not of the format are left out.
pub fn parse(text: &str) -> Vec<MountEntry> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<MountEntry> {
    // Optional fields come before the dash, any number of them.
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (device, _root, point) = (before.next()?, before.next()?, before.next()?);
    let flags = before.next().unwrap_or_default().to_owned();
    let mut after = after.split(' ');
    Some(MountEntry {
        device: device.to_owned(),
        point: unescape(point),
        kind: after.next()?.to_owned(),
        what: unescape(after.next()?),
        options: after.next().unwrap_or_default().to_owned(),
        flags,
    })
}

/// Blanks, tabs, newlines and backslashes are encoded as `\040` and so on.
pub fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_an_escaped_blank() {
        let text = "36 24 0:32 / /mnt/my\\040share rw,relatime shared:3 master:1 - nfs4 srv:/a rw,vers=4.1,hard\nnonsense\n";
        let all = parse(text);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].device, "0:32");
        assert_eq!(all[0].point, "/mnt/my share");
        assert_eq!(all[0].kind, "nfs4");
        assert_eq!(all[0].flags, "rw,relatime");
        assert_eq!(all[0].what, "srv:/a");
        assert_eq!(all[0].options, "rw,vers=4.1,hard");
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(r"a\b\04\999\134"), r"a\b\04\999\");
    }
}
