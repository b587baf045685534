//! Log lines: to standard error, one line each, as text or as JSON.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

/// The filter where none is given.
pub const DEFAULT: &str = "info";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Time, level, message and fields, for people
    #[default]
    Text,
    /// One JSON object a line, for programs
    Json,
}

type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// Changes the filter of the running process.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Reads a filter such as `debug` or `weir=debug,warn`, for clap.
///
/// # Errors
/// If it is no filter.
pub fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

/// Sets up logging. Without a filter that of `WEIR_LOG` counts.
pub fn start(filter: Option<&str>, format: Format) {
    let filter = match filter {
        Some(filter) => EnvFilter::new(filter),
        None => EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT)),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours would need a library of their own. Without this call the subscriber prints a
        // warning on every terminal.
        .with_ansi(false)
        .with_target(false);
    let set: SetFilter = match format {
        Format::Text => {
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
        }
        Format::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
        }
    };
    // Once a process.
    let _ = SET_FILTER.set(set);
}

/// Changes the filter of the running process.
///
/// # Errors
/// If `filter` is none.
pub fn set_filter(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    SET_FILTER.get().map_or(Ok(()), |set| set(filter))
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
