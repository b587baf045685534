//! `weir catalog rebuild`: rebuilds the catalog from the metadata of the volumes, while no server
//! runs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use weir_auth::ad;
use weir_base::{Clock, Rng};
use weir_control::levels::Levels;
use weir_control::{
    Control, CopyOf, Options, Protocol, Rebuilt, RebuiltPool, RebuiltVolume, Surface, file_of,
};
use weir_store::Aggregate;
use weir_vfs::{HandleKey, Vfs};
use weir_volume::{Engine, EngineOptions};

use crate::aggregate::place::AggregatePlace;
use crate::cli::Rebuild;
use crate::cli::progress::Task;
use crate::commands::check;
use crate::control::plane;
use weir_node::backend::{self, Node};

/// Opens the data folder as a server does, creates rows for the volumes that the catalog lacks, and
/// prints them.
pub fn rebuild(args: &Rebuild) -> Result<()> {
    let env = check::environment()?;
    let (clock, rng) = (Arc::clone(&env.clock), Arc::clone(&env.rng));
    let levels = match &args.service_levels {
        Some(path) => {
            Levels::with_file(path).with_context(|| format!("--service-levels {}", path.display()))
        }
        None => Levels::built_in().context("reading the built-in service levels"),
    }?;
    let place = AggregatePlace::find(&args.rados, &args.data, args.catalog.as_deref())?;
    let url = place.catalog_url()?;
    let taken = place.take("rebuild the catalog of")?;
    let location = taken.location(args.log_dir.as_deref());
    let task = Task::reading(
        &format!("rebuilding the catalog of {}", args.data.display()),
        "run it again; what was made anew so far stays",
    )?;
    // Its lock keeps servers out meanwhile.
    let (aggregate, replay) = Aggregate::open(&location, env)?;
    let id = aggregate.id().to_string();
    let engine = Engine::open(aggregate, replay, &*rng, EngineOptions::default())
        .context("opening the volumes")?;
    let engine = Arc::new(engine);
    let runtime = plane::event_loop()?;
    let mut damaged = None;
    let rebuilt = runtime.block_on(async {
        let names = engine
            .volumes()
            .iter()
            .map(|v| v.name().to_owned())
            .collect();
        let seen = weir_control::inspect(&url, &id, &names).await;
        if let (true, Some(file)) = (seen.damaged, file_of(&url)) {
            let kept = set_aside(&file)?;
            if !args.output.json {
                println!(
                    "the catalog was damaged ({}); it is kept as {}",
                    seen.faults.join("; "),
                    kept.display()
                );
            }
            damaged = Some(kept);
        }
        make(&url, levels, &engine, &clock, &rng).await
    });
    let ended = engine.shutdown();
    let rebuilt = rebuilt?;
    ended.map_err(|error| anyhow!("writing the last checkpoint: {error}"))?;
    taken.keep_catalog()?;
    drop(task);
    // A server that has left its domain has the file, with nothing in it.
    let of_domain = fs::metadata(args.data.join(ad::FILE));
    if args.output.json {
        return args.output.print(&data(&rebuilt, damaged.as_deref()), "");
    }
    report(&rebuilt, of_domain.is_ok_and(|file| file.len() > 0))
}

async fn make(
    url: &str,
    levels: Levels,
    engine: &Arc<Engine>,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> Result<Rebuilt> {
    let space = engine.aggregate().space().stats();
    let device_blocks = space.capacity();
    // Nothing is served from here.
    let vfs = Vfs::new(HandleKey::new([0; 16], [0; 16]));
    let node = Node::new(backend::Parts::new(
        Arc::clone(engine),
        vfs,
        Arc::clone(clock),
        Arc::clone(rng),
        Vec::new(),
    ));
    let options = Options {
        catalog: url.to_owned(),
        levels,
        instance_addresses: None,
        backend: Arc::new(node),
        clock: Arc::clone(clock),
        rng: Arc::clone(rng),
        device_bytes: device_blocks * weir_base::BLOCK_SIZE as u64,
        copy: None,
        first_place: weir_control::LocationName::local(),
    };
    Ok(Control::rebuild(options).await?)
}

/// Renames a damaged catalog and its companion files, so that nothing of it is lost; returns the
/// new name.
fn set_aside(file: &Path) -> Result<PathBuf> {
    let with = |tail: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(tail);
        PathBuf::from(name)
    };
    let mut names = (1..).map(|n| match n {
        1 => with(".damaged"),
        n => with(&format!(".damaged-{n}")),
    });
    let to = names
        .find(|name| !name.exists())
        .context("no name is left for the damaged catalog")?;
    for tail in ["-wal", "-shm", ""] {
        let mut kept = to.as_os_str().to_owned();
        kept.push(tail);
        match fs::rename(with(tail), &kept) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("renaming {}", file.display()));
            }
            _ => {}
        }
    }
    Ok(to)
}

/// Returns the result for programs. `damaged` is the place of a catalog that could not be read.
fn data(rebuilt: &Rebuilt, damaged: Option<&Path>) -> Value {
    let volume = |one: &RebuiltVolume| {
        let protocols: Vec<&str> = one.protocols.iter().map(|p| p.as_str()).collect();
        json!({
            "name": one.name.to_string(),
            "paths": one.paths,
            "madeUp": one.made_up,
            "ntfs": one.ntfs,
            "protocols": protocols,
            "lost": one.lost,
            "replicationDestination": one.copy_of.is_some(),
        })
    };
    let pool = |one: &RebuiltPool| {
        json!({
            "name": format!("{}/storagePools/{}", one.name.place, one.name.id),
            "capacityGib": one.capacity_gib,
            "known": one.known,
        })
    };
    json!({
        "volumes": rebuilt.volumes.iter().map(volume).collect::<Vec<_>>(),
        "pools": rebuilt.pools.iter().map(pool).collect::<Vec<_>>(),
        "damagedCatalog": damaged.map(Path::to_string_lossy),
    })
}

/// Prints the rebuilt volumes and pools, and for each the settings that are lost, with the command
/// that restores them. `member`: the server is a member of a domain.
fn report(rebuilt: &Rebuilt, member: bool) -> Result<()> {
    let mut out = std::io::stdout();
    let volumes = &rebuilt.volumes;
    if volumes.is_empty() {
        writeln!(out, "the catalog knows every volume; nothing was changed")?;
        return Ok(());
    }
    for one in volumes {
        let style = match one.ntfs {
            true => ", NTFS security style",
            false => "",
        };
        let from = match one.made_up {
            true => "; the engine has no record of it, so name and path are its key",
            false => "",
        };
        writeln!(out, "{}: {}{style}{from}", one.name, one.paths.join(", "))?;
    }
    writeln!(
        out,
        "{} rebuilt. No client may use these until their export policies, which cannot be recovered from the volumes, are set again; \
         SMB is left out of their protocols. What each lacks, and the command that sets it:",
        match volumes.len() {
            1 => "1 volume was".to_owned(),
            n => format!("{n} volumes were"),
        }
    )?;
    for one in volumes {
        lacking(&mut out, one)?;
    }
    for pool in &rebuilt.pools {
        capacity(&mut out, pool)?;
    }
    relationships(&mut out, volumes)?;
    if member {
        writeln!(
            out,
            "the server is a member of its domain as before; the Active Directory that pools refer to cannot be recovered from the volumes: \
             weir active-directories create"
        )?;
    }
    writeln!(
        out,
        "Not recoverable from the volumes are also labels, descriptions, storage pools without volumes, policies by name, tokens (weir tokens create) and the audit log."
    )?;
    Ok(())
}

/// Prints the settings that a volume has lost, and the command that lets clients mount it.
fn lacking(out: &mut impl Write, one: &RebuiltVolume) -> Result<()> {
    let smb = one.protocols.contains(&Protocol::Smb);
    let mut lost: Vec<&str> = one.lost.iter().map(String::as_str).collect();
    if smb {
        lost.push("SMB");
    }
    let lost = match lost.is_empty() {
        true => "clients".to_owned(),
        false => lost.join(", "),
    };
    writeln!(out, "{}: {lost}", one.name)?;
    let (name, place) = (&one.name, &one.name.place);
    let at = format!(
        "{} --project={} --location={}",
        name.id, place.project, place.location
    );
    if name.surface == Surface::Filestore {
        writeln!(
            out,
            "  weir filestore instances update {at} --flags-file=FILE   (FILE: --file-share with nfs-export-options)"
        )?;
        return Ok(());
    }
    let mut flags = String::new();
    if smb {
        let all = one.protocols.iter().map(|p| p.as_str().to_lowercase());
        let all: Vec<String> = all.collect();
        flags = format!(" --protocols={}", all.join(","));
    }
    let versions = [(Protocol::Nfsv3, "nfsv3"), (Protocol::Nfsv4, "nfsv4")];
    let spoken = versions
        .iter()
        .filter(|(protocol, _)| one.protocols.contains(protocol));
    let mut spoken: Vec<String> = spoken.map(|(_, word)| format!(",{word}=true")).collect();
    if one.protocols.is_empty() {
        spoken.push(",nfsv3=true".to_owned());
    }
    if !spoken.is_empty() {
        flags += &format!(
            " --export-policy=allowed-clients=ADDRESSES,access-type=READ_WRITE{}",
            spoken.concat()
        );
    }
    writeln!(out, "  weir volumes update {at}{flags}")?;
    Ok(())
}

/// Prints the capacity of a rebuilt pool, and the command that restores its former one.
fn capacity(out: &mut impl Write, pool: &RebuiltPool) -> Result<()> {
    let (name, gib) = (&pool.name, pool.capacity_gib);
    let words = match pool.known {
        true => "made larger for its volumes",
        false => {
            "as much as its volumes need; its capacity, throughput of its own, labels, description and Active Directory \
             cannot be recovered from the volumes"
        }
    };
    writeln!(
        out,
        "{}/storagePools/{}: {gib} GiB, {words}",
        name.place, name.id
    )?;
    writeln!(
        out,
        "  weir storage-pools update {} --project={} --location={} --capacity=GIB",
        name.id, name.place.project, name.place.location
    )?;
    Ok(())
}

/// Says of which volumes a relationship is missing now, and how each is brought back.
fn relationships(out: &mut impl Write, rebuilt: &[RebuiltVolume]) -> Result<()> {
    let path = |name: &weir_control::VolumeName| format!("{}:{}", name.place.project, name.id);
    let copies: Vec<_> = rebuilt
        .iter()
        .filter_map(|one| Some((path(&one.name), one.copy_of.as_ref()?)))
        .collect();
    if copies.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "SnapMirror relationships, their policies, schedules, peers and throttles cannot be recovered from the volumes. Of {} only \
         transfers can write, and none comes until its relationship is made again; that goes on from the newest common snapshot:",
        match copies.len() {
            1 => "1 volume".to_owned(),
            n => format!("{n} volumes"),
        }
    )?;
    for (to, copy_of) in copies {
        let (from, note) = match copy_of {
            CopyOf::Here(name) => (path(name), String::new()),
            CopyOf::Elsewhere(aggregate) => (
                "PEER://SVM/VOLUME".to_owned(),
                format!(
                    "   (made in aggregate {aggregate}; pair the nodes first: cluster peer create)"
                ),
            ),
            CopyOf::Unknown => ("SVM:VOLUME".to_owned(), String::new()),
        };
        writeln!(
            out,
            "  weir snapmirror resync --source-path {from} --destination-path {to}{note}"
        )?;
    }
    Ok(())
}
