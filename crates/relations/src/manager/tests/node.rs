//! A node that does with rules and manager what the server does, over a disk that may fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::super::*;
use super::START;
use crate::model::Relationship;

/// Rows as they are stored.
#[derive(Clone, Default)]
pub struct Disk(pub Arc<Mutex<Platter>>);

#[derive(Default)]
pub struct Platter {
    pub rows: BTreeMap<(&'static str, String), (Table, String)>,
    pub writes: u32,
    /// From this write on nothing arrives any more; this one itself does if `reaches`.
    pub stop: Option<u32>,
    pub reaches: bool,
}

impl Disk {
    pub fn write(&self, edits: &[Edit]) -> Result<(), VerbRefusal> {
        let mut platter = self.0.lock().unwrap();
        if edits.is_empty() {
            return Ok(());
        }
        platter.writes += 1;
        let writes = platter.writes;
        let lost = platter.stop.is_some_and(|stop| writes >= stop);
        if !lost || (platter.stop == Some(writes) && platter.reaches) {
            for edit in edits {
                let (table, key) = edit.place();
                let at = (table_name(table), key);
                match edit.body().unwrap() {
                    Some(body) => drop(platter.rows.insert(at, (table, body))),
                    None => drop(platter.rows.remove(&at)),
                }
            }
        }
        match lost {
            true => Err(VerbRefusal::new(Reason::Failed, "the disk is gone")),
            false => Ok(()),
        }
    }

    pub fn open(&self) -> Node {
        let mut rows = Relations::default();
        for ((_, key), (table, body)) in &self.0.lock().unwrap().rows {
            rows.apply(&Edit::read(*table, key, body).unwrap());
        }
        let mut manager = Manager::default();
        Node {
            disk: self.clone(),
            commands: manager.reconcile(&rows, START),
            rows,
            manager,
            unsaved: false,
        }
    }
}

fn table_name(table: Table) -> &'static str {
    match table {
        Table::Relationships => "relationships",
        Table::Destinations => "destinations",
        Table::Policies => "policies",
        Table::Schedules => "schedules",
        Table::Peers => "peers",
        Table::Throttles => "throttles",
    }
}

/// A node that does with rules and manager what the server does.
pub struct Node {
    pub disk: Disk,
    pub rows: Relations,
    pub manager: Manager,
    pub commands: Vec<Command>,
    /// Something that has happened could not be written.
    pub unsaved: bool,
}

impl Node {
    pub fn commit(&mut self, next: ChangeSet, now: Now) -> Result<(), VerbRefusal> {
        let edits = next.into_edits();
        self.disk.write(&edits)?;
        edits.iter().for_each(|edit| self.rows.apply(edit));
        self.commands
            .extend(self.manager.reconcile(&self.rows, now));
        Ok(())
    }

    pub fn change(
        &mut self,
        verb: Verb,
        preconditions: &Preconditions,
        now: Now,
    ) -> Result<(), VerbRefusal> {
        let mut next = ChangeSet::to(&self.rows);
        let mut preconditions = preconditions.clone();
        if let Verb::Abort { destination, .. } | Verb::Stop(destination) | Verb::End(destination) =
            &verb
        {
            let entry = self.rows.entry(destination);
            preconditions.running = entry.is_some_and(|entry| self.manager.runs(&entry.uuid));
        }
        change(&mut next, &verb, &preconditions, now.wall)?;
        self.commit(next, now)
    }

    pub fn apply_steps(&mut self, steps: &[Step], now: Now) {
        let mut next = ChangeSet::to(&self.rows);
        for step in steps {
            apply_step(&mut next, step, now.wall);
        }
        self.unsaved |= self.commit(next, now).is_err();
    }

    pub fn event(&mut self, id: u64, event: Event, now: Now) {
        if let Some(step) = self.manager.event(id, event, now) {
            self.apply_steps(&[step], now);
        }
    }

    pub fn tick(&mut self, now: Now) {
        let due = self.manager.due(&self.rows, now);
        self.apply_steps(&due, now);
    }

    pub fn commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    pub fn relationship(&self, to: &Path) -> Option<Relationship> {
        Some(self.manager.describe_entry(self.rows.entry(to)?))
    }

    pub fn relationships(&self) -> Vec<Relationship> {
        self.manager.relationships(&self.rows)
    }

    pub fn destinations(&self) -> Vec<Relationship> {
        self.manager.destinations(&self.rows)
    }
}
