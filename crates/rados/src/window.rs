//! Admission of operations: at most so many operations and bytes are in flight, and the others wait
//! in order.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::pool::Bounds;

struct State<T> {
    operations: usize,
    bytes: usize,
    waiting: VecDeque<(T, usize)>,
}

/// Counts operations in flight, and queues those beyond the bounds.
pub struct Window<T> {
    bounds: Bounds,
    state: Mutex<State<T>>,
    /// Notified when nothing is in flight or waits any more.
    idle: Condvar,
}

impl<T> Window<T> {
    pub fn new(bounds: Bounds) -> Window<T> {
        Window {
            bounds,
            state: Mutex::new(State {
                operations: 0,
                bytes: 0,
                waiting: VecDeque::new(),
            }),
            idle: Condvar::new(),
        }
    }

    fn admits(&self, state: &State<T>, bytes: usize) -> bool {
        let fits = state.operations < self.bounds.operations
            && state.bytes.saturating_add(bytes) <= self.bounds.bytes;
        // What is larger than the bound goes alone.
        fits || state.operations == 0
    }

    /// Returns the operation if it may begin, and counts it. Queues it otherwise.
    pub fn begin(&self, operation: T, bytes: usize) -> Option<T> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && self.admits(&state, bytes) {
            state.operations += 1;
            state.bytes += bytes;
            return Some(operation);
        }
        state.waiting.push_back((operation, bytes));
        None
    }

    /// Ends an operation of `bytes` bytes, and returns those that may begin now with their bytes.
    /// They are counted.
    pub fn end(&self, bytes: usize) -> Vec<(T, usize)> {
        let mut state = self.state.lock();
        // Saturates: both were added at the beginning.
        state.operations = state.operations.saturating_sub(1);
        state.bytes = state.bytes.saturating_sub(bytes);
        let mut next = Vec::new();
        while let Some((_, bytes)) = state.waiting.front() {
            let bytes = *bytes;
            if !self.admits(&state, bytes) {
                break;
            }
            state.operations += 1;
            state.bytes += bytes;
            next.extend(state.waiting.pop_front());
        }
        if state.operations == 0 {
            self.idle.notify_all();
        }
        next
    }

    /// Blocks until nothing is in flight.
    pub fn wait_idle(&self) {
        let mut state = self.state.lock();
        while state.operations > 0 {
            self.idle.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_beyond_the_bounds_wait_in_order() {
        let window = Window::new(Bounds {
            operations: 2,
            bytes: 100,
        });
        assert_eq!(window.begin('a', 60), Some('a'));
        assert_eq!(window.begin('b', 60), None, "too many bytes");
        assert_eq!(window.begin('c', 1), None, "others wait before it");
        assert_eq!(window.begin('d', 1), None);
        assert_eq!(window.end(60), [('b', 60), ('c', 1)], "two at a time");
        assert_eq!(window.end(1), [('d', 1)]);
        assert!(window.end(60).is_empty());
        assert!(window.end(1).is_empty());
        window.wait_idle();
        assert_eq!(window.begin('e', 1000), Some('e'), "it goes alone");
        assert_eq!(window.begin('f', 0), None);
        assert_eq!(window.end(1000), [('f', 0)]);
    }
}
