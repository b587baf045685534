//! `weir peers`: nodes that replicate with one another.

use serde_json::{Value, json};

use super::steps::{open, own};
use crate::Environment;
use crate::args::{At, Common, PeerCreate, PeerInvite, PeerJoin, PeerShow, Peers};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::http::Method;
use crate::session::{Io, Session};

const PATH: &str = "cluster/peers";
const TABLE: &str =
    "table(name, remote.ip_addresses.join(','):label=ADDRESS, status.state, fingerprint)";

/// Runs `weir peers` and its verbs.
pub fn run(command: &Peers, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let common: &Common = match command {
        Peers::Create(args) => &args.common,
        Peers::Invite(args) => &args.common,
        Peers::Join(args) => &args.common,
        Peers::List(args) => &args.common,
        Peers::Show(args) => &args.common,
        Peers::Delete(args) => &args.common,
    };
    let mut s = open(common, &At::default(), environment, io)?;
    match command {
        Peers::Create(args) => create(args, &mut s),
        Peers::Invite(args) => invite(args, &mut s),
        Peers::Join(args) => join(args, &mut s),
        Peers::List(_) => {
            let found = s.ontap(Method::Get, PATH, &[], None)?;
            let all = found.get("records").and_then(Value::as_array).cloned();
            let all: Vec<Value> = all.unwrap_or_default().into_iter().map(bare).collect();
            s.print_all(&all, &own(TABLE)?)
        }
        Peers::Delete(args) => {
            find_peer(&s, &args.name)?;
            s.confirm(&format!("You are about to delete peer [{}].", args.name))?;
            s.ontap(Method::Delete, &format!("{PATH}/{}", args.name), &[], None)?;
            s.say(&format!("Deleted peer [{}].", args.name))
        }
        Peers::Show(PeerShow {
            name: Some(name), ..
        }) => {
            let one = find_peer(&s, name)?;
            s.print(&bare(one), &Format::plain(Kind::Yaml))
        }
        Peers::Show(_) => show_own(&mut s),
    }
}

fn create(args: &PeerCreate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let addresses: Vec<&String> = args.address.iter().collect();
    let body = json!({
        "name": args.name,
        "fingerprint": args.fingerprint,
        "remote": {"ip_addresses": addresses},
    });
    s.ontap(Method::Post, PATH, &[], Some(&body))?;
    s.say(&format!("Created peer [{}].", args.name))
}

fn invite(args: &PeerInvite, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let addresses: Vec<&String> = args.address.iter().collect();
    let body = json!({
        "name": args.name,
        "authentication": {"generate_passphrase": true},
        "remote": {"ip_addresses": addresses},
    });
    let made = s.ontap(Method::Post, PATH, &[], Some(&body))?;
    let query = [("fields", "peering".to_owned())];
    let own = s.ontap(Method::Get, "cluster", &query, None)?;
    let of = |name: &str| made.pointer(&format!("/records/0/authentication/{name}"));
    let shown = json!({
        "address": own.pointer("/peering/address"),
        "passphrase": of("passphrase"),
        "expires": of("expiry_time"),
    });
    s.print(&shown, &Format::plain(Kind::Yaml))
}

fn join(args: &PeerJoin, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let passphrase = match &args.passphrase_file {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Error::Other(format!("{}: {error}", file.display())))?,
        None => s.prompt_line("Passphrase: ")?,
    };
    let mut body = json!({
        "authentication": {"passphrase": passphrase.trim()},
        "remote": {"ip_addresses": [args.address]},
    });
    if let (Some(name), Some(body)) = (&args.name, body.as_object_mut()) {
        body.insert("name".to_owned(), json!(name));
    }
    let query = [("return_records", "true".to_owned())];
    let made = s.ontap(Method::Post, PATH, &query, Some(&body))?;
    let name = made.pointer("/records/0/name").and_then(Value::as_str);
    s.say(&format!("Created peer [{}].", name.unwrap_or_default()))
}

/// Prints the name, the address and the fingerprint of the server itself.
fn show_own(s: &mut Session<'_, '_>) -> Result<(), Error> {
    let query = [("fields", "name,peering".to_owned())];
    let own = s.ontap(Method::Get, "cluster", &query, None)?;
    let of = |name: &str| own.get("peering").and_then(|p| p.get(name)).cloned();
    let shown = json!({
        "name": own.get("name"),
        "address": of("address"),
        "fingerprint": of("fingerprint"),
    });
    s.print(&shown, &Format::plain(Kind::Yaml))
}

/// Returns the record without links, which are for programs.
fn bare(mut record: Value) -> Value {
    if let Some(fields) = record.as_object_mut() {
        fields.remove("_links");
    }
    record
}

fn find_peer(s: &Session<'_, '_>, name: &str) -> Result<Value, Error> {
    let found = s.ontap(Method::Get, PATH, &[("name", name.to_owned())], None)?;
    let one = found.get("records").and_then(|all| all.get(0)).cloned();
    one.ok_or_else(|| Error::Other(format!("there is no peer [{name}]")))
}
