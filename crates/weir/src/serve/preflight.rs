//! Checks of `weir serve` before it creates anything: a start that is refused leaves no trace.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cli::Serve;
use crate::cli::endpoint::ApiAddress;
use crate::control::plane;
use weir_auth::library;

use crate::aggregate::place::AggregatePlace;
use crate::cli::usage;
use crate::control::{bucket, instances};
use crate::protocols::{referrals, tls};
use weir_node::exports;

/// Checks the options, the files that they name and the catalog. Returns true for a first start,
/// which creates the aggregate, and the aggregate's place.
///
/// # Errors
/// An option or file is invalid; the cluster cannot be reached; the catalog cannot be opened, or
/// belongs to another aggregate.
pub fn check(args: &Serve) -> Result<(bool, AggregatePlace<'_>)> {
    options(args)?;
    let aggregate = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let exists = aggregate.exists()?;
    if !exists {
        check_first(args)?;
    }
    Ok((!exists, aggregate))
}

/// Checks the options and the files that they name.
///
/// # Errors
/// An option or file is invalid.
pub fn options(args: &Serve) -> Result<()> {
    let rules = exports::rules(&args.export_options).map_err(usage::error)?;
    tls::config(args, &rules)?;
    instances::check(args)?;
    bucket::open(&args.backups).map_err(usage::error)?;
    referrals::read(&args.nfs4_referral).map_err(usage::error)?;
    plane::check(args)?;
    if let Some(path) = &args.krb5_keytab {
        library::check(path)?;
    }
    if let Some(path) = &args.ready_file {
        folder_of(path).with_context(|| format!("--ready-file {}", path.display()))?;
    }
    Ok(())
}

/// Checks what a first start takes.
fn check_first(args: &Serve) -> Result<()> {
    if let ApiAddress::At(at) = args.api {
        ensure!(
            at.ip().is_loopback() || args.api_token_file.is_some(),
            "cannot serve the API at {at} from a new data folder: it has no token yet (pass --api-token-file FILE; \
             or start with --api 127.0.0.1:{}, create one with `weir tokens create NAME --role admin`, and start again)",
            at.port()
        );
    }
    let Some(url) = &args.catalog else {
        plane::in_folder(&args.data)?;
        return Ok(());
    };
    if let Some(path) = weir_control::file_of(url) {
        let within = path.parent().is_some_and(|folder| folder == args.data);
        if !within {
            folder_of(&path).with_context(|| format!("--catalog {url}"))?;
        }
    }
    let runtime = plane::event_loop()?;
    Ok(runtime.block_on(weir_control::probe(url))?)
}

/// Checks that the folder of a file that is to be created exists.
fn folder_of(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    ensure!(
        folder.is_dir(),
        "folder {} does not exist",
        folder.display()
    );
    Ok(())
}
