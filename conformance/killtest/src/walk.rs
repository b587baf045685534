//! Reads a whole volume back, as one client with one request at a time.

use std::collections::BTreeMap;

use weir_testclient::nfs3::{Call, DIR, Entry, Fh, LNK, Name, REG, Reply};

use crate::model::{ServerObject, show};
use crate::rpc::{Broken, Connection};

/// The entries of a folder, without "." and "..". A name or a cookie that comes twice is a fault.
pub fn list(c: &mut Connection, dir: &Fh) -> Result<Vec<Entry>, Broken> {
    let mut all: Vec<Entry> = Vec::new();
    let (mut cookie, mut verifier) = (0, [0; 8]);
    loop {
        match c.call(&Call::Readdirplus {
            dir: dir.clone(),
            cookie,
            verifier,
            dircount: 8192,
            maxcount: 65_536,
        })? {
            Reply::Entries {
                entries,
                verifier: v,
                eof,
            } => {
                if entries.is_empty() && !eof {
                    return Err(Broken::Wrong("READDIRPLUS: no entry and no end".into()));
                }
                verifier = v;
                for e in entries {
                    cookie = e.cookie;
                    if all.iter().any(|o| o.name == e.name || o.cookie == e.cookie) {
                        return Err(Broken::Wrong(format!(
                            "READDIRPLUS: {} or its cookie comes twice",
                            show(&e.name)
                        )));
                    }
                    all.push(e);
                }
                if eof {
                    all.retain(|e| e.name != b"." && e.name != b"..");
                    return Ok(all);
                }
            }
            other => return Err(Broken::Wrong(format!("READDIRPLUS: {other:?}"))),
        }
    }
}

fn read_all(c: &mut Connection, fh: &Fh) -> Result<Vec<u8>, Broken> {
    let mut data = Vec::new();
    loop {
        match c.call(&Call::Read {
            fh: fh.clone(),
            offset: data.len() as u64,
            count: 65_536,
        })? {
            Reply::Data { data: d, eof } => {
                let stuck = d.is_empty() && !eof;
                data.extend(d);
                if eof {
                    return Ok(data);
                }
                if stuck {
                    return Err(Broken::Wrong("READ: nothing, and not the end".into()));
                }
            }
            other => {
                return Err(Broken::Wrong(format!(
                    "READ of {} bytes so far: {other:?}",
                    data.len()
                )));
            }
        }
    }
}

/// Everything below a folder. LOOKUP, READDIRPLUS and GETATTR must agree.
pub fn tree(c: &mut Connection, dir: &Fh) -> Result<BTreeMap<Name, ServerObject>, Broken> {
    let mut found = BTreeMap::new();
    for e in list(c, dir)? {
        let wrong = |what: String| Broken::Wrong(format!("{}: {what}", show(&e.name)));
        let Reply::Found(fh, _) = c.call(&Call::Lookup(dir.clone(), e.name.clone()))? else {
            return Err(wrong("READDIRPLUS has it, LOOKUP does not".into()));
        };
        let attr = match c.call(&Call::Getattr(fh.clone()))? {
            Reply::Attr(a) => a,
            other => return Err(wrong(format!("GETATTR: {other:?}"))),
        };
        if attr.fileid != e.fileid
            || e.fh.as_ref().is_some_and(|h| *h != fh)
            || e.attr.is_some_and(|a| a.fileid != attr.fileid)
        {
            return Err(wrong(
                "READDIRPLUS and LOOKUP lead to different objects".into(),
            ));
        }
        let mut f = ServerObject {
            fh: fh.clone(),
            attr,
            content: Vec::new(),
            target: Vec::new(),
            children: BTreeMap::new(),
        };
        match attr.kind {
            REG => f.content = read_all(c, &fh)?,
            DIR => f.children = tree(c, &fh)?,
            LNK => match c.call(&Call::Readlink(fh))? {
                Reply::Target(t) => f.target = t,
                other => return Err(wrong(format!("READLINK: {other:?}"))),
            },
            _ => {}
        }
        found.insert(e.name, f);
    }
    Ok(found)
}
