//! The cluster as the API of a node sees it: its aggregates, how to reach their servers, tokens.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_api::fleet::{AggregateSpace, Members, Reservation, Stream, Way};
use weir_api::live::Condition;
use weir_base::{Clock, SystemRng};
use weir_control::{Role, Stamp, TokenHash, TokenRecord, new_secret};
use weir_node::control_socket;
use weir_peer_link::identity::Identity;

use crate::conditions::Fact;
use crate::config::Config;
use crate::daemon::ClusterState;
use crate::database::Database;
use crate::metrics;
use crate::placement::roomiest;
use crate::rows::{Aggregate, NodeApi, Token, View};
use crate::servers::data_folder;
use crate::show::ClusterStatus;

/// The cluster, as a node knows it.
pub struct Gateway {
    config: Config,
    folder: PathBuf,
    known: Arc<Mutex<ClusterState>>,
    clock: Arc<dyn Clock>,
    /// Certificate with which this node connects to others.
    identity: Identity,
    /// Tables for tokens, which are changed one after the other.
    database: tokio::sync::Mutex<Database>,
}

impl Gateway {
    /// Creates the view of a node whose folder and knowledge are given.
    ///
    /// # Errors
    /// The certificate cannot be read or created; the address of the tables is none.
    pub fn new(
        config: &Config,
        folder: &Path,
        known: Arc<Mutex<ClusterState>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Gateway> {
        Ok(Gateway {
            identity: Identity::open(folder).context("opening the certificate of this node")?,
            database: tokio::sync::Mutex::new(Database::new(&config.database)?),
            config: config.clone(),
            folder: folder.to_owned(),
            known,
            clock,
        })
    }

    fn view(&self) -> View {
        let known = self.known.lock();
        known.view_at(self.clock.monotonic(), &self.config.name)
    }

    /// Returns the reason why nothing can be changed in the tables now.
    fn outage(&self) -> Option<String> {
        let known = self.known.lock();
        let (since, why) = known.outage.as_ref()?;
        let seconds = self.clock.monotonic().saturating_sub(*since).as_secs();
        Some(format!(
            "PostgreSQL has not answered for {seconds} s: {why}"
        ))
    }

    /// Returns the data folder of an aggregate's server on this node.
    fn data(&self, aggregate: &str) -> PathBuf {
        let known = self.known.lock();
        let row = known.view.aggregates.get(aggregate);
        let sides = row.map(Aggregate::sides).unwrap_or_default();
        let side = sides.iter().find(|(node, _)| *node == self.config.name);
        match side {
            Some((_, folder)) => (*folder).to_owned(),
            None => data_folder(&self.folder, aggregate),
        }
    }

    async fn reach(&self, aggregate: &str, way: &Way) -> io::Result<Box<dyn Stream>> {
        let node = match way {
            Way::Here => {
                let stream = control_socket::connect_in(&self.data(aggregate), control_socket::API);
                let stream = stream.map_err(|e| match e.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        io::Error::other("its server does not serve here")
                    }
                    _ => e,
                })?;
                stream.set_nonblocking(true)?;
                return Ok(Box::new(UnixStream::from_std(stream)?));
            }
            Way::Node(node) => node,
        };
        let api = self.view().nodes.remove(node).and_then(|node| node.api);
        let Some(NodeApi {
            address,
            certificate,
        }) = api
        else {
            return Err(io::Error::other("it does not answer the API (--api)"));
        };
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(certificate) = certificate else {
            return Ok(Box::new(stream));
        };
        let trusted = self.identity.client(&certificate).map_err(io::Error::other);
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(trusted?).connect(name, stream).await?;
        Ok(Box::new(stream))
    }

    async fn lock(&self, name: &str) -> Result<Option<Reservation>, String> {
        if let Some(why) = self.outage() {
            return Err(why);
        }
        let said = |error: anyhow::Error| format!("PostgreSQL does not answer: {error:#}");
        let mut database = Database::new(&self.config.database).map_err(said)?;
        let locked = database.lock(name).await.map_err(said)?;
        Ok(locked.then(|| Box::new(database) as Reservation))
    }

    async fn make_token(
        &self,
        (name, role): (&str, Role),
        lifetime: Option<Duration>,
        by: &str,
    ) -> Result<Option<(TokenRecord, String)>> {
        let now = self.clock.current_time().secs;
        let lifetime = lifetime.map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        let secret = new_secret(&SystemRng);
        let token = Token {
            name: name.to_owned(),
            role: role.as_str().to_owned(),
            hash: TokenHash::from_secret(&secret).text().to_owned(),
            created: now,
            created_by: by.to_owned(),
            expires: lifetime.map(|time| now.saturating_add(time)),
        };
        if !self.database.lock().await.enter_token(&token).await? {
            return Ok(None);
        }
        // The next round of the daemon reads it again, and every other node then.
        self.known.lock().view.tokens.push(token.clone());
        Ok(record(&token).map(|record| (record, secret)))
    }

    async fn remove_token(&self, name: &str) -> Result<bool> {
        let deleted = self.database.lock().await.delete_token(name).await?;
        let tokens = &mut self.known.lock().view.tokens;
        tokens.retain(|token| token.name != name);
        Ok(deleted)
    }
}

fn stamp(seconds: i64) -> Stamp {
    Stamp::from_nanos(i128::from(seconds) * 1_000_000_000)
}

/// Returns a token as the API shows it; `None` for one of a role that this program does not know.
fn record(token: &Token) -> Option<TokenRecord> {
    Some(TokenRecord {
        name: token.name.clone(),
        role: Role::from_name(&token.role)?,
        created: stamp(token.created),
        created_by: token.created_by.clone(),
        revoked: None,
        expires: token.expires.map(stamp),
        used: None,
        account: None,
    })
}

/// Returns the nodes at which the server of an aggregate may be, the most likely first.
fn nodes_of(view: &View, aggregate: &Aggregate) -> Vec<String> {
    let real = view.real_owner(aggregate);
    let real = real.map(|(node, _)| node.name.clone());
    let nodes = aggregate.nodes.clone();
    let target = nodes.target.map(|target| target.node);
    let all = [real, nodes.owner, nodes.standby, target];
    let mut out: Vec<String> = Vec::new();
    for node in all.into_iter().flatten() {
        if !out.contains(&node) {
            out.push(node);
        }
    }
    out
}

impl Members for Gateway {
    fn aggregates(&self) -> Vec<String> {
        let known = self.known.lock();
        let all = known.view.aggregates.values();
        let all = all.filter(|aggregate| !aggregate.deleting);
        all.map(|aggregate| aggregate.name.clone()).collect()
    }

    fn ways(&self, aggregate: &str, here: bool) -> Vec<Way> {
        if here {
            return vec![Way::Here];
        }
        let view = self.view();
        let row = view.aggregates.get(aggregate);
        let nodes = row.map(|row| nodes_of(&view, row)).unwrap_or_default();
        let way = |node: String| match node == self.config.name {
            true => Way::Here,
            false => Way::Node(node),
        };
        nodes.into_iter().map(way).collect()
    }

    fn connect<'a>(
        &'a self,
        aggregate: &'a str,
        way: &'a Way,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.reach(aggregate, way))
    }

    fn place(&self, rooms: &[AggregateSpace]) -> Result<String, String> {
        if let Some(why) = self.outage() {
            return Err(why);
        }
        let best = roomiest(rooms).map(str::to_owned);
        best.ok_or_else(|| "no aggregate takes changes".to_owned())
    }

    fn reserve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Reservation>, String>> {
        Box::pin(self.lock(name))
    }

    fn holder(&self, token: &TokenHash) -> Option<(Arc<str>, Role)> {
        let known = self.known.lock();
        let mut all = known.view.tokens.iter();
        let found = all.find(|one| one.hash == token.text())?;
        let valid = found
            .expires
            .is_none_or(|end| self.clock.current_time().secs < end);
        let role = Role::from_name(&found.role).filter(|_| valid)?;
        Some((found.name.as_str().into(), role))
    }

    fn tokens(&self) -> BoxFuture<'_, Result<Vec<TokenRecord>, String>> {
        Box::pin(async move {
            let tokens = self.known.lock().view.tokens.clone();
            Ok(tokens.iter().filter_map(record).collect())
        })
    }

    fn create_token<'a>(
        &'a self,
        name: &'a str,
        role: Role,
        lifetime: Option<Duration>,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Option<(TokenRecord, String)>, String>> {
        Box::pin(async move {
            let made = self.make_token((name, role), lifetime, by).await;
            made.map_err(|error| format!("{error:#}"))
        })
    }

    fn delete_token<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let deleted = self.remove_token(name).await;
            deleted.map_err(|error| format!("{error:#}"))
        })
    }

    fn metrics(&self) -> String {
        let known = self.known.lock().clone();
        metrics::render(&known, &self.config.name, self.clock.monotonic())
    }

    fn conditions(&self) -> Vec<Condition> {
        let known = self.known.lock().clone();
        let facts = known.facts(self.clock.monotonic(), &self.config.name);
        facts.iter().map(Fact::condition).collect()
    }

    fn describe(&self) -> Value {
        let known = self.known.lock().clone();
        let shown = ClusterStatus {
            this: &self.config.name,
            known: &known,
            now: self.clock.monotonic(),
        };
        shown.data()
    }
}

/// Returns the address of a node's API as other nodes reach it.
pub fn advertised(listens: SocketAddr, own: std::net::IpAddr) -> SocketAddr {
    match listens.ip().is_unspecified() {
        true => SocketAddr::new(own, listens.port()),
        false => listens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Assignment, Child, Kind, Node, Role as Part, Settings, Target};

    #[test]
    fn the_owner_is_asked_first_and_then_who_may_have_taken_over() {
        let mut view = View::default();
        for (name, role) in [
            ("n1", Part::Standby),
            ("n2", Part::Owner),
            ("n3", Part::Starting),
        ] {
            let child = Child {
                role,
                epoch: 4,
                ..Child::default()
            };
            let node = Node {
                name: name.to_owned(),
                address: String::new(),
                version: String::new(),
                memory: 0,
                drained: false,
                silent: Duration::ZERO,
                children: [("a".to_owned(), child)].into(),
                api: None,
            };
            view.nodes.insert(name.to_owned(), node);
        }
        let node = |name: &str| Some(name.to_owned());
        let aggregate = Aggregate {
            name: "a".to_owned(),
            kind: Kind::Rados,
            place: String::new(),
            settings: Settings::default(),
            nodes: Assignment {
                owner: node("n1"),
                standby: node("n2"),
                target: Some(Target {
                    node: "n3".to_owned(),
                    epoch: 4,
                }),
                epoch: 4,
            },
            deleting: false,
            created: 0,
            version: 0,
        };
        assert_eq!(nodes_of(&view, &aggregate), ["n2", "n1", "n3"]);
        // In an outage of the tables the owner may be silent, and its standby serves.
        view.nodes.clear();
        assert_eq!(nodes_of(&view, &aggregate), ["n1", "n2", "n3"]);
    }

    #[test]
    fn an_unspecified_address_is_advertised_as_the_nodes_own() {
        let own = "10.0.0.1".parse().unwrap();
        for (listens, shown) in [
            ("0.0.0.0:8049", "10.0.0.1:8049"),
            ("10.0.0.9:1", "10.0.0.9:1"),
            ("[::]:5", "10.0.0.1:5"),
        ] {
            assert_eq!(advertised(listens.parse().unwrap(), own).to_string(), shown);
        }
    }
}
