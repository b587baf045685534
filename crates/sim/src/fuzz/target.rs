//! A fuzz target.

/// A fuzz target: a decoder that must not panic.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name, as on the command line.
    pub name: &'static str,
    /// Decodes one input, of any bytes.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}
