//! Upper bound of a reply's size, computed before the request runs.

use crate::rpc::message::Message;
use crate::rpc::xdr::Reader;
use crate::v4::args::{self, Args};
use crate::{NFS_PROGRAM, rpc};
use weir_base::limits::MAX_IO;
use weir_base::limits::net::MAX_LISTING;

/// Returns the maximum number of bytes of data in the reply to `record`: the sum of what its READs
/// and listings ask for. If the arguments are encrypted, the bound is the maximum of a READ. A READ
/// returns at most `reads` bytes.
pub fn reply_bound(record: &[u8], reads: usize) -> usize {
    let most = MAX_IO.min(reads);
    let Message::Call(call) = rpc::message(record) else {
        return 0;
    };
    if call.program != NFS_PROGRAM {
        return 0;
    }
    // Its arguments may be sealed.
    let sealed = call.flavour == rpc::RPCSEC_GSS;
    match (call.version, call.procedure) {
        // READ (RFC 1813 §3.3.6).
        (3, 6) if sealed => most,
        (3, 6) => {
            let mut r = Reader::new(call.args);
            let handle = r.opaque(64);
            let count = handle.and_then(|_| r.u64()).and_then(|_| r.u32());
            count.map_or(0, |count| (count as usize).min(most))
        }
        // READDIR and READDIRPLUS (§3.3.16, §3.3.17).
        (3, 16 | 17) => MAX_LISTING,
        (4, 1) if sealed => most,
        (4, 1) => compound(call.args, most),
        _ => 0,
    }
}

/// Returns the bound for a COMPOUND. Counts the operations up to the first that cannot be decoded,
/// because no later one runs.
fn compound(args: &[u8], most: usize) -> usize {
    let mut r = Reader::new(args);
    let Ok(head) = args::Head::decode(&mut r) else {
        return 0;
    };
    let mut bound = 0;
    for _ in 0..head.count {
        let Ok(operation) = r.u32() else {
            break;
        };
        let more = match args::decode(head.minor, operation, &mut r) {
            Ok(Args::Read(bytes) | Args::ReadPlus(bytes)) => {
                usize::try_from(bytes.count).unwrap_or(most).min(most)
            }
            Ok(Args::ReadDir(list)) => (list.maxcount as usize).min(MAX_LISTING),
            // No operation behind it is run.
            Ok(Args::Illegal | Args::NotServed) | Err(_) => break,
            Ok(_) => 0,
        };
        bound += more;
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        rpc::put_call(&mut out, 1, NFS_PROGRAM, version, procedure);
        out.extend_from_slice(args);
        out
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn reads_and_listings_say_how_much_they_ask_for() {
        let read = |count| words(&[4, 0xabcd, 0, 0, count]);
        assert_eq!(reply_bound(&call(3, 6, &read(4096)), usize::MAX), 4096);
        assert_eq!(
            reply_bound(&call(3, 6, &read(u32::MAX)), usize::MAX),
            MAX_IO
        );
        assert_eq!(reply_bound(&call(3, 6, &[0; 3]), usize::MAX), 0);
        assert_eq!(reply_bound(&call(3, 17, &[]), usize::MAX), MAX_LISTING);
        assert_eq!(reply_bound(&call(3, 1, &read(4096)), usize::MAX), 0);
        assert_eq!(reply_bound(&call(3, 6, &read(100_000)), 32_768), 32_768);
        assert_eq!(reply_bound(&call(3, 17, &[]), 1), MAX_LISTING);
        assert_eq!(reply_bound(b"x", usize::MAX), 0);
    }

    #[test]
    fn the_reads_of_a_compound_add_up() {
        // Without a tag, minor version 1, three operations: PUTROOTFH and two READs.
        let read = [25, 0, 0, 0, 0, 0, 0, 70_000];
        let all = [&[0, 1, 3, 24][..], &read, &read].concat();
        assert_eq!(reply_bound(&call(4, 1, &words(&all)), usize::MAX), 140_000);
        assert_eq!(reply_bound(&call(4, 1, &words(&all)), 50_000), 100_000);
        // Operations behind an unknown one are not run.
        let broken = [&[0, 1, 3, 24, 9999][..], &read].concat();
        assert_eq!(reply_bound(&call(4, 1, &words(&broken)), usize::MAX), 0);
        assert_eq!(reply_bound(&call(4, 0, &[]), usize::MAX), 0);
    }
}
