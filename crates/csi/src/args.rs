//! The words of the command line.

use std::path::PathBuf;

use clap::ValueEnum;

/// CSI driver: volumes and snapshots of Kubernetes as volumes and snapshots of a Weir server.
///
/// Serves the CSI protocol on a Unix socket, for Kubernetes' sidecars (the controller) and for the
/// kubelet of each machine (the node).
#[derive(Debug, clap::Parser)]
#[command(
    name = "weir-csi",
    bin_name = "weir csi",
    version,
    max_term_width = 100
)]
pub struct Cli {
    /// Socket to serve at: unix:///PATH
    #[arg(
        long,
        env = "CSI_ENDPOINT",
        value_name = "URL",
        default_value = "unix:///csi/csi.sock"
    )]
    pub endpoint: String,

    /// Services that this process has
    #[arg(long, value_enum, default_value_t = Mode::All)]
    pub mode: Mode,

    /// Address of the Weir server's API, such as https://weir:8049; the node does without
    #[arg(long, env = "WEIR_SERVER", value_name = "URL")]
    pub server: Option<String>,

    /// File with a token of an editor
    #[arg(
        long,
        env = "WEIR_ACCESS_TOKEN_FILE",
        value_name = "FILE",
        conflicts_with = "service_account"
    )]
    pub access_token_file: Option<PathBuf>,

    /// Key file of a service account, as `weir tokens create --service-account` writes it
    #[arg(long, env = "GOOGLE_APPLICATION_CREDENTIALS", value_name = "FILE")]
    pub service_account: Option<PathBuf>,

    /// Certificates to trust in place of the public ones (PEM), such as the server's api-cert.pem
    #[arg(long, env = "WEIR_CA_CERT", value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,

    /// Project in which volumes are made
    #[arg(
        long,
        env = "WEIR_PROJECT",
        value_name = "PROJECT",
        default_value = "weir"
    )]
    pub project: String,

    /// Location in which volumes are made, and which this machine reaches, unless topology says
    /// another one
    #[arg(
        long,
        env = "WEIR_LOCATION",
        value_name = "LOCATION",
        default_value = "local"
    )]
    pub location: String,

    /// Host that machines mount from, in place of the address that the server names
    #[arg(long, env = "WEIR_MOUNT_HOST", value_name = "HOST")]
    pub mount_host: Option<String>,

    /// Folder that is the root of the machine: its own mount(8) and mount.nfs are used there. For a
    /// node in a container
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,

    /// Name of this machine in the cluster; the node needs it
    #[arg(long, env = "NODE_ID", value_name = "NAME")]
    pub node_id: Option<String>,
}

/// Services of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Makes and changes volumes; one in a cluster
    Controller,
    /// Mounts volumes; one on each machine
    Node,
    /// Both
    All,
}
