//! The pipe `wkssvc` (MS-WKST), by which clients query the name and version of this machine. The
//! list of logged-on users is only for administrators, and there are none.

use crate::pipes::lsa;
use crate::pipes::rpc::{self, POINTER, Syntax};
use weir_auth::wire::{DecodeError, Put, Reader};

/// 6bffd098-a112-3610-9833-46c3f87e345a, version 1.
pub const WKSSVC: Syntax = [
    0x98, 0xd0, 0xff, 0x6b, 0x12, 0xa1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e, 0x34, 0x5a,
    1, 0, 0, 0,
];

/// NetrWkstaGetInfo (MS-WKST §3.2.4.1).
const GET_INFO: u16 = 0;

/// Results (MS-ERREF §2.2).
const OK: u32 = 0;
const ACCESS_DENIED: u32 = 5;
const INVALID_LEVEL: u32 = 124;

/// Runs a call on the server with this name. Returns its results in NDR, or `None` if there is no
/// such operation.
///
/// # Errors
/// Its arguments cannot be read.
pub fn call(operation: u16, stub: &[u8], server: &str) -> Result<Option<Vec<u8>>, DecodeError> {
    if operation != GET_INFO {
        return Ok(None);
    }
    let mut r = Reader::new(stub);
    rpc::server_name(&mut r)?;
    Ok(Some(info(r.u32()?, server)))
}

/// WKSTA_INFO_100 and 101 (MS-WKST §2.2.5.1, §2.2.5.2).
fn info(level: u32, server: &str) -> Vec<u8> {
    const WINDOWS: u32 = 500;
    let mut out = Vec::new();
    out.put_u32(level);
    let result = match level {
        100 | 101 => OK,
        // It has the number of those who have logged on.
        102 => ACCESS_DENIED,
        _ => INVALID_LEVEL,
    };
    if result != OK {
        out.put_u32(0);
        out.put_u32(result);
        return out;
    }
    out.put_u32(POINTER);
    out.put_u32(WINDOWS);
    out.put_u32(POINTER);
    out.put_u32(POINTER);
    // The version of Windows, as `srvsvc` has it.
    out.put_u32(10);
    out.put_u32(0);
    if level == 101 {
        out.put_u32(POINTER);
    }
    rpc::put_string(&mut out, server);
    rpc::put_string(&mut out, lsa::NO_DOMAIN);
    if level == 101 {
        // The folder of LAN Manager, which there is none of.
        rpc::put_string(&mut out, "");
    }
    out.put_u32(OK);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(level: u32) -> Vec<u8> {
        let mut stub = Vec::new();
        stub.put_u32(POINTER);
        rpc::put_string(&mut stub, "\\\\weir");
        stub.put_u32(level);
        call(GET_INFO, &stub, "WEIR").ok().flatten().unwrap()
    }

    #[test]
    fn the_machine_says_its_name_and_workgroup() {
        for level in [100, 101] {
            let found = asked(level);
            let mut r = Reader::new(&found);
            let fixed: Vec<u32> = (0..7 + level - 100).map(|_| r.u32().unwrap()).collect();
            assert_eq!(fixed[..3], [level, POINTER, 500]);
            assert_eq!(fixed[5..7], [10, 0]);
            assert_eq!(rpc::string(&mut r).unwrap(), "WEIR");
            assert_eq!(rpc::string(&mut r).unwrap(), "WORKGROUP");
            if level == 101 {
                assert_eq!(rpc::string(&mut r).unwrap(), "");
            }
            assert_eq!((r.u32().unwrap(), r.rest().len()), (OK, 0), "level {level}");
        }
    }

    #[test]
    fn what_is_for_administrators_is_refused() {
        for (level, result) in [(102, ACCESS_DENIED), (502, INVALID_LEVEL)] {
            let expected = [level, 0, result].map(u32::to_le_bytes).concat();
            assert_eq!(asked(level), expected);
        }
        // NetrWkstaUserEnum.
        assert!(matches!(call(2, &[], "WEIR"), Ok(None)));
        assert!(call(GET_INFO, &[0; 7], "WEIR").is_err());
    }
}
