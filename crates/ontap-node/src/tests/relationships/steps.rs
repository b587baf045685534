//! Steps of the stories, and the checks of their results.

use super::*;

impl Story<'_> {
    pub fn step(&mut self) -> CheckResult {
        let choices = self.choices;
        match choices.weighted(&[14, 7, 3, 6, 36, 3, 2, 2, 2, 2]) {
            0 => self.write(),
            1 => self.snapshot(),
            2 => self.delete_snapshot(),
            3 => self.create(),
            4 => self.relate(),
            5 => self.restore(),
            6 => self.revert(),
            7 => {
                let (name, _) = *choices.pick(&VOLUMES);
                match self.there.contains_key(name) {
                    true => self.delete_volume(name),
                    false => self.make_volume(name),
                }
            }
            8 => self.storm(),
            _ => {
                let of = choices.index(2);
                let crash = Some(Crash::Moment(of, 0));
                self.perform(of, &["version".to_owned().into()], crash)?;
                self.compare(&self.held_back())
            }
        }
    }

    fn held_back(&self) -> Fates {
        let busy = self.relations().into_iter();
        busy.filter(|r| r.entry.pending.is_some())
            .flat_map(|r| [(r.destination, Fate::Copy), (r.destination, Fate::Newest)])
            .collect()
    }

    pub fn make_volume(&mut self, name: Name) -> CheckResult {
        if self.there.contains_key(name) {
            return Ok(());
        }
        let choices = self.choices;
        let sibling = VOLUMES
            .iter()
            .find(|(other, node)| *other != name && *node == node_index(name))
            .filter(|(other, _)| self.live.contains_key(other) && choices.chance(1, 4));
        if let Some((parent, _)) = sibling {
            let volume = self.volume(parent).unwrap();
            let all = volume.snapshots();
            let (named, content) = match all.is_empty() {
                true => (String::new(), self.live[parent].clone()),
                false => {
                    let s = choices.pick(&all);
                    let content = self.known[&s.identity].clone();
                    (format!(" -parent-snapshot {}", s.name), content)
                }
            };
            let line = format!(
                "volume clone create -vserver SVM -flexclone {name} -parent-volume {parent}{named}"
            );
            let fates = vec![(name, Fate::Live(content))];
            self.act(node_index(name), &[line.into()], fates)?;
            return Ok(());
        }
        let kind = match self.live.is_empty() || choices.chance(1, 4) {
            true => "RW",
            false => "DP",
        };
        let line = format!("volume create -vserver SVM -volume {name} -size 100GB -type {kind}");
        let fates = vec![(name, Fate::Copy), (name, Fate::Live(Files::new()))];
        let said = self.act(node_index(name), &[line.into()], fates)?;
        let made = self.volume(name).map(|v| v.mirror().is_some());
        match said {
            RequestOutcome::Yes if made != Some(kind == "DP") => Err(format!("{name} is {made:?}")),
            RequestOutcome::No(why) if !why.contains("in use") => Err(format!("{name}: {why}")),
            _ => Ok(()),
        }
    }

    fn delete_volume(&mut self, name: Name) -> CheckResult {
        let line = format!("volume delete -vserver SVM -volume {name}");
        let said = self.act(node_index(name), &[line.into()], vec![(name, Fate::Gone)])?;
        let gone = !self.there.contains_key(name);
        match said {
            RequestOutcome::Yes if !gone => Err(format!("{name} is still there")),
            RequestOutcome::No(why) if gone => Err(format!("{name} is gone although {why}")),
            _ => Ok(()),
        }
    }

    fn some_live(&self) -> Option<Name> {
        let all: Vec<Name> = self.live.keys().copied().collect();
        (!all.is_empty()).then(|| *self.choices.pick(&all))
    }

    fn write(&mut self) -> CheckResult {
        let Some(name) = self.some_live() else {
            return Ok(());
        };
        let choices = self.choices;
        let volume = self.volume(name).unwrap();
        let files = self.live.get_mut(name).unwrap();
        let doomed: Vec<String> = files.keys().cloned().collect();
        if !doomed.is_empty() && choices.chance(1, 3) {
            let doomed = choices.pick(&doomed);
            let gone = run(&volume, |cx| {
                volume.remove(cx, volume.root(), doomed.as_bytes())
            });
            gone.map_err(|e| format!("{name}: remove {doomed}: {e}"))?;
            files.remove(doomed);
        }
        let file = format!("f{}", choices.below(6));
        let blocks: Vec<u8> = (0..choices.between(1, 24))
            .map(|_| choices.between(1, 255) as u8)
            .collect();
        let data: Vec<u8> = blocks.iter().flat_map(|b| [*b; BLOCK]).collect();
        files.insert(file.clone(), blocks);
        self.hosts[node_index(name)].up().put(name, &file, &data);
        self.note(format!("write {name}/{file}"));
        Ok(())
    }

    fn snapshot(&mut self) -> CheckResult {
        let (name, node) = *self.choices.pick(&VOLUMES);
        self.serial += 1;
        let label = *self.choices.pick(&["", " -snapmirror-label daily"]);
        let line = format!(
            "snapshot create -vserver SVM -volume {name} -snapshot s{}{label}",
            self.serial
        );
        let can = self.live.contains_key(name);
        let said = self.act(node, &[line.into()], Vec::new())?;
        match (said, can) {
            (RequestOutcome::Yes, false) => Err(format!("a snapshot of {name} was taken")),
            (RequestOutcome::No(why), true) => Err(format!("no snapshot of {name}: {why}")),
            _ => Ok(()),
        }
    }

    fn some_snapshot(&self, name: Name) -> Option<(String, SnapshotIdentity)> {
        let all = self.volume(name)?.snapshots();
        let one = (!all.is_empty()).then(|| self.choices.pick(&all))?;
        Some((one.name.clone(), one.identity))
    }

    fn delete_snapshot(&mut self) -> CheckResult {
        let (name, node) = *self.choices.pick(&VOLUMES);
        let Some((snapshot, id)) = self.some_snapshot(name) else {
            return Ok(());
        };
        let line = format!("snapshot delete -vserver SVM -volume {name} -snapshot {snapshot}");
        let said = self.act(node, &[line.into()], Vec::new())?;
        let gone = self
            .volume(name)
            .is_none_or(|v| v.snapshot_with(id).is_none());
        match said {
            RequestOutcome::Yes if !gone => Err(format!("{name}@{snapshot} is still there")),
            RequestOutcome::No(why) if gone => {
                Err(format!("{name}@{snapshot} is gone although {why}"))
            }
            _ => Ok(()),
        }
    }

    fn revert(&mut self) -> CheckResult {
        let Some(name) = self.some_live() else {
            return Ok(());
        };
        let Some((snapshot, id)) = self.some_snapshot(name) else {
            return Ok(());
        };
        let line = format!("snapshot restore -vserver SVM -volume {name} -snapshot {snapshot}");
        let content = self.known[&id].clone();
        let fates = vec![(name, Fate::Live(content.clone()))];
        let said = self.act(node_index(name), &[line.into()], fates)?;
        match said {
            RequestOutcome::Yes if self.live.get(name) != Some(&content) => {
                Err(format!("{name} has not gone back to {snapshot}"))
            }
            _ => Ok(()),
        }
    }

    fn two(&self) -> (Name, Name) {
        let one = self.choices.index(3);
        let other = (one + 1 + self.choices.index(2)) % 3;
        (VOLUMES[one].0, VOLUMES[other].0)
    }

    fn create(&mut self) -> CheckResult {
        let (mut source, mut destination) = self.two();
        if self.live.contains_key(destination) && self.choices.chance(4, 5) {
            (source, destination) = (destination, source);
        }
        let node = node_index(destination);
        let policy = self.choices.pick(&POLICIES);
        let line = format!(
            "snapmirror create -source-path {} -destination-path SVM:{destination} -policy {policy}",
            path(node, source)
        );
        self.act(node, &[line.into()], Vec::new())?;
        if self.choices.chance(3, 4) && self.row(destination).is_some() {
            self.transfer("initialize", destination, &[], Vec::new())?;
        }
        Ok(())
    }

    /// Runs a verb that moves data, and checks its result.
    fn transfer(
        &mut self,
        verb: &str,
        destination: Name,
        more: &[Act],
        mut fates: Fates,
    ) -> CheckResult {
        let node = node_index(destination);
        let line = format!("snapmirror {verb} -destination-path SVM:{destination}");
        if verb == "resync" {
            fates.push((destination, Fate::Copy));
        }
        let mut acts = vec![line.into()];
        acts.extend_from_slice(more);
        let said = self.act(node, &acts, fates)?;
        if said == RequestOutcome::Yes && more.is_empty() {
            self.arrived(verb, destination)?;
        }
        Ok(())
    }

    /// A transfer that was accepted, and was not cut short.
    fn arrived(&mut self, verb: &str, destination: Name) -> CheckResult {
        let Some(entry) = self.row(destination) else {
            return Err(format!("{verb} {destination}: no row is left"));
        };
        let last = entry.last.as_ref().and_then(|last| last.error.clone());
        if let Some(why) = last {
            tally(&format!("{verb} ended"), &why);
            return Ok(());
        }
        tally(&format!("{verb} ended"), "well");
        if entry.state != MirrorState::Snapmirrored || entry.trouble.is_some() {
            return Err(format!("{verb} {destination}: {entry:?}"));
        }
        let newest = entry.newest.as_ref().map(|newest| newest.id);
        let got = newest.and_then(|id| self.known.get(&id));
        let source = self.live.get(&*entry.source.volume);
        let vault = entry.policy == "XDPDefault" && verb != "initialize";
        match source {
            Some(_) if !vault && got != source => Err(format!(
                "{verb} {destination} ended well with {got:?} instead of {source:?}"
            )),
            _ => Ok(()),
        }
    }

    fn relate(&mut self) -> CheckResult {
        let choices = self.choices;
        let all = self.relations();
        if all.is_empty() {
            return self.create();
        }
        let r = choices.pick(&all);
        let to = r.destination;
        let fits: &[&str] = match r.entry.state {
            MirrorState::Uninitialized if r.entry.restore => &["break", "again", "end"],
            MirrorState::Uninitialized => &["initialize", "initialize", "initialize", "delete"],
            MirrorState::Snapmirrored => &[
                "update", "update", "update", "update", "break", "break", "abort", "named",
                "quiesce", "delete", "release", "stop", "end", "schedule", "modify",
            ],
            MirrorState::BrokenOff => &["resync", "resync", "reverse", "back", "delete", "end"],
        };
        const ALL: &[&str] = &[
            "initialize",
            "update",
            "break",
            "abort",
            "named",
            "quiesce",
            "resume",
            "delete",
            "release",
            "stop",
            "end",
            "resync",
            "reverse",
            "back",
        ];
        let verb = match r.entry.quiesced {
            true if choices.chance(1, 2) => "resume",
            _ => *choices.pick(if choices.chance(5, 6) { fits } else { ALL }),
        };
        let plain = |verb: &str| Act::from(format!("snapmirror {verb} -destination-path SVM:{to}"));
        let local = Path::local("SVM", to);
        match verb {
            "initialize" | "update" | "resync" => self.transfer(verb, to, &[], Vec::new()),
            "abort" => {
                let hard = match choices.chance(1, 3) {
                    true => " -hard true",
                    false => "",
                };
                let abort = format!("snapmirror abort -destination-path SVM:{to}{hard}");
                self.transfer("update", to, &[abort.into()], Vec::new())
            }
            "named" => {
                let Some((snapshot, id)) = self.some_snapshot(r.source) else {
                    return Ok(());
                };
                let line = format!(
                    "snapmirror update -destination-path SVM:{to} -source-snapshot {snapshot}"
                );
                let said = self.act(r.node, &[line.into()], Vec::new())?;
                let last = self.row(to).and_then(|e| e.last.clone());
                let well = last.is_some_and(|last| last.error.is_none());
                let has = self
                    .volume(to)
                    .is_some_and(|v| v.snapshot_with(id).is_some());
                match said == RequestOutcome::Yes && well && !has {
                    true => Err(format!("{to} has not got {snapshot}, which it asked for")),
                    false => Ok(()),
                }
            }
            "break" | "stop" => {
                let act = match verb {
                    "break" => plain("break"),
                    _ => Act::Verb(Box::new(Verb::Stop(local))),
                };
                let said = self.act(r.node, &[act], self.broken(to))?;
                let begun = r.entry.state != MirrorState::Uninitialized;
                if said == RequestOutcome::Yes && r.entry.restore && self.row(to).is_some() {
                    return Err(format!("the restore of {to} has its row still"));
                }
                match said == RequestOutcome::Yes && begun && !self.live.contains_key(to) {
                    true => Err(format!("{to} is not broken off")),
                    false => Ok(()),
                }
            }
            "reverse" => {
                let source = r.source;
                // Where its source is: the new destination's node has to have the row.
                let fates = vec![(source, Fate::Copy)];
                let act = Act::Verb(Box::new(Verb::Reverse(local)));
                let said = self.act(r.node, &[act], fates)?;
                match said == RequestOutcome::Yes {
                    true => self.arrived("reverse", source),
                    false => Ok(()),
                }
            }
            "back" => {
                let (source, node) = (r.source, node_index(r.source));
                let line = format!(
                    "snapmirror resync -source-path {} -destination-path SVM:{source}",
                    path(node, to)
                );
                let said = self.act(node, &[line.into()], vec![(source, Fate::Copy)])?;
                match said == RequestOutcome::Yes {
                    true => self.arrived("resync", source),
                    false => Ok(()),
                }
            }
            "again" => {
                let line = format!(
                    "snapmirror restore -source-path {} -destination-path SVM:{to}",
                    path(r.node, r.source)
                );
                let fates = vec![(to, Fate::Copy), (to, Fate::Newest)];
                self.act(r.node, &[line.into()], fates).map(drop)
            }
            "modify" => {
                let policy = choices.pick(&POLICIES);
                let line = format!("snapmirror modify -destination-path SVM:{to} -policy {policy}");
                self.act(r.node, &[line.into()], Vec::new()).map(drop)
            }
            "schedule" => self.scheduled(r.node, to),
            "end" => {
                let act = Act::Verb(Box::new(Verb::End(local)));
                let said = self.act(r.node, &[act], self.broken(to))?;
                let begun = r.entry.state != MirrorState::Uninitialized;
                let uuid = &r.entry.uuid;
                let rows = self.hosts[r.node].up().service.relations();
                match said {
                    RequestOutcome::Yes if self.row(to).is_some() => {
                        Err(format!("{to} has its row still"))
                    }
                    RequestOutcome::Yes if begun && !self.live.contains_key(to) => {
                        Err(format!("{to} is not broken off"))
                    }
                    RequestOutcome::Yes if rows.destination(uuid).is_some() => {
                        Err(format!("{to} stays known"))
                    }
                    _ => Ok(()),
                }
            }
            "release" => {
                let node = node_index(r.source);
                let line = format!("snapmirror release -destination-path {}", path(node, to));
                self.act(node, &[line.into()], Vec::new()).map(drop)
            }
            "delete" => {
                let said = self.act(r.node, &[plain("delete")], Vec::new())?;
                match said == RequestOutcome::Yes && self.row(to).is_some() {
                    true => Err(format!("the relationship of {to} is still there")),
                    false => Ok(()),
                }
            }
            verb => self.act(r.node, &[plain(verb)], Vec::new()).map(drop),
        }
    }

    /// Returns the possible states of a volume that is broken off: the contents that its readers
    /// saw, even if that snapshot is deleted with the relationship.
    fn broken(&self, name: Name) -> Fates {
        let seen = self.seen(name).map(|id| self.known[&id].clone());
        let live = seen.map(|files| (name, Fate::Live(files)));
        live.into_iter().chain([(name, Fate::Newest)]).collect()
    }

    /// A slot of its schedule comes.
    fn scheduled(&mut self, node: usize, to: Name) -> CheckResult {
        let modify = |schedule: &str| -> [Act; 1] {
            [format!("snapmirror modify -destination-path SVM:{to} -schedule {schedule}").into()]
        };
        // No crash here: a schedule that stayed would begin transfers in the middle of other steps.
        if self.perform(node, &modify("5min"), None)? != RequestOutcome::Yes {
            return Ok(());
        }
        let begun = |story: &Self| story.row(to).map(|e| (e.transfers, e.may_run()));
        let before = begun(self);
        self.clock.ms.fetch_add(301_000, Ordering::Relaxed);
        let until = self.clock.real.monotonic() + LONG;
        while before.is_some_and(|(_, runs)| runs) && begun(self) == before {
            if self.clock.real.monotonic() > until {
                return Err(format!("no scheduled update of {to} began"));
            }
            let service = &self.hosts[node].up().service;
            service.wake();
            let mut manager = service.manager();
            service.wait_for_change(&mut manager, Duration::from_millis(1));
        }
        let said = self.perform(node, &modify("-"), None)?;
        self.compare(&self.held_back())?;
        match said == RequestOutcome::Yes && before.is_some_and(|(_, runs)| runs) {
            true => self.arrived("update", to),
            false => Ok(()),
        }
    }

    fn restore(&mut self) -> CheckResult {
        let all = self.relations();
        let (source, destination) = match all.is_empty() || self.choices.chance(1, 4) {
            true => self.two(),
            false => {
                let r = self.choices.pick(&all);
                (r.destination, r.source)
            }
        };
        let node = node_index(destination);
        let named = self
            .some_snapshot(source)
            .filter(|_| self.choices.chance(1, 2));
        let arg = named
            .as_ref()
            .map(|(name, _)| format!(" -source-snapshot {name}"));
        let line = format!(
            "snapmirror restore -source-path {} -destination-path SVM:{destination}{}",
            path(node, source),
            arg.unwrap_or_default()
        );
        let fates = vec![(destination, Fate::Copy), (destination, Fate::Newest)];
        let had = self.row(destination).is_some_and(|entry| !entry.restore);
        self.restored.push((destination, source));
        let said = self.act(node, &[line.into()], fates)?;
        if said != RequestOutcome::Yes {
            return Ok(());
        }
        if had {
            return Err(format!("a restore into {destination}, which is a copy"));
        }
        match self.row(destination).and_then(|e| e.last.clone()) {
            Some(last) => {
                tally("restore ended", last.error.as_deref().unwrap_or("well"));
                Ok(())
            }
            None if !self.live.contains_key(destination) => Err(format!(
                "{destination} cannot be written to after a restore"
            )),
            None => {
                tally("restore ended", "well");
                let has = |id| self.volume(destination).unwrap().snapshot_with(id);
                match named {
                    Some((name, id)) if has(id).is_none() => {
                        Err(format!("{destination} was restored, but not to {name}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// All relationships of a node are updated at once.
    fn storm(&mut self) -> CheckResult {
        let node = self.choices.index(2);
        let line = "snapmirror update -destination-path *".to_owned();
        self.act(node, &[line.into()], Vec::new()).map(drop)
    }

    /// Deletes everything, and checks that nothing is left.
    pub fn end(&mut self) -> CheckResult {
        for _ in 0..6 {
            for r in self.relations() {
                let to = r.destination;
                let line = |verb: &str| -> Act {
                    format!("snapmirror {verb} -destination-path SVM:{to}").into()
                };
                let acts = [line("resume"), line("abort"), line("delete")];
                let fates = self.broken(to);
                self.act(r.node, &acts, fates)?;
            }
            for node in 0..2 {
                let line = "snapmirror release -destination-path *".to_owned();
                self.act(node, &[line.into()], Vec::new())?;
            }
            for (name, _) in VOLUMES {
                if self.there.contains_key(name) {
                    self.delete_volume(name)?;
                }
            }
            let known = |host: &Host| host.up().service.relations().known().count();
            let rows = self.relations().len() + self.hosts.iter().map(known).sum::<usize>();
            if rows == 0 && self.there.is_empty() {
                break;
            }
        }
        if let Some(r) = self.relations().first() {
            return Err(format!("it stays: {}", r.describe()));
        }
        if let Some(name) = self.there.keys().next() {
            return Err(format!("{name} stays"));
        }
        for host in &self.hosts {
            let service = &host.up().service;
            if let Some(known) = service.relations().known().next() {
                return Err(format!("a destination stays known: {known:?}"));
            }
            // The first volume of all is no part of the stories.
            let left = service.engine().volumes().len();
            if left > 1 {
                return Err(format!("{left} volumes are left in the engine"));
            }
        }
        self.known.clear();
        self.restored.clear();
        Ok(())
    }
}
