//! Calls over named pipes, and the server service among them (MS-SRVS).

use crate::context::run::{Failure, Run};
use crate::open::shares;
use crate::pipes::pipe::{Endpoint, MOST_UNREAD, Pipe};
use crate::pipes::rpc::{self, BAD_ARGUMENTS, FragmentOutcome, NO_SUCH_OPERATION, POINTER};
use crate::pipes::{lsa, samr, wkssvc};
use crate::proto::status::Status;
use parking_lot::Mutex;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_vfs::{Stop, Suspend};

/// A share as it is listed.
struct Share<'s> {
    name: &'s str,
    kind: u32,
    remark: &'s str,
    listed: bool,
}

/// The fixed part of a share's information, and whether the level is known.
fn put_share(out: &mut Vec<u8>, level: u32, share: &Share<'_>) -> bool {
    if level > 2 {
        return false;
    }
    out.put_u32(POINTER);
    if level >= 1 {
        out.put_u32(share.kind);
        out.put_u32(POINTER);
    }
    if level == 2 {
        out.put_u32(0); // Permissions.
        out.put_u32(u32::MAX); // Uses at most: any number.
        out.put_u32(0); // Uses at the moment.
        out.put_u32(POINTER); // The path.
        out.put_u32(0); // No password.
    }
    true
}

/// Writes the strings that the pointers in a share's information refer to.
fn put_share_strings(out: &mut Vec<u8>, level: u32, share: &Share<'_>) {
    rpc::put_string(out, share.name);
    if level >= 1 {
        rpc::put_string(out, share.remark);
    }
    if level == 2 {
        rpc::put_string(out, &format!("C:\\{}", share.name));
    }
}

/// NetrShareEnum (MS-SRVS §3.1.4.8): all shares that are listed in one response.
fn share_enum(level: u32, all: &[Share<'_>]) -> Vec<u8> {
    let all: Vec<_> = all.iter().filter(|share| share.listed).collect();
    let mut out = Vec::new();
    out.put_u32(level);
    out.put_u32(level);
    if level > 2 {
        out.put_u32(0);
        out.put_u32(0);
        out.put_u32(0);
        out.put_u32(INVALID_LEVEL);
        return out;
    }
    out.put_u32(POINTER);
    out.put_u32(all.len() as u32);
    out.put_u32(POINTER);
    out.put_u32(all.len() as u32);
    for share in &all {
        put_share(&mut out, level, share);
    }
    for share in &all {
        put_share_strings(&mut out, level, share);
    }
    out.put_u32(all.len() as u32);
    out.put_u32(0); // No handle to go on with.
    out.put_u32(OK);
    out
}

/// NetrShareGetInfo (MS-SRVS §3.1.4.10).
fn share_info(level: u32, share: Option<&Share<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(level);
    let result = match share {
        Some(share) if level <= 2 => {
            out.put_u32(POINTER);
            put_share(&mut out, level, share);
            put_share_strings(&mut out, level, share);
            OK
        }
        Some(_) => {
            out.put_u32(0);
            INVALID_LEVEL
        }
        None => {
            out.put_u32(0);
            NO_SUCH_SHARE
        }
    };
    out.put_u32(result);
    out
}

/// NetrServerGetInfo (MS-SRVS §3.1.4.17).
fn server_info(level: u32, name: &str) -> Vec<u8> {
    const WINDOWS: u32 = 500;
    const SERVER: u32 = 0x3;
    let mut out = Vec::new();
    out.put_u32(level);
    if !matches!(level, 100 | 101) {
        out.put_u32(0);
        out.put_u32(INVALID_LEVEL);
        return out;
    }
    out.put_u32(POINTER);
    out.put_u32(WINDOWS);
    out.put_u32(POINTER);
    if level == 101 {
        out.put_u32(10);
        out.put_u32(0);
        out.put_u32(SERVER);
        out.put_u32(POINTER);
    }
    rpc::put_string(&mut out, name);
    if level == 101 {
        rpc::put_string(&mut out, "Weir");
    }
    out.put_u32(OK);
    out
}

/// Operations (MS-SRVS §3.1.4).
const SHARE_ENUM: u16 = 15;

const SHARE_GET_INFO: u16 = 16;

const SERVER_GET_INFO: u16 = 21;

const SHARE_ENUM_STICKY: u16 = 36;

/// Results (MS-ERREF §2.2).
const OK: u32 = 0;

const INVALID_LEVEL: u32 = 124;

const NO_SUCH_SHARE: u32 = 2310;

/// Kinds of shares (MS-SRVS §2.2.2.4).
const DISK: u32 = 0;

const PIPES: u32 = 0x8000_0003;

impl Run<'_> {
    /// Takes a fragment that was written to a pipe, and has the response ready to be read.
    pub(crate) fn transact(
        &mut self,
        pipe: &Mutex<Pipe>,
        fragment: &[u8],
    ) -> Result<(), Stop<Failure>> {
        let mut pipe = pipe.lock();
        if pipe.unread.len() > MOST_UNREAD {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let pipe = &mut *pipe;
        let call = match pipe.binding.accept(fragment, &mut pipe.unread)? {
            FragmentOutcome::Nothing => return Ok(()),
            FragmentOutcome::Call(call) => call,
        };
        let result = match pipe.endpoint {
            Endpoint::Srvsvc => self.call(call.operation, call.stub),
            Endpoint::Lsarpc => {
                let (known, machine) = (self.s.domains().known(), self.s.machine());
                let names = lsa::Names::new(&*self.s.users, &known, machine.as_deref());
                let result = lsa::call(call.operation, call.stub, &names, &self.s.name);
                if let Some(coming) = names.lacked() {
                    // Nothing was done yet: the call is made again when the name service has
                    // replied.
                    return Err(Suspend::Users(coming).into());
                }
                result
            }
            Endpoint::Samr => {
                let sam = samr::Sam::new(&*self.s.users, &self.s.name);
                samr::call(call.operation, call.stub, &sam)
            }
            Endpoint::Wkssvc => wkssvc::call(call.operation, call.stub, &self.s.name),
        };
        match result {
            Ok(Some(stub)) => rpc::respond(&mut pipe.unread, &call, &stub),
            Ok(None) => rpc::fault(&mut pipe.unread, &call, NO_SUCH_OPERATION),
            Err(DecodeError) => rpc::fault(&mut pipe.unread, &call, BAD_ARGUMENTS),
        }
        Ok(())
    }

    fn call(&self, operation: u16, stub: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        let mut r = Reader::new(stub);
        rpc::server_name(&mut r)?;
        let shared =
            shares::list_shares(&self.s.vfs, self.table, (self.conn.peer, self.conn.local));
        let volumes = shared.iter().map(|share| Share {
            name: &share.name,
            kind: DISK,
            remark: "",
            listed: share.browsable,
        });
        let pipes = Share {
            name: shares::PIPES,
            kind: PIPES,
            remark: "named pipes",
            listed: true,
        };
        let all: Vec<Share<'_>> = volumes.chain([pipes]).collect();
        Ok(Some(match operation {
            SHARE_ENUM | SHARE_ENUM_STICKY => share_enum(r.u32()?, &all),
            SHARE_GET_INFO => {
                let name = rpc::string(&mut r)?;
                let level = r.u32()?;
                share_info(
                    level,
                    all.iter().find(|s| s.name.eq_ignore_ascii_case(&name)),
                )
            }
            SERVER_GET_INFO => server_info(r.u32()?, &self.s.name),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipes::pipe::SRVSVC;
    use crate::pipes::rpc::Syntax;
    use proptest::prelude::*;

    fn bind(interface: &Syntax) -> Vec<u8> {
        let mut out = vec![5, 0, 11, 3, 0x10, 0, 0, 0];
        out.put_u16(72);
        out.put_u16(0);
        out.put_u32(1);
        out.put_zeroes(8);
        out.put(&[1, 0, 0, 0]);
        out.put_u16(0);
        out.put(&[1, 0]);
        out.put(interface);
        out.put(&[
            0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 8, 0, 0x2b, 0x10, 0x48,
            0x60, 2, 0, 0, 0,
        ]);
        assert_eq!(out.len(), 72);
        out
    }

    #[test]
    fn a_pipe_binds_its_own_interface_alone() {
        for (interface, result) in [(SRVSVC, 0), ([7; 20], 2)] {
            let mut pipe = Pipe::open("SrvSvc").unwrap();
            let fragment = bind(&interface);
            let asked = pipe.binding.accept(&fragment, &mut pipe.unread);
            assert!(matches!(asked, Ok(FragmentOutcome::Nothing)));
            let (answer, more) = pipe.read(4096);
            assert!(!more && answer.len() == usize::from(answer[8]));
            assert_eq!((answer[2], answer[answer.len() - 24]), (12, result));
        }
        assert!(Pipe::open("spoolss").is_none());
    }

    #[test]
    fn a_response_is_read_in_parts() {
        let mut pipe = Pipe::open("srvsvc").unwrap();
        let fragment = bind(&SRVSVC);
        let _ = pipe.binding.accept(&fragment, &mut pipe.unread);
        let all = pipe.unread.clone();
        let (first, more) = pipe.read(10);
        assert!(more && first.len() == 10);
        assert_eq!([first, pipe.read(4096).0].concat(), all);
        assert_eq!(pipe.read(4096).0, Vec::<u8>::new());
    }

    proptest! {
        #[test]
        fn any_fragment_is_taken_or_refused(at in 0usize..72, with in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut pipe = Pipe::open("srvsvc").unwrap();
            let _ = pipe.binding.accept(&bytes, &mut pipe.unread);
            let mut fragment = bind(&SRVSVC);
            fragment[at] = with;
            let _ = pipe.binding.accept(&fragment, &mut pipe.unread);
            prop_assert!(pipe.unread.len() < 4096);
            let mut r = Reader::new(&bytes);
            let _ = rpc::string(&mut r);
        }
    }
}
