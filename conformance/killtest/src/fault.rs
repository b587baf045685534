//! Findings of the test.

/// Fault that was found, for a person to read. The test stops at the first one, so there is nothing
/// to match on.
pub type Fault = String;
