//! `--flags-file=FILE`: flags from a YAML or JSON file, put in place before the command line is
//! parsed. The file is a mapping of flags to values, or a list of such mappings. A value that is
//! itself a mapping becomes JSON, which the flags for dictionaries read (`gcloud topic
//! flags-file`).

use std::ffi::OsString;

use serde_json::Value;

/// A file may name further files, this deep.
const DEPTH: usize = 8;

/// Returns the arguments with every `--flags-file` replaced by what is in it.
///
/// # Errors
/// A file that cannot be read or is no such file.
pub fn expand(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    expand_to(arguments, DEPTH)
}

fn expand_to(
    arguments: impl IntoIterator<Item = OsString>,
    depth: usize,
) -> Result<Vec<OsString>, String> {
    let mut out = Vec::new();
    let mut arguments = arguments.into_iter();
    let mut literal = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or("");
        literal |= text == "--";
        let path = match text.strip_prefix("--flags-file") {
            Some("") if !literal => arguments.next().and_then(|p| p.into_string().ok()),
            Some(rest) if !literal => rest.strip_prefix('=').map(str::to_owned),
            _ => None,
        };
        let Some(path) = path else {
            out.push(argument);
            continue;
        };
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("{path}: flags files name each other"));
        };
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let flags: Value = serde_yaml_ng::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
        let flags = flags_of(&flags).map_err(|e| format!("{path}: {e}"))?;
        out.extend(expand_to(flags.into_iter().map(OsString::from), depth)?);
    }
    Ok(out)
}

fn flags_of(file: &Value) -> Result<Vec<String>, String> {
    match file {
        Value::Array(items) => {
            let each: Result<Vec<_>, _> = items.iter().map(flags_of).collect();
            Ok(each?.into_iter().flatten().collect())
        }
        Value::Object(map) => {
            let mut out = Vec::new();
            for (flag, value) in map {
                if !flag.starts_with("--") {
                    return Err(format!("[{flag}] is not a flag: flags begin with --"));
                }
                flag_of(flag, value, &mut out);
            }
            Ok(out)
        }
        _ => Err("a flags file maps flags to values".to_owned()),
    }
}

fn flag_of(flag: &str, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(true) => out.push(flag.to_owned()),
        Value::Bool(false) => out.push(flag.replacen("--", "--no-", 1)),
        Value::String(text) => out.push(format!("{flag}={text}")),
        Value::Number(n) => out.push(format!("{flag}={n}")),
        Value::Object(_) => out.push(format!("{flag}={value}")),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                flag_of(flag, item, out);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(crate::format::text).collect();
            out.push(format!("{flag}={}", items.join(",")));
        }
    }
}
