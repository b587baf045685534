//! Stub.
pub fn compare(_a: &super::cli::CompareArgs) -> Result<String, crate::error::BenchError> {
    Ok(String::new())
}
