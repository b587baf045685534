//! `cluster`: the node's identity, jobs, schedules, peers.

use serde_json::{Value, json};
use weir_ontap::commands::node::fingerprint;
use weir_ontap::fields::{Way, identity, job, node, peer, schedule};
use weir_ontap::value::identity as uuid;
use weir_relations::manager::Verb;
use weir_relations::schedule::{Numbers, Schedule};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply, time};

/// Handles GET of the cluster.
pub fn cluster(a: &CallContext<'_>) -> HandlerResult<Reply> {
    resource::get(a, &identity::TABLE, true, |_| {
        vec![identity::row(a.cluster)]
    })
}

fn rows(a: &CallContext<'_>) -> Vec<node::Row> {
    node::rows(a.cluster, Some(a.call.node))
}

/// Handles GET of nodes: this one, or those of its cluster. A pair, and those that stand by, are
/// shown as ONTAP's high availability.
pub fn nodes(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &node::TABLE, one, |_| rows(a))
}

/// Handles PATCH of a node: nothing of it can be changed here.
pub fn change_node(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let like = resource::found(a, &node::TABLE, rows(a))?;
    let mut fields = Fields::read(&a.call.body)?;
    resource::read(
        a,
        &node::TABLE,
        &mut fields,
        Way::Modify,
        &mut (),
        Some(&like),
    )?;
    a.done(None)
}

/// Handles GET of jobs, or of the one whose path it is.
pub fn jobs(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &job::TABLE, one, |_| a.surface.jobs())
}

/// Handles GET of schedules, or of the one whose path it is.
pub fn schedules(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &schedule::TABLE, one, |_| a.cluster.schedules())
}

/// Numbers of a cron field; none are every one.
fn numbers(fields: &mut Fields, name: &str, low: u32, high: u32) -> HandlerResult<Option<Numbers>> {
    let value = match fields.take(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let all = value.as_array().and_then(|list| {
        let number = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        list.iter().map(number).collect::<Option<Vec<u32>>>()
    });
    match all {
        Some(all) if all.is_empty() => Ok(None),
        Some(all) => match Numbers::from_numbers(all, low, high) {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(out_of_range(name, &value, low, high)),
        },
        None => Err(out_of_range(name, &value, low, high)),
    }
}

fn out_of_range(name: &str, value: &Value, low: u32, high: u32) -> Box<Refusal> {
    let kind = format!("a list of numbers, {low} to {high}");
    Refusal::value(name, &value.to_string(), &kind)
}

/// Returns an interval such as `PT5M` or `P1DT2H` in seconds.
fn interval(text: &str) -> Option<u32> {
    let rest = text.strip_prefix('P')?;
    let (date, clock) = rest.split_once('T').unwrap_or((rest, ""));
    let mut seconds: u32 = 0;
    for (part, units) in [
        (date, &[('W', 604_800), ('D', 86_400)][..]),
        (clock, &[('H', 3_600), ('M', 60), ('S', 1)]),
    ] {
        let mut digits = String::new();
        for c in part.chars() {
            if c.is_ascii_digit() {
                digits.push(c);
                continue;
            }
            let (_, unit) = units.iter().find(|(letter, _)| *letter == c)?;
            let n: u32 = digits.parse().ok()?;
            seconds = n.checked_mul(*unit)?.checked_add(seconds)?;
            digits.clear();
        }
        if !digits.is_empty() {
            return None;
        }
    }
    Some(seconds).filter(|seconds| *seconds > 0)
}

/// Handles POST of a schedule.
pub fn create_schedule(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let minutes = numbers(&mut fields, "cron.minutes", 0, 59)?;
    let hours = numbers(&mut fields, "cron.hours", 0, 23)?;
    let days = numbers(&mut fields, "cron.days", 1, 31)?;
    let months = numbers(&mut fields, "cron.months", 1, 12)?;
    let weekdays = numbers(&mut fields, "cron.weekdays", 0, 6)?;
    fields.ignore(&["svm.name", "svm.uuid"]);
    let mut draft = schedule::Draft::default();
    resource::read(
        a,
        &schedule::TABLE,
        &mut fields,
        Way::Create,
        &mut draft,
        None,
    )?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let schedule = match (draft.interval, minutes) {
        (Some(text), None) => match interval(&text) {
            Some(seconds) => Schedule::Every(seconds),
            None => return Err(Refusal::value("interval", &text, "ISO 8601 duration")),
        },
        (None, Some(minutes)) => Schedule::At {
            minutes,
            hours: hours.unwrap_or(Numbers::from_range(0, 23)),
            days: days.unwrap_or(Numbers::from_range(1, 31)),
            months: months.unwrap_or(Numbers::from_range(1, 12)),
            weekdays: weekdays.unwrap_or(Numbers::from_range(0, 6)),
        },
        _ => return Err(Refusal::required("cron.minutes")),
    };
    let change = Verb::ScheduleCreate {
        name: name.clone(),
        schedule,
    };
    a.cluster
        .change(change.into())
        .map_err(Refusal::from_failure)?;
    let made = a.cluster.schedules().into_iter().find(|s| s.name == name);
    resource::made(a, &schedule::TABLE, made)
}

/// Handles DELETE of a schedule.
pub fn delete_schedule(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let all = a.cluster.schedules();
    let found = all.into_iter().find(|s| uuid("schedule", &s.name) == id);
    let found = found.ok_or_else(Refusal::no_entry)?;
    let change = Verb::ScheduleDelete(found.name);
    let deleted = a.cluster.change(change.into());
    deleted.map_err(|failure| Refusal::of_schedule(failure, found.system))?;
    a.done(None)
}

/// Handles GET of peers, or of the one whose path it is.
pub fn peers(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &peer::TABLE, one, |_| a.cluster.peers())
}

/// Handles POST of a peer: with its fingerprint; or offering it pairing, with a passphrase that the
/// reply has; or joining it with that.
pub fn create_peer(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let mut draft = peer::Draft::default();
    resource::read(a, &peer::TABLE, &mut fields, Way::Create, &mut draft, None)?;
    let name = draft.name.or(draft.remote);
    let address = match draft.addresses.as_deref() {
        None | Some([]) => None,
        Some([one]) => Some(one.clone()),
        Some(list) => {
            let kind = "a list of one host:port";
            return Err(Refusal::value("remote.ip_addresses", &list.join(","), kind));
        }
    };
    if let Some(passphrase) = draft.passphrase {
        let address = address.ok_or_else(|| Refusal::required("remote.ip_addresses"))?;
        let joined = a.cluster.join(name, &address, &passphrase);
        return peer_made(a, &joined.map_err(Refusal::from_failure)?);
    }
    let name = name.ok_or_else(|| Refusal::required("name"))?;
    if draft.generates {
        let offer = a.cluster.invite(&name, address, false);
        let offer = offer.map_err(Refusal::from_failure)?;
        let authentication = json!({
            "passphrase": offer.passphrase,
            "expiry_time": time(offer.expires),
        });
        let mut reply = a.done(None)?;
        if let Some(body) = reply.body.as_object_mut() {
            let record = json!({"name": name, "authentication": authentication});
            body.insert("num_records".to_owned(), json!(1));
            body.insert("records".to_owned(), json!([record]));
        }
        return Ok(reply);
    }
    let text = draft
        .fingerprint
        .ok_or_else(|| Refusal::required("fingerprint"))?;
    let print = fingerprint(&text);
    let print = print
        .ok_or_else(|| Refusal::value("fingerprint", &text, "SHA-256, 64 hexadecimal digits"))?;
    let change = Verb::PeerCreate {
        name: name.clone(),
        address,
        fingerprint: print,
    };
    a.cluster
        .change(change.into())
        .map_err(Refusal::from_failure)?;
    peer_made(a, &name)
}

fn peer_made(a: &CallContext<'_>, name: &str) -> HandlerResult<Reply> {
    let made = a.cluster.peers().into_iter().find(|p| p.name == name);
    resource::made(a, &peer::TABLE, made)
}

/// Handles DELETE of a peer, by its identity or its name.
pub fn delete_peer(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let all = a.cluster.peers();
    let found = all
        .into_iter()
        .find(|p| uuid("peer", &p.name) == id || p.name == id);
    let change = Verb::PeerDelete(found.ok_or_else(Refusal::no_entry)?.name);
    a.cluster
        .change(change.into())
        .map_err(Refusal::from_failure)?;
    a.done(None)
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn intervals() {
        assert_eq!(interval("PT5M"), Some(300));
        assert_eq!(interval("P1DT2H3M4S"), Some(93_784));
        assert_eq!(interval("P1W"), Some(604_800));
        for wrong in ["", "5M", "P", "PT", "PT5", "P5M", "PT0S", "PT99999999999S"] {
            assert_eq!(interval(wrong), None, "{wrong}");
        }
    }
}
