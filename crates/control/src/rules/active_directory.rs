//! Rules for joining, changing and leaving Active Directory domains.
//!
//! A server has one computer account and is a member of one domain, so the whole catalog has only
//! one. The properties of the account are changed by joining again, which needs the password of an
//! authorised user: none is stored.

use super::names;
use crate::model::{ActiveDirectory, Pool, Protocol, State, Volume};
use crate::mutation::{ActiveDirectoryChange, NewActiveDirectory};
use crate::name::{LocationName, Name};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use std::sync::Arc;

/// Maximum length of the prefix of a computer account's name: it leaves room for a dash and four
/// digits in a NetBIOS name.
const MAX_PREFIX: usize = 10;
/// Maximum length of a DNS name, a user or a unit, in bytes.
const MAX_NAME: usize = 255;
const MAX_USER: usize = 256;
const MAX_UNIT: usize = 1024;
/// Maximum length of a password in characters; as in Windows.
const MAX_PASSWORD: usize = 127;

fn refuse<T>(field: &'static str, reason: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(Status::InvalidArgument, reason, message).field(field))
}

/// Returns a domain to be joined, or the refusal.
pub fn create(
    view: &View,
    name: &Name,
    new: &NewActiveDirectory,
    id: u64,
    now: Stamp,
) -> Result<ActiveDirectory, Refusal> {
    names::check(&name.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.active_directory(name).is_some() {
        return Err(super::names::taken("Active Directory", &name.id));
    }
    if let Some(other) = view.every_active_directory().next() {
        return Err(Refusal::new(
            Status::FailedPrecondition,
            "ACTIVE_DIRECTORY_EXISTS",
            format!(
                "this server is a member of one domain, {} ({} in {}); delete that first",
                other.domain, other.name.id, other.name.place
            ),
        ));
    }
    let directory = ActiveDirectory {
        id,
        name: name.clone(),
        revision: 1,
        state: State::Creating,
        state_details: String::new(),
        created: now,
        domain: new.domain.as_str().into(),
        net_bios_prefix: new.net_bios_prefix.as_str().into(),
        organizational_unit: new.organizational_unit.as_str().into(),
        kdc_hostname: new.kdc_hostname.as_str().into(),
        username: new.username.as_str().into(),
        host: None,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    };
    check(&directory)?;
    check_password(new.password.text())?;
    Ok(directory)
}

/// Returns the changed domain, and true if it is joined again.
pub fn update(
    directory: &ActiveDirectory,
    change: &ActiveDirectoryChange,
) -> Result<(ActiveDirectory, bool), Refusal> {
    if matches!(
        directory.state,
        State::Creating | State::Deleting | State::Updating
    ) {
        return Err(busy(directory));
    }
    let mut next = directory.clone();
    next.revision += 1;
    for (field, said, now) in [
        (
            "organizationalUnit",
            &change.organizational_unit,
            &mut next.organizational_unit,
        ),
        ("kdcHostname", &change.kdc_hostname, &mut next.kdc_hostname),
        ("username", &change.username, &mut next.username),
    ] {
        let Some(said) = said.as_ref().filter(|said| ***said != **now) else {
            continue;
        };
        if change.password.is_none() {
            let message = format!(
                "with another {field} the server joins {} anew, which takes the user's password: none is kept",
                directory.domain
            );
            return refuse("password", "PASSWORD_NEEDED", message);
        }
        *now = said.as_str().into();
    }
    if let Some(password) = &change.password {
        check_password(password.text())?;
        next.state = State::Updating;
        next.state_details.clear();
    }
    if let Some(description) = &change.description {
        next.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        next.labels.clone_from(labels);
    }
    names::merge(&mut next.extra, change.extra.clone());
    names::check_words(&next.description, &next.labels, &next.extra)?;
    check(&next)?;
    Ok((next, change.password.is_some()))
}

/// Checks that the server may leave.
pub fn delete(view: &View, directory: &ActiveDirectory) -> Result<(), Refusal> {
    if matches!(
        directory.state,
        State::Creating | State::Deleting | State::Updating
    ) {
        return Err(busy(directory));
    }
    let id = &directory.name.id;
    let refers = |pool: &&Arc<Pool>| {
        let of = view.active_directory_of(pool);
        of.is_some_and(|of| of.id == directory.id)
    };
    match view.every_pool().find(refers) {
        None => Ok(()),
        Some(pool) => Err(Refusal::new(
            Status::FailedPrecondition,
            "ACTIVE_DIRECTORY_IN_USE",
            format!(
                "storage pool {} has Active Directory {id}; take it out there first",
                pool.name.id
            ),
        )),
    }
}

fn busy(directory: &ActiveDirectory) -> Refusal {
    Refusal::new(
        Status::Aborted,
        "RESOURCE_BUSY",
        format!(
            "Active Directory {} is {}; try again when it is not",
            directory.name.id,
            directory.state.as_str()
        ),
    )
}

/// Refuses a missing domain of a pool.
pub fn check_pool(view: &View, place: &LocationName, id: Option<&str>) -> Result<(), Refusal> {
    let name = id.map(|id| place.name(id));
    match name.filter(|name| view.active_directory(name).is_none()) {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            Status::NotFound,
            "ACTIVE_DIRECTORY_NOT_FOUND",
            format!("there is no Active Directory {} in {place}", name.id),
        )
        .field("activeDirectory")),
    }
}

/// Refuses an SMB volume in a pool whose domain the server is not a member of: the domain's users
/// could not log on.
pub fn check_volume(view: &View, volume: &Volume) -> Result<(), Refusal> {
    if !volume.protocols.contains(&Protocol::Smb) {
        return Ok(());
    }
    let directory = view.pool_of(volume);
    let directory = directory.and_then(|pool| view.active_directory_of(pool));
    match directory.filter(|directory| directory.host.is_none()) {
        None => Ok(()),
        Some(directory) => Err(Refusal::new(
            Status::FailedPrecondition,
            "ACTIVE_DIRECTORY_NOT_READY",
            format!(
                "the server is no member of {} yet (Active Directory {} is {}), whose users a volume with SMB in this pool is for",
                directory.domain,
                directory.name.id,
                directory.state.as_str()
            ),
        )
        .field("protocols")),
    }
}

fn check(directory: &ActiveDirectory) -> Result<(), Refusal> {
    let is_name = |text: &str| {
        let labels = text.split('.').all(|label| {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            (1..=63).contains(&label.len()) && !label.starts_with('-') && label.chars().all(good)
        });
        text.len() <= MAX_NAME && labels
    };
    let domain = &*directory.domain;
    if !is_name(domain) || !domain.contains('.') {
        let message = format!("{domain:?} is no name of a domain in the DNS");
        return refuse("domain", "DOMAIN_INVALID", message);
    }
    let prefix = &*directory.net_bios_prefix;
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let lettered = prefix.starts_with(|c: char| c.is_ascii_alphabetic());
    if !lettered || prefix.len() > MAX_PREFIX || !prefix.chars().all(good) {
        let message = format!(
            "{prefix:?} is no prefix of a computer's name: a letter, then letters, digits and -, {MAX_PREFIX} in all at most"
        );
        return refuse("netBiosPrefix", "NET_BIOS_PREFIX_INVALID", message);
    }
    let controller = &*directory.kdc_hostname;
    if !controller.is_empty() && !is_name(controller) {
        let message = format!("{controller:?} is no name of a host");
        return refuse("kdcHostname", "HOST_INVALID", message);
    }
    let user = &*directory.username;
    if user.is_empty() || user.len() > MAX_USER || user.chars().any(char::is_control) {
        let message = format!("a user has a name of 1 to {MAX_USER} bytes");
        return refuse("username", "USER_INVALID", message);
    }
    let unit = &*directory.organizational_unit;
    if unit.starts_with('-') || unit.len() > MAX_UNIT || unit.chars().any(char::is_control) {
        let message =
            format!("{unit:?} is no organizational unit, such as OU=Storage,DC=example,DC=com");
        return refuse("organizationalUnit", "ORGANIZATIONAL_UNIT_INVALID", message);
    }
    Ok(())
}

fn check_password(password: &str) -> Result<(), Refusal> {
    match (1..=MAX_PASSWORD).contains(&password.chars().count()) {
        true => Ok(()),
        false => refuse(
            "password",
            "PASSWORD_INVALID",
            format!("a password has 1 to {MAX_PASSWORD} characters"),
        ),
    }
}
