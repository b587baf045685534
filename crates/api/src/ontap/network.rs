//! `network/ip/interfaces`: the address at which clients reach the node, once for each machine. In
//! ONTAP each machine has addresses of its own; here all machines are served at the node's.

use serde_json::json;
use weir_ontap::fields::Way;
use weir_ontap::fields::interface::{NAME, TABLE, rows};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// Handles `network interface show` of `private/cli`: the same addresses.
pub fn lines(a: &CallContext<'_>) -> HandlerResult<Reply> {
    const FIELDS: &[&str] = &["vserver", "lif", "address", "data_protocol", "status_oper"];
    const KEYS: &[&str] = &["vserver", "lif"];
    let keys = ("fields".to_owned(), KEYS.join(","));
    let mut query = a.call.query.clone();
    // Without fields, `private/cli` has the key alone.
    if a.parameter("fields").is_none() {
        query.push(keys);
    }
    let listing = Listing::parse(&query, FIELDS)?;
    let all = a.cluster.svms().into_iter().map(|svm| {
        json!({
            "vserver": svm.name,
            "lif": NAME,
            "address": a.call.node,
            "data_protocol": ["nfs", "cifs"],
            "status_oper": "up",
        })
    });
    Ok(listing.reply(&a.here(), KEYS, KEYS, all.collect()))
}

/// Handles requests to `network/ip/interfaces`.
pub fn interfaces(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    let all = || rows(a.cluster, a.call.node);
    match (verb, path) {
        (Verb::Get, [] | [_]) => resource::get(a, &TABLE, !path.is_empty(), |_| all()),
        (Verb::Post, []) => Err(Refusal::not_here("ip.address", TABLE.why)),
        (Verb::Patch, [_]) => {
            a.only(&[])?;
            let like = resource::found(a, &TABLE, all())?;
            let mut fields = Fields::read(&a.call.body)?;
            resource::read(a, &TABLE, &mut fields, Way::Modify, &mut (), Some(&like))?;
            a.done(None)
        }
        (Verb::Delete, [_]) => {
            resource::found(a, &TABLE, all())?;
            Err(Refusal::not_here("uuid", TABLE.why))
        }
        _ => Err(Refusal::no_api()),
    }
}
