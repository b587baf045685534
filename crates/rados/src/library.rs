//! Ceph's client library, `librados.so.2`: the functions that are used of its C interface, by hand.
//!
//! The interface has kept its version since 2012. It is loaded with dlopen(3), so that neither a
//! build nor a server without Ceph needs it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

const LIBRARY: &CStr = c"librados.so.2";

/// `rados_t`, `rados_ioctx_t`, `rados_completion_t`, `rados_write_op_t`.
pub type Handle = *mut c_void;

/// `rados_callback_t`: the completion, and the argument given with the callback.
pub type Callback = unsafe extern "C" fn(Handle, *mut c_void);

/// `LIBRADOS_OPERATION_FULL_TRY`: an error instead of a wait when the pool is full.
pub const FULL_TRY: c_int = 64;

/// Declares what is used of the library, and loads it.
macro_rules! library {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Library, String> {
                // SAFETY: the name is a C string; the library's constructors are those of a system
                // library.
                let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if library.is_null() {
                    return Err(missing());
                }
                Ok(Library { $($name: {
                    let name = CString::new(concat!("rados_", stringify!($name))).map_err(|e| e.to_string())?;
                    // SAFETY: the library is loaded and stays so; the name is a C string.
                    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                    if found.is_null() {
                        return Err(format!(
                            "cannot use {}: it has no {} (install librados2 of Ceph 16 or later)",
                            LIBRARY.to_string_lossy(), name.to_string_lossy()
                        ));
                    }
                    // SAFETY: the function of this name has this signature (<rados/librados.h> of
                    // Ceph 16.2).
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(found) }
                },)* })
            }
        }
    };
}

library! {
    create2: fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
    conf_read_file: fn(Handle, *const c_char) -> c_int;
    conf_set: fn(Handle, *const c_char, *const c_char) -> c_int;
    connect: fn(Handle) -> c_int;
    shutdown: fn(Handle);
    mon_command: fn(Handle, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize) -> c_int;
    buffer_free: fn(*mut c_char);
    blocklist_add: fn(Handle, *mut c_char, u32) -> c_int;
    wait_for_latest_osdmap: fn(Handle) -> c_int;
    ioctx_create: fn(Handle, *const c_char, *mut Handle) -> c_int;
    ioctx_destroy: fn(Handle);
    ioctx_set_namespace: fn(Handle, *const c_char);
    ioctx_get_id: fn(Handle) -> i64;
    getxattr: fn(Handle, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    lock_exclusive: fn(Handle, *const c_char, *const c_char, *const c_char, *const c_char, *mut libc::timeval, u8) -> c_int;
    unlock: fn(Handle, *const c_char, *const c_char, *const c_char) -> c_int;
    break_lock: fn(Handle, *const c_char, *const c_char, *const c_char, *const c_char) -> c_int;
    list_lockers: fn(Handle, *const c_char, *const c_char, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize) -> isize;
    aio_create_completion2: fn(*mut c_void, Option<Callback>, *mut Handle) -> c_int;
    aio_get_return_value: fn(Handle) -> c_int;
    aio_release: fn(Handle);
    aio_read: fn(Handle, *const c_char, Handle, *mut c_char, usize, u64) -> c_int;
    aio_write_op_operate: fn(Handle, Handle, Handle, *const c_char, *mut libc::time_t, c_int) -> c_int;
    create_write_op: fn() -> Handle;
    release_write_op: fn(Handle);
    write_op_create: fn(Handle, c_int, *const c_char);
    write_op_cmpxattr: fn(Handle, *const c_char, u8, *const c_char, usize);
    write_op_setxattr: fn(Handle, *const c_char, *const c_char, usize);
    write_op_write: fn(Handle, *const c_char, usize, u64);
    write_op_write_full: fn(Handle, *const c_char, usize);
    write_op_remove: fn(Handle);
}

fn missing() -> String {
    // SAFETY: no other call of dlopen(3) is in between, and the text is copied before the next one.
    let reason = unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => String::new(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    };
    format!(
        "cannot load Ceph's client library {}: {reason} (install the package librados2, or librados on Fedora and its kin)",
        LIBRARY.to_string_lossy()
    )
}

/// Returns the library, which is loaded at the first call and stays loaded.
///
/// # Errors
/// It is missing or too old.
pub fn library() -> io::Result<&'static Library> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED
        .get_or_init(Library::load)
        .as_ref()
        .map_err(|why| io::Error::other(why.clone()))
}

/// Returns the result of a call: what is negative is an error's number.
///
/// # Errors
/// The error with that number.
pub fn check(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))
}

/// Makes a C string of a name.
///
/// # Errors
/// `EINVAL` if it contains a NUL.
pub fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
