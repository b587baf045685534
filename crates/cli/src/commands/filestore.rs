//! Filestore instances.

use serde_json::{Value, json};

use super::netapp::{self, act};
use super::operations;
use super::steps::{Body, delete, last, list, open, open_named, own};
use crate::Environment;
use crate::args::{
    At, Filestore, InstanceBackups, InstanceCreate, InstanceSnapshotNamed, InstanceSnapshots,
    InstanceUpdate, Instances, OfInstance,
};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::http::Method;
use crate::session::{Change, Io, Session};
use crate::values::{Dict, enumerator, gib};

const INSTANCES: &str = "table(name.basename():label=INSTANCE_NAME:sort=1,
    name.segment(3):label=LOCATION, tier, fileShares[0].capacityGb:label=CAPACITY_GB,
    fileShares[0].name.yesno(no=\"N/A\"):label=FILE_SHARE_NAME,
    networks[0].ipAddresses[0]:label=IP_ADDRESS, state, createTime.date())";

const SNAPSHOTS: &str =
    "table(name.basename():label=NAME:sort=1, state, createTime.date(), description)";

/// Runs `weir filestore` and its verbs.
pub fn run(command: &Filestore, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    match command {
        Filestore::Instances { command } => instances(command, environment, io),
        Filestore::Backups { command } => backups(command, environment, io),
        Filestore::Operations { command } => operations::operations(command, environment, io),
        Filestore::Locations { command } => operations::locations(command, environment, io),
    }
}

const BACKUPS: &str = "table(name.basename():label=NAME:sort=1, name.segment(3):label=LOCATION,
    sourceInstance.basename():label=SRC_INSTANCE, sourceFileShare:label=SRC_FILE_SHARE, state,
    createTime.date(), stateDetails)";

fn backups(
    command: &InstanceBackups,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        InstanceBackups::List(args) => list(args, "backups", &own(BACKUPS)?, environment, io),
        InstanceBackups::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name("backups", &named.name)?;
            s.describe(&name)
        }
        InstanceBackups::Create(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("backups", &args.named.name)?;
            let instance = s.name("instances", &args.instance)?;
            let mut body = Body::default();
            body.set(
                "sourceInstance",
                Some(moved(instance, args.instance_location.as_deref())),
            );
            body.set("sourceFileShare", args.file_share.as_deref());
            body.words(&args.words);
            netapp::create(&mut s, &name, "backupId", body, args.wait, "backup")
        }
        InstanceBackups::Update(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("backups", &args.named.name)?;
            let mut body = Body::default();
            body.changed_words(&s.get(&name)?, &args.words);
            netapp::update(&mut s, name, body, args.wait, "backup")
        }
        InstanceBackups::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("backups", &args.named.name)?;
            let question = format!("You are about to delete Filestore backup {name}.");
            s.confirm_change(args.wait, &question)?;
            delete(&mut s, name, Vec::new(), args.wait, "backup")
        }
    }
}

/// Returns a full name with another location, if one is given.
fn moved(name: String, location: Option<&str>) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    match (parts.get_mut(3), location) {
        (Some(part), Some(location)) => *part = location,
        _ => return name,
    }
    parts.join("/")
}

fn instances(command: &Instances, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    match command {
        Instances::List(args) => list(args, "instances", &own(INSTANCES)?, environment, io),
        Instances::Describe(named) => {
            let mut s = open_named(named, environment, io)?;
            let name = s.name("instances", &named.name)?;
            s.describe(&name)
        }
        Instances::Create(args) => create(args, &mut open_named(&args.named, environment, io)?),
        Instances::Update(args) => update(args, &mut open_named(&args.named, environment, io)?),
        Instances::Delete(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("instances", &args.named.name)?;
            s.confirm_change(
                args.wait,
                &format!("You are about to delete Filestore instance {name}."),
            )?;
            let force = vec![("force", args.force.to_string())];
            delete(&mut s, name, force, args.wait, "instance")
        }
        Instances::Revert(args) => {
            let mut s = open_named(&args.named, environment, io)?;
            let name = s.name("instances", &args.named.name)?;
            let snapshot = last(&args.target_snapshot);
            s.confirm_change(
                args.wait,
                &format!(
                    "You are about to revert Filestore instance {name} to snapshot {snapshot}."
                ),
            )?;
            let body = json!({"targetSnapshotId": snapshot});
            let done = format!("Reverted instance [{}].", last(&name));
            act(&mut s, &name, "revert", body, args.wait, done)
        }
        Instances::Snapshots { command } => snapshots(command, environment, io),
    }
}

/// Returns the location of an instance, by whichever of its flags.
fn place(of: &OfInstance, at: &At) -> At {
    At {
        location: of.instance_location.clone().or_else(|| at.location.clone()),
    }
}

/// Returns the full name of an instance whose snapshots are meant.
fn of_instance(s: &Session<'_, '_>, of: &OfInstance) -> Result<String, Error> {
    let instance = of.instance.as_ref().ok_or_else(|| {
        Error::Usage(
            "Missing required argument [--instance]: the instance of the snapshot".to_owned(),
        )
    })?;
    s.name("instances", instance)
}

fn snapshots(
    command: &InstanceSnapshots,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let open_it = |snapshot: &InstanceSnapshotNamed, io| {
        let at = place(&snapshot.of, &snapshot.named.at);
        let s = open(&snapshot.named.common, &at, environment, io)?;
        let given = &snapshot.named.name;
        let name = match given.starts_with("projects/") {
            true => s.name("snapshots", given)?,
            false => {
                // For the check of the name alone.
                s.name("snapshots", given)?;
                format!("{}/snapshots/{given}", of_instance(&s, &snapshot.of)?)
            }
        };
        Ok::<_, Error>((s, name))
    };
    match command {
        InstanceSnapshots::List(args) => {
            let mut s = open(
                &args.listed.common,
                &place(&args.of, &args.listed.at),
                environment,
                io,
            )?;
            let instance = of_instance(&s, &args.of)?;
            s.list(
                &instance,
                "snapshots",
                &args.listed.listing,
                &own(SNAPSHOTS)?,
            )
        }
        InstanceSnapshots::Describe(args) => {
            let (mut s, name) = open_it(args, io)?;
            s.describe(&name)
        }
        InstanceSnapshots::Create(args) => {
            let (mut s, name) = open_it(&args.snapshot, io)?;
            let mut body = Body::default();
            body.words(&args.words);
            let wait = args.wait;
            netapp::create(&mut s, &name, "snapshotId", body, wait, "snapshot")
        }
        InstanceSnapshots::Update(args) => {
            let (mut s, name) = open_it(&args.snapshot, io)?;
            let current = s.get(&name)?;
            let mut body = Body::default();
            body.changed_words(&current, &args.words);
            netapp::update(&mut s, name, body, args.wait, "snapshot")
        }
        InstanceSnapshots::Delete(args) => {
            let (mut s, name) = open_it(&args.snapshot, io)?;
            s.confirm_change(
                args.wait,
                &format!("You are about to delete Filestore snapshot {name}."),
            )?;
            delete(&mut s, name, Vec::new(), args.wait, "snapshot")
        }
    }
}

fn create(args: &InstanceCreate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("instances", &args.named.name)?;
    let mut network = Body::default();
    network.set("network", args.network.text("name"));
    network.set("reservedIpRange", args.network.text("reserved-ip-range"));
    let mode = args.network.text("connect-mode");
    network.set(
        "connectMode",
        Some(mode.unwrap_or_else(|| "DIRECT_PEERING".to_owned())),
    );
    let mut body = Body::default();
    body.set("tier", Some(args.tier.as_str()));
    body.set("protocol", Some(args.protocol.as_str()));
    let mut share = share(&args.file_share)?;
    if let (Some(backup), Value::Object(share)) =
        (args.file_share.text("source-backup"), &mut share)
    {
        let region = args.file_share.text("source-backup-region");
        let backup = moved(s.name("backups", &backup)?, region.as_deref());
        share.insert("sourceBackup".to_owned(), json!(backup));
    }
    body.set("fileShares", Some(json!([share])));
    body.set("networks", Some(json!([network.0])));
    body.set(
        "performanceConfig",
        args.performance.as_ref().and_then(performance),
    );
    body.words(&args.words);
    s.change(Change {
        method: Method::Post,
        name: name
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent)
            .to_owned(),
        query: vec![("instanceId", last(&name).to_owned())],
        body: Some(Value::Object(body.0)),
        wait: args.wait,
        done: format!("Created instance [{}].", last(&name)),
        format: &Format::plain(Kind::None),
    })
}

fn update(args: &InstanceUpdate, s: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = s.name("instances", &args.named.name)?;
    let current = s.get(&name)?;
    let mut body = Body::default();
    if let Some(flag) = &args.file_share {
        let mut new = share(flag)?;
        let old = current
            .pointer("/fileShares/0")
            .cloned()
            .unwrap_or_default();
        let (old_name, new_name) = (old.get("name"), new.get("name"));
        if old_name != new_name {
            return Err(Error::Other(format!(
                "Must update an existing file share. Existing file share is named [{}]. \
                 Requested update had name [{}].",
                old_name.map(crate::format::text).unwrap_or_default(),
                new_name.map(crate::format::text).unwrap_or_default()
            )));
        }
        // Options that are not given stay.
        let kept = old
            .get("nfsExportOptions")
            .filter(|_| !args.clear_nfs_export_options);
        if let (Value::Object(map), Some(kept)) = (&mut new, kept) {
            map.entry("nfsExportOptions")
                .or_insert_with(|| kept.clone());
        }
        body.set("fileShares", Some(json!([new])));
    }
    body.set(
        "performanceConfig",
        args.performance.as_ref().and_then(performance),
    );
    body.changed_words(&current, &args.words);
    let mask = body.mask()?;
    body.set("name", Some(name.as_str()));
    // The server compares the etag, so that no change is lost that was made in between.
    body.set("etag", current.get("etag").cloned());
    s.change(Change {
        method: Method::Patch,
        done: format!("Updated instance [{}].", last(&name)),
        name,
        query: vec![("updateMask", mask)],
        body: Some(Value::Object(body.0)),
        wait: args.wait,
        format: &Format::plain(Kind::None),
    })
}

fn share(flag: &Dict) -> Result<Value, Error> {
    let mut share = Body::default();
    share.set("name", flag.text("name"));
    let capacity = gib(&flag.required("capacity")?)?;
    share.int64("capacityGb", Some(capacity.0));
    match flag.0.get("nfs-export-options") {
        None => {}
        Some(Value::Array(options)) => {
            let options: Result<Vec<Value>, String> = options.iter().map(export_options).collect();
            share.set("nfsExportOptions", Some(Value::Array(options?)));
        }
        Some(_) => {
            return Err(Error::Usage(
                "argument --file-share: nfs-export-options is a list; see --flags-file".to_owned(),
            ));
        }
    }
    Ok(Value::Object(share.0))
}

/// Options of an export, their keys spelt as gcloud's files spell them, with `-` or `_`.
fn export_options(options: &Value) -> Result<Value, String> {
    let Value::Object(map) = options else {
        return Err("each of nfs-export-options is a mapping".to_owned());
    };
    let map = map
        .iter()
        .map(|(k, v)| (k.replace('_', "-"), v.clone()))
        .collect();
    let keys = [
        "access-mode",
        "anon-gid",
        "anon-uid",
        "ip-ranges",
        "security-flavors",
        "squash-mode",
    ];
    let options = Dict(map).only(&keys)?;
    let mut out = Body::default();
    for (key, field) in [("access-mode", "accessMode"), ("squash-mode", "squashMode")] {
        out.set(
            field,
            options.text(key).map(|t| enumerator(&t)).transpose()?,
        );
    }
    for (key, field) in [
        ("ip-ranges", "ipRanges"),
        ("security-flavors", "securityFlavors"),
    ] {
        let value = options.0.get(key).cloned();
        out.set(
            field,
            value.map(|v| if v.is_array() { v } else { json!([v]) }),
        );
    }
    out.int64("anonUid", options.integer("anon-uid")?);
    out.int64("anonGid", options.integer("anon-gid")?);
    Ok(Value::Object(out.0))
}

fn performance(flag: &Dict) -> Option<Value> {
    match flag.text("max-iops") {
        Some(iops) => Some(json!({"fixedIops": {"maxIops": iops}})),
        None => Some(json!({"iopsPerTb": {"maxIopsPerTb": flag.text("max-iops-per-tb")?}})),
    }
}
