//! Recording changes of persistent opens. See [`crate::open::persistent`].

use crate::context::run::Run;
use crate::open::persistent::Deletes;
use crate::open::session::{File, Open};

impl Run<'_> {
    /// Records an open as it is now, if it is persistent. The response waits for that, but not for
    /// room in the log.
    pub(crate) fn note(&mut self, open: &Open, file: &File) {
        if let Some(persistent) = open.persistent.get() {
            let lsn = persistent.note_some_time(file);
            self.c.wait_for(lsn);
        }
    }

    /// Records what becomes of the file of an open, likewise.
    pub(crate) fn note_deletion(&mut self, open: &Open, file: &File, deletes: Deletes) {
        if let Some(persistent) = open.persistent.get() {
            persistent.deletes(deletes);
            self.note(open, file);
        }
    }
}
