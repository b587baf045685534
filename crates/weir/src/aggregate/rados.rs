//! An aggregate on Ceph RADOS as a server has it: its ownership, and the files of the data folder
//! that the next owner needs.
//!
//! The data folder still holds what belongs to this server: the control socket, certificates, and
//! copies of the files that are kept with the aggregate. At a start those with the aggregate take
//! the place of the copies. A change through the API, and a command to the running server, is
//! reported only when the catalog and the files are with the aggregate; what other programs write
//! is found by a comparison every [`COMPARE_PERIOD`].

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use weir_base::{Clock, small_file};
use weir_control::CatalogCopy;
use weir_node::control_socket::Control;
use weir_node::os;
use weir_pair_node::{Address, Lease};
use weir_rados_store::{
    AggregateObjects, Loss, OwnerState, Process, RadosAggregate, RadosPlace, Session, Sizes,
    StandbyObserver,
};
use weir_store::folder::{self, Folder};
use weir_store::layout::MAX_BLOCKS;
use weir_store::{AggregateDevices, Location};

use crate::aggregate::kept_files;
use crate::cluster::{ClusterCommands, Identity, Member};
use crate::control::plane;
use crate::service_address::{self, ServiceAddresses};

/// Names the aggregate whose copies a data folder has.
const MARK: &str = "rados-aggregate";
/// Name of the catalog among the files.
pub const CATALOG: &str = "catalog.db";
/// Pause between two comparisons of the files.
const COMPARE_PERIOD: Duration = Duration::from_millis(100);
/// Attempts to keep the catalog, after which a change is reported without.
const CATALOG_TRIES: u32 = 5;

/// Returns the refusal of a place without an aggregate.
pub fn missing(place: &RadosPlace) -> String {
    format!("{place}: there is no aggregate of this name")
}

/// Conduct of a server that serves what it takes; by default that of a tool.
#[derive(Clone, Copy, Default)]
pub struct TakeoverOptions<'a> {
    /// Given if it stands by while another server has the aggregate.
    pub waiting: Option<&'a StandbyObserver<'a>>,
    /// Addresses that move with the aggregate.
    pub addresses: &'a [Address],
}

/// An aggregate that this process owns, and the data folder that goes with it.
pub struct OwnedAggregate {
    aggregate: Arc<RadosAggregate>,
    /// This server's part.
    member: Arc<Member>,
    /// Lease within which replies leave.
    lease: Option<Arc<Lease>>,
    /// Socket at which a standby was asked.
    control: Option<Control>,
    /// True if there was no aggregate before.
    is_new: bool,
    keeper: Arc<Keeper>,
    /// Ends the thread that compares the files when dropped.
    comparing: Option<(Sender<()>, JoinHandle<()>)>,
    /// Keeps other servers out of the data folder.
    _lock: File,
}

impl OwnedAggregate {
    /// Takes over an aggregate that is there, as a tool does.
    ///
    /// # Errors
    /// As [`OwnedAggregate::take`], and if there is no aggregate.
    pub fn take_existing(
        connected: &AggregateObjects,
        place: &RadosPlace,
        data: &Path,
        catalog: Option<&str>,
        clock: &Arc<dyn Clock>,
    ) -> Result<OwnedAggregate> {
        ensure!(connected.exists()?, missing(place));
        let sizes = Sizes {
            max_blocks: MAX_BLOCKS,
            log_bytes: 0,
        };
        let served = TakeoverOptions::default();
        OwnedAggregate::take(connected, place, data, catalog, sizes, clock, served)
    }

    /// Switches on all format features that this program knows. Returns the names of those that
    /// were off.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn switch_features_on(&self) -> Result<Vec<&'static str>> {
        Ok(self.aggregate.switch_features_on()?)
    }

    /// Replaces files that are kept with the aggregate, and the folder's copies of them.
    ///
    /// # Errors
    /// The cluster does not take a file, or it cannot be written to the folder.
    pub fn replace_files(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        for (name, bytes) in files {
            let written = self.keeper.session.write_file(name, bytes);
            written.with_context(|| format!("writing {name}"))?;
        }
        self.keeper.fetch()
    }

    /// Takes the aggregate over, and brings the data folder's files up to date. A server can
    /// stand by while another one has it. The process ends when another one takes the
    /// aggregate.
    ///
    /// # Errors
    /// The folder is another server's or another aggregate's; the aggregate is served elsewhere.
    pub fn take(
        connected: &AggregateObjects,
        place: &RadosPlace,
        data: &Path,
        catalog: Option<&str>,
        sizes: Sizes,
        clock: &Arc<dyn Clock>,
        served: TakeoverOptions<'_>,
    ) -> Result<OwnedAggregate> {
        let TakeoverOptions { waiting, addresses } = served;
        ensure!(
            !Folder::exists(data)?,
            "{} has an aggregate of its own: name another folder with --data",
            data.display()
        );
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(data);
        made.with_context(|| data.display().to_string())?;
        let lock = folder::lock_only(data)?;
        mark(data, place)?;
        let files: Vec<&str> = kept_files::list_names()
            .chain([CATALOG, service_address::CLIENTS])
            .collect();
        let process = Process::this(&os::host_name());
        let standbys = connected.standbys(&process, clock)?;
        let identity = Identity {
            place: place.clone(),
            process: process.clone(),
            stands_by: waiting.is_some(),
            addresses: ServiceAddresses::open(addresses, clock)?,
        };
        let member = Arc::new(Member::new(identity, Arc::clone(clock), standbys));
        let control = match waiting {
            Some(_) => Some(listen(data, &member)?),
            None => None,
        };
        let watch = |seen: &OwnerState| {
            member.note_seen(seen);
            waiting.is_none_or(|waiting| waiting(seen))
        };
        let waiting = waiting.is_some().then_some(&watch as &StandbyObserver<'_>);
        let taken = connected.take(&process, &files, sizes, clock, &std::thread::sleep, waiting);
        let aggregate = Arc::new(taken?);
        member.note_owner(aggregate.session());
        let name = place.to_string();
        aggregate
            .session()
            .on_loss(move |loss, reason| end(&name, loss, reason));
        let url = plane::catalog(catalog, data)?;
        let keeper = Arc::new(Keeper {
            session: Arc::clone(aggregate.session()),
            folder: data.to_owned(),
            catalog: weir_control::file_of(&url).map(|file| (url, file)),
            kept: Mutex::default(),
            copying: tokio::sync::Mutex::default(),
        });
        keeper.fetch()?;
        Ok(OwnedAggregate {
            member,
            lease: None,
            control,
            is_new: aggregate.id().is_none(),
            aggregate,
            keeper,
            comparing: None,
            _lock: lock,
        })
    }

    /// Returns the lease, once the log has been replayed.
    pub fn lease(&self) -> Option<Arc<Lease>> {
        self.lease.clone()
    }

    /// Returns this server's part in the aggregate.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Returns the socket at which this server was asked while it stood by, once.
    pub fn take_control(&mut self) -> Option<Control> {
        self.control.take()
    }

    /// Returns true if there was no aggregate before this server took the place.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns where the aggregate is.
    pub fn location(&self) -> Location {
        Location::Devices(Arc::clone(&self.aggregate) as Arc<dyn AggregateDevices>)
    }

    /// Returns the number of blocks of the log.
    pub fn log_blocks(&self) -> u64 {
        self.aggregate.log_device().length()
    }

    /// Notes that the log has been replayed. Returns the lease within which replies may leave, once
    /// no reply of a previous owner can. Blocks until then.
    pub fn finish_takeover(&mut self, clock: &Arc<dyn Clock>) -> Arc<Lease> {
        self.aggregate.owner().finish_takeover(&std::thread::sleep);
        let lease = Arc::new(Lease::expired(Arc::clone(clock)));
        let renewed = Arc::clone(&lease);
        let session = self.aggregate.session();
        session.on_renewal(move |until| renewed.set(until));
        self.lease = Some(Arc::clone(&lease));
        lease
    }

    /// Returns what the control plane keeps the catalog up to date with.
    pub fn catalog_copy(&self) -> Arc<dyn CatalogCopy> {
        Arc::clone(&self.keeper) as _
    }

    /// Puts all files with the aggregate, and from then on those that change.
    ///
    /// # Errors
    /// A file cannot be read, or the cluster does not take it.
    pub fn keep(&mut self) -> Result<()> {
        self.keeper.keep_files()?;
        self.keep_catalog()?;
        if self.comparing.is_none() {
            let (stop, stopped) = channel();
            let keeper = Arc::clone(&self.keeper);
            let compare = move || {
                let passed = || {
                    matches!(
                        stopped.recv_timeout(COMPARE_PERIOD),
                        Err(RecvTimeoutError::Timeout)
                    )
                };
                while passed() {
                    if let Err(error) = keeper.keep_files() {
                        tracing::error!(
                            "cannot keep a file with the aggregate: {error:#}; retrying"
                        );
                    }
                }
            };
            let thread = std::thread::Builder::new().name("rados-files".into());
            self.comparing = Some((stop, thread.spawn(compare)?));
        }
        Ok(())
    }

    /// Puts the catalog with the aggregate.
    ///
    /// # Errors
    /// The catalog cannot be read, or the cluster does not take it.
    pub fn keep_catalog(&self) -> Result<()> {
        let runtime = plane::event_loop()?;
        runtime.block_on(self.keeper.keep_catalog())
    }
}

impl Drop for OwnedAggregate {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.comparing.take() {
            drop(stop);
            let _ = thread.join();
            if let Err(error) = self.keeper.keep_files() {
                tracing::error!("cannot keep a file with the aggregate: {error:#}");
            }
        }
    }
}

/// Listens for commands to a standby.
fn listen(data: &Path, member: &Arc<Member>) -> Result<Control> {
    let commands = ClusterCommands {
        member: Some(Arc::downgrade(member)),
        exports: None,
        next: None,
    };
    Control::listen(data, Arc::new(commands))
}

/// Ends the process at once, or begins it anew as another client of the cluster. Nothing that this
/// one has in memory or in its queues may reach a client or the cluster.
fn end(name: &str, loss: Loss, reason: &str) {
    if loss.begins_anew() {
        eprintln!("weir: {name}: {reason}; this server drops everything and starts again");
        weir_pair_node::begin_anew(reason);
    }
    eprintln!("weir: {name}: {reason}; this server ends at once");
    // SAFETY: ends the process, without destructors, which would wait for the cluster.
    unsafe { libc::_exit(1) }
}

/// Checks that the folder has no copies of an aggregate's files.
///
/// # Errors
/// It has: the options lack the aggregate's name.
pub fn check_unmarked(data: &Path) -> Result<()> {
    match marked(data)? {
        Some(name) => bail!(
            "{} has no aggregate, but copies of files of one: pass --aggregate {name}",
            data.display()
        ),
        None => Ok(()),
    }
}

/// Returns the name of the aggregate that the folder's copies are of.
fn marked(data: &Path) -> Result<Option<String>> {
    let path = data.join(MARK);
    let found = small_file::read(&path).with_context(|| path.display().to_string())?;
    Ok(found.map(|found| String::from_utf8_lossy(&found).into_owned()))
}

/// Notes which aggregate the folder's copies are of.
fn mark(data: &Path, place: &RadosPlace) -> Result<()> {
    let name = place.to_string();
    let path = data.join(MARK);
    match marked(data)? {
        Some(found) => ensure!(
            found == name,
            "{} belongs to the aggregate {found}: name another folder with --data",
            data.display()
        ),
        None => small_file::replace(data, MARK, name.as_bytes())
            .with_context(|| path.display().to_string())?,
    }
    Ok(())
}

/// Keeps the data folder's files with the aggregate.
struct Keeper {
    session: Arc<Session>,
    folder: PathBuf,
    /// URL and file of a catalog that is a file.
    catalog: Option<(String, PathBuf)>,
    /// Contents of the files as they were kept last.
    kept: Mutex<HashMap<&'static str, Vec<u8>>>,
    /// Held while the catalog is copied and written, so that no older copy replaces a newer one.
    copying: tokio::sync::Mutex<()>,
}

impl Keeper {
    /// Replaces the folder's files by those that are with the aggregate.
    fn fetch(&self) -> Result<()> {
        let mut kept = self.kept.lock();
        for name in kept_files::list_names() {
            let bytes = self.session.read_file(name);
            let Some(bytes) = bytes.with_context(|| format!("reading {name}"))? else {
                continue;
            };
            let same = small_file::read(&self.folder.join(name))?.as_ref() == Some(&bytes);
            if !same {
                small_file::replace(&self.folder, name, &bytes)
                    .with_context(|| self.folder.join(name).display().to_string())?;
            }
            kept.insert(name, bytes);
        }
        let Some((_, file)) = &self.catalog else {
            return Ok(());
        };
        let bytes = self.session.read_file(CATALOG);
        match bytes.context("reading the catalog")? {
            Some(bytes) => put_catalog(file, &bytes),
            None => Ok(()),
        }
    }

    /// Puts files that have changed with the aggregate.
    fn keep_files(&self) -> Result<()> {
        let mut kept = self.kept.lock();
        for name in kept_files::list_names() {
            let path = self.folder.join(name);
            let bytes = small_file::read(&path).with_context(|| path.display().to_string())?;
            let Some(bytes) = bytes.filter(|bytes| kept.get(name) != Some(bytes)) else {
                continue;
            };
            let written = self.session.write_file(name, &bytes);
            written.with_context(|| format!("writing {name}"))?;
            kept.insert(name, bytes);
        }
        Ok(())
    }

    /// Puts the files that have changed with the aggregate, and then the catalog: a vault that is
    /// in it has its key.
    async fn keep_all(self: &Arc<Self>) -> Result<()> {
        let keeper = Arc::clone(self);
        tokio::task::spawn_blocking(move || keeper.keep_files()).await??;
        self.keep_catalog().await
    }

    async fn keep_catalog(&self) -> Result<()> {
        let Some((url, file)) = &self.catalog else {
            return Ok(());
        };
        if !file.exists() {
            return Ok(());
        }
        let _alone = self.copying.lock().await;
        let copy = self.folder.join("catalog.copy");
        weir_control::back_up(url, &copy).await?;
        let bytes = fs::read(&copy)?;
        fs::remove_file(&copy)?;
        let session = Arc::clone(&self.session);
        let writing = move || session.write_file(CATALOG, &bytes);
        tokio::task::spawn_blocking(writing).await??;
        Ok(())
    }
}

impl CatalogCopy for Keeper {
    fn bring_up_to_date(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            for left in (0..CATALOG_TRIES).rev() {
                let Err(error) = self.keep_all().await else {
                    return;
                };
                tracing::error!(
                    "cannot keep the catalog and the files with the aggregate: {error:#}; {}",
                    match left {
                        0 => "a server that takes over now would lack the newest changes",
                        _ => "retrying",
                    }
                );
                tokio::time::sleep(COMPARE_PERIOD).await;
            }
        })
    }
}

/// Replaces a catalog that no server has open.
fn put_catalog(file: &Path, bytes: &[u8]) -> Result<()> {
    let folder = file.parent().context("cannot find the catalog's folder")?;
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.context("cannot read the catalog's name")?;
    for tail in ["-wal", "-shm"] {
        match fs::remove_file(folder.join(format!("{name}{tail}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(small_file::replace(folder, name, bytes)?)
}

#[cfg(test)]
mod tests {
    use std::io;

    use weir_node::control_socket::Commands;

    use super::*;
    use crate::aggregate::kept_files::FileCopyCommands;

    #[test]
    fn a_folder_keeps_copies_of_one_aggregate() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other): (RadosPlace, RadosPlace) = (
            "rados:pool/one".parse().unwrap(),
            "rados:pool/other".parse().unwrap(),
        );
        check_unmarked(folder.path()).unwrap();
        mark(folder.path(), &one).unwrap();
        mark(folder.path(), &one).unwrap();
        let refused = mark(folder.path(), &other).unwrap_err().to_string();
        assert!(
            refused.contains("belongs to the aggregate rados:pool/one"),
            "{refused}"
        );
        let refused = check_unmarked(folder.path()).unwrap_err().to_string();
        assert!(
            refused.contains("pass --aggregate rados:pool/one"),
            "{refused}"
        );
    }

    #[test]
    fn a_catalog_takes_the_place_of_an_older_one_and_what_belongs_to_that() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
            fs::write(at(name), "old").unwrap();
        }
        put_catalog(&at("catalog.db"), b"new").unwrap();
        assert_eq!(fs::read(at("catalog.db")).unwrap(), b"new");
        assert!(!at("catalog.db-wal").exists() && !at("catalog.db-shm").exists());
    }

    /// An aggregate of a simulated cluster, and this data folder.
    fn held(folder: &Path) -> OwnedAggregate {
        let cluster = weir_sim::rados::Cluster::new();
        let client: Arc<dyn weir_rados::Objects> = Arc::new(cluster.client(1));
        let connected = AggregateObjects::on("rados:sim/a", Arc::clone(&client), client);
        let sizes = Sizes {
            max_blocks: 1 << 20,
            log_bytes: 16 << 20,
        };
        let clock: Arc<dyn Clock> = Arc::new(weir_base::SystemClock::new());
        let place: RadosPlace = "rados:sim/a".parse().unwrap();
        OwnedAggregate::take(
            &connected,
            &place,
            folder,
            None,
            sizes,
            &clock,
            TakeoverOptions::default(),
        )
        .unwrap()
    }

    /// A command that writes a file.
    struct FileWriteCommands(PathBuf);

    impl Commands for FileWriteCommands {
        fn run(&self, request: &str, _: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
            small_file::replace(&self.0, request, b"written")?;
            Ok("done".to_owned())
        }
    }

    #[test]
    fn what_a_command_wrote_is_with_the_aggregate_when_it_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let held = held(folder.path());
        let commands = FileCopyCommands {
            copy: Some(held.catalog_copy()),
            next: FileWriteCommands(folder.path().to_owned()),
        };
        for name in kept_files::list_names() {
            commands.run(name, &mut |_| Ok(())).unwrap();
            let kept = held.keeper.session.read_file(name).unwrap();
            assert_eq!(kept.as_deref(), Some(&b"written"[..]), "{name}");
        }
    }

    #[test]
    fn copies_of_the_catalog_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let held = held(folder.path());
        let runtime = plane::event_loop().unwrap();
        runtime.block_on(async {
            let file = folder.path().join(CATALOG);
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(file)
                .create_if_missing(true);
            let mut catalog = sqlx::ConnectOptions::connect(&options).await.unwrap();
            let table = sqlx::query("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)");
            table.execute(&mut catalog).await.unwrap();
        });
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        held.keep_catalog().unwrap();
                    }
                });
            }
        });
    }
}
