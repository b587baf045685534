//! Objects of a pool through Ceph's client library.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::sync::Arc;

use serde_json::json;
use weir_base::limits::rados::ATTRIBUTE_BYTES;

use crate::cluster::Cluster;
use crate::library::{FULL_TRY, Handle, Library, c_string, check};
use crate::objects::{Comparison, Done, Holder, Objects, PoolSpace, Step};
use crate::window::Window;

/// Bytes of the lists that the library fills with a lock's holders.
const HOLDERS_BYTES: usize = 4096;

/// Maximum number of operations and of their bytes in flight of a pool. Others wait. The library
/// blocks a caller beyond its own bounds, so the bounds of a cluster's pools must stay below these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Operations.
    pub operations: usize,
    /// Bytes.
    pub bytes: usize,
}

/// An operation that has not begun.
enum Request {
    Read {
        object: CString,
        offset: u64,
        length: usize,
        done: Done<Vec<u8>>,
    },
    Operate {
        object: CString,
        steps: Vec<Step>,
        done: Done<()>,
    },
}

/// Buffers of an operation in flight.
enum Flight {
    Read {
        buffer: Vec<u8>,
        done: Done<Vec<u8>>,
    },
    Operate {
        operation: Handle,
        done: Done<()>,
    },
}

/// Arguments of a call of the library, which lead into a [`Flight`].
enum Call {
    Read {
        into: *mut c_char,
        offset: u64,
        length: usize,
    },
    Operate(Handle),
}

/// Argument of a completion's callback.
struct Context {
    shared: Arc<CallbackState>,
    /// Bytes counted in the window.
    bytes: usize,
    /// `None` once the result is reported.
    flight: Option<Flight>,
}

/// State that callbacks use. Outlives the pool by the end of its last callback at most.
struct CallbackState {
    library: &'static Library,
    context: Handle,
    window: Window<Request>,
}

// SAFETY: a `rados_ioctx_t` may be used by several threads at once if its settings stay as they
// are, and nobody changes them after `Cluster::pool`.
unsafe impl Send for CallbackState {}
// SAFETY: as above.
unsafe impl Sync for CallbackState {}

/// Objects of a pool in one namespace.
pub struct Pool {
    shared: Arc<CallbackState>,
    /// Dropped last: the context is of this connection.
    cluster: Arc<Cluster>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.window.wait_idle();
        // SAFETY: nothing is in flight, and no call can come any more.
        unsafe { (self.shared.library.ioctx_destroy)(self.shared.context) };
    }
}

/// Completes an operation. `argument` is a leaked [`Context`].
unsafe extern "C" fn complete(completion: Handle, argument: *mut c_void) {
    // SAFETY: `CallbackState::begin` leaked it for this one call.
    let context = unsafe { Box::from_raw(argument.cast::<Context>()) };
    let library = context.shared.library;
    // SAFETY: the completion is complete, and released once.
    let result = unsafe {
        let result = (library.aio_get_return_value)(completion);
        (library.aio_release)(completion);
        result
    };
    context.report(result);
}

impl Context {
    /// Hands out the result of the operation, then begins those that waited for its end.
    fn report(mut self, result: c_int) {
        let library = self.shared.library;
        match self.flight.take() {
            Some(Flight::Read { mut buffer, done }) => done(check(result).map(|read| {
                // SAFETY: the library filled so many bytes, of at most the capacity.
                unsafe { buffer.set_len(read.min(buffer.capacity())) };
                buffer
            })),
            Some(Flight::Operate { operation, done }) => {
                // SAFETY: the operation is complete, and released once.
                unsafe { (library.release_write_op)(operation) };
                done(check(result).map(|_| ()));
            }
            None => {}
        }
        self.shared.ended(self.bytes);
    }
}

fn text(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

impl CallbackState {
    fn submit(self: &Arc<Self>, request: Request, bytes: usize) {
        if let Some(request) = self.window.begin(request, bytes) {
            self.begin(request, bytes);
        }
    }

    /// Begins an operation that the window has counted.
    fn begin(self: &Arc<Self>, request: Request, bytes: usize) {
        let (object, call, flight) = match request {
            Request::Read {
                object,
                offset,
                length,
                done,
            } => {
                let mut buffer = Vec::<u8>::with_capacity(length);
                let into = buffer.as_mut_ptr().cast();
                let call = Call::Read {
                    into,
                    offset,
                    length,
                };
                (object, call, Flight::Read { buffer, done })
            }
            Request::Operate {
                object,
                steps,
                done,
            } => match self.build(&steps) {
                Ok(operation) => {
                    let flight = Flight::Operate { operation, done };
                    (object, Call::Operate(operation), flight)
                }
                Err(error) => {
                    done(Err(error));
                    return self.ended(bytes);
                }
            },
        };
        let context = Box::into_raw(Box::new(Context {
            shared: Arc::clone(self),
            bytes,
            flight: Some(flight),
        }));
        let mut completion = std::ptr::null_mut();
        // SAFETY: the callback takes the context back, once.
        let made = unsafe {
            (self.library.aio_create_completion2)(
                context.cast(),
                Some(complete),
                &raw mut completion,
            )
        };
        if made < 0 {
            // SAFETY: no callback will come.
            return unsafe { Box::from_raw(context) }.report(made);
        }
        let begun = self.call(&object, call, completion);
        if begun < 0 {
            // SAFETY: the operation has not begun, so no callback will come.
            unsafe {
                (self.library.aio_release)(completion);
                Box::from_raw(context).report(begun);
            }
        }
    }

    /// Calls the library for an operation whose buffers are kept until `completion` is complete,
    /// which may be before this returns.
    fn call(&self, object: &CString, call: Call, completion: Handle) -> c_int {
        let (library, context, object) = (self.library, self.context, object.as_ptr());
        match call {
            Call::Read {
                into,
                offset,
                length,
            } => {
                // SAFETY: the buffer has room for so many bytes; the object's name is copied.
                unsafe { (library.aio_read)(context, object, completion, into, length, offset) }
            }
            Call::Operate(operation) => {
                let now = std::ptr::null_mut();
                // SAFETY: the operation is built; the object's name is copied.
                unsafe {
                    (library.aio_write_op_operate)(
                        operation, context, completion, object, now, FULL_TRY,
                    )
                }
            }
        }
    }

    fn ended(self: &Arc<Self>, bytes: usize) {
        for (request, bytes) in self.window.end(bytes) {
            self.begin(request, bytes);
        }
    }

    /// Makes the library's form of an operation. The library copies all bytes.
    fn build(&self, steps: &[Step]) -> io::Result<Handle> {
        let names: io::Result<Vec<CString>> = steps
            .iter()
            .map(|step| match step {
                Step::Compare { attribute, .. } | Step::Set { attribute, .. } => {
                    c_string(attribute)
                }
                _ => Ok(CString::default()),
            })
            .collect();
        let names = names?;
        let library = self.library;
        // SAFETY: takes nothing.
        let operation = unsafe { (library.create_write_op)() };
        if operation.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        for (step, name) in steps.iter().zip(&names) {
            let name = name.as_ptr();
            // SAFETY: the operation is new, and all pointers outlive the calls, which copy.
            unsafe {
                match step {
                    Step::Create { exclusive } => (library.write_op_create)(
                        operation,
                        c_int::from(*exclusive),
                        std::ptr::null(),
                    ),
                    Step::Compare {
                        comparison, value, ..
                    } => {
                        let comparison = match comparison {
                            Comparison::Equal => 1,
                            Comparison::GreaterOrEqual => 4,
                        };
                        (library.write_op_cmpxattr)(
                            operation,
                            name,
                            comparison,
                            text(value),
                            value.len(),
                        );
                    }
                    Step::Set { value, .. } => {
                        (library.write_op_setxattr)(operation, name, text(value), value.len());
                    }
                    Step::Write { offset, bytes } => {
                        (library.write_op_write)(operation, text(bytes), bytes.len(), *offset);
                    }
                    Step::Replace(bytes) => {
                        (library.write_op_write_full)(operation, text(bytes), bytes.len());
                    }
                    Step::Remove => (library.write_op_remove)(operation),
                }
            }
        }
        Ok(operation)
    }
}

impl Pool {
    pub(crate) fn new(cluster: Arc<Cluster>, context: Handle, bounds: Bounds) -> Pool {
        Pool {
            shared: Arc::new(CallbackState {
                library: cluster.library(),
                context,
                window: Window::new(bounds),
            }),
            cluster,
        }
    }

    fn library(&self) -> &'static Library {
        self.shared.library
    }

    /// Returns the pool's number.
    fn number(&self) -> i64 {
        // SAFETY: the context is open.
        unsafe { (self.library().ioctx_get_id)(self.shared.context) }
    }
}

impl Objects for Pool {
    fn read(&self, object: &str, offset: u64, length: usize, done: Done<Vec<u8>>) {
        match c_string(object) {
            Ok(object) => {
                let request = Request::Read {
                    object,
                    offset,
                    length,
                    done,
                };
                self.shared.submit(request, length);
            }
            Err(error) => done(Err(error)),
        }
    }

    fn operate(&self, object: &str, steps: Vec<Step>, done: Done<()>) {
        let bytes = steps.iter().map(Step::bytes).sum();
        match c_string(object) {
            Ok(object) => {
                let request = Request::Operate {
                    object,
                    steps,
                    done,
                };
                self.shared.submit(request, bytes);
            }
            Err(error) => done(Err(error)),
        }
    }

    fn attribute(&self, object: &str, name: &str) -> io::Result<Option<Vec<u8>>> {
        let (object, name) = (c_string(object)?, c_string(name)?);
        let mut value = vec![0; ATTRIBUTE_BYTES];
        // SAFETY: the strings and the buffer of so many bytes outlive the call.
        let read = unsafe {
            (self.library().getxattr)(
                self.shared.context,
                object.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        match check(read) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(value))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODATA)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn lock(&self, object: &str, name: &str, cookie: &str, description: &str) -> io::Result<()> {
        let (object, name) = (c_string(object)?, c_string(name)?);
        let (cookie, description) = (c_string(cookie)?, c_string(description)?);
        // SAFETY: the strings outlive the call; without a duration the lock does not expire.
        let taken = unsafe {
            (self.library().lock_exclusive)(
                self.shared.context,
                object.as_ptr(),
                name.as_ptr(),
                cookie.as_ptr(),
                description.as_ptr(),
                std::ptr::null_mut(),
                0,
            )
        };
        check(taken).map(|_| ())
    }

    fn unlock(&self, object: &str, name: &str, cookie: &str) -> io::Result<()> {
        let (object, name, cookie) = (c_string(object)?, c_string(name)?, c_string(cookie)?);
        // SAFETY: the strings outlive the call.
        let freed = unsafe {
            (self.library().unlock)(
                self.shared.context,
                object.as_ptr(),
                name.as_ptr(),
                cookie.as_ptr(),
            )
        };
        check(freed).map(|_| ())
    }

    fn holders(&self, object: &str, name: &str) -> io::Result<Vec<Holder>> {
        let (object, name) = (c_string(object)?, c_string(name)?);
        let mut exclusive = 0;
        let mut lists = [(); 4].map(|()| vec![0u8; HOLDERS_BYTES]);
        let mut lengths = [HOLDERS_BYTES; 4];
        let [tag, clients, cookies, addresses] =
            lists.each_mut().map(|list| list.as_mut_ptr().cast());
        let [tag_bytes, clients_bytes, cookies_bytes, addresses_bytes] =
            lengths.each_mut().map(std::ptr::from_mut);
        // SAFETY: each list has the length that is given with it, and all outlive the call.
        let count = unsafe {
            (self.library().list_lockers)(
                self.shared.context,
                object.as_ptr(),
                name.as_ptr(),
                &raw mut exclusive,
                tag,
                tag_bytes,
                clients,
                clients_bytes,
                cookies,
                cookies_bytes,
                addresses,
                addresses_bytes,
            )
        };
        let count = match check(c_int::try_from(count).unwrap_or(c_int::MAX)) {
            Ok(count) => count,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // Each list has a string for each holder, with a NUL behind.
        let words = |list: &[u8]| -> Vec<String> {
            let words = list.split(|byte| *byte == 0).take(count);
            words
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect()
        };
        let [_, clients, cookies, addresses] = &lists;
        let (cookies, addresses) = (words(cookies), words(addresses));
        let holders = words(clients).into_iter().zip(cookies).zip(addresses);
        Ok(holders
            .map(|((client, cookie), address)| Holder {
                client,
                cookie,
                address,
            })
            .collect())
    }

    fn break_lock(&self, object: &str, name: &str, holder: &Holder) -> io::Result<()> {
        let (object, name) = (c_string(object)?, c_string(name)?);
        let (client, cookie) = (c_string(&holder.client)?, c_string(&holder.cookie)?);
        // SAFETY: the strings outlive the call.
        let broken = unsafe {
            (self.library().break_lock)(
                self.shared.context,
                object.as_ptr(),
                name.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        };
        match check(broken) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    fn fence(&self, address: &str) -> io::Result<()> {
        self.cluster.blocklist(address)
    }

    fn update_map(&self) -> io::Result<()> {
        self.cluster.update_map()
    }

    fn space(&self) -> io::Result<PoolSpace> {
        let answer = self
            .cluster
            .send_mon_command(&json!({"prefix": "df", "detail": "detail", "format": "json"}))?;
        let number = self.number();
        let pools = answer.get("pools").and_then(|pools| pools.as_array());
        let mut pools = pools.into_iter().flatten();
        let pool =
            pools.find(|pool| pool.get("id").and_then(serde_json::Value::as_i64) == Some(number));
        let stats = pool.and_then(|pool| pool.get("stats"));
        let field = |name| {
            stats
                .and_then(|s| s.get(name))
                .and_then(serde_json::Value::as_u64)
        };
        match (field("stored"), field("max_avail")) {
            (Some(used), Some(available)) => {
                let quota = field("quota_bytes").filter(|quota| *quota > 0);
                // Saturates: a pool may be beyond its quota.
                let within = quota.map_or(u64::MAX, |quota| quota.saturating_sub(used));
                Ok(PoolSpace {
                    used,
                    available: available.min(within),
                })
            }
            _ => Err(io::Error::other(
                "the cluster has no statistics of the pool (is a manager daemon running?)",
            )),
        }
    }
}
