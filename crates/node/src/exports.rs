//! `--export-options`: from the words of the command line to the rules of an export.

use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail};
use weir_vfs::{Clients, Flavour, Flavours, Rule, Squash, Transport};

/// Reads a list such as `rw,root_squash,clients=10.1.0.0/16`. Without `clients`, everyone.
pub fn rules(options: &[String]) -> Result<Vec<Rule>> {
    let mut rule = Rule::open(Squash::None);
    let mut clients = Vec::new();
    let mut read_only = false;
    for option in options
        .iter()
        .map(|option| option.trim())
        .filter(|option| !option.is_empty())
    {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value) {
            ("rw", "") => read_only = false,
            ("ro", "") => read_only = true,
            ("sec", list) => rule.flavours = flavours(list)?,
            ("xprtsec", list) => rule.transport = transport(list)?,
            ("no_root_squash", "") => rule.squash = Squash::None,
            ("root_squash", "") => rule.squash = Squash::Root,
            ("all_squash", "") => rule.squash = Squash::All,
            ("anonuid", id) => rule.anon_uid = id.parse().context("anonuid takes a number")?,
            ("anongid", id) => rule.anon_gid = id.parse().context("anongid takes a number")?,
            ("clients", net) => {
                clients.push(Clients::parse(net).map_err(|why| anyhow!("clients={why}"))?)
            }
            _ => bail!("export option '{option}' is not known"),
        }
    }
    rule.writers = match read_only {
        true => Flavours::NONE,
        false => rule.flavours,
    };
    if clients.is_empty() {
        clients.push(Clients::Any);
    }
    Ok(clients
        .into_iter()
        .map(|clients| Rule {
            clients,
            ..rule.clone()
        })
        .collect())
}

/// Reads flavours with colons between, as exports(5) has them.
fn flavours(list: &str) -> Result<Flavours> {
    let named = list.split(':').map(|name| match name {
        "sys" => Ok(Flavours::SYS),
        "krb5" => Ok(Flavours::from_flavour(Flavour::Krb5)),
        "krb5i" => Ok(Flavours::from_flavour(Flavour::Krb5Integrity)),
        "krb5p" => Ok(Flavours::from_flavour(Flavour::Krb5Privacy)),
        _ => bail!("sec takes sys, krb5, krb5i and krb5p with colons between, not '{name}'"),
    });
    let named: Vec<Flavours> = named.collect::<Result<_>>()?;
    let all = named.into_iter().reduce(Flavours::or);
    all.context("sec takes at least one flavour")
}

/// Parses the permitted protections of connections, with colons between, as in exports(5). Returns
/// the least of them.
fn transport(list: &str) -> Result<Transport> {
    let named = list.split(':').map(|name| match name {
        "none" => Ok(Transport::Clear),
        "tls" => Ok(Transport::Tls),
        "mtls" => Ok(Transport::MutualTls),
        _ => bail!("xprtsec takes none, tls and mtls with colons between, not '{name}'"),
    });
    let named: Vec<Transport> = named.collect::<Result<_>>()?;
    named
        .into_iter()
        .min()
        .context("xprtsec takes at least one")
}

/// Why an export of these rules on `listen` deserves a second thought, if it does.
pub fn caution(rules: &[Rule], listen: IpAddr) -> Option<&'static str> {
    let open = rules.iter().any(|rule| {
        rule.clients == Clients::Any
            && rule.writers.contains(Flavour::Sys)
            && rule.squash == Squash::None
    });
    (open && !listen.is_loopback()).then_some(
        "everyone who reaches this address may act as root on the volume; \
         --export-options takes clients=ADDR/BITS and root_squash",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Rule>> {
        let words: Vec<String> = text.split(',').map(str::to_owned).collect();
        rules(&words)
    }

    #[test]
    fn options_become_rules() {
        assert_eq!(
            read("rw,no_root_squash").unwrap(),
            [Rule::open(Squash::None)]
        );
        let two = read("ro,root_squash,anonuid=7,clients=10.0.0.0/8,clients=::1").unwrap();
        assert_eq!(two.len(), 2);
        assert!(
            two.iter().all(|r| r.writers == Flavours::NONE
                && r.squash == Squash::Root
                && r.anon_uid == 7)
        );
        let shown: Vec<String> = two.iter().map(|r| r.clients.to_string()).collect();
        assert_eq!(shown, ["10.0.0.0/8", "::1"]);
        assert!(read("rw,clients=*.example.com,clients=build7").is_ok());
        let secure = read("sec=krb5i:krb5p").unwrap();
        assert_eq!(secure[0].flavours, Flavours::KRB5_INTEGRITY);
        let any = read("rw,sec=sys:krb5:krb5i:krb5p").unwrap();
        assert_eq!(any[0].flavours, Flavours::SYS.or(Flavours::KRB5));
        for (text, least) in [
            ("rw", Transport::Clear),
            ("xprtsec=none:tls:mtls", Transport::Clear),
            ("xprtsec=mtls:tls", Transport::Tls),
            ("xprtsec=mtls", Transport::MutualTls),
        ] {
            assert_eq!(read(text).unwrap()[0].transport, least, "{text}");
        }
        for bad in [
            "xprtsec=",
            "xprtsec=ssl",
            "rx",
            "rw=1",
            "anonuid=x",
            "sec=",
            "sec=krb4",
            "clients=",
            "clients=10.0.0.0/33",
            "clients=10.0.*",
            "clients=*.",
            "clients=0x7f000002",
            "sec=",
            "sec=krb",
            "sec=sys:",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_open_export_on_a_network_is_worth_a_warning() {
        let any = "0.0.0.0".parse().unwrap();
        assert!(caution(&read("rw").unwrap(), any).is_some());
        assert!(caution(&read("rw").unwrap(), "127.0.0.1".parse().unwrap()).is_none());
        assert!(caution(&read("rw,root_squash").unwrap(), any).is_none());
        assert!(caution(&read("rw,sec=krb5").unwrap(), any).is_none());
        assert!(caution(&read("rw,clients=10.0.0.0/8").unwrap(), any).is_none());
    }
}
