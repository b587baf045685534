//! Clients of NFSv4 that share files, through power failures: opens with share reservations,
//! byte-range locks and delegations, against a model that knows what each of them has been told.
//!
//! Safety, at each step: what a client was granted is compatible with all that others were granted
//! and have not returned. A recalled delegation counts until it is returned, or until the server
//! may revoke it. Progress: a refusal names a conflict that there is. Over a restart: each client
//! gets what it had, nobody else gets what conflicts meanwhile, and data that was written stably is
//! there. A request that is sent again gets its first reply.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_base::{Clock as _, Lsn};
use weir_nfs::Later;

use super::client4::{
    Claim, Client, DELAY, DENIED, GRACE, NO_GRACE, OK, Ops, RECLAIM_BAD, REVOKED, Reply,
    SHARE_DENIED, SendOutcome, State, WANT_ANY, op, opened, recall,
};
use super::server::Server;
use crate::machine::{Machine, RunningEngine, Sizes};
use crate::rand::Choices;
use crate::subject::{Handle, Subject};
use weir_testclient::DecodeError;

type CheckResult<T = ()> = Result<T, String>;

const CLIENTS: usize = 3;
const FILES: usize = 3;
/// Bytes of a file; each may be locked.
const SIZE: usize = 8;
const READ: u32 = 1;
const WRITE: u32 = 2;

/// State of a client on a file, as far as the client knows.
#[derive(Clone, Default)]
struct Has {
    open: Option<(u32, u32, State)>,
    locks: Option<State>,
    /// Locks by byte: 0 none, 1 shared, 2 exclusive.
    held: [u8; SIZE],
    /// Kind (1 read, 2 write), stateid, and true if the delegation is being recalled.
    delegation: Option<(u32, State, bool)>,
}

struct File {
    handle: Handle,
    /// Possible contents. After a power failure there are several, until the file is read.
    contents: Vec<[u8; SIZE]>,
    has: [Has; CLIENTS],
}

impl File {
    fn others(&self, who: usize) -> impl Iterator<Item = &Has> {
        let all = self.has.iter().enumerate();
        all.filter(move |(n, _)| *n != who).map(|(_, has)| has)
    }

    fn denies(&self, who: usize, access: u32, deny: u32) -> bool {
        let mut opens = self.others(who).filter_map(|has| has.open);
        opens.any(|(used, denied, _)| access & denied != 0 || deny & used != 0)
    }

    /// Returns true if others' delegations conflict with an open.
    fn delegated(&self, who: usize, access: u32, deny: u32) -> bool {
        let alone = access & WRITE != 0 || deny & READ != 0;
        let mut kinds = self.others(who).filter_map(|has| has.delegation);
        kinds.any(|(kind, ..)| alone || kind == 2)
    }

    fn locked(&self, who: usize, from: usize, to: usize, exclusive: bool) -> bool {
        let mut held = self.others(who).flat_map(|has| &has.held[from..to]);
        held.any(|held| *held == 2 || (*held == 1 && exclusive))
    }
}

/// Messages of the server to clients, in order, by the number of the connection.
type Mail = Arc<Mutex<VecDeque<(u64, Vec<u8>)>>>;

struct Story<'m> {
    machine: &'m Machine,
    running: &'m RunningEngine,
    server: Server,
    mail: Mail,
}

fn text(why: DecodeError) -> String {
    why.0.to_owned()
}

/// Outcome of a step.
enum Step {
    Done,
    /// The power failed, so the step may have been carried out or not.
    Lost,
}

impl Story<'_> {
    fn start<'m>(machine: &'m Machine, running: &'m RunningEngine) -> CheckResult<Story<'m>> {
        let server = Server::new(machine, running)?;
        let mail = Mail::default();
        let to = Arc::clone(&mail);
        server
            .service
            .on_callback(Arc::new(move |connection, message| {
                let mut mail = to.lock().unwrap_or_else(|dead| dead.into_inner());
                mail.push_back((connection, message.into()));
                true
            }));
        Ok(Story {
            machine,
            running,
            server,
            mail,
        })
    }

    /// Time passes, in steps that keep the clients' leases alive.
    fn pass(&self, clients: &mut [Client], seconds: u64) -> CheckResult {
        for _ in 0..seconds {
            self.machine.clock.advance(Duration::from_secs(1));
            self.server.service.tick();
            if self.machine.clock.monotonic().as_secs() % 9 == 0 {
                self.renew(clients)?;
            }
        }
        Ok(())
    }

    fn renew(&self, clients: &mut [Client]) -> CheckResult {
        for client in clients {
            client.send(&self.server, self.machine, &Ops::new())?;
        }
        Ok(())
    }

    /// Delivers what the server has to say; clients note what is recalled.
    fn deliver(&self, clients: &[Client], files: &mut [File]) -> CheckResult {
        loop {
            let next = self
                .mail
                .lock()
                .unwrap_or_else(|dead| dead.into_inner())
                .pop_front();
            let Some((connection, message)) = next else {
                return Ok(());
            };
            let Some(recall) = recall(&message).map_err(text)? else {
                continue;
            };
            let who = connection as usize - 1;
            for file in &mut *files {
                if let Some((_, state, recalled)) = &mut file.has[who].delegation {
                    *recalled |= state[4..] == recall.state[4..];
                }
            }
            clients[who].obey(&self.server, self.machine, &recall)?;
        }
    }

    fn poll(&self, client: &mut Client, later: &mut Later) -> CheckResult<Option<Reply>> {
        let mut cx = Context::from_waker(Waker::noop());
        match later.as_mut().poll(&mut cx) {
            Poll::Ready(handled) => client.ended(handled).map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Sends a request; while it waits, clients return what is recalled of them if they are
    /// `obedient`.
    fn send_request(
        &self,
        choices: &Choices,
        clients: &mut [Client],
        files: &mut [File],
        who: usize,
        ops: &Ops,
    ) -> CheckResult<Option<Reply>> {
        let obedient = choices.chance(4, 5);
        let sent = clients[who].send(&self.server, self.machine, ops);
        if self.machine.world.crashed() {
            return Ok(None);
        }
        let mut later = match sent? {
            SendOutcome::Reply(reply) => {
                self.deliver(clients, files)?;
                return Ok(self.settled(reply));
            }
            SendOutcome::Waits(later) => later,
        };
        // From here on it waits for two seconds.
        if let Some(reply) = self.poll(&mut clients[who], &mut later)? {
            return Ok(self.settled(reply));
        }
        self.deliver(clients, files)?;
        if obedient {
            for number in (0..CLIENTS).filter(|n| *n != who) {
                for file in &mut *files {
                    if file.has[number]
                        .delegation
                        .is_some_and(|(.., recalled)| recalled)
                    {
                        self.give_back(clients, file, number)?;
                    }
                }
            }
        } else {
            // Two seconds: then the request ends with NFS4ERR_DELAY.
            for _ in 0..3 {
                self.machine.clock.advance(Duration::from_secs(1));
                self.server.service.tick();
            }
        }
        let reply = self.poll(&mut clients[who], &mut later)?;
        if !obedient {
            self.renew(clients)?;
            self.mourn(clients, files)?;
        }
        match reply {
            Some(reply) => Ok(self.settled(reply)),
            None if self.machine.world.crashed() => Ok(None),
            None => Err(format!(
                "a request of client {who} waits on (obedient: {obedient})"
            )),
        }
    }

    /// The reply, once it may be sent; none if the power fails before.
    fn settled(&self, reply: Reply) -> Option<Reply> {
        let durable = self.running.engine.wait_durable(Some(Lsn(reply.lsn)));
        (durable.is_ok() && !self.machine.world.crashed()).then_some(reply)
    }

    fn give_back(&self, clients: &mut [Client], file: &mut File, who: usize) -> CheckResult {
        let Some((_, state, _)) = file.has[who].delegation else {
            return Ok(());
        };
        let mut ops = Ops::new().fh(&file.handle);
        ops.begin(op::DELEGRETURN).fixed(&state);
        match clients[who].send(&self.server, self.machine, &ops)? {
            SendOutcome::Reply(reply) if reply.status == OK => {
                file.has[who].delegation = None;
                Ok(())
            }
            SendOutcome::Reply(reply) => Err(format!("DELEGRETURN: {}", reply.status)),
            SendOutcome::Waits(_) => Err("DELEGRETURN waits".to_owned()),
        }
    }

    /// A random request of a random client.
    fn step(
        &self,
        choices: &Choices,
        clients: &mut [Client],
        files: &mut [File],
    ) -> CheckResult<Step> {
        let (who, at) = (choices.index(CLIENTS), choices.index(FILES));
        let has = files[at].has[who].clone();
        let handle = files[at].handle.clone();
        let from = choices.index(SIZE);
        let to = from + 1 + choices.index(SIZE - from);
        let range = (from as u64, (to - from) as u64);
        match (choices.below(12), has.open) {
            (0 | 1, _) | (_, None) => self.open(choices, clients, files, who, at),
            (2, Some((_, _, state))) => {
                let mut ops = Ops::new().fh(&handle);
                ops.begin(op::CLOSE).u32(0).fixed(&state);
                let Some(reply) = self.send_request(choices, clients, files, who, &ops)? else {
                    return Ok(Step::Lost);
                };
                expect("CLOSE", reply.status, OK)?;
                files[at].has[who] = Has {
                    delegation: files[at].has[who].delegation,
                    ..Has::default()
                };
                Ok(Step::Done)
            }
            (3 | 4, Some((access, _, state))) => {
                let exclusive = match access {
                    READ => false,
                    WRITE => true,
                    _ => choices.chance(1, 2),
                };
                let ops = clients[who].lock(
                    &handle,
                    (exclusive, false),
                    range,
                    &state,
                    has.locks.as_ref(),
                );
                let Some(reply) = self.send_request(choices, clients, files, who, &ops)? else {
                    return Ok(Step::Lost);
                };
                let conflict = files[at].locked(who, from, to, exclusive);
                let expected = if conflict { DENIED } else { OK };
                expect("LOCK", reply.status, expected)?;
                if reply.status == OK {
                    let mut r = reply.results_after(op::PUTFH, op::LOCK).map_err(text)?;
                    let has = &mut files[at].has[who];
                    has.locks = Some(r.fixed().map_err(text)?);
                    has.held[from..to].fill(1 + u8::from(exclusive));
                }
                Ok(Step::Done)
            }
            (5, Some(_)) if has.locks.is_some() => {
                let mut ops = Ops::new().fh(&handle);
                let locks = has.locks.unwrap_or_default();
                let out = ops.begin(op::LOCKU).u32(1).u32(0).fixed(&locks);
                out.u64(range.0).u64(range.1);
                let Some(reply) = self.send_request(choices, clients, files, who, &ops)? else {
                    return Ok(Step::Lost);
                };
                expect("LOCKU", reply.status, OK)?;
                let mut r = reply.results_after(op::PUTFH, op::LOCKU).map_err(text)?;
                let has = &mut files[at].has[who];
                has.locks = Some(r.fixed().map_err(text)?);
                has.held[from..to].fill(0);
                Ok(Step::Done)
            }
            (6 | 7, Some((access, _, state))) if access & WRITE != 0 => {
                let data = vec![choices.below(256) as u8; to - from];
                let ops = writing(&handle, &state, from, &data);
                let before = files[at].contents.clone();
                for content in &mut files[at].contents {
                    content[from..to].copy_from_slice(&data);
                }
                let reply = self.send_request(choices, clients, files, who, &ops);
                let Ok(Some(reply)) = reply else {
                    // Done or not.
                    files[at].contents.extend(before);
                    return reply.map(|_| Step::Lost);
                };
                expect("WRITE", reply.status, OK)?;
                Ok(Step::Done)
            }
            (8, Some((access, _, state))) if access & READ != 0 => {
                self.verify(clients, &mut files[at], who, &state)?;
                Ok(Step::Done)
            }
            (9, _) => {
                self.give_back(clients, &mut files[at], who)?;
                Ok(Step::Done)
            }
            (10, _) => {
                clients[who].repeat(&self.server, self.machine)?;
                Ok(Step::Done)
            }
            _ => {
                // Long enough for what is recalled to be revoked, or for files to be delegated
                // anew.
                self.pass(clients, *choices.pick(&[1, 5, 40]))?;
                self.deliver(clients, files)?;
                self.mourn(clients, files)?;
                Ok(Step::Done)
            }
        }
    }

    /// Clients notice what was revoked, and free it.
    fn mourn(&self, clients: &mut [Client], files: &mut [File]) -> CheckResult {
        for (who, client) in clients.iter_mut().enumerate() {
            let SendOutcome::Reply(reply) = client.send(&self.server, self.machine, &Ops::new())?
            else {
                return Err("SEQUENCE waits".to_owned());
            };
            if reply.flags & REVOKED == 0 {
                continue;
            }
            let mut freed = 0;
            for file in &mut *files {
                let Some((_, state, true)) = file.has[who].delegation else {
                    continue;
                };
                let mut ops = Ops::new();
                ops.begin(op::FREE_STATEID).fixed(&state);
                if let SendOutcome::Reply(reply) = client.send(&self.server, self.machine, &ops)?
                    && reply.status == OK
                {
                    file.has[who].delegation = None;
                    freed += 1;
                }
            }
            if freed == 0 {
                return Err(format!("client {who} lost what was not recalled of it"));
            }
        }
        Ok(())
    }

    fn open(
        &self,
        choices: &Choices,
        clients: &mut [Client],
        files: &mut [File],
        who: usize,
        at: usize,
    ) -> CheckResult<Step> {
        let access = choices.between(1, 3) as u32;
        let deny = *choices.pick(&[0, 0, 0, 0, READ, WRITE]);
        let wish = *choices.pick(&[0, WANT_ANY]);
        let ops = clients[who].open(&files[at].handle, access | wish, deny, Claim::File);
        // Before others return theirs.
        let delegated = files[at].delegated(who, access, deny);
        let Some(reply) = self.send_request(choices, clients, files, who, &ops)? else {
            return Ok(Step::Lost);
        };
        let file = &mut files[at];
        let denied = file.denies(who, access, deny);
        let at = format!("OPEN of {at} by {who}, access {access}, deny {deny}");
        match reply.status {
            SHARE_DENIED if denied => Ok(Step::Done),
            // A denial may end with a delegation that is returned: its holder may have closed
            // already.
            DELAY if delegated || denied => Ok(Step::Done),
            OK if denied => Err(format!("{at}: others deny it")),
            OK if file.delegated(who, access, deny) => Err(format!("{at}: it is delegated")),
            OK => {
                let mut r = reply.results_after(op::PUTFH, op::OPEN).map_err(text)?;
                let (state, given) = opened(&mut r).map_err(text)?;
                let has = &mut file.has[who];
                let (a, d, _) = has.open.unwrap_or_default();
                has.open = Some((a | access, d | deny, state));
                if let Some((kind, state)) = given {
                    has.delegation = Some((kind, state, false));
                    let opens = || file.others(who).filter_map(|has| has.open);
                    let against = match kind {
                        2 => opens().next().is_some(),
                        _ => {
                            opens().any(|(access, deny, _)| access & WRITE != 0 || deny & READ != 0)
                        }
                    };
                    let mut delegations = file.others(who).filter_map(|has| has.delegation);
                    if against || delegations.any(|(other, ..)| kind == 2 || other == 2) {
                        return Err(format!("{at}: delegation {kind} beside others"));
                    }
                }
                Ok(Step::Done)
            }
            status => Err(format!("{at}: {status}")),
        }
    }

    fn verify(
        &self,
        clients: &mut [Client],
        file: &mut File,
        who: usize,
        state: &State,
    ) -> CheckResult {
        let mut ops = Ops::new().fh(&file.handle);
        ops.begin(op::READ).fixed(state).u64(0).u32(SIZE as u32);
        let SendOutcome::Reply(reply) = clients[who].send(&self.server, self.machine, &ops)? else {
            return Err("READ waits".to_owned());
        };
        if self.machine.world.crashed() {
            return Ok(());
        }
        expect("READ", reply.status, OK)?;
        let mut r = reply.results_after(op::PUTFH, op::READ).map_err(text)?;
        let (_eof, data) = (r.u32().map_err(text)?, r.opaque().map_err(text)?);
        let before = file.contents.clone();
        file.contents.retain(|content| data == content);
        file.contents.truncate(1);
        match file.contents.is_empty() {
            false => Ok(()),
            true => Err(format!("{data:?} where {before:?} was written")),
        }
    }

    /// The clients find the server again, and claim what they had; one of them may stay away.
    fn reclaim(
        &self,
        choices: &Choices,
        clients: &mut [Client],
        files: &mut [File],
    ) -> CheckResult {
        let away = choices.chance(1, 3).then(|| choices.index(CLIENTS));
        let mut order: Vec<usize> = (0..CLIENTS).filter(|n| Some(*n) != away).collect();
        choices.shuffle(&mut order);
        let had = |files: &[File], who: usize| files.iter().any(|f| f.has[who].open.is_some());
        let any = |files: &[File]| (0..CLIENTS).any(|who| had(files, who));
        if !any(files) {
            // Nothing is to be claimed, unless the server recorded a client that never heard so.
            self.pass(&mut [], 2)?;
        }
        let mut expected: Vec<usize> = (0..CLIENTS).filter(|n| had(files, *n)).collect();
        for who in order {
            clients[who].begin(&self.server, self.machine)?;
            for file in &mut *files {
                self.reclaim_file(clients, file, who)?;
                // Nobody gets anything new meanwhile.
                if choices.chance(1, 3) && expected.contains(&who) {
                    let ops = clients[who].open(&file.handle, READ, 0, Claim::File);
                    let SendOutcome::Reply(reply) =
                        clients[who].send(&self.server, self.machine, &ops)?
                    else {
                        return Err("an OPEN in grace waits".to_owned());
                    };
                    expect("OPEN in grace", reply.status, GRACE)?;
                }
            }
            let mut ops = Ops::new();
            ops.begin(op::RECLAIM_COMPLETE).bool(false);
            clients[who].send(&self.server, self.machine, &ops)?;
            expected.retain(|other| *other != who);
        }
        // Those that stay away lose what they had when the period ends.
        self.pass(&mut [], 2)?;
        if let Some(who) = away {
            for file in &mut *files {
                file.has[who] = Has::default();
            }
            clients[who].begin(&self.server, self.machine)?;
            let claim = clients[who].open(&files[0].handle, READ, 0, Claim::Previous(0));
            let SendOutcome::Reply(reply) =
                clients[who].send(&self.server, self.machine, &claim)?
            else {
                return Err("a claim waits".to_owned());
            };
            if ![NO_GRACE, RECLAIM_BAD].contains(&reply.status) {
                return Err(format!("a claim after its time: {}", reply.status));
            }
            let mut ops = Ops::new();
            ops.begin(op::RECLAIM_COMPLETE).bool(false);
            clients[who].send(&self.server, self.machine, &ops)?;
        }
        Ok(())
    }

    fn reclaim_file(&self, clients: &mut [Client], file: &mut File, who: usize) -> CheckResult {
        let has = file.has[who].clone();
        let Some((access, deny, _)) = has.open else {
            // A delegation without an open: the client has nothing to claim it by that this one
            // would use.
            file.has[who] = Has::default();
            return Ok(());
        };
        let kind = has.delegation.map_or(0, |(kind, ..)| kind);
        let ops = clients[who].open(&file.handle, access, deny, Claim::Previous(kind));
        let SendOutcome::Reply(reply) = clients[who].send(&self.server, self.machine, &ops)? else {
            return Err("a claim waits".to_owned());
        };
        expect("OPEN again", reply.status, OK)?;
        let mut r = reply.results_after(op::PUTFH, op::OPEN).map_err(text)?;
        let (state, given) = opened(&mut r).map_err(text)?;
        let mut now = Has {
            open: Some((access, deny, state)),
            delegation: given.map(|(kind, state)| (kind, state, false)),
            ..Has::default()
        };
        if given.map_or(0, |(kind, _)| kind) > kind {
            return Err("more was delegated than was claimed".to_owned());
        }
        for (byte, held) in has.held.iter().enumerate().filter(|(_, held)| **held > 0) {
            let range = (byte as u64, 1);
            let modes = (*held == 2, true);
            let ops = clients[who].lock(&file.handle, modes, range, &state, now.locks.as_ref());
            let SendOutcome::Reply(reply) = clients[who].send(&self.server, self.machine, &ops)?
            else {
                return Err("a claim waits".to_owned());
            };
            expect("LOCK again", reply.status, OK)?;
            let mut r = reply.results_after(op::PUTFH, op::LOCK).map_err(text)?;
            now.locks = Some(r.fixed().map_err(text)?);
            now.held[byte] = *held;
        }
        file.has[who] = now;
        Ok(())
    }
}

fn writing(handle: &[u8], state: &State, from: usize, data: &[u8]) -> Ops {
    let mut ops = Ops::new().fh(handle);
    let out = ops.begin(op::WRITE).fixed(state).u64(from as u64);
    // FILE_SYNC4.
    out.u32(2).opaque(data);
    ops
}

fn expect(what: &str, status: u32, expected: u32) -> CheckResult {
    match status == expected {
        true => Ok(()),
        false => Err(format!("{what}: {status} in place of {expected}")),
    }
}

/// Random requests of several clients, with power failures.
///
/// # Errors
/// What a client had to itself and another got too; what was refused for no reason; what was lost.
pub fn story(seed: u64) -> CheckResult {
    let choices = Choices::new(seed);
    let sizes = Sizes {
        background: true,
        ..Sizes::small()
    };
    let mut machine = Machine::new(sizes, &choices)?;
    let mut clients: Vec<Client> = (0..CLIENTS as u64).map(Client::new).collect();
    let mut files: Vec<File> = Vec::new();
    for life in 0..=choices.between(1, 3) {
        let named = |what: String| format!("life {life}: {what}");
        let running = machine.boot().map_err(named)?;
        let mut story = Story::start(&machine, &running)?;
        if files.is_empty() {
            let root = story.server.root();
            for number in 0..FILES as u8 {
                files.push(File {
                    handle: story.server.make(
                        &root,
                        &[b'a' + number],
                        SIZE as u64,
                        machine.current_time(),
                    )?,
                    contents: vec![[0; SIZE]],
                    has: Default::default(),
                });
            }
            // The machine's own record is of no client that would come back.
            story.pass(&mut [], 2).map_err(named)?;
            for client in &mut clients {
                client.begin(&story.server, &machine).map_err(named)?;
                let mut ops = Ops::new();
                ops.begin(op::RECLAIM_COMPLETE).bool(false);
                client.send(&story.server, &machine, &ops).map_err(named)?;
            }
            let durable = running.engine.wait_durable(None);
            durable.map_err(|e| named(e.to_string()))?;
        } else {
            story
                .reclaim(&choices, &mut clients, &mut files)
                .map_err(|what| named(format!("restart: {what}")))?;
        }
        let events = machine.world.counts().events;
        machine.world.crash_at(events + choices.between(5, 300));
        for number in 0..choices.between(20, 200) {
            let step = story.step(&choices, &mut clients, &mut files);
            if machine.world.crashed() {
                break;
            }
            if let Step::Lost = step.map_err(|what| named(format!("step {number}: {what}")))? {
                break;
            }
            if choices.chance(1, 40) {
                let _ = running.engine.cp_now();
            }
        }
        drop(story);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine.check().map_err(named)?;
    }
    Ok(())
}
