//! `weir upgrade`: the format of a data folder, brought to what this program can write.
//!
//! Two things are durable and refuse an earlier program: format features, which only this command
//! switches on, and the catalog's version, which a start migrates as well, after it has copied the
//! catalog.

use anyhow::{Context, Result, bail};
use serde_json::json;
use weir_control::CatalogVersion;
use weir_store::features::FolderFormat;
use weir_store::folder;

use crate::cli::Upgrade;
use crate::plane;
use crate::progress::Task;

/// Reports the format, and unless it is a dry run switches on what is off and migrates the catalog.
pub fn run(args: &Upgrade) -> Result<()> {
    let format = folder::format(&args.data)?;
    let url = plane::catalog(args.catalog.as_deref(), &args.data)?;
    let runtime = plane::event_loop()?;
    let catalog = runtime
        .block_on(weir_control::version(&url))
        .context("reading the catalog's version")?;
    let mut switched = Vec::new();
    let mut migrated = false;
    if !args.dry_run {
        if let Some(process) = folder::holder(&args.data) {
            bail!(
                "cannot upgrade {}: process {process} is serving it (stop it first, or pass --dry-run)",
                args.data.display()
            );
        }
        // The catalog comes first: it may lack space, and it has a copy to go back to.
        if catalog.is_older() {
            let _task = Task::reading(
                "migrating the catalog",
                "run it again; a migration is made as a whole or not at all",
            )?;
            runtime
                .block_on(weir_control::migrate(&url))
                .context("migrating the catalog")?;
            migrated = true;
        }
        switched = folder::switch_features_on(&args.data)?;
    }
    let data = json!({
        "data": args.data.to_string_lossy(),
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
fn text(args: &Upgrade, format: &FolderFormat, catalog: CatalogVersion) -> String {
    let on = match format.on.as_slice() {
        [] => "none".to_owned(),
        on => on.join(", "),
    };
    let mut out = format!(
        "data folder   {}\nformat        version {}, the newest of this program\nfeatures on   {on}\n",
        args.data.display(),
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
            "Nothing was changed. An earlier Weir will refuse the folder once it is upgraded."
        }
        (false, false) => "An earlier Weir refuses the folder from now on.",
    };
    out
}
