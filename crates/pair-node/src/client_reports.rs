//! Reports of clients' connections to the standby ([`super::clients`]).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::clients::{ConnectionReport, Ends};
use super::pair::Pair;
use super::service::ServiceParts;

/// Interval between checks for connections that have ended.
const EVERY: Duration = Duration::from_millis(200);
/// Minimum time between two checks.
const GAP: Duration = Duration::from_millis(5);

/// Reports connections, for as long as the process runs.
pub async fn report(pair: &Arc<Pair>) {
    if pair.service.addresses().is_empty() {
        return;
    }
    let mut reported = ConnectionReport::default();
    loop {
        let Some(ServiceParts { connections, .. }) = pair.service.serving() else {
            tokio::time::sleep(EVERY).await;
            continue;
        };
        tokio::time::sleep(GAP).await;
        // One that has begun meanwhile has left its permit here.
        let _ = tokio::time::timeout(EVERY, connections.begun()).await;
        let mut inner = pair.inner.lock();
        let serving = inner.rules.serving() && !inner.rules.stopping();
        let Some(link) = inner.partner.link_mut().filter(|_| serving) else {
            continue;
        };
        // A check does not add to what the link has not sent yet.
        if link.queued() > 0 {
            connections.wake();
            continue;
        }
        let fresh = reported.link != link.number;
        if fresh {
            reported = ConnectionReport::new(link.number);
        }
        let moving = |(local, _): &Ends| pair.service.addresses().has_address(local.ip());
        let changed = connections.since(reported.version, &moving);
        let now = changed.map(|(version, ends)| {
            reported.version = version;
            ends.into_iter().collect::<HashSet<_>>()
        });
        let messages = match now {
            Some(now) => reported.messages(fresh, &now),
            None if fresh => reported.messages(true, &HashSet::new()),
            None => continue,
        };
        if !messages.is_empty() {
            messages.iter().for_each(|message| link.say(message));
            pair.send.notify_one();
        }
    }
}
