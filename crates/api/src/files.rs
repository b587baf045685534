//! Files in snapshots: `:findFile`, `:restoreFile` and `:download`.
//!
//! A caller sees data without the permissions of files, so these take the role of an editor, who
//! may export a volume to itself anyway. Each request is in the audit log, with the path.

use crate::blocking::waiting;
use crate::connections::{RequestGuard, Slot};
use crate::error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::json::{Object, abbreviate, decode_body};
use crate::preview;
use crate::query::Query;
use crate::schema::own;
use crate::state::AppState;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_base::Time;
use weir_base::limits::MAX_NAME;
use weir_base::limits::api::{
    DOWNLOAD_PIECE, MAX_DOWNLOADS, MAX_FILE_JOBS, MAX_FILE_PATH, MAX_FILE_VERSIONS,
};
use weir_base::percent;
use weir_control::{Actor, Refusal, Stamp, Status, VolumeName};

/// The path of a file within a volume: names of any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(Vec<Vec<u8>>);

impl FilePath {
    /// Takes a path apart, from the volume's root on. Slashes at its ends and repeated ones count
    /// once.
    ///
    /// # Errors
    /// The rule that it breaks, in words.
    pub fn parse(path: &[u8]) -> Result<FilePath, String> {
        if path.len() > MAX_FILE_PATH {
            return Err(format!("a path has at most {MAX_FILE_PATH} bytes"));
        }
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        if names.is_empty() {
            return Err("a path has at least one name, such as /reports/may.csv".to_owned());
        }
        for name in &names {
            if name.len() > MAX_NAME {
                return Err(format!("a name has at most {MAX_NAME} bytes"));
            }
            if name.contains(&0) {
                return Err("a name has no zero bytes".to_owned());
            }
            if name == b"." || name == b".." {
                return Err(
                    "'.' and '..' are no names: give the path from the volume's root".to_owned(),
                );
            }
        }
        Ok(FilePath(names))
    }

    /// Returns the names from the root on.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Returns the names of the directories, and the name of the file.
    pub fn split(&self) -> (&[Vec<u8>], &[u8]) {
        match self.0.split_last() {
            Some((name, dirs)) => (dirs, name),
            None => (&[], b""),
        }
    }

    /// Returns the path of another name in the same directory.
    pub fn beside(&self, name: &[u8]) -> FilePath {
        let mut names = self.0.clone();
        if let Some(last) = names.last_mut() {
            *last = name.to_vec();
        }
        FilePath(names)
    }

    /// Returns the path's bytes, from the root's slash on.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for name in &self.0 {
            out.push(b'/');
            out.extend(name);
        }
        out
    }
}

/// Writes it for people: what is no text as U+FFFD, control characters escaped.
impl std::fmt::Display for FilePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in String::from_utf8_lossy(&self.bytes()).chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// The file or directory at a path, in a snapshot or in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// `FILE`, `DIRECTORY`, `SYMLINK` or `OTHER`.
    pub kind: &'static str,
    /// Bytes of its content.
    pub size: u64,
    /// Last change of the content.
    pub modified: Time,
    /// The inode, and the number that changes with it: equal only for the same state.
    pub identity: (u64, u64),
}

/// One state of a path, and the snapshots in a row that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The oldest snapshot with it.
    pub first: String,
    /// The newest.
    pub last: String,
    /// Times at which the oldest and the newest were taken.
    pub taken: (Time, Time),
    /// Number of snapshots that have it.
    pub snapshots: u64,
    /// The state.
    pub state: FileState,
}

/// The versions of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// State in the volume now.
    pub live: Option<FileState>,
    /// States in snapshots, newest first; at most [`MAX_FILE_VERSIONS`].
    pub versions: Vec<FileVersion>,
    /// Older versions that were left out.
    pub omitted: u64,
    /// Snapshots that the volume has.
    pub searched: u64,
}

/// A file of a snapshot, to be read.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The engine's key of the volume.
    pub key: String,
    /// The snapshot's number.
    pub snapshot: u32,
    /// The inode.
    pub ino: u64,
    /// The state.
    pub state: FileState,
}

/// The place of a restored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePlacement {
    /// Under a new name in the same directory, `NAME.from-SNAPSHOT`.
    Beside,
    /// Under its own name, if that is free.
    Own,
    /// Under its own name, over the file that has it.
    Over,
}

/// The files of volumes and snapshots. All of it may wait for the device.
pub trait Files: Send + Sync {
    /// Finds the versions of a path over all snapshots.
    ///
    /// # Errors
    /// NOT_FOUND: there is no such volume; UNAVAILABLE: it cannot be read.
    fn find(&self, key: &str, path: &FilePath) -> Result<Versions, Refusal>;
    /// Opens a regular file of a snapshot.
    ///
    /// # Errors
    /// NOT_FOUND; FAILED_PRECONDITION: it is no regular file.
    fn open(&self, key: &str, snapshot: &str, path: &FilePath) -> Result<OpenFile, Refusal>;
    /// Reads up to `len` bytes; fewer only at the end.
    ///
    /// # Errors
    /// The snapshot is gone, or cannot be read.
    fn read(&self, file: &OpenFile, at: u64, len: usize) -> Result<Vec<u8>, Refusal>;
    /// Copies a regular file of a snapshot into the volume; durable when it returns. Returns its
    /// path and state.
    ///
    /// # Errors
    /// NOT_FOUND; ALREADY_EXISTS: the name is taken; FAILED_PRECONDITION: the volume or the
    /// directory takes no file.
    fn restore(
        &self,
        key: &str,
        snapshot: &str,
        path: &FilePath,
        place: RestorePlacement,
    ) -> Result<(FilePath, FileState), Refusal>;
    /// Checks what [`Files::restore`] checks before it copies. Returns the path that the file would
    /// get, and its state in the snapshot.
    ///
    /// # Errors
    /// Those of [`Files::restore`].
    fn check_restore(
        &self,
        key: &str,
        snapshot: &str,
        path: &FilePath,
        place: RestorePlacement,
    ) -> Result<(FilePath, FileState), Refusal>;
}

/// The files, and how many requests use them at once.
pub(crate) struct Shelf {
    files: Arc<dyn Files>,
    jobs: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl Shelf {
    pub(crate) fn new(files: Arc<dyn Files>) -> Shelf {
        Shelf {
            files,
            jobs: Arc::new(Semaphore::new(MAX_FILE_JOBS)),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
        }
    }
}

/// Takes one of the places that requests share, or refuses.
fn place(of: &Arc<Semaphore>, most: usize, what: &str) -> ApiResult<OwnedSemaphorePermit> {
    let permit = Arc::clone(of).try_acquire_owned();
    permit.map_err(|_| {
        ApiError::new(
            Status::ResourceExhausted,
            "TOO_MANY_REQUESTS",
            format!("{what} are at their limit of {most} at once (retry when one has ended)"),
        )
    })
}

/// A request for a file: by whom, and of which volume.
pub(crate) struct FileRequest<'a> {
    pub(crate) app: &'a AppState,
    pub(crate) actor: &'a Actor,
    pub(crate) volume: VolumeName,
}

impl FileRequest<'_> {
    fn shelf(&self) -> ApiResult<&Shelf> {
        let none = || ApiError::unimplemented("Files in snapshots", "");
        self.app.files().ok_or_else(none)
    }

    fn key(&self) -> ApiResult<String> {
        let view = self.app.control().view();
        let volume = view.volume(&self.volume);
        let none = || ApiError::not_found(&self.volume.to_string());
        volume.map(|v| v.key.to_string()).ok_or_else(none)
    }

    /// Writes the request into the audit log before it is carried out. Returns the number of its
    /// line.
    async fn note(&self, verb: &str, snapshot: Option<&str>, path: &FilePath) -> ApiResult<i64> {
        let path = abbreviate(&path.to_string());
        let target = match snapshot {
            Some(snapshot) => format!("{}/snapshots/{snapshot} {path}", self.volume),
            None => format!("{} {path}", self.volume),
        };
        let noted = self.app.control().note(self.actor, verb, target).await;
        noted.map_err(ApiError::refused)
    }

    /// Completes the line in the audit log.
    async fn ended<T>(&self, line: i64, done: Result<T, Refusal>) -> ApiResult<T> {
        let words = match &done {
            Ok(_) => "done".to_owned(),
            Err(refusal) => format!("failed: {refusal}"),
        };
        let noted = self.app.control().note_end(line, words).await;
        let done = done.map_err(ApiError::refused)?;
        noted.map_err(ApiError::refused)?;
        Ok(done)
    }

    /// Answers `:findFile`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the parameter; NOT_FOUND: the volume, or the path nowhere.
    pub(crate) async fn find(&self, query: &Query) -> ApiResult<Value> {
        let path = path_of(query.get("path"), query.get("pathBytes"))?;
        let (shelf, key) = (self.shelf()?, self.key()?);
        let _permit = place(&shelf.jobs, MAX_FILE_JOBS, "searches and restores")?;
        let line = self.note("findFile", None, &path).await?;
        let (files, wanted) = (Arc::clone(&shelf.files), path.clone());
        let found = waiting(move || files.find(&key, &wanted)).await?;
        let found = self.ended(line, found).await?;
        if found.live.is_none() && found.versions.is_empty() {
            return Err(ApiError::new(
                Status::NotFound,
                "FILE_NOT_FOUND",
                format!(
                    "neither the volume nor any of its {} snapshots has {path}",
                    found.searched
                ),
            ));
        }
        Ok(render_versions(&path, &found))
    }

    /// Answers `:restoreFile`; with `only`, checks it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the field, or what [`Files::restore`] says.
    pub(crate) async fn restore(&self, body: &[u8], only: bool) -> ApiResult<Value> {
        let mut f = Fields::new(decode_body(&own::RESTORE_FILE_REQUEST, body)?);
        let snapshot = crate::fields::required(f.text("snapshot").value(), "snapshot")?;
        let (text, bytes) = (f.text("path").value(), f.text("pathBytes").value());
        let path = path_of(text.as_deref(), bytes.as_deref())?;
        let over = f.flag("overwrite").value().unwrap_or(false);
        let place_of = match (over, f.flag("inPlace").value().unwrap_or(false)) {
            (true, _) => RestorePlacement::Over,
            (false, true) => RestorePlacement::Own,
            (false, false) => RestorePlacement::Beside,
        };
        // A full name does as well.
        let snapshot = snapshot.rsplit('/').next().unwrap_or_default().to_owned();
        let (shelf, key) = (self.shelf()?, self.key()?);
        let permit = place(&shelf.jobs, MAX_FILE_JOBS, "searches and restores")?;
        let verb = if only {
            "checkRestoreFile"
        } else {
            "restoreFile"
        };
        let line = self.note(verb, Some(&snapshot), &path).await?;
        let files = Arc::clone(&shelf.files);
        let done = waiting(move || {
            // For as long as the copy goes on, whether or not the client waits for it.
            let _permit = permit;
            if only {
                files.check_restore(&key, &snapshot, &path, place_of)
            } else {
                files.restore(&key, &snapshot, &path, place_of)
            }
        });
        let (path, state) = self.ended(line, done.await?).await?;
        let mut out = described(&state);
        insert_path(&mut out, &path);
        if only {
            let (target, response) = (self.volume.to_string(), Value::Object(out));
            out = preview::checked(&target, "restoreFile", response);
        }
        Ok(Value::Object(out))
    }

    /// Answers `snapshots/*:download`: the file, or the range of it that the request asks for.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the parameter, or what [`Files::open`] says.
    pub(crate) async fn download(
        &self,
        snapshot: &str,
        query: &Query,
        head: &Parts,
    ) -> ApiResult<Response> {
        let path = path_of(query.get("path"), query.get("pathBytes"))?;
        let (shelf, key) = (self.shelf()?, self.key()?);
        let permit = place(&shelf.downloads, MAX_DOWNLOADS, "downloads")?;
        let line = self.note("downloadFile", Some(snapshot), &path).await?;
        let files = Arc::clone(&shelf.files);
        let (of, wanted) = (snapshot.to_owned(), path.clone());
        let file = waiting(move || files.open(&key, &of, &wanted)).await?;
        let file = self.ended(line, file).await?;
        let slot = head.extensions.get::<Arc<Slot>>().cloned();
        let files = Arc::clone(&shelf.files);
        Ok(sent(files, file, &path, &head.headers, (permit, slot)))
    }
}

/// Reads a path from a request's two fields for it: text, or base64 of its bytes.
fn path_of(text: Option<&str>, bytes: Option<&str>) -> ApiResult<FilePath> {
    let wrong =
        |field: &str, why: String| ApiError::field(field, format!("Invalid '{field}': {why}"));
    let text = text.filter(|t| !t.is_empty());
    match (text, bytes.filter(|b| !b.is_empty())) {
        (Some(text), None) => FilePath::parse(text.as_bytes()).map_err(|why| wrong("path", why)),
        (None, Some(bytes)) => {
            use base64::engine::general_purpose::{STANDARD, URL_SAFE};
            let read = STANDARD.decode(bytes).or_else(|_| URL_SAFE.decode(bytes));
            let read = read.map_err(|_| wrong("pathBytes", "it is not base64".to_owned()))?;
            FilePath::parse(&read).map_err(|why| wrong("pathBytes", why))
        }
        (Some(_), Some(_)) => Err(wrong("pathBytes", "give it or 'path'".to_owned())),
        (None, None) => Err(ApiError::field(
            "path",
            "Missing 'path': the file's path in the volume",
        )),
    }
}

fn insert_path(out: &mut Object, path: &FilePath) {
    let bytes = path.bytes();
    out.insert("path".to_owned(), json!(String::from_utf8_lossy(&bytes)));
    if std::str::from_utf8(&bytes).is_err() {
        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
        out.insert("pathBytes".to_owned(), json!(text));
    }
}

fn described(state: &FileState) -> Object {
    let mut out = Object::new();
    out.insert("type".to_owned(), json!(state.kind));
    out.insert("sizeBytes".to_owned(), json!(state.size.to_string()));
    let modified = Stamp::from(state.modified).rfc3339();
    out.insert("modifyTime".to_owned(), json!(modified));
    out
}

fn render_versions(path: &FilePath, found: &Versions) -> Value {
    let mut out = Object::new();
    insert_path(&mut out, path);
    if let Some(live) = &found.live {
        out.insert("live".to_owned(), Value::Object(described(live)));
    }
    let each = found.versions.iter().map(|version| {
        let mut one = described(&version.state);
        let live = found.live.as_ref();
        let same = live.is_some_and(|live| live.identity == version.state.identity);
        for (name, value) in [
            ("firstSnapshot", json!(version.first)),
            (
                "firstSnapshotTime",
                json!(Stamp::from(version.taken.0).rfc3339()),
            ),
            ("lastSnapshot", json!(version.last)),
            (
                "lastSnapshotTime",
                json!(Stamp::from(version.taken.1).rfc3339()),
            ),
            ("snapshotCount", json!(version.snapshots)),
            ("inLiveVolume", json!(same)),
        ] {
            one.insert(name.to_owned(), value);
        }
        Value::Object(one)
    });
    out.insert("versions".to_owned(), Value::Array(each.collect()));
    out.insert("searchedSnapshots".to_owned(), json!(found.searched));
    if found.omitted > 0 {
        out.insert("omittedVersions".to_owned(), json!(found.omitted));
    }
    Value::Object(out)
}

/// The bytes that a request wants of a file.
#[derive(Debug, PartialEq, Eq)]
enum Portion {
    Whole,
    Part(Range<u64>),
    /// The range begins behind the end.
    Nothing,
}

/// Reads a `Range` header (RFC 9110 §14.2). One range is granted; what is malformed, or several,
/// counts as none.
fn portion(range: Option<&str>, size: u64) -> Portion {
    let Some(one) = range
        .and_then(|r| r.strip_prefix("bytes="))
        .filter(|r| !r.contains(','))
    else {
        return Portion::Whole;
    };
    let Some((first, last)) = one.trim().split_once('-') else {
        return Portion::Whole;
    };
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        // More than fits is behind every end.
        true => Some(text.parse::<u64>().unwrap_or(u64::MAX)),
        false => None,
    };
    let (first, last) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last),
        (Some(first), None) if last.is_empty() => (first, u64::MAX),
        (None, Some(count)) if first.is_empty() => match count {
            0 => return Portion::Nothing,
            count => (size.saturating_sub(count), u64::MAX),
        },
        _ => return Portion::Whole,
    };
    match first < size {
        true => Portion::Part(first..last.saturating_add(1).min(size)),
        false => Portion::Nothing,
    }
}

/// A download that goes on for as long as the client takes it. One piece is in memory at a time.
struct Download {
    files: Arc<dyn Files>,
    file: OpenFile,
    left: Range<u64>,
    slot: Option<Arc<Slot>>,
    _working: Option<RequestGuard>,
    _permit: OwnedSemaphorePermit,
}

impl Download {
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        if let Some(slot) = self.slot.take() {
            // The reply's head has been sent by now, and with it the connection's work seemed done.
            self._working = Some(slot.work());
        }
        if self.left.is_empty() {
            return None;
        }
        let len = (self.left.end - self.left.start).min(DOWNLOAD_PIECE);
        let (files, file, at) = (Arc::clone(&self.files), self.file.clone(), self.left.start);
        let read = waiting(move || files.read(&file, at, len as usize)).await;
        let bytes = match read {
            Ok(Ok(bytes)) if bytes.len() as u64 == len => bytes,
            // The connection is cut, so that the client sees that it lacks the rest.
            Ok(Ok(_)) => return self.broken("the snapshot's file ends early"),
            Ok(Err(refusal)) => return self.broken(&refusal.message),
            Err(error) => return self.broken(&error.message),
        };
        self.left.start += len;
        Some(Ok(Bytes::from(bytes)))
    }

    fn broken(&mut self, why: &str) -> Option<std::io::Result<Bytes>> {
        tracing::warn!(
            why,
            "ended the download from a snapshot early: its rest cannot be read"
        );
        self.left.end = self.left.start;
        Some(Err(std::io::Error::other(why.to_owned())))
    }
}

fn sent(
    files: Arc<dyn Files>,
    file: OpenFile,
    path: &FilePath,
    headers: &HeaderMap,
    (permit, slot): (OwnedSemaphorePermit, Option<Arc<Slot>>),
) -> Response {
    let size = file.state.size;
    let (ino, change) = file.state.identity;
    let etag = format!("\"{ino:x}-{change:x}\"");
    let text = |name| {
        headers
            .get(name)
            .and_then(|v: &HeaderValue| v.to_str().ok())
    };
    // A range of another version is of no use (RFC 9110 §13.1.5).
    let range =
        text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|tag| tag == etag));
    let (status, left, about) = match portion(range, size) {
        Portion::Whole => (StatusCode::OK, 0..size, None),
        Portion::Part(part) => {
            let about = format!("bytes {}-{}/{size}", part.start, part.end.saturating_sub(1));
            (StatusCode::PARTIAL_CONTENT, part, Some(about))
        }
        Portion::Nothing => {
            let about = format!("bytes */{size}");
            (StatusCode::RANGE_NOT_SATISFIABLE, 0..0, Some(about))
        }
    };
    let length = left.end - left.start;
    let sending = Download {
        files,
        file,
        left,
        slot,
        _working: None,
        _permit: permit,
    };
    let pieces = futures_util::stream::unfold(sending, |mut sending| async move {
        let piece = sending.next().await?;
        Some((piece, sending))
    });
    let mut reply = Response::new(Body::from_stream(pieces));
    *reply.status_mut() = status;
    let set = reply.headers_mut();
    for (name, value) in [
        (header::CONTENT_LENGTH, length.to_string()),
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, etag),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_DISPOSITION, disposition(path)),
    ]
    .into_iter()
    .chain(about.map(|about| (header::CONTENT_RANGE, about)))
    {
        if let Ok(value) = HeaderValue::from_str(&value) {
            set.insert(name, value);
        }
    }
    reply
}

/// Returns the header by which browsers store the file under its own name and never show it (RFC
/// 6266, RFC 8187).
fn disposition(path: &FilePath) -> String {
    let (_, name) = path.split();
    let name = percent::escaped(&String::from_utf8_lossy(name), percent::UNRESERVED);
    format!("attachment; filename*=UTF-8''{name}")
}

/// Returns the name of a file that is restored beside its own.
///
/// # Errors
/// INVALID_ARGUMENT: it would be too long.
pub fn name_beside(name: &[u8], snapshot: &str) -> Result<Vec<u8>, Refusal> {
    let mut out = name.to_vec();
    out.extend(b".from-");
    out.extend(snapshot.bytes());
    match out.len() <= MAX_NAME {
        true => Ok(out),
        false => Err(Refusal::new(
            Status::InvalidArgument,
            "NAME_TOO_LONG",
            format!(
                "the name NAME.from-{snapshot} would have more than {MAX_NAME} bytes (restore in place, \
                 or download the file)"
            ),
        )),
    }
}

/// Keeps the newest versions of a list that is the newest first.
pub fn bounded(mut versions: Vec<FileVersion>) -> (Vec<FileVersion>, u64) {
    let omitted = versions.len().saturating_sub(MAX_FILE_VERSIONS) as u64;
    versions.truncate(MAX_FILE_VERSIONS);
    (versions, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_of_any_bytes_and_lead_nowhere_else() {
        let path = FilePath::parse(b"//a/b\xff\n/ c/").unwrap();
        assert_eq!(path.bytes(), b"/a/b\xff\n/ c");
        assert_eq!(path.to_string(), "/a/b\u{fffd}\\n/ c");
        assert_eq!(path.split().1, b" c");
        assert_eq!(path.beside(b"d").bytes(), b"/a/b\xff\n/d");
        for wrong in [
            &b""[..],
            b"/",
            b"///",
            b".",
            b"a/../b",
            b"../a",
            b"a/..",
            b"a/./b",
            b"a\0b",
            &[b'a'; MAX_NAME + 1],
            &b"a/".repeat(MAX_FILE_PATH),
        ] {
            assert!(FilePath::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(FilePath::parse(b"...").is_ok());
        assert!(FilePath::parse(&[b'a'; MAX_NAME]).is_ok());
    }

    #[test]
    fn paths_come_as_text_or_as_base64() {
        let read = |text, bytes| path_of(text, bytes).map(|p| p.bytes());
        assert_eq!(read(Some("/a"), None).unwrap(), b"/a");
        assert_eq!(read(None, Some("L/8=")).unwrap(), b"/\xff");
        assert_eq!(read(None, Some("L_8=")).unwrap(), b"/\xff");
        for (text, bytes) in [
            (None, None),
            (Some(""), Some("")),
            (Some("/a"), Some("L/8=")),
            (None, Some("%%")),
            (None, Some("Li4=")),
        ] {
            assert_eq!(
                read(text, bytes).unwrap_err().code(),
                400,
                "{text:?} {bytes:?}"
            );
        }
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        use Portion::{Nothing, Part, Whole};
        for (range, expected) in [
            (None, Whole),
            (Some("bytes=0-0"), Part(0..1)),
            (Some("bytes=0-"), Part(0..10)),
            (Some("bytes=4-7"), Part(4..8)),
            (Some("bytes=4-700"), Part(4..10)),
            (Some("bytes=4-99999999999999999999999"), Part(4..10)),
            (Some("bytes=-3"), Part(7..10)),
            (Some("bytes=-30"), Part(0..10)),
            (Some("bytes=-0"), Nothing),
            (Some("bytes=10-"), Nothing),
            (Some("bytes=99999999999999999999999-"), Nothing),
            (Some("bytes=7-4"), Whole),
            (Some("bytes=-"), Whole),
            (Some("bytes=--3"), Whole),
            (Some("bytes=+1-3"), Whole),
            (Some("bytes=a-b"), Whole),
            (Some("bytes=0-1,4-5"), Whole),
            (Some("lines=0-1"), Whole),
            (Some("bytes"), Whole),
        ] {
            assert_eq!(portion(range, 10), expected, "{range:?}");
        }
        assert_eq!(portion(Some("bytes=0-"), 0), Nothing);
        assert_eq!(portion(Some("bytes=-1"), 0), Nothing);
    }

    #[test]
    fn names_that_browsers_store_under_are_escaped() {
        let path = FilePath::parse(b"/d/a\"b\r\nc\xc3\xa9.txt").unwrap();
        let expected = "attachment; filename*=UTF-8''a%22b%0D%0Ac%C3%A9.txt";
        assert_eq!(disposition(&path), expected);
    }

    #[test]
    fn a_name_beside_has_its_bound() {
        assert_eq!(name_beside(b"a", "s1").unwrap(), b"a.from-s1");
        let long = [b'a'; MAX_NAME - 8];
        assert!(name_beside(&long, "s1").is_ok());
        assert_eq!(
            name_beside(&long, "s12").unwrap_err().reason,
            "NAME_TOO_LONG"
        );
    }
}
