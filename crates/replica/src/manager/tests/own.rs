//! What is not to be copied: a volume that is made from the destination.

use super::*;

/// Neither by a resync that has not ended yet, nor over another node, which says what its volume is a copy of.
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
