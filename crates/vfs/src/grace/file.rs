//! Records in one small file, written by a thread of its own, in batches.
//!
//! A client's first claim is granted only when its record is on the disk, and a flush takes as long as the disk likes. So
//! the thread that has the call only puts a line into the current batch and parks the call; the thread that runs
//! [`FileRecords::keep`] appends batch after batch, each with one flush, and everything that waited for a batch is settled
//! with it. A hundred clients that arrive during a flush cost one more.
//!
//! The file is text, so that an administrator can read and mend it: a title, then lines `KEY = VALUE` and `KEY -`
//! (removed), of which later ones amend earlier ones. A last line without its end is ignored. It grows by appending, so it
//! is replaced as a whole when it is much longer than what it says, at the first change after a start, and after a failed
//! append, which may have left half a line.

use super::records::{Records, Slip};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// First line.
const TITLE: &str = "weir client records, version 1\n";
/// Bytes by which the file may be longer than twice what it says.
const GARBAGE: usize = 64 << 10;

/// Where the text is kept. All calls may block for as long as a disk does; after the start they come from the thread that
/// keeps the records only.
pub trait RecordFile: Send + Sync {
    /// The text; `None` if there was none.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the text, durably and atomically.
    ///
    /// # Errors
    /// If that failed; the text is the old one or the new one.
    fn replace(&self, text: &[u8]) -> io::Result<()>;

    /// Appends to the text, durably.
    ///
    /// # Errors
    /// If that failed; any part of `lines` may be there.
    fn append(&self, lines: &[u8]) -> io::Result<()>;
}

struct State {
    /// What the text will say once all batches are written.
    records: BTreeMap<String, String>,
    /// Lines of the current batch.
    lines: String,
    slip: Arc<Slip>,
    /// Bytes of the text, and of what it said when it was last replaced.
    length: usize,
    live: usize,
    /// The text must be replaced before anything is appended.
    broken: bool,
    closed: bool,
}

/// See the module's head.
pub struct FileRecords {
    file: Arc<dyn RecordFile>,
    state: Mutex<State>,
    /// Held over a write, so that two threads' batches stay in order.
    writing: Mutex<()>,
    work: Condvar,
}

fn put(out: &mut String, key: &str, value: &str) {
    for part in [key, " = ", value, "\n"] {
        out.push_str(part);
    }
}

impl FileRecords {
    /// Records in `file`.
    pub fn new(file: Arc<dyn RecordFile>) -> FileRecords {
        FileRecords {
            file,
            state: Mutex::new(State {
                records: BTreeMap::new(),
                lines: String::new(),
                slip: Arc::default(),
                length: 0,
                live: 0,
                broken: true,
                closed: false,
            }),
            writing: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Writes batches until [`FileRecords::close`]: for one thread.
    pub fn keep(&self) {
        loop {
            {
                let mut state = self.state.lock();
                while state.lines.is_empty() && !state.closed {
                    self.work.wait(&mut state);
                }
                if state.closed && state.lines.is_empty() {
                    return;
                }
            }
            self.write();
        }
    }

    /// Ends [`FileRecords::keep`], which writes what was added before.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }

    fn add(&self, change: impl FnOnce(&mut State)) -> Arc<Slip> {
        let mut state = self.state.lock();
        change(&mut state);
        self.work.notify_one();
        Arc::clone(&state.slip)
    }
}

impl Records for FileRecords {
    fn load(&self) -> io::Result<Vec<(String, String)>> {
        let mut records = BTreeMap::new();
        if let Some(text) = self.file.load()? {
            parse(&String::from_utf8_lossy(&text), &mut records);
        }
        let all = records.clone().into_iter().collect();
        self.state.lock().records = records;
        Ok(all)
    }

    fn set(&self, key: &str, value: &str) -> Arc<Slip> {
        assert!(
            !key.contains(" = ") && !key.contains('\n') && !value.contains('\n'),
            "a record is one line"
        );
        self.add(|state| {
            state.records.insert(key.to_owned(), value.to_owned());
            put(&mut state.lines, key, value);
        })
    }

    fn remove(&self, key: &str) -> Arc<Slip> {
        self.add(|state| {
            if state.records.remove(key).is_some() {
                for part in [key, " -\n"] {
                    state.lines.push_str(part);
                }
            }
        })
    }

    fn write(&self) {
        let _turn = self.writing.lock();
        let mut state = self.state.lock();
        if state.lines.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut state.lines);
        let slip = std::mem::take(&mut state.slip);
        let replace = state.broken || state.length + lines.len() > 2 * state.live + GARBAGE;
        let (bytes, done);
        if replace {
            let mut whole = TITLE.to_owned();
            for (key, value) in &state.records {
                put(&mut whole, key, value);
            }
            bytes = whole.len();
            drop(state);
            done = self.file.replace(whole.as_bytes());
        } else {
            bytes = lines.len();
            drop(state);
            done = self.file.append(lines.as_bytes());
        }
        let mut state = self.state.lock();
        match (&done, replace) {
            (Ok(()), true) => (state.length, state.live, state.broken) = (bytes, bytes, false),
            (Ok(()), false) => state.length += bytes,
            (Err(error), _) => {
                tracing::error!(%error, "cannot write the records of clients; first claims of clients are refused");
                state.broken = true;
            }
        }
        drop(state);
        slip.set(done.is_ok());
    }
}

fn parse(text: &str, records: &mut BTreeMap<String, String>) {
    let mut lines = text.split_inclusive('\n');
    if lines.next() != Some(TITLE) {
        tracing::error!("the records of clients are not in a known format; ignored");
        return;
    }
    for line in lines {
        let Some(whole) = line.strip_suffix('\n') else {
            tracing::warn!(line, "the records of clients end within a line");
            break;
        };
        if let Some((key, value)) = whole.split_once(" = ") {
            records.insert(key.to_owned(), value.to_owned());
        } else if let Some(key) = whole.strip_suffix(" -") {
            records.remove(key);
        } else {
            tracing::warn!(
                line = whole,
                "line of the records of clients not understood"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Default)]
    struct Memory {
        text: Mutex<Option<Vec<u8>>>,
        broken: AtomicBool,
        wholes: AtomicUsize,
    }

    impl RecordFile for Memory {
        fn load(&self) -> io::Result<Option<Vec<u8>>> {
            Ok(self.text.lock().clone())
        }
        fn replace(&self, text: &[u8]) -> io::Result<()> {
            if self.broken.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.wholes.fetch_add(1, Ordering::Relaxed);
            *self.text.lock() = Some(text.to_vec());
            Ok(())
        }
        fn append(&self, lines: &[u8]) -> io::Result<()> {
            let broken = self.broken.load(Ordering::Relaxed);
            let part = if broken { lines.len() / 2 } else { lines.len() };
            let mut text = self.text.lock();
            text.get_or_insert_default().extend(&lines[..part]);
            match broken {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    fn all(file: &Arc<Memory>) -> Vec<(String, String)> {
        FileRecords::new(file.clone()).load().unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn records_outlive_restarts_and_torn_writes() {
        let file = Arc::new(Memory::default());
        let r = FileRecords::new(file.clone());
        assert_eq!(r.load().unwrap(), []);
        let first = r.set("host a", "1");
        let gone = r.set("host b", "2 = 3");
        assert_eq!(first.get(), None);
        r.write();
        assert_eq!((first.get(), gone.get()), (Some(true), Some(true)));
        r.remove("host b");
        r.remove("host c");
        r.set("host a", "4");
        r.write();
        assert_eq!(all(&file), [pair("host a", "4")]);
        assert_eq!(file.wholes.load(Ordering::Relaxed), 1, "appended");
        // Half a line, and nothing of what was promised is lost by it.
        file.broken.store(true, Ordering::Relaxed);
        let lost = r.set("host d", "5");
        r.write();
        assert_eq!(lost.get(), Some(false));
        assert_eq!(all(&file), [pair("host a", "4")]);
        let still = r.set("host e", "6");
        r.write();
        assert_eq!(still.get(), Some(false));
        file.broken.store(false, Ordering::Relaxed);
        let mended = r.remove("host d");
        r.write();
        assert_eq!(mended.get(), Some(true));
        assert_eq!(all(&file), [pair("host a", "4"), pair("host e", "6")]);
    }

    #[test]
    fn the_text_is_replaced_when_it_is_mostly_old() {
        let file = Arc::new(Memory::default());
        let r = FileRecords::new(file.clone());
        for n in 0..20_000 {
            r.set("host a", &n.to_string());
            r.write();
            assert!(file.text.lock().as_ref().unwrap().len() < GARBAGE + 200);
        }
        assert_eq!(all(&file), [pair("host a", "19999")]);
        let wholes = file.wholes.load(Ordering::Relaxed);
        assert!((3..20).contains(&wholes), "{wholes}");
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        for (text, records) in [
            ("", vec![]),
            ("another title\nhost a = 1\n", vec![]),
            (
                "weir client records, version 1\nhost a = 1\nnonsense\nhost b = 2\nhost b -\nhost c = 3",
                vec![pair("host a", "1")],
            ),
        ] {
            let file = Arc::new(Memory::default());
            *file.text.lock() = Some(text.into());
            assert_eq!(all(&file), records, "{text}");
        }
    }
}
