//! Requests of SMB as clients build them (MS-SMB2 §2.2), to start mutations from: every command,
//! create context, control and class.

use weir_auth::wire::{Put, utf16};
use weir_smb::header::{HEADER, PROTOCOL, command, flag};

/// A request, by its command and body.
pub(super) type Body = (u16, Vec<u8>);

/// The file of the request before.
const SAME: [u8; 16] = [0xff; 16];
const ALL_ACCESS: u32 = 0x1f_01ff;
/// CreateDisposition (§2.2.13).
const OPEN_IF: u32 = 3;
/// CreateOptions.
const DIRECTORY: u32 = 1;
/// The level of an oplock that is a lease.
const LEASE: u8 = 0xff;

/// A request on its own; what is not in its body, the client fills in.
pub(super) fn request(command: u16, body: &[u8]) -> Vec<u8> {
    join(&[(command, body.to_vec())])
}

/// Requests as a chain, each related to the one before.
pub(super) fn join(requests: &[Body]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, (command, body)) in requests.iter().enumerate() {
        let start = out.len();
        out.put(&PROTOCOL);
        out.put_u16(HEADER as u16);
        out.put_u16(1);
        out.put_u32(0);
        out.put_u16(*command);
        out.put_u16(64);
        out.put_u32(if n > 0 { flag::RELATED } else { 0 });
        out.put_zeroes(HEADER - 20);
        out.put(body);
        if n + 1 < requests.len() {
            out.align(start, 8);
            let next = (out.len() - start) as u32;
            out.set_u32(start + 20, next);
        }
    }
    out
}

/// NEGOTIATE of 3.1.1, with contexts of every kind (§2.2.3.1).
pub(super) fn negotiate_body() -> Vec<u8> {
    let mut body = Vec::new();
    for v in [36, 5, 1, 0] {
        body.put_u16(v);
    }
    body.put_u32(0x7f);
    body.put(&[4; 16]);
    body.put_u32(HEADER as u32 + 48);
    body.put_u16(4);
    body.put_u16(0);
    for dialect in [0x0202, 0x0210, 0x0300, 0x0302, 0x0311] {
        body.put_u16(dialect);
    }
    for (kind, data) in [
        (1u16, &[1, 0, 4, 0, 1, 0, 9, 9, 9, 9][..]),
        // No cipher that fits, so that sessions sign.
        (2, &[1, 0, 9, 0]),
        (5, b"w\0e\0i\0r\0"),
        (8, &[2, 0, 1, 0, 0, 0]),
    ] {
        body.align(0, 8);
        body.put_u16(kind);
        body.put_u16(data.len() as u16);
        body.put_u32(0);
        body.put(data);
    }
    body
}

/// SESSION_SETUP with a token.
pub(super) fn setup_body(token: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(25);
    body.put(&[0, 1]);
    body.put_u64(0);
    body.put_u16(HEADER as u16 + 24);
    body.put_u16(token.len() as u16);
    body.put_u64(0);
    body.put(token);
    body
}

/// TREE_CONNECT to a share.
pub(super) fn tree_connect(share: &str) -> Vec<u8> {
    let path = utf16(&format!("\\\\weir\\{share}"));
    let mut body = Vec::new();
    body.put_u16(9);
    body.put_u16(0);
    body.put_u16(HEADER as u16 + 8);
    body.put_u16(path.len() as u16);
    body.put(&path);
    body
}

/// A create context: its name and its data.
type CreateContext<'c> = (&'c [u8; 4], Vec<u8>);

fn create_with(name: &str, options: u32, oplock: u8, contexts: &[CreateContext<'_>]) -> Body {
    const FIXED: usize = 56;
    let name = utf16(name);
    let mut body = Vec::new();
    body.put_u16(57);
    body.put(&[0, oplock]);
    body.put_u32(2);
    body.put_zeroes(16);
    for v in [ALL_ACCESS, 0x80, 7, OPEN_IF, options] {
        body.put_u32(v);
    }
    body.put_u16((HEADER + FIXED) as u16);
    body.put_u16(name.len() as u16);
    let places = body.len();
    body.put_u64(0);
    body.put(&name);
    if contexts.is_empty() {
        return (command::CREATE, body);
    }
    body.align(0, 8);
    let start = body.len();
    for (n, (name, data)) in contexts.iter().enumerate() {
        let at = body.len();
        body.put_u32(0);
        for v in [16, 4, 0, 24] {
            body.put_u16(v);
        }
        body.put_u32(data.len() as u32);
        body.put(*name);
        body.put_u32(0);
        body.put(data);
        if n + 1 < contexts.len() {
            body.align(at, 8);
            let next = (body.len() - at) as u32;
            body.set_u32(at, next);
        }
    }
    let len = (body.len() - start) as u32;
    body.set_u32(places, (HEADER + start) as u32);
    body.set_u32(places + 4, len);
    (command::CREATE, body)
}

fn create(name: &str) -> Body {
    create_with(name, 0, 0, &[])
}

fn close() -> Body {
    let mut body = Vec::new();
    body.put_u16(24);
    body.put_u16(1);
    body.put_u32(0);
    body.put(&SAME);
    (command::CLOSE, body)
}

fn flush() -> Body {
    let mut body = Vec::new();
    body.put_u16(24);
    body.put_u16(0);
    body.put_u32(0);
    body.put(&SAME);
    (command::FLUSH, body)
}

fn read(offset: u64, len: u32) -> Body {
    let mut body = Vec::new();
    body.put_u16(49);
    body.put_u16(0);
    body.put_u32(len);
    body.put_u64(offset);
    body.put(&SAME);
    body.put_zeroes(17);
    (command::READ, body)
}

fn write(offset: u64, data: &[u8]) -> Body {
    let mut body = Vec::new();
    body.put_u16(49);
    body.put_u16(HEADER as u16 + 48);
    body.put_u32(data.len() as u32);
    body.put_u64(offset);
    body.put(&SAME);
    body.put_zeroes(16);
    body.put(data);
    (command::WRITE, body)
}

fn lock(flags: u32) -> Body {
    let mut body = Vec::new();
    body.put_u16(48);
    body.put_u16(2);
    body.put_u32(0);
    body.put(&SAME);
    for from in [0, 100] {
        body.put_u64(from);
        body.put_u64(50);
        body.put_u32(flags);
        body.put_u32(0);
    }
    (command::LOCK, body)
}

fn list(class: u8, pattern: &str) -> Body {
    let pattern = utf16(pattern);
    let mut body = Vec::new();
    body.put_u16(33);
    body.put(&[class, 1]);
    body.put_u32(0);
    body.put(&SAME);
    body.put_u16(HEADER as u16 + 32);
    body.put_u16(pattern.len() as u16);
    body.put_u32(4096);
    body.put(&pattern);
    (command::QUERY_DIRECTORY, body)
}

fn watch() -> Body {
    let mut body = Vec::new();
    body.put_u16(32);
    body.put_u16(1);
    body.put_u32(4096);
    body.put(&SAME);
    body.put_u32(0xfff);
    body.put_u32(0);
    (command::CHANGE_NOTIFY, body)
}

fn query(kind: u8, class: u8, input: &[u8]) -> Body {
    let mut body = Vec::new();
    body.put_u16(41);
    body.put(&[kind, class]);
    body.put_u32(4096);
    body.put_u16(HEADER as u16 + 40);
    body.put_u16(0);
    body.put_u32(input.len() as u32);
    body.put_u32(0xf);
    body.put_u32(0);
    body.put(&SAME);
    body.put(input);
    (command::QUERY_INFO, body)
}

fn set(kind: u8, class: u8, data: &[u8]) -> Body {
    let mut body = Vec::new();
    body.put_u16(33);
    body.put(&[kind, class]);
    body.put_u32(data.len() as u32);
    body.put_u16(HEADER as u16 + 32);
    body.put_u16(0);
    body.put_u32(0xf);
    body.put(&SAME);
    body.put(data);
    (command::SET_INFO, body)
}

fn control(code: u32, input: &[u8]) -> Body {
    let mut body = Vec::new();
    body.put_u16(57);
    body.put_u16(0);
    body.put_u32(code);
    body.put(&SAME);
    body.put_u32(HEADER as u32 + 56);
    body.put_u32(input.len() as u32);
    body.put_zeroes(12);
    body.put_u32(4096);
    body.put_u32(1);
    body.put_u32(0);
    body.put(input);
    (command::IOCTL, body)
}

/// A list of extended attributes (MS-FSCC §2.4.16).
fn eas() -> Vec<u8> {
    let mut out = Vec::new();
    for (next, name) in [(20, b"one"), (0, b"two")] {
        out.put_u32(next);
        out.put(&[0, 3]);
        out.put_u16(8);
        out.put(name);
        out.put_u8(0);
        out.put(&[7; 8]);
    }
    out
}

/// A security descriptor (MS-DTYP §2.4.6): owner, group and a list of two entries.
fn descriptor() -> Vec<u8> {
    let sid = |last: u32| {
        let mut sid = vec![1, 2, 0, 0, 0, 0, 0, 22];
        sid.put_u32(1);
        sid.put_u32(last);
        sid
    };
    let mut list = Vec::new();
    list.put(&[2, 0]);
    list.put_u16(8 + 2 * 24);
    list.put_u32(2);
    for kind in [0, 1] {
        list.put(&[kind, 3]);
        list.put_u16(24);
        list.put_u32(0x1_20089);
        list.put(&sid(kind.into()));
    }
    let mut out = vec![1, 0];
    out.put_u16(0x8004);
    for place in [20, 36, 0, 52] {
        out.put_u32(place);
    }
    out.put(&sid(1000));
    out.put(&sid(1001));
    out.put(&list);
    out
}

/// Queries of quotas (§2.2.37.1): of two SIDs, and from one on.
fn quota_queries() -> (Vec<u8>, Vec<u8>) {
    let put_sid = |out: &mut Vec<u8>, uid: u32| {
        out.put(&[1, 2, 0, 0, 0, 0, 0, 22]);
        out.put_u32(1);
        out.put_u32(uid);
    };
    let mut list = vec![0, 1, 0, 0];
    for v in [48, 0, 0, 24, 16] {
        list.put_u32(v);
    }
    put_sid(&mut list, 1000);
    list.put_u32(0);
    list.put_u32(16);
    put_sid(&mut list, 1001);
    let mut from = vec![0; 4];
    for v in [0, 16, 0] {
        from.put_u32(v);
    }
    put_sid(&mut from, 1000);
    (list, from)
}

/// A lease of each version (§2.2.13.2.8, §2.2.13.2.10).
fn leases() -> [CreateContext<'static>; 2] {
    [32, 52].map(|len| {
        let mut data = vec![5; 16];
        data.put_u32(7);
        data.put_u32(4);
        data.put_zeroes(len - 24);
        (b"RqLs", data)
    })
}

/// Names of SET_INFO's renames and links (MS-FSCC §2.4.42.2).
fn encode_rename_info(name: &str) -> Vec<u8> {
    let name = utf16(name);
    let mut out = vec![0; 16];
    out.put_u32(name.len() as u32);
    out.put(&name);
    out
}

/// Fragments of DCE/RPC (C706 §12): a BIND of an interface, and calls of its operations.
fn fragments(interface: &[u8; 20], calls: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    const NDR: [u8; 20] = [
        0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48,
        0x60, 2, 0, 0, 0,
    ];
    let fragment = |kind: u8, rest: &[u8]| {
        let mut out = vec![5, 0, kind, 3, 0x10, 0, 0, 0];
        out.put_u16(16 + rest.len() as u16);
        out.put_u16(0);
        out.put_u32(1);
        out.put(rest);
        out
    };
    let mut bind = Vec::new();
    bind.put_u32(4280 << 16 | 4280);
    bind.put_u32(0);
    bind.put(&[1, 0, 0, 0, 0, 0, 1, 0]);
    bind.put(interface);
    bind.put(&NDR);
    let mut all = vec![fragment(11, &bind)];
    for (operation, stub) in calls {
        let mut call = Vec::new();
        call.put_u32(0);
        call.put_u16(0);
        call.put_u16(*operation);
        call.put(stub);
        all.push(fragment(0, &call));
    }
    all
}

/// Returns the fragments of a bind and of calls to srvsvc (MS-SRVS).
fn of_shares() -> Vec<Vec<u8>> {
    const SRVSVC: [u8; 20] = [
        0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1,
        0x88, 3, 0, 0, 0,
    ];
    let calls = [(15, 1), (16, 1), (21, 101), (36, 2)].map(|(operation, level)| {
        // The server's name, which is left out; for one operation the share's.
        let mut stub = vec![0; 4];
        if operation == 16 {
            for v in [5, 0, 5] {
                stub.put_u32(v);
            }
            stub.put_utf16("vol1\0");
            stub.align(0, 4);
        }
        for v in [level, level, 0x2_0000, 0, 0, u32::MAX, 0] {
            stub.put_u32(v);
        }
        (operation, stub)
    });
    fragments(&SRVSVC, &calls)
}

/// Returns the fragments of a bind and of calls to lsarpc (MS-LSAT), which translates identifiers
/// and names.
fn of_names() -> Vec<Vec<u8>> {
    const LSARPC: [u8; 20] = [
        0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xab, 0, 0, 0, 0,
    ];
    // The handle that OpenPolicy returns.
    let mut policy = b"\0\0\0\0weir".to_vec();
    policy.put_zeroes(11);
    policy.put_u8(1);
    let mut sids = policy.clone();
    for v in [2, 1, 2, 1, 1] {
        sids.put_u32(v);
    }
    for kind in [1, 2] {
        sids.put_u32(2);
        sids.put(&[1, 2, 0, 0, 0, 0, 0, 22]);
        sids.put_u32(kind);
        sids.put_u32(0);
    }
    let mut names = policy.clone();
    names.put_u32(1);
    names.put_u32(1);
    names.put_u16(10);
    names.put_u16(10);
    for v in [1, 5, 0, 5] {
        names.put_u32(v);
    }
    names.put_utf16("alice");
    names.align(0, 4);
    for stub in [&mut sids, &mut names] {
        for v in [0, 0, 1, 0, 0, 2] {
            stub.put_u32(v);
        }
    }
    let mut calls = vec![(44, vec![0; 32])];
    let policies = [7, 46].map(|operation| (operation, [&policy[..], &[5, 0]].concat()));
    calls.extend(policies);
    calls.extend([15, 57].map(|operation| (operation, sids.clone())));
    calls.extend([14, 58, 68].map(|operation| (operation, names.clone())));
    calls.push((0, policy));
    fragments(&LSARPC, &calls)
}

/// Returns the fragments of a bind and of calls to samr (MS-SAMR), which describes accounts.
fn of_accounts() -> Vec<Vec<u8>> {
    const SAMR: [u8; 20] = [
        0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xac, 1, 0, 0, 0,
    ];
    // A handle as it is returned, and arguments.
    let on = |kind: u8, words: &[u32]| {
        let mut stub = b"\0\0\0\0samr".to_vec();
        stub.put(&[kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        words.iter().for_each(|v| stub.put_u32(*v));
        stub
    };
    const SERVER: u8 = 1;
    const DOMAIN: u8 = 2;
    const BUILTIN: u8 = 3;
    const USER: u8 = 4;
    let name = |stub: &mut Vec<u8>| {
        for v in [10 << 16 | 10, 1, 5, 0, 5] {
            stub.put_u32(v);
        }
        stub.put_utf16("alice");
        stub.align(0, 4);
    };
    let mut domain = on(SERVER, &[]);
    name(&mut domain);
    let mut names = on(DOMAIN, &[1, 1000, 0, 1]);
    name(&mut names);
    let mut opens = on(SERVER, &[0x200_0000, 1]);
    opens.put(&[1, 1, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0]);
    let mut members = on(BUILTIN, &[1, 1, 1, 1, 2]);
    members.put(&[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0, 0, 0, 0]);
    let mut calls = vec![(64, vec![0; 24]), (5, domain), (7, opens), (17, names)];
    calls.extend([(6, on(SERVER, &[0, 4096])), (16, members)]);
    calls.extend([8, 46].map(|operation| (operation, on(DOMAIN, &[11]))));
    calls.extend([11, 15].map(|operation| (operation, on(DOMAIN, &[0, 4096]))));
    calls.push((13, on(DOMAIN, &[0, 0, 4096])));
    calls.push((18, on(DOMAIN, &[2, 1000, 0, 2, 0, 513])));
    calls.extend([19, 34].map(|operation| (operation, on(DOMAIN, &[0x200_0000, 513]))));
    calls.push((27, on(BUILTIN, &[0x200_0000, 545])));
    calls.extend([40, 51].map(|operation| (operation, on(DOMAIN, &[1, 0, 100, 4096]))));
    calls.extend([3, 21, 5, 20].map(|level| (36, on(USER, &[level]))));
    calls.extend([(20, on(5, &[1])), (25, on(5, &[])), (28, on(6, &[1]))]);
    calls.extend([(33, on(6, &[])), (39, on(USER, &[])), (3, on(USER, &[7]))]);
    calls.push((1, on(USER, &[])));
    fragments(&SAMR, &calls)
}

/// Which of the user's tree connects a request is for: a byte of its header that means nothing
/// (ProcessId).
pub(super) const TREE_AT: usize = 32;

/// Chains on pipes: calls by FSCTL_PIPE_TRANSCEIVE, and by WRITE and READ.
fn on_pipes() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let pipes = [
        ("srvsvc", of_shares()),
        ("lsarpc", of_names()),
        ("samr", of_accounts()),
    ];
    for (pipe, fragments) in pipes {
        let called = fragments.iter().map(|f| control(0x0011_c017, f));
        let written = fragments.iter().flat_map(|f| [write(0, f), read(0, 4280)]);
        let both: [Vec<Body>; 2] = [called.collect(), written.collect()];
        for requests in both {
            let mut chain = join(&[&[create(pipe)], &requests[..], &[close()]].concat());
            chain[TREE_AT] = 1;
            all.push(chain);
        }
    }
    all
}

/// Every command, with every create context, control and class that is served.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let chains = [chains(), of_quotas()].concat();
    let on_volume = chains.iter().map(|chain| join(chain));
    on_volume.chain(on_pipes()).collect()
}

/// Queries of quotas and what would change them, on a file and on the index of quotas.
fn of_quotas() -> Vec<Vec<Body>> {
    let (listed, from) = quota_queries();
    let queries = [&listed[..], &from, &[0; 16]].map(|input| query(4, 0, input));
    let changes = [set(4, 0, &[0; 60]), query(2, 6, &[]), set(2, 6, &[0; 48])];
    ["file", "$Extend\\$Quota:$Q:$INDEX_ALLOCATION"]
        .map(|name| [&[create(name)], &queries[..], &changes, &[close()]].concat())
        .into()
}

fn chains() -> Vec<Vec<Body>> {
    let on = |name: &str, requests: &[Body]| [&[create(name)], requests, &[close()]].concat();
    let on_directory = |requests: &[Body]| {
        let open = create_with("dir", DIRECTORY, 0, &[]);
        [&[open], requests, &[close()]].concat()
    };
    let u64s = |values: &[u64]| {
        let mut out = Vec::new();
        values.iter().for_each(|v| out.put_u64(*v));
        out
    };
    let mut all = vec![
        on("file", &[write(3, b"data"), read(0, 100), flush()]),
        on("file:stream", &[write(0, b"data"), read(0, 100)]),
        on("file", &[lock(2), lock(4)]),
        on("file", &[lock(0x12)]),
        on_directory(&[watch()]),
        vec![(command::ECHO, vec![4, 0, 0, 0])],
        vec![(command::SESSION_SETUP, setup_body(b"NTLMSSP\0"))],
        vec![(command::TREE_CONNECT, tree_connect("vol1"))],
        vec![(command::TREE_DISCONNECT, vec![4, 0, 0, 0])],
        vec![(command::LOGOFF, vec![4, 0, 0, 0])],
    ];
    for (size, rest) in [(24u16, 22), (36, 34)] {
        let mut body = size.to_le_bytes().to_vec();
        body.resize(2 + rest, 1);
        all.push(vec![(command::OPLOCK_BREAK, body)]);
    }
    // Classes of directories, files, file systems and descriptors (MS-FSCC §2.4, §2.5).
    for class in [1, 2, 3, 12, 37, 38, 60] {
        all.push(on_directory(&[list(class, "*"), list(class, "f<.>\"")]));
    }
    for class in [4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 21, 22, 28, 34, 35, 48] {
        all.push(on("file", &[query(1, class, &eas())]));
    }
    for class in [1, 3, 4, 5, 7, 8, 11] {
        all.push(on_directory(&[query(2, class, &[])]));
    }
    all.push(on("file", &[query(3, 0, &[]), set(3, 0, &descriptor())]));
    for (class, data) in [
        (4, vec![0; 40]),
        (10, encode_rename_info("renamed")),
        (11, encode_rename_info("linked")),
        (13, vec![1]),
        (14, vec![0; 8]),
        (15, eas()),
        (16, vec![0; 4]),
        (19, u64s(&[8192])),
        (20, u64s(&[5000])),
        (64, vec![3, 0, 0, 0]),
        (65, encode_rename_info("renamed")),
    ] {
        all.push(on("file", &[set(1, class, &data)]));
    }
    // Create contexts (§2.2.13.2), by themselves and together.
    let durable = [&[0; 16][..], &[6; 16]].concat();
    let apple: CreateContext<'_> = (b"AAPL", u64s(&[1, 7, 0x3f]));
    let contexts: Vec<CreateContext<'_>> = vec![
        (b"ExtA", eas()),
        (b"SecD", descriptor()),
        (b"MxAc", Vec::new()),
        (b"QFid", Vec::new()),
        (b"AlSi", vec![0; 8]),
        (b"DHnQ", vec![0; 16]),
        (b"DH2Q", durable.clone()),
        (b"DHnC", vec![1; 16]),
        (b"DH2C", [&durable[..], &[0; 4]].concat()),
        (b"TWrp", u64s(&[0x01d0_0000_0000_0000])),
        apple.clone(),
    ];
    for (n, context) in contexts.iter().chain(&leases()).enumerate() {
        let name = format!("made{n}");
        let opened = create_with(&name, 0, LEASE, std::slice::from_ref(context));
        all.push(vec![opened, close()]);
    }
    let [_, lease] = leases();
    let together = [&contexts[..4], &contexts[6..7], &[lease]].concat();
    all.push(vec![create_with("made", 0, LEASE, &together)]);
    all.push(vec![create_with("batch", 0, 9, &[]), close()]);
    // A listing as macOS has it.
    let root = create_with("", DIRECTORY, 0, &[apple]);
    all.push(vec![root, list(37, "*"), list(37, "file"), close()]);
    all.push(on("@GMT-2026.11.24-04.00.00\\file", &[read(0, 10)]));
    // Controls (§2.2.31, MS-FSCC §2.3).
    let chunks = [&[0; 24][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0; 24]].concat();
    for (code, input) in [
        (0x0006_0194, utf16("\\weir\\vol1")),
        (0x0009_002c, Vec::new()),
        (0x0009_003c, Vec::new()),
        (0x0009_c040, vec![0, 0]),
        (0x0009_009c, Vec::new()),
        (0x0009_00a4, vec![0; 16]),
        (0x0009_00a8, Vec::new()),
        (0x0009_00c0, Vec::new()),
        (0x0009_00c4, vec![1]),
        (0x0009_80c8, u64s(&[100, 9000])),
        (0x0009_40cf, u64s(&[0, 100_000])),
        (0x0009_8344, [&SAME[..], &u64s(&[0, 4096, 4096])].concat()),
        (0x0014_0078, Vec::new()),
        (0x0014_40f2, chunks.clone()),
        (0x0014_80f2, chunks),
        (0x0014_4064, Vec::new()),
        (0x0014_01fc, Vec::new()),
        (0x0014_0204, [&[0; 20][..], &[1, 0, 1, 0, 0x11, 3]].concat()),
    ] {
        all.push(on("file", &[control(code, &input)]));
    }
    all
}
