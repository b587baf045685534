//! What is wrong with the server as a whole: for the log, the metrics and the API's `/health`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_volume::Engine;

/// What a problem is about; each has at most one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Nothing can be written any more.
    Aggregate,
    /// Nothing can be changed through the API any more.
    Catalog,
    /// The lock file does not keep other servers out any more.
    Lock,
    /// The host's file system is full.
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

/// The problems that there are now.
pub struct Health {
    engine: Arc<Engine>,
    problems: Mutex<BTreeMap<Subject, String>>,
}

impl Health {
    /// A server over this engine, without problems so far.
    pub fn new(engine: Arc<Engine>) -> Health {
        Health {
            engine,
            problems: Mutex::default(),
        }
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

    /// Whether there is such a problem.
    pub fn has(&self, subject: Subject) -> bool {
        self.problems.lock().contains_key(&subject)
    }

    /// Removes the problem, if it is recorded, and logs that it has passed.
    pub fn clear(&self, subject: Subject) {
        if self.problems.lock().remove(&subject).is_some() {
            tracing::warn!(about = subject.as_str(), "no longer a problem");
        }
    }

    /// All problems, with words.
    pub fn problems(&self) -> Vec<(Subject, String)> {
        let mut problems = self.problems.lock().clone();
        if let Some(why) = self.engine.poisoned() {
            problems.entry(Subject::Aggregate).or_insert(why);
        }
        problems.into_iter().collect()
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
            u8::from(self.engine.poisoned().is_some())
        );
        let _ = writeln!(
            text,
            "# HELP weir_invariants_violated Defects that the server has found in itself and that concern memory alone.\n\
             # TYPE weir_invariants_violated counter\nweir_invariants_violated {}",
            weir_base::violations()
        );
        for subject in Subject::ALL {
            let there = problems.iter().any(|(other, _)| *other == subject);
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
