//! Replications of volumes.

use serde_json::{Value, json};

use super::netapp::{act, create, in_volume, of_volume, update};
use super::steps::{Body, delete, last, open, open_named};
use crate::Environment;
use crate::args::{ReplicationCreate, Replications};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::session::{Io, Session};

/// Runs `weir volumes replications` and its verbs.
pub fn run(
    command: &Replications,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let (one, what) = match command {
        Replications::List(args) => {
            let mut s = open(&args.listed.common, &args.listed.at, environment, io)?;
            let volume = of_volume(&s, args.volume.as_ref(), "list replications of")?;
            let format = Format::plain(Kind::Yaml);
            return s.list(&volume, "replications", &args.listed.listing, &format);
        }
        Replications::Create(args) => (&args.one.replication, "create replication of"),
        Replications::Describe(args) => (args, "describe replication of"),
        Replications::Update(args) => (&args.one.replication, "update replication of"),
        Replications::Stop(args) => (&args.one.replication, "stop replication of"),
        Replications::Resume(args) => (&args.replication, "resume replication of"),
        Replications::Reverse(args) => (&args.replication, "reverse replication of"),
        Replications::Sync(args) => (&args.replication, "sync replication of"),
        Replications::EstablishPeering(args) => (
            &args.one.replication,
            "establish peering for replication of",
        ),
        Replications::Delete(args) => (&args.replication, "delete replication of"),
    };
    let mut s = open_named(&one.named, environment, io)?;
    let name = in_volume(&s, one.volume.as_ref(), what, "replications", &one.named)?;
    match command {
        Replications::Create(args) => make(args, &name, &mut s),
        Replications::Update(args) => {
            let current = s.get(&name)?;
            let mut body = Body::default();
            let schedule = args.replication_schedule.as_deref();
            body.set("replicationSchedule", schedule);
            body.changed_words(&current, &args.words);
            update(&mut s, name, body, args.one.wait, "replication")
        }
        Replications::Stop(args) => {
            let body = json!({"force": args.force});
            let done = format!("Stopped replication [{}].", last(&name));
            act(&mut s, &name, "stop", body, args.one.wait, done)
        }
        Replications::Resume(args) => {
            let done = format!("Resumed replication [{}].", last(&name));
            act(&mut s, &name, "resume", json!({}), args.wait, done)
        }
        Replications::Reverse(args) => {
            let done = format!("Reversed replication [{}].", last(&name));
            let verb = "reverseDirection";
            act(&mut s, &name, verb, json!({}), args.wait, done)
        }
        Replications::Sync(args) => {
            let done = format!("Began to sync replication [{}].", last(&name));
            act(&mut s, &name, "sync", json!({}), args.wait, done)
        }
        Replications::EstablishPeering(args) => {
            let addresses: Vec<&String> = args.peer_ip_addresses.iter().collect();
            let body = json!({
                "peerClusterName": args.peer_cluster_name,
                "peerSvmName": args.peer_svm_name,
                "peerVolumeName": args.peer_volume_name,
                "peerIpAddresses": addresses,
            });
            let done = format!("Established peering for replication [{}].", last(&name));
            let no_wait = args.one.wait;
            act(&mut s, &name, "establishPeering", body, no_wait, done)?;
            s.describe(&name)
        }
        Replications::Delete(args) => {
            s.confirm_change(args.wait, &deletion(&name))?;
            delete(&mut s, name, Vec::new(), args.wait, "replication")
        }
        Replications::Describe(_) | Replications::List(_) => s.describe(&name),
    }
}

fn deletion(name: &str) -> String {
    format!("You are about to delete a Replication {name}.")
}

fn make(args: &ReplicationCreate, name: &str, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let parameters = &args.destination_volume_parameters;
    let mut to = Body::default();
    to.set("storagePool", parameters.text("storage_pool"));
    to.set("volumeId", parameters.text("volume_id"));
    to.set("shareName", parameters.text("share_name"));
    to.set("description", parameters.text("description"));
    let mut body = Body::default();
    let schedule = args.replication_schedule.as_str();
    body.set("replicationSchedule", Some(schedule));
    body.set("destinationVolumeParameters", Some(Value::Object(to.0)));
    body.words(&args.words);
    let no_wait = args.one.wait;
    create(s, name, "replicationId", body, no_wait, "replication")
}
