//! The command line.

pub mod endpoint;
pub mod output;
pub mod progress;
pub mod settings;
pub mod tools;
pub mod usage;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use weir_base::network::AddressBlock;

use crate::cli::endpoint::ApiAddress;
use crate::cli::output::Output;
use weir_node::size::Size;
use weir_rados_store::RadosPlace;

/// Self-hosted NFS, SMB and API-driven file storage with provisioned throughput.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the volumes of a data folder over NFS; an empty folder becomes a new aggregate
    Serve(Box<Serve>),
    /// Verify a data folder that no server is using
    Check(Check),
    /// The catalog of pools and volumes
    Catalog {
        /// The command to run
        #[command(subcommand)]
        command: CatalogCommand,
    },
    /// Copy everything of a data folder but the volumes' data to a new folder; a server may run
    Backup(Backup),
    /// Make a data folder from a backup; put the aggregate's files `device` and `log` back beside
    /// it
    Restore(Restore),
    /// Switch on the format features that this program knows, in a data folder that no server is
    /// using; a start never does
    Upgrade(Upgrade),
    /// Read and verify every block of a running server's data, at a limited rate
    Scrub(Scrub),
    /// Users who may log on over SMB
    Users {
        /// The command to run
        #[command(subcommand)]
        command: UsersCommand,
    },
    /// Membership of an Active Directory domain; its users log on over SMB and NFS with its tickets
    Ad {
        /// The command to run
        #[command(subcommand)]
        command: AdCommand,
    },
    /// A synchronous mirror: two nodes that keep one aggregate, so that either can serve all of it
    Pair {
        /// The command to run
        #[command(subcommand)]
        command: PairCommand,
    },
    /// Aggregates on Ceph RADOS: the servers of one, or the machines of a cluster
    Cluster {
        /// Command to carry out
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Aggregates of a cluster
    Aggregate {
        /// Command to carry out
        #[command(subcommand)]
        command: AggregateCommand,
    },
    /// Run the daemon of a machine of a cluster: it keeps the servers running that the cluster
    /// wants here
    Node(NodeArgs),
    /// Run the quorum witness (mediator) for HA pairs on a third host
    Witness(WitnessArgs),
    #[command(flatten)]
    #[allow(missing_docs)]
    Tool(Tool),
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Manual {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    #[command(flatten)]
    #[allow(missing_docs)]
    Client(Box<weir_cli::Command>),
}

/// Commands that programs of their own carry out (`tools`).
#[derive(Debug, clap::Subcommand)]
pub enum Tool {
    /// Put a load on a server and measure it (weir-bench)
    #[command(disable_help_flag = true)]
    Bench(ToolArguments),
    /// Serve Kubernetes as its storage driver (weir-csi)
    #[command(disable_help_flag = true)]
    Csi(ToolArguments),
    /// Check this client's NFS and SMB settings, and print fixes (weir-doctor)
    #[command(disable_help_flag = true)]
    Doctor(ToolArguments),
}

impl Tool {
    /// Runs the program in place of this process; returns only if that fails.
    pub fn run(&self) -> std::process::ExitCode {
        let (name, given) = match self {
            Tool::Bench(given) => ("bench", given),
            Tool::Csi(given) => ("csi", given),
            Tool::Doctor(given) => ("doctor", given),
        };
        crate::cli::tools::run(name, &given.arguments)
    }
}

/// Arguments that a program of its own reads (`tools`).
#[derive(Debug, Args)]
pub struct ToolArguments {
    /// Arguments of the tool
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<std::ffi::OsString>,
}

/// SMB signing.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SmbSigning {
    /// Every message is signed
    Required,
    /// Messages are signed if the client requires it
    Offered,
}

/// Options that name an aggregate on RADOS.
#[derive(Args, Clone, Debug, Default)]
pub struct RadosArgs {
    /// The aggregate is in a pool of Ceph, under this name; the data folder then has what belongs
    /// to this server only. A name without an aggregate gets a new one. Needs Ceph's librados2
    #[arg(long, value_name = "rados:POOL/ID")]
    pub aggregate: Option<RadosPlace>,
    /// Ceph's configuration file [default: /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE", requires = "aggregate")]
    pub ceph_conf: Option<PathBuf>,
    /// The keyring of Ceph's user [default: as the configuration says]
    #[arg(long, value_name = "FILE", requires = "aggregate")]
    pub ceph_keyring: Option<PathBuf>,
    /// The user of Ceph, such as client.weir [default: client.admin]
    #[arg(long, value_name = "NAME", requires = "aggregate")]
    pub ceph_user: Option<String>,
}

/// The bucket for backups.
#[derive(Debug, Default, Args)]
pub struct Backups {
    /// Bucket for backups: s3://BUCKET?endpoint=URL&region=NAME, or a folder of another disk.
    /// Backup vaults are made in it. Their keys are in the data folder; `weir backup` copies them
    #[arg(long, value_name = "BUCKET")]
    pub backup_bucket: Option<String>,
    /// A file with ACCESS_KEY:SECRET_KEY of the bucket
    #[arg(long, value_name = "FILE", requires = "backup_bucket")]
    pub backup_credentials: Option<PathBuf>,
    /// Certificates (PEM) by which to know the bucket's server, in place of the public ones
    #[arg(long, value_name = "FILE", requires = "backup_bucket")]
    pub backup_ca: Option<PathBuf>,
}

/// `weir serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// While another server owns the aggregate, stand by: take it over when that server is gone or
    /// has ended, and serve it. Nobody can connect before
    #[arg(long, requires = "aggregate")]
    pub standby: bool,
    /// An address that this server has on this interface while it owns the aggregate, and that
    /// clients mount from (repeat for several). Takes root, or CAP_NET_ADMIN and CAP_NET_RAW
    #[arg(long, value_name = "ADDR/PREFIX@IFACE", requires = "aggregate")]
    pub address: Vec<weir_pair_node::Address>,
    /// Address to listen at for NFS, MOUNT, NLM and NSM, all over TCP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:2049", value_parser = endpoint::address)]
    pub nfs: SocketAddr,
    /// Addresses for Filestore instances, one for each, such as 10.1.0.0/24: clients find an
    /// instance's share at /SHARE there, as they expect. This machine needs these addresses; NFS is
    /// served at them, at the port of --nfs. Without them the share names of all instances must
    /// differ
    #[arg(long, value_name = "ADDR/BITS")]
    pub instance_addresses: Option<AddressBlock>,
    /// Backups.
    #[command(flatten)]
    pub backups: Backups,
    /// Address to listen at for SMB (direct TCP): ADDR:PORT, or off. Users log on who were made
    /// with `weir users create`
    #[arg(long, value_name = "ADDR:PORT", default_value = "off")]
    pub smb: ApiAddress,
    /// Serve only clients of SMB that encrypt all they send (SMB 3.0 and later)
    #[arg(long)]
    pub smb_require_encryption: bool,
    /// SMB signing: required, or offered (the client decides)
    #[arg(
        long,
        value_enum,
        default_value = "required",
        conflicts_with = "smb_require_encryption"
    )]
    pub smb_signing: SmbSigning,
    /// Keep the intent log in this folder, for example on a faster device
    #[arg(long, value_name = "DIR", conflicts_with = "aggregate")]
    pub log_dir: Option<PathBuf>,
    /// The folder of the intent log is on a disk that is lost with its machine, as local disks of
    /// clouds are. For nodes of a pair: the partner has the log's contents; a node that is alone
    /// writes a checkpoint before it reports a change as stable
    #[arg(long, requires = "log_dir")]
    pub log_ephemeral: bool,
    /// Memory to use in all (such as 4G) [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Export options of volumes without an export policy of their own: ro or rw; root_squash,
    /// no_root_squash or all_squash; anonuid=N, anongid=N; sec=FLAVOURS of sys, krb5, krb5i and
    /// krb5p with colons between (sys); xprtsec=tls or mtls: connections need TLS, or TLS with a
    /// client's certificate (for every volume, none); clients=ADDR[/BITS], a host name, or names
    /// with * and ? (repeat for several)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "rw,no_root_squash"
    )]
    pub export_options: Vec<String>,
    /// Enable Kerberos for NFS (sec=krb5, krb5i, krb5p) and SMB with this keytab, which has the
    /// keys of nfs/HOST and cifs/HOST. Needs the system's libgssapi-krb5-2 [default: those of the
    /// domain that `weir ad join` joined, if any]
    #[arg(long, value_name = "FILE")]
    pub krb5_keytab: Option<PathBuf>,
    /// Let clients protect their NFS connections by TLS (RFC 9289; xprtsec=tls of a mount), with
    /// this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "nfs_tls_key")]
    pub nfs_tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "nfs_tls_cert")]
    pub nfs_tls_key: Option<PathBuf>,
    /// Accept certificates of clients that these have issued (PEM; xprtsec=mtls)
    #[arg(long, value_name = "FILE", requires = "nfs_tls_cert")]
    pub nfs_tls_ca: Option<PathBuf>,
    /// Let users whose credential is full (16 groups, the maximum of AUTH_SYS) have all groups that
    /// this machine's name service has for them
    #[arg(long)]
    pub lookup_groups: bool,
    /// Let NFSv4 clients name users and groups NAME@DOMAIN, by this machine's name service; under
    /// Kerberos owners are sent in this form, too
    #[arg(long, value_name = "DOMAIN")]
    pub nfs4_domain: Option<String>,
    /// Send NFSv4 clients that come to PATH to other servers: LOCATIONS is HOST:/PATH, with a port
    /// HOST:PORT:/PATH (then HOST is an address), with commas between if several have the same
    /// files (repeat for several paths)
    #[arg(long, value_name = "PATH=LOCATIONS")]
    pub nfs4_referral: Vec<String>,
    /// Address to listen at for the API (HTTP): ADDR:PORT, or off. Any but a loopback address needs
    /// TLS and tokens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8049")]
    pub api: ApiAddress,
    /// Address to listen at for paired nodes that copy volumes from here (SnapMirror, TLS):
    /// ADDR:PORT, or off
    #[arg(long, value_name = "ADDR:PORT", default_value = "off")]
    pub replication: ApiAddress,
    /// Speak TLS on the API with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "api_tls_key")]
    pub api_tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "api_tls_cert")]
    pub api_tls_key: Option<PathBuf>,
    /// Speak TLS on the API with a certificate that is generated once and kept in the data folder
    #[arg(long, value_name = "generate", value_parser = ["generate"], conflicts_with = "api_tls_cert")]
    pub api_tls: Option<String>,
    /// A name or an address that clients reach the API by, for the generated certificate (repeat
    /// for several); this machine's name, localhost and the address of --api are in it anyway
    #[arg(long, value_name = "NAME", requires = "api_tls")]
    pub api_tls_san: Vec<String>,
    /// Make the first line of this file (weir_ and 64 hexadecimal digits) an administrator's token,
    /// in place of the file's former one
    #[arg(long, value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Show the runs of `weir bench matrix` in this folder (--out DIR/NAME) in the API and the
    /// console [default: benchmarks in the data folder]
    #[arg(long, value_name = "DIR")]
    pub benchmarks: Option<PathBuf>,
    /// The catalog of pools and volumes: sqlite:///PATH or postgres://… [default: catalog.db in the
    /// data folder]
    #[arg(long, value_name = "URL")]
    pub catalog: Option<String>,
    /// More service levels than are built in, or others, as TOML
    #[arg(long, value_name = "FILE")]
    pub service_levels: Option<PathBuf>,
    /// Refuse storage pools and instances that are together larger than this many times the
    /// physical space (1 for production; docs/operating/thin-provisioning.md) [default: no bound;
    /// more than the physical space is answered with a warning]
    #[arg(long, value_name = "FACTOR", value_parser = overcommit)]
    pub overcommit: Option<f64>,
    /// Do not register with this machine's rpcbind
    #[arg(long)]
    pub no_rpcbind: bool,
    /// Folder of the node whose daemon runs this server
    #[arg(long, value_name = "DIR", hide = true)]
    pub node_data: Option<PathBuf>,
    /// Location of the pool and the volume that a new aggregate begins with
    #[arg(long, value_name = "LOCATION", default_value = "local", hide = true)]
    pub first_location: String,
    /// Write the address to this file once requests are served
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Log filter: error, warn, info, debug, trace, or a list such as `weir=debug,warn` [default:
    /// info]
    #[arg(long, value_name = "FILTER", value_parser = crate::process::logging::filter)]
    pub log: Option<String>,
    /// The form of log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: crate::process::logging::Format,
    /// Read settings from this file (TOML), with an entry for each option but this one, by its
    /// name. Options and variables of the environment have priority [default: /etc/weir/weir.toml
    /// if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say whether the settings are valid, and end; the data folder is not touched
    #[arg(long)]
    pub check_config: bool,
    /// Let the aggregate's device grow to this size at most
    #[arg(long, value_name = "SIZE", hide = true)]
    pub size: Option<Size>,
    /// Make the disk as slow as this: microseconds an operation, operations a second, MB/s; for
    /// measurements
    #[arg(long, value_name = "MICROSECONDS,OPERATIONS,MB", hide = true)]
    pub pace_disk: Option<weir_store::Pace>,
    /// Drop peers that stall for this many seconds
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub stall: Option<u64>,
}

fn overcommit(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| "a number above 0, such as 1 or 2.5".to_owned())
}

/// `weir pair`
#[derive(Debug, Subcommand)]
pub enum PairCommand {
    /// Make this folder's aggregate, or a new one in an empty folder, the first copy of a pair;
    /// this node is the primary
    Create(Box<PairCreate>),
    /// Make the second copy of an aggregate in an empty folder, with the options that `weir pair
    /// create` printed
    Join(Box<PairJoin>),
    /// Let the partner connect, with the options that `weir pair join` printed
    Accept {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        /// SHA-256 of the partner's certificate
        #[arg(value_name = "SHA256")]
        certificate: String,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Show a running node: role, term, position, lag, and whether it is in sync
    Show {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Have the partner serve, and be its standby; on the node that serves
    Switch(PairSwitch),
    /// Have this node serve although it may not have all that clients were told
    Takeover {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        /// The other node is off for good
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Bring this node's copy up anew from the primary's; on the standby
    Resync {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        /// From nothing, not from what both have in common
        #[arg(long)]
        everything: bool,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Compare the two copies by hashes; on the primary, while clients go on
    Verify {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        /// Have the standby's copy brought up anew if they differ
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Make a folder that no server is using no pair's any more
    Delete {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
}

/// `weir cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Create a cluster's tables in PostgreSQL, if they are not there, and make this machine its
    /// first node
    Init(ClusterNode),
    /// Make this machine a node of a cluster
    Join(ClusterNode),
    /// Show the cluster of this node, or of a server that is in none its role and who owns the
    /// aggregate
    Show {
        /// List the volumes of all aggregates of the cluster, and where they are served
        #[arg(long)]
        volumes: bool,
        /// The folder of the node, or of the server
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Have a standby take over in order, and be a standby then if the server was started as one;
    /// on any node of a cluster, or on the server that owns the aggregate
    Takeover {
        /// The standby's host, for a server that is in no cluster [default: any]
        #[arg(value_name = "HOST", conflicts_with_all = ["aggregate", "to"])]
        host: Option<String>,
        /// The aggregate, in a cluster
        #[arg(long, value_name = "NAME")]
        aggregate: Option<String>,
        /// The node that is to own the aggregate [default: its standby]
        #[arg(long, value_name = "NODE", requires = "aggregate")]
        to: Option<String>,
        /// The folder of the node, or of the server
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Move all aggregates away from a node, one after the other, and give it none
    Drain {
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// Let it have aggregates again
        #[arg(long)]
        undo: bool,
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Move aggregates until no node owns two more than another one
    Rebalance {
        /// Print the moves, and make none
        #[arg(long)]
        dry_run: bool,
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Take a node whose daemon does not run out of the cluster
    Remove {
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
}

/// `weir cluster init` and `join`
#[derive(Debug, Args)]
pub struct ClusterNode {
    /// The cluster's database: postgres://USER:PASSWORD@HOST/DATABASE. With - it is the first line
    /// of the standard input, where no other user of this machine sees it
    #[arg(long, value_name = "URL")]
    pub catalog: String,
    /// The folder of this node, a new or an empty one
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    /// The node's name [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The address of this machine at which clients reach aggregates that have none of their own
    #[arg(long, value_name = "ADDR")]
    pub address: std::net::IpAddr,
    /// Memory for the servers of this machine [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Ceph's configuration file [default: /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub ceph_conf: Option<PathBuf>,
    /// The keyring of Ceph's user [default: as the configuration says]
    #[arg(long, value_name = "FILE")]
    pub ceph_keyring: Option<PathBuf>,
    /// The user of Ceph, such as client.weir [default: client.admin]
    #[arg(long, value_name = "NAME")]
    pub ceph_user: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir node`
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The folder of the node, which `weir cluster init` or `join` has made
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Address to answer Prometheus at, with the cluster's metrics (GET /metrics)
    #[arg(long, value_name = "ADDR:PORT", value_parser = endpoint::address)]
    pub metrics: Option<SocketAddr>,
    /// Address to listen at for the API of the whole cluster: ADDR:PORT, or off. Any but a loopback
    /// address needs TLS and tokens
    #[arg(long, value_name = "ADDR:PORT", default_value = "off")]
    pub api: ApiAddress,
    /// Speak TLS on the API with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "api_tls_key")]
    pub api_tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "api_tls_cert")]
    pub api_tls_key: Option<PathBuf>,
    /// Speak TLS on the API with a certificate that is generated once and kept in the node's folder
    #[arg(long, value_name = "generate", value_parser = ["generate"], conflicts_with = "api_tls_cert")]
    pub api_tls: Option<String>,
    /// A name or an address that clients reach the API by, for the generated certificate (repeat
    /// for several); this machine's name, localhost and the address of --api are in it anyway
    #[arg(long, value_name = "NAME", requires = "api_tls")]
    pub api_tls_san: Vec<String>,
    /// Log filter: error, warn, info, debug, trace, or a list such as `weir=debug,warn` [default:
    /// info]
    #[arg(long, value_name = "FILTER", value_parser = crate::process::logging::filter)]
    pub log: Option<String>,
    /// The form of log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: crate::process::logging::Format,
}

/// `weir aggregate`
#[derive(Debug, Subcommand)]
pub enum AggregateCommand {
    /// Create an aggregate, or take one that is in the pool into the cluster
    Create(Box<AggregateCreate>),
    /// List the aggregates of the cluster
    List {
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Move an aggregate to another node: a server stands by there first, and then takes over
    Move {
        /// The aggregate
        #[arg(value_name = "NAME")]
        name: String,
        /// The node
        #[arg(long, value_name = "NODE")]
        to: String,
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// End the servers of an aggregate and take it out of the cluster; its data stays in the pool
    Delete {
        /// The aggregate
        #[arg(value_name = "NAME")]
        name: String,
        /// The folder of this node
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
}

/// `weir aggregate create`
#[derive(Debug, Args)]
pub struct AggregateCreate {
    /// The aggregate's name, which is that of its namespace in the pool
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The pool: rados:POOL. Or a pair that serves already: pair:NODE=DIR,NODE=DIR, its nodes and
    /// the data folders of its servers there
    #[arg(long, value_name = "rados:POOL|pair:…")]
    pub on: String,
    /// Place at which NFS is served: a port at the node's own address, or an address and a port
    #[arg(long, value_name = "[ADDR:]PORT", default_value = "2049")]
    pub nfs: weir_cluster::rows::Listen,
    /// Place at which SMB is served [default: none]
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub smb: Option<weir_cluster::rows::Listen>,
    /// Place at which the API is served: a port at 127.0.0.1, or an address and a port, which takes
    /// tokens and a certificate [default: none]
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub api: Option<weir_cluster::rows::Listen>,
    /// An address that moves with the aggregate and that clients mount from (repeat for several)
    #[arg(long, value_name = "ADDR/PREFIX@IFACE")]
    pub address: Vec<weir_pair_node::Address>,
    /// Memory of each of its servers
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: Size,
    /// The node that owns it first [default: the one with the fewest aggregates]
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// The folder of this node
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// Place of a new copy.
#[derive(Debug, Args)]
pub struct PairFolder {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    /// Keep the intent log in this folder
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Let the aggregate's device grow to this size at most
    #[arg(long, value_name = "SIZE", hide = true)]
    pub size: Option<Size>,
}

/// Decider when the nodes do not hear each other: the same on both.
#[derive(Debug, Args)]
pub struct PairDecider {
    /// A `weir witness`, a database: `postgres://USER@HOST/DATABASE`, or a pool of Ceph:
    /// `rados:POOL[?conf=FILE&user=NAME&keyring=FILE]`
    #[arg(long, value_name = "HOST:PORT|URL", conflicts_with = "preferred")]
    pub witness: Option<String>,
    /// SHA-256 of the witness's certificate
    #[arg(long, value_name = "SHA256", requires = "witness")]
    pub witness_certificate: Option<String>,
    /// Without a witness: this side goes on alone, and the other takes over only by hand
    #[arg(long, value_name = "SIDE")]
    pub preferred: Option<weir_pair_node::Name>,
}

/// Options of a node that becomes one of a pair, for either side.
#[derive(Debug, Args)]
pub struct PairNode {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub folder: PairFolder,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub decider: PairDecider,
    /// A program that is run with `add` when this node begins to serve, and with `remove` when it
    /// stops
    #[arg(long, value_name = "FILE")]
    pub address_hook: Option<PathBuf>,
    /// An address that clients mount from, on this interface while this node serves (repeat for
    /// several). Takes root, or CAP_NET_ADMIN and CAP_NET_RAW
    #[arg(long, value_name = "ADDR/PREFIX@IFACE")]
    pub address: Vec<weir_pair_node::Address>,
    /// When the standby acknowledges a change: when it is on its device, or when it has received
    /// it; the same on both
    #[arg(long, value_enum, default_value_t)]
    pub mode: weir_pair_node::Mode,
}

/// `weir pair switch`
#[derive(Debug, Clone, clap::Args)]
pub struct PairSwitch {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    /// Say whether the partner could, and change nothing
    #[arg(long)]
    pub validate_only: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir pair create`
#[derive(Debug, Args)]
pub struct PairCreate {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub node: PairNode,
    /// Address to listen at for the partner
    #[arg(long, value_name = "ADDR:PORT", value_parser = endpoint::address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir pair join`
#[derive(Debug, Args)]
pub struct PairJoin {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub node: PairNode,
    /// The aggregate's identity
    #[arg(long, value_name = "UUID")]
    pub aggregate: String,
    /// Address at which the partner listens
    #[arg(long, value_name = "HOST:PORT")]
    pub partner: String,
    /// SHA-256 of the partner's certificate
    #[arg(long, value_name = "SHA256")]
    pub partner_certificate: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir witness`
#[derive(Debug, Args)]
pub struct WitnessArgs {
    /// The folder of the registers and of this machine's certificate
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Address to listen at for nodes
    #[arg(long, value_name = "ADDR:PORT", value_parser = endpoint::address)]
    pub listen: Option<SocketAddr>,
    /// SHA-256 of the certificate of a node that may ask (repeat for each)
    #[arg(long, value_name = "SHA256")]
    pub node: Vec<String>,
    /// Print the SHA-256 of this machine's certificate, and end
    #[arg(long)]
    pub show: bool,
    /// Write the address to this file once questions are answered
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir users`
#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// Let a user log on over SMB; the password is asked for, or read from the standard input
    Create(CreateUser),
    /// Let a user log on no more; sessions that are open stay
    Delete {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// List the users
    List {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
}

/// `weir users create`
#[derive(Debug, Args)]
pub struct CreateUser {
    /// The user's name, which is found in any case
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    /// The user id as which the user acts [default: that of this machine's user of the same name,
    /// with its groups]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub uid: Option<u32>,
    /// The group id [default: the user id]
    #[arg(
        long,
        value_name = "N",
        requires = "uid",
        allow_negative_numbers = true
    )]
    pub gid: Option<u32>,
    /// Give a user that exists another password
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir ad`
#[derive(Debug, Subcommand)]
pub enum AdCommand {
    /// Make the server a member of a domain. Asks for the user's password, or reads it from the
    /// standard input. Needs adcli
    Join(Box<AdJoin>),
    /// Show of which domain the server is a member, and by which names
    Show {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// Log on to the domain with the server's own keys
    Testjoin {
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
    /// End the membership
    Leave {
        /// Delete the account in the domain, too, by the rights of this user. Asks for the user's
        /// password, or reads it from the standard input [default: it stays there]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The data folder
        #[arg(long, value_name = "DIR", default_value = "./weir-data")]
        data: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: Output,
    },
}

/// `weir ad join`
#[derive(Debug, Args)]
pub struct AdJoin {
    /// The domain's name in the DNS
    #[arg(value_name = "DOMAIN")]
    pub domain: String,
    /// A user of the domain who may join computers
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// The domain controller to ask [default: one that the DNS names]
    #[arg(long, value_name = "HOST")]
    pub domain_controller: Option<String>,
    /// The computer account's name, of 15 characters at most [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    pub computer_name: Option<String>,
    /// The organizational unit of a new account [default: the domain's choice]
    #[arg(long, value_name = "OU=…,DC=…")]
    pub computer_ou: Option<String>,
    /// The name by which clients know the server [default: this machine's name, in the domain]
    #[arg(long, value_name = "NAME")]
    pub host_fqdn: Option<String>,
    /// Speak LDAP over TLS; without it Kerberos encrypts it
    #[arg(long)]
    pub use_ldaps: bool,
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir check`
#[derive(Debug, Args)]
pub struct Check {
    /// The data folder
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// Folder of the intent log, if not the data folder
    #[arg(long, value_name = "DIR", conflicts_with = "aggregate")]
    pub log_dir: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// Mend what can be mended without losing anything
    #[arg(long)]
    pub repair: bool,
    /// The catalog that belongs to it: sqlite:///PATH or postgres://… [default: catalog.db in the
    /// data folder]
    #[arg(long, value_name = "URL")]
    pub catalog: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir catalog`
#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Rebuild the catalog of a data folder that no server is using, from the records of the
    /// engine. Volumes that the catalog lacks get their names, paths, sizes, pools and snapshots
    /// back; clients cannot mount them until they get export rules. Other rows stay
    Rebuild(Rebuild),
}

/// `weir backup`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Backup {
    /// Work on backups of volumes.
    #[command(subcommand)]
    pub command: Option<BackupCommand>,
    /// The backup's folder: new, or empty
    #[arg(value_name = "DIR", required = true)]
    pub folder: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// The catalog: sqlite:///PATH or postgres://… [default: catalog.db in the data folder]
    #[arg(long, value_name = "URL")]
    pub catalog: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir backup …`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Read backups of volumes in their bucket, beside a running server or without one: that
    /// everything of them is there, and is what was written
    Verify(Verify),
}

/// `weir backup verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The data folder, or a copy of it that `weir backup` has made: it has the keys of the vaults
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    /// Only the vault of this name in the bucket, such as b-00c0ffee00c0ffee
    #[arg(long, value_name = "NAME")]
    pub vault: Option<String>,
    /// Only backups of this name
    #[arg(long, value_name = "BACKUP")]
    pub backup: Option<String>,
    /// The bucket.
    #[command(flatten)]
    pub bucket: Backups,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir upgrade`
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "./weir-data")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// The catalog: sqlite:///PATH or postgres://… [default: catalog.db in the data folder]
    #[arg(long, value_name = "URL")]
    pub catalog: Option<String>,
    /// List what is on and what would be switched on, and change nothing; a server may run
    /// meanwhile
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The data folder to make: new, or empty. With --aggregate, the server's data folder; the
    /// files go to the aggregate
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// The catalog of an aggregate on RADOS, if it is postgres://…
    #[arg(long, value_name = "URL", requires = "aggregate")]
    pub catalog: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir catalog rebuild`
#[derive(Debug, Args)]
pub struct Rebuild {
    /// The data folder
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// Folder of the intent log, if not the data folder
    #[arg(long, value_name = "DIR", conflicts_with = "aggregate")]
    pub log_dir: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub rados: RadosArgs,
    /// The catalog: sqlite:///PATH or postgres://… [default: catalog.db in the data folder]
    #[arg(long, value_name = "URL")]
    pub catalog: Option<String>,
    /// The service levels that the server is started with
    #[arg(long, value_name = "FILE")]
    pub service_levels: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}

/// `weir scrub`
#[derive(Debug, Args)]
pub struct Scrub {
    /// The data folder of the running server
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// Bytes to read per second at most
    #[arg(long, value_name = "SIZE", default_value = "100M")]
    pub rate: Size,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: Output,
}
