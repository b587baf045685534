//! A plan in words, as data, and as the commands that carry it out.

use serde_json::{Map, Value, json};

use super::filestore::{Instance, mb};
use super::input::Prices;
use super::solve::{Layout, Plan, Pool, Qos};
use crate::format;

impl Qos {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Shared => "shared",
            Self::Custom => "custom",
        }
    }
}

/// Returns `40`, `1.5`: at most two digits behind the point.
fn short(amount: f64) -> String {
    let text = format!("{amount:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns an amount with commas between thousands.
fn grouped(amount: f64) -> String {
    let text = short(amount);
    let (whole, rest) = match text.find('.') {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out + rest
}

fn tib(gib: u64) -> f64 {
    gib as f64 / 1024.0
}

/// Returns a number as data: whole where it is whole.
fn figure(amount: f64) -> Value {
    let rounded = (amount * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        Value::from(rounded as i64)
    } else {
        Value::from(rounded)
    }
}

/// Returns what decided a layout's size: throughput if its volumes want more for it than for data,
/// else data.
fn bound_by(layout: &Layout, plan: &Plan) -> &'static str {
    let data: u64 = plan.needs.iter().map(|n| n.gib).sum();
    if layout.gib > data {
        "throughput"
    } else {
        "capacity"
    }
}

fn pool_name(number: usize, pool: &Pool) -> String {
    format!("{}-{}-{number}", pool.level.to_lowercase(), pool.qos.word())
}

fn layout_data(layout: &Layout, plan: &Plan) -> Value {
    let pools: Vec<Value> = layout
        .pools
        .iter()
        .enumerate()
        .map(|(i, pool)| {
            let volumes: Vec<Value> = pool
                .volumes
                .iter()
                .map(|v| {
                    json!({
                        "name": v.name, "capacityGib": v.gib, "throughputMibps": figure(v.mibps),
                        "largeCapacity": v.large, "boundBy": if v.grown { "throughput" } else { "capacity" },
                    })
                })
                .collect();
            json!({
                "name": pool_name(i + 1, pool), "serviceLevel": pool.level, "qos": pool.qos.word(),
                "capacityGib": pool.gib, "totalThroughputMibps": figure(pool.mibps),
                "totalIops": pool.iops, "volumes": volumes,
            })
        })
        .collect();
    let mibps: f64 = layout.pools.iter().map(|p| p.mibps).sum();
    json!({
        "serviceLevel": layout.levels, "qos": layout.qos.word(), "poolCount": pools.len(),
        "tib": figure(tib(layout.gib)), "mibps": figure(mibps), "boundBy": bound_by(layout, plan),
        "cost": layout.cost.map(figure), "caps": layout.caps, "pools": pools,
    })
}

/// Returns the cheapest layout of a kind, by what the plan compares.
fn cheapest_of(plan: &Plan, qos: Qos, priced: bool) -> Option<&Layout> {
    let weight = |l: &&Layout| {
        if priced {
            l.cost.unwrap_or(f64::INFINITY)
        } else {
            l.gib as f64
        }
    };
    let of_kind = plan.layouts.iter().filter(|l| l.qos == qos);
    of_kind.min_by(|a, b| weight(a).total_cmp(&weight(b)))
}

fn saving(plan: &Plan, priced: bool) -> Option<Value> {
    let auto = cheapest_of(plan, Qos::Auto, priced)?;
    let manual = cheapest_of(plan, Qos::Manual, priced)?;
    let tib = tib(auto.gib) - tib(manual.gib);
    let cost = auto.cost.zip(manual.cost).map(|(a, m)| a - m);
    let (saved, of) = match (priced, cost, auto.cost) {
        (true, Some(saved), Some(of)) => (saved, of),
        _ => (tib, self::tib(auto.gib)),
    };
    let percent = if of > 0.0 { saved / of * 100.0 } else { 0.0 };
    Some(json!({
        "tib": figure(tib), "cost": cost.map(figure), "percent": figure((percent * 100.0).round() / 100.0),
        "auto": auto.levels, "manual": manual.levels,
    }))
}

fn instance_data(instance: &Instance) -> Value {
    let mut out = json!({"volume": instance.volume, "tier": instance.tier});
    let more = match &instance.sized {
        Err(reason) => json!({"refused": reason}),
        Ok(size) => json!({
            "capacityGb": size.gb, "readIops": size.limits.read_iops,
            "writeIops": size.limits.write_iops, "readMbps": figure(mb(size.limits.read_bps).round()),
            "writeMbps": figure(mb(size.limits.write_bps).round()), "clients": size.clients,
            "cost": size.cost.map(figure),
        }),
    };
    if let (Value::Object(out), Value::Object(more)) = (&mut out, more) {
        out.extend(more);
    }
    out
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn data(plan: &Plan, instances: &[Instance], prices: &Prices) -> Value {
    let priced = !prices.per_tib.is_empty();
    let layouts: Vec<Value> = plan.layouts.iter().map(|l| layout_data(l, plan)).collect();
    let refused: Map<String, Value> = plan
        .refused
        .iter()
        .map(|(l, r)| (l.clone(), Value::from(r.as_str())))
        .collect();
    let mut out = json!({
        "cheapest": layouts.get(plan.cheapest), "layouts": layouts, "refused": refused,
        "saving": saving(plan, priced), "lowerBound": plan.bound.map(figure),
        "comparedBy": if priced { "cost" } else { "tib" },
        "currency": if prices.currency.is_empty() { Value::Null } else { Value::from(prices.currency.as_str()) },
    });
    if !instances.is_empty() {
        out["filestore"] = instances.iter().map(instance_data).collect();
    }
    without_nulls(&mut out);
    out
}

/// Returns the plan in a format, or in words.
pub fn print(
    plan: &Plan,
    instances: &[Instance],
    prices: &Prices,
    format: Option<&str>,
) -> Result<String, String> {
    let data = data(plan, instances, prices);
    let Some(format) = format else {
        return words(&data, plan, prices);
    };
    let format = format::parse(format)?;
    match format.kind {
        format::Kind::Json | format::Kind::Yaml | format::Kind::Flattened => format.one(&data),
        _ => {
            let rows = data
                .get("layouts")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            format.list(&rows, true)
        }
    }
}

fn table(columns: &str, rows: Option<&Value>) -> Result<String, String> {
    let rows = rows.and_then(Value::as_array).cloned().unwrap_or_default();
    format::parse(columns)?.list(&rows, true)
}

fn words(data: &Value, plan: &Plan, prices: &Prices) -> Result<String, String> {
    let priced = !prices.per_tib.is_empty();
    let mut out = table(
        "table(serviceLevel, qos, poolCount:label=POOLS:align=right, tib:align=right,
         mibps:align=right, boundBy, cost:optional:align=right)",
        data.get("layouts"),
    )?;
    out.push('\n');
    let Some(best) = plan.layouts.get(plan.cheapest) else {
        return Ok(out);
    };
    let money = |amount: f64| {
        format!("{} {}", grouped(amount), prices.currency)
            .trim()
            .to_owned()
    };
    let cost = best
        .cost
        .map(|c| format!(", {} a month", money(c)))
        .unwrap_or_default();
    let what = if priced { "Cheapest" } else { "Least capacity" };
    let qos = match best.qos {
        Qos::Auto => "automatic QoS",
        Qos::Manual => "manual QoS",
        Qos::Shared => "throughput shared by all volumes",
        Qos::Custom => "custom performance, shared by all volumes",
    };
    out.push_str(&format!(
        "{what}: {}, {qos}, {} TiB{cost}\n",
        best.levels,
        grouped(tib(best.gib))
    ));
    for (i, pool) in best.pools.iter().enumerate() {
        out.push_str(&format!(
            "  {}: {} TiB, {} MiB/s, {} volumes\n",
            pool_name(i + 1, pool),
            grouped(tib(pool.gib)),
            grouped(pool.mibps),
            pool.volumes.len()
        ));
    }
    let grown = best
        .pools
        .iter()
        .flat_map(|p| &p.volumes)
        .filter(|v| v.grown)
        .count();
    if grown > 0 {
        out.push_str(&format!(
            "  larger than the data, for throughput or a cap: {grown} of the volumes\n"
        ));
    }
    for cap in &best.caps {
        out.push_str(&format!("  {cap}\n"));
    }
    if let Some(saving) = data.get("saving") {
        let number = |name: &str| saving.get(name).and_then(Value::as_f64);
        let amount = match (priced, number("cost")) {
            (true, Some(cost)) => format!("{} a month", money(cost)),
            _ => format!("{} TiB", grouped(number("tib").unwrap_or(0.0))),
        };
        out.push_str(&format!(
            "Manual QoS saves {amount} ({} %) over automatic QoS\n",
            short(number("percent").unwrap_or(0.0))
        ));
    }
    if let (Some(bound), true) = (plan.bound, priced) {
        out.push_str(&format!(
            "No layout with a throughput for each volume costs less than {}\n",
            money(bound)
        ));
    }
    for (level, reason) in &plan.refused {
        out.push_str(&format!("{level} does not do: {reason}\n"));
    }
    if !priced {
        out.push_str("Service levels differ in price: give --prices to compare them\n");
    }
    if data.get("filestore").is_some() {
        out.push('\n');
        out.push_str(&table(
            "table(volume, tier, capacityGb:align=right, readIops:align=right,
             writeIops:align=right, readMbps:align=right, writeMbps:align=right,
             clients:align=right, cost:optional:align=right, refused:optional)",
            data.get("filestore"),
        )?);
    }
    Ok(out)
}

/// Returns a word of a shell's command line.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the commands that make the cheapest layout.
pub fn script(plan: &Plan) -> Result<String, String> {
    let best = plan.layouts.get(plan.cheapest).ok_or("there is no plan")?;
    let mut out = String::from("#!/bin/sh\nset -e\n");
    for (i, pool) in best.pools.iter().enumerate() {
        let name = pool_name(i + 1, pool);
        let qos = match pool.qos {
            Qos::Auto => " --qos-type=auto".to_owned(),
            Qos::Manual => " --qos-type=manual".to_owned(),
            Qos::Shared => String::new(),
            Qos::Custom => {
                let iops = match pool.iops {
                    0 => String::new(),
                    iops => format!(" --total-iops={iops}"),
                };
                format!(
                    " --custom-performance-enabled=true --total-throughput={}{iops}",
                    pool.mibps.ceil().max(1.0)
                )
            }
        };
        out.push_str(&format!(
            "weir storage-pools create {} --service-level={} --capacity={}{qos}\n",
            quoted(&name),
            quoted(&pool.level.to_lowercase()),
            pool.gib
        ));
        for volume in &pool.volumes {
            let throughput = match pool.qos {
                Qos::Manual if volume.mibps > 0.0 => {
                    format!(" --throughput-mibps={}", volume.mibps)
                }
                _ => String::new(),
            };
            let large = if volume.large {
                " --large-capacity=true"
            } else {
                ""
            };
            out.push_str(&format!(
                "weir volumes create {0} --storage-pool={1} --capacity={2} --protocols=nfsv3 \
                 --share-name={0}{throughput}{large}\n",
                quoted(&volume.name),
                quoted(&name),
                volume.gib
            ));
        }
    }
    Ok(out)
}
