//! `weir pair` and `weir witness`: what is done on the command line.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_base::AggregateId;
use weir_mirror::{FileWitness, Register, Side, ask};
use weir_store::Aggregate;

use crate::aggregate::place;
use crate::cli::progress::Task;
use crate::cli::usage;
use crate::cli::{
    PairCommand, PairCreate, PairDecider, PairFolder, PairJoin, PairNode, PairSwitch, WitnessArgs,
};
use crate::commands::check;
use weir_node::{control_socket, data_folder, port};
use weir_pair_node::config::{Config, Mode, State, WitnessAt};
use weir_pair_node::{Name, address, postgres, rados};
use weir_peer_link::door::Door;
use weir_peer_link::identity::{AdmittedCertificates, Identity, in_words};

/// Longest time that a node may take for a question, once it has shown its certificate.
const QUESTION: Duration = Duration::from_secs(5);

/// `weir pair …`
pub fn pair(command: &PairCommand) -> Result<()> {
    match command {
        PairCommand::Create(args) => create(args),
        PairCommand::Join(args) => join(args),
        PairCommand::Accept {
            data,
            certificate,
            output,
        } => {
            let mut config = configured(data)?;
            ensure!(
                config.side == Name::A,
                "cannot accept a partner: side b has its partner already"
            );
            ensure!(
                config.partner.is_none(),
                "cannot accept a partner: a pair has two nodes (`weir pair delete --data {}` ends this one)",
                data.display()
            );
            let partner = fingerprint(certificate)?;
            config.partner = Some(partner.clone());
            config.write(data)?;
            match output.json {
                true => output.print(&json!({"partnerCertificate": partner}), ""),
                false => Ok(()),
            }
        }
        PairCommand::Show { data, output } => {
            configured(data)?;
            output.show(data, "pair show")
        }
        PairCommand::Switch(args) => switch(args),
        PairCommand::Takeover {
            data,
            force,
            output,
        } => {
            configured(data)?;
            ensure!(
                force,
                "cannot take over without --force: a standby takes over by itself when its primary is gone. --force makes this node \
                 serve its data, even if acknowledged changes are missing; the other node has to be off for good"
            );
            output.send_request(data, "pair takeover --force")
        }
        PairCommand::Resync {
            data,
            everything,
            output,
        } => {
            configured(data)?;
            let words = match everything {
                true => "pair resync --everything",
                false => "pair resync",
            };
            output.send_request(data, words)
        }
        PairCommand::Verify {
            data,
            repair,
            output,
        } => {
            configured(data)?;
            let words = if *repair {
                "pair verify --repair"
            } else {
                "pair verify"
            };
            let _task = Task::begin(
                "comparing the two copies",
                "the comparison goes on in the server; `weir pair show` has its result",
            )?;
            output.send_request(data, words)
        }
        PairCommand::Delete { data, output } => {
            configured(data)?;
            ensure!(
                control_socket::query(data, "pair show").is_err(),
                "a server runs on {}: stop it first",
                data.display()
            );
            Config::delete(data)?;
            weir_pair_node::own_register::forget(data)?;
            output.print(
                &json!({"data": data.to_string_lossy(), "pair": false}),
                format_args!(
                    "{} is no pair's any more; it can be served by itself. Do the same on the other node, and never serve both: \
                     their clients could not tell them apart",
                    data.display()
                ),
            )
        }
    }
}

/// Makes the partner serve, or asks whether it could.
fn switch(args: &PairSwitch) -> Result<()> {
    configured(&args.data)?;
    let request = match args.validate_only {
        true => "pair switch --validate-only",
        false => "pair switch",
    };
    args.output.send_request(&args.data, request)
}

/// Makes a folder side a of a new pair.
fn create(args: &PairCreate) -> Result<()> {
    let node = &args.node;
    let data = &node.folder.data;
    decided(&node.decider)?;
    address::admissible(&node.address)?;
    let id = make(&node.folder, None)?;
    let config = Config {
        listen: Some(args.listen),
        ..config(Name::A, node)
    };
    config.write(data)?;
    let own = Identity::open(data)?.fingerprint;
    let join = format!(
        "weir pair join --data DIR --aggregate {id} --partner {} \\\n    --partner-certificate {own}{}",
        args.listen,
        same(node),
    );
    let done = json!({
        "side": "a",
        "data": data.to_string_lossy(),
        "aggregate": id,
        "certificate": own,
        "next": join.replace("\\\n    ", ""),
    });
    args.output.print(
        &done,
        format_args!(
            "side a of a new pair: {}\naggregate    {id}\ncertificate  {own}\nOn the other node:\n  {join}\nand then here what that prints.",
            data.display(),
        ),
    )
}

/// Makes a folder side b of a pair.
fn join(args: &PairJoin) -> Result<()> {
    let node = &args.node;
    let data = &node.folder.data;
    decided(&node.decider)?;
    address::admissible(&node.address)?;
    let id = uuid::Uuid::parse_str(&args.aggregate)
        .map_err(|error| usage::error(format!("--aggregate is no UUID: {error}")))?;
    let partner = fingerprint(&args.partner_certificate)?;
    make(&node.folder, Some(AggregateId(*id.as_bytes())))?;
    let config = Config {
        partner_address: Some(args.partner.clone()),
        partner: Some(partner),
        ..config(Name::B, node)
    };
    config.write(data)?;
    let own = Identity::open(data)?.fingerprint;
    let accept = format!("weir pair accept --data DIR {own}");
    let done = json!({
        "side": "b",
        "data": data.to_string_lossy(),
        "aggregate": args.aggregate,
        "certificate": own,
        "next": accept,
    });
    args.output.print(
        &done,
        format_args!(
            "side b of the pair: {}\ncertificate  {own}\nOn the other node:\n  {accept}\nThen start `weir serve` on both.",
            data.display()
        ),
    )
}

/// Returns the configuration of a side that does not know its partner yet.
fn config(side: Name, node: &PairNode) -> Config {
    Config {
        side,
        listen: None,
        partner_address: None,
        partner: None,
        witness: witness_of(&node.decider),
        preferred: node.decider.preferred,
        address_hook: node.address_hook.clone(),
        addresses: node.address.clone(),
        mode: node.mode,
    }
}

fn configured(data: &Path) -> Result<Config> {
    Config::read(data)?.with_context(|| format!("{} is not one of a pair", data.display()))
}

fn decided(decider: &PairDecider) -> Result<()> {
    let wrong = match &decider.witness {
        None if decider.preferred.is_none() => Some(
            "missing --witness HOST:PORT --witness-certificate SHA256 (`weir witness`), or, without a witness, --preferred a \
             or b: that side goes on alone when the nodes are apart, and the other takes over only by hand",
        ),
        None => None,
        Some(address) => {
            let shared = postgres::is_database(address) || rados::is_pool(address);
            match (shared, &decider.witness_certificate) {
                (false, None) => Some(
                    "missing --witness-certificate SHA256 (`weir witness --data DIR --show` there prints it)",
                ),
                (true, Some(_)) => {
                    Some("a database or a pool of Ceph has no --witness-certificate")
                }
                _ => None,
            }
        }
    };
    if let Some(wrong) = wrong {
        return Err(usage::error(wrong));
    }
    if let Some(address) = decider.witness.as_deref().filter(|at| rados::is_pool(at)) {
        address
            .parse::<rados::PoolAddress>()
            .map_err(usage::error)?;
    }
    if let Some(print) = &decider.witness_certificate {
        fingerprint(print)?;
    }
    Ok(())
}

fn witness_of(decider: &PairDecider) -> Option<WitnessAt> {
    let fingerprint = decider.witness_certificate.clone().unwrap_or_default();
    let address = decider.witness.clone()?;
    Some(WitnessAt {
        address,
        fingerprint,
    })
}

/// Returns the options that both nodes must have alike: decider, mode and addresses.
fn same(node: &PairNode) -> String {
    let mode = match node.mode {
        Mode::Durable => "",
        Mode::Memory => " --mode memory",
    };
    let addresses = node.address.iter();
    let addresses: String = addresses
        .map(|address| format!(" --address {address}"))
        .collect();
    format!("{}{mode}{addresses}", same_decider(&node.decider))
}

fn same_decider(decider: &PairDecider) -> String {
    match (witness_of(decider), decider.preferred) {
        (Some(at), _) if at.fingerprint.is_empty() => {
            format!(
                " \\\n    --witness '{}'",
                postgres::redact_password(&at.address)
            )
        }
        (Some(at), _) => format!(
            " \\\n    --witness {} --witness-certificate {}",
            at.address, at.fingerprint
        ),
        (None, Some(side)) => format!(" --preferred {}", format!("{side:?}").to_lowercase()),
        (None, None) => String::new(),
    }
}

fn fingerprint(text: &str) -> Result<String> {
    let plain = text.to_ascii_lowercase().replace(':', "");
    let hex = plain.len() == 64 && plain.bytes().all(|b| b.is_ascii_hexdigit());
    match hex {
        true => Ok(plain),
        false => Err(usage::error(format!(
            "'{text}' is no SHA-256 of a certificate: 64 hexadecimal digits"
        ))),
    }
}

/// Creates an empty aggregate in a folder that has none. Side A may have one already; `id` is
/// `None` then.
fn make(folder: &PairFolder, id: Option<AggregateId>) -> Result<String> {
    let data = &folder.data;
    if Config::read(data)?.is_some() {
        bail!(
            "{} is one of a pair already; `weir pair delete` ends it",
            data.display()
        );
    }
    let mut location = place::in_folder(data, folder.log_dir.as_deref());
    let env = check::environment()?;
    if data.exists() && fs::read_dir(data)?.next().is_some() {
        ensure!(
            id.is_none(),
            "{} is not empty, and the second copy of an aggregate is made anew: take an empty folder",
            data.display()
        );
        let (held, _folder, _) = Aggregate::inspect(&location.into(), &env.pool)
            .with_context(|| format!("{} holds something else", data.display()))?;
        // What it holds is at no position that a partner could have.
        State::new(Register::first(Side::A), true).write(data)?;
        return Ok(held.superblock.id.to_string());
    }
    if let Some(size) = folder.size {
        location.max_blocks = size.0 / weir_base::BLOCK_SIZE as u64;
        location.device_blocks = location.device_blocks.min(location.max_blocks);
    }
    let location = location.into();
    let (aggregate, _) = match id {
        Some(id) => Aggregate::create_copy(&location, env, id),
        None => Aggregate::create(&location, env),
    }?;
    data_folder::close_to_others(data)?;
    Ok(aggregate.id().to_string())
}

/// Returns the address of a witness, whose options are complete.
fn listen_at(args: &WitnessArgs) -> Result<SocketAddr> {
    if args.output.json {
        return Err(usage::error("--json is for --show"));
    }
    if args.node.is_empty() && args.listen.is_some() {
        return Err(usage::error(
            "missing --node SHA256, the certificate of each node (`weir pair create` and `join` print them)",
        ));
    }
    let missing = || usage::error("missing --listen ADDR:PORT");
    args.listen.ok_or_else(missing)
}

/// `weir witness`: keeps registers for pairs until it is ended.
pub fn witness(args: &WitnessArgs) -> Result<()> {
    let identity = || {
        fs::create_dir_all(&args.data).with_context(|| args.data.display().to_string())?;
        data_folder::close_to_others(&args.data)?;
        Identity::open(&args.data)
    };
    if args.show {
        let own = identity()?.fingerprint;
        return args.output.print(&json!({"certificate": own}), own);
    }
    let listen = listen_at(args)?;
    let nodes = args
        .node
        .iter()
        .map(|n| fingerprint(n))
        .collect::<Result<Vec<_>>>()?;
    // Before anything is created.
    let bound = std::net::TcpListener::bind(listen);
    let bound = bound.map_err(|error| {
        port::refused(
            listen,
            "the witness",
            "stop it, or pass --listen ADDR:PORT",
            &error,
        )
    })?;
    bound.set_nonblocking(true)?;
    let identity = identity()?;
    let registers = args.data.join("registers");
    fs::create_dir_all(&registers)?;
    let keeper = Arc::new(Mutex::new(FileWitness::open(&registers)?));
    let config = identity.server(AdmittedCertificates::These(nodes))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(bound)?;
        let at = listener.local_addr()?;
        println!("witness on {at}\ncertificate {}", identity.fingerprint);
        if let Some(path) = &args.ready_file {
            fs::write(path, format!("{at}\n"))?;
        }
        let door = Arc::new(Door::default());
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (config, keeper) = (Arc::clone(&config), Arc::clone(&keeper));
            // Without this, it is slower.
            let _ = stream.set_nodelay(true);
            let guest = door.enter(from.ip());
            tokio::spawn(async move {
                let greeted = guest.greet(TlsAcceptor::from(config).accept(stream)).await;
                let tls = match greeted {
                    Some(Ok(tls)) => tls,
                    Some(Err(error)) => {
                        let why = in_words(&error.into());
                        return tracing::info!(%from, "refused a connection without a node's certificate: {why}");
                    }
                    None => return tracing::debug!(%from, "a connection was silent, or gave way"),
                };
                guest.admitted();
                let replied = tokio::time::timeout(QUESTION, reply(tls, &keeper)).await;
                match replied {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%from, "no reply: {}", in_words(&error)),
                    Err(_) => tracing::warn!(%from, "closed a connection: node too slow"),
                }
            });
        }
    })
}

async fn reply(mut tls: TlsStream<TcpStream>, keeper: &Mutex<FileWitness>) -> Result<()> {
    let mut question = [0; ask::LENGTH];
    tls.read_exact(&mut question).await?;
    let said = ask::answer(&question, &mut *keeper.lock()).context("reading a question")?;
    tls.write_all(&said).await?;
    tls.flush().await?;
    // The node may have closed it.
    let _ = tls.shutdown().await;
    Ok(())
}
