//! Drafts of configuration files: the edits of all findings, put into each file once.
//!
//! Edits name the state that is wanted. They are applied one after the other to lines in memory,
//! each seeing what those before left, so that two findings about one line make one change, and
//! nothing that one fix wrote is deleted by another. What is different in the end is printed as
//! commands too. These find lines by their whole text, never by number: run after the files were
//! written, or twice, they change nothing.

use std::collections::BTreeMap;

use crate::finding::{Edit, FileFix};
use crate::settings::{self, QUOTES};
use crate::source::Source;

/// A file, line by line.
#[derive(Debug)]
struct Lines {
    exists: bool,
    /// True if the last line is ended.
    ended: bool,
    old: Vec<String>,
    /// The lines afterwards; `None` for a deleted one. As long as `old`.
    new: Vec<Option<String>>,
    added: Vec<String>,
}

impl Lines {
    fn read(source: &Source, path: &str) -> Lines {
        let text = source.read(path);
        let old: Vec<String> = text
            .as_deref()
            .unwrap_or_default()
            .split_terminator('\n')
            .map(str::to_owned)
            .collect();
        Lines {
            exists: text.is_some(),
            ended: text.is_none_or(|text| text.is_empty() || text.ends_with('\n')),
            new: old.iter().cloned().map(Some).collect(),
            old,
            added: Vec::new(),
        }
    }

    /// The text; a deleted line leaves `gone`.
    fn text(&self, gone: Option<&str>) -> String {
        let kept = self.new.iter().map(Option::as_deref);
        let kept = kept.filter_map(|line| line.or(gone));
        let all: Vec<&str> = kept.chain(self.added.iter().map(String::as_str)).collect();
        match all.is_empty() {
            true => String::new(),
            // An unended last line stays one, unless something comes after it.
            false if !self.ended && self.added.is_empty() => all.join("\n"),
            false => all.join("\n") + "\n",
        }
    }

    fn changed(&self) -> bool {
        !self.added.is_empty()
            || self
                .old
                .iter()
                .map(Some)
                .ne(self.new.iter().map(Option::as_ref))
    }

    /// A line as it is now, by its number from 1; added lines count on.
    fn line_mut(&mut self, line: usize) -> Option<&mut String> {
        let index = line.checked_sub(1)?;
        match index.checked_sub(self.new.len()) {
            None => self.new.get_mut(index)?.as_mut(),
            Some(index) => self.added.get_mut(index),
        }
    }

    fn drop(&mut self, line: usize) {
        if let Some(slot) = line
            .checked_sub(1)
            .and_then(|index| self.new.get_mut(index))
        {
            *slot = None;
        }
    }

    /// The change as commands.
    fn commands(&self, path: &str, folder_exists: bool) -> Vec<String> {
        let file = quoted(path);
        let mut all = Vec::new();
        if !self.exists {
            if let (false, Some((folder, _))) = (folder_exists, path.rsplit_once('/')) {
                all.push(format!("mkdir -p {}", quoted(folder)));
            }
            let lines = self.added.iter().flat_map(|line| line.lines());
            let lines: Vec<String> = lines.map(always_quoted).collect();
            all.push(format!("printf '%s\\n' {} > {file}", lines.join(" ")));
            return all;
        }
        let mut script = String::new();
        for (old, new) in self.old.iter().zip(&self.new) {
            let part = match new {
                Some(new) if new == old => continue,
                Some(new) => substitution(old, new),
                None => deletion(old),
            };
            script.push_str(&format!(" -e {}", always_quoted(&part)));
        }
        if !script.is_empty() {
            all.push(format!("sed -i{script} {file}"));
        }
        if !self.added.is_empty() && !self.ended {
            all.push(format!("sed -i '$a\\' {file}   # ends the last line"));
        }
        for line in self.added.iter().flat_map(|line| line.lines()) {
            let line = always_quoted(line);
            all.push(format!(
                "grep -qxF -e {line} {file} || printf '%s\\n' {line} >> {file}"
            ));
        }
        all
    }
}

/// All files that edits touch.
#[derive(Debug)]
pub struct Draft<'s> {
    source: &'s Source,
    /// By real path, without a leading slash.
    files: BTreeMap<String, Lines>,
}

impl Draft<'_> {
    /// Nothing is changed yet.
    pub fn new(source: &Source) -> Draft<'_> {
        Draft {
            source,
            files: BTreeMap::new(),
        }
    }

    fn file(&mut self, path: &str) -> &mut Lines {
        let real = self.source.real(path.trim_start_matches('/'));
        let source = self.source;
        self.files
            .entry(real)
            .or_insert_with_key(|real| Lines::read(source, real))
    }

    /// The files as they are to be, with their lines at the numbers that they have.
    fn numbered(&self) -> Source {
        let texts = self.files.iter();
        self.source.with_drafts(
            texts
                .map(|(path, lines)| (path.clone(), lines.text(Some(""))))
                .collect(),
        )
    }

    /// Puts an edit in.
    pub fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::DropLine { file, line } => self.file(file).drop(*line),
            Edit::DropOption { file, line, name } => {
                let lines = self.file(file);
                let Some(text) = lines.line_mut(*line) else {
                    return;
                };
                let words: Vec<&str> = text
                    .split_whitespace()
                    .filter(|word| word.trim_matches(QUOTES).split('=').next() != Some(name))
                    .collect();
                // `options`, the module, and at least one parameter.
                match words.len() {
                    0..=2 => lines.drop(*line),
                    _ => *text = words.join(" "),
                }
            }
            Edit::Unquote { file, line } => {
                if let Some(text) = self.file(file).line_mut(*line) {
                    *text = text.trim().trim_matches(QUOTES).to_owned();
                }
            }
            Edit::ModuleOption {
                module,
                name,
                value,
            } => {
                let all = settings::modules(&self.numbered());
                let full = format!("{module}.{name}");
                let mut found = false;
                for setting in all.iter().filter(|s| s.in_force() && s.name == full) {
                    found = true;
                    if setting.value != *value
                        && let Some(text) = self.file(&setting.file).line_mut(setting.line)
                    {
                        let old = format!("{name}={}", setting.value);
                        *text = replace_word(text, &old, &format!("{name}={value}"));
                    }
                }
                if !found {
                    let file = match *module {
                        "nfs" => "/etc/modprobe.d/nfsclient.conf".to_owned(),
                        module => format!("/etc/modprobe.d/{module}.conf"),
                    };
                    let line = format!("options {module} {name}={value}");
                    self.file(&file).added.push(line);
                }
            }
            Edit::Sysctl {
                name,
                value,
                or_add,
            } => {
                let all = settings::sysctl(&self.numbered());
                let mut found = false;
                for setting in all.iter().filter(|s| s.in_force() && s.name == *name) {
                    found = true;
                    if setting.value != *value
                        && let Some(text) = self.file(&setting.file).line_mut(setting.line)
                        && let Some((key, _)) = text.split_once('=')
                    {
                        *text = format!("{}= {value}", key.trim_end().to_owned() + " ");
                    }
                }
                if !found && *or_add {
                    // Behind 99-sysctl.conf: of files that set the same name the last one counts.
                    let file = self.file("/etc/sysctl.d/99-weir-doctor.conf");
                    file.added.push(format!("{name} = {value}"));
                }
            }
            Edit::Ini {
                file,
                section,
                key,
                value,
            } => self.file(file).set_key(section, key, value),
        }
    }

    /// Gives a line of fstab other options.
    pub fn fstab_options(&mut self, line: usize, options: &str) {
        if let Some(text) = self.file("/etc/fstab").line_mut(line) {
            *text = with_field(text, 3, options);
        }
    }

    /// Returns the files that differ, sorted by their paths.
    pub fn finish(self) -> Vec<FileFix> {
        let source = self.source;
        let changed = self.files.into_iter().filter(|(_, lines)| lines.changed());
        changed
            .map(|(real, lines)| {
                let path = format!("/{real}");
                let folder = real.rsplit_once('/').map_or("", |(folder, _)| folder);
                let pairs = || lines.old.iter().zip(&lines.new);
                let different = || pairs().filter(|(old, new)| new.as_ref() != Some(*old));
                FileFix {
                    commands: lines.commands(&path, source.on_disk(folder).is_dir()),
                    content: lines.text(None),
                    removed: different().map(|(old, _)| old.clone()).collect(),
                    added: different()
                        .filter_map(|(_, new)| new.clone())
                        .chain(lines.added.iter().cloned())
                        .collect(),
                    path,
                }
            })
            .collect()
    }
}

impl Lines {
    /// `key=value` in `[section]`: in the line that has it, below the section's head, or in a new
    /// section.
    fn set_key(&mut self, section: &str, key: &str, value: &str) {
        let head = format!("[{section}]");
        let wanted = format!("{key}={value}");
        // A head below which a key was put is a line of several.
        let is_head = |text: &str| text.lines().next().map(str::trim) == Some(head.as_str());
        let mut inside = false;
        let mut head_at = None;
        for number in 1..=self.new.len() + self.added.len() {
            let Some(text) = self.line_mut(number) else {
                continue;
            };
            if text.trim_start().starts_with('[') {
                inside = is_head(text);
                head_at = head_at.or(inside.then_some(number));
            } else if inside
                && text
                    .split_once('=')
                    .is_some_and(|(name, _)| name.trim() == key)
            {
                *text = wanted;
                return;
            }
        }
        match head_at.and_then(|number| self.line_mut(number)) {
            Some(text) => *text = format!("{text}\n{wanted}"),
            None => self.added.push(format!("{head}\n{wanted}")),
        }
    }
}

/// `text` with the first word that is `old` replaced, blanks as they are.
fn replace_word(text: &str, old: &str, new: &str) -> String {
    let mut done = false;
    text.split_inclusive(char::is_whitespace)
        .map(|word| match !done && word.trim_end() == old {
            true => {
                done = true;
                word.replacen(old, new, 1)
            }
            false => word.to_owned(),
        })
        .collect()
}

/// `text` with its field `index` (from 0) replaced, or appended if it is the first that is missing.
fn with_field(text: &str, index: usize, new: &str) -> String {
    let mut out = String::with_capacity(text.len() + new.len());
    let mut field = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let blank = rest
            .find(|c: char| !c.is_whitespace())
            .unwrap_or(rest.len());
        let (blanks, tail) = rest.split_at(blank);
        let (word, tail) = tail.split_at(tail.find(char::is_whitespace).unwrap_or(tail.len()));
        out.push_str(blanks);
        out.push_str(if field == index && !word.is_empty() {
            new
        } else {
            word
        });
        field += usize::from(!word.is_empty());
        rest = tail;
    }
    if field == index {
        out.truncate(out.trim_end().len());
        out.push(' ');
        out.push_str(new);
    }
    out
}

/// A delimiter of sed's that neither text has; a control character if they have all that are
/// readable.
fn delimiter(texts: [&str; 2]) -> char {
    ['|', '#', '%', '@', '~', '!', ';']
        .into_iter()
        .find(|c| !texts.iter().any(|text| text.contains(*c)))
        .unwrap_or('\u{1}')
}

/// A basic regular expression that is `text`.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '\\' | '.' | '*' | '[' | ']' | '^' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn substitution(old: &str, new: &str) -> String {
    let d = delimiter([old, new]);
    let new = new
        .replace('\\', "\\\\")
        .replace('&', "\\&")
        .replace('\n', "\\n");
    // `t` ends the script for this line: what was put in is not matched again.
    format!("s{d}^{}${d}{new}{d};t", literal(old))
}

fn deletion(old: &str) -> String {
    let d = delimiter([old, ""]);
    format!("\\{d}^{}${d}d", literal(old))
}

/// A word of a shell command, in quotation marks if it needs them.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-:=,@%+[]".contains(c);
    match !word.is_empty() && word.chars().all(plain) && !word.contains(['[', ']']) {
        true => word.to_owned(),
        false => always_quoted(word),
    }
}

fn always_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_meant_changes() {
        assert_eq!(with_field("a  b\tc d 0 0", 3, "x,y"), "a  b\tc x,y 0 0");
        assert_eq!(with_field("a b nfs", 3, "x"), "a b nfs x");
        assert_eq!(with_field("a b nfs  ", 3, "x"), "a b nfs x");
    }

    #[test]
    fn words_are_whole() {
        let text = "options sunrpc  x_a=1 a=1\ta=1";
        assert_eq!(
            replace_word(text, "a=1", "a=2"),
            "options sunrpc  x_a=1 a=2\ta=1"
        );
    }

    /// Any text passes through sed unchanged: the commands turn the old file into the draft, and
    /// change nothing the second time.
    #[test]
    fn commands_do_what_the_draft_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let old = "keep\n\"a.b*[c]^$ \\d & 'e' |#%@\"\ngone | x\nkeep & more\nlast";
        std::fs::write(&path, old).unwrap();
        let source = Source::new(Some(folder.path().to_owned()));
        let mut lines = Lines::read(&source, "f");
        lines.new[1] = Some("n&w \\1 'x' \"\nsecond".to_owned());
        lines.new[2] = None;
        // What comes is what another line was: it must not be matched again.
        lines.new[3] = Some("keep".to_owned());
        lines.added.push("add 'it' -n".to_owned());
        let run = || {
            for command in lines.commands(path.to_str().unwrap(), true) {
                let ran = std::process::Command::new("bash")
                    .args(["-c", &command])
                    .status();
                assert!(ran.unwrap().success(), "{command}");
            }
            std::fs::read_to_string(&path).unwrap()
        };
        let want = "keep\nn&w \\1 'x' \"\nsecond\nkeep\nlast\nadd 'it' -n\n";
        assert_eq!(lines.text(None), want);
        assert_eq!(run(), want);
        assert_eq!(run(), want);
    }

    #[test]
    fn keys_of_sections() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::new(Some(folder.path().to_owned()));
        let set = |text: &str| {
            std::fs::write(folder.path().join("f"), text).unwrap();
            let mut lines = Lines::read(&source, "f");
            lines.set_key("s", "a", "1");
            lines.set_key("s", "b", "2");
            lines.text(None)
        };
        assert_eq!(set(""), "[s]\na=1\nb=2\n");
        assert_eq!(set("[s]\n"), "[s]\na=1\nb=2\n");
        assert_eq!(set("[t]\na=9\n"), "[t]\na=9\n[s]\na=1\nb=2\n");
        assert_eq!(set("[s]\na = 9\n[t]\nb=9\n"), "[s]\nb=2\na=1\n[t]\nb=9\n");
    }
}
