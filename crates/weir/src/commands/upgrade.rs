//! `weir upgrade`: the format of an aggregate, brought to what this program can write.
//!
//! Two things are durable and refuse an earlier program: format features, which only this command
//! switches on, and the catalog's version, which a start migrates as well, after it has copied the
//! catalog.

use anyhow::{Context, Result};
use serde_json::json;
use weir_control::CatalogVersion;
use weir_store::features::AggregateFormat;

use crate::aggregate::place::AggregatePlace;
use crate::cli::Upgrade;
use crate::cli::progress::Task;
use crate::control::plane;

/// Reports the format, and unless it is a dry run switches on what is off and migrates the catalog.
pub fn run(args: &Upgrade) -> Result<()> {
    let place = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let format = place.format()?;
    let catalog = place.catalog_version()?;
    let mut switched = Vec::new();
    let mut migrated = false;
    if !args.dry_run {
        let taken = place.take("upgrade")?;
        // The catalog comes first: it may lack space, and it has a copy to go back to.
        if catalog.is_older() {
            let _task = Task::reading(
                "migrating the catalog",
                "run it again; a migration is made as a whole or not at all",
            )?;
            let url = place.catalog_url()?;
            let migrating = weir_control::migrate(&url);
            let runtime = plane::event_loop()?;
            runtime
                .block_on(migrating)
                .context("migrating the catalog")?;
            taken.keep_catalog()?;
            migrated = true;
        }
        switched = taken.switch_features_on()?;
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
