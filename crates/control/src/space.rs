//! Usage of volumes and snapshots, as reported by the node. A volume's usage is requested each time
//! at a constant cost; that of snapshots at most once a second for each volume.

use crate::jobs::JobContext;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use weir_base::Clock;

/// Lifetime of the sizes returned by the engine.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum number of volumes whose snapshots are cached.
const PARENTS: usize = 64;

type Sizes = Arc<HashMap<String, u64>>;

pub(crate) struct Usage {
    clock: Arc<dyn Clock>,
    snapshots: Mutex<HashMap<String, (Duration, Sizes)>>,
}

impl Usage {
    pub fn new(clock: Arc<dyn Clock>) -> Usage {
        Usage {
            clock,
            snapshots: Mutex::default(),
        }
    }

    fn fresh(&self, at: Duration) -> bool {
        self.clock.monotonic().saturating_sub(at) < FRESH
    }

    /// Returns the bytes of each engine volume's data; 0 if the node cannot report it.
    pub async fn volumes(&self, context: &JobContext, keys: Vec<Arc<str>>) -> Vec<u64> {
        let nothing = vec![0; keys.len()];
        let asked = context.ask_promptly(move |node| {
            let used = |key: &Arc<str>| node.volume(key).map_or(0, |state| state.used);
            Ok(keys.iter().map(used).collect())
        });
        asked.await.unwrap_or(nothing)
    }

    /// Returns the bytes held only by a snapshot; 0 if the node cannot report it.
    pub async fn snapshot(&self, context: &JobContext, key: &str, name: &str) -> u64 {
        let known = self.snapshots.lock().get(key).cloned();
        if let Some((_, sizes)) = known.filter(|(at, _)| self.fresh(*at)) {
            return sizes.get(name).copied().unwrap_or(0);
        }
        let of = key.to_owned();
        let all = context.call_node(move |node| node.snapshots(&of)).await;
        let each = all.unwrap_or_default().into_iter();
        let sizes: Sizes = Arc::new(each.map(|s| (s.name, s.used)).collect());
        let mut kept = self.snapshots.lock();
        if kept.len() >= PARENTS {
            kept.clear();
        }
        kept.insert(key.to_owned(), (self.clock.monotonic(), Arc::clone(&sizes)));
        sizes.get(name).copied().unwrap_or(0)
    }
}
