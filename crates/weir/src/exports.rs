//! `--export-options`: from the words of the command line to the rules of an export.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use weir_vfs::{Clients, Rule, Squash};

/// Reads a list such as `rw,root_squash,clients=10.1.0.0/16`. Without `clients`, everyone.
pub fn rules(options: &[String]) -> Result<Vec<Rule>> {
    let mut rule = Rule::open(Squash::None);
    let mut clients = Vec::new();
    for option in options
        .iter()
        .map(|option| option.trim())
        .filter(|option| !option.is_empty())
    {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value) {
            ("rw", "") => rule.read_only = false,
            ("ro", "") => rule.read_only = true,
            ("no_root_squash", "") => rule.squash = Squash::None,
            ("root_squash", "") => rule.squash = Squash::Root,
            ("all_squash", "") => rule.squash = Squash::All,
            ("anonuid", id) => rule.anon_uid = id.parse().context("anonuid takes a number")?,
            ("anongid", id) => rule.anon_gid = id.parse().context("anongid takes a number")?,
            ("clients", net) => clients.push(network(net)?),
            _ => bail!("export option '{option}' is not known"),
        }
    }
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

/// An address, or a network as ADDR/BITS.
fn network(text: &str) -> Result<Clients> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().with_context(|| format!("clients={text}"))?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(bits) => bits.parse().with_context(|| format!("clients={text}"))?,
        None => all,
    };
    ensure!(prefix <= all, "clients={text}: an address has {all} bits");
    Ok(Clients::Net { address, prefix })
}

/// Why an export of these rules on `listen` deserves a second thought, if it does.
pub fn caution(rules: &[Rule], listen: IpAddr) -> Option<&'static str> {
    let open = rules
        .iter()
        .any(|rule| rule.clients == Clients::Any && !rule.read_only && rule.squash == Squash::None);
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
            two.iter()
                .all(|r| r.read_only && r.squash == Squash::Root && r.anon_uid == 7)
        );
        assert!(two[0].clients.contains("10.9.8.7".parse().unwrap()));
        assert!(!two[0].clients.contains("11.9.8.7".parse().unwrap()));
        assert!(two[1].clients.contains("::1".parse().unwrap()));
        for bad in [
            "rx",
            "rw=1",
            "anonuid=x",
            "clients=",
            "clients=10.0.0.0/33",
            "clients=host",
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
        assert!(caution(&read("rw,clients=10.0.0.0/8").unwrap(), any).is_none());
    }
}
