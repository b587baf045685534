//! Pins that delay the reuse of freed blocks.
//!
//! A checkpoint frees blocks that earlier roots still refer to. It may be durable while a reader
//! still uses one of those roots. So each checkpoint has a [`RootPin`], which every reader of its
//! roots holds. The blocks that the *next* checkpoint frees belong to that pin, and are freed when
//! its last holder drops it.
//!
//! A block that checkpoint 7 frees can be reached from the roots of 6 and, if it is older, of 5 and
//! 4. So a pin also keeps its successor alive: the pins of 4 and 5 keep that of 6 and with it the
//! block.

use std::sync::{Arc, OnceLock};

use weir_base::{BlockAddr, Generation, invariant};

use crate::space::Space;

/// A reference to the roots of a checkpoint. Holding it keeps every block that they refer to from
/// being reallocated.
pub struct RootPin {
    generation: Generation,
    next: OnceLock<Successor>,
}

struct Successor {
    life: Arc<RootPin>,
    freed: Vec<(BlockAddr, u32)>,
    space: Arc<Space>,
}

impl RootPin {
    pub(crate) fn new(generation: Generation) -> Arc<RootPin> {
        Arc::new(RootPin {
            generation,
            next: OnceLock::new(),
        })
    }

    /// Returns the checkpoint whose roots may be read.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Notes that checkpoint `life` is durable and has freed these blocks.
    pub(crate) fn succeed(
        &self,
        life: Arc<RootPin>,
        freed: Vec<(BlockAddr, u32)>,
        space: Arc<Space>,
    ) {
        // There is one successor: checkpoints come one after the other.
        let (own, next) = (self.generation, life.generation);
        let guard = Arc::clone(space.guard());
        let first = self.next.set(Successor { life, freed, space }).is_ok();
        invariant!(guard => first && own < next, "checkpoint {next} comes after {own}");
    }
}

impl Drop for RootPin {
    fn drop(&mut self) {
        // A loop, not a recursion: a reader may have kept a long chain.
        let mut next = self.next.take();
        while let Some(Successor { life, freed, space }) = next {
            space.make_reclaimable(freed);
            next = Arc::into_inner(life).and_then(|mut life| life.next.take());
        }
    }
}

impl std::fmt::Debug for RootPin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RootPin({})", self.generation)
    }
}
