//! Settings of a node: a file of its folder, which only its owner may read, as it has the
//! database's password.

use std::fs::DirBuilder;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use weir_base::limits::cluster::NODES_MAX;
use weir_base::small_file;

use crate::database::Database;
use crate::rows::check_name;

/// Name of the file.
const NAME: &str = "cluster.json";

/// Settings of a node of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Name of the node.
    pub name: String,
    /// Address at which its servers listen, where an aggregate has only a port.
    pub address: IpAddr,
    /// Bytes of memory for its servers.
    pub memory: u64,
    /// Address of the tables, with the password.
    pub database: String,
    /// Ceph's configuration file; `None` for Ceph's own choice.
    pub ceph_conf: Option<PathBuf>,
    /// Keyring of Ceph's user.
    pub ceph_keyring: Option<PathBuf>,
    /// User of Ceph.
    pub ceph_user: Option<String>,
}

impl Config {
    /// Reads the settings of a folder; `None` if it is no node's.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn read(folder: &Path) -> Result<Option<Config>> {
        let path = folder.join(NAME);
        let text = small_file::read(&path).with_context(|| path.display().to_string())?;
        let Some(text) = text else { return Ok(None) };
        let config = serde_json::from_slice(&text);
        config
            .map(Some)
            .with_context(|| format!("{} is damaged", path.display()))
    }

    /// Makes a folder the node's, after it has read the tables. With a secret for the cluster
    /// in `create` it creates them if they are not there.
    ///
    /// # Errors
    /// The name is none or is taken by a node that lives; the folder is another node's or has data;
    /// the database cannot be reached.
    pub fn join(&self, folder: &Path, create: Option<&str>) -> Result<()> {
        check_name(&self.name).map_err(|why| anyhow!(why))?;
        ensure!(
            !self.address.is_unspecified(),
            "cannot use --address {}: servers have to listen at the address of one machine",
            self.address
        );
        if let Some(other) = Config::read(folder)?.filter(|other| other.name != self.name) {
            bail!("{} is the folder of node {}", folder.display(), other.name);
        }
        ensure!(
            !weir_store::folder::Folder::exists(folder)?,
            "{} has an aggregate: name another folder with --data",
            folder.display()
        );
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build()?;
        runtime.block_on(async {
            let mut database = Database::new(&self.database)?;
            match create {
                Some(secret) => database.create(secret).await?,
                None => database.check().await?,
            }
            let view = database.view().await?;
            let named = view.nodes.get(&self.name);
            ensure!(
                named.is_some() || view.nodes.len() < NODES_MAX,
                "cannot join: {NODES_MAX} nodes are the most of a cluster"
            );
            let other =
                named.filter(|node| node.is_up() && node.address != self.address.to_string());
            ensure!(
                other.is_none(),
                "cannot join as {}: a node of this name is up at another address (pass another --name)",
                self.name
            );
            Ok(())
        })?;
        let mut make = DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(folder);
        made.with_context(|| folder.display().to_string())?;
        let text = serde_json::to_vec_pretty(self)?;
        small_file::replace(folder, NAME, &text)
            .with_context(|| folder.join(NAME).display().to_string())
    }
}
