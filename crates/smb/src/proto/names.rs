//! Names and paths: UTF-16 with SMB's rules on the wire, bytes in the volume (MS-FSCC §2.1.5).
//!
//! A volume's names are any bytes but NUL and `/`. Names of NFS clients may hold characters that
//! SMB reserves. These are shown in the private range that Services for Macintosh chose and that
//! Linux (`mapposix`) and macOS understand: controls as U+F001–F01F, `" * : < > ? \ |` as
//! U+F020–F027, a blank or a dot at the end as U+F028 and U+F029. Bytes that are no UTF-8, and
//! characters of that range itself, are shown byte by byte as U+F080–F0FF. So every name has one
//! form, from which the stored name can be restored.

use crate::proto::status::Status;

const RESERVED: &[u8] = b"\"*:<>?\\|";
const BLANK: char = '\u{f028}';
const DOT: char = '\u{f029}';

/// The character that a byte stands for which cannot be shown as it is.
fn escaped(byte: u8) -> char {
    char::from_u32(0xf000 | u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A stored name as clients see it.
pub fn to_client_name(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(c) = rest.chars().next() {
            let (now, after) = rest.split_at(c.len_utf8());
            match c {
                '\u{1}'..='\u{1f}' => out.push(escaped(c as u8)),
                '\u{f000}'..='\u{f0ff}' => now.bytes().for_each(|b| out.push(escaped(b))),
                c if c.is_ascii() => match RESERVED.iter().position(|r| *r == c as u8) {
                    Some(at) => out.push(escaped(0x20 + at as u8)),
                    None => out.push(c),
                },
                c => out.push(c),
            }
            rest = after;
        }
        chunk.invalid().iter().for_each(|b| out.push(escaped(*b)));
    }
    if name != b"." && name != b".." {
        let last = match out.pop() {
            Some(' ') => Some(BLANK),
            Some('.') => Some(DOT),
            last => last,
        };
        out.extend(last);
    }
    out
}

/// A stored name as clients with POSIX extensions see it: only what is no UTF-8, and what stands
/// for that, has another form.
pub fn to_posix_name(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\u{f000}'..='\u{f0ff}' => {
                    let mut bytes = [0; 4];
                    let bytes = c.encode_utf8(&mut bytes).bytes();
                    bytes.for_each(|b| out.push(escaped(b)));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push(escaped(*b)));
    }
    out
}

/// The bytes of a name that a client sent.
///
/// # Errors
/// No name has these characters.
pub fn stored(name: &str) -> Result<Vec<u8>, Status> {
    let mut out = Vec::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '\0'..='\u{1f}' | '/' => return Err(Status::OBJECT_NAME_INVALID),
            '\u{f001}'..='\u{f01f}' => out.push(c as u8),
            '\u{f020}'..='\u{f027}' => out.push(RESERVED[c as usize - 0xf020]),
            BLANK => out.push(b' '),
            DOT => out.push(b'.'),
            '\u{f080}'..='\u{f0ff}' => out.push(c as u8),
            c if c.is_ascii() && RESERVED.contains(&(c as u8)) => {
                return Err(Status::OBJECT_NAME_INVALID);
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    match out.contains(&b'/') || out.contains(&0) {
        true => Err(Status::OBJECT_NAME_INVALID),
        false => Ok(out),
    }
}

/// A path of the POSIX extensions as SMB has it otherwise: `/` separates names, which may hold any
/// other character.
pub fn of_posix(path: &str) -> String {
    let character = |c: char| match c {
        '/' => '\\',
        '\u{1}'..='\u{1f}' => escaped(c as u8),
        c if c.is_ascii() => match RESERVED.iter().position(|r| *r == c as u8) {
            Some(at) => escaped(0x20 + at as u8),
            None => c,
        },
        c => c,
    };
    path.chars().map(character).collect()
}

/// Takes the name of a stream off a path (MS-FSCC §2.1.5): `file:stream`, `file:stream:$DATA`. The
/// file's own data, `file::$DATA`, and a directory's entries, `dir::$INDEX_ALLOCATION`, are no
/// stream.
///
/// # Errors
/// The name or its type is none.
pub fn split_stream(path: &str) -> Result<(&str, Option<Vec<u8>>), Status> {
    let last = path.rfind('\\').map_or(0, |at| at + 1);
    let Some(colon) = path[last..].find(':') else {
        return Ok((path, None));
    };
    let (file, rest) = (&path[..last + colon], &path[last + colon + 1..]);
    let (name, kind) = rest.split_once(':').unwrap_or((rest, "$DATA"));
    let (data, entries) = ("$DATA", "$INDEX_ALLOCATION");
    let own = kind.eq_ignore_ascii_case(entries) && name.is_empty();
    if !kind.eq_ignore_ascii_case(data) && !own {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if name.contains(['/', '\0']) || (name.is_empty() && !rest.contains(':')) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    Ok((
        file,
        Some(name.as_bytes().to_vec()).filter(|name| !name.is_empty()),
    ))
}

/// The names of a path from a share's root on; none of the root itself.
///
/// # Errors
/// It is none: it begins with a separator, or has an empty name, `.` or `..` in it.
pub fn path(path: &str) -> Result<Vec<Vec<u8>>, Status> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    if path.starts_with('\\') {
        return Err(Status::INVALID_PARAMETER);
    }
    let path = path.strip_suffix('\\').unwrap_or(path);
    let names = path.split('\\').map(|name| match name {
        "" => Err(Status::OBJECT_NAME_INVALID),
        "." | ".." => Err(Status::OBJECT_PATH_SYNTAX_BAD),
        name => stored(name),
    });
    names.collect()
}

fn upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Returns true if a pattern has wildcards. Any other pattern matches a single name.
pub fn is_wild(pattern: &str) -> bool {
    pattern.contains(['*', '?', '<', '>', '"'])
}

/// Returns true if a name matches a pattern, in any case (MS-FSA §2.1.4.4). `*` matches any
/// characters and `?` one. `<` matches any up to the last dot. `>` matches one or, before a dot or
/// the end, none. `"` matches a dot or, at the end, nothing.
pub fn matches(pattern: &str, name: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let name: Vec<char> = name.chars().map(upper).collect();
    let last_dot = name.iter().rposition(|c| *c == '.');
    // Which lengths of the name the pattern so far matches.
    let mut at = vec![false; name.len() + 1];
    at[0] = true;
    for c in pattern.chars() {
        let mut next = vec![false; name.len() + 1];
        for (i, _) in at.iter().enumerate().filter(|(_, may)| **may) {
            let here = name.get(i).copied();
            match c {
                '*' => next[i..].fill(true),
                '<' => {
                    // Up to the last dot and not beyond it; behind it, anything.
                    let end = last_dot.filter(|dot| i <= *dot).unwrap_or(name.len());
                    next[i..=end].fill(true);
                }
                '?' if here.is_some() => next[i + 1] = true,
                '>' => match here {
                    None | Some('.') => next[i] = true,
                    Some(_) => next[i + 1] = true,
                },
                '"' => match here {
                    None => next[i] = true,
                    Some('.') => next[i + 1] = true,
                    Some(_) => {}
                },
                c if here == Some(upper(c)) => next[i + 1] = true,
                _ => {}
            }
        }
        at = next;
    }
    at[name.len()]
}

/// The rest of a path below a directory, with the separator; of a stream of the directory likewise.
pub(crate) fn below<'p>(path: &'p str, dir: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(dir)?;
    rest.starts_with(['\\', ':']).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reserved_characters_are_shown_in_the_private_range() {
        assert_eq!(to_client_name(b"a:b?"), "a\u{f022}b\u{f025}");
        assert_eq!(to_client_name(b"end. "), "end.\u{f028}");
        assert_eq!(to_client_name(b"end."), "end\u{f029}");
        assert_eq!(to_client_name(b"\xff\x01x"), "\u{f0ff}\u{f001}x");
        assert_eq!(stored("a\u{f022}b"), Ok(b"a:b".to_vec()));
        assert_eq!(to_posix_name(b"a:b?\\\xff. "), "a:b?\\\u{f0ff}. ");
        for bad in ["a:b", "a*", "a/b", "a\u{1}", "q?", "\u{f0af}\0"] {
            assert_eq!(stored(bad), Err(Status::OBJECT_NAME_INVALID), "{bad}");
        }
    }

    #[test]
    fn paths_are_cut_into_names() {
        let names =
            |text| path(text).map(|p| p.iter().map(|n| to_client_name(n)).collect::<Vec<_>>());
        assert_eq!(names(""), Ok(vec![]));
        assert_eq!(names("a\\b.txt"), Ok(vec!["a".into(), "b.txt".into()]));
        assert_eq!(names("a\\"), Ok(vec!["a".into()]));
        assert_eq!(names("a:s"), Err(Status::OBJECT_NAME_INVALID));
        assert_eq!(names("\\a"), Err(Status::INVALID_PARAMETER));
        assert_eq!(names("a\\\\b"), Err(Status::OBJECT_NAME_INVALID));
        assert_eq!(names("..\\b"), Err(Status::OBJECT_PATH_SYNTAX_BAD));
    }

    #[test]
    fn streams_are_cut_off() {
        let cut = |path| {
            split_stream(path).map(|(file, s)| (file, s.map(|s| String::from_utf8(s).unwrap())))
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(cut("a\\b"), Ok(("a\\b", None)));
        assert_eq!(cut("a\\b:s"), Ok(("a\\b", some("s"))));
        assert_eq!(cut("b:S*:$data"), Ok(("b", some("S*"))));
        assert_eq!(cut("b::$DATA"), Ok(("b", None)));
        assert_eq!(cut("b::$INDEX_ALLOCATION"), Ok(("b", None)));
        assert_eq!(cut(":s"), Ok(("", some("s"))));
        for bad in [
            "b:",
            "b:s:",
            "b:s:$X",
            "b:s:$INDEX_ALLOCATION",
            "b:a:b:$DATA",
        ] {
            assert_eq!(cut(bad), Err(Status::OBJECT_NAME_INVALID), "{bad}");
        }
    }

    #[test]
    fn patterns_match_as_windows_has_them() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("*.txt", "A.TXT", true),
            ("*.txt", "a.txt.bak", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            // `*.*` as clients send it.
            ("<\"*", "noext", true),
            ("<.txt", "a.b.txt", true),
            ("a>>", "a", true),
            ("a>>.x", "ab.x", true),
            ("a>>.x", "abcd.x", false),
            ("ü*", "Übung", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn every_stored_name_comes_back(name in prop::collection::vec(1u8.., 1..60)) {
            prop_assume!(!name.contains(&b'/'));
            prop_assert_eq!(stored(&to_client_name(&name)), Ok(name.clone()));
            // With POSIX extensions there is but one way that a name is read, and two in which it
            // may come.
            for text in [to_posix_name(&name), to_client_name(&name)] {
                prop_assert_eq!(stored(&of_posix(&text)), Ok(name.clone()));
            }
        }

        #[test]
        fn utf8_names_come_back(name in "\\PC{1,20}") {
            prop_assume!(!name.contains('/'));
            prop_assert_eq!(stored(&to_client_name(name.as_bytes())), Ok(name.into_bytes()));
        }

        #[test]
        fn any_pattern_ends(pattern in "[a.*?<>\"]{0,40}", name in "[aB.]{0,40}") {
            let _ = matches(&pattern, &name);
            prop_assert!(matches("*", &name) && matches(&name, &name));
        }
    }
}
