//! Cache of a connection's admissions to exports.
//!
//! Finding a volume's export among ten thousand and going through its rules takes as long as a
//! cached GETATTR. The result is the same for almost every request of a connection. So each
//! connection caches the last few results, with the numbers of the table and of the state of the
//! names that they came from. Both change when anything does, so a result is either current or not
//! used. Refusals are not cached: they are not worth being fast.

use crate::exports::{Export, ExportTable, Protocol, Rule};
use crate::names::{Names, Wait};
use crate::session::Session;
use std::cell::Cell;
use weir_base::VolumeId;

/// Volumes that one connection is fast with. A Linux client opens a connection to a server and uses
/// it for all that it mounts from there.
const SLOTS: usize = 4;

/// The state of the names, for an answer that does not depend on names.
const NAMELESS: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Slot {
    table: u64,
    names: u64,
    volume: VolumeId,
    protocol: Protocol,
    place: u32,
    rule: u32,
}

/// Admissions of one connection (see the module's head).
#[derive(Clone, Default)]
pub struct Admissions([Cell<Option<Slot>>; SLOTS]);

impl Admissions {
    /// Returns true if the connection has ever been admitted to an export.
    pub fn any(&self) -> bool {
        self.0.iter().any(|slot| slot.get().is_some())
    }
}

impl std::fmt::Debug for Admissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admissions")
    }
}

/// The export of a volume and the rule that admits a client, if one does.
pub(crate) enum Admission<'t> {
    Yes(&'t Export, &'t Rule),
    Denied,
    Unknown(Wait),
    /// The volume is not exported.
    NoExport,
}

/// Looks up the rule of the volume `id` that `session`'s client is under; whether it admits the
/// session's flavour remains to be seen.
pub(crate) fn find<'t, A>(
    table: &'t ExportTable,
    id: VolumeId,
    session: &Session<'_, A>,
    names: &Names,
) -> Admission<'t> {
    let slot = session.admitted.0.get(id.0 as usize % SLOTS);
    let kept = slot.and_then(Cell::get).filter(|s| {
        s.table == table.generation()
            && s.volume == id
            && s.protocol == session.protocol
            && (s.names == NAMELESS || s.names == names.generation())
    });
    if let Some(s) = kept
        && let Some(export) = table.export_at(id, s.place as usize)
        && let Some(rule) = export.rules.get(s.rule as usize)
    {
        return Admission::Yes(export, rule);
    }
    let Some((place, export)) = table.find(id) else {
        return Admission::NoExport;
    };
    // Before the rules are gone through: if it moves meanwhile, they are gone through again.
    let state = match export.by_name() {
        true => names.generation(),
        false => NAMELESS,
    };
    match export.search(session.origin, session.protocol, names) {
        Ok(Some((at, rule))) => {
            if let (Some(slot), Ok(place), Ok(at)) = (slot, u32::try_from(place), u32::try_from(at))
            {
                slot.set(Some(Slot {
                    table: table.generation(),
                    names: state,
                    volume: id,
                    protocol: session.protocol,
                    place,
                    rule: at,
                }));
            }
            Admission::Yes(export, rule)
        }
        Ok(None) => Admission::Denied,
        Err(wait) => Admission::Unknown(wait),
    }
}
