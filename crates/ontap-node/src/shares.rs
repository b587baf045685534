//! Volumes as shares of SMB, in ONTAP's words.

use weir_control::{Mutation, Protocol, SecurityStyle, SmbSetting, Surface, VolumeChange};
use weir_ontap::cluster::{Failure, Reason, Share, SmbSession};
use weir_relations::model::Path;

use crate::{Answer, AsUser};

impl AsUser {
    /// Shares of volumes that commands may name.
    pub(crate) fn all_shares(&self) -> Vec<Share> {
        let view = self.server.control.view();
        let mut all: Vec<Share> = view
            .every_volume(Surface::Netapp)
            .filter_map(|v| {
                let name = v.smb_share()?.to_string();
                let has = |setting| v.smb.settings.contains(&setting);
                let hidden = has(SmbSetting::NonBrowsable) || name.ends_with('$');
                let properties = [
                    ("oplocks", true),
                    ("browsable", !hidden),
                    ("changenotify", true),
                    ("show-previous-versions", true),
                    (
                        "access-based-enumeration",
                        has(SmbSetting::AccessBasedEnumeration),
                    ),
                    ("encrypt-data", has(SmbSetting::EncryptData)),
                    (
                        "continuously-available",
                        has(SmbSetting::ContinuouslyAvailable),
                    ),
                ];
                let properties = properties.into_iter().filter(|(_, has)| *has);
                Some(Share {
                    volume: Path::local(&v.name.place.project, &v.name.id),
                    name,
                    path: format!("/{}", v.path()),
                    properties: properties.map(|(name, _)| name).collect(),
                    acl: match v.smb.style {
                        Some(SecurityStyle::Ntfs) => "Everyone / Full Control",
                        Some(SecurityStyle::Unix) | None => "UNIX permissions",
                    },
                })
            })
            .collect();
        all.sort_by(|a, b| (&a.volume.vserver, &a.name).cmp(&(&b.volume.vserver, &b.name)));
        all
    }

    /// The sessions of all users.
    pub(crate) fn all_smb_sessions(&self) -> Vec<SmbSession> {
        let Some(smb) = &self.server.smb else {
            return Vec::new();
        };
        let mut all: Vec<SmbSession> = smb
            .sessions()
            .into_iter()
            .map(|session| SmbSession {
                id: session.id,
                user: session.user,
                client: session.client.to_string(),
                dialect: session.dialect.name(),
                signed: session.signed,
                opens: session.opens,
                shares: session.shares,
            })
            .collect();
        all.sort_by_key(|session| session.id);
        all
    }

    /// Makes a volume a share, or ends that.
    pub(crate) fn change_share(&self, volume: &Path, name: Option<String>) -> Answer<()> {
        let volume = self.volume(volume)?;
        let mut protocols = volume.protocols.clone();
        protocols.retain(|protocol| *protocol != Protocol::Smb);
        let change = match name {
            Some(name) => {
                protocols.push(Protocol::Smb);
                VolumeChange {
                    protocols: Some(protocols),
                    smb_name: Some(name),
                    ..VolumeChange::default()
                }
            }
            None if protocols.is_empty() => {
                return Err(Failure::new(
                    Reason::State,
                    "The volume is served over SMB alone; take it offline, or delete it.",
                ));
            }
            None => VolumeChange {
                protocols: Some(protocols),
                smb_name: Some(volume.share_name.to_string()),
                smb_settings: Some(Vec::new()),
                ..VolumeChange::default()
            },
        };
        self.submit(Mutation::UpdateVolume(volume.name.clone(), change))
    }
}
