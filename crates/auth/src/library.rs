//! Kerberos for RPCSEC_GSS and for logons over SMB, by the system's MIT krb5.
//!
//! The library is loaded with dlopen(3) when there is a keytab (`--krb5-keytab`, or a domain was
//! joined). A server without Kerberos does not need it installed, and the build does not need its
//! headers, as a binding crate (libgssapi, cross-krb5) would. The functions used are fixed by RFC
//! 2744 and the library's promise of a stable ABI (`libgssapi_krb5.so.2`).
//!
//! Contexts are accepted, and their users looked up, on threads of their own: the keytab and the
//! replay cache are files, and the name service may be a network away. From then on the context has
//! all that calls need to know about its user. A change of the user's groups is in force from the
//! next context on, as with knfsd.
//!
//! A context of NFS with keys of a common type is reduced to its keys, and its messages are
//! protected without the library ([`krb5`]). Others are exported once and imported
//! once a core, since the library allows one thread at a time for each. SMB needs a context's key,
//! and the context itself for one integrity code at most.
//!
//! A ticket of an Active Directory domain names its user and the user's groups (PAC). The library
//! verifies that the domain issued it to this server; [`Domains`] maps them to uids and gids.

use std::ffi::{CStr, CString, c_int, c_void};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_base::SystemRng;
use weir_vfs::{Groups, Identity, NOBODY};

use crate::domains::Domains;
use crate::gss::{
    AcceptOutcome, Acceptor, ESTABLISHING, Mic, Peer, Protection, SecurityContext, UnwrappedMessage,
};
use crate::tickets::{self, Code, TicketOutcome as Logon, Tickets};
use crate::{keytab, krb5, name_service, pac};

/// Threads that accept contexts.
const THREADS: usize = 2;
const LIBRARY: &CStr = c"libgssapi_krb5.so.2";
/// `GSS_S_UNAVAILABLE` (RFC 2744 §3.9.1).
const UNAVAILABLE: u32 = 16 << 16;
/// Mask of the routine and calling errors in a major status; the lower bits are supplementary
/// information.
const ERRORS: u32 = 0xffff_0000;
const GSS_C_ACCEPT: c_int = 2;
const GSS_C_INDEFINITE: u32 = u32::MAX;
/// The mechanism (RFC 4121 §1): 1.2.840.113554.1.2.2.
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// Attribute of a name with the KERB_VALIDATION_INFO of its ticket (MIT krb5, "Authorization
/// interface").
const LOGON_INFO: &[u8] = b"urn:mspac:logon-info";
/// `GSS_C_INQ_SSPI_SESSION_KEY` (gssapi_ext.h): 1.2.840.113554.1.2.2.5.5.
const SESSION_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 5, 5];

type Handle = *mut c_void;

/// `gss_buffer_desc`.
#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

impl Buffer {
    const EMPTY: Buffer = Buffer {
        length: 0,
        value: std::ptr::null_mut(),
    };

    /// A view of `bytes`, which the library only reads.
    fn from_bytes(bytes: &[u8]) -> Buffer {
        Buffer {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

/// `gss_OID_desc`.
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const c_void,
}

impl Oid {
    fn from_bytes(oid: &'static [u8]) -> Oid {
        Oid {
            length: oid.len() as u32,
            elements: oid.as_ptr().cast(),
        }
    }
}

/// `gss_OID_set_desc`.
#[repr(C)]
struct Oids {
    count: usize,
    elements: *const Oid,
}

/// `gss_buffer_set_desc`.
#[repr(C)]
struct Buffers {
    count: usize,
    elements: *const Buffer,
}

/// `gss_key_value_element_desc`, `gss_key_value_set_desc`.
#[repr(C)]
struct KeyValue {
    key: *const std::ffi::c_char,
    value: *const std::ffi::c_char,
}

#[repr(C)]
struct KeyValues {
    count: u32,
    elements: *const KeyValue,
}

/// Declares what is used of the library, and loads it.
macro_rules! library {
    ($($name:ident: fn($($arg:ty),*);)*) => {
        /// The library's functions. Each returns the major status and stores the minor one.
        struct Library {
            $($name: unsafe extern "C" fn(*mut u32, $($arg),*) -> u32,)*
        }

        impl Library {
            fn load() -> Result<Library> {
                // SAFETY: the name is a C string; the library's constructors are those of a system
                // library.
                let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if library.is_null() {
                    bail!("Kerberos needs {}: install libgssapi-krb5-2", LIBRARY.to_string_lossy());
                }
                Ok(Library { $($name: {
                    let name = CString::new(concat!("gss_", stringify!($name)))?;
                    // SAFETY: the library is loaded and stays so; the name is a C string.
                    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                    if found.is_null() {
                        bail!("{} has no {}", LIBRARY.to_string_lossy(), name.to_string_lossy());
                    }
                    // SAFETY: the function of this name has this signature (RFC 2744,
                    // <gssapi/gssapi.h>, gssapi_ext.h).
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u32, $($arg),*) -> u32>(found) }
                },)* })
            }
        }
    };
}

library! {
    accept_sec_context: fn(*mut Handle, Handle, *const Buffer, *const c_void, *mut Handle, *mut *const Oid, *mut Buffer, *mut u32, *mut u32, *mut Handle);
    acquire_cred_from: fn(Handle, u32, *const Oids, c_int, *const KeyValues, *mut Handle, *mut *const c_void, *mut u32);
    get_mic: fn(Handle, u32, *const Buffer, *mut Buffer);
    verify_mic: fn(Handle, *const Buffer, *const Buffer, *mut u32);
    wrap: fn(Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer);
    unwrap: fn(Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32);
    export_sec_context: fn(*mut Handle, *mut Buffer);
    import_sec_context: fn(*const Buffer, *mut Handle);
    delete_sec_context: fn(*mut Handle, *mut Buffer);
    display_name: fn(Handle, *mut Buffer, *mut *const Oid);
    localname: fn(Handle, *const Oid, *mut Buffer);
    get_name_attribute: fn(Handle, *const Buffer, *mut c_int, *mut c_int, *mut Buffer, *mut Buffer, *mut c_int);
    display_status: fn(u32, c_int, *const Oid, *mut u32, *mut Buffer);
    krb5_export_lucid_sec_context: fn(*mut Handle, u32, *mut *const LucidContext);
    krb5_free_lucid_sec_context: fn(*const LucidContext);
    inquire_sec_context_by_oid: fn(Handle, *const Oid, *mut *mut Buffers);
    release_buffer: fn(*mut Buffer);
    release_buffer_set: fn(*mut *mut Buffers);
    release_name: fn(*mut Handle);
}

impl Library {
    /// Returns the bytes of a buffer that the library filled, and releases it.
    fn take(&self, mut buffer: Buffer) -> Vec<u8> {
        let bytes = if buffer.value.is_null() {
            Vec::new()
        } else {
            // SAFETY: the library filled the buffer with so many bytes.
            let filled =
                unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) };
            filled.to_vec()
        };
        let mut minor = 0;
        // SAFETY: the buffer is the library's, or empty, and is not used any more.
        unsafe { (self.release_buffer)(&raw mut minor, &raw mut buffer) };
        bytes
    }

    /// Returns the library's description of a status.
    fn reason(&self, major: u32, minor: u32) -> String {
        const MAJOR: c_int = 1;
        const MINOR: c_int = 2;
        let text = |code, kind| {
            let (mut ignored, mut more, mut buffer) = (0, 0, Buffer::EMPTY);
            // SAFETY: all places outlive the call; no OID means the default mechanism.
            unsafe {
                (self.display_status)(
                    &raw mut ignored,
                    code,
                    kind,
                    std::ptr::null(),
                    &raw mut more,
                    &raw mut buffer,
                )
            };
            String::from_utf8_lossy(&self.take(buffer)).into_owned()
        };
        format!("{}: {}", text(major, MAJOR), text(minor, MINOR))
    }
}

/// `gss_krb5_lucid_key_t`.
#[repr(C)]
struct Key {
    enctype: u32,
    length: u32,
    bytes: *const c_void,
}

impl Key {
    /// Its type and bytes.
    ///
    /// # Safety
    /// The library has filled it, and has not released it while the bytes are used.
    unsafe fn parts(&self) -> (u32, &[u8]) {
        if self.bytes.is_null() {
            return (self.enctype, &[]);
        }
        // SAFETY: there are so many bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.bytes.cast::<u8>(), self.length as usize) };
        (self.enctype, bytes)
    }
}

/// `gss_krb5_rfc1964_keydata_t`: keys of the older tokens.
#[repr(C)]
struct OldKeys {
    algorithms: [u32; 2],
    key: Key,
}

/// `gss_krb5_cfx_keydata_t`: keys of the tokens of RFC 4121.
#[repr(C)]
struct CfxKeys {
    have_acceptor_subkey: u32,
    key: Key,
    acceptor_subkey: Key,
}

/// `gss_krb5_lucid_context_v1_t` of `<gssapi/gssapi_krb5.h>`.
#[repr(C)]
struct LucidContext {
    version: u32,
    initiate: u32,
    end_time: u32,
    send_sequence: u64,
    receive_sequence: u64,
    /// Kind of the keys: 1 for those of RFC 4121.
    protocol: u32,
    old: OldKeys,
    cfx: CfxKeys,
}

/// A context of the library's.
struct Context {
    library: Arc<Library>,
    handle: Handle,
}

// SAFETY: a context may be used by any thread, one at a time (MIT krb5, "Thread safety of the
// GSS-API").
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is a context's or null, and is not used any more. No buffer means no
        // token.
        unsafe {
            (self.library.delete_sec_context)(
                &raw mut minor,
                &raw mut self.handle,
                std::ptr::null_mut(),
            )
        };
    }
}

impl Context {
    /// The key that the two sides agreed on: the acceptor's subkey, or the initiator's.
    fn key(&self) -> Option<Vec<u8>> {
        let (mut minor, mut found) = (0, std::ptr::null_mut::<Buffers>());
        let oid = Oid::from_bytes(SESSION_KEY);
        // SAFETY: the context is established; the set is filled, and released below.
        let major = unsafe {
            (self.library.inquire_sec_context_by_oid)(
                &raw mut minor,
                self.handle,
                &raw const oid,
                &raw mut found,
            )
        };
        if found.is_null() {
            return None;
        }
        // SAFETY: the library filled the set; its first buffer is the key, if there is any.
        let key = unsafe {
            let set = &*found;
            (major & ERRORS == 0 && set.count > 0).then(|| {
                let first = &*set.elements;
                std::slice::from_raw_parts(first.value.cast::<u8>(), first.length).to_vec()
            })
        };
        // SAFETY: the set is the library's and is not used any more.
        unsafe { (self.library.release_buffer_set)(&raw mut minor, &raw mut found) };
        key.filter(|key| !key.is_empty())
    }

    fn verify(&self, message: &[u8], mic: &[u8]) -> bool {
        let (mut minor, mut qop) = (0, 0);
        let (message, mic) = (Buffer::from_bytes(message), Buffer::from_bytes(mic));
        // SAFETY: the context is established; the buffers outlive the call and are only read.
        let major = unsafe {
            (self.library.verify_mic)(
                &raw mut minor,
                self.handle,
                &raw const message,
                &raw const mic,
                &raw mut qop,
            )
        };
        major & ERRORS == 0
    }

    fn mic(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (mut minor, mut out) = (0, Buffer::EMPTY);
        let message = Buffer::from_bytes(message);
        // SAFETY: the context is established; `message` is only read, `out` is filled.
        let major = unsafe {
            (self.library.get_mic)(
                &raw mut minor,
                self.handle,
                0,
                &raw const message,
                &raw mut out,
            )
        };
        let mic = self.library.take(out);
        (major & ERRORS == 0).then_some(mic)
    }

    fn wrap(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (mut minor, mut encrypted, mut out) = (0, 0, Buffer::EMPTY);
        let message = Buffer::from_bytes(message);
        // SAFETY: as in `mic`.
        let major = unsafe {
            (self.library.wrap)(
                &raw mut minor,
                self.handle,
                1,
                0,
                &raw const message,
                &raw mut encrypted,
                &raw mut out,
            )
        };
        let sealed = self.library.take(out);
        (major & ERRORS == 0 && encrypted != 0).then_some(sealed)
    }

    fn unwrap(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (mut minor, mut encrypted, mut qop, mut out) = (0, 0, 0, Buffer::EMPTY);
        let sealed = Buffer::from_bytes(sealed);
        // SAFETY: as in `mic`.
        let major = unsafe {
            (self.library.unwrap)(
                &raw mut minor,
                self.handle,
                &raw const sealed,
                &raw mut out,
                &raw mut encrypted,
                &raw mut qop,
            )
        };
        let message = self.library.take(out);
        (major & ERRORS == 0 && encrypted != 0).then_some(message)
    }
}

/// A copy of a context, for one thread at a time.
struct LockedContext(Mutex<Context>);

impl Code for Context {
    fn verify(&mut self, message: &[u8], code: &[u8]) -> bool {
        Context::verify(self, message, code)
    }

    fn make(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.mic(message)
    }
}

impl Protection for LockedContext {
    fn verify(&self, message: &[u8], mic: &[u8]) -> bool {
        self.0.lock().verify(message, mic)
    }

    fn mic(&self, parts: &[&[u8]]) -> Option<Mic> {
        self.0.lock().mic(&parts.concat()).map(Mic::from_vec)
    }

    fn wrap(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> bool {
        match self.0.lock().wrap(&parts.concat()) {
            Some(sealed) => {
                out.extend_from_slice(&sealed);
                true
            }
            None => false,
        }
    }

    fn unwrap(&self, sealed: &[u8]) -> Option<UnwrappedMessage> {
        let bytes = self.0.lock().unwrap(sealed)?;
        let message = 0..bytes.len();
        Some(UnwrappedMessage { bytes, message })
    }
}

/// The server's credential: the keys of a keytab.
struct Keys(Handle);

// SAFETY: credentials may be used by several threads at once (MIT krb5, "Thread safety of the
// GSS-API").
unsafe impl Send for Keys {}
// SAFETY: likewise.
unsafe impl Sync for Keys {}

/// A token to be accepted, and where the outcome goes.
enum Job {
    /// A token of RPCSEC_GSS.
    Rpc(Vec<u8>, oneshot::Sender<AcceptOutcome>),
    /// A token of SMB.
    Smb(Vec<u8>, oneshot::Sender<Logon>),
}

/// Reads a keytab and loads the system's library.
///
/// # Errors
/// The file is no keytab, or there is no library.
fn read(keytab: &Path) -> Result<(Vec<keytab::Principal>, Library)> {
    let named = || format!("the keytab {}", keytab.display());
    let bytes = std::fs::read(keytab).with_context(named)?;
    let principals = keytab::principals(&bytes).with_context(named)?;
    Ok((principals, Library::load()?))
}

/// Checks that a keytab can be used.
///
/// # Errors
/// The file is no keytab, or there is no library.
pub fn check(keytab: &Path) -> Result<()> {
    read(keytab).map(drop)
}

/// The mechanism.
pub struct Kerberos {
    jobs: SyncSender<Job>,
    serves_smb: bool,
}

impl Kerberos {
    /// Accepts contexts for any service that `keytab` has a key of; each may be used on `copies`
    /// cores at once. `domains` assigns uids and gids to users of domains.
    pub fn start(keytab: &Path, copies: usize, domains: &Arc<Domains>) -> Result<Kerberos> {
        let (principals, library) = read(keytab)?;
        let library = Arc::new(library);
        let server = Arc::new(Server {
            keys: keys(&library, keytab)?,
            library,
            domains: Arc::clone(domains),
        });
        let (jobs, queue) = sync_channel(ESTABLISHING);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let (server, queue) = (server.clone(), queue.clone());
            std::thread::Builder::new()
                .name("weir-kerberos".to_owned())
                .spawn(move || serve(&server, &queue, copies))
                .context("starting a thread")?;
        }
        let serves_smb = principals.iter().any(keytab::is_of_smb);
        Ok(Kerberos { jobs, serves_smb })
    }

    /// Returns true if the keytab has a key that clients of SMB ask tickets for.
    pub fn serves_smb(&self) -> bool {
        self.serves_smb
    }
}

impl Acceptor for Kerberos {
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = AcceptOutcome> + Send>> {
        let (done, outcome) = oneshot::channel();
        // A queue that is full drops the sender, as a thread that died would.
        let _ = self.jobs.try_send(Job::Rpc(token, done));
        Box::pin(async move {
            outcome.await.unwrap_or(AcceptOutcome {
                major: UNAVAILABLE,
                ..AcceptOutcome::default()
            })
        })
    }
}

impl Tickets for Kerberos {
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = Logon> + Send>> {
        let (done, outcome) = oneshot::channel();
        // As above.
        let _ = self.jobs.try_send(Job::Smb(token, done));
        Box::pin(async move { outcome.await.unwrap_or(Logon::Busy) })
    }
}

fn keys(library: &Library, keytab: &Path) -> Result<Keys> {
    let keytab = keytab
        .to_str()
        .ok_or_else(|| anyhow!("cannot use keytab: path is not UTF-8"))?;
    let keytab = CString::new(format!("FILE:{keytab}"))?;
    let element = KeyValue {
        key: c"keytab".as_ptr(),
        value: keytab.as_ptr(),
    };
    let store = KeyValues {
        count: 1,
        elements: &raw const element,
    };
    let (mut minor, mut keys) = (0, std::ptr::null_mut());
    let kerberos = Oid::from_bytes(KERBEROS);
    let mechanisms = Oids {
        count: 1,
        elements: &raw const kerberos,
    };
    // SAFETY: the store, the mechanisms and what they point to outlive the call. No name: any
    // principal.
    let major = unsafe {
        (library.acquire_cred_from)(
            &raw mut minor,
            std::ptr::null_mut(),
            GSS_C_INDEFINITE,
            &raw const mechanisms,
            GSS_C_ACCEPT,
            &raw const store,
            &raw mut keys,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if major & ERRORS != 0 {
        bail!("reading the keytab: {}", library.reason(major, minor));
    }
    Ok(Keys(keys))
}

/// State for accepting contexts.
struct Server {
    library: Arc<Library>,
    keys: Keys,
    domains: Arc<Domains>,
}

/// Accepts one token after the other until the server ends.
fn serve(server: &Server, queue: &Mutex<Receiver<Job>>, copies: usize) {
    loop {
        let job = queue.lock().recv();
        // The receiver may have stopped to wait.
        match job {
            Ok(Job::Rpc(token, done)) => {
                let _ = done.send(server.accept(&token, copies));
            }
            Ok(Job::Smb(token, done)) => {
                let _ = done.send(server.log_on(&token));
            }
            Err(_) => return,
        }
    }
}

/// Result of accepting a token.
struct Step {
    major: u32,
    minor: u32,
    /// The token for the peer.
    token: Vec<u8>,
    /// The context, on success.
    made: Option<AcceptedContext>,
}

/// A context, who is behind it, and how many seconds it is good for.
struct AcceptedContext {
    context: Context,
    principal: String,
    identity: Option<Identity>,
    /// It is the account of a machine of a domain.
    is_machine: bool,
    seconds: u32,
}

impl Server {
    /// Takes a client's first token.
    fn step(&self, token: &[u8]) -> Step {
        let library = &self.library;
        let (mut minor, mut flags, mut seconds) = (0, 0, 0);
        let (mut name, mut mechanism, mut out) =
            (std::ptr::null_mut(), std::ptr::null(), Buffer::EMPTY);
        let mut context = Context {
            library: library.clone(),
            handle: std::ptr::null_mut(),
        };
        let input = Buffer::from_bytes(token);
        // SAFETY: all places outlive the call; `input` is only read. No channel bindings, no
        // delegated credential.
        let major = unsafe {
            (library.accept_sec_context)(
                &raw mut minor,
                &raw mut context.handle,
                self.keys.0,
                &raw const input,
                std::ptr::null(),
                &raw mut name,
                &raw mut mechanism,
                &raw mut out,
                &raw mut flags,
                &raw mut seconds,
                std::ptr::null_mut(),
            )
        };
        let token = library.take(out);
        let made = (major == 0).then(|| {
            let (principal, here) = user(library, name, mechanism);
            let logon = logon_info(library, name);
            let is_machine = logon.as_ref().is_some_and(|logon| logon.is_machine);
            let identity = match logon {
                None => here,
                Some(logon) => match self.domains.meet(&logon, here.as_ref()) {
                    Ok(identity) => Some(identity),
                    Err(error) => {
                        tracing::error!(principal, %error, "no number for a user of a domain");
                        None
                    }
                },
            };
            let uid = identity.as_ref().map(|identity| identity.unix.uid);
            tracing::debug!(principal, uid, "a security context");
            AcceptedContext {
                context,
                principal,
                identity,
                is_machine,
                seconds,
            }
        });
        if !name.is_null() {
            let mut ignored = 0;
            // SAFETY: the name is the library's and is not used any more.
            unsafe { (library.release_name)(&raw mut ignored, &raw mut name) };
        }
        Step {
            major,
            minor,
            token,
            made,
        }
    }

    /// Accepts a context for RPCSEC_GSS. Principals without a user on this machine, and machine
    /// accounts, act as nobody.
    fn accept(&self, token: &[u8], copies: usize) -> AcceptOutcome {
        let step = self.step(token);
        let nobody = || Identity::unix(NOBODY, NOBODY, Groups::default());
        let established = step.made.and_then(|made| {
            Some(SecurityContext {
                peer: Peer {
                    principal: made.principal,
                    identity: made
                        .identity
                        .filter(|_| !made.is_machine)
                        .unwrap_or_else(nobody),
                },
                lifetime: Duration::from_secs(made.seconds.into()),
                protections: copied(made.context, copies)?,
            })
        });
        let (major, minor) = (step.major, step.minor);
        if major != 0 {
            tracing::info!(
                "refused a security context: {}",
                self.library.reason(major, minor)
            );
        }
        // A context that would take another step is none.
        let major = match (&established, major) {
            (None, 0..=0xffff) => UNAVAILABLE,
            _ => major,
        };
        AcceptOutcome {
            major,
            minor,
            token: step.token,
            established,
        }
    }

    /// Accepts a logon over SMB. Refuses a principal without a user on this machine: there is no
    /// guest.
    fn log_on(&self, token: &[u8]) -> Logon {
        let step = self.step(token);
        let Some(made) = step.made else {
            let why = self.library.reason(step.major, step.minor);
            return Logon::Refused(String::new(), why);
        };
        let Some(identity) = made.identity else {
            return Logon::Refused(
                made.principal,
                "no user of this machine or of a domain".to_owned(),
            );
        };
        let Some(key) = made.context.key() else {
            return Logon::Refused(made.principal, "its context has no key".to_owned());
        };
        let logon = tickets::Logon {
            user: made.principal,
            identity,
            key,
            lifetime: Duration::from_secs(made.seconds.into()),
            code: Box::new(made.context),
        };
        Logon::Logon(step.token, Box::new(logon))
    }
}

/// Returns the protection of the context's messages: one for all threads if its keys are of a known
/// type, else `copies` contexts of the library.
fn copied(mut context: Context, copies: usize) -> Option<Vec<Box<dyn Protection>>> {
    let library = context.library.clone();
    let (mut minor, mut exported) = (0, Buffer::EMPTY);
    // SAFETY: the context is established; it is null afterwards.
    let major = unsafe {
        (library.export_sec_context)(&raw mut minor, &raw mut context.handle, &raw mut exported)
    };
    let exported = library.take(exported);
    if major & ERRORS != 0 {
        return None;
    }
    let import = || {
        let mut copy = Context {
            library: library.clone(),
            handle: std::ptr::null_mut(),
        };
        let (mut minor, token) = (0, Buffer::from_bytes(&exported));
        // SAFETY: `token` is only read, the handle is filled.
        let major = unsafe {
            (library.import_sec_context)(&raw mut minor, &raw const token, &raw mut copy.handle)
        };
        (major & ERRORS == 0).then_some(copy)
    };
    if let Some(own) = import().and_then(without_library) {
        return Some(vec![Box::new(own)]);
    }
    (0..copies.max(1))
        .map(|_| {
            import().map(|copy| Box::new(LockedContext(Mutex::new(copy))) as Box<dyn Protection>)
        })
        .collect()
}

/// Converts a context into one that protects messages without the library, if its keys are of a
/// known type.
fn without_library(mut context: Context) -> Option<krb5::Context> {
    const VERSION: u32 = 1;
    let library = context.library.clone();
    let (mut minor, mut exported) = (0, std::ptr::null());
    // SAFETY: the context is established; it is null afterwards, and `exported` has what this
    // version has.
    let major = unsafe {
        (library.krb5_export_lucid_sec_context)(
            &raw mut minor,
            &raw mut context.handle,
            VERSION,
            &raw mut exported,
        )
    };
    // SAFETY: with success it points to what the library has filled, until it is released below.
    let keys = unsafe { exported.as_ref() }.filter(|_| major & ERRORS == 0)?;
    let made = (keys.version == VERSION && keys.protocol == 1).then(|| {
        // SAFETY: of this protocol the keys are filled; they are released below.
        let (key, subkey) = unsafe { (keys.cfx.key.parts(), keys.cfx.acceptor_subkey.parts()) };
        let keys = krb5::Keys {
            initiator: keys.initiate != 0,
            next: keys.send_sequence,
            key,
            subkey: (keys.cfx.have_acceptor_subkey != 0).then_some(subkey),
        };
        krb5::Context::new(&keys, &SystemRng)
    });
    // SAFETY: it is the library's, and is not used any more.
    unsafe { (library.krb5_free_lucid_sec_context)(&raw mut minor, exported) };
    made.flatten()
}

/// Returns the name of a context's peer, and its user by the realm's rules and the name service, if
/// there is one.
fn user(library: &Library, name: Handle, mechanism: *const Oid) -> (String, Option<Identity>) {
    let (mut minor, mut shown, mut local) = (0, Buffer::EMPTY, Buffer::EMPTY);
    // SAFETY: the name is the context's; the buffers are filled.
    unsafe {
        (library.display_name)(&raw mut minor, name, &raw mut shown, std::ptr::null_mut());
        (library.localname)(&raw mut minor, name, mechanism, &raw mut local);
    }
    let principal = String::from_utf8_lossy(&library.take(shown)).into_owned();
    let user = CString::new(library.take(local)).ok();
    let user = user.filter(|user| !user.is_empty());
    (
        principal,
        user.and_then(|user| name_service::identity_of(&user)),
    )
}

/// Returns the logon information of a context's peer, if a domain issued its ticket.
fn logon_info(library: &Library, name: Handle) -> Option<pac::Logon> {
    let (mut minor, mut authenticated, mut complete, mut more) = (0, 0, 0, -1);
    let (mut value, mut shown) = (Buffer::EMPTY, Buffer::EMPTY);
    let attribute = Buffer::from_bytes(LOGON_INFO);
    // SAFETY: the name is the context's; all places outlive the call, and the buffers are filled.
    let major = unsafe {
        (library.get_name_attribute)(
            &raw mut minor,
            name,
            &raw const attribute,
            &raw mut authenticated,
            &raw mut complete,
            &raw mut value,
            &raw mut shown,
            &raw mut more,
        )
    };
    let (value, _) = (library.take(value), library.take(shown));
    if major & ERRORS != 0 || authenticated == 0 {
        return None;
    }
    let logon = pac::Logon::decode(&value).ok();
    if logon.is_none() {
        tracing::warn!("cannot read the user of a domain's ticket: malformed logon information");
    }
    logon
}

#[cfg(test)]
mod tests;
