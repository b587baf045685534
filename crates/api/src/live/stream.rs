//! `GET /v1/live`: server-sent events, made when the connection takes them.
//!
//! Nothing is queued for a reader. A frame is made from the book when the one before it has been
//! taken, and says what changed since that. A slow reader skips seconds, and one that takes nothing
//! for long is dropped.

use super::book::{RowSelector, SeriesRow, select};
use super::row::{COLUMNS, limits, write_figure};
use super::{Live, too_many};
use crate::connections::{RequestGuard, Slot};
use crate::error::ApiResult;
use crate::logins::{self, Credential};
use crate::state::AppState;
use crate::words::Language;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use weir_base::limits::api::{LIVE_BEHIND, LIVE_PAST};
use weir_control::Status;

/// Frames between two checks whether the reader's token still holds.
const CHECK_EVERY: u64 = 10;

/// The next thing to send.
enum Stage {
    /// Rows of seconds that a reader has missed: the next, and the last.
    Past(u64, u64),
    /// All rows.
    Whole,
    /// Rows that changed.
    Changes,
    /// Nothing any more.
    Over,
}

/// A reader's proof of who it is, and its address.
pub(crate) type Shows = (Credential, Option<IpAddr>);

struct Reader {
    app: AppState,
    live: Arc<Live>,
    wanted: Vec<RowSelector>,
    token: Option<Shows>,
    news: watch::Receiver<Option<u64>>,
    stage: Stage,
    /// The rows that the reader has, as they were sent.
    known: HashMap<u32, u64>,
    /// The second of the last frame.
    at: u64,
    frames: u64,
    /// Time at which the last frame was handed over.
    taken: Option<Instant>,
    /// The conditions that the reader has, without their time.
    conditions: Option<Arc<super::Report>>,
    /// Language of the conditions.
    language: Language,
    slot: Option<Arc<Slot>>,
    _working: Option<RequestGuard>,
    _permit: OwnedSemaphorePermit,
}

/// Returns the response that goes on for as long as the reader takes it. `last` is the event that
/// it has seen last.
///
/// # Errors
/// RESOURCE_EXHAUSTED: there are too many readers.
pub(crate) fn response(
    app: &AppState,
    live: &Arc<Live>,
    (wanted, language): (Vec<RowSelector>, Language),
    token: Option<Shows>,
    last: Option<&str>,
    slot: Option<Arc<Slot>>,
) -> ApiResult<Response> {
    let permit = Arc::clone(&live.readers).try_acquire_owned();
    let latest = live.book.latest();
    let seen = last
        .and_then(|id| id.split_once('.'))
        .and_then(|(run, at)| Some((run.parse::<u64>().ok()?, at.parse::<u64>().ok()?)))
        .filter(|(run, at)| *run == live.run && *at < latest && latest - at <= LIVE_PAST);
    let reader = Reader {
        app: app.clone(),
        live: Arc::clone(live),
        wanted,
        token,
        news: live.book.follow(),
        stage: match seen {
            Some((_, at)) => Stage::Past(at + 1, latest),
            None => Stage::Whole,
        },
        known: HashMap::new(),
        at: 0,
        frames: 0,
        taken: None,
        conditions: None,
        language,
        slot,
        _working: None,
        _permit: permit.map_err(|_| too_many())?,
    };
    let frames = futures_util::stream::unfold(reader, |mut reader| async move {
        let frame = reader.next().await?;
        reader.taken = Some(Instant::now());
        Some((Ok::<Bytes, Infallible>(frame), reader))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

impl Reader {
    /// Returns the next frame, as soon as there is something to say; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(slot) = self.slot.take() {
            // The reply's head has been sent by now, and with it the connection's work seemed done.
            self._working = Some(slot.work());
        }
        let behind = self
            .taken
            .is_some_and(|taken| taken.elapsed() > Duration::from_secs(LIVE_BEHIND));
        if let (true, Stage::Changes) = (behind, &self.stage) {
            let message = format!(
                "the stream ends: the reader has taken nothing for {LIVE_BEHIND} s (reconnect with Last-Event-ID)"
            );
            return self.end("dropped", "SLOW_READER", &message);
        }
        match self.stage {
            Stage::Over => return None,
            Stage::Past(at, last) => {
                self.stage = match at < last {
                    true => Stage::Past(at + 1, last),
                    false => Stage::Whole,
                };
                if let Some(rows) = self.rows(at) {
                    self.at = at;
                    return Some(self.event("past", &render_all_rows(at, &rows, false)));
                }
                self.stage = Stage::Whole;
            }
            Stage::Whole | Stage::Changes => {}
        }
        if let Stage::Whole = self.stage {
            self.stage = Stage::Changes;
            self.at = self.live.book.latest();
            let rows = self.rows(self.at).unwrap_or_default();
            self.known = rows.iter().map(|s| (s.number, hash(&figures(s)))).collect();
            return Some(self.event("whole", &render_all_rows(self.at, &rows, true)));
        }
        if let Some(frame) = self.changed_conditions() {
            return Some(frame);
        }
        let at = self.at;
        let news = self.news.wait_for(|now| *now != Some(at)).await;
        let Some(now) = news.ok().and_then(|now| *now) else {
            return self.end("bye", "SERVER_STOPS", "the stream ends: the server stops");
        };
        self.frames += 1;
        if self.frames.is_multiple_of(CHECK_EVERY) && self.is_revoked().await {
            return self.end(
                "bye",
                "TOKEN_REVOKED",
                "the stream ends: its token was revoked",
            );
        }
        self.at = now;
        let data = self.changes(now);
        Some(self.event("rows", &data))
    }

    /// Tells that the token that the reader showed is none any more, or that its sign-in has ended.
    async fn is_revoked(&self) -> bool {
        let Some((token, from)) = &self.token else {
            return false;
        };
        let again = logins::authenticate(&self.app, token, *from).await;
        again.is_err_and(|refusal| refusal.status == Status::Unauthenticated)
    }

    fn rows(&self, at: u64) -> Option<Vec<SeriesRow>> {
        Some(select(self.live.book.rows(at)?, &self.wanted))
    }

    fn changed_conditions(&mut self) -> Option<Bytes> {
        let report = self.live.conditions.report();
        let before = self.conditions.as_ref();
        if before.is_some_and(|before| before.lists_as(&report)) {
            return None;
        }
        self.conditions = Some(report);
        let shown = self.live.conditions(self.language).to_string();
        Some(self.event("conditions", &shown))
    }

    /// Returns what is different from what the reader has.
    fn changes(&mut self, at: u64) -> String {
        let rows = self.rows(at).unwrap_or_default();
        let mut known = HashMap::with_capacity(rows.len());
        let (mut changed, mut named) = (Vec::new(), Vec::new());
        for shown in &rows {
            let text = figures(shown);
            let now = hash(&text);
            let before = self.known.remove(&shown.number);
            if before.is_none() {
                named.push(name(shown));
            }
            if before != Some(now) {
                changed.push(text);
            }
            known.insert(shown.number, now);
        }
        let mut gone: Vec<u32> = self.known.keys().copied().collect();
        gone.sort_unstable();
        self.known = known;
        let mut data = format!("{{\"epochSeconds\":{at},\"rows\":[{}]", changed.join(","));
        if !named.is_empty() {
            data.push_str(&format!(",\"names\":[{}]", named.join(",")));
        }
        if !gone.is_empty() {
            data.push_str(&format!(",\"gone\":{}", json!(gone)));
        }
        data.push('}');
        data
    }

    fn event(&self, name: &str, data: &str) -> Bytes {
        let (run, at) = (self.live.run, self.at);
        Bytes::from(format!("id: {run}.{at}\nevent: {name}\ndata: {data}\n\n"))
    }

    fn end(&mut self, name: &str, reason: &str, message: &str) -> Option<Bytes> {
        self.stage = Stage::Over;
        let data = json!({"reason": reason, "message": message}).to_string();
        Some(self.event(name, &data))
    }
}

/// Writes a row as `[number, figures…]`.
fn figures(shown: &SeriesRow) -> String {
    let mut text = format!("[{}", shown.number);
    for figure in shown.row.figures() {
        text.push(',');
        write_figure(&mut text, figure);
    }
    text.push(']');
    text
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Writes what a row's number stands for.
fn name(shown: &SeriesRow) -> String {
    json!([shown.number, shown.kind.as_str(), Value::from(&*shown.name)]).to_string()
}

/// Writes all rows of a second with their names; of a first frame, with what figures mean.
fn render_all_rows(at: u64, rows: &[SeriesRow], first: bool) -> String {
    let meaning = match first {
        true => format!(
            ",\"columns\":{},\"limits\":{}",
            json!(COLUMNS),
            json!(limits())
        ),
        false => String::new(),
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let rows: Vec<String> = rows.iter().map(figures).collect();
    format!(
        "{{\"epochSeconds\":{at}{meaning},\"names\":[{}],\"rows\":[{}]}}",
        names.join(","),
        rows.join(",")
    )
}
