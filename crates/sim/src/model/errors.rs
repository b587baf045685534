//! Sets of errors that an operation may fail with.

use weir_base::limits::MAX_NAME;

use super::op::{Errno, Errors, Kind};
use super::tree::Node;

/// Result of a prediction.
pub(super) type Answer<T> = Result<T, Errors>;

pub(super) const STALE: Errors = Errors::from_list(&[Errno::Stale]);
pub(super) const NOT_DIR: Errors = Errors::from_list(&[Errno::NotDir]);
pub(super) const NOT_FOUND: Errors = Errors::from_list(&[Errno::NotFound]);
pub(super) const EXISTS: Errors = Errors::from_list(&[Errno::Exists]);
pub(super) const NAME_TOO_LONG: Errors = Errors::from_list(&[Errno::NameTooLong]);
pub(super) const TOO_BIG: Errors = Errors::from_list(&[Errno::FileTooBig, Errno::Invalid]);

/// Returns the errors of reading, writing or truncating an object that is not a file.
pub(super) fn not_a_file(node: &Node) -> Option<Errors> {
    match node.kind() {
        Kind::File => None,
        Kind::Dir => Some(Errors::from_list(&[Errno::IsDir, Errno::Invalid])),
        _ => Some(Errors::from_list(&[Errno::Invalid])),
    }
}

/// Names that no file may have: RFC 1813 §3.2 leaves the choice between ACCES and INVAL.
pub(super) const BAD_NAME: Errors = Errors::from_list(&[Errno::Invalid, Errno::Access]);
/// `.` and `..` where a new entry is to be made: they exist; POSIX and servers differ in how they
/// say so.
pub(super) const DOT_EXISTS: Errors =
    Errors::from_list(&[Errno::Exists, Errno::Invalid, Errno::Access, Errno::IsDir]);
/// `.` and `..` where an entry is to go.
pub(super) const DOT_GONE: Errors = Errors::from_list(&[
    Errno::Invalid,
    Errno::NotEmpty,
    Errno::Exists,
    Errno::IsDir,
    Errno::Access,
]);

/// Fails with the union of all faults: several things may be wrong at once, and the server chooses
/// which of them to report.
pub(super) fn none_of(faults: &[Option<Errors>]) -> Answer<()> {
    let bits = faults
        .iter()
        .flatten()
        .fold(0, |bits, errors| bits | errors.bits());
    if bits == 0 {
        Ok(())
    } else {
        Err(Errors::from_bits(bits))
    }
}

/// Checks that a name can be used; `dots` is the error for `.` and `..`.
pub(super) fn check_name(name: &[u8], dots: Errors) -> Answer<()> {
    if name.len() > MAX_NAME {
        return Err(NAME_TOO_LONG);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(BAD_NAME);
    }
    if name == b"." || name == b".." {
        return Err(dots);
    }
    Ok(())
}
