//! Fuzz targets: everything that decodes bytes from outside, as functions that must return whatever
//! they are given.
//!
//! The targets live here so that two runners share them: `fuzz/` (libFuzzer, coverage-guided, for
//! long runs) and [`mutate`], a bounded and reproducible run on the stable toolchain that is part
//! of the test suite. A target panics if a decoder accepts what contradicts itself; arithmetic
//! overflow and slices out of range panic by themselves in the development profile.

mod compound;
pub mod mutate;
mod replica;
mod service;
mod smb;
mod smb_requests;
pub mod store;
mod target;
pub mod wire;

pub use target::Target;

/// All targets, of every module here.
#[must_use]
pub fn targets() -> Vec<Target> {
    let mut all = wire::targets();
    all.extend(store::targets());
    all.extend(replica::targets());
    all.extend(smb::targets());
    all
}

/// Runs the target of this name: for runners that are one program a target.
///
/// # Panics
/// If there is no such target, and if the target does.
pub fn run(name: &str, input: &[u8]) {
    static TARGETS: std::sync::OnceLock<Vec<Target>> = std::sync::OnceLock::new();
    let list = TARGETS.get_or_init(targets);
    let target = list.iter().find(|target| target.name == name);
    (target
        .unwrap_or_else(|| panic!("no fuzz target {name}"))
        .run)(input);
}
