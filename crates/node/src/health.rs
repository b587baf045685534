//! Problems of the server as a whole: for the log, the metrics and the API's `/health`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_volume::Engine;

/// Subject of a problem; each has at most one problem at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Nothing can be written any more.
    Aggregate,
    /// Nothing can be changed through the API any more.
    Catalog,
    /// The lock file does not keep other servers out any more.
    Lock,
    /// There is no space for writes, or little.
    Space,
}

impl Subject {
    const ALL: [Subject; 4] = [
        Subject::Aggregate,
        Subject::Catalog,
        Subject::Lock,
        Subject::Space,
    ];

    /// As metrics and `/health` call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Subject::Aggregate => "aggregate",
            Subject::Catalog => "catalog",
            Subject::Lock => "lock",
            Subject::Space => "space",
        }
    }
}

/// The cause of a problem with [`Subject::Space`] if the aggregate is full.
pub const AGGREGATE_FULL: &str = "the aggregate is full, and writes are refused: free space on the host's file system, or delete files and snapshots";

/// Something that is wrong, or soon will be.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The part that it concerns.
    pub about: Subject,
    /// Requests fail for it; otherwise it is a warning.
    pub fatal: bool,
    /// The cause, and what to do.
    pub why: String,
}

/// The problems that there are now.
pub struct Health {
    engine: Option<Arc<Engine>>,
    problems: Mutex<BTreeMap<Subject, String>>,
    warnings: Mutex<BTreeMap<Subject, String>>,
}

impl Health {
    /// A server over this engine, without problems so far.
    pub fn new(engine: Arc<Engine>) -> Health {
        Health {
            engine: Some(engine),
            problems: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// A server without an engine.
    #[cfg(test)]
    pub fn without_engine() -> Health {
        Health {
            engine: None,
            problems: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// Sets the warning about a part.
    pub fn warn(&self, subject: Subject, why: String) {
        self.warnings.lock().insert(subject, why);
    }

    /// Removes the warning about a part.
    pub fn calm(&self, subject: Subject) {
        self.warnings.lock().remove(&subject);
    }

    /// Notes a problem, in the log if it is new.
    pub fn raise(&self, subject: Subject, why: &str) {
        if self
            .problems
            .lock()
            .insert(subject, why.to_owned())
            .is_none()
        {
            tracing::error!(about = subject.as_str(), "{why}");
        }
    }

    /// Returns true if the subject has a problem.
    pub fn has_problem(&self, subject: Subject) -> bool {
        self.problems.lock().contains_key(&subject)
    }

    /// Removes the problem, if it is recorded, and logs that it has passed.
    pub fn clear(&self, subject: Subject) {
        if self.problems.lock().remove(&subject).is_some() {
            tracing::warn!(about = subject.as_str(), "no longer a problem");
        }
    }

    fn poisoned(&self) -> Option<String> {
        self.engine.as_ref().and_then(|engine| engine.poisoned())
    }

    /// Returns all problems, and warnings about parts that have no problem.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.problems.lock().clone();
        if let Some(why) = self.poisoned() {
            problems.entry(Subject::Aggregate).or_insert(why);
        }
        // The poll may not have seen it yet.
        let space = self
            .engine
            .as_ref()
            .map(|engine| engine.aggregate().space());
        if space.is_some_and(|space| space.is_refusing()) {
            let why = || AGGREGATE_FULL.to_owned();
            problems.entry(Subject::Space).or_insert_with(why);
        }
        let warnings = self.warnings.lock().clone().into_iter();
        let warnings: Vec<Problem> = warnings
            .filter(|(about, _)| !problems.contains_key(about))
            .map(|(about, why)| Problem {
                about,
                fatal: false,
                why,
            })
            .collect();
        let problems = problems.into_iter().map(|(about, why)| Problem {
            about,
            fatal: true,
            why,
        });
        problems.chain(warnings).collect()
    }

    /// Metrics in Prometheus' text form.
    pub fn render(&self) -> String {
        let problems = self.problems();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# HELP weir_read_only Whether the aggregate refuses every change until a restart.\n\
             # TYPE weir_read_only gauge\nweir_read_only {}\n\
             # HELP weir_problem Whether something is wrong with this part; /health has the words.\n\
             # TYPE weir_problem gauge",
            u8::from(self.poisoned().is_some())
        );
        let _ = writeln!(
            text,
            "# HELP weir_invariants_violated_total Defects that the server has found in itself and that concern memory alone.\n\
             # TYPE weir_invariants_violated_total counter\nweir_invariants_violated_total {}",
            weir_base::violations()
        );
        for subject in Subject::ALL {
            let there = problems.iter().any(|p| p.fatal && p.about == subject);
            let _ = writeln!(
                text,
                "weir_problem{{about=\"{}\"}} {}",
                subject.as_str(),
                u8::from(there)
            );
        }
        text
    }
}
