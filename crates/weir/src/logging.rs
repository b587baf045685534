//! Log lines: to standard error, one line each.

use tracing_subscriber::EnvFilter;

/// Sets up logging. `WEIR_LOG` takes a filter such as `debug` or `weir=debug,warn`.
pub fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours would need a library of their own; without it the default would be to complain, on every terminal.
        .with_ansi(false)
        .with_target(false)
        .init();
}

/// Ends the whole process when any thread panics.
///
/// A panic is a defect of ours; whatever state the thread was changing may be half changed, and
/// going on could make that durable. What was acknowledged is in the intent log: a restart
/// recovers it. So the process ends at once, after one line that says where.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("internal error, stopping at once: {panic}");
        std::process::abort();
    }));
}
