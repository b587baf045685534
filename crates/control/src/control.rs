//! The facade: reads from the view, changes through the catalog.

use crate::accept::{self, Inputs};
use crate::adopt_snapshots;
use crate::backend::{self, Backend, Facts, ThrottleState};
use crate::catalog::{AccountKey, AuditEntry, Catalog, TokenHash, TokenRecord};
use crate::jobs::JobContext;
use crate::levels::Levels;
use crate::model::{Actor, Operation, Outcome, Role, Snapshot, Volume};
use crate::mutation::Mutation;
use crate::name::{Collection, LocationName, Name, Target, VolumeName};
use crate::open_error::OpenError;
use crate::publish::{self, Effective};
use crate::rebuild::{self, Rebuilt};
use crate::recover;
use crate::refusal::{Refusal, Status};
use crate::rules::trees;
use crate::schedules::Schedules;
use crate::space::Usage;
use crate::store::{CatalogCopy, Store};
use crate::submit::{begin, closing, may_administer, may_change, operation_name};
use crate::timestamp::Stamp;
use crate::view::View;
use crate::work::Work;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use weir_base::network::AddressBlock;
use weir_base::{Clock, Rng};
use weir_relations::plan::TreePolicies;

/// Seconds between two writes of a token's last use.
const LAST_USE_SECONDS: i64 = 60;

/// Maximum number of mutations being accepted; others wait.
const SUBMISSIONS: usize = 512;
/// Time that [`Control::submit`] waits for an operation to end.
const QUICK: Duration = Duration::from_secs(5);
/// Interval of the checks for deferred work.
const TIDY: Duration = Duration::from_secs(10);

/// Options of [`Control::open`].
pub struct Options {
    /// Address of the catalog: `sqlite:///path/catalog.db` or `postgres://…`.
    pub catalog: String,
    /// Service levels and tiers in force.
    pub levels: Levels,
    /// Addresses of the server that Filestore instances get for their own; `None`: all are at the
    /// server's address, where their share names must differ.
    pub instance_addresses: Option<AddressBlock>,
    /// Node that carries out jobs.
    pub backend: Arc<dyn Backend>,
    /// Clock for timestamps and schedules.
    pub clock: Arc<dyn Clock>,
    /// Randomness, fit for tokens.
    pub rng: Arc<dyn Rng>,
    /// Bytes of the device: the capacity of the pool that the first start creates.
    pub device_bytes: u64,
    /// Copy of the catalog on another machine: a change is reported to its client only when the
    /// copy has it.
    pub copy: Option<Arc<dyn CatalogCopy>>,
    /// Place of the pool and the volume that the first start creates.
    pub first_place: LocationName,
}

/// Error of [`Control::carry_out`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotCarriedOut {
    /// The change was refused, or failed.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The operation of this name goes on.
    #[error("still running: operation {0} continues")]
    Unfinished(String),
}

impl From<Refusal> for NotCarriedOut {
    fn from(refusal: Refusal) -> NotCarriedOut {
        NotCarriedOut::Refused(refusal)
    }
}

/// The control plane. Cheap to share; everything in it is safe to call from any thread.
pub struct Control {
    pub(crate) context: Arc<JobContext>,
    usage: Usage,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    submissions: Semaphore,
    schedules: Arc<Schedules>,
    /// Seconds at which last uses of tokens were written, by the tokens' names.
    uses: parking_lot::Mutex<HashMap<String, i64>>,
    /// Background tasks, aborted at the end.
    background: parking_lot::Mutex<Vec<tokio::task::AbortHandle>>,
}

impl Control {
    /// Opens the catalog, finishes interrupted operations, reconciles the node and publishes the
    /// exports. On return the data path may begin. Needs a tokio runtime, on which background tasks
    /// continue.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is served in that case.
    pub async fn open(options: Options) -> Result<Arc<Control>, OpenError> {
        let (control, _) = Control::open_with(options, false).await?;
        Ok(control)
    }

    /// Opens the catalog like [`Control::open`], but first creates rows for engine volumes that the
    /// catalog does not know; closes it again. Returns those volumes and their pools.
    ///
    /// # Errors
    /// As [`Control::open`].
    pub async fn rebuild(options: Options) -> Result<Rebuilt, OpenError> {
        let (control, mut rebuilt) = Control::open_with(options, true).await?;
        let (view, node) = (control.view(), Arc::clone(&control.context.backend));
        let copies = rebuilt.volumes.iter_mut();
        for one in copies.filter(|one| one.copy_of.is_some()) {
            one.copy_of = Some(rebuild::origin(&view, &one.name, &node.aggregate()));
        }
        control.close().await;
        Ok(rebuilt)
    }

    /// Opens the catalog. With `rebuild`, creates rows for engine volumes that the catalog does not
    /// know, and returns them.
    pub(crate) async fn open_with(
        options: Options,
        rebuild: bool,
    ) -> Result<(Arc<Control>, Rebuilt), OpenError> {
        let Options {
            catalog,
            levels,
            instance_addresses,
            backend,
            clock,
            rng,
            device_bytes,
            first_place,
            copy,
        } = options;
        let (catalog, marked) = open_catalog(&catalog, &backend, rebuild).await?;
        let owner = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let wrong = {
            let catalog = catalog.clone();
            move |e| OpenError::from_catalog(&catalog, e)
        };
        let (store, loaded) = Store::open(
            catalog,
            levels,
            instance_addresses,
            owner,
            Arc::clone(&clock),
            copy,
        )
        .await
        .map_err(wrong)?;
        check_levels(&store.view())?;
        let published = watch::Sender::new(Effective::default());
        let context = Arc::new(JobContext::new(
            Arc::clone(&store),
            Arc::clone(&backend),
            published.subscribe(),
        ));
        let publisher = tokio::spawn(publish::run(
            Arc::downgrade(&store),
            backend,
            Arc::clone(&clock),
            store.revisions(),
            published,
        ));
        let how = recover::StartMode {
            marked,
            rebuild,
            first_place,
        };
        let rebuilt = recover::recover(&context, &loaded, &*rng, device_bytes, how).await?;
        adopt_snapshots::adopt_all(&context, &*rng).await;
        let tidying = tokio::spawn(tidy(Arc::clone(&context)));
        let schedules = Schedules::new(Arc::clone(&context), Arc::clone(&clock), Arc::clone(&rng));
        let schedules = Arc::new(schedules);
        let taking = tokio::spawn(Arc::clone(&schedules).run());
        let control = Arc::new(Control {
            usage: Usage::new(Arc::clone(&clock)),
            context,
            clock,
            rng,
            submissions: Semaphore::new(SUBMISSIONS),
            schedules,
            uses: parking_lot::Mutex::default(),
            background: parking_lot::Mutex::new(vec![
                publisher.abort_handle(),
                tidying.abort_handle(),
                taking.abort_handle(),
            ]),
        });
        Ok((control, rebuilt))
    }

    /// Returns the current intended state that is in the catalog. Never waits.
    pub fn view(&self) -> Arc<View> {
        self.context.store.view()
    }

    /// Returns what has been done since the start, and the jobs that have not ended.
    pub fn work(&self) -> Work {
        let running = self.context.lanes.running();
        self.context.store.counters.read(running)
    }

    /// Returns the catalog, for tokens and the audit log.
    pub fn catalog(&self) -> &Catalog {
        &self.context.store.catalog
    }

    /// Checks a change against the rules, writes it into the catalog, and begins it. Quick changes
    /// have ended on return ([`Operation::done`]); for the others see [`Control::wait`].
    ///
    /// # Errors
    /// A refusal has changed nothing. A change that was accepted and then failed is an operation
    /// with that outcome.
    pub async fn submit(
        &self,
        mutation: Mutation,
        actor: &Actor,
    ) -> Result<Arc<Operation>, Refusal> {
        self.accept(mutation, |_: &View| Ok(None), actor).await
    }

    /// Like [`Control::submit`], for a change that takes long: returns when it has been accepted.
    ///
    /// # Errors
    /// As [`Control::submit`].
    pub async fn submit_long(
        &self,
        mutation: Mutation,
        actor: &Actor,
    ) -> Result<Operation, Refusal> {
        self.begin(mutation, |_: &View| Ok(None), actor).await
    }

    /// Like [`Control::submit`], for a change that depends on the state of `target`, such as one
    /// more label. `make` is called with a view, and again with a newer one if another change of
    /// the target came before this one's turn. So of two such concurrent changes neither undoes the
    /// other.
    ///
    /// # Errors
    /// As [`Control::submit`], and the errors of `make`.
    pub async fn submit_made<E: From<Refusal> + Send + 'static>(
        &self,
        target: &Target,
        make: impl Fn(&View) -> Result<Mutation, E> + Send + 'static,
        actor: &Actor,
    ) -> Result<Arc<Operation>, E> {
        let view = self.view();
        let mutation = make(&view)?;
        let (target, basis) = (target.clone(), view.resource(target));
        let again = move |newer: &View| {
            let same = match (&basis, newer.resource(&target)) {
                (Some(basis), Some(now)) => basis.is(&now),
                _ => false,
            };
            match same {
                true => Ok(None),
                false => make(newer).map(Some),
            }
        };
        self.accept(mutation, again, actor).await
    }

    async fn accept<E: From<Refusal> + Send + 'static>(
        &self,
        mutation: Mutation,
        again: impl FnOnce(&View) -> Result<Option<Mutation>, E> + Send + 'static,
        actor: &Actor,
    ) -> Result<Arc<Operation>, E> {
        let operation = self.begin(mutation, again, actor).await?;
        match operation.done() {
            true => Ok(Arc::new(operation)),
            false => Ok(self.wait(&operation.name, QUICK).await?),
        }
    }

    async fn begin<E: From<Refusal> + Send + 'static>(
        &self,
        mutation: Mutation,
        again: impl FnOnce(&View) -> Result<Option<Mutation>, E> + Send + 'static,
        actor: &Actor,
    ) -> Result<Operation, E> {
        let Ok(_turn) = self.submissions.acquire().await else {
            return Err(closing().into());
        };
        let context = Arc::clone(&self.context);
        let inputs = Inputs {
            id: (self.rng.next_u64() >> 1).max(1),
            used: self.used_if_shrinking(&mutation).await,
            quiet: false,
            facts: self.context.backend.facts(),
        };
        let name = operation_name(&*self.clock, &*self.rng, &mutation);
        let actor = actor.clone();
        // A task of its own: once begun it continues even if the caller hangs up.
        let begun = tokio::spawn(begin(context, mutation, again, actor, inputs, name));
        begun.await.unwrap_or_else(|_| Err(closing().into()))
    }

    /// Returns the view that `mutation` would lead to, and changes nothing (`validateOnly`,
    /// AIP-163).
    ///
    /// The rules are those of [`Control::submit`], except the caller's role: viewers may preview.
    ///
    /// # Errors
    /// The refusal that [`Control::submit`] would return.
    pub async fn preview(&self, mutation: &Mutation, actor: &Actor) -> Result<View, Refusal> {
        self.preview_all(std::slice::from_ref(mutation), actor)
            .await
    }

    /// Returns the view that `mutations` would lead to, each made on the view behind the one before
    /// it, and changes nothing.
    ///
    /// # Errors
    /// The refusal that [`Control::submit`] would return for the first that is refused.
    pub async fn preview_all(
        &self,
        mutations: &[Mutation],
        actor: &Actor,
    ) -> Result<View, Refusal> {
        let mut inputs = Vec::with_capacity(mutations.len());
        for (id, mutation) in (1..).zip(mutations) {
            inputs.push(Inputs {
                id,
                used: self.used_if_shrinking(mutation).await,
                quiet: false,
                facts: self.context.backend.facts(),
            });
        }
        self.context.store.validate(|tx| {
            for (mutation, inputs) in mutations.iter().zip(&inputs) {
                let place = mutation.target().place().clone();
                let name = place.name(&format!("operation-0-{}", inputs.id));
                accept::apply(None, tx, mutation, actor, inputs, name)?;
            }
            Ok(tx.view.clone())
        })
    }

    /// Waits until an operation has ended, or `limit` has passed: then it is returned in its
    /// present state.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such operation.
    pub async fn wait(&self, name: &Name, limit: Duration) -> Result<Arc<Operation>, Refusal> {
        let mut revisions = self.context.store.revisions();
        let ended = async {
            loop {
                revisions.mark_unchanged();
                if self.operation(name)?.done() || revisions.changed().await.is_err() {
                    return self.operation(name);
                }
            }
        };
        match tokio::time::timeout(limit, ended).await {
            Ok(result) => result,
            Err(_) => self.operation(name),
        }
    }

    /// Submits a change and waits until it has ended, at most for `limit`. Returns the operation's
    /// warnings.
    ///
    /// # Errors
    /// The change was refused or failed, or goes on beyond `limit`.
    pub async fn carry_out(
        &self,
        mutation: Mutation,
        actor: &Actor,
        limit: Duration,
    ) -> Result<Vec<String>, NotCarriedOut> {
        let mut operation = self.submit(mutation, actor).await?;
        if !operation.done() {
            operation = self.wait(&operation.name, limit).await?;
        }
        match &operation.outcome {
            Some(Outcome::Failed(why)) => Err(why.clone().into()),
            Some(_) => Ok(operation.warnings.clone()),
            None => Err(NotCarriedOut::Unfinished(operation.full_name())),
        }
    }

    /// Returns the operation with this name.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such operation.
    pub fn operation(&self, name: &Name) -> Result<Arc<Operation>, Refusal> {
        let found = self.view().operation(name).cloned();
        found.ok_or_else(|| no_operation(name))
    }

    /// Forgets an ended operation.
    ///
    /// # Errors
    /// `NOT_FOUND`, or `OPERATION_RUNNING` if it has not ended.
    pub async fn delete_operation(&self, name: &Name, actor: &Actor) -> Result<(), Refusal> {
        may_change(actor)?;
        let ((), ticket) = self.context.store.change(|tx| {
            let found = tx.view.operation(name);
            let operation = found.ok_or_else(|| no_operation(name))?;
            if !operation.done() {
                return Err(Refusal::new(
                    Status::FailedPrecondition,
                    "OPERATION_RUNNING",
                    format!("operation {} has not ended", name.id),
                ));
            }
            tx.remove_operation(name);
            let full = name.full(Collection::Operations);
            tx.audit(actor, "delete", full, "done");
            Ok(())
        })?;
        ticket.committed().await.map(|_| ())
    }

    /// Returns the actor with this token. Reads the catalog each time, since another process may
    /// have changed it.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN` if no actor has it, or if it was revoked; `TOKEN_EXPIRED`.
    pub async fn authenticate(&self, token: &str, from: Option<IpAddr>) -> Result<Actor, Refusal> {
        let record = self
            .catalog()
            .token(token, self.clock.current_time().into())
            .await?;
        Ok(self.used(record, from))
    }

    /// Returns the actor with the token of this hash.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN` if no actor has it, or if it was revoked; `TOKEN_EXPIRED`.
    pub async fn authenticate_by(
        &self,
        token: &TokenHash,
        from: Option<IpAddr>,
    ) -> Result<Actor, Refusal> {
        let now = self.clock.current_time().into();
        let record = self.catalog().token_by(token, now).await?;
        Ok(self.used(record, from))
    }

    /// Returns the actor of a service account, if `signed` says that the account's key has signed
    /// what the caller shows.
    ///
    /// # Errors
    /// `TOKEN_UNKNOWN` if there is no such account, or if it was revoked; `TOKEN_EXPIRED`; what
    /// `signed` returns.
    pub async fn authenticate_account<E: From<Refusal>>(
        &self,
        name: &str,
        from: Option<IpAddr>,
        signed: impl FnOnce(&AccountKey) -> Result<(), E>,
    ) -> Result<Actor, E> {
        let now = self.clock.current_time().into();
        let (record, key) = self.catalog().account(name, now).await?;
        signed(&key)?;
        Ok(self.used(record, from))
    }

    /// Returns the actor of a token, and records its use once a minute, beside the request.
    fn used(&self, record: TokenRecord, from: Option<IpAddr>) -> Actor {
        let now: Stamp = self.clock.current_time().into();
        let recent = |at: i64| (0..LAST_USE_SECONDS).contains(&now.secs().saturating_sub(at));
        let noted = record.used.is_some_and(|used| recent(used.secs()));
        if !noted && self.context.store.running().is_ok() {
            let mut uses = self.uses.lock();
            let before = uses.insert(record.name.clone(), now.secs());
            if before.is_none_or(|at| !recent(at)) {
                let (catalog, name) = (self.catalog().clone(), record.name.clone());
                tokio::spawn(async move {
                    if let Err(error) = catalog.token_used(&name, now).await {
                        tracing::debug!(%error, "the last use of a token is not noted");
                    }
                });
            }
        }
        Actor {
            name: record.name.into(),
            role: record.role,
            address: from,
        }
    }

    /// Returns the time in whole seconds since 1970, as clients know it.
    pub fn time_of_day(&self) -> i64 {
        Stamp::from(self.clock.current_time()).secs()
    }

    /// Returns the time in whole seconds since an arbitrary point. It never goes back.
    pub fn now_seconds(&self) -> i64 {
        i64::try_from(self.clock.monotonic().as_secs()).unwrap_or(i64::MAX)
    }

    /// Returns 256 random bits as text.
    pub fn random_text(&self) -> String {
        let mut bytes = [0u8; 32];
        self.rng.fill(&mut bytes);
        weir_base::hex::encode(&bytes)
    }

    /// Returns true if any token is valid (a listener that is not loopback needs one).
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub async fn has_tokens(&self) -> Result<bool, Refusal> {
        let tokens = self.tokens().await?;
        Ok(tokens.iter().any(|token| token.revoked.is_none()))
    }

    /// Creates a token that is valid until it is revoked; its secret is returned only this once.
    ///
    /// # Errors
    /// As [`Control::create_token_for`].
    pub async fn create_token(
        &self,
        name: &str,
        role: Role,
        actor: &Actor,
    ) -> Result<(TokenRecord, String), Refusal> {
        self.create_token_for(name, role, None, actor).await
    }

    /// Creates a token that is valid for `lifetime`, if given; its secret is returned only this
    /// once.
    ///
    /// # Errors
    /// As [`Catalog::create_token`], or if `actor` is not an admin.
    pub async fn create_token_for(
        &self,
        name: &str,
        role: Role,
        lifetime: Option<Duration>,
        actor: &Actor,
    ) -> Result<(TokenRecord, String), Refusal> {
        may_administer(actor)?;
        self.context.store.running()?;
        let expires = lifetime.map(|lifetime| self.later(lifetime));
        let made = self
            .catalog()
            .create_token(name, (role, expires), actor, &*self.clock, &*self.rng)
            .await;
        self.context.store.follow_audit().await;
        made
    }

    /// Creates a service account that is valid for `lifetime`, if given, and signs with the private
    /// part of `key`.
    ///
    /// # Errors
    /// `NAME_INVALID`, `NAME_TAKEN`, `KEY_TAKEN`, or if `actor` is not an admin.
    pub async fn create_account(
        &self,
        name: &str,
        role: Role,
        lifetime: Option<Duration>,
        key: AccountKey,
        actor: &Actor,
    ) -> Result<TokenRecord, Refusal> {
        may_administer(actor)?;
        self.context.store.running()?;
        let expires = lifetime.map(|lifetime| self.later(lifetime));
        let made = self
            .catalog()
            .create_account(name, (role, expires), key, actor, &*self.clock)
            .await;
        self.context.store.follow_audit().await;
        made
    }

    /// Returns the token, or with `key` the service account, that [`Control::create_token_for`] or
    /// [`Control::create_account`] would create, and creates nothing (`validateOnly`). Viewers may
    /// ask.
    ///
    /// # Errors
    /// Their refusal, but for the caller's role.
    pub async fn check_token(
        &self,
        name: &str,
        role: Role,
        lifetime: Option<Duration>,
        key: Option<AccountKey>,
        actor: &Actor,
    ) -> Result<TokenRecord, Refusal> {
        self.context.store.running()?;
        let expires = lifetime.map(|lifetime| self.later(lifetime));
        self.catalog()
            .check_token(name, (role, expires), key, actor, &*self.clock)
            .await
    }

    /// Checks that [`Control::revoke_token`] would find the token, and revokes nothing. Viewers may
    /// ask.
    ///
    /// # Errors
    /// `NOT_FOUND`, or if the catalog cannot be read.
    pub async fn check_revocation(&self, name: &str) -> Result<TokenRecord, Refusal> {
        self.context.store.running()?;
        self.catalog().named_token(name).await
    }

    /// Returns the time that is `lifetime` from now.
    fn later(&self, lifetime: Duration) -> Stamp {
        let now = Stamp::from(self.clock.current_time());
        Stamp::from_nanos(i128::from(now.0).saturating_add(lifetime.as_nanos() as i128))
    }

    /// Makes `secret` the token of an administrator, in place of earlier ones that came from
    /// outside.
    ///
    /// # Errors
    /// As [`Catalog::adopt_token`].
    pub async fn adopt_token(&self, secret: &str) -> Result<TokenRecord, Refusal> {
        let actor = Actor::local();
        let made = self
            .catalog()
            .adopt_token(secret, &actor, &*self.clock)
            .await;
        self.context.store.follow_audit().await;
        made
    }

    /// Returns all tokens, including revoked ones, by name.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, Refusal> {
        self.catalog().tokens().await
    }

    /// Revokes a token at once.
    ///
    /// # Errors
    /// As [`Catalog::revoke_token`], or if `actor` is not an admin.
    pub async fn revoke_token(&self, name: &str, actor: &Actor) -> Result<TokenRecord, Refusal> {
        may_administer(actor)?;
        self.context.store.running()?;
        let revoked = self.catalog().revoke_token(name, actor, &*self.clock).await;
        self.context.store.follow_audit().await;
        revoked
    }

    /// Writes a request that changes nothing in the catalog into the audit log, before it is
    /// carried out. Returns the number of its line, for [`Control::note_end`].
    ///
    /// # Errors
    /// If the catalog cannot be written, or `actor` is not an editor.
    pub async fn note(&self, actor: &Actor, verb: &str, target: String) -> Result<i64, Refusal> {
        may_change(actor)?;
        let noted = self
            .context
            .store
            .change(|tx| Ok(tx.audit(actor, verb, target, "started")))?;
        let (line, ticket) = noted;
        ticket.committed().await?;
        Ok(line)
    }

    /// Writes the outcome of a request into its line of the audit log.
    ///
    /// # Errors
    /// If the catalog cannot be written.
    pub async fn note_end(&self, line: i64, words: String) -> Result<(), Refusal> {
        let ((), ticket) = self.context.store.change(|tx| {
            tx.outcome(line, words);
            Ok(())
        })?;
        ticket.committed().await.map(|_| ())
    }

    /// Returns the audit log, newest first, from before entry `before` on.
    ///
    /// # Errors
    /// If the catalog cannot be read, or `actor` is not an admin.
    pub async fn audit(
        &self,
        before: Option<i64>,
        limit: u32,
        actor: &Actor,
    ) -> Result<Vec<AuditEntry>, Refusal> {
        may_administer(actor)?;
        // Outcomes may still be in the queue.
        self.context.store.drained().await;
        self.catalog().audit(before, limit).await
    }

    /// Returns the updates of a volume and its pool, by their full names, that were carried out
    /// since a moment, oldest first. Every role that sees the volume sees them.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub async fn updates(
        &self,
        targets: &[String],
        since: Stamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, Refusal> {
        let at = |place: usize| targets.get(place).map_or("", String::as_str);
        // Outcomes may still be in the queue.
        self.context.store.drained().await;
        let catalog = self.catalog();
        catalog.updates([at(0), at(1)], since, limit).await
    }

    /// Returns the bytes of each volume's data.
    pub async fn volumes_used(&self, volumes: impl Iterator<Item = &Volume> + Send) -> Vec<u64> {
        let keys = volumes.map(|volume| Arc::clone(&volume.key)).collect();
        self.usage.volumes(&self.context, keys).await
    }

    /// Returns the throttling of a volume; `None` if the volume does not exist, or the node cannot
    /// report it.
    pub async fn throttled(&self, name: &VolumeName) -> Option<ThrottleState> {
        let key = self.view().volume(name)?.key.to_string();
        self.context
            .ask_promptly(move |node| node.throttled(&key))
            .await
            .ok()
    }

    /// Returns the node's physical space and settings.
    pub fn facts(&self) -> Facts {
        self.context.backend.facts()
    }

    /// Returns the bytes that only this snapshot holds, at most a second old.
    pub async fn snapshot_used(&self, snapshot: &Snapshot) -> u64 {
        let name = &snapshot.name;
        let Some(parent) = self.view().volume(&name.parent).cloned() else {
            return 0;
        };
        self.usage
            .snapshot(&self.context, &parent.key, &name.id)
            .await
    }

    /// Takes the snapshots that are due, and deletes those in excess. The server does so by itself
    /// once a minute; this returns when it is done.
    pub async fn look_at_schedules(&self) {
        Arc::clone(&self.schedules).look().await;
    }

    /// Makes the list of a volume's snapshots equal to the engine's: for callers that have created
    /// or deleted some below the catalog, as transfers do. `key` is the engine's.
    pub async fn adopt_snapshots(&self, key: &str) {
        let view = self.view();
        let mut volumes = view.volumes.values();
        if let Some(volume) = volumes.find(|volume| *volume.key == *key) {
            adopt_snapshots::adopt_volume(&self.context, &*self.rng, &volume.name).await;
        }
    }

    /// Gives the qtrees of a copy the export policies that they have in its source, and waits until
    /// these are in force. To be called before clients see what was copied. `key` is the engine's.
    ///
    /// # Errors
    /// The catalog cannot be written, there are too many, or they are not in force in time.
    pub async fn follow_trees(&self, key: &str, source: &TreePolicies) -> Result<(), Refusal> {
        let view = self.view();
        let volume = view.volumes.values().find(|volume| *volume.key == *key);
        let Some(name) = volume.map(|volume| volume.name.clone()) else {
            return Ok(());
        };
        let written = self
            .context
            .store
            .commit_with_retry(|tx| -> Result<(), Refusal> {
                let Some(volume) = tx.view.volume(&name).cloned() else {
                    return Ok(());
                };
                let trees = trees::follow(&tx.view, &volume, source)?;
                if trees != volume.trees {
                    tx.put_volume(Volume {
                        trees,
                        ..Volume::clone(&volume)
                    });
                }
                Ok(())
            });
        let (followed, generation) = written.await?;
        followed?;
        publish::wait_for(self.context.published.clone(), generation).await
    }

    /// Refuses every change from now on, because the catalog is not where the next start expects
    /// it. The view can still be read.
    pub fn halt(&self, why: &str) {
        self.context.store.halt(why);
    }

    /// Ends the background tasks and closes the catalog. Unfinished operations continue at the next
    /// start.
    pub async fn close(&self) {
        self.submissions.close();
        for task in self.background.lock().drain(..) {
            task.abort();
        }
        self.context.store.close().await;
    }

    /// Returns the bytes of the target's data if the mutation would leave less room: only then is
    /// the node asked.
    async fn used_if_shrinking(&self, mutation: &Mutation) -> Option<u64> {
        let Mutation::UpdateVolume(name, change) = mutation else {
            return None;
        };
        let volume = self.view().volume(name).cloned()?;
        let reserve = volume.snap_reserve.unwrap_or(0.0);
        let shrinks = change.capacity_gib.is_some_and(|c| c < volume.capacity_gib)
            || change.snap_reserve.is_some_and(|r| r > reserve);
        if !shrinks {
            return None;
        }
        let key = volume.key.to_string();
        let asked = self
            .context
            .ask_promptly(move |node| node.volume(&key))
            .await;
        asked.ok().map(|state| state.used)
    }
}

/// Periodically retries deferred work.
async fn tidy(context: Arc<JobContext>) {
    loop {
        tokio::time::sleep(TIDY).await;
        recover::tidy(&context).await;
    }
}

fn no_operation(name: &Name) -> Refusal {
    let name = name.full(Collection::Operations);
    Refusal::new(
        Status::NotFound,
        "NOT_FOUND",
        format!("Resource '{name}' was not found"),
    )
}

/// Opens a catalog that may describe the node's aggregate; returns true if it is marked with it.
async fn open_catalog(
    url: &str,
    backend: &Arc<dyn Backend>,
    rebuild: bool,
) -> Result<(Catalog, bool), OpenError> {
    if !rebuild && Catalog::is_missing(url) {
        // Before a catalog is created: a copy could not be restored beside the files of an empty
        // one.
        refuse_empty(&redact_url(url), backend).await?;
    }
    let opened = Catalog::open(url).await;
    let catalog = opened.map_err(|e| OpenError::Catalog(redact_url(url), e))?;
    // Before its owner mark is written.
    match check_owner(&catalog, backend, rebuild).await {
        Ok(marked) => Ok((catalog, marked)),
        Err(refused) => {
            catalog.close().await;
            Err(refused)
        }
    }
}

/// Checks that a catalog may describe the node's aggregate; returns true if it is marked with it.
async fn check_owner(
    catalog: &Catalog,
    backend: &Arc<dyn Backend>,
    rebuild: bool,
) -> Result<bool, OpenError> {
    let marked = rebuild::belongs(catalog, &backend.aggregate()).await?;
    let settled = catalog.settled().await;
    let settled = settled.map_err(|e| OpenError::from_catalog(catalog, e))?;
    if !rebuild && !settled {
        refuse_empty(catalog.url(), backend).await?;
    }
    Ok(marked)
}

/// Refuses a catalog without rows beside a node with volumes.
async fn refuse_empty(catalog: &str, backend: &Arc<dyn Backend>) -> Result<(), OpenError> {
    let engine = backend::call(backend, false, |node| node.volumes()).await;
    let engine = engine.map_err(|e| OpenError::Backend(e.to_string()))?;
    rebuild::refuse_empty(catalog, &engine)
}

fn check_levels(view: &View) -> Result<(), OpenError> {
    for pool in view.pools.values() {
        if view.levels.pool(&pool.service_level).is_none() {
            return Err(OpenError::Level(
                format!("storage pool {}", pool.name.id),
                pool.service_level.to_string(),
            ));
        }
    }
    for volume in view.volumes.values() {
        let tier = volume.tiered().map(|tiered| &tiered.tier);
        if let Some(tier) = tier.filter(|tier| view.levels.tier(tier).is_none()) {
            return Err(OpenError::Level(
                format!("instance {}", volume.name.id),
                tier.to_string(),
            ));
        }
    }
    Ok(())
}

/// Returns a URL without its credentials.
fn redact_url(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_owned(),
    }
}
