//! Work that may wait for a disk, beside the thread that serves requests.

use crate::error::{ApiError, ApiResult};
use weir_control::Status;

/// Runs what may wait for a disk.
///
/// # Errors
/// INTERNAL: it panicked, or the server ends.
pub(crate) async fn waiting<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| ApiError::new(Status::Internal, "INTERRUPTED", e.to_string()))
}
