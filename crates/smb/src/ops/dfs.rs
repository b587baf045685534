//! Referrals of DFS (MS-DFSC): shares of other servers of the cluster.
//!
//! Such a share can be connected to here, as the root of a DFS namespace whose only content is a
//! link to the share of the same name at its owner. Every CREATE in it is answered
//! PATH_NOT_COVERED. A client that asks for a referral of the share, before or then, gets the
//! owner's address.

use crate::context::run::{Failure, Run};
use crate::open::shares::{self, ShareReferral};
use crate::proto::status::Status;
use std::net::IpAddr;
use weir_auth::wire::{Put, Reader, from_utf16, utf16};
use weir_vfs::Stop;

/// Seconds for which clients keep a referral.
const TTL: u32 = 30;
/// Bytes of an entry of version 3 or 4 (MS-DFSC §2.2.5.3, §2.2.5.4).
const ENTRY: u16 = 34;
/// StorageServers: the targets have files, and no further referrals (§2.2.4).
const STORAGE_SERVERS: u32 = 2;
/// TargetSetBoundary (§2.2.5.4): the first target of a set, in version 4.
const BOUNDARY: u16 = 4;

/// Returns the name of a host by its address, in a path of SMB. Windows takes a colon for another
/// thing, and has names for the addresses of version 6.
fn host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            format!("{}.ipv6-literal.net", address.to_string().replace(':', "-"))
        }
    }
}

/// Returns the level and the path of a request, in the form of FSCTL_DFS_GET_REFERRALS (§2.2.2) or
/// of its extension (§2.2.3).
fn decode(input: &[u8], extended: bool) -> Result<(u16, String), Status> {
    let mut r = Reader::new(input);
    let level = r.u16()?;
    let bytes = if extended {
        r.u16()?;
        r.u32()?;
        let len = usize::from(r.u16()?);
        r.bytes(len)?
    } else {
        r.rest()
    };
    let text = from_utf16(bytes.get(..bytes.len() & !1).unwrap_or_default())?;
    let path = text.split('\0').next().unwrap_or_default();
    Ok((level, path.to_owned()))
}

/// Returns RESP_GET_DFS_REFERRAL (§2.2.4) for a share; `path` is the part of the request that the
/// referral replaces.
fn response(level: u16, path: &str, referred: &ShareReferral) -> Vec<u8> {
    let version = level.min(4);
    let mut out = Vec::new();
    out.put_u16(utf16(path).len() as u16);
    out.put_u16(referred.targets.len() as u16);
    out.put_u32(STORAGE_SERVERS);
    let name = utf16(&format!("{path}\0"));
    let targets = referred.targets.iter();
    let targets = targets.map(|at| utf16(&format!("\\{}\\{}\0", host(*at), referred.share)));
    let targets: Vec<Vec<u8>> = targets.collect();
    let entries = usize::from(ENTRY) * targets.len();
    // Offset of the next text, the name and then each target, from the begin of the entries.
    let mut place = entries + name.len();
    for (number, target) in targets.iter().enumerate() {
        let begin = usize::from(ENTRY) * number;
        out.put_u16(version);
        out.put_u16(ENTRY);
        // A link, not a root.
        out.put_u16(0);
        let first = version == 4 && number == 0;
        out.put_u16(if first { BOUNDARY } else { 0 });
        out.put_u32(TTL);
        out.put_u16((entries - begin) as u16);
        out.put_u16((entries - begin) as u16);
        out.put_u16((place - begin) as u16);
        out.put_zeroes(16);
        place += target.len();
    }
    out.put(&name);
    targets.iter().for_each(|target| out.put(target));
    out
}

impl Run<'_> {
    /// FSCTL_DFS_GET_REFERRALS and its extension (MS-SMB2 §3.3.5.15.2, MS-DFSC §3.2.5.1).
    pub(crate) fn referrals(&self, input: &[u8], extended: bool) -> Result<Vec<u8>, Stop<Failure>> {
        let directory = self.s.vfs.directory();
        if directory.generation() == 0 {
            // No namespace of DFS is served.
            return Err(Status::FS_DRIVER_REQUIRED.into());
        }
        let (level, path) = decode(input, extended)?;
        if level < 3 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let rest = path.strip_prefix('\\').ok_or(Status::INVALID_PARAMETER)?;
        // A request for domains or their controllers has no share.
        let (server, rest) = rest.split_once('\\').ok_or(Status::NOT_FOUND)?;
        let share = rest.split('\\').next().unwrap_or_default();
        let is_local = shares::exists(self.table, self.conn.local, share);
        let referred = shares::elsewhere(&directory, self.table, self.conn.local, share);
        let referred = referred.filter(|_| !is_local).ok_or(Status::NOT_FOUND)?;
        let replaced = format!("\\{server}\\{share}");
        Ok(response(level, &replaced, &referred))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::dialect::Dialect;
    use crate::proto::header::command;
    use crate::tests::service::{self, Client, PASSWORD, create, world};
    use weir_vfs::directory::{Directory, Remote, RemoteVolume};

    const GET_REFERRALS: u32 = 0x0006_0194;
    /// SMB2_GLOBAL_CAP_DFS.
    const DFS: u32 = 1;

    fn directory(smb: &[&str]) -> Directory {
        let remote = Remote {
            aggregate: "b".to_owned(),
            identity: [7; 16],
            nfs: Vec::new(),
            smb: smb.iter().map(|at| at.parse().unwrap()).collect(),
            others: Vec::new(),
            transfers: Vec::new(),
            fingerprint: String::new(),
        };
        let volume = |share: &str| RemoteVolume {
            paths: Vec::new(),
            share: Some(share.to_owned()),
            constituent: None,
            origin: None,
        };
        Directory::new(None, vec![(remote, vec![volume("Far"), volume("vol1")])])
    }

    fn get_referrals(path: &str) -> (u16, Vec<u8>) {
        let mut input = Vec::new();
        input.put_u16(4);
        input.put(&utf16(path));
        input.put_u16(0);
        let mut body = Vec::new();
        body.put_u16(57);
        body.put_u16(0);
        body.put_u32(GET_REFERRALS);
        body.put(&[0xff; 16]);
        body.put_u32(64 + 56);
        body.put_u32(input.len() as u32);
        body.put_u32(0);
        body.put_u32(0);
        body.put_u32(0);
        body.put_u32(4096);
        body.put_u32(1);
        body.put_u32(0);
        body.put(&input);
        (command::IOCTL, body)
    }

    fn text(bytes: &[u8], at: usize) -> String {
        let units = bytes[at..].chunks_exact(2);
        let units: Vec<u16> = units.map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
        let end = units.iter().position(|unit| *unit == 0).unwrap();
        String::from_utf16(&units[..end]).unwrap()
    }

    #[test]
    fn shares_of_other_servers_are_referred() {
        let world = world();
        let ask = |client: &mut Client<'_>, path: &str| {
            let (command, body) = get_referrals(path);
            client.one(command, body)
        };
        let mut before = Client::ready(&world, 1);
        assert_eq!(before.connect("IPC$"), Status::SUCCESS);
        let none = ask(&mut before, "\\weir\\far");
        assert_eq!(none.status, Status::FS_DRIVER_REQUIRED);
        world.vfs.publish_directory(directory(&[
            "10.0.0.2:445",
            "[fd00::3]:445",
            "10.0.0.4:4450",
        ]));

        let mut client = Client::new(&world, 2);
        assert_eq!(client.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        assert_eq!(client.connect("IPC$"), Status::SUCCESS);
        let answer = ask(&mut client, "\\weir\\FAR\\dir\\file");
        assert_eq!(answer.status, Status::SUCCESS);
        // The body of the response is 48 bytes, in front of the output.
        let out = answer.body[48..].to_vec();
        let half = |at: usize| usize::from(u16::from_le_bytes([out[at], out[at + 1]]));
        assert_eq!((half(0), half(2)), (2 * "\\weir\\FAR".len(), 2));
        let targets = ["\\10.0.0.2\\Far", "\\fd00--3.ipv6-literal.net\\Far"];
        for (number, target) in targets.into_iter().enumerate() {
            let entry = 8 + 34 * number;
            assert_eq!((half(entry), half(entry + 2), half(entry + 4)), (4, 34, 0));
            assert_eq!(text(&out, entry + half(entry + 12)), "\\weir\\FAR");
            assert_eq!(text(&out, entry + half(entry + 16)), target);
        }
        // Shares of this server have precedence, and others are in no namespace.
        for path in ["\\weir\\vol1", "\\weir\\nowhere", "\\weir"] {
            assert_eq!(ask(&mut client, path).status, Status::NOT_FOUND, "{path}");
        }
        assert_eq!(ask(&mut client, "").status, Status::INVALID_PARAMETER);

        assert_eq!(client.connect("far"), Status::SUCCESS);
        let (command, body) = create("x", service::ALL, 7, service::OPEN, 0);
        let opened = client.one(command, body);
        assert_eq!(opened.status, Status::PATH_NOT_COVERED);
        // An owner at another port cannot be named.
        world.vfs.publish_directory(directory(&["10.0.0.4:4450"]));
        assert_eq!(client.connect("far"), Status::BAD_NETWORK_NAME);
    }

    #[test]
    fn the_capability_is_that_of_a_cluster() {
        let world = world();
        let capabilities = |connection| {
            let mut client = Client::new(&world, connection);
            let (_, came) = client.negotiate(0x0302);
            let service::Came::Answer(reply) = came else {
                panic!("no answer");
            };
            service::answers(&reply)[0].u32(24)
        };
        assert_eq!(capabilities(1) & DFS, 0);
        world.vfs.publish_directory(directory(&[]));
        assert_eq!(capabilities(2) & DFS, DFS);
    }
}
