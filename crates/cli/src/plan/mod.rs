//! Sizing: what to provision for a list of volumes, and what it costs.
//!
//! # The problem
//!
//! Volume *i* wants capacity *cᵢ* and throughput *tᵢ*. A storage pool of a service level with rate
//! *r* (MiB/s for each TiB) and price *p* (for each TiB) is bought by the TiB. What is the least
//! that must be bought?
//!
//! **Automatic QoS.** A volume's limit is its capacity times *r*, so a volume is made larger than
//! its data where its throughput wants it: `Σ max(cᵢ, tᵢ/r)`. Volumes do not affect each other, so
//! with prices each takes the level that is cheapest for it alone.
//!
//! **Manual QoS.** The pool's throughput is dealt out by hand: `max(Σ cᵢ, Σ tᵢ/r)`. That is never
//! more than automatic QoS needs (the maximum of sums is at most the sum of maxima), and less
//! exactly when some volumes are bound by capacity and others by throughput.
//!
//! **Several levels under manual QoS.** Buying *Pₗ* TiB of each level must satisfy `Σ Pₗ ≥ C` and
//! `Σ rₗ·Pₗ ≥ T`: a linear program with two constraints, whose optimum therefore uses at most two
//! levels. It is the lower bound that is reported. Volumes are not divisible, so the layouts that
//! are tried are all single levels, and for each pair of levels all splits of the volumes ordered
//! by `tᵢ/cᵢ`, the densest in the faster pool. These are n+1 splits for a pair, each with its exact
//! cost. That is no proof of optimality (placing indivisible volumes is NP-hard); the distance to
//! the bound is shown instead.
//!
//! **Flex.** A pool's volumes share its throughput, none has a limit of its own: `max(Σ cᵢ, Σ
//! tᵢ/r)` again, but without the guarantee. With custom performance capacity and throughput are
//! bought apart. It is considered only where asked for.
//!
//! **Filestore.** An instance holds one share; read and write limits, of bytes and of operations,
//! follow its capacity in bands or in steps. The smallest capacity at which all four suffice is
//! found band by band, and the number of clients that it takes where each client is limited too.
//!
//! **Caps.** A volume does at most 4.5 GiB/s, a large one 30 GiB/s with at least 15 TiB. Pools and
//! volumes have greatest sizes; pools that would exceed theirs are split, first fit by decreasing
//! size. Every cap that changed the plan is named. The figures of the levels are those that the
//! server enforces: the same file.

#![allow(rustdoc::broken_intra_doc_links)] // Brackets in help texts enclose what may be left out.

mod filestore;
mod input;
mod levels;
mod show;
mod solve;

use clap::Args;

use crate::args::Common;
use crate::error::Error;
use crate::values;

/// `weir plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A volume: name=NAME,capacity=CAPACITY[,throughput=MIBPS][,large=BOOLEAN]; for Filestore
    /// also read-throughput, write-throughput, read-iops, write-iops (repeat for several)
    #[arg(long, value_name = "VOLUME", value_parser = values::dict)]
    pub volume: Vec<values::Dict>,
    /// A file of volumes with the same fields: .csv, .toml ([[volume]]) or .json
    #[arg(long, value_name = "FILE")]
    pub volumes: Option<std::path::PathBuf>,
    /// Service levels to choose from
    #[arg(
        long,
        value_name = "LEVEL,…",
        default_value = "standard,premium,extreme",
        value_parser = values::enumerators
    )]
    pub levels: values::List,
    /// Filestore tiers to size as well: 'all', or some
    #[arg(long, value_name = "TIER,…", value_parser = values::enumerators)]
    pub filestore: Option<values::List>,
    /// Prices (TOML): [per-tib] LEVEL = PRICE, [per-mibps], [per-1000-iops]; without, capacities
    /// are compared
    #[arg(long, value_name = "FILE")]
    pub prices: Option<std::path::PathBuf>,
    /// Service levels of the server's own, as given to weir serve
    #[arg(long, value_name = "FILE")]
    pub service_levels: Option<std::path::PathBuf>,
    /// Print the commands that make the cheapest plan
    #[arg(long, conflicts_with = "json")]
    pub apply_script: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// Makes the plan and returns it as it is to be printed.
///
/// # Errors
/// Input that is none, and volumes for which nothing suffices.
pub fn run(args: &PlanArgs) -> Result<String, Error> {
    let needs = input::needs(&args.volume, args.volumes.as_deref())?;
    let prices = input::prices(args.prices.as_deref())?;
    let table = levels::table(args.service_levels.as_deref())?;
    let levels = levels::chosen(
        &table.pool_level,
        &args.levels.0,
        |l| &l.name,
        "service level",
    )?;
    let plan = solve::plan(&needs, &levels, &prices).map_err(Error::Other)?;
    let instances = match &args.filestore {
        None => Vec::new(),
        Some(names) => {
            let all: Vec<String> = table.tier.iter().map(|t| t.name.clone()).collect();
            let names = if names.0 == ["ALL"] { &all } else { &names.0 };
            let tiers = levels::chosen(&table.tier, names, |t| &t.name, "tier")?;
            filestore::instances(&needs, &tiers, &prices)
        }
    };
    if args.apply_script {
        return Ok(show::script(&plan)?);
    }
    let format = args.common.format();
    Ok(show::print(&plan, &instances, &prices, format)?)
}
