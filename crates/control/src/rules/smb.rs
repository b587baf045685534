//! Shares of volumes for clients of SMB: names and settings.
//!
//! Clients find a share by its name in any case, so that no two names may differ only in case.
//! Settings that every share has anyway (BROWSABLE, CHANGE_NOTIFY, OPLOCKS, SHOW_PREVIOUS_VERSIONS)
//! are accepted, and change nothing.

use crate::backend::ShareSpec;
use crate::model::{SecurityStyle, SmbSetting, Volume};
use crate::refusal::{Refusal, Status};
use crate::view::View;

/// Settings that are not served yet.
const NOT_SERVED: &[SmbSetting] = &[SmbSetting::ShowSnapshot];
/// Mode of the root of a volume of NTFS style, equivalent to its list, which grants everyone
/// everything.
pub const NTFS_MODE: u32 = 0o777;
/// Maximum length of a share's name (MS-SRVS, and Windows' limit).
const MAX_NAME: usize = 80;

fn refuse(field: &'static str, reason: &'static str, message: String) -> Result<(), Refusal> {
    Err(Refusal::new(Status::InvalidArgument, reason, message).field(field))
}

/// Refuses settings that could not be served.
pub fn check(view: &View, volume: &Volume) -> Result<(), Refusal> {
    let smb = &volume.smb;
    let Some(name) = volume.smb_share() else {
        let what = match (smb.settings.first(), smb.style) {
            (Some(setting), _) => ("smbSettings", setting.as_str()),
            (None, Some(SecurityStyle::Ntfs)) => ("securityStyle", "NTFS"),
            _ => return Ok(()),
        };
        let message = format!(
            "{} is {} of a volume with SMB among its protocols, which {} is not",
            what.1, what.0, volume.name.id
        );
        return refuse(what.0, "NOT_AN_SMB_VOLUME", message);
    };
    if let Some(setting) = smb.settings.iter().find(|s| NOT_SERVED.contains(s)) {
        let message = format!(
            "{} is not served by this version; leave it out",
            setting.as_str()
        );
        return refuse("smbSettings", "SMB_SETTING_NOT_OFFERED", message);
    }
    let has = |setting| smb.settings.contains(&setting);
    if has(SmbSetting::Browsable) && has(SmbSetting::NonBrowsable) {
        let message = "a share is BROWSABLE or NON_BROWSABLE, not both".to_owned();
        return refuse("smbSettings", "SMB_SETTINGS_CONTRADICT", message);
    }
    let mode = volume.unix_permissions;
    if smb.style == Some(SecurityStyle::Ntfs) && mode != NTFS_MODE {
        let message = format!(
            "the permissions of an NTFS volume are those that clients of SMB set, and mode {mode:04o} would mean nothing; leave it out"
        );
        return refuse("unixPermissions", "NO_MODE_OF_NTFS", message);
    }
    check_name(name)?;
    let taken = view.volumes.values().find(|other| {
        let share = other.smb_share().filter(|_| other.id != volume.id);
        share.is_some_and(|share| share.eq_ignore_ascii_case(name))
    });
    match taken {
        None => Ok(()),
        Some(other) => Err(Refusal::new(
            Status::AlreadyExists,
            "SHARE_NAME_TAKEN",
            format!(
                "{} has the SMB share {}, and clients do not tell names apart by their case; choose another",
                other.name,
                other.smb_share().unwrap_or(name)
            ),
        )
        .field("shareName")),
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
    let taken = ["ipc$", "admin$"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own));
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(good) && !taken {
        return Ok(());
    }
    let message = format!(
        "{name:?} is no name of an SMB share: letters, digits and -_.$, {MAX_NAME} in all at most"
    );
    refuse("shareName", "SHARE_NAME_INVALID", message)
}

/// Returns the share of the volume; `None` if it has none.
pub fn share(volume: &Volume) -> Option<ShareSpec> {
    let name = volume.smb_share()?;
    let has = |setting| volume.smb.settings.contains(&setting);
    Some(ShareSpec {
        // By convention such a name is not listed.
        browsable: !has(SmbSetting::NonBrowsable) && !name.ends_with('$'),
        access_based: has(SmbSetting::AccessBasedEnumeration),
        encrypted: has(SmbSetting::EncryptData),
        continuous: has(SmbSetting::ContinuouslyAvailable),
        name: name.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;
    use crate::model::Protocol;
    use crate::name::LocationName;
    use crate::timestamp::Stamp;

    #[test]
    fn the_node_shares_what_has_the_protocol() {
        let name = LocationName::new("p", "l").volume("v");
        let mut volume = bootstrap::volume(name, 1, 1, Stamp(0));
        let flags = |s: &ShareSpec| {
            let ShareSpec {
                browsable,
                access_based,
                encrypted,
                continuous,
                ..
            } = s;
            [*browsable, *access_based, *encrypted, *continuous]
        };
        let shared = |volume: &Volume| share(volume).map(|s| (s.name.clone(), flags(&s)));
        assert_eq!(
            shared(&volume),
            Some(("v".to_owned(), [true, false, false, false]))
        );
        volume.smb.settings = vec![SmbSetting::NonBrowsable, SmbSetting::AccessBasedEnumeration];
        assert_eq!(
            shared(&volume),
            Some(("v".to_owned(), [false, true, false, false]))
        );
        volume.smb.settings = vec![SmbSetting::EncryptData];
        assert_eq!(
            shared(&volume),
            Some(("v".to_owned(), [true, false, true, false]))
        );
        volume.smb.settings = vec![SmbSetting::ContinuouslyAvailable];
        assert_eq!(
            shared(&volume),
            Some(("v".to_owned(), [true, false, false, true]))
        );
        volume.smb.settings.clear();
        volume.smb.name = Some("Data$".into());
        assert_eq!(shared(&volume), Some(("Data$".to_owned(), [false; 4])));
        volume
            .protocols
            .retain(|protocol| *protocol != Protocol::Smb);
        assert_eq!(shared(&volume), None);
    }
}
