//! `weir upgrade`: the format of an aggregate, brought to what this program can write.
//!
//! Two things are durable and refuse an earlier program: format features, which only this command
//! switches on, and the catalog's version, which a start migrates as well, after it has copied the
//! catalog.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use weir_base::{Clock, SystemClock, small_file};
use weir_control::CatalogVersion;
use weir_rados_store::{Connected, Place};
use weir_store::features::AggregateFormat;
use weir_store::folder;

use crate::aggregate::rados::{self, CATALOG, Held};
use crate::cli::Upgrade;
use crate::cli::progress::Task;
use crate::control::plane;

/// Place of the aggregate.
enum At<'a> {
    /// The data folder.
    Folder,
    /// Objects that a server may own.
    Rados(Connected, &'a Place),
}

impl At<'_> {
    fn of(args: &Upgrade) -> Result<At<'_>> {
        let connected = rados::connect(&args.rados, &args.data)?;
        Ok(match (connected, &args.rados.aggregate) {
            (Some(connected), Some(place)) => At::Rados(connected, place),
            _ => At::Folder,
        })
    }

    fn format(&self, args: &Upgrade) -> Result<AggregateFormat> {
        match self {
            At::Folder => Ok(folder::format(&args.data)?),
            At::Rados(connected, place) => {
                connected.format()?.with_context(|| rados::missing(place))
            }
        }
    }

    /// Returns the version of the catalog as it is, with a server or without one.
    fn catalog_version(&self, args: &Upgrade) -> Result<CatalogVersion> {
        let runtime = plane::event_loop()?;
        let url = plane::catalog(args.catalog.as_deref(), &args.data)?;
        let version = |url: &str| {
            let read = runtime.block_on(weir_control::version(url));
            read.context("reading the catalog's version")
        };
        let (At::Rados(connected, _), Some(_)) = (self, weir_control::file_of(&url)) else {
            return version(&url);
        };
        // The folder's copy may be an old one.
        let folder = tempfile::tempdir().context("making a folder for a copy of the catalog")?;
        if let Some(bytes) = connected.read_file(CATALOG)? {
            small_file::replace(folder.path(), CATALOG, &bytes)?;
        }
        version(&plane::catalog(None, folder.path())?)
    }

    /// Keeps servers away from an aggregate on RADOS; a folder is locked while it is changed.
    fn hold(&self, args: &Upgrade) -> Result<Option<Held>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        match self {
            At::Folder => match folder::holder(&args.data) {
                Some(process) => bail!(
                    "cannot upgrade {}: process {process} is serving it (stop it first, or pass --dry-run)",
                    args.data.display()
                ),
                None => Ok(None),
            },
            At::Rados(connected, place) => {
                let catalog = args.catalog.as_deref();
                Held::of(connected, place, &args.data, catalog, &clock).map(Some)
            }
        }
    }
}

/// Reports the format, and unless it is a dry run switches on what is off and migrates the catalog.
pub fn run(args: &Upgrade) -> Result<()> {
    let at = At::of(args)?;
    let format = at.format(args)?;
    let catalog = at.catalog_version(args)?;
    let mut switched = Vec::new();
    let mut migrated = false;
    if !args.dry_run {
        let held = at.hold(args)?;
        // The catalog comes first: it may lack space, and it has a copy to go back to.
        if catalog.is_older() {
            let _task = Task::reading(
                "migrating the catalog",
                "run it again; a migration is made as a whole or not at all",
            )?;
            let url = plane::catalog(args.catalog.as_deref(), &args.data)?;
            let migrating = weir_control::migrate(&url);
            let runtime = plane::event_loop()?;
            runtime
                .block_on(migrating)
                .context("migrating the catalog")?;
            if let Some(held) = &held {
                held.keep_catalog()?;
            }
            migrated = true;
        }
        switched = match &held {
            Some(held) => held.switch_features_on()?,
            None => folder::switch_features_on(&args.data)?,
        };
    }
    let data = json!({
        "data": args.data.to_string_lossy(),
        "aggregate": args.rados.aggregate.as_ref().map(ToString::to_string),
        "dryRun": args.dry_run,
        "formatVersion": format.version,
        "featuresOn": format.on,
        "featuresOff": format.off.iter().map(|one| json!({"name": one.name, "about": one.about})).collect::<Vec<_>>(),
        "switchedOn": switched,
        "catalogVersion": catalog.found,
        "catalogVersionOfProgram": catalog.known,
        "catalogMigrated": migrated,
    });
    args.output.print(&data, text(args, &format, catalog))
}

/// Returns the report for people.
fn text(args: &Upgrade, format: &AggregateFormat, catalog: CatalogVersion) -> String {
    let on = match format.on.as_slice() {
        [] => "none".to_owned(),
        on => on.join(", "),
    };
    let place = match &args.rados.aggregate {
        Some(place) => format!("aggregate     {place}"),
        None => format!("data folder   {}", args.data.display()),
    };
    let mut out = format!(
        "{place}\nformat        version {}, the newest of this program\nfeatures on   {on}\n",
        format.version,
    );
    for feature in &format.off {
        out += &format!(
            "{} {}: {}\n",
            match args.dry_run {
                true => "would switch on",
                false => "switched on",
            },
            feature.name,
            feature.about
        );
    }
    let (found, known) = (catalog.found, catalog.known);
    out += &match (found, catalog.is_older(), args.dry_run) {
        (None, ..) => "catalog       none yet; the first start makes one\n".to_owned(),
        (Some(found), false, _) => {
            format!("catalog       version {found}, the newest of this program\n")
        }
        (Some(found), true, true) => format!(
            "catalog       version {found}; would be migrated to {known}, after a copy of it was made\n"
        ),
        (Some(found), true, false) => {
            format!("catalog       migrated from version {found} to {known}\n")
        }
    };
    out += match (format.off.is_empty() && !catalog.is_older(), args.dry_run) {
        (true, _) => "Nothing is left to switch on.",
        (false, true) => {
            "Nothing was changed. An earlier Weir will refuse the aggregate once it is upgraded."
        }
        (false, false) => "An earlier Weir refuses the aggregate from now on.",
    };
    out
}
