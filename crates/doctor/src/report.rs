//! Findings for people and for programs.

use std::io::{Result, Write};

use serde_json::json;

use crate::facts::{Facts, LIMITS};
use crate::finding::{Finding, Plan};

/// The longest line of running text.
const WIDTH: usize = 96;

/// The findings and the plan as text, for people.
pub fn text(out: &mut impl Write, facts: &Facts, findings: &[Finding], plan: &Plan) -> Result<()> {
    writeln!(
        out,
        "Linux {}; {} network mounts",
        facts.kernel.name,
        facts.mounts.len()
    )?;
    for mount in &facts.mounts {
        let connections = match mount.connections.len() {
            0 => String::new(),
            1 => ", 1 connection".to_owned(),
            n => format!(", {n} connections"),
        };
        let trip = mount
            .round_trip_ms()
            .map_or(String::new(), |ms| format!(", {ms:.2} ms a READ or WRITE"));
        writeln!(
            out,
            "  {} on {} ({:?}{connections}{trip})",
            mount.what, mount.point, mount.protocol
        )?;
    }
    if let Some(server) = &facts.server {
        writeln!(
            out,
            "{server} takes {} requests a connection (NFSv3), {} a session (NFSv4.1), {} in all",
            LIMITS.per_connection, LIMITS.per_session, LIMITS.total
        )?;
    }
    for (index, finding) in findings.iter().enumerate() {
        writeln!(
            out,
            "\n{}. {} {}: {}",
            index + 1,
            finding.severity.word(),
            finding.rule,
            finding.subject
        )?;
        wrapped(out, "seen", &finding.seen)?;
        wrapped(out, "why", &finding.why)?;
        let fix = &finding.fix;
        for change in &fix.changes {
            let set = change.set.iter().map(|word| format!("add {word}"));
            let drop = change.drop.iter().map(|word| format!("remove {word}"));
            let words = set.chain(drop).collect::<Vec<_>>().join(", ");
            let of = match fix.changes.len() {
                1 => String::new(),
                _ => format!(" of {}", change.point),
            };
            wrapped(out, "fix", &format!("mount options{of}: {words}"))?;
        }
        for edit in &fix.edits {
            wrapped(out, "fix", &edit.words())?;
        }
        for step in &fix.steps {
            writeln!(out, "   fix   {}", step.command)?;
        }
        for advice in &fix.advice {
            wrapped(out, "check", advice)?;
        }
        wrapped(out, "when", &fix.effective)?;
        wrapped(out, "gain", &finding.gain)?;
    }
    together(out, plan)?;
    match (facts.mounts.is_empty(), findings.len()) {
        (true, 0) => writeln!(
            out,
            "no NFS or SMB mounts, and no settings of theirs that need a change"
        ),
        (_, 0) => writeln!(out, "\nnothing to improve"),
        (_, n) => writeln!(out, "\n{n} findings"),
    }
}

/// All fixes, to be copied.
fn together(out: &mut impl Write, plan: &Plan) -> Result<()> {
    for mount in &plan.mounts {
        writeln!(out, "\nMount options of {}, together:", mount.subject)?;
        wrapped(out, "", &mount.options)?;
        wrapped(out, "when", &mount.effective)?;
    }
    if !plan.files.is_empty() {
        writeln!(
            out,
            "\nFiles, all fixes together: `weir doctor --fix` writes them, after showing each. The same as commands:"
        )?;
        for command in plan.files.iter().flat_map(|file| &file.commands) {
            writeln!(out, "    {command}")?;
        }
    }
    if !plan.commands.is_empty() {
        writeln!(
            out,
            "\n{}, for what runs now, in this order:",
            if plan.files.is_empty() {
                "Commands"
            } else {
                "Then"
            }
        )?;
        for command in &plan.commands {
            writeln!(out, "    {command}")?;
        }
    }
    Ok(())
}

fn wrapped(out: &mut impl Write, label: &str, text: &str) -> Result<()> {
    let mut line = String::new();
    let mut label = label;
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 9 > WIDTH {
            writeln!(out, "   {label:<5} {line}")?;
            line.clear();
            label = "";
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "   {label:<5} {line}")
}

/// The findings and the plan as JSON, for programs.
pub fn json(out: &mut impl Write, facts: &Facts, findings: &[Finding], plan: &Plan) -> Result<()> {
    let seen: Vec<_> = facts
        .mounts
        .iter()
        .map(|m| {
            json!({
                "what": m.what, "point": m.point, "protocol": m.protocol, "server": m.server, "options": m.options,
                "connections": m.connections.len(), "readAheadKib": m.read_ahead, "roundTripMs": m.round_trip_ms(),
            })
        })
        .collect();
    let all = json!({"kernel": facts.kernel.name, "limits": LIMITS, "mounts": seen, "findings": findings, "plan": plan});
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}
