//! Refused copies and snapshots of the destination's own: a volume does not become a copy of one
//! made from it, and snapshots that the destination takes are not copied.

use super::*;

/// Neither by a resync that has not ended yet, nor over another node, which says what its volume is
/// a copy of.
#[test]
fn nothing_becomes_a_copy_of_itself() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    m.change(Verb::Break(path("s:b")), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    let resync = |to: &str, from: Option<&str>| Verb::Resync {
        destination: path(to),
        source: from.map(path),
    };
    let mut far = preconditions();
    far.source.as_mut().unwrap().above = vec![[9; 16], [2; 16]];
    refused(&mut m, resync("s:b", None), &far, "would make a loop");
    refused(
        &mut m,
        create("far://s/x", "s:y"),
        &far,
        "would make a loop",
    );
    far.source.as_mut().unwrap().above = vec![[9; 16]];
    m.change(create("far://s/x", "s:y"), &far, START).unwrap();
    let above = m.rows.entry(&path("s:y")).unwrap().above.clone();
    assert_eq!(above, [[1; 16], [9; 16]]);
    m.change(resync("s:b", None), &preconditions(), START)
        .unwrap();
    started(&mut m);
    let other_way = resync("s:a", Some("s:b"));
    refused(&mut m, other_way, &preconditions(), "would make a loop");
}

/// Once a slot, whatever fails in between, and not before a transfer has ended nor while the
/// relationship rests.
#[test]
fn rules_with_schedules_take_snapshots_of_destinations() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let own = Verb::ScheduleCreate {
        name: "often".to_owned(),
        schedule: Schedule::Every(600),
    };
    let policy = Verb::PolicyCreate {
        name: "mine".to_owned(),
        kind: PolicyKind::MirrorVault,
        comment: String::new(),
        compression: false,
        rules: Vec::new(),
    };
    let rule = Verb::PolicyRule {
        name: "mine".to_owned(),
        label: "kept".to_owned(),
        keep: Some(2),
        preserve: None,
        schedule: Some(Some("often".to_owned())),
        prefix: Some(Some("sv".to_owned())),
    };
    let with_policy = |name: &str| match modify("s:b") {
        Verb::Modify { destination, .. } => Verb::Modify {
            destination,
            policy: Some(name.to_owned()),
            schedule: None,
            throttle: None,
            tries: None,
            note: None,
        },
        verb => verb,
    };
    for verb in [own, policy, rule, with_policy("mine")] {
        m.change(verb, &preconditions(), START).unwrap();
    }
    let takes = |m: &mut Node, now: Now| {
        m.tick(now);
        m.commands.extend(m.manager.reconcile(&m.rows, now));
        let all = m.commands().into_iter();
        all.filter_map(|command| match command {
            Command::Take(take) => Some((take.name.clone(), take.rule.keep, take.at)),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    // 10:50 is the first slot behind the snapshot of 10:41:30.
    assert_eq!(takes(&mut m, START.plus(60)), []);
    let due = START.plus(510);
    let wanted = [("sv.2023-05-04_1050".to_owned(), 2, due.wall)];
    assert_eq!(takes(&mut m, due), wanted);
    assert_eq!(takes(&mut m, due.plus(10)), [], "once a minute");
    let again = due.plus(70);
    assert_eq!(takes(&mut m, again).len(), 1, "it was not done");
    let ruled = Step::Ruled {
        relationship: only(&m).uuid,
        label: "kept".to_owned(),
        at: again.wall,
    };
    m.apply_steps(&[ruled], again);
    assert_eq!(takes(&mut m, again.plus(60)), []);
    let later = START.plus(3_000);
    m.change(Verb::Quiesce(path("s:b")), &preconditions(), later)
        .unwrap();
    assert_eq!(takes(&mut m, later), []);
    m.change(Verb::Resume(path("s:b")), &preconditions(), later)
        .unwrap();
    assert_eq!(takes(&mut m, later.plus(60)).len(), 1, "the missed are one");
    let used = Verb::ScheduleDelete("often".to_owned());
    refused(&mut m, used, &preconditions(), "is in use");
}
