//! MOUNT version 3 (RFC 1813 Appendix I): translates an export's path to the handle of its root,
//! and lists the clients that have mounted.
//!
//! A path below an export may be mounted too. The server walks there with its own rights (as root),
//! as knfsd's mountd and Ganesha do: the export's rules decide about mounting a directory, and its
//! own permissions about using it. A check of the directories above would add nothing: root mounts
//! for users, and is nobody where it is squashed; and a handle works without them
//! (docs/reference/semantics.md).

use crate::rpc;
use crate::rpc::message::Refusal;
use crate::rpc::xdr::{self, Put, Reader};
use parking_lot::Mutex;
use std::net::IpAddr;
use weir_base::VolumeId;
use weir_base::limits::MAX_MOUNT_PATH;
use weir_base::limits::net::{MAX_EXPORT_LIST, MAX_MOUNTS};
use weir_vfs::names::Wait;
use weir_vfs::{
    Error, Export, ExportTable, OpContext, Protocol, Rule, Scope, Stop, Suspend, Verdict, Vfs,
};

/// `mountstat3` (RFC 1813 §5.1.5).
mod stat {
    pub const OK: u32 = 0;
    pub const NOENT: u32 = 2;
    pub const IO: u32 = 5;
    pub const ACCES: u32 = 13;
    pub const NOTDIR: u32 = 20;
    pub const NAMETOOLONG: u32 = 63;
    pub const SERVERFAULT: u32 = 10_006;
}

/// The decoded arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL (§5.2.0): no arguments, no results.
    Null,
    /// MNT (§5.2.1): the path to mount.
    Mnt(&'a [u8]),
    /// DUMP (§5.2.2): lists what clients have mounted.
    Dump,
    /// UMNT (§5.2.3): the path that is not mounted any more.
    Umnt(&'a [u8]),
    /// UMNTALL (§5.2.4): the client has nothing mounted any more.
    UmntAll,
    /// EXPORT (§5.2.5): lists the exports.
    Export,
}

/// Decodes the arguments of `procedure`; `None` if there is no such procedure.
pub fn decode(procedure: u32, args: &[u8]) -> Option<xdr::Result<Args<'_>>> {
    let mut r = Reader::new(args);
    Some(match procedure {
        0 => Ok(Args::Null),
        1 => r.opaque(MAX_MOUNT_PATH).map(Args::Mnt),
        2 => Ok(Args::Dump),
        3 => r.opaque(MAX_MOUNT_PATH).map(Args::Umnt),
        4 => Ok(Args::UmntAll),
        5 => Ok(Args::Export),
        _ => return None,
    })
}

/// The paths that clients have mounted, as far as they have reported it.
#[derive(Default)]
pub(crate) struct Mounts {
    list: Mutex<Vec<(IpAddr, String)>>,
}

impl Mounts {
    fn add(&self, client: IpAddr, path: &str) {
        let mut list = self.list.lock();
        list.retain(|(c, p)| *c != client || p != path);
        if list.len() >= MAX_MOUNTS {
            list.remove(0);
        }
        list.push((client, path.to_owned()));
    }

    fn remove(&self, client: IpAddr, path: Option<&str>) {
        self.list
            .lock()
            .retain(|(c, p)| *c != client || path.is_some_and(|path| p != path));
    }
}

/// Returns true if a rule admits a flavour that this server can establish.
fn usable(rule: &Rule, kerberos: bool) -> bool {
    rpc::offered(rule.flavours, kerberos).next().is_some()
}

/// One call being served.
pub(crate) struct Op<'a> {
    pub(crate) vfs: &'a Vfs,
    pub(crate) table: &'a ExportTable,
    pub(crate) mounts: &'a Mounts,
    pub(crate) client: IpAddr,
    /// The address of the server that the client has come to.
    pub(crate) local: IpAddr,
    /// True if callers can be established by Kerberos.
    pub(crate) kerberos: bool,
    pub(crate) cx: &'a mut OpContext,
    pub(crate) out: &'a mut Vec<u8>,
    /// Set when the client's admission depends on a name that is not known yet.
    pub(crate) unknown: Option<Wait>,
    /// The volume that the call is about, once that is known.
    pub(crate) volume: Option<VolumeId>,
}

impl Op<'_> {
    /// Serves a call whose arguments are decoded; appends its results.
    pub(crate) fn run(&mut self, args: &Args<'_>) -> Result<(), Suspend> {
        match args {
            Args::Null => {}
            Args::Mnt(path) => return self.mnt(path),
            Args::Dump => {
                for (client, path) in self.mounts.list.lock().iter() {
                    self.out.put_bool(true);
                    self.out.put_opaque(client.to_string().as_bytes());
                    self.out.put_opaque(path.as_bytes());
                }
                self.out.put_bool(false);
            }
            Args::Umnt(path) => {
                let text = String::from_utf8_lossy(path);
                let found = self.table.of_path_at(self.local, &text);
                self.volume = found.map(|(export, _)| export.volume());
                self.mounts
                    .remove(self.client, Some(text.trim_end_matches('/')));
            }
            Args::UmntAll => self.mounts.remove(self.client, None),
            Args::Export => self.export(),
        }
        Ok(())
    }

    /// Serves EXPORT: lists what this client may mount, with the clients that each export is for.
    /// If there are too many exports for a reply, lists the first by name.
    fn export(&mut self) {
        let verdict = |e| self.vfs.verdict(e, self.client, Protocol::Nfsv3);
        let all: Vec<(&str, &Export)> = match self.table.scope(self.local) {
            Scope::All => {
                let exports = self.table.iter();
                exports
                    .flat_map(|e| e.paths().map(move |path| (path, e)))
                    .collect()
            }
            Scope::Own(own) => own.into_iter().map(|(e, path)| (path, e)).collect(),
        };
        let mut exports: Vec<_> = all
            .into_iter()
            .filter(
                |(_, e)| matches!(verdict(e), Verdict::Rule(rule) if usable(rule, self.kerberos)),
            )
            .collect();
        exports.sort_unstable_by_key(|(path, _)| *path);
        for (path, e) in exports {
            let before = self.out.len();
            self.out.put_bool(true);
            self.out.put_opaque(path.as_bytes());
            for rule in e
                .rules
                .iter()
                .filter(|r| r.protocols.nfsv3 && usable(r, self.kerberos))
            {
                self.out.put_bool(true);
                self.out.put_opaque(rule.clients.to_string().as_bytes());
            }
            self.out.put_bool(false);
            if self.out.len() > MAX_EXPORT_LIST {
                self.out.truncate(before);
                break;
            }
        }
        self.out.put_bool(false);
    }

    fn mnt(&mut self, path: &[u8]) -> Result<(), Suspend> {
        let text = String::from_utf8_lossy(path);
        let Some((export, rest)) = self.table.of_path_at(self.local, &text) else {
            self.out.put_u32(stat::NOENT);
            return Ok(());
        };
        self.volume = Some(export.volume());
        let flavours = match self.vfs.verdict(export, self.client, Protocol::Nfsv3) {
            Verdict::Rule(rule) if usable(rule, self.kerberos) => rule.flavours,
            Verdict::Rule(_) | Verdict::Denied => {
                self.out.put_u32(stat::ACCES);
                return Ok(());
            }
            Verdict::Unknown(wait) => {
                self.unknown = Some(wait);
                self.out.put_u32(stat::ACCES);
                return Ok(());
            }
        };
        match self.vfs.walk(self.cx, export, rest) {
            Ok(handle) => {
                self.out.put_u32(stat::OK);
                self.out.put_opaque(&handle);
                // MNT itself may come by any flavour: clients learn here which flavour to use (RFC
                // 2623 §2.6).
                self.out
                    .put_u32(rpc::offered(flavours, self.kerberos).count() as u32);
                for (number, _) in rpc::offered(flavours, self.kerberos) {
                    self.out.put_u32(number);
                }
                self.mounts.add(self.client, text.trim_end_matches('/'));
            }
            Err(Stop::Failed(e)) => self.out.put_u32(match e {
                Error::NotFound => stat::NOENT,
                Error::NotDir => stat::NOTDIR,
                Error::Access | Error::Name(_) => stat::ACCES,
                Error::NameTooLong => stat::NAMETOOLONG,
                Error::Io => stat::IO,
                _ => stat::SERVERFAULT,
            }),
            Err(Stop::Suspended(suspend)) => return Err(suspend),
        }
        Ok(())
    }
}

/// Returns the status of a failed call, read from the beginning of its results. Only MNT has one.
pub(crate) fn failed_with(procedure: u32, results: &[u8]) -> Option<u32> {
    let status = results.first_chunk().map(|b| u32::from_be_bytes(*b));
    status.filter(|status| procedure == 1 && *status != stat::OK)
}

/// Appends the results of a call whose volume could not finish the work that the call waited for.
/// Only MNT has a status for it.
pub(crate) fn failure(procedure: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if procedure != 1 {
        return Err(Refusal::SystemErr);
    }
    out.put_u32(stat::IO);
    Ok(())
}
