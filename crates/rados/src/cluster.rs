//! A connection to a cluster.

use std::ffi::{CString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use weir_base::limits::rados::{BLOCKLIST_SECONDS, MONITOR_SECONDS};

use crate::library::{Handle, Library, c_string, check, library};
use crate::pool::{Bounds, Pool};

/// Settings of a connection.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ceph's configuration file; `None`: the one of `CEPH_CONF`, or `/etc/ceph/ceph.conf`.
    pub conf: Option<PathBuf>,
    /// The user's keyring; `None`: as the configuration says.
    pub keyring: Option<PathBuf>,
    /// The user, such as `client.weir`; `None`: `client.admin`.
    pub user: Option<String>,
}

/// A connection to a cluster: one client, which can be fenced as a whole. Ends when dropped.
pub struct Cluster {
    library: &'static Library,
    handle: Handle,
}

// SAFETY: a `rados_t` may be used by several threads at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: no pool uses the handle any more: each holds this.
        unsafe { (self.library.shutdown)(self.handle) };
    }
}

fn add_context(error: &io::Error, what: &str) -> io::Error {
    // The code stays readable in the text; the callers of these only report it.
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

impl Cluster {
    /// Connects to the monitors. Blocks for at most [`MONITOR_SECONDS`].
    ///
    /// # Errors
    /// The library is missing, a file cannot be read, or no monitor answers or admits the user.
    pub fn connect(options: &Options) -> io::Result<Arc<Cluster>> {
        let library = library()?;
        let user = c_string(options.user.as_deref().unwrap_or("client.admin"))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the strings outlive the call; the handle is written on success.
        let made =
            unsafe { (library.create2)(&raw mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        check(made).map_err(|e| add_context(&e, "cannot create a client of Ceph"))?;
        let cluster = Cluster { library, handle };
        let conf = match &options.conf {
            Some(path) => Some(CString::new(path.as_os_str().as_bytes())?),
            None => None,
        };
        let path = conf.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        // SAFETY: the handle is not connected yet, and the path is null or outlives the call.
        let read = unsafe { (library.conf_read_file)(handle, path) };
        let place = options.conf.as_ref().map_or_else(
            || {
                "Ceph's configuration (/etc/ceph/ceph.conf, or name another with --ceph-conf)"
                    .to_owned()
            },
            |path| path.display().to_string(),
        );
        check(read).map_err(|e| add_context(&e, &format!("cannot read {place}")))?;
        let seconds = MONITOR_SECONDS.to_string();
        cluster.set("client_mount_timeout", &seconds)?;
        cluster.set("rados_mon_op_timeout", &seconds)?;
        if let Some(path) = &options.keyring {
            let path = path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            cluster.set("keyring", path)?;
        }
        // SAFETY: the handle is configured, and not connected yet.
        let connected = unsafe { (library.connect)(handle) };
        check(connected).map_err(|e| {
            add_context(
                &e,
                &format!(
                    "cannot connect to the cluster of {place} as {}",
                    user.to_string_lossy()
                ),
            )
        })?;
        Ok(Arc::new(cluster))
    }

    fn set(&self, option: &str, value: &str) -> io::Result<()> {
        let (name, text) = (c_string(option)?, c_string(value)?);
        // SAFETY: the handle is not connected yet, and the strings outlive the call.
        let set = unsafe { (self.library.conf_set)(self.handle, name.as_ptr(), text.as_ptr()) };
        check(set).map_err(|e| {
            add_context(&e, &format!("cannot set Ceph's option {option} to {value}"))
        })?;
        Ok(())
    }

    /// Opens a pool for the objects of one namespace; `bounds` are in force for this pool alone.
    ///
    /// # Errors
    /// `ENOENT` if there is no such pool; those of the cluster.
    pub fn pool(self: &Arc<Self>, name: &str, namespace: &str, bounds: Bounds) -> io::Result<Pool> {
        let (pool, namespace) = (c_string(name)?, c_string(namespace)?);
        let mut context = std::ptr::null_mut();
        // SAFETY: the handle is connected; the strings outlive the call.
        let made =
            unsafe { (self.library.ioctx_create)(self.handle, pool.as_ptr(), &raw mut context) };
        check(made)?;
        // SAFETY: nothing uses the context yet.
        unsafe { (self.library.ioctx_set_namespace)(context, namespace.as_ptr()) };
        Ok(Pool::new(Arc::clone(self), context, bounds))
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// Puts a client on the blocklist by its address, and waits until this client has the map with
    /// it.
    pub(crate) fn blocklist(&self, address: &str) -> io::Result<()> {
        let mut address = c_string(address)?.into_bytes_with_nul();
        let at = address.as_mut_ptr().cast::<c_char>();
        // SAFETY: the handle is connected; the address ends with a NUL and outlives the call.
        check(unsafe { (self.library.blocklist_add)(self.handle, at, BLOCKLIST_SECONDS) })?;
        self.update_map()
    }

    /// Waits until this client has a map at least as new as the monitors' newest one at the call.
    pub(crate) fn update_map(&self) -> io::Result<()> {
        // SAFETY: the handle is connected.
        check(unsafe { (self.library.wait_for_latest_osdmap)(self.handle) })?;
        Ok(())
    }

    /// Asks the monitors. Blocks.
    ///
    /// # Errors
    /// Those of the cluster; an answer that is not JSON.
    pub fn send_mon_command(&self, command: &Value) -> io::Result<Value> {
        let command = c_string(&command.to_string())?;
        let mut commands = [command.as_ptr()];
        let (mut out, mut out_bytes) = (std::ptr::null_mut(), 0);
        let (mut text, mut text_bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the handle is connected; all places outlive the call; there is no input.
        let asked = unsafe {
            (self.library.mon_command)(
                self.handle,
                commands.as_mut_ptr(),
                commands.len(),
                std::ptr::null(),
                0,
                &raw mut out,
                &raw mut out_bytes,
                &raw mut text,
                &raw mut text_bytes,
            )
        };
        let answer = self.take(out, out_bytes);
        self.take(text, text_bytes);
        check(asked)?;
        serde_json::from_slice(&answer).map_err(io::Error::other)
    }

    /// Copies a buffer of the library's, and frees it.
    fn take(&self, buffer: *mut c_char, bytes: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: the library filled so many bytes.
        let copy = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: the buffer is the library's, and is not used any more.
        unsafe { (self.library.buffer_free)(buffer) };
        copy
    }
}
