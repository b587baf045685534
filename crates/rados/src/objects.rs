//! The interface of an object store that has what RADOS has.

use std::io;

/// Receives the result of an operation, on a thread of the object store: it must not block.
pub type Done<T> = Box<dyn FnOnce(io::Result<T>) + Send>;

/// Comparison of a value with an object's attribute, the value first: `Greater` holds if the value
/// is greater than the attribute. Bytes are compared in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The value equals the attribute.
    Equal,
    /// The value is greater than the attribute, or equal to it.
    GreaterOrEqual,
}

/// A step of an operation on one object. Either all steps of an operation happen or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Creates the object. If it exists, the operation fails with `EEXIST` if `exclusive`, else the
    /// step does nothing.
    Create {
        /// True if the object must not exist.
        exclusive: bool,
    },
    /// Fails the operation with `ECANCELED` unless the comparison holds, and with `ENOENT` if there
    /// was no object before the operation. A missing attribute is empty.
    Compare {
        /// Name of the attribute.
        attribute: &'static str,
        /// The comparison.
        comparison: Comparison,
        /// The value to compare with.
        value: Vec<u8>,
    },
    /// Sets an attribute.
    Set {
        /// Name of the attribute.
        attribute: &'static str,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Writes bytes from an offset on, and creates the object if it is missing.
    Write {
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Replaces the object's contents; attributes stay.
    Replace(Vec<u8>),
    /// Removes the object.
    Remove,
}

impl Step {
    /// Returns the number of bytes that the step transfers.
    pub fn bytes(&self) -> usize {
        match self {
            Step::Write { bytes, .. } | Step::Replace(bytes) => bytes.len(),
            Step::Set { value, .. } | Step::Compare { value, .. } => value.len(),
            Step::Create { .. } | Step::Remove => 0,
        }
    }
}

/// Holder of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The client, as the cluster names it.
    pub client: String,
    /// The cookie that the client gave.
    pub cookie: String,
    /// The client's address, which [`Objects::fence`] takes.
    pub address: String,
}

/// Space of a pool, in bytes that its users may store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSpace {
    /// Bytes in use by all users of the pool.
    pub used: u64,
    /// Bytes that can still be stored, within the pool's quota.
    pub available: u64,
}

/// Objects of a pool in one namespace, as one client of the cluster.
///
/// A client that was [fenced](Objects::fence) gets `ESHUTDOWN` for everything. Errors have the
/// operating system's code ([`io::Error::raw_os_error`]).
pub trait Objects: Send + Sync {
    /// Reads up to `length` bytes from `offset` on: fewer at the object's end, and `ENOENT` if
    /// there is no object. Does not block.
    fn read(&self, object: &str, offset: u64, length: usize, done: Done<Vec<u8>>);

    /// Carries an operation out. `ENOSPC` or `EDQUOT` if the pool is full. Does not block.
    fn operate(&self, object: &str, steps: Vec<Step>, done: Done<()>);

    /// Reads an attribute; `None` if the object or the attribute is missing. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    fn attribute(&self, object: &str, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Takes the exclusive lock `name` of an object, which is created if it is missing. Blocks.
    ///
    /// # Errors
    /// `EBUSY` if another client holds it; those of the cluster.
    fn lock(&self, object: &str, name: &str, cookie: &str, description: &str) -> io::Result<()>;

    /// Releases a lock of this client's. Blocks.
    ///
    /// # Errors
    /// `ENOENT` if this client does not hold it; those of the cluster.
    fn unlock(&self, object: &str, name: &str, cookie: &str) -> io::Result<()>;

    /// Returns the holders of a lock. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    fn holders(&self, object: &str, name: &str) -> io::Result<Vec<Holder>>;

    /// Takes a lock away from its holder; does nothing if that does not hold it any more. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    fn break_lock(&self, object: &str, name: &str, holder: &Holder) -> io::Result<()>;

    /// Shuts a client out for good, by its address. On return none of its operations succeeds any
    /// more on an object that this client has used since. Blocks, for a second and more.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` if this client may not; those of the cluster.
    fn fence(&self, address: &str) -> io::Result<()>;

    /// Gets the cluster's newest map, as all operations of this client need it that are sent after
    /// the return: an object's OSD then refuses each client that was [fenced](Objects::fence)
    /// before the call. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    fn update_map(&self) -> io::Result<()>;

    /// Returns the pool's space, as the cluster counted it some seconds ago. Blocks.
    ///
    /// # Errors
    /// Those of the cluster.
    fn space(&self) -> io::Result<PoolSpace>;

    /// Carries an operation out and blocks until it is complete.
    ///
    /// # Errors
    /// As [`Objects::operate`].
    fn operate_wait(&self, object: &str, steps: Vec<Step>) -> io::Result<()> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let done = move |result| drop(tell.send(result));
        self.operate(object, steps, Box::new(done));
        told.recv().map_err(io::Error::other)?
    }

    /// Reads up to `length` bytes from an object's beginning, and blocks until that is complete.
    ///
    /// # Errors
    /// As [`Objects::read`].
    fn read_wait(&self, object: &str, length: usize) -> io::Result<Vec<u8>> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let done = move |result| drop(tell.send(result));
        self.read(object, 0, length, Box::new(done));
        told.recv().map_err(io::Error::other)?
    }
}
