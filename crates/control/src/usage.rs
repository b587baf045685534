//! How much data volumes and snapshots hold, asked of the node at most once a second however many ask.

use crate::jobs::Works;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use weir_base::Clock;

/// An answer counts this long.
const FRESH: Duration = Duration::from_secs(1);
/// Volumes whose snapshots are remembered at once.
const PARENTS: usize = 64;

type Sizes = Arc<HashMap<String, u64>>;

pub(crate) struct Usage {
    clock: Arc<dyn Clock>,
    volumes: Mutex<Option<(Duration, Sizes)>>,
    snapshots: Mutex<HashMap<String, (Duration, Sizes)>>,
    /// One asks; the others wait for that answer.
    asking: tokio::sync::Mutex<()>,
}

impl Usage {
    pub fn new(clock: Arc<dyn Clock>) -> Usage {
        Usage {
            clock,
            volumes: Mutex::new(None),
            snapshots: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    fn fresh(&self, at: Duration) -> bool {
        self.clock.monotonic().saturating_sub(at) < FRESH
    }

    fn volumes_now(&self) -> Option<Sizes> {
        let kept = self.volumes.lock();
        let (at, sizes) = kept.as_ref()?;
        self.fresh(*at).then(|| Arc::clone(sizes))
    }

    /// Bytes held by the data of the engine's volume; 0 if the node cannot say.
    pub async fn volume(&self, works: &Works, key: &str) -> u64 {
        let sizes = match self.volumes_now() {
            Some(sizes) => sizes,
            None => {
                let _one = self.asking.lock().await;
                match self.volumes_now() {
                    Some(sizes) => sizes,
                    None => self.ask_volumes(works).await,
                }
            }
        };
        sizes.get(key).copied().unwrap_or(0)
    }

    async fn ask_volumes(&self, works: &Works) -> Sizes {
        let all = works.ask(|node| node.volumes()).await.unwrap_or_default();
        let sizes: Sizes = Arc::new(all.into_iter().map(|v| (v.key, v.used)).collect());
        *self.volumes.lock() = Some((self.clock.monotonic(), Arc::clone(&sizes)));
        sizes
    }

    /// Bytes held by a snapshot alone; 0 if the node cannot say.
    pub async fn snapshot(&self, works: &Works, key: &str, name: &str) -> u64 {
        let known = self.snapshots.lock().get(key).cloned();
        if let Some((_, sizes)) = known.filter(|(at, _)| self.fresh(*at)) {
            return sizes.get(name).copied().unwrap_or(0);
        }
        let of = key.to_owned();
        let all = works.ask(move |node| node.snapshots(&of)).await;
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
