//! One operation at a time on a volume, a snapshot or a path: a second one is refused, as CSI has
//! it, and its caller tries again.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::status::{Code, Outcome, Status};

/// The keys of operations that are under way.
#[derive(Default)]
pub struct InFlight(Mutex<HashSet<String>>);

/// An operation; dropped, it has ended.
pub struct Operation<'a> {
    of: &'a InFlight,
    key: String,
}

impl InFlight {
    /// Begins an operation.
    ///
    /// # Errors
    /// ABORTED: another one with the same key is under way.
    pub fn begin(&self, key: impl Into<String>) -> Outcome<Operation<'_>> {
        let key = key.into();
        if self.0.lock().insert(key.clone()) {
            return Ok(Operation { of: self, key });
        }
        Err(Status::new(
            Code::Aborted,
            format!("another operation on {key} is under way"),
        ))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.of.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_operation_is_refused_until_the_first_has_ended() {
        let all = InFlight::default();
        let first = all.begin("a").unwrap();
        assert_eq!(all.begin("a").err().map(|e| e.code), Some(Code::Aborted));
        let other = all.begin("b");
        assert!(other.is_ok());
        drop(first);
        assert!(all.begin("a").is_ok());
    }
}
