//! Limits from a file, for tests and for measurements of limits alone: `limits FILE` over the control socket puts them
//! in force in place of those that were provisioned, until these change. `metrics` returns what `/metrics` does.
//!
//! ```json
//! {"pools": [{"id": 1, "total": {"bytes": 1000, "ops": 10}}],
//!  "volumes": [{"name": "vol1", "pool": 1, "weight": 2, "read": {"bytes": 1000}, "client": {"write": {"ops": 5}}}]}
//! ```

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weir_qos::{Limits, Plan, PoolPlan, Rate, VolumePlan};
use weir_vfs::Vfs;

use crate::control::Commands;
use crate::metrics::Metrics;

/// `limits`, `metrics` and whatever else is asked.
pub struct WithLimits<C> {
    /// Source of the text that the command `metrics` returns.
    pub metrics: Arc<Metrics>,
    /// Where limits are in force.
    pub vfs: Arc<Vfs>,
    /// Handles every other command.
    pub others: C,
}

impl<C: Commands> Commands for WithLimits<C> {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        if request == "metrics" {
            let page = self.metrics.render();
            for line in page.lines() {
                say(&format!("note {line}"))?;
            }
            return Ok(String::new());
        }
        let Some(path) = request.strip_prefix("limits ") else {
            return self.others.run(request, say);
        };
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
        let throttle = &self.vfs.throttle;
        let plan = plan(&self.vfs, &serde_json::from_str(&text)?)?;
        throttle.apply(&plan);
        Ok(format!(
            "{} pools, {} volumes",
            plan.pools.len(),
            plan.volumes.len()
        ))
    }
}

fn plan(vfs: &Vfs, from: &Value) -> Result<Plan> {
    let list = |name: &str| from.get(name).and_then(Value::as_array).cloned();
    let number = |of: &Value, name: &str| of.get(name).and_then(Value::as_u64);
    let mut plan = Plan {
        // In place of what is in force, and no newer than what will be provisioned next.
        generation: vfs.throttle.generation(),
        ..Plan::default()
    };
    for pool in list("pools").unwrap_or_default() {
        let id = number(&pool, "id").context("a pool without id")?;
        plan.pools.push(PoolPlan {
            id,
            name: format!("pool{id}").into(),
            limits: limits(&pool),
            source: "a file".into(),
        });
    }
    let table = vfs.exports();
    for volume in list("volumes").unwrap_or_default() {
        let name = volume.get("name").and_then(Value::as_str);
        let name = name.context("a volume without name")?;
        let Some((export, "")) = table.of_path(&format!("/{name}")) else {
            bail!("there is no volume {name}");
        };
        plan.volumes.push(VolumePlan {
            volume: export.volume().0,
            name: name.into(),
            pool: number(&volume, "pool").unwrap_or(0),
            limits: limits(&volume),
            client: volume.get("client").map_or(Limits::default(), limits),
            source: "a file".into(),
        });
    }
    Ok(plan)
}

fn limits(from: &Value) -> Limits {
    let rate = |name: &str| Rate {
        bytes: from.get(name).and_then(|rate| rate.get("bytes")?.as_u64()),
        ops: from.get(name).and_then(|rate| rate.get("ops")?.as_u64()),
    };
    let weight = from.get("weight").and_then(Value::as_u64);
    Limits {
        total: rate("total"),
        read: rate("read"),
        write: rate("write"),
        minimum: rate("minimum"),
        weight: weight.and_then(|w| u32::try_from(w).ok()).unwrap_or(1),
        ..Limits::default()
    }
}
