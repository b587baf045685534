//! The network status monitor, version 1 (X/Open XNFS, chapter 11): the part that lock managers
//! need. Other hosts report their restart (SM_NOTIFY). Lock managers of this machine may register
//! to be notified of it (SM_MON), since only one status monitor can be registered on a machine and
//! it may be this one.

use crate::nlm::{LockService, Monitor};
use crate::rpc::xdr::{self, Put, Reader};
use std::net::SocketAddr;
use weir_base::limits::protocol::MAX_MONITOR_NAME as MAX_NAME;
use weir_vfs::names::Wait;

/// Results of the status monitor: `STAT_SUCC`, `STAT_FAIL`.
const SUCCESS: u32 = 0;
const FAIL: u32 = 1;

/// The decoded arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL: no arguments, no results.
    Null,
    /// SM_STAT: asks if a host is monitored.
    Stat(&'a [u8]),
    /// SM_MON: host; program, version and procedure to call; private data.
    Mon(&'a [u8], [u32; 3], [u8; 16]),
    /// SM_UNMON: host and program.
    Unmon(&'a [u8], u32),
    /// SM_UNMON_ALL: number of the program.
    UnmonAll(u32),
    /// SM_SIMU_CRASH: makes the monitor behave as after a restart.
    SimulateCrash,
    /// SM_NOTIFY: a host has restarted and reached this state.
    Notify(&'a [u8], u32),
}

/// Decodes the arguments of `procedure`; `None` if there is no such procedure.
pub fn decode(procedure: u32, args: &[u8]) -> Option<xdr::Result<Args<'_>>> {
    let mut r = Reader::new(args);
    (procedure <= 6).then(|| known(procedure, &mut r))
}

fn known<'a>(procedure: u32, r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    Ok(match procedure {
        0 => Args::Null,
        1 => Args::Stat(r.opaque(MAX_NAME)?),
        2 => Args::Mon(r.opaque(MAX_NAME)?, my_id(r)?, r.fixed()?),
        3 => {
            let host = r.opaque(MAX_NAME)?;
            let [program, ..] = my_id(r)?;
            Args::Unmon(host, program)
        }
        4 => {
            let [program, ..] = my_id(r)?;
            Args::UnmonAll(program)
        }
        5 => Args::SimulateCrash,
        _ => Args::Notify(r.opaque(MAX_NAME)?, r.u32()?),
    })
}

/// Decodes `my_id` without its name: program, version, procedure.
fn my_id(r: &mut Reader<'_>) -> xdr::Result<[u32; 3]> {
    r.opaque(MAX_NAME)?;
    Ok([r.u32()?, r.u32()?, r.u32()?])
}

/// Serves decoded arguments. Returns the look-up to wait for, if the caller's name matters and is
/// not known yet.
///
/// Requests for this machine's own lock managers are accepted only from its kernel and root: from a
/// port below 1024 (IPPORT_RESERVED), which others cannot use.
pub(crate) fn serve(
    locks: &LockService,
    client: SocketAddr,
    args: &Args<'_>,
    out: &mut Vec<u8>,
) -> Option<Wait> {
    let address = client.ip().to_canonical();
    let here = address.is_loopback() && client.port() < 1024;
    match args {
        Args::Null => {}
        Args::Stat(_) => {
            out.put_u32(SUCCESS);
            out.put_u32(locks.nsm_state());
        }
        Args::Mon(host, [program, version, procedure], private) => {
            let monitor = Monitor {
                host: host.to_vec(),
                program: *program,
                version: *version,
                procedure: *procedure,
                private: *private,
            };
            let ok = here && locks.monitor(monitor);
            out.put_u32(if ok { SUCCESS } else { FAIL });
            out.put_u32(locks.nsm_state());
        }
        Args::Unmon(host, program) => {
            if here {
                locks.unmonitor(Some(host), *program);
            }
            out.put_u32(locks.nsm_state());
        }
        Args::UnmonAll(program) => {
            if here {
                locks.unmonitor(None, *program);
            }
            out.put_u32(locks.nsm_state());
        }
        Args::SimulateCrash => {
            if here {
                locks.simulate_crash();
            }
        }
        Args::Notify(host, state) => return locks.host_restarted(address, host, *state),
    }
    None
}
