//! `weir peers`: nodes that replicate with one another.

use serde_json::{Value, json};

use super::{open, own};
use crate::Environment;
use crate::args::{At, Common, PeerShow, Peers};
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
        Peers::List(args) => &args.common,
        Peers::Show(args) => &args.common,
        Peers::Delete(args) => &args.common,
    };
    let mut s = open(common, &At::default(), environment, io)?;
    match command {
        Peers::Create(args) => {
            let addresses: Vec<&String> = args.address.iter().collect();
            let body = json!({
                "name": args.name,
                "fingerprint": args.fingerprint,
                "remote": {"ip_addresses": addresses},
            });
            s.ontap(Method::Post, PATH, &[], Some(&body))?;
            s.say(&format!("Created peer [{}].", args.name))
        }
        Peers::List(_) => {
            let found = s.ontap(Method::Get, PATH, &[], None)?;
            let all = found.get("records").and_then(Value::as_array).cloned();
            let all: Vec<Value> = all.unwrap_or_default().into_iter().map(bare).collect();
            s.print_all(&all, &own(TABLE)?)
        }

        Peers::Delete(args) => {
            named(&s, &args.name)?;
            s.confirm(&format!("You are about to delete peer [{}].", args.name))?;
            s.ontap(Method::Delete, &format!("{PATH}/{}", args.name), &[], None)?;
            s.say(&format!("Deleted peer [{}].", args.name))
        }
        Peers::Show(PeerShow {
            name: Some(name), ..
        }) => {
            let one = named(&s, name)?;
            s.print(&bare(one), &Format::plain(Kind::Yaml))
        }
        Peers::Show(_) => {
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
    }
}

/// Without links, which are for programs.
fn bare(mut record: Value) -> Value {
    if let Some(fields) = record.as_object_mut() {
        fields.remove("_links");
    }
    record
}

fn named(s: &Session<'_, '_>, name: &str) -> Result<Value, Error> {
    let found = s.ontap(Method::Get, PATH, &[("name", name.to_owned())], None)?;
    let one = found.get("records").and_then(|all| all.get(0)).cloned();
    one.ok_or_else(|| Error::Other(format!("there is no peer [{name}]")))
}
