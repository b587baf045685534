//! Locks and atomics of the places whose orders of events `make model` tries out, and the number of
//! a thread by which such places spread their callers.
//!
//! They are parking_lot's and the standard library's. A build with `--cfg model` has those of loom
//! instead, which runs a test once for every order that the memory model allows (`model`). Only
//! places without I/O and with a few threads can be tried out so.

#[cfg(not(model))]
mod real {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub use parking_lot::{Mutex, RwLock, RwLockReadGuard};
    pub use std::sync::atomic;

    /// Returns a number of the calling thread. Threads get theirs in turn, from 0 on, so that few
    /// share one after a division.
    #[inline]
    pub fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        // During a thread's end its locals are gone; any number will do.
        NUMBER
            .try_with(|number| {
                if number.get() == usize::MAX {
                    number.set(NEXT.fetch_add(1, Ordering::Relaxed));
                }
                number.get()
            })
            .unwrap_or(0)
    }
}

#[cfg(not(model))]
pub use real::*;

#[cfg(model)]
mod modelled {
    use std::cell::Cell;
    use std::sync::PoisonError;

    pub use loom::model;
    pub use loom::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use loom::thread;

    /// A lock of loom that is used as parking_lot's.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Creates an open lock.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock and takes it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A reader-writer lock of loom that is used as parking_lot's.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Creates an open lock.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }

        /// Waits for the lock and takes it shared.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits for the lock and takes it exclusively.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(0);
    }

    /// Returns the number that the thread was given, else 0.
    pub fn thread_number() -> usize {
        NUMBER.with(Cell::get)
    }

    /// Gives the calling thread a number: the same in every run of a test.
    pub fn set_thread_number(number: usize) {
        NUMBER.with(|own| own.set(number));
    }
}

#[cfg(model)]
pub use modelled::*;
