//! Names and groups of this machine's users for NFS and SMB. The name service may take as long as a
//! directory server does, so its calls are made on threads of their own.

use std::ffi::CString;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use weir_auth::name_service::{
    group_by_name, group_by_number, groups_of, user_by_name, user_by_number,
};
use weir_auth::users::Machine;
use weir_base::Clock;
use weir_nfs::groups::{Answer, Directory};
use weir_nfs::idmap::{self, Accounts, IdMap, PendingQuery, Query, QueryOutcome};

/// Threads that look users up.
const THREADS: usize = 2;
/// Users that wait to be looked up, at most.
const WAITING: usize = 1024;

/// The number of a user or group, or its name.
fn account(query: &Query) -> QueryOutcome {
    let c_string = |name: &[u8]| CString::new(name).ok();
    let number = |number: Option<u32>| number.map_or(QueryOutcome::Nobody, QueryOutcome::Number);
    let name = |name: Option<CString>| {
        name.map_or(QueryOutcome::Nobody, |name| {
            QueryOutcome::Name(name.as_bytes().into())
        })
    };
    match query {
        Query::User(user) => number(
            c_string(user)
                .and_then(|name| user_by_name(&name))
                .map(|user| user.uid),
        ),
        Query::Group(group) => number(
            c_string(group)
                .and_then(|name| group_by_name(&name))
                .map(|group| group.gid),
        ),
        Query::Uid(uid) => name(user_by_number(*uid).map(|user| user.name)),
        Query::Gid(gid) => name(group_by_number(*gid).map(|group| group.name)),
    }
}

/// Users and groups of this machine as clients of SMB see them.
pub struct MachineNames(IdMap);

impl MachineNames {
    /// By the name service.
    pub fn new(system: Arc<System>, clock: Arc<dyn Clock>) -> Arc<MachineNames> {
        // No domain: they are of this machine.
        Arc::new(MachineNames(IdMap::new("", system, clock)))
    }
}

impl Machine for MachineNames {
    fn name(&self, group: bool, number: u32) -> Result<Option<String>, PendingQuery> {
        let name = self.0.name(group, number)?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    fn number(&self, group: bool, name: &str) -> Result<Option<u32>, PendingQuery> {
        self.0.number_of(group, name.as_bytes())
    }

    fn tick(&self) {
        self.0.tick();
    }
}

/// A lookup, and the receiver of its result.
enum Job {
    Groups(u32, Answer),
    Account(Query, idmap::Answer),
}

/// The name service: groups that do not fit into a credential, and names of users and groups.
pub struct System {
    jobs: SyncSender<Job>,
}

impl System {
    /// Starts its threads, which end with the process.
    pub fn start() -> anyhow::Result<System> {
        let (jobs, queue) = sync_channel(WAITING);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name("weir-users".to_owned())
                .spawn(move || serve(&queue))
                .context("starting a thread")?;
        }
        Ok(System { jobs })
    }
}

impl Directory for System {
    fn look_up(&self, uid: u32, answer: Answer) {
        // One that finds no room is dropped, and its user counts as unknown for a while.
        let _ = self.jobs.try_send(Job::Groups(uid, answer));
    }
}

impl Accounts for System {
    fn look_up(&self, query: Query, answer: idmap::Answer) {
        let _ = self.jobs.try_send(Job::Account(query, answer));
    }
}

fn serve(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(Job::Groups(uid, answer)) => answer.found(groups_of(uid)),
            Ok(Job::Account(query, answer)) => answer.found(account(&query)),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_found() {
        let root = || QueryOutcome::Name(Arc::from(&b"root"[..]));
        assert_eq!(
            account(&Query::User(Box::from(&b"root"[..]))),
            QueryOutcome::Number(0)
        );
        assert_eq!(
            account(&Query::Group(Box::from(&b"root"[..]))),
            QueryOutcome::Number(0)
        );
        assert_eq!(
            (account(&Query::Uid(0)), account(&Query::Gid(0))),
            (root(), root())
        );
        let nobody = Query::Group(Box::from(&b"nobody-has-this-name"[..]));
        assert_eq!(account(&nobody), QueryOutcome::Nobody);
        assert_eq!(account(&Query::Uid(0x7fff_fffe)), QueryOutcome::Nobody);
    }
}
