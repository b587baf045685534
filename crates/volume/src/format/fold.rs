//! Case folding of names.
//!
//! Places in directories are derived from folded names. So a protocol that ignores case (SMB) finds
//! all variants of a name at one place, and one that does not (NFS) finds its own among them. The
//! fold is therefore part of the on-disk format and must never change. It is not the standard
//! library's, which follows Unicode from release to release, but the table below.
//!
//! The rules are those of Windows (MS-UCODEREF section 3.1.5.3; the table that the exFAT
//! specification recommends, section 7.2.5.1). Each UTF-16 unit is replaced by at most one other,
//! without any normalisation, and only by a capital letter whose small letter it is in turn. So a
//! dotless i is not an I, a long s not an S, and a micro sign not a Greek letter: these are
//! distinct names, as on Windows. Only the final sigma goes one way, as it does there. Surrogates
//! are kept as they are, and so are bytes that are not UTF-8.
//!
//! An entry of the exFAT table is the same here, except for four capital letters that it
//! maps to their small ones. This table has 294 more pairs, of scripts added to Unicode later.

use smallvec::SmallVec;

/// Characters of Unicode 14.0 below U+10000, without ASCII, that have another simple upper case
/// whose simple lower case they are; and the final sigma. Each row: first, last, step, offset to
/// the upper case.
const UPPER: &[(u16, u16, u16, i32)] = &[
    (0x00E0, 0x00F6, 1, -32),
    (0x00F8, 0x00FE, 1, -32),
    (0x00FF, 0x00FF, 1, 121),
    (0x0101, 0x012F, 2, -1),
    (0x0133, 0x0137, 2, -1),
    (0x013A, 0x0148, 2, -1),
    (0x014B, 0x0177, 2, -1),
    (0x017A, 0x017E, 2, -1),
    (0x0180, 0x0180, 1, 195),
    (0x0183, 0x0185, 2, -1),
    (0x0188, 0x0188, 1, -1),
    (0x018C, 0x018C, 1, -1),
    (0x0192, 0x0192, 1, -1),
    (0x0195, 0x0195, 1, 97),
    (0x0199, 0x0199, 1, -1),
    (0x019A, 0x019A, 1, 163),
    (0x019E, 0x019E, 1, 130),
    (0x01A1, 0x01A5, 2, -1),
    (0x01A8, 0x01A8, 1, -1),
    (0x01AD, 0x01AD, 1, -1),
    (0x01B0, 0x01B0, 1, -1),
    (0x01B4, 0x01B6, 2, -1),
    (0x01B9, 0x01B9, 1, -1),
    (0x01BD, 0x01BD, 1, -1),
    (0x01BF, 0x01BF, 1, 56),
    (0x01C6, 0x01C6, 1, -2),
    (0x01C9, 0x01C9, 1, -2),
    (0x01CC, 0x01CC, 1, -2),
    (0x01CE, 0x01DC, 2, -1),
    (0x01DD, 0x01DD, 1, -79),
    (0x01DF, 0x01EF, 2, -1),
    (0x01F3, 0x01F3, 1, -2),
    (0x01F5, 0x01F5, 1, -1),
    (0x01F9, 0x021F, 2, -1),
    (0x0223, 0x0233, 2, -1),
    (0x023C, 0x023C, 1, -1),
    (0x023F, 0x0240, 1, 10815),
    (0x0242, 0x0242, 1, -1),
    (0x0247, 0x024F, 2, -1),
    (0x0250, 0x0250, 1, 10783),
    (0x0251, 0x0251, 1, 10780),
    (0x0252, 0x0252, 1, 10782),
    (0x0253, 0x0253, 1, -210),
    (0x0254, 0x0254, 1, -206),
    (0x0256, 0x0257, 1, -205),
    (0x0259, 0x0259, 1, -202),
    (0x025B, 0x025B, 1, -203),
    (0x025C, 0x025C, 1, 42319),
    (0x0260, 0x0260, 1, -205),
    (0x0261, 0x0261, 1, 42315),
    (0x0263, 0x0263, 1, -207),
    (0x0265, 0x0265, 1, 42280),
    (0x0266, 0x0266, 1, 42308),
    (0x0268, 0x0268, 1, -209),
    (0x0269, 0x0269, 1, -211),
    (0x026A, 0x026A, 1, 42308),
    (0x026B, 0x026B, 1, 10743),
    (0x026C, 0x026C, 1, 42305),
    (0x026F, 0x026F, 1, -211),
    (0x0271, 0x0271, 1, 10749),
    (0x0272, 0x0272, 1, -213),
    (0x0275, 0x0275, 1, -214),
    (0x027D, 0x027D, 1, 10727),
    (0x0280, 0x0280, 1, -218),
    (0x0282, 0x0282, 1, 42307),
    (0x0283, 0x0283, 1, -218),
    (0x0287, 0x0287, 1, 42282),
    (0x0288, 0x0288, 1, -218),
    (0x0289, 0x0289, 1, -69),
    (0x028A, 0x028B, 1, -217),
    (0x028C, 0x028C, 1, -71),
    (0x0292, 0x0292, 1, -219),
    (0x029D, 0x029D, 1, 42261),
    (0x029E, 0x029E, 1, 42258),
    (0x0371, 0x0373, 2, -1),
    (0x0377, 0x0377, 1, -1),
    (0x037B, 0x037D, 1, 130),
    (0x03AC, 0x03AC, 1, -38),
    (0x03AD, 0x03AF, 1, -37),
    (0x03B1, 0x03C1, 1, -32),
    (0x03C2, 0x03C2, 1, -31),
    (0x03C3, 0x03CB, 1, -32),
    (0x03CC, 0x03CC, 1, -64),
    (0x03CD, 0x03CE, 1, -63),
    (0x03D7, 0x03D7, 1, -8),
    (0x03D9, 0x03EF, 2, -1),
    (0x03F2, 0x03F2, 1, 7),
    (0x03F3, 0x03F3, 1, -116),
    (0x03F8, 0x03F8, 1, -1),
    (0x03FB, 0x03FB, 1, -1),
    (0x0430, 0x044F, 1, -32),
    (0x0450, 0x045F, 1, -80),
    (0x0461, 0x0481, 2, -1),
    (0x048B, 0x04BF, 2, -1),
    (0x04C2, 0x04CE, 2, -1),
    (0x04CF, 0x04CF, 1, -15),
    (0x04D1, 0x052F, 2, -1),
    (0x0561, 0x0586, 1, -48),
    (0x10D0, 0x10FA, 1, 3008),
    (0x10FD, 0x10FF, 1, 3008),
    (0x13F8, 0x13FD, 1, -8),
    (0x1D79, 0x1D79, 1, 35332),
    (0x1D7D, 0x1D7D, 1, 3814),
    (0x1D8E, 0x1D8E, 1, 35384),
    (0x1E01, 0x1E95, 2, -1),
    (0x1EA1, 0x1EFF, 2, -1),
    (0x1F00, 0x1F07, 1, 8),
    (0x1F10, 0x1F15, 1, 8),
    (0x1F20, 0x1F27, 1, 8),
    (0x1F30, 0x1F37, 1, 8),
    (0x1F40, 0x1F45, 1, 8),
    (0x1F51, 0x1F57, 2, 8),
    (0x1F60, 0x1F67, 1, 8),
    (0x1F70, 0x1F71, 1, 74),
    (0x1F72, 0x1F75, 1, 86),
    (0x1F76, 0x1F77, 1, 100),
    (0x1F78, 0x1F79, 1, 128),
    (0x1F7A, 0x1F7B, 1, 112),
    (0x1F7C, 0x1F7D, 1, 126),
    (0x1F80, 0x1F87, 1, 8),
    (0x1F90, 0x1F97, 1, 8),
    (0x1FA0, 0x1FA7, 1, 8),
    (0x1FB0, 0x1FB1, 1, 8),
    (0x1FB3, 0x1FB3, 1, 9),
    (0x1FC3, 0x1FC3, 1, 9),
    (0x1FD0, 0x1FD1, 1, 8),
    (0x1FE0, 0x1FE1, 1, 8),
    (0x1FE5, 0x1FE5, 1, 7),
    (0x1FF3, 0x1FF3, 1, 9),
    (0x214E, 0x214E, 1, -28),
    (0x2170, 0x217F, 1, -16),
    (0x2184, 0x2184, 1, -1),
    (0x24D0, 0x24E9, 1, -26),
    (0x2C30, 0x2C5F, 1, -48),
    (0x2C61, 0x2C61, 1, -1),
    (0x2C65, 0x2C65, 1, -10795),
    (0x2C66, 0x2C66, 1, -10792),
    (0x2C68, 0x2C6C, 2, -1),
    (0x2C73, 0x2C73, 1, -1),
    (0x2C76, 0x2C76, 1, -1),
    (0x2C81, 0x2CE3, 2, -1),
    (0x2CEC, 0x2CEE, 2, -1),
    (0x2CF3, 0x2CF3, 1, -1),
    (0x2D00, 0x2D25, 1, -7264),
    (0x2D27, 0x2D27, 1, -7264),
    (0x2D2D, 0x2D2D, 1, -7264),
    (0xA641, 0xA66D, 2, -1),
    (0xA681, 0xA69B, 2, -1),
    (0xA723, 0xA72F, 2, -1),
    (0xA733, 0xA76F, 2, -1),
    (0xA77A, 0xA77C, 2, -1),
    (0xA77F, 0xA787, 2, -1),
    (0xA78C, 0xA78C, 1, -1),
    (0xA791, 0xA793, 2, -1),
    (0xA794, 0xA794, 1, 48),
    (0xA797, 0xA7A9, 2, -1),
    (0xA7B5, 0xA7C3, 2, -1),
    (0xA7C8, 0xA7CA, 2, -1),
    (0xA7D1, 0xA7D1, 1, -1),
    (0xA7D7, 0xA7D9, 2, -1),
    (0xA7F6, 0xA7F6, 1, -1),
    (0xAB53, 0xAB53, 1, -928),
    (0xAB70, 0xABBF, 1, -38864),
    (0xFF41, 0xFF5A, 1, -32),
];

/// A folded name. It may be longer than the name, by half at most.
pub(crate) type FoldedName = SmallVec<[u8; 384]>;

fn upper(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let Ok(unit) = u16::try_from(u32::from(c)) else {
        return c;
    };
    let at = UPPER.partition_point(|(first, ..)| *first <= unit);
    let range = at.checked_sub(1).and_then(|at| UPPER.get(at));
    match range {
        Some((first, last, step, add)) if unit <= *last && (unit - first) % step == 0 => {
            let folded = u32::try_from(i32::from(unit) + add).ok();
            folded.and_then(char::from_u32).unwrap_or(c)
        }
        _ => c,
    }
}

/// Maps a name to upper case; names that differ in case only give the same bytes.
pub(crate) fn fold(name: &[u8]) -> FoldedName {
    let mut out = FoldedName::new();
    if name.is_ascii() {
        out.extend_from_slice(name);
        out.make_ascii_uppercase();
        return out;
    }
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            out.extend_from_slice(upper(c).encode_utf8(&mut [0; 4]).as_bytes());
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn folded(name: &str) -> String {
        String::from_utf8(fold(name.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn names_that_differ_in_case_fold_to_one() {
        assert_eq!(folded("Readme.TXT"), "README.TXT");
        assert_eq!(
            folded("\u{e4}\u{f6}\u{fc}\u{df}\u{ff}"),
            "\u{c4}\u{d6}\u{dc}\u{df}\u{178}"
        );
        assert_eq!(folded("\u{3c9}\u{3c2}\u{3c3}"), "\u{3a9}\u{3a3}\u{3a3}");
        assert_eq!(folded("\u{436}\u{44f}\u{451}"), "\u{416}\u{42f}\u{401}");
        assert_eq!(folded("\u{101}\u{100}\u{1ff}"), "\u{100}\u{100}\u{1fe}");
        // No normalisation, nothing above U+FFFF.
        assert_eq!(folded("a\u{308}"), "A\u{308}");
        assert_eq!(folded("\u{10428}"), "\u{10428}");
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        assert_eq!(&*fold(b"a\xff\xed\xa0\x80b"), b"A\xff\xed\xa0\x80B");
        let longest = "\u{250}".repeat(127);
        assert!(fold(longest.as_bytes()).len() <= 384);
    }

    #[test]
    fn folding_again_changes_nothing() {
        for c in (0..0x11_0000).filter_map(char::from_u32) {
            let once = upper(c);
            assert_eq!(upper(once), once, "{c:?}");
            assert_eq!(once.len_utf16(), c.len_utf16(), "{c:?}");
        }
    }

    #[test]
    fn letters_fold_in_pairs() {
        let lower = |c: char| {
            let mut all = c.to_lowercase();
            all.next().filter(|_| all.next().is_none())
        };
        for c in (0..0x1_0000).filter_map(char::from_u32) {
            let to = upper(c);
            assert!(to == c || c == '\u{3c2}' || lower(to) == Some(c), "{c:?}");
        }
        for alone in "\u{b5}\u{131}\u{17f}\u{1c5}\u{345}\u{3d0}\u{1c80}\u{1e9b}\u{1fbe}".chars() {
            assert_eq!(upper(alone), alone);
        }
    }

    /// The fold is part of the format: this sum must not change.
    #[test]
    fn the_table_is_what_it_was() {
        let mut changed = 0;
        let mut sum = Sha256::new();
        for c in (0..0x1_0000).filter_map(char::from_u32) {
            let to = upper(c);
            changed += u32::from(to != c);
            sum.update(u32::from(to).to_le_bytes());
        }
        assert_eq!(changed, 1138 + 26);
        let sum: String = weir_base::hex::encode(&sum.finalize());
        assert_eq!(sum, TABLE_SUM);
    }

    const TABLE_SUM: &str = "1fa48565f64a116e4cd862449c0e50d6ea900bc53ad7f2726f14b2bf2a2938df";
}
