//! Stub.
pub fn run_page(_run: &super::outcome::Run) -> String {
    String::new()
}
