//! Tokens, the audit log, settings.

use std::path::Path;

use serde_json::{Value, json};

use super::steps::{open, own};
use crate::Environment;
use crate::args::{At, Audit, Conditions, Config, TokenCreate, Tokens};
use crate::context::{File, SETTINGS, setting};
use crate::error::Error;
use crate::format::yaml_document;
use crate::http::Method;
use crate::service_account::KeyFile;
use crate::session::{Io, Session};

const TOKENS: &str = "table(name.basename():label=NAME:sort=1, role, createTime.date(),
    expireTime.date():label=EXPIRES, lastUseTime.date():label=LAST_USE, revokeTime.date():label=REVOKED)";

const CONDITIONS: &str = "table(severity, kind, resource.basename():label=RESOURCE, since.date():label=SINCE, message, action)";

const AUDIT: &str = "table(time.date():label=TIME, actor, method, resource, outcome)";

/// Runs `weir tokens` and its verbs.
pub fn tokens(command: &Tokens, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let at = At::default();
    match command {
        Tokens::Create(args) => {
            let mut s = open(&args.common, &at, environment, io)?;
            let role = format!("{:?}", args.role).to_uppercase();
            let query = [("tokenId", args.name.clone())];
            let mut body = json!({"role": role});
            if let (Some(expires), Some(fields)) = (args.expires, body.as_object_mut()) {
                fields.insert("ttl".to_owned(), format!("{}s", expires.as_secs()).into());
            }
            if let Some(file) = &args.service_account {
                return create_account(&mut s, args, file, body);
            }
            if args.validate_only {
                return s.validate_only(Method::Post, "tokens", query.to_vec(), Some(body));
            }
            let made = s.call(Method::Post, "tokens", &query, Some(&body))?;
            s.say(&format!(
                "Created token [{}]. It is not shown again.",
                args.name
            ))?;
            // The secret alone, so that it can go to a file.
            s.print(&made, &own("value(token)")?)
        }
        Tokens::List(args) => {
            let mut s = open(&args.common, &at, environment, io)?;
            s.list("", "tokens", &args.listing, &own(TOKENS)?)
        }
        Tokens::Revoke(args) => {
            let mut s = open(&args.common, &at, environment, io)?;
            let name = args.name.strip_prefix("tokens/").unwrap_or(&args.name);
            if args.validate_only {
                let path = format!("tokens/{name}");
                return s.validate_only(Method::Delete, &path, Vec::new(), None);
            }
            s.confirm(&format!("You are about to revoke token [{}].", args.name))?;
            s.call(Method::Delete, &format!("tokens/{name}"), &[], None)?;
            s.say(&format!("Revoked token [{name}]."))
        }
    }
}

/// Creates a service account with the role and the lifetime of `body`, and writes its key to
/// `file`.
fn create_account(
    s: &mut Session<'_, '_>,
    args: &TokenCreate,
    file: &Path,
    mut body: Value,
) -> Result<(), Error> {
    let name = args.name.as_str();
    let shown = file.display();
    let failed = |error| Error::Other(format!("cannot write {shown}: {error}"));
    let key = KeyFile::new(file).map_err(failed)?;
    let token_uri = format!("{}/token", s.client().address());
    if let Some(fields) = body.as_object_mut() {
        fields.insert("publicKey".to_owned(), key.public.as_str().into());
        fields.insert("tokenUri".to_owned(), token_uri.as_str().into());
    }
    let query = [("tokenId", name.to_owned())];
    if args.validate_only {
        return s.validate_only(Method::Post, "tokens", query.to_vec(), Some(body));
    }
    s.call(Method::Post, "tokens", &query, Some(&body))?;
    key.write(name, s.project_id(), &token_uri)
        .map_err(failed)?;
    s.say(&format!(
        "Created service account [{name}]. Its key is in {shown} and nowhere else."
    ))
}

/// Runs `weir audit`: lists the audit log.
pub fn audit(args: &Audit, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut s = open(&args.common, &At::default(), environment, io)?;
    s.list("", "auditEntries", &args.listing, &own(AUDIT)?)
}

/// Runs `weir conditions`: the sentence that sums them up, and the list.
pub fn conditions(
    args: &Conditions,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let mut s = open(&args.common, &At::default(), environment, io)?;
    let report = s.call(Method::Get, "conditions", &[], None)?;
    if args.common.is_json() {
        return s.put_json(&report);
    }
    if let Some(headline) = report.get("headline").and_then(Value::as_str) {
        s.say(headline)?;
    }
    let conditions = report.get("conditions").and_then(Value::as_array);
    s.print_all(conditions.map_or(&[], Vec::as_slice), &own(CONDITIONS)?)
}

/// Runs `weir config` and its verbs.
pub fn config(command: &Config, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut file = File::read(environment)?;
    let (name, value) = match command {
        Config::List { json } => {
            let effective: Value = SETTINGS
                .iter()
                .filter_map(|(name, ..)| {
                    let value = setting(name, None, environment, &file)?;
                    Some(((*name).to_owned(), Value::from(value)))
                })
                .collect();
            let text = match json {
                true => format!("{effective:#}\n"),
                false => yaml_document(&effective),
            };
            return Ok(io.out.write_all(text.as_bytes())?);
        }
        Config::Set { name, value } => (name, Some(value.as_str())),
        Config::Unset { name } => (name, None),
    };
    file.set(name, value)?;
    let word = if value.is_some() { "Updated" } else { "Unset" };
    Ok(io
        .err
        .write_all(format!("{word} setting [{name}].\n").as_bytes())?)
}
