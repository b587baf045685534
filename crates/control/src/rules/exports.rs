//! Export policies: converts the client's rules to those that the node enforces.

use crate::backend::{self, Protocols, Squash};
use crate::model::{AccessType, ExportRule, KerberosRule, Protocol, SquashMode, TreeExport};
use crate::name::Surface;
use crate::refusal::{Refusal, Status};
use std::collections::BTreeMap;
use weir_base::limits::api::{MAX_EXPORT_RULES, MAX_RULE_CLIENTS};
use weir_vfs::{Clients, Flavour, Flavours, NOBODY};

/// Refuses rules that could not be enforced.
pub fn check(rules: &[ExportRule]) -> Result<(), Refusal> {
    let refuse = |at: usize, what: String| {
        let message = format!("export rule {}: {what}", at + 1);
        Err(
            Refusal::new(Status::InvalidArgument, "EXPORT_RULE_INVALID", message)
                .field("exportPolicy.rules"),
        )
    };
    if rules.len() > MAX_EXPORT_RULES {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "TOO_MANY_EXPORT_RULES",
            format!("{} export rules; {MAX_EXPORT_RULES} fit", rules.len()),
        ));
    }
    for (at, rule) in rules.iter().enumerate() {
        let mut clients = 0;
        for client in clients_of(rule) {
            clients += 1;
            if let Err(what) = Clients::parse(client) {
                return refuse(at, what);
            }
        }
        match clients {
            0 => return refuse(at, "no clients".to_owned()),
            1..=MAX_RULE_CLIENTS => {}
            _ => return refuse(at, format!("{clients} clients; {MAX_RULE_CLIENTS} fit")),
        }
        if rule.squash == Some(SquashMode::NoRootSquash) && rule.root_access == Some(false) {
            return refuse(
                at,
                "hasRootAccess is false, but squashMode is NO_ROOT_SQUASH".to_owned(),
            );
        }
    }
    Ok(())
}

fn clients_of(rule: &ExportRule) -> impl Iterator<Item = &str> {
    let clients = rule.allowed_clients.split(',').map(str::trim);
    clients.filter(|client| !client.is_empty())
}

/// Returns the protocols of a volume for the node. An instance without any has NFSv3. A volume
/// without any has lost SMB in a rebuild of the catalog.
pub fn spoken(surface: Surface, protocols: &[Protocol]) -> Protocols {
    let unsaid = surface == Surface::Filestore && protocols.is_empty();
    Protocols {
        nfsv3: unsaid || protocols.contains(&Protocol::Nfsv3),
        nfsv4: protocols.contains(&Protocol::Nfsv4),
    }
}

/// Returns the rules for the node to enforce; `None` if the volume has no policy of its own.
pub fn enforced(
    rules: Option<&[ExportRule]>,
    speaks: Protocols,
) -> Option<Vec<backend::ExportRule>> {
    rules.map(|rules| rules.iter().map(|rule| one(rule, speaks)).collect())
}

/// Returns the rules of qtrees for the node to enforce, as [`enforced`].
pub fn enforced_in_trees(
    trees: &BTreeMap<u32, TreeExport>,
    speaks: Protocols,
) -> Vec<(u32, Option<Vec<backend::ExportRule>>)> {
    let trees = trees.iter();
    trees
        .map(|(tree, own)| (*tree, enforced(own.rules.as_deref(), speaks)))
        .collect()
}

/// Returns the flavours that a rule admits, and those that permit changes. `accessType` applies to
/// AUTH_SYS; each kind of Kerberos has two switches of its own. A rule with such a switch and
/// without an access type applies to Kerberos only.
fn flavours(rule: &ExportRule) -> (Flavours, Flavours) {
    let kind = |rule: KerberosRule| match rule {
        rule if rule.read_write == Some(true) => AccessType::ReadWrite,
        rule if rule.read_only == Some(true) => AccessType::ReadOnly,
        _ => AccessType::ReadNone,
    };
    let kinds = [
        (
            Flavours::from_flavour(Flavour::Krb5),
            kind(rule.kerberos.krb5),
        ),
        (
            Flavours::from_flavour(Flavour::Krb5Integrity),
            kind(rule.kerberos.krb5i),
        ),
        (
            Flavours::from_flavour(Flavour::Krb5Privacy),
            kind(rule.kerberos.krb5p),
        ),
    ];
    let default = match kinds
        .iter()
        .any(|(_, access)| *access != AccessType::ReadNone)
    {
        true => AccessType::ReadNone,
        false => AccessType::ReadWrite,
    };
    let sys = (Flavours::SYS, rule.access.unwrap_or(default));
    let all = || kinds.into_iter().chain([sys]);
    let of = |wanted: fn(AccessType) -> bool| {
        let those = all().filter(|(_, access)| wanted(*access));
        those.fold(Flavours::NONE, |set, (flavours, _)| set.or(flavours))
    };
    (
        of(|access| access != AccessType::ReadNone),
        of(|access| access == AccessType::ReadWrite),
    )
}

fn one(rule: &ExportRule, speaks: Protocols) -> backend::ExportRule {
    // A rule without protocols applies to all protocols of the volume.
    let all = rule.nfsv3.is_none() && rule.nfsv4.is_none();
    let squash = match (rule.squash, rule.root_access) {
        (Some(SquashMode::AllSquash), _) => Squash::All,
        (Some(SquashMode::RootSquash), _) | (_, Some(false)) => Squash::Root,
        _ => Squash::None,
    };
    let (flavours, writers) = flavours(rule);
    backend::ExportRule {
        clients: clients_of(rule).map(str::to_owned).collect(),
        flavours,
        writers,
        protocols: Protocols {
            nfsv3: speaks.nfsv3 && (all || rule.nfsv3 == Some(true)),
            nfsv4: speaks.nfsv4 && (all || rule.nfsv4 == Some(true)),
        },
        squash,
        anon_uid: rule.anon_uid.unwrap_or(NOBODY),
        anon_gid: rule.anon_gid.unwrap_or(NOBODY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KerberosRules;

    fn rule(clients: &str) -> ExportRule {
        ExportRule {
            allowed_clients: clients.to_owned(),
            ..ExportRule::default()
        }
    }

    #[test]
    fn malformed_clients_are_refused() {
        for good in [
            "10.0.0.0/8",
            "*",
            "10.1.2.3, fd00::/8,*.example.com",
            "host7",
        ] {
            assert_eq!(check(&[rule(good)]), Ok(()), "{good}");
        }
        for bad in [
            "",
            " , ",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "a b",
            "10.0.0.0/8/8",
            "*.",
            "*.*",
            "0x7f000002",
            "127.1",
            "2130706433",
            "0177.0.0.1",
        ] {
            let refusal = check(&[rule("*"), rule(bad)]).unwrap_err();
            assert_eq!(refusal.reason, "EXPORT_RULE_INVALID", "{bad}");
            assert!(refusal.message.starts_with("export rule 2:"), "{refusal}");
        }
        assert!(check(&vec![rule("*"); 65]).is_err());
        assert!(check(&[rule(&"10.0.0.1,".repeat(257))]).is_err());
        let contradiction = ExportRule {
            squash: Some(SquashMode::NoRootSquash),
            root_access: Some(false),
            ..rule("*")
        };
        assert!(check(&[contradiction]).is_err());
    }

    #[test]
    fn the_node_gets_what_the_client_meant() {
        let netapp = |protocols: &[Protocol]| spoken(Surface::Netapp, protocols);
        let both = netapp(&[Protocol::Nfsv3, Protocol::Nfsv4]);
        assert_eq!(enforced(None, both), None, "the node's own default");
        assert_eq!(enforced(Some(&[]), both), Some(Vec::new()), "nobody");
        let rules = [
            ExportRule {
                access: Some(AccessType::ReadOnly),
                nfsv3: Some(true),
                root_access: Some(false),
                anon_uid: Some(7),
                ..rule("10.0.0.0/8, 10.1.0.1")
            },
            ExportRule {
                access: Some(AccessType::ReadNone),
                squash: Some(SquashMode::AllSquash),
                ..rule("*")
            },
        ];
        let [first, second] = &enforced(Some(&rules), both).unwrap()[..] else {
            panic!("two rules");
        };
        assert_eq!(first.clients, ["10.0.0.0/8", "10.1.0.1"]);
        assert_eq!(
            (first.flavours, first.writers),
            (Flavours::SYS, Flavours::NONE)
        );
        assert!(first.protocols.nfsv3 && !first.protocols.nfsv4);
        assert_eq!((first.squash, first.anon_uid), (Squash::Root, 7));
        assert_eq!(
            (second.flavours, second.squash),
            (Flavours::NONE, Squash::All)
        );
        assert!(second.protocols.nfsv3 && second.protocols.nfsv4);
        let v3 = enforced(Some(&rules), netapp(&[Protocol::Nfsv3])).unwrap();
        assert!(v3.iter().all(|rule| !rule.protocols.nfsv4));
        assert!(spoken(Surface::Filestore, &[]).nfsv3);
        // A volume that was served over SMB only is not served over NFS after a rebuild.
        assert!(!netapp(&[]).nfsv3);
    }

    #[test]
    fn a_rule_for_kerberos_is_for_nothing_else() {
        let (on, off) = (Some(true), Some(false));
        let switches = |read_only, read_write| KerberosRule {
            read_only,
            read_write,
        };
        let none = KerberosRule::default();
        let of = |access, [krb5, krb5i, krb5p]: [KerberosRule; 3]| {
            flavours(&ExportRule {
                access,
                kerberos: KerberosRules { krb5, krb5i, krb5p },
                ..rule("*")
            })
        };
        let krb5 = Flavours::from_flavour(Flavour::Krb5);
        let krb5i = Flavours::from_flavour(Flavour::Krb5Integrity);
        let krb5p = Flavours::from_flavour(Flavour::Krb5Privacy);
        let (sys, nothing) = (Flavours::SYS, Flavours::NONE);
        assert_eq!(of(None, [none; 3]), (sys, sys));
        assert_eq!(of(None, [switches(off, off); 3]), (sys, sys));
        // Kerberos only.
        assert_eq!(of(None, [switches(on, None), none, none]), (krb5, nothing));
        let mixed = [switches(on, off), switches(off, on), switches(on, on)];
        let (all, two) = (Flavours::KRB5, krb5i.or(krb5p));
        assert_eq!(of(None, mixed), (all, two));
        assert_eq!(of(Some(AccessType::ReadNone), mixed), (all, two));
        // Both.
        let private = [none, none, switches(None, on)];
        let read = of(Some(AccessType::ReadOnly), private);
        assert_eq!(read, (sys.or(krb5p), krb5p));
        let write = of(Some(AccessType::ReadWrite), private);
        assert_eq!(write, (sys.or(krb5p), sys.or(krb5p)));
    }
}
