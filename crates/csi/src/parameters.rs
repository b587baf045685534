//! Parameters of a StorageClass and of a VolumeAttributesClass.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::status::{Outcome, Status};

/// Prefix of what Kubernetes' sidecars add themselves.
const KUBERNETES: &str = "csi.storage.k8s.io/";

/// Parameters of a class, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// The storage pool; `None`: the only one of the location.
    pub pool: Option<String>,
    /// Protocols of the API: NFSV3, NFSV4, SMB.
    pub protocols: Vec<&'static str>,
    /// Fields of the volume that follow from the rest.
    pub fields: Map<String, Value>,
}

fn wrong(name: &str, value: &str, expected: &str) -> Status {
    Status::invalid(format!("parameter {name}: {value:?} is not {expected}"))
}

fn number(name: &str, value: &str, most: u64) -> Outcome<u64> {
    let expected = || wrong(name, value, &format!("a number from 1 to {most}"));
    let read: Option<u64> = value.parse().ok();
    read.filter(|n| (1..=most).contains(n)).ok_or_else(expected)
}

fn flag(name: &str, value: &str) -> Outcome<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(wrong(name, value, "true or false")),
    }
}

impl Parameters {
    /// Reads the parameters of a StorageClass.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: a name or a value that is none.
    pub fn read(given: &BTreeMap<String, String>) -> Outcome<Parameters> {
        let mut out = Parameters {
            protocols: vec!["NFSV3", "NFSV4"],
            ..Parameters::default()
        };
        let mut set = |name: &str, value: Value| out.fields.insert(name.to_owned(), value);
        // Pods are seldom root.
        set("unixPermissions", json!("0777"));
        let mut rule = Map::new();
        let (mut claim, mut namespace) = (None, None);
        for (name, value) in given {
            match name.as_str() {
                "pool" => out.pool = Some(value.clone()),
                "protocols" => out.protocols = protocols(value)?,
                "throughput" => {
                    set("throughputMibps", json!(number(name, value, 1 << 40)?));
                }
                "allowedClients" => {
                    rule.insert("allowedClients".to_owned(), json!(value));
                }
                "squash" => {
                    rule.insert("squashMode".to_owned(), json!(squash(value)?));
                }
                "snapshotPolicy" => {
                    set("snapshotPolicy", snapshot_policy(value)?);
                }
                "snapReserve" => {
                    set("snapReserve", json!(number(name, value, 90)?));
                }
                "snapshotDirectory" => {
                    set("snapshotDirectory", json!(flag(name, value)?));
                }
                "unixPermissions" => {
                    let octal = (3..=4).contains(&value.len())
                        && value.bytes().all(|b| (b'0'..=b'7').contains(&b));
                    if !octal {
                        return Err(wrong(name, value, "permission bits, such as 0770"));
                    }
                    set("unixPermissions", json!(value));
                }
                _ => match name.strip_prefix(KUBERNETES) {
                    Some("pvc/name") => claim = Some(value),
                    Some("pvc/namespace") => namespace = Some(value),
                    Some(_) => {}
                    None => return Err(unknown(name)),
                },
            }
        }
        let only_smb = out.protocols == ["SMB"];
        if only_smb && !given.contains_key("unixPermissions") {
            out.fields.remove("unixPermissions");
        }
        if !rule.is_empty() {
            out.fields.insert(
                "exportPolicy".to_owned(),
                policy(rule, &out.protocols, given)?,
            );
        }
        if let Some((claim, of)) = claim.zip(namespace) {
            let text = format!("PersistentVolumeClaim {of}/{claim}");
            out.fields.insert("description".to_owned(), json!(text));
        }
        Ok(out)
    }

    /// Reads the parameters of a VolumeAttributesClass: fields of the volume.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: a name or a value that is none.
    pub fn mutable(given: &BTreeMap<String, String>) -> Outcome<Map<String, Value>> {
        let mut out = Map::new();
        for (name, value) in given {
            match name.as_str() {
                "throughput" => {
                    let mibps = number(name, value, 1 << 40)?;
                    out.insert("throughputMibps".to_owned(), json!(mibps));
                }
                _ => {
                    return Err(Status::invalid(format!(
                        "mutable parameter {name:?} is unknown (known: throughput, in MiB/s)"
                    )));
                }
            }
        }
        Ok(out)
    }
}

fn unknown(name: &str) -> Status {
    const KNOWN: &str = "pool, protocols, throughput, allowedClients, squash, snapshotPolicy, snapReserve, snapshotDirectory, unixPermissions";
    Status::invalid(format!("parameter {name:?} is unknown (known: {KNOWN})"))
}

fn protocols(text: &str) -> Outcome<Vec<&'static str>> {
    let mut out = Vec::new();
    for word in text.split(',').map(str::trim) {
        let more: &[&str] = match word {
            "nfs" => &["NFSV3", "NFSV4"],
            "nfsv3" => &["NFSV3"],
            "nfsv4" => &["NFSV4"],
            "smb" => &["SMB"],
            _ => return Err(wrong("protocols", text, "a list of nfs, nfsv3, nfsv4, smb")),
        };
        for one in more {
            if !out.contains(one) {
                out.push(*one);
            }
        }
    }
    Ok(out)
}

fn squash(text: &str) -> Outcome<&'static str> {
    match text {
        "none" => Ok("NO_ROOT_SQUASH"),
        "root" => Ok("ROOT_SQUASH"),
        "all" => Ok("ALL_SQUASH"),
        _ => Err(wrong("squash", text, "none, root or all")),
    }
}

/// Returns an export policy of one rule.
fn policy(
    mut rule: Map<String, Value>,
    protocols: &[&str],
    given: &BTreeMap<String, String>,
) -> Outcome<Value> {
    if !given.contains_key("allowedClients") {
        return Err(Status::invalid(
            "parameter squash needs allowedClients, the networks that it is for",
        ));
    }
    rule.insert("accessType".to_owned(), json!("READ_WRITE"));
    rule.insert("nfsv3".to_owned(), json!(protocols.contains(&"NFSV3")));
    rule.insert("nfsv4".to_owned(), json!(protocols.contains(&"NFSV4")));
    Ok(json!({"rules": [rule]}))
}

/// Reads `hourly=24,daily=7`: numbers of snapshots that are kept.
fn snapshot_policy(text: &str) -> Outcome<Value> {
    let expected = || {
        wrong(
            "snapshotPolicy",
            text,
            "numbers to keep, such as hourly=24,daily=7,weekly=4,monthly=12",
        )
    };
    let mut out = Map::new();
    out.insert("enabled".to_owned(), json!(true));
    for one in text.split(',').map(str::trim) {
        let (kind, keep) = one.split_once('=').ok_or_else(expected)?;
        let keep: u32 = keep.parse().map_err(|_| expected())?;
        let schedule = match kind {
            "hourly" => json!({"snapshotsToKeep": keep, "minute": 0}),
            "daily" => json!({"snapshotsToKeep": keep, "minute": 10, "hour": 0}),
            "weekly" => json!({"snapshotsToKeep": keep, "minute": 15, "hour": 0, "day": "Sunday"}),
            "monthly" => {
                json!({"snapshotsToKeep": keep, "minute": 20, "hour": 0, "daysOfMonth": "1"})
            }
            _ => return Err(expected()),
        };
        out.insert(format!("{kind}Schedule"), schedule);
    }
    Ok(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    fn make_parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_class_becomes_fields_of_the_volume() {
        let read = Parameters::read(&make_parameters(&[
            ("pool", "fast"),
            ("protocols", "nfsv4"),
            ("throughput", "64"),
            ("allowedClients", "10.0.0.0/8"),
            ("squash", "none"),
            ("snapshotPolicy", "hourly=24, daily=7"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ]))
        .unwrap();
        assert_eq!(read.pool.as_deref(), Some("fast"));
        assert_eq!(
            Value::Object(read.fields),
            json!({
                "description": "PersistentVolumeClaim shop/data",
                "unixPermissions": "0777",
                "throughputMibps": 64,
                "exportPolicy": {"rules": [{
                    "allowedClients": "10.0.0.0/8", "squashMode": "NO_ROOT_SQUASH",
                    "accessType": "READ_WRITE", "nfsv3": false, "nfsv4": true,
                }]},
                "snapshotPolicy": {
                    "enabled": true,
                    "hourlySchedule": {"snapshotsToKeep": 24, "minute": 0},
                    "dailySchedule": {"snapshotsToKeep": 7, "minute": 10, "hour": 0},
                },
            })
        );
        let plain = Parameters::read(&make_parameters(&[])).unwrap();
        assert_eq!(plain.protocols, ["NFSV3", "NFSV4"]);
        let smb = Parameters::read(&make_parameters(&[("protocols", "smb")])).unwrap();
        assert_eq!((smb.protocols, smb.fields.len()), (vec!["SMB"], 0));
    }

    #[test]
    fn what_is_none_is_named() {
        for (name, value) in [
            ("colour", "red"),
            ("protocols", "ftp"),
            ("throughput", "fast"),
            ("throughput", "0"),
            ("squash", "some"),
            ("squash", "none"),
            ("snapshotPolicy", "hourly"),
            ("snapshotPolicy", "yearly=1"),
            ("snapReserve", "91"),
            ("snapshotDirectory", "maybe"),
            ("unixPermissions", "0888"),
        ] {
            let refused = Parameters::read(&make_parameters(&[(name, value)])).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument);
            assert!(refused.message.contains(name), "{}", refused.message);
        }
        let mutable = |name, value| Parameters::mutable(&make_parameters(&[(name, value)]));
        assert_eq!(
            Value::Object(mutable("throughput", "128").unwrap()),
            json!({"throughputMibps": 128})
        );
        assert!(mutable("pool", "x").unwrap_err().message.contains("pool"));
    }
}
