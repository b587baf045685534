//! Second process that removes the addresses when the server dies, before its connections end.
//!
//! When a process dies, the kernel ends its connections and refuses new ones. A client that sees
//! this connects again at once. It is refused while the address is still here, or sends to an
//! address that nobody has: Linux' NFS client then waits 3 seconds, other clients until their next
//! SYN. A client recovers sooner if it hears nothing until the partner has the address and ends the
//! connection ([`super::tickle`]).
//!
//! So a second process shares the table of files (clone(2) with CLONE_FILES), and with it every
//! socket that the server ever opens. The sockets outlive the server until the second process has
//! removed the addresses. The segments that end the connections then cannot leave, and are not kept
//! either ([`LINGER`]). The process shares the server's memory as well (CLONE_VM), so that it costs
//! none. It runs one function, [`wait`], which makes nothing but system calls: it shares the
//! thread-local storage of the thread that made it, which only waits for it.
//!
//! For some milliseconds after the server's end its folder is still locked and its ports are in
//! use. A process that starts again by exec(2) would leave the table to the guard: it calls [`end`]
//! first.
//!
//! If both are killed at once (the end of the control group, no memory), only the addresses' own
//! expiry remains.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use socket2::SockRef;

/// Stack size of the second process in bytes: one frame and system calls.
const STACK: usize = 16 << 10;
const NAME: &[u8] = b"weir-guard\0";

/// The guard of this process.
static GUARD: Mutex<Option<Guard>> = Mutex::new(None);
/// True if the partner takes over when this process dies. Otherwise clients should notice the death
/// at once, and return when the process does.
static PARTNERED: AtomicBool = AtomicBool::new(false);

struct Guard {
    process: OwnedFd,
    thread: JoinHandle<()>,
}

/// Option by which a closed connection vanishes at once, with its unsent data. Otherwise the kernel
/// tries for minutes to send the data and the end (FIN_WAIT_1), without a process. If this node
/// then has the address again and the client reconnects from the same port, as Linux' NFS client
/// does, these segments reach the new connection.
static LINGER: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};
/// Number of descriptors, from 0 on, for which the second process sets [`LINGER`]. Each one that is
/// not open costs 60 ns.
const DESCRIPTORS: libc::c_long = 1 << 16;

/// Data of the second process.
struct Plan {
    server: OwnedFd,
    netlink: socket2::Socket,
    removals: Vec<Vec<u8>>,
}

/// Starts the guard: when the process dies while there is a [partner](partnered), `removals` are
/// sent to the kernel over `netlink`.
///
/// # Errors
/// The system's. Linux before 5.3 lacks the calls.
pub fn start(netlink: socket2::Socket, removals: Vec<Vec<u8>>) -> io::Result<()> {
    let plan = Plan {
        server: pidfd_open(getpid(), PidfdFlags::empty())?,
        netlink,
        removals,
    };
    let (tell, told) = sync_channel(1);
    let thread = std::thread::Builder::new().name("weir-guard".to_owned());
    let thread = thread.spawn(move || make(&plan, &tell))?;
    let process = told
        .recv()
        .map_err(|_| io::Error::other("its thread has ended"))??;
    *GUARD.lock() = Some(Guard { process, thread });
    Ok(())
}

/// Sets whether the partner takes over when this process dies.
pub fn partnered(is: bool) {
    PARTNERED.store(is, Ordering::Relaxed);
}

/// Makes connections at these addresses, which the process no longer has, end without a trace when
/// they are closed.
///
/// # Errors
/// The process's files cannot be listed.
pub fn abandon(is_one: impl Fn(IpAddr) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        // SAFETY: the descriptor may be closed or reused at any moment: then this fails, or
        // examines the other file.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&file);
        let address = socket.local_addr().ok().and_then(|at| at.as_socket());
        if address.is_some_and(|at| is_one(at.ip().to_canonical())) {
            // Fails if it has ended.
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }
    Ok(())
}

/// Ends the guard, so that the process has its table of files for itself again.
pub fn end() {
    let Some(guard) = GUARD.lock().take() else {
        return;
    };
    // Fails if it has ended.
    let _ = pidfd_send_signal(&guard.process, Signal::KILL);
    // A panic of the thread was reported already.
    let _ = guard.thread.join();
}

/// Makes the second process, and waits for its end: the plan and the stack have to live as long.
fn make(plan: &Plan, tell: &SyncSender<io::Result<OwnedFd>>) {
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut process: c_int = -1;
    // SAFETY: `all` is written by sigfillset before it is read. No signal reaches this thread any
    // more, nor the process that it makes, whose handlers would be the server's.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
    // SAFETY: the stack grows down from its end, which is aligned to 16 bytes; it and the plan live
    // until the child has been waited for below; `wait` is written for a process that shares memory
    // with others.
    let pid = unsafe {
        libc::clone(
            wait,
            stack.as_mut_ptr_range().end.cast(),
            flags,
            std::ptr::from_ref(plan).cast_mut().cast(),
            &raw mut process,
        )
    };
    if pid < 0 {
        let _ = tell.send(Err(io::Error::last_os_error()));
        return;
    }
    // SAFETY: the kernel has just opened it for this process.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    // The other end waits for it.
    let _ = tell.send(Ok(process));
    let mut status = 0;
    // SAFETY: `status` is written, and nothing else.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    drop(stack);
}

/// Body of the second process: waits for the server's end, removes the addresses, closes all files
/// and ends.
extern "C" fn wait(plan: *mut c_void) -> c_int {
    // SAFETY: `make` passes a plan that lives for as long as this process, and nobody changes it.
    let plan = unsafe { &*plan.cast_const().cast::<Plan>() };
    let mut server = libc::pollfd {
        fd: plan.server.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: raw system calls with arguments of their kinds, which point to live data. The files
    // closed are used by nobody else: the server has ended. The call before last ends the process.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, NAME.as_ptr());
        let none = std::ptr::null::<libc::timespec>();
        while server.revents == 0 {
            libc::syscall(libc::SYS_ppoll, &raw mut server, 1, none, none, 8);
        }
        let partnered = PARTNERED.load(Ordering::Relaxed);
        if partnered {
            for removal in &plan.removals {
                let (at, length) = (removal.as_ptr(), removal.len());
                libc::syscall(
                    libc::SYS_sendto,
                    plan.netlink.as_raw_fd(),
                    at,
                    length,
                    0,
                    none,
                    0,
                );
            }
        }
        for file in 0..if partnered { DESCRIPTORS } else { 0 } {
            let (level, name, size) = (libc::SOL_SOCKET, libc::SO_LINGER, size_of_val(&LINGER));
            libc::syscall(
                libc::SYS_setsockopt,
                file,
                level,
                name,
                &raw const LINGER,
                size,
            );
        }
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}
