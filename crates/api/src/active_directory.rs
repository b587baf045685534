//! Domains of Active Directory of NetApp Volumes: the public API's resource to and from the model.
//!
//! Settings that the server always has (`aesEncryption`, `ldapSigning`, `encryptDcConnections`) may
//! be said, and change nothing. Fields that only describe the domain (`dns`, `kdcIp`) are kept. A
//! password is never returned.

use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, ResourceBuilder, is_set, required, state_name};
use crate::json::Object;
use crate::schema::netapp as schema;
use weir_control::{ActiveDirectory, ActiveDirectoryChange, NewActiveDirectory, Secret};

/// Refuses fields that this server would store without effect.
fn check(f: &Fields) -> ApiResult<()> {
    let rights = "rights are what files and shares say; leave it out";
    for (field, instead) in [
        (
            "site",
            "the DNS names the domain controllers of this machine's site; leave it out, or name one (kdcHostname)",
        ),
        (
            "nfsUsersWithLdap",
            "it asks no LDAP for users, and users of NFS are served anyway; leave it out",
        ),
        ("backupOperators", rights),
        ("administrators", rights),
        ("securityOperators", rights),
    ] {
        f.refuse(field, is_set, instead)?;
    }
    Ok(())
}

/// Returns a domain on the wire.
pub fn render_directory(a: &ActiveDirectory) -> Object {
    let mut m = ResourceBuilder::from_extra(&a.extra);
    m.set(
        "name",
        format!("{}/activeDirectories/{}", a.name.place, a.name.id),
    )
    .set("createTime", a.created.rfc3339())
    .set("state", state_name(a.state))
    .set("stateDetails", a.state_details.as_str())
    .set("domain", &*a.domain)
    .set("netBiosPrefix", &*a.net_bios_prefix)
    .set("organizationalUnit", &*a.organizational_unit)
    .set("kdcHostname", &*a.kdc_hostname)
    .set("username", &*a.username)
    .set("description", a.description.as_str())
    .labels(&a.labels);
    m.done(&schema::ACTIVE_DIRECTORY)
}

/// Creates a domain to be joined.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new(body: Object) -> ApiResult<NewActiveDirectory> {
    let mut f = Fields::new(body);
    check(&f)?;
    let password = required(f.text("password").value(), "password")?;
    let new = NewActiveDirectory {
        domain: required(f.text("domain").value(), "domain")?,
        net_bios_prefix: required(f.text("netBiosPrefix").value(), "netBiosPrefix")?,
        organizational_unit: f.text("organizationalUnit").value().unwrap_or_default(),
        kdc_hostname: f.text("kdcHostname").value().unwrap_or_default(),
        username: required(f.text("username").value(), "username")?,
        password: Secret::new(&password),
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    };
    match new.extra.get("dns").is_some_and(is_set) {
        true => Ok(new),
        false => Err(ApiError::field("dns", "'dns' is required")),
    }
}

/// Changes to a domain, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn change(changed: Object, current: &Object) -> ApiResult<ActiveDirectoryChange> {
    let mut f = Fields::new(changed);
    check(&f)?;
    for field in ["domain", "netBiosPrefix"] {
        f.fixed(field, current)?;
    }
    Ok(ActiveDirectoryChange {
        organizational_unit: f.text("organizationalUnit").or_default(),
        kdc_hostname: f.text("kdcHostname").or_default(),
        username: f.text("username").kept("username")?,
        // A mask of everything has it, too, where the client has not said it.
        password: f.text("password").value().as_deref().map(Secret::new),
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
    })
}
