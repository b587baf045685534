//! An object in a pool of Ceph as the witness: one for each aggregate, which the first question
//! makes.
//!
//! A change is one atomic operation on the object that compares the version before, so of two only
//! one is made. RADOS reports it once all replicas have it. Who has a pool needs no third machine:
//! the cluster's monitors and replicas are on machines of their own.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use weir_mirror::{Register, Side, Swap};
use weir_rados::{Bounds, Cluster, Comparison, Objects, Options, Step};

use super::config::Name;

/// Beginning of an address that names a pool.
const SCHEME: &str = "rados:";
/// Namespace of the objects in the pool.
const NAMESPACE: &str = "weir-witness";
/// Attribute that changes compare.
const VERSION: &str = "version";
/// Greatest length of an object, in bytes.
const LENGTH: usize = 4096;
/// Maximum number of operations in flight. Further ones wait, and give up if the cluster does not
/// answer.
const OPERATIONS: usize = 4;

/// Returns true if a witness's address names a pool.
pub fn is_pool(address: &str) -> bool {
    address.starts_with(SCHEME)
}

/// A pool, as a witness's address names it: `rados:POOL[?conf=FILE&user=NAME&keyring=FILE]`.
#[derive(Debug)]
pub struct PoolAddress {
    pool: String,
    options: Options,
}

impl FromStr for PoolAddress {
    type Err = String;

    fn from_str(address: &str) -> Result<PoolAddress, String> {
        let wrong = || {
            format!(
                "'{address}' names no pool of Ceph: rados:POOL, with ?conf=FILE, user=NAME and keyring=FILE joined by '&'"
            )
        };
        let rest = address.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (pool, query) = rest.split_once('?').unwrap_or((rest, ""));
        if pool.is_empty() || pool.contains('/') {
            return Err(wrong());
        }
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("conf", file)) => options.conf = Some(PathBuf::from(file)),
                Some(("keyring", file)) => options.keyring = Some(PathBuf::from(file)),
                Some(("user", name)) => options.user = Some(name.to_owned()),
                _ => return Err(wrong()),
            }
        }
        Ok(PoolAddress {
            pool: pool.to_owned(),
            options,
        })
    }
}

impl PoolAddress {
    fn connect(&self) -> io::Result<Arc<dyn Objects>> {
        let bounds = Bounds {
            operations: OPERATIONS,
            bytes: OPERATIONS * LENGTH,
        };
        let cluster = Cluster::connect(&self.options)?;
        Ok(Arc::new(cluster.pool(&self.pool, NAMESPACE, bounds)?))
    }
}

/// State of the connection to the cluster.
#[derive(Default)]
enum Connection {
    /// No connection was made yet, or it has failed.
    #[default]
    Missing,
    /// A thread connects.
    Connecting,
    Ready(Arc<dyn Objects>),
}

/// A client of the cluster, connected when the witness is first asked and from then on.
pub struct Client {
    connection: Arc<Mutex<Connection>>,
    /// Bounds what a cluster that does not answer leaves in flight.
    places: Arc<Semaphore>,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            connection: Arc::default(),
            places: Arc::new(Semaphore::new(OPERATIONS)),
        }
    }
}

impl Client {
    /// Reads the register of an aggregate, or changes it to `to`. `first` returns the register to
    /// begin with where there is none.
    ///
    /// # Errors
    /// Those of the cluster. A change may have been made all the same.
    pub async fn swap_register(
        &self,
        address: &str,
        aggregate: &str,
        to: Option<Register>,
        first: impl FnOnce() -> Result<Register>,
    ) -> Result<Swap> {
        let objects = self.objects(address).await?;
        let asked = self.ask_objects(&*objects, aggregate, to, first).await;
        if let Err(error) = &asked
            && error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error)
                == Some(libc::ESHUTDOWN)
        {
            // The cluster has shut this client out: only another one gets answers.
            *self.connection.lock() = Connection::Missing;
        }
        asked
    }

    /// Returns the connection. One that takes long is made all the same, for the next question.
    async fn objects(&self, address: &str) -> Result<Arc<dyn Objects>> {
        let place: PoolAddress = address.parse().map_err(|why: String| anyhow!(why))?;
        let connected = {
            let mut connection = self.connection.lock();
            match &*connection {
                Connection::Ready(objects) => return Ok(Arc::clone(objects)),
                Connection::Connecting => bail!("cannot ask the cluster: not connected yet"),
                Connection::Missing => {}
            }
            let (tell, told) = oneshot::channel();
            let shared = Arc::clone(&self.connection);
            std::thread::Builder::new()
                .name("weir-witness".to_owned())
                .spawn(move || {
                    let made = place.connect();
                    *shared.lock() = match &made {
                        Ok(objects) => Connection::Ready(Arc::clone(objects)),
                        Err(_) => Connection::Missing,
                    };
                    // The question may have been given up meanwhile.
                    let _ = tell.send(made);
                })
                .context("starting the thread that connects to the cluster")?;
            *connection = Connection::Connecting;
            told
        };
        Ok(connected.await.context("connecting to the cluster")??)
    }

    async fn ask_objects(
        &self,
        objects: &dyn Objects,
        aggregate: &str,
        to: Option<Register>,
        first: impl FnOnce() -> Result<Register>,
    ) -> Result<Swap> {
        let object = format!("pair.{aggregate}");
        let gone = || format!("cannot read the register of aggregate {aggregate}: it is gone");
        let known = match self.read(objects, &object).await? {
            Some(known) => known,
            None => {
                let begins = first()?;
                let made = Step::Create { exclusive: true };
                let done = self.operate(objects, &object, made, begins).await;
                match done.map_err(|error| (error.raw_os_error(), error)) {
                    Ok(()) | Err((Some(libc::EEXIST), _)) => {}
                    Err((_, error)) => return Err(error.into()),
                }
                self.read(objects, &object).await?.with_context(gone)?
            }
        };
        let Some(to) = to.filter(|to| known.version.checked_add(1) == Some(to.version)) else {
            return Ok(Swap::Lost(known));
        };
        let before = Step::Compare {
            attribute: VERSION,
            comparison: Comparison::Equal,
            value: known.version.to_be_bytes().to_vec(),
        };
        let done = self.operate(objects, &object, before, to).await;
        match done.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => Ok(Swap::Done(to)),
            Err((Some(libc::ECANCELED), _)) => {
                let now = self.read(objects, &object).await?;
                Ok(Swap::Lost(now.with_context(gone)?))
            }
            Err((_, error)) => Err(error.into()),
        }
    }

    /// Reads a register; `None` if there is no such object.
    async fn read(&self, objects: &dyn Objects, object: &str) -> Result<Option<Register>> {
        let place = Arc::clone(&self.places).acquire_owned().await?;
        let (tell, told) = oneshot::channel();
        let done = move |result| {
            drop(place);
            // The question may have been given up meanwhile.
            let _ = tell.send(result);
        };
        objects.read(object, 0, LENGTH, Box::new(done));
        match told.await? {
            Ok(bytes) => {
                let row: Row = serde_json::from_slice(&bytes)
                    .with_context(|| format!("cannot read the register in object {object}"))?;
                Ok(Some(row.into()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a register after `guard` holds, in one operation.
    async fn operate(
        &self,
        objects: &dyn Objects,
        object: &str,
        guard: Step,
        to: Register,
    ) -> io::Result<()> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let (tell, told) = oneshot::channel();
        let done = move |result| {
            drop(place);
            // The question may have been given up meanwhile.
            let _ = tell.send(result);
        };
        let set = Step::Set {
            attribute: VERSION,
            value: to.version.to_be_bytes().to_vec(),
        };
        let bytes = serde_json::to_vec(&Row::from(to)).map_err(io::Error::other)?;
        let steps = vec![guard, set, Step::Replace(bytes)];
        objects.operate(object, steps, Box::new(done));
        told.await.map_err(io::Error::other)?
    }
}

/// A register as the object has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    version: u64,
    term: u64,
    primary: Name,
    mirrored: bool,
}

impl From<Row> for Register {
    fn from(row: Row) -> Register {
        Register {
            version: row.version,
            term: row.term,
            primary: row.primary.into(),
            mirrored: row.mirrored,
        }
    }
}

impl From<Register> for Row {
    fn from(register: Register) -> Row {
        Row {
            version: register.version,
            term: register.term,
            primary: match register.primary {
                Side::A => Name::A,
                Side::B => Name::B,
            },
            mirrored: register.mirrored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sim::rados::Cluster as Simulated;

    #[test]
    fn addresses_name_a_pool() {
        let place: PoolAddress = "rados:weir?conf=/c&user=client.w&keyring=/k"
            .parse()
            .unwrap();
        assert_eq!(place.pool, "weir");
        assert_eq!(place.options.user.as_deref(), Some("client.w"));
        assert_eq!(place.options.conf, Some("/c".into()));
        assert_eq!(place.options.keyring, Some("/k".into()));
        for wrong in ["rados:", "rados:p/a", "rados:p?x=1", "rados:p?conf", "p"] {
            let said = wrong.parse::<PoolAddress>().unwrap_err();
            assert!(said.contains("rados:POOL"), "{said}");
        }
    }

    #[tokio::test]
    async fn of_two_changes_one_is_made() {
        let cluster = Simulated::new();
        let sides = [cluster.client(1), cluster.client(2)];
        let client = Client::default();
        let none = || bail!("there is no such pair");
        let missing = client.ask_objects(&sides[0], "x", None, none).await;
        assert!(missing.is_err());
        let first = Register::first(Side::A);
        let begins = || Ok(first);
        let read = client.ask_objects(&sides[0], "x", None, begins).await;
        assert_eq!(read.unwrap(), Swap::Lost(first));
        // If another one makes it as well, the first one counts.
        let other = || Ok(Register::new(Side::B));
        let read = client.ask_objects(&sides[1], "x", None, other).await;
        assert_eq!(read.unwrap(), Swap::Lost(first));
        let to = [first.alone(Side::A), first.alone(Side::B)];
        let swap = |side: usize| client.ask_objects(&sides[side], "x", Some(to[side]), none);
        assert_eq!(swap(1).await.unwrap(), Swap::Done(to[1]));
        assert_eq!(swap(0).await.unwrap(), Swap::Lost(to[1]));
        // It is asked again, since the reply to the change was lost.
        assert_eq!(swap(1).await.unwrap(), Swap::Lost(to[1]));
    }

    #[tokio::test]
    async fn a_change_between_the_look_and_the_change_is_seen() {
        let cluster = Simulated::new();
        let (a, b) = (cluster.client(1), cluster.client(2));
        let client = Client::default();
        let first = Register::first(Side::A);
        client
            .ask_objects(&a, "x", None, || Ok(first))
            .await
            .unwrap();
        // The attribute is compared, whatever was read.
        let guard = |version: u64| Step::Compare {
            attribute: VERSION,
            comparison: Comparison::Equal,
            value: version.to_be_bytes().to_vec(),
        };
        let (to_a, to_b) = (first.alone(Side::A), first.alone(Side::B));
        let object = "pair.x";
        client
            .operate(&b, object, guard(first.version), to_b)
            .await
            .unwrap();
        let late = client.operate(&a, object, guard(first.version), to_a).await;
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert_eq!(client.read(&a, object).await.unwrap(), Some(to_b));
    }
}
