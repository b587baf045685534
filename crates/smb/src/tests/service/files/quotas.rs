//! Quotas of users, queried by SID, from a start, and as a whole.

use super::*;
use weir_auth::sid::Sid;
use weir_vfs::volume::{QuotaId, QuotaLimit, QuotaRules, QuotaState};

const FILESYSTEM: u8 = 2;
const QUOTA: u8 = 4;
const INDEX: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";
const BLOCK: u64 = 4096;
const NO_LIMIT: u64 = u64::MAX;

/// A world whose users have limits: hard and soft ones in blocks of user 7 and of user 9, and each
/// other user's default. They hold.
fn limited() -> World {
    let world = world();
    let volume = world.engine.volumes().remove(0);
    let limit = |hard: u64, soft: u64| QuotaLimit {
        bytes: hard * BLOCK,
        soft_bytes: soft * BLOCK,
        ..QuotaLimit::default()
    };
    let own = [(7, limit(10, 8)), (9, limit(20, 0))];
    volume
        .set_quotas(QuotaRules {
            own: own.map(|(uid, limit)| (QuotaId::user(uid), limit)).into(),
            default_user: Some(limit(30, 5)),
            ..QuotaRules::default()
        })
        .unwrap();
    while volume.quota_state() != QuotaState::On {
        world.engine.cp_now().unwrap();
    }
    // Everybody may make files in the root.
    let open = SetAttr {
        mode: Some(0o777),
        ..SetAttr::default()
    };
    let mut cx = EngineContext::new(Time::EPOCH);
    volume.setattr(&mut cx, volume.root(), &open, None).unwrap();
    world
}

/// A query with ReturnSingle, RestartScan, a list of SIDs, and a start.
fn build_query(
    file: &[u8],
    [single, restart]: [bool; 2],
    list: &[Sid],
    start: Option<&Sid>,
) -> (u16, Vec<u8>) {
    let mut sids = Vec::new();
    for (n, sid) in list.iter().enumerate() {
        let len = 8 + 4 * sid.count();
        sids.put_u32(if n + 1 < list.len() { 8 + len } else { 0 });
        sids.put_u32(len);
        sid.put(&mut sids);
    }
    let list = sids.len() as u32;
    let mut start_len = 0;
    if let Some(start) = start {
        start.put(&mut sids);
        start_len = sids.len() as u32 - list;
    }
    let mut input = vec![u8::from(single), u8::from(restart), 0, 0];
    for n in [list, start_len, list] {
        input.put_u32(n);
    }
    input.put(&sids);
    raw(file, &input, 4096)
}

fn raw(file: &[u8], input: &[u8], most: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(41);
    body.put(&[QUOTA, 0]);
    body.put_u32(most);
    body.put_u16(104);
    body.put_u16(0);
    body.put_u32(input.len() as u32);
    body.put_u64(0);
    body.put(file);
    body.put(input);
    (command::QUERY_INFO, body)
}

/// SID, used bytes, threshold and limit of each entry.
fn entries(answer: &Answer) -> Vec<(Sid, u64, u64, u64)> {
    assert_eq!(answer.status, Status::SUCCESS);
    let (all, mut at, mut out) = (info(answer), 0, Vec::new());
    loop {
        let mut r = weir_auth::wire::Reader::new(&all[at..]);
        let (next, len) = (r.u32().unwrap() as usize, r.u32().unwrap() as usize);
        assert_eq!((at % 8, r.u64()), (0, Ok(0)));
        let [used, threshold, limit] = [(); 3].map(|()| r.u64().unwrap());
        let mut sid = weir_auth::wire::Reader::new(r.bytes(len).unwrap());
        out.push((Sid::read(&mut sid).unwrap(), used, threshold, limit));
        if next == 0 {
            return out;
        }
        at += next;
    }
}

#[test]
fn root_sees_all_quotas_and_a_user_his_own() {
    let world = limited();
    let mut alice = Client::ready(&world, 1);
    let mut bob = bob(&world, 2);
    let file = bob.open("f", ALL, CREATE).unwrap();
    let data = vec![1; 3 * BLOCK as usize];
    assert_eq!(bob.send(write(&file, 0, &data)).status, Status::SUCCESS);
    let own = (Sid::user(7), 3 * BLOCK, 8 * BLOCK, 10 * BLOCK);
    let nine = (Sid::user(9), 0, NO_LIMIT, 20 * BLOCK);
    let default = |uid| (Sid::user(uid), 0, 5 * BLOCK, 30 * BLOCK);

    // On any open of the volume, and on the index of quotas.
    for open in [
        alice.open(INDEX, 0x2_019f, OPEN),
        alice.open("f", 0x80, OPEN),
    ] {
        let open = open.unwrap();
        let two = [Sid::user(9), Sid::user(7)];
        let asked = alice.send(build_query(&open, [false; 2], &two, None));
        assert_eq!(entries(&asked), [nine.clone(), own.clone()]);
        let single = alice.send(build_query(&open, [true, false], &two, None));
        assert_eq!(entries(&single), std::slice::from_ref(&nine));
        // One who holds nothing has the default; root has no limit, and one of no user nothing.
        let others = [Sid::user(5), Sid::user(0), Sid::group(7)];
        let asked = entries(&alice.send(build_query(&open, [false; 2], &others, None)));
        assert_eq!(asked[0], default(5));
        assert_eq!(asked[1].2..=asked[1].3, NO_LIMIT..=NO_LIMIT);
        assert_eq!(asked[2], (Sid::group(7), 0, NO_LIMIT, NO_LIMIT));
        // The whole list, one by one, to its end, and again.
        let root = asked[1].clone();
        for _ in 0..2 {
            let first = alice.send(build_query(&open, [true, true], &[], None));
            assert_eq!(entries(&first), std::slice::from_ref(&root));
            let rest = alice.send(build_query(&open, [false; 2], &[], None));
            assert_eq!(entries(&rest), [own.clone(), nine.clone()]);
            let end = alice.send(build_query(&open, [false; 2], &[], None));
            assert_eq!(end.status, Status::NO_MORE_ENTRIES);
        }
        let from = alice.send(build_query(&open, [false; 2], &[], Some(&Sid::user(8))));
        assert_eq!(entries(&from), std::slice::from_ref(&nine));
        let nobody = alice.send(build_query(&open, [false; 2], &[], Some(&Sid::group(8))));
        assert_eq!(nobody.status, Status::INVALID_PARAMETER);
    }

    let index = bob.open(INDEX, 0x2_019f, OPEN).unwrap();
    let asked = bob.send(build_query(&index, [false; 2], &[Sid::user(7)], None));
    assert_eq!(entries(&asked), std::slice::from_ref(&own));
    let others = bob.send(build_query(
        &index,
        [false; 2],
        &[Sid::user(7), Sid::user(9)],
        None,
    ));
    assert_eq!(others.status, Status::ACCESS_DENIED);
    assert_eq!(
        entries(&bob.send(build_query(&index, [false, true], &[], None))),
        [own]
    );
    let end = bob.send(build_query(&index, [false; 2], &[], None));
    assert_eq!(end.status, Status::NO_MORE_ENTRIES);
}

#[test]
fn a_reply_has_the_entries_that_fit() {
    let world = limited();
    let mut alice = Client::ready(&world, 1);
    let index = alice.open(INDEX, 0x80, OPEN).unwrap();
    let (one, restart) = (40 + 16, [0, 1, 0, 0]);
    let all = [&restart[..], &[0; 12]].concat();
    let short = alice.send(raw(&index, &all, one - 1));
    assert_eq!(short.status, Status::BUFFER_TOO_SMALL);
    let fits = alice.send(raw(&index, &all, one));
    assert_eq!(entries(&fits).len(), 1);
    let two = alice.send(raw(&index, &all, 2 * one));
    assert_eq!(entries(&two).len(), 2);
    // A list that is not whole has another status.
    let mut list = build_query(&index, [false; 2], &[Sid::user(7), Sid::user(9)], None);
    list.1[4..8].copy_from_slice(&one.to_le_bytes());
    assert_eq!(alice.send(list).status, Status::BUFFER_OVERFLOW);
    let malformed = alice.send(raw(&index, &all[..15], 4096));
    assert_eq!(malformed.status, Status::INVALID_PARAMETER);
}

#[test]
fn quotas_are_not_changed_over_smb() {
    let world = limited();
    let mut alice = Client::ready(&world, 1);
    let index = alice.open(INDEX, 0x2_019f, OPEN).unwrap();
    let mut entry = vec![0; 40];
    entry.set_u32(4, 16);
    Sid::user(7).put(&mut entry);
    let changed = alice.send(set(&index, QUOTA, 0, 0, &entry));
    assert_eq!(changed.status, Status::ACCESS_DENIED);
    let changed = alice.send(set(&index, FILESYSTEM, 6, 0, &[0; 48]));
    assert_eq!(changed.status, Status::ACCESS_DENIED);
    // The index has no data, and cannot be made, listed or deleted.
    assert_eq!(alice.open(INDEX, ALL, CREATE), Err(Status::ACCESS_DENIED));
    assert_eq!(
        alice.send(read(&index, 0, 10)).status,
        Status::INVALID_DEVICE_REQUEST
    );
    assert_eq!(
        alice.send(write(&index, 0, b"x")).status,
        Status::INVALID_DEVICE_REQUEST
    );
    let deleted = alice.send(set(&index, FILE, 13, 0, &[1]));
    assert_eq!(deleted.status, Status::NOT_SUPPORTED);
    assert_eq!(alice.send(close(&index)).status, Status::SUCCESS);
}

#[test]
fn the_file_system_is_as_large_as_the_caller_s_quota() {
    let world = limited();
    let mut alice = Client::ready(&world, 1);
    let mut bob = bob(&world, 2);
    let file = bob.open("f", ALL, CREATE).unwrap();
    let data = vec![1; 3 * BLOCK as usize];
    assert_eq!(bob.send(write(&file, 0, &data)).status, Status::SUCCESS);
    for open in [file, bob.open(INDEX, 0x81, OPEN).unwrap()] {
        // Total, what the caller may still write, and what is free at all.
        let full = words(&info(&bob.send(query(&open, FILESYSTEM, 7, 0))));
        assert_eq!(full[..2], [10, 7]);
        assert!(full[2] > 100);
        let size = words(&info(&bob.send(query(&open, FILESYSTEM, 3, 0))));
        assert_eq!(size[..2], [10, 7]);
        // Default threshold and limit, and that quotas are tracked and enforced.
        let control = words(&info(&bob.send(query(&open, FILESYSTEM, 6, 0))));
        assert_eq!(control[3..], [5 * BLOCK, 30 * BLOCK, 3]);
    }
    let root = alice.open("", 0x81, OPEN).unwrap();
    let full = words(&info(&alice.send(query(&root, FILESYSTEM, 7, 0))));
    assert!(full[0] > 100 && full[1] > 100);
}

#[test]
fn a_volume_without_rules_has_no_quotas() {
    let world = world();
    let mut alice = Client::ready(&world, 1);
    let index = alice.open(INDEX, 0x81, OPEN).unwrap();
    let all = alice.send(build_query(&index, [false, true], &[], None));
    assert_eq!(all.status, Status::NO_MORE_ENTRIES);
    let asked = alice.send(build_query(&index, [false; 2], &[Sid::user(7)], None));
    assert_eq!(entries(&asked), [(Sid::user(7), 0, NO_LIMIT, NO_LIMIT)]);
    let control = words(&info(&alice.send(query(&index, FILESYSTEM, 6, 0))));
    assert_eq!(control[3..], [NO_LIMIT, NO_LIMIT, 0]);
}
