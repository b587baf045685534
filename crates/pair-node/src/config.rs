//! Two files of the data folder about its pair: the configuration that users have given, and the
//! state that this side has recorded.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_base::small_file;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weir_mirror::{Register, Side};
use weir_volume::StreamPosition;

use super::address::Address;

const CONFIG: &str = "pair.json";
const STATE: &str = "pair-state.json";

/// A witness, and the certificate that it shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WitnessAt {
    /// `HOST:PORT`, a database as `postgres://…`, or a pool of Ceph as `rados:POOL`.
    pub address: String,
    /// SHA-256 of its certificate; empty of a database and of a pool.
    #[serde(default)]
    pub fingerprint: String,
}

/// Point at which the standby acknowledges a change, and the primary reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// When it is in its log.
    #[default]
    Durable,
    /// When it has it in memory: what was reported outlives either machine, not both at once.
    Memory,
}

impl Mode {
    fn is_default(&self) -> bool {
        *self == Mode::default()
    }
}

/// Configuration of a pair, as users have given it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `a` or `b`.
    pub side: Name,
    /// Address at which side A listens for its partner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Address at which side B reaches its partner, `HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner_address: Option<String>,
    /// SHA-256 of the partner's certificate; `None` until a user has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
    /// The witness that decides which node serves when they have lost each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<WitnessAt>,
    /// Without a witness: the side that goes on alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<Name>,
    /// Program that is run with `add` when this node begins to serve and with `remove` when it
    /// ceases to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_hook: Option<PathBuf>,
    /// Addresses that this node holds while it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Point at which a change is acknowledged. Both sides have to be configured alike.
    #[serde(default, skip_serializing_if = "Mode::is_default")]
    pub mode: Mode,
}

/// A side, as the files name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// The one that made the pair, and that the other connects to.
    A,
    /// The other.
    B,
}

impl From<Name> for Side {
    fn from(name: Name) -> Side {
        match name {
            Name::A => Side::A,
            Name::B => Side::B,
        }
    }
}

impl From<Side> for Name {
    fn from(side: Side) -> Name {
        match side {
            Side::A => Name::A,
            Side::B => Name::B,
        }
    }
}

impl Config {
    /// Returns true if there is no witness, and this side has the last word.
    pub fn keeps_register(&self) -> bool {
        self.witness.is_none() && self.preferred == Some(self.side)
    }

    /// Reads the configuration of a data folder; `None` if the folder is not one of a pair.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn read(folder: &Path) -> Result<Option<Config>> {
        json(folder, CONFIG)
    }

    /// Writes the configuration; it is durable on return.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        small_file::replace(folder, CONFIG, &text).with_context(|| CONFIG.to_owned())
    }

    /// Removes both files: the folder is no pair's any more.
    ///
    /// # Errors
    /// The file system's.
    pub fn delete(folder: &Path) -> Result<()> {
        // Without the first the second is of no account.
        for name in [CONFIG, STATE] {
            match std::fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| name.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn json<T: for<'de> Deserialize<'de>>(folder: &Path, name: &str) -> Result<Option<T>> {
    let path = folder.join(name);
    let place = || path.display().to_string();
    let Some(bytes) = small_file::read(&path).with_context(place)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes).map(Some).with_context(place)
}

/// State of the pair, as this side has recorded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u64,
    term: u64,
    primary: Name,
    mirrored: bool,
    /// True if this side has served clients since it was last exactly at its position.
    pub open: bool,
    /// Time since which it has served alone, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<i64>,
    /// True if its log was lost, and with it changes that it had acknowledged and reported while
    /// both were in sync.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacking: bool,
}

impl State {
    /// Creates the state for a register.
    pub fn new(register: Register, open: bool) -> State {
        State {
            version: register.version,
            term: register.term,
            primary: register.primary.into(),
            mirrored: register.mirrored,
            open,
            behind_since: None,
            lacking: false,
        }
    }

    /// Returns the register.
    pub fn register(self) -> Register {
        Register {
            version: self.version,
            term: self.term,
            primary: self.primary.into(),
            mirrored: self.mirrored,
        }
    }

    /// Reads the state of a data folder; a new pair begins with the first register.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn read(folder: &Path) -> Result<State> {
        let state = json(folder, STATE)?;
        Ok(state.unwrap_or_else(|| State::new(Register::first(Side::A), false)))
    }

    /// Writes the state; it is durable on return.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        small_file::replace(folder, STATE, &text).with_context(|| STATE.to_owned())
    }
}

/// Positions from which a copy can resume the primary's stream of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// True if the aggregate had never been changed when the stream began.
    pub fresh: bool,
    /// Position just before the stream's beginning; a copy exactly there resumes at the beginning.
    pub before: Option<StreamPosition>,
    /// Terms in which this process has answered.
    pub terms: Vec<u64>,
}

impl Lineage {
    /// Returns the sequence number after which a copy at `at` resumes; `None` if it lacks changes
    /// that the stream does not hold.
    pub fn resume(
        &self,
        at: StreamPosition,
        copy: weir_mirror::wire::CopyState,
        acknowledged: u64,
        last: u64,
    ) -> Option<u64> {
        use weir_mirror::wire::CopyState;
        let from = match copy {
            CopyState::Fresh if self.fresh => 0,
            CopyState::Exact if self.before == Some(at) => 0,
            CopyState::Exact if self.terms.contains(&at.term) => at.sequence,
            _ => return None,
        };
        (acknowledged..=last).contains(&from).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_mirror::wire::CopyState;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Config::read(folder.path()).unwrap(), None);
        let config = Config {
            side: Name::B,
            listen: None,
            partner_address: Some("host:1".into()),
            partner: Some("ab".into()),
            witness: Some(WitnessAt {
                address: "w:2".into(),
                fingerprint: "cd".into(),
            }),
            preferred: None,
            address_hook: Some("/hook".into()),
            addresses: vec!["10.0.0.9/24@eth0".parse().unwrap()],
            mode: Mode::Memory,
        };
        config.write(folder.path()).unwrap();
        assert_eq!(Config::read(folder.path()).unwrap(), Some(config));
        let first = State::read(folder.path()).unwrap();
        assert_eq!(first.register(), Register::first(Side::A));
        let state = State::new(first.register().alone(Side::B), true);
        state.write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), state);
        assert_eq!(state.register(), first.register().alone(Side::B));
        Config::delete(folder.path()).unwrap();
        assert_eq!(Config::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_copy_goes_on_only_where_nothing_is_missing() {
        let at = |term, sequence| StreamPosition { term, sequence };
        let lineage = Lineage {
            fresh: true,
            before: Some(at(3, 9)),
            terms: vec![4, 6],
        };
        let resume = |position, copy| lineage.resume(position, copy, 5, 20);
        assert_eq!(lineage.resume(at(0, 0), CopyState::Fresh, 0, 20), Some(0));
        assert_eq!(
            resume(at(0, 0), CopyState::Fresh),
            None,
            "acknowledged, so dropped"
        );
        assert_eq!(lineage.resume(at(3, 9), CopyState::Exact, 0, 20), Some(0));
        assert_eq!(lineage.resume(at(3, 8), CopyState::Exact, 0, 20), None);
        assert_eq!(lineage.resume(at(3, 9), CopyState::Open, 0, 20), None);
        assert_eq!(resume(at(4, 7), CopyState::Exact), Some(7));
        assert_eq!(resume(at(6, 20), CopyState::Exact), Some(20));
        assert_eq!(resume(at(6, 21), CopyState::Exact), None);
        assert_eq!(resume(at(5, 7), CopyState::Exact), None);
        assert_eq!(resume(at(6, 7), CopyState::Open), None);
        let old = Lineage {
            fresh: false,
            ..lineage.clone()
        };
        assert_eq!(old.resume(at(0, 0), CopyState::Fresh, 0, 20), None);
    }
}
