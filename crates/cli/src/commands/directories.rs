//! Domains of Active Directory that the server is a member of.

use serde_json::json;

use super::netapp::{create, update};
use super::steps::{Body, delete, list, open_named, own};
use crate::Environment;
use crate::args::{ActiveDirectories, DirectoryCreate, DirectoryFields, DirectoryUpdate};
use crate::error::Error;
use crate::session::{Io, Session};

const COLLECTION: &str = "activeDirectories";
const WHAT: &str = "active directory";

const DIRECTORIES: &str = "table(name.basename():label=ACTIVE_DIRECTORY_NAME:sort=1,
    name.segment(3):label=LOCATION, domain, netBiosPrefix, username, state)";

/// Runs `weir active-directories` and its verbs.
pub fn run(
    command: &ActiveDirectories,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        ActiveDirectories::List(args) => {
            list(args, COLLECTION, &own(DIRECTORIES)?, environment, io)
        }
        ActiveDirectories::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name(COLLECTION, &named.name)?;
            s.describe(&name)
        }
        ActiveDirectories::Create(args) => {
            join(args, &mut open_named(&args.named, environment, io)?)
        }
        ActiveDirectories::Update(args) => {
            change(args, &mut open_named(&args.named, environment, io)?)
        }
        ActiveDirectories::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name(COLLECTION, &args.named.name)?;
            s.confirm_change(
                args.wait,
                &format!("You are about to delete an Active Directory {name}."),
            )?;
            delete(&mut s, name, Vec::new(), args.wait, WHAT)
        }
    }
}

fn join(args: &DirectoryCreate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name(COLLECTION, &args.named.name)?;
    let mut body = Body::default();
    body.set("domain", Some(args.domain.as_str()));
    body.set("dns", Some(args.dns.as_str()));
    body.set("netBiosPrefix", Some(args.net_bios_prefix.as_str()));
    body.set("username", Some(args.username.as_str()));
    fields(&args.fields, &mut body);
    body.set("labels", args.labels.as_ref().map(|labels| json!(labels)));
    let file = args.fields.password_file.as_deref().unwrap_or("-");
    body.set("password", Some(password(s, file, &args.username)?));
    create(s, &name, "activeDirectoryId", body, args.wait, WHAT)
}

fn change(args: &DirectoryUpdate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name(COLLECTION, &args.named.name)?;
    let current = s.get(&name)?;
    let mut body = Body::default();
    body.set("dns", args.dns.as_deref());
    body.set("username", args.username.as_deref());
    fields(&args.fields, &mut body);
    body.set("labels", Session::labels(&current, &args.labels));
    let joins = ["username", "organizationalUnit", "kdcHostname"];
    let joins = joins.iter().any(|field| body.0.contains_key(*field));
    let file = args.fields.password_file.as_deref();
    if let Some(file) = file.or(joins.then_some("-")) {
        let now = current.get("username").and_then(|user| user.as_str());
        let user = args.username.as_deref().or(now).unwrap_or_default();
        body.set("password", Some(password(s, file, user)?));
    }
    update(s, name, body, args.wait, WHAT)
}

fn fields(args: &DirectoryFields, body: &mut Body) {
    body.set("organizationalUnit", args.organizational_unit.as_deref());
    body.set("kdcHostname", args.kdc_hostname.as_deref());
    body.set("kdcIp", args.kdc_ip.as_deref());
    body.set("aesEncryption", args.enable_aes);
    body.set("ldapSigning", args.enable_ldap_signing);
    body.set("encryptDcConnections", args.encrypt_dc_connections);
    body.set("description", args.description.as_deref());
}

/// Returns the password of a user of the domain: a file's contents without the end of their line,
/// or what is typed or piped.
fn password(s: &mut Session<'_, '_>, file: &str, user: &str) -> Result<String, Error> {
    let password = match file {
        "-" => s.secret(user)?,
        file => {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Error::Other(format!("cannot read {file}: {error}")))?;
            text.trim_end_matches(['\n', '\r']).to_owned()
        }
    };
    match password.is_empty() {
        true => Err(Error::Other("the password is empty".to_owned())),
        false => Ok(password),
    }
}
