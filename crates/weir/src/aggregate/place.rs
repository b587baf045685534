//! Place of an aggregate: the data folder, or a pool of Ceph with a data folder beside it.
//!
//! All commands name it by the same options, and do with it what both kinds have: read its files
//! and its format, copy its catalog, keep servers away from it and change it.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use weir_base::{Clock, SystemClock, small_file};
use weir_control::CatalogVersion;
use weir_rados::Options;
use weir_rados_store::{AggregateObjects, RadosPlace};
use weir_store::aggregate::{FolderLocation, Location};
use weir_store::features::AggregateFormat;
use weir_store::folder::{self, Folder};

use crate::aggregate::rados::{self, CATALOG, OwnedAggregate};
use crate::cli::RadosArgs;
use crate::control::plane;

/// Place of an aggregate, as the options of a command name it.
pub struct AggregatePlace<'a> {
    data: &'a Path,
    catalog: Option<&'a str>,
    pool: Option<(AggregateObjects, &'a RadosPlace)>,
}

impl Display for AggregatePlace<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.pool {
            Some((_, place)) => place.fmt(f),
            None => self.data.display().fmt(f),
        }
    }
}

impl<'a> AggregatePlace<'a> {
    /// Finds the place that the options name, and connects to the cluster of one in a pool.
    ///
    /// # Errors
    /// Ceph's library is missing, or the cluster cannot be reached; the options name no aggregate,
    /// and the data folder belongs to one.
    pub fn find(
        rados: &'a RadosArgs,
        data: &'a Path,
        catalog: Option<&'a str>,
    ) -> Result<AggregatePlace<'a>> {
        let pool = match &rados.aggregate {
            Some(place) => {
                let options = Options {
                    conf: rados.ceph_conf.clone(),
                    keyring: rados.ceph_keyring.clone(),
                    user: rados.ceph_user.clone(),
                };
                let connected = AggregateObjects::connect(place, &options);
                Some((connected.with_context(|| place.to_string())?, place))
            }
            None => {
                rados::check_unmarked(data)?;
                None
            }
        };
        Ok(AggregatePlace {
            data,
            catalog,
            pool,
        })
    }

    /// Returns the connection to the pool of an aggregate in one, and its name there.
    pub fn pool(&self) -> Option<(&AggregateObjects, &'a RadosPlace)> {
        self.pool
            .as_ref()
            .map(|(connected, place)| (connected, *place))
    }

    /// Returns true if there is an aggregate.
    ///
    /// # Errors
    /// The folder cannot be read, or those of the cluster.
    pub fn exists(&self) -> Result<bool> {
        Ok(match &self.pool {
            Some((connected, _)) => connected.exists()?,
            None => Folder::exists(self.data)?,
        })
    }

    /// Returns the format of the aggregate, also while a server runs.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn format(&self) -> Result<AggregateFormat> {
        match &self.pool {
            None => Ok(folder::format(self.data)?),
            Some((connected, place)) => connected.format()?.with_context(|| rados::missing(place)),
        }
    }

    /// Returns the identity of an aggregate in a pool; one in a folder has a file of it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn id_in_pool(&self) -> Result<Option<String>> {
        let Some((connected, place)) = &self.pool else {
            return Ok(None);
        };
        let id = connected.id()?.with_context(|| rados::missing(place))?;
        Ok(Some(id.to_string()))
    }

    /// Reads a file that is kept with the aggregate, also while a server runs; `None` if it has no
    /// such file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.pool {
            None => {
                let path = self.data.join(name);
                small_file::read(&path).with_context(|| format!("cannot read {}", path.display()))
            }
            Some((connected, _)) => {
                let read = connected.read_file(name);
                read.with_context(|| format!("cannot read {name}"))
            }
        }
    }

    /// Returns the URL of the catalog that a server with these options has.
    ///
    /// # Errors
    /// The folder's path is not UTF-8.
    pub fn catalog_url(&self) -> Result<String> {
        plane::catalog(self.catalog, self.data)
    }

    /// Returns the version of the catalog as it is, with a server or without one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn catalog_version(&self) -> Result<CatalogVersion> {
        let runtime = plane::event_loop()?;
        let version = |url: &str| {
            let read = runtime.block_on(weir_control::version(url));
            read.context("reading the catalog's version")
        };
        let url = self.catalog_url()?;
        if self.pool.is_none() || weir_control::file_of(&url).is_none() {
            return version(&url);
        }
        // The folder's copy may be an old one.
        let folder = tempfile::tempdir().context("making a folder for a copy of the catalog")?;
        self.copy_catalog(folder.path())?;
        version(&plane::catalog(None, folder.path())?)
    }

    /// Copies the catalog into a folder, also while a server runs. Returns true if there is a copy:
    /// a catalog in PostgreSQL is not copied.
    ///
    /// # Errors
    /// It cannot be read, or the folder not be written to.
    pub fn copy_catalog(&self, to: &Path) -> Result<bool> {
        let url = self.catalog_url()?;
        let copy = to.join(CATALOG);
        if self.pool.is_none() {
            let copied = plane::event_loop()?.block_on(weir_control::back_up(&url, &copy));
            return copied
                .with_context(|| format!("cannot copy the catalog to {}", copy.display()));
        }
        if weir_control::file_of(&url).is_none() {
            return Ok(false);
        }
        let bytes = self.read_file(CATALOG)?;
        if let Some(bytes) = &bytes {
            let written = small_file::replace(to, CATALOG, bytes);
            written.with_context(|| format!("cannot write {}", copy.display()))?;
        }
        Ok(bytes.is_some())
    }

    /// Takes the aggregate for a command that changes or verifies it. Ownership of one in a pool
    /// keeps servers away until the result is dropped; a folder is locked by what is done to it.
    ///
    /// # Errors
    /// A server serves it.
    pub fn take(&self, operation: &str) -> Result<TakenAggregate<'a>> {
        let Some((connected, place)) = &self.pool else {
            if let Some(process) = folder::holder(self.data) {
                bail!("cannot {operation} {self}: process {process} is serving it (stop it first)");
            }
            return Ok(TakenAggregate::Folder(self.data));
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let held =
            OwnedAggregate::take_existing(connected, place, self.data, self.catalog, &clock)?;
        Ok(TakenAggregate::Pool(Box::new(held)))
    }
}

/// Returns the places of the files of an aggregate in a data folder.
pub fn in_folder(data: &Path, log_dir: Option<&Path>) -> FolderLocation {
    FolderLocation {
        log: log_dir.map(Path::to_owned),
        ..FolderLocation::new(data)
    }
}

/// An aggregate that a command works on without a server.
pub enum TakenAggregate<'a> {
    /// In this data folder.
    Folder(&'a Path),
    /// In a pool of Ceph.
    Pool(Box<OwnedAggregate>),
}

impl TakenAggregate<'_> {
    /// Returns the place of its devices. `log_dir` is the folder of the log, if the data folder
    /// does not have it.
    pub fn location(&self, log_dir: Option<&Path>) -> Location {
        match self {
            TakenAggregate::Folder(data) => in_folder(data, log_dir).into(),
            TakenAggregate::Pool(held) => held.location(),
        }
    }

    /// Switches on all format features that this program knows. Returns the names of those that
    /// were off.
    ///
    /// # Errors
    /// The superblocks cannot be written.
    pub fn switch_features_on(&self) -> Result<Vec<&'static str>> {
        Ok(match self {
            TakenAggregate::Folder(data) => folder::switch_features_on(data)?,
            TakenAggregate::Pool(held) => held.switch_features_on()?,
        })
    }

    /// Replaces files that are kept with the aggregate.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn replace_files(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        match self {
            TakenAggregate::Folder(data) => {
                for (name, bytes) in files {
                    let written = small_file::replace(data, name, bytes);
                    written.with_context(|| format!("writing {name}"))?;
                }
                Ok(())
            }
            TakenAggregate::Pool(held) => held.replace_files(files),
        }
    }

    /// Puts the catalog, which has changed, with the aggregate.
    ///
    /// # Errors
    /// It cannot be read, or the cluster does not take it.
    pub fn keep_catalog(&self) -> Result<()> {
        match self {
            TakenAggregate::Folder(_) => Ok(()),
            TakenAggregate::Pool(held) => held.keep_catalog(),
        }
    }
}
