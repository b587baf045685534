//! `weir csi`: a driver of the Container Storage Interface (CSI 1.12,
//! <https://github.com/container-storage-interface/spec>). Kubernetes' volumes and snapshots are
//! volumes and snapshots of a Weir server, made through its NetApp Volumes API, and are mounted by
//! mount(8).
//!
//! - [`server`]: the socket; [`messages`], [`requests`], [`status`]: calls as values and back;
//! - [`identity`], [`mod@controller`], [`node`]: CSI's services;
//! - [`api`], [`credentials`]: the server; [`names`], [`parameters`]: CSI's words in its terms;
//! - [`mounts`]: sources and options of mounts; [`inflight`]: one operation at a time;
//! - [`decode`]: what a call has, without carrying it out.

pub mod api;
pub mod args;
pub mod controller;
pub mod credentials;
pub mod decode;
pub mod identity;
pub mod inflight;
pub mod messages;
pub mod mounts;
pub mod names;
pub mod node;
pub mod parameters;
pub mod requests;
pub mod server;
pub mod status;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use weir_base::SystemClock;

use crate::api::Api;
use crate::args::{Cli, Mode};
use crate::controller::Controller;
use crate::credentials::{Credentials, Key};
use crate::identity::Identity;
use crate::mounts::Host;
use crate::node::Node;
use crate::status::{Code, Outcome, Status};

/// The services of a process.
pub struct Driver {
    identity: Identity,
    controller: Option<Controller>,
    node: Option<Node>,
}

impl Driver {
    /// Creates the services that the command line names.
    ///
    /// # Errors
    /// Something that a service needs is missing or cannot be read.
    pub fn new(cli: &Cli) -> Result<Driver> {
        if !names::is_location(&cli.location) {
            bail!(
                "--location has letters, digits and -_. (26 at most); received: {:?}",
                cli.location
            );
        }
        Ok(Driver {
            identity: Identity::default(),
            controller: match cli.mode {
                Mode::Node => None,
                _ => Some(controller(cli)?),
            },
            node: match (cli.mode, &cli.node_id) {
                (Mode::Controller, _) => None,
                (_, Some(id)) => {
                    let host = Host::new(cli.host_root.clone());
                    Some(Node::new(id.clone(), cli.location.clone(), host))
                }
                (_, None) => bail!("--node-id is missing: the name of this machine in the cluster"),
            },
        })
    }

    /// Carries out the method of a path, such as `/csi.v1.Node/NodeGetInfo`.
    ///
    /// # Errors
    /// The method's; UNIMPLEMENTED: this process has no such service.
    pub fn call(&self, path: &str, request: Value) -> Outcome<Value> {
        let mut parts = path.trim_start_matches('/').split('/');
        match (parts.next(), parts.next(), &self.controller, &self.node) {
            (Some("csi.v1.Identity"), Some(method), controller, _) => {
                self.identity.call(method, controller.as_ref())
            }
            (Some("csi.v1.Controller"), Some(method), Some(controller), _) => {
                controller.call(method, request)
            }
            (Some("csi.v1.Node"), Some(method), _, Some(node)) => node.call(method, request),
            _ => Err(Status::new(
                Code::Unimplemented,
                format!("{path} is not served by this process"),
            )),
        }
    }
}

fn controller(cli: &Cli) -> Result<Controller> {
    let server = cli.server.as_deref();
    let server = server.context("--server is missing: the address of the Weir server's API")?;
    let credentials = match (&cli.access_token_file, &cli.service_account) {
        (Some(path), _) => Credentials::Token(path.clone()),
        (None, Some(path)) => Credentials::Key(Box::new(Key::read(path)?)),
        (None, None) => Credentials::None,
    };
    let clock = Box::new(SystemClock::new());
    let ca_cert = cli.ca_cert.as_deref();
    let api = Api::new(server, &cli.project, credentials, ca_cert, clock)?;
    Ok(Controller::new(
        api,
        cli.location.clone(),
        cli.mount_host.clone(),
    ))
}

/// Serves until SIGTERM or SIGINT.
pub fn run(cli: &Cli) -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("weir-csi: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: &Cli) -> Result<()> {
    let driver = Arc::new(Driver::new(cli)?);
    let path = server::socket(&cli.endpoint)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (end, ended) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            end.send_replace(true);
        });
        server::serve(driver, &path, ended).await
    })?;
    // A call that hangs on a mount is not waited for.
    runtime.shutdown_background();
    Ok(())
}
