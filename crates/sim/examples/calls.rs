//! Repeats a call of NFSv3 on a server in memory, for `bench/instructions` to count its cost.
//!
//! `calls LOAD COUNT [quotas]`: the difference of two counts has the call alone, without start and
//! end.

use std::process::ExitCode;

use weir_nfs::Outcome;
use weir_sim::machine::{Machine, Sizes};
use weir_sim::nfs::server::Server;
use weir_sim::rand::Choices;
use weir_sim::subject::Subject;
use weir_testclient::nfs3::{How, Sattr};
use weir_testclient::rpc::results;
use weir_testclient::{Call, Caller, Reply};
use weir_volume::{QuotaLimit, QuotaRules};

/// The user that calls.
const USER: u32 = 1000;
/// Bytes of the file.
const FILE: u64 = 1 << 20;

fn calls(load: &str, root: &[u8], file: &[u8], n: u64) -> Option<Vec<Call>> {
    let (root, fh) = (root.to_vec(), file.to_vec());
    let name = |n: u64| format!("f{n}").into_bytes();
    let data = |len| vec![n as u8; len];
    let attr = Sattr::mode(0o644);
    let write = |offset, stable, data| Call::Write {
        fh: file.to_vec(),
        offset,
        stable,
        data,
    };
    let read = |offset, count| Call::Read {
        fh: file.to_vec(),
        offset,
        count,
    };
    let at = |len| n % (FILE / len) * len;
    Some(vec![match load {
        "getattr" => Call::Getattr(fh),
        "lookup" => Call::Lookup(root, b"file".to_vec()),
        "read-4k" => read(at(4096), 4096),
        "read-64k" => read(at(65_536), 65_536),
        "write-4k-unstable" => write(at(4096), 0, data(4096)),
        "write-4k-stable" => write(at(4096), 2, data(4096)),
        "write-64k-unstable" => write(at(65_536), 0, data(65_536)),
        "create-remove" => {
            let made = Call::Create(root.clone(), name(n), How::Unchecked(attr));
            return Some(vec![made, Call::Remove(root, name(n))]);
        }
        "rename" => Call::Rename {
            from: (root.clone(), name(n)),
            to: (root, name(n + 1)),
        },
        _ => return None,
    }])
}

fn run(load: &str, count: u64, quotas: bool) -> Result<(), String> {
    let sizes = Sizes {
        inodes: 1000,
        log_blocks: 64 << 10,
        ..Sizes::small()
    };
    let machine = Machine::new(sizes, &Choices::new(1))?;
    let running = machine.boot()?;
    if quotas {
        let most = QuotaLimit {
            bytes: u64::MAX / 2,
            files: u64::MAX / 2,
            ..QuotaLimit::default()
        };
        let rules = QuotaRules {
            default_user: Some(most),
            default_group: Some(most),
            ..QuotaRules::default()
        };
        let set = running.volume.set_quotas(rules);
        set.map_err(|error| error.to_string())?;
    }
    let mut server = Server::new(&machine, &running)?;
    let root = server.root().to_vec();
    let now = machine.now();
    let file = server.make(&root, b"file", FILE, now)?;
    server.make(&root, b"f0", 0, now)?;
    let mut xid = 1 << 20;
    let mut by = |caller: &Caller, call: &Call| {
        xid += 1;
        match server.handle(&call.message(xid, caller), now) {
            // Some are looked at, which costs more than many a call.
            Outcome::Reply(reply, _) if xid % 64 == 0 => {
                let bytes = reply.message();
                let reply = results(&bytes, xid).and_then(|results| call.decode(results));
                match reply.map_err(|what| what.0)? {
                    Reply::Error(status) => Err(format!("{call:?}: status {status}")),
                    _ => Ok(()),
                }
            }
            Outcome::Reply(..) => Ok(()),
            _ => Err("no reply".to_owned()),
        }
    };
    // The load is a user's, who is limited if anybody is.
    for (object, mode) in [(&root, 0o777), (&file, 0o644)] {
        let attr = Sattr {
            uid: Some(USER),
            gid: Some(USER),
            ..Sattr::mode(mode)
        };
        by(
            &Caller::default(),
            &Call::Setattr(object.clone(), attr, None),
        )?;
    }
    let user = Caller {
        uid: USER,
        gid: USER,
        ..Caller::default()
    };
    let mut call = |call: &Call| by(&user, call);
    for n in 0..FILE / 65_536 {
        let fill = calls("write-64k-unstable", &root, &file, n);
        fill.iter().flatten().try_for_each(&mut call)?;
    }
    for n in 0..count {
        let calls = calls(load, &root, &file, n).ok_or("no such load")?;
        calls.iter().try_for_each(&mut call)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [load, count] => count.parse().map(|count| run(load, count, false)),
        [load, count, "quotas"] => count.parse().map(|count| run(load, count, true)),
        _ => Ok(Err("usage: calls LOAD COUNT [quotas]".to_owned())),
    };
    match done
        .map_err(|error| error.to_string())
        .and_then(|done| done)
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("calls: {why}");
            ExitCode::FAILURE
        }
    }
}
