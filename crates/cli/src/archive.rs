//! Archives: files in a tar (POSIX ustar), in a gzip file (RFC 1952) whose blocks are stored, not
//! compressed.

/// Bytes of a block of a tar.
const BLOCK: usize = 512;

/// Most bytes of a stored block of DEFLATE (RFC 1951 §3.2.4).
const STORED: usize = 0xFFFF;

/// Returns an archive of text files in a folder.
pub fn tar_gz(folder: &str, files: &[(&str, String)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, text) in files {
        tar.extend(header(&format!("{folder}/{name}"), text.len()));
        tar.extend(text.as_bytes());
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    gzip(&tar)
}

/// Returns the header of a regular file that its owner alone may read.
fn header(path: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let field = header.iter_mut().skip(at);
        field.zip(text.bytes()).for_each(|(to, from)| *to = from);
    };
    put(0, path);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The sum counts its own field as spaces.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    let text = format!("{sum:06o}\0 ");
    let field = header.iter_mut().skip(148);
    field.zip(text.bytes()).for_each(|(to, from)| *to = from);
    header
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
    let mut blocks = data.chunks(STORED).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc32(data).to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out
}

/// Returns the sum that gzip has (RFC 1952 §8).
fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_sum_is_gzips() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn tar_unpacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar.gz");
        let large = "line\n".repeat(50_000);
        let files = [("a.txt", "one".to_owned()), ("b.txt", large.clone())];
        std::fs::write(&file, tar_gz("top", &files)).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("xzf").arg(&file).current_dir(folder.path());
        let ran = tar.status().unwrap();
        assert!(ran.success());
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("top/a.txt"), "one");
        assert_eq!(read("top/b.txt"), large);
    }
}
