//! `GET /metrics`, made as the connection takes it.
//!
//! The page grows with the number of volumes; the memory that it takes does not. A piece is made
//! when those before it have been taken. A reader that is slow beyond [`METRICS_SECONDS`] has its
//! connection broken off.

use crate::connections::{RequestGuard, Slot};
use crate::console;
use crate::error::{ApiError, ApiResult};
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use weir_base::limits::api::{METRICS_READERS, METRICS_SECONDS};
use weir_control::Status;

/// Metrics in Prometheus' text format, piece by piece. None is empty.
pub type Pieces = Box<dyn Iterator<Item = String> + Send>;

/// Begins a page of all metrics.
pub type Metrics = Arc<dyn Fn() -> Pieces + Send + Sync>;

/// Writes a family of a histogram, of which each bucket has the number of what was at most its
/// bound, and the last one, whose bound is infinite, that of all; `sum` is of all of them.
pub(crate) fn histogram(
    out: &mut String,
    (family, help): (&str, &str),
    buckets: impl Iterator<Item = (f64, u64)>,
    sum: f64,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} histogram");
    let mut all = 0;
    for (bound, count) in buckets {
        let le = match bound.is_infinite() {
            true => "+Inf".to_owned(),
            false => bound.to_string(),
        };
        all = count;
        let _ = writeln!(out, "{family}_bucket{{le=\"{le}\"}} {count}");
    }
    let _ = writeln!(out, "{family}_sum {sum}\n{family}_count {all}");
}

/// A page that is being read.
struct Scrape {
    pieces: Pieces,
    /// Compressor for a reader that takes the metrics compressed, until the end is written.
    gzip: Option<GzEncoder<Vec<u8>>>,
    until: Instant,
    slot: Option<Arc<Slot>>,
    _working: Option<RequestGuard>,
    _permit: OwnedSemaphorePermit,
}

/// Returns a response whose body is made of `pieces` as it is taken.
///
/// # Errors
/// RESOURCE_EXHAUSTED: there are too many readers.
pub(crate) fn response(
    pieces: Pieces,
    scrapes: &Arc<Semaphore>,
    head: &Parts,
) -> ApiResult<Response> {
    let permit = Arc::clone(scrapes).try_acquire_owned();
    let permit = permit.map_err(|_| too_many())?;
    let compressed = console::accepts(&head.headers, header::ACCEPT_ENCODING, "gzip");
    let scrape = Scrape {
        pieces,
        gzip: compressed.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        until: Instant::now() + Duration::from_secs(METRICS_SECONDS),
        slot: head.extensions.get::<Arc<Slot>>().cloned(),
        _working: None,
        _permit: permit,
    };
    let pieces = futures_util::stream::unfold(scrape, |mut scrape| async move {
        // Others get their turn between two pieces, even if the socket takes all at once.
        tokio::task::yield_now().await;
        Some((scrape.next()?, scrape))
    });
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

impl Scrape {
    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(slot) = self.slot.take() {
            // The reply's head has been sent by now, and with it the connection's work seemed done.
            self._working = Some(slot.work());
        }
        let piece = self.piece()?;
        if Instant::now() > self.until {
            // Without the last chunk the client can tell that the page is not whole.
            return Some(Err(io::ErrorKind::TimedOut.into()));
        }
        Some(piece)
    }

    /// Returns the next bytes, compressed if that was asked for.
    fn piece(&mut self) -> Option<io::Result<Bytes>> {
        let Some(mut gzip) = self.gzip.take() else {
            return Some(Ok(self.pieces.next()?.into()));
        };
        // A compressor may keep what it is given for a while.
        while gzip.get_ref().is_empty() {
            let Some(piece) = self.pieces.next() else {
                self.pieces = Box::new(std::iter::empty());
                return Some(gzip.finish().map(Bytes::from));
            };
            if let Err(error) = gzip.write_all(piece.as_bytes()) {
                return Some(Err(error));
            }
        }
        let bytes = std::mem::take(gzip.get_mut());
        self.gzip = Some(gzip);
        Some(Ok(bytes.into()))
    }
}

fn too_many() -> Box<ApiError> {
    ApiError::new(
        Status::ResourceExhausted,
        "TOO_MANY_READERS",
        format!(
            "Cannot read the metrics: {METRICS_READERS} clients are reading them already (try again later)"
        ),
    )
}
