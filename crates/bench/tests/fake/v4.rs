//! NFSv4.1 on the same files: just enough of RFC 8881, and strict about sessions.
//!
//! A number in a slot that is not the next one, a slot that was not granted, an operation in a
//! session that ended, a READ or WRITE by a stateid that is not open, and a client that leaves
//! opens or sessions behind fail the test.

use super::{Mischief, Node, ROOT, State, entries, lookup, put_handle, size_of, take_handle};
use std::collections::{BTreeMap, HashMap};
use weir_bench::xdr::{Reader, put_opaque, put_u32, put_u64};

const NOENT: u32 = 2;
const EXIST: u32 = 17;
const NOSPC: u32 = 28;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const DELAY: u32 = 10_008;
const SEQUENCE: u32 = 53;

/// Clients, sessions and opens.
#[derive(Default)]
pub struct V4 {
    next: u64,
    /// Number of the next CREATE_SESSION.
    clients: HashMap<u64, u32>,
    sessions: HashMap<Vec<u8>, Session>,
    /// The client and the file of a stateid.
    opens: HashMap<Vec<u8>, (u64, u64)>,
    /// COMPOUNDs in sessions so far.
    compounds: u64,
    /// Greatest number of opens at once, and of slots used in a session.
    pub most_open: usize,
    pub highest_slot: u32,
    /// Operations by number.
    pub operations: BTreeMap<u32, u64>,
}

struct Session {
    client: u64,
    /// The last number in each slot.
    slots: Vec<u32>,
}

impl V4 {
    /// Clients, sessions and opens that are left.
    pub fn left(&self) -> usize {
        self.clients.len() + self.sessions.len() + self.opens.len()
    }
}

/// Position in a COMPOUND.
struct Cursor {
    session: Vec<u8>,
    client: u64,
    current: u64,
    saved: u64,
    /// The stateid that an operation before returned.
    state: Vec<u8>,
}

pub fn compound(state: &mut State, mischief: Mischief, r: &mut Reader<'_>, out: &mut Vec<u8>) {
    assert_eq!(r.opaque(1024), Ok(&b""[..]), "tag");
    assert!(matches!(r.u32(), Ok(1 | 2)), "minor version");
    let count = r.u32().unwrap();
    let mut results = Vec::new();
    let mut at = Cursor {
        session: Vec::new(),
        client: 0,
        current: 0,
        saved: 0,
        state: Vec::new(),
    };
    let mut status = 0;
    let mut done = 0;
    while done < count && status == 0 {
        let operation = r.u32().unwrap();
        *state.v4.operations.entry(operation).or_default() += 1;
        put_u32(&mut results, operation);
        let place = results.len();
        put_u32(&mut results, 0);
        status = execute(state, mischief, (done, operation), &mut at, r, &mut results);
        results[place..place + 4].copy_from_slice(&status.to_be_bytes());
        if status != 0 {
            results.truncate(place + 4);
        }
        done += 1;
    }
    assert!(
        status != 0 || r.rest().is_empty(),
        "operations behind the last"
    );
    put_u32(out, status);
    put_u32(out, 0);
    put_u32(out, done);
    out.extend_from_slice(&results);
}

fn execute(
    state: &mut State,
    mischief: Mischief,
    (place, operation): (u32, u32),
    at: &mut Cursor,
    r: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> u32 {
    match operation {
        42 => return exchange_id(state, r, out),
        43 => return create_session(state, mischief, r, out),
        44 => {
            let gone = state.v4.sessions.remove(r.fixed(16).unwrap());
            assert!(gone.is_some(), "no such session");
            return 0;
        }
        57 => {
            let client = r.u64().unwrap();
            assert!(state.v4.sessions.values().all(|s| s.client != client));
            assert!(state.v4.opens.values().all(|o| o.0 != client), "left open");
            assert!(state.v4.clients.remove(&client).is_some());
            return 0;
        }
        SEQUENCE => {
            assert_eq!(place, 0, "SEQUENCE comes first");
            return sequence(state, mischief, at, r, out);
        }
        _ => assert!(!at.session.is_empty(), "{operation} outside a session"),
    }
    if place == 1 {
        if let Mischief::Jukebox(n) = mischief {
            if state.v4.compounds % n == 1 {
                return DELAY;
            }
        }
    }
    match operation {
        22 => at.current = take_handle(r),
        24 => at.current = ROOT,
        32 => at.saved = at.current,
        10 => put_handle(out, at.current),
        58 => assert_eq!(r.u32(), Ok(0), "rca_one_fs"),
        9 => {
            if mischief == Mischief::Stale && at.current != ROOT {
                return STALE;
            }
            let asked = take_mask(r);
            put_attributes(state, at.current, asked, out);
        }
        3 => {
            let bits = r.u32().unwrap();
            put_u32(out, bits);
            put_u32(out, bits);
        }
        15 => match (at.current, r.opaque(255).unwrap()) {
            // The export is all there is.
            (ROOT, b"vol1") => {}
            (dir, name) => match lookup(state, dir, name) {
                Some(id) => at.current = id,
                None => return NOENT,
            },
        },
        6 => {
            assert_eq!(r.u32(), Ok(2), "a directory");
            let name = r.opaque(255).unwrap().to_vec();
            take_mode(r);
            return make(state, Node::Dir(BTreeMap::new()), name, at, |_| {
                put_change(out);
                put_u32(out, 0);
            });
        }
        18 => return open(state, at, r, out),
        4 => {
            r.u32().unwrap();
            let mut other = take_state(r).1;
            if other == [0; 12] {
                other = std::mem::take(&mut at.state);
            }
            let open = state.v4.opens.remove(&other);
            assert_eq!(
                open,
                Some((at.client, at.current)),
                "CLOSE of what is not open"
            );
            out.extend_from_slice(&[0; 16]);
        }
        5 => {
            r.fixed(12).unwrap();
            put_u64(out, 42);
        }
        34 => {
            assert_eq!(r.fixed(16), Ok(&[0; 16][..]), "the anonymous stateid");
            take_mode(r);
            put_u32(out, 0);
        }
        25 => return read(state, mischief, at, r, out),
        38 => return write(state, mischief, at, r, out),
        28 => {
            let name = r.opaque(255).unwrap().to_vec();
            match lookup(state, at.current, &name) {
                None => return NOENT,
                Some(id) => {
                    if matches!(&state.nodes[&id], Node::Dir(d) if !d.is_empty()) {
                        return NOTEMPTY;
                    }
                    assert!(state.v4.opens.values().all(|o| o.1 != id), "it is open");
                    state.nodes.remove(&id);
                    entries(state, at.current).remove(&name);
                    put_change(out);
                }
            }
        }
        29 => {
            let from = r.opaque(255).unwrap().to_vec();
            let to = r.opaque(255).unwrap().to_vec();
            match entries(state, at.saved).remove(&from) {
                None => return NOENT,
                Some(id) => entries(state, at.current).insert(to, id),
            };
            put_change(out);
            put_change(out);
        }
        26 => list(state, at, r, out),
        other => panic!("operation {other} is not expected"),
    }
    0
}

fn exchange_id(state: &mut State, r: &mut Reader<'_>, out: &mut Vec<u8>) -> u32 {
    r.u64().unwrap();
    assert!(!r.opaque(1024).unwrap().is_empty(), "owner");
    assert_eq!((r.u32(), r.u32(), r.u32()), (Ok(0), Ok(0), Ok(0)));
    state.v4.next += 1;
    let client = state.v4.next;
    state.v4.clients.insert(client, 1);
    put_u64(out, client);
    for v in [1, 0x0001_0000, 0] {
        put_u32(out, v);
    }
    put_u64(out, 0);
    put_opaque(out, b"major");
    put_opaque(out, b"scope");
    put_u32(out, 0);
    0
}

fn create_session(
    state: &mut State,
    mischief: Mischief,
    r: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> u32 {
    let client = r.u64().unwrap();
    let sequence = r.u32().unwrap();
    let next = state.v4.clients.get_mut(&client).unwrap();
    assert_eq!(sequence, *next, "csa_sequence");
    *next += 1;
    assert_eq!(r.u32(), Ok(0), "flags");
    let mut channels = Vec::new();
    for _ in 0..2 {
        let values: Vec<u32> = (0..6).map(|_| r.u32().unwrap()).collect();
        assert_eq!(r.u32(), Ok(0), "ca_rdma_ird");
        channels.push(values);
    }
    r.u32().unwrap();
    assert_eq!((r.u32(), r.u32()), (Ok(1), Ok(0)), "AUTH_NONE");
    if let Mischief::Slots(n) = mischief {
        channels[0][5] = channels[0][5].min(n);
    }
    state.v4.next += 1;
    let mut id = vec![7; 8];
    id.extend_from_slice(&state.v4.next.to_be_bytes());
    out.extend_from_slice(&id);
    put_u32(out, sequence);
    put_u32(out, 0);
    let session = Session {
        client,
        slots: vec![0; channels[0][5] as usize],
    };
    state.v4.sessions.insert(id, session);
    for channel in channels {
        for v in channel {
            put_u32(out, v);
        }
        put_u32(out, 0);
    }
    0
}

fn sequence(
    state: &mut State,
    mischief: Mischief,
    at: &mut Cursor,
    r: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> u32 {
    let id = r.fixed(16).unwrap().to_vec();
    let (number, slot) = (r.u32().unwrap(), r.u32().unwrap());
    let highest = r.u32().unwrap();
    r.u32().unwrap();
    let v4 = &mut state.v4;
    v4.compounds += 1;
    if matches!(mischief, Mischief::Jukebox(n) if v4.compounds % n == 0) {
        return DELAY;
    }
    let session = v4.sessions.get_mut(&id).unwrap();
    assert!(slot <= highest && (highest as usize) < session.slots.len());
    let last = &mut session.slots[slot as usize];
    assert_eq!(number, *last + 1, "slot {slot}");
    *last = number;
    v4.highest_slot = v4.highest_slot.max(slot);
    at.client = session.client;
    at.session = id;
    out.extend_from_slice(&at.session);
    put_u32(
        out,
        number ^ u32::from(mischief == Mischief::WrongTurn && slot == 3),
    );
    for v in [slot, highest, highest, 0] {
        put_u32(out, v);
    }
    0
}

fn make(
    state: &mut State,
    node: Node,
    name: Vec<u8>,
    at: &mut Cursor,
    results: impl FnOnce(&mut State),
) -> u32 {
    if lookup(state, at.current, &name).is_some() {
        return EXIST;
    }
    let id = state.next;
    state.next += 1;
    state.nodes.insert(id, node);
    entries(state, at.current).insert(name, id);
    at.current = id;
    results(state);
    0
}

fn open(state: &mut State, at: &mut Cursor, r: &mut Reader<'_>, out: &mut Vec<u8>) -> u32 {
    assert_eq!((r.u32(), r.u32(), r.u32()), (Ok(0), Ok(0x403), Ok(0)));
    assert_eq!(r.u64(), Ok(at.client), "the session's client");
    assert_eq!(r.opaque(1024), Ok(&b"weir-bench"[..]));
    let created = r.u32().unwrap() == 1;
    if created {
        assert_eq!(r.u32(), Ok(1), "GUARDED4");
        take_mode(r);
    }
    match r.u32().unwrap() {
        0 => {
            assert!(created);
            let name = r.opaque(255).unwrap().to_vec();
            let made = make(state, Node::File(Vec::new()), name, at, |_| {});
            if made != 0 {
                return made;
            }
        }
        4 => assert!(!created && matches!(&state.nodes[&at.current], Node::File(_))),
        other => panic!("claim {other}"),
    }
    state.v4.next += 1;
    let mut other = vec![1; 4];
    other.extend_from_slice(&state.v4.next.to_be_bytes());
    put_u32(out, 1);
    out.extend_from_slice(&other);
    put_change(out);
    // No flags, no attributes set, no delegation (WND4_NOT_WANTED).
    for v in [0, 0, 3, 0] {
        put_u32(out, v);
    }
    at.state.clone_from(&other);
    state.v4.opens.insert(other, (at.client, at.current));
    state.v4.most_open = state.v4.most_open.max(state.v4.opens.len());
    0
}

/// A stateid of a READ or WRITE: an open of the file by the client, or the anonymous one.
fn check_state(state: &State, at: &Cursor, r: &mut Reader<'_>, anonymous: bool) {
    let (number, other) = take_state(r);
    assert_eq!(number, 0);
    match state.v4.opens.get(&other) {
        Some(open) => assert_eq!(*open, (at.client, at.current)),
        None => assert!(anonymous && other == [0; 12], "it is not open"),
    }
}

fn read(
    state: &mut State,
    mischief: Mischief,
    at: &Cursor,
    r: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> u32 {
    // Only the working set is read once without an open.
    check_state(state, at, r, state.v4.opens.is_empty());
    let mut offset = r.u64().unwrap() as usize;
    let mut count = r.u32().unwrap() as usize;
    let Node::File(content) = &state.nodes[&at.current] else {
        panic!("READ of no file");
    };
    match mischief {
        Mischief::ShortReads => count /= 2,
        Mischief::Misplace => offset = (offset + 4096) % (content.len() - count + 1),
        _ => {}
    }
    let end = content.len().min(offset + count);
    put_u32(out, u32::from(end == content.len()));
    put_opaque(out, &content[offset.min(end)..end]);
    0
}

fn write(
    state: &mut State,
    mischief: Mischief,
    at: &Cursor,
    r: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> u32 {
    check_state(state, at, r, state.v4.opens.is_empty());
    let offset = r.u64().unwrap() as usize;
    let stable = r.u32().unwrap();
    let data = r.opaque(u32::MAX).unwrap();
    if mischief == Mischief::Full {
        return NOSPC;
    }
    let Some(Node::File(content)) = state.nodes.get_mut(&at.current) else {
        panic!("WRITE to no file");
    };
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
    put_u32(out, data.len() as u32);
    put_u32(
        out,
        if mischief == Mischief::WeakStability {
            0
        } else {
            stable
        },
    );
    put_u64(out, 42);
    0
}

fn list(state: &mut State, at: &Cursor, r: &mut Reader<'_>, out: &mut Vec<u8>) {
    let cookie = r.u64().unwrap();
    assert_eq!(r.u64(), Ok(if cookie == 0 { 0 } else { 9 }));
    r.u32().unwrap();
    let room = r.u32().unwrap() as usize;
    let asked = take_mask(r);
    put_u64(out, 9);
    let all: Vec<(Vec<u8>, u64)> = entries(state, at.current)
        .iter()
        .map(|(n, i)| (n.clone(), *i))
        .collect();
    let start = out.len();
    // Cookies 0 to 2 mean something else.
    let skipped = cookie.saturating_sub(2) as usize;
    let mut eof = 1;
    for (i, (name, id)) in all.iter().enumerate().skip(skipped) {
        if out.len() - start + 256 > room {
            eof = 0;
            break;
        }
        put_u32(out, 1);
        put_u64(out, i as u64 + 3);
        put_opaque(out, name);
        put_attributes(state, *id, asked, out);
    }
    put_u32(out, 0);
    put_u32(out, eof);
}

fn take_state(r: &mut Reader<'_>) -> (u32, Vec<u8>) {
    (r.u32().unwrap(), r.fixed(12).unwrap().to_vec())
}

fn take_mask(r: &mut Reader<'_>) -> u64 {
    assert_eq!(r.u32(), Ok(2));
    let low = u64::from(r.u32().unwrap());
    low | u64::from(r.u32().unwrap()) << 32
}

/// fattr4 with the mode alone.
fn take_mode(r: &mut Reader<'_>) {
    assert_eq!(take_mask(r), 1 << 33);
    assert_eq!(r.opaque(4).map(<[u8]>::len), Ok(4));
}

fn put_change(out: &mut Vec<u8>) {
    put_u32(out, 1);
    put_u64(out, 1);
    put_u64(out, 2);
}

/// Attributes of a node, those of them that were asked for.
fn put_attributes(state: &State, id: u64, asked: u64, out: &mut Vec<u8>) {
    let mut values = Vec::new();
    for number in (0..64).filter(|n| asked & 1 << n != 0) {
        let v = &mut values;
        match number {
            1 | 33 | 35 => put_u32(v, 1),
            3 | 30 | 31 | 45 => put_u64(v, 1 << 20),
            42 => put_u64(v, 1 << 39),
            4 => put_u64(v, size_of(state, id)),
            8 => v.extend_from_slice(&[0; 16]),
            41 => v.extend_from_slice(&[0; 8]),
            11 => put_u32(v, 0),
            19 => put_handle(v, id),
            20 | 55 => put_u64(v, id),
            36 | 37 => put_opaque(v, b"0"),
            47 | 52 | 53 => v.extend_from_slice(&[0; 12]),
            other => panic!("attribute {other}"),
        }
    }
    for word in [2, asked as u32, (asked >> 32) as u32] {
        put_u32(out, word);
    }
    put_opaque(out, &values);
}
