//! Weir.
mod net;
fn main() {}
