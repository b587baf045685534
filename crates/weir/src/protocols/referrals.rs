//! `--nfs4-referral`: from the words of the command line to where clients of NFSv4 are sent.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context, Result, anyhow, bail, ensure};
use weir_base::limits::MAX_MOUNT_PATH;
use weir_base::limits::protocol::{MAX_LOCATIONS, MAX_REFERRALS};
use weir_nfs::v4::{Location, Referral};

/// Default port of NFSv4 (RFC 8881 §2.9.3).
const PORT: u16 = 2049;
/// Longest name of a host (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// Reads words such as `/b=server2:/export/b` and `/c=10.0.0.7:3049:/c,[fd00::7]:/c`.
pub fn read(words: &[String]) -> Result<Vec<Referral>> {
    ensure!(
        words.len() <= MAX_REFERRALS,
        "--nfs4-referral: {MAX_REFERRALS} paths at most"
    );
    let mut referrals: Vec<Referral> = Vec::new();
    for word in words {
        let referral = one(word).with_context(|| format!("--nfs4-referral {word}"))?;
        let path = format!("{}/", referral.path);
        let other = referrals.iter().find(|other| {
            let other = format!("{}/", other.path);
            path.starts_with(&other) || other.starts_with(&path)
        });
        if let Some(other) = other {
            bail!(
                "--nfs4-referral {word}: {} is another one's path",
                other.path
            );
        }
        referrals.push(referral);
    }
    Ok(referrals)
}

fn one(word: &str) -> Result<Referral> {
    let (at, locations) = word
        .split_once('=')
        .context("PATH=HOST:/PATH is expected")?;
    let locations: Vec<Location> = locations.split(',').map(location).collect::<Result<_>>()?;
    ensure!(
        locations.len() <= MAX_LOCATIONS,
        "{MAX_LOCATIONS} locations at most"
    );
    let path = path(at)?;
    ensure!(path != "/", "the root refers nobody");
    Ok(Referral { path, locations })
}

fn location(text: &str) -> Result<Location> {
    let expected = || anyhow!("'{text}' is not HOST:/PATH or ADDRESS:PORT:/PATH");
    let (server, at) = text.split_once(":/").ok_or_else(expected)?;
    let path = path(&format!("/{at}"))?;
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or_else(expected)?;
            let address: Ipv6Addr = address.parse().map_err(|_| expected())?;
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or_else(expected)?),
            };
            (Ok(IpAddr::V6(address)), port)
        }
        None => {
            let (host, port) = match server.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (server, None),
            };
            (host.parse::<IpAddr>().map_err(|_| host), port)
        }
    };
    let port: u16 = match port {
        Some(port) => port.parse().map_err(|_| expected())?,
        None => PORT,
    };
    let server = match host {
        Ok(address) => return Ok(Location::from_address((address, port).into(), &path)),
        Err(host) => {
            let named = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            let good = !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(named);
            ensure!(good, "'{host}' is no name of a host");
            ensure!(
                port == PORT,
                "'{text}': NFSv4 names a port only behind an address, not behind a host's name"
            );
            host.to_owned()
        }
    };
    Ok(Location { server, path })
}

/// An absolute path, without a slash at its end.
fn path(text: &str) -> Result<String> {
    let rest = text
        .strip_prefix('/')
        .filter(|_| text.len() <= MAX_MOUNT_PATH);
    let rest = rest.with_context(|| format!("'{text}' is no absolute path"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let bad = |name: &str| matches!(name, "" | "." | "..") || name.contains('\0');
    ensure!(
        rest.is_empty() || !rest.split('/').any(bad),
        "'{text}' is no valid path: empty name, ., .. or NUL"
    );
    Ok(format!("/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Result<Vec<Referral>> {
        read(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    fn places(word: &str) -> Vec<(String, String)> {
        let locations = words(&[word]).unwrap().remove(0).locations;
        locations.into_iter().map(|l| (l.server, l.path)).collect()
    }

    #[test]
    fn words_become_places() {
        let to = |server: &str, path: &str| (server.to_owned(), path.to_owned());
        assert_eq!(places("/b=server2:/export/b"), [to("server2", "/export/b")]);
        assert_eq!(places("/b/c/=server2:2049:/"), [to("server2", "/")]);
        assert_eq!(
            places("/b=10.0.0.7:3049:/c,10.0.0.8:/c/,[fd00::7]:/c,[fd00::8]:3049:/d"),
            [
                to("10.0.0.7.11.233", "/c"),
                to("10.0.0.8", "/c"),
                to("fd00::7", "/c"),
                to("fd00::8.11.233", "/d"),
            ]
        );
        assert_eq!(words(&["/b/c/=h:/"]).unwrap()[0].path, "/b/c");
        assert_eq!(words(&["/b=h:/", "/bc=h:/", "/c/b=h:/"]).unwrap().len(), 3);
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for bad in [
            "",
            "/b",
            "/b=",
            "b=h:/c",
            "/=h:/c",
            "/b/../c=h:/c",
            "/b//c=h:/c",
            "/b=h",
            "/b=h:c",
            "/b=:/c",
            "/b=h:/c,",
            "/b=h:3049:/c",
            "/b=10.0.0.7:port:/c",
            "/b=fd00::7:/c",
            "/b=[fd00::7:/c",
            "/b=[fd00::7]3049:/c",
            "/b=[h]:/c",
            "/b=h i:/c",
            "/b=h:/./c",
            "/b=h:99999:/c",
        ] {
            assert!(words(&[bad]).is_err(), "{bad}");
        }
        for both in [
            ["/b=h:/", "/b=i:/"],
            ["/b=h:/", "/b/c=h:/"],
            ["/b/c=h:/", "/b=h:/"],
        ] {
            assert!(words(&both).is_err(), "{both:?}");
        }
    }
}
