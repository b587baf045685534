//! TLS in the kernel (`CONFIG_TLS`), after a handshake in user space.
//!
//! The socket gets the keys of both directions, and from then on takes and returns the records'
//! content. Replies are therefore sent from where they are, and large requests are received where
//! they are needed, as in the clear. A record that is not data makes a plain read fail with EIO;
//! `is_end` reads its type. Linux's NFS client does the same from its side.
//!
//! Key updates are not supported on such a connection: a peer that requests one (RFC 8446 §4.6.3)
//! is closed and connects again. Neither Linux's client nor libnfs requests any.
//!
//! Kernels differ in their ciphers, so [`ciphers`] tries each cipher on a connection of its own
//! when the server starts.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::OnceLock;

use tokio_rustls::rustls::{CipherSuite, ConnectionTrafficSecrets, ServerConnection};

// From `linux/tls.h`; libc does not have them.
const TX: libc::c_int = 1;
const RX: libc::c_int = 2;
const SET_RECORD_TYPE: libc::c_int = 1;
const GET_RECORD_TYPE: libc::c_int = 2;
const TLS_1_3: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// Record type of an alert (RFC 8446 §5.1).
const ALERT: u8 = 21;
/// Alert at the end of a side's data (RFC 8446 §6.1), as a warning.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Returns the ciphers that this kernel supports for TLS 1.3; none if it does not support it.
pub fn ciphers() -> &'static [CipherSuite] {
    static CIPHERS: OnceLock<Vec<CipherSuite>> = OnceLock::new();
    CIPHERS.get_or_init(|| {
        let known = [
            (CipherSuite::TLS13_AES_128_GCM_SHA256, AES_GCM_128, 16),
            (CipherSuite::TLS13_AES_256_GCM_SHA384, AES_GCM_256, 32),
            (
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CHACHA20_POLY1305,
                32,
            ),
        ];
        let works = |cipher, key_len| -> io::Result<()> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let socket = TcpStream::connect(listener.local_addr()?)?;
            enable(&socket)?;
            let keys = parameters(cipher, &vec![0; key_len], &[0; 12], 0);
            set(&socket, libc::SOL_TLS, TX, &keys)?;
            set(&socket, libc::SOL_TLS, RX, &keys)
        };
        let works = known
            .into_iter()
            .filter(|(_, cipher, key_len)| works(*cipher, *key_len).is_ok());
        works.map(|(suite, ..)| suite).collect()
    })
}

/// Hands both directions of a connection to the kernel. The handshake has to be over and the
/// session empty.
///
/// # Errors
/// The kernel's error; the connection is then lost.
pub(super) fn hand_over(socket: &impl AsFd, session: ServerConnection) -> io::Result<()> {
    let secrets = session
        .dangerous_extract_secrets()
        .map_err(io::Error::other)?;
    enable(socket)?;
    for (direction, (sequence, secrets)) in [(TX, secrets.tx), (RX, secrets.rx)] {
        let (cipher, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (AES_GCM_128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (AES_GCM_256, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (CHACHA20_POLY1305, key, iv),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let keys = parameters(cipher, key.as_ref(), iv.as_ref(), sequence);
        set(socket, libc::SOL_TLS, direction, &keys)?;
    }
    Ok(())
}

fn enable(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Encodes one of `linux/tls.h`'s `tls12_crypto_info_…`, which TLS 1.3 uses as well: version and
/// cipher, then bytes only. For AES-GCM, the first four of the nonce's twelve bytes follow the key.
fn parameters(cipher: u16, key: &[u8], nonce: &[u8], sequence: u64) -> Vec<u8> {
    let (salt, iv) = match cipher {
        CHACHA20_POLY1305 => (&[][..], nonce),
        _ => nonce.split_at(4),
    };
    let [version, cipher] = [TLS_1_3, cipher].map(u16::to_ne_bytes);
    [&version, &cipher, iv, key, salt, &sequence.to_be_bytes()].concat()
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is live for the call, which reads as many bytes of it as `value` has.
    let done = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A control message of one byte, a record's type, with the alignment of `cmsghdr`.
#[repr(C)]
struct RecordType {
    header: libc::cmsghdr,
    kind: u8,
}

/// Sends the alert that ends this side's data.
///
/// # Errors
/// The socket's, for example if it takes no more.
pub(super) fn say_end(socket: &impl AsFd) -> io::Result<()> {
    let mut kind = RecordType {
        header: libc::cmsghdr {
            cmsg_len: std::mem::offset_of!(RecordType, kind) + 1,
            cmsg_level: libc::SOL_TLS,
            cmsg_type: SET_RECORD_TYPE,
        },
        kind: ALERT,
    };
    let mut bytes = CLOSE_NOTIFY;
    exchange(socket, &mut bytes, &mut kind, |fd, message| {
        // SAFETY: what `message` points to is live for the call.
        unsafe { libc::sendmsg(fd, message, libc::MSG_NOSIGNAL) }
    })?;
    Ok(())
}

/// Receives the record at which a read failed with EIO. Returns true if it announces the end of the
/// peer's data.
///
/// # Errors
/// The socket's error.
pub(super) fn is_end(socket: &impl AsFd) -> io::Result<bool> {
    let mut kind = RecordType {
        header: libc::cmsghdr {
            cmsg_len: 0,
            cmsg_level: 0,
            cmsg_type: 0,
        },
        kind: 0,
    };
    let mut bytes = [0; 2];
    let len = exchange(socket, &mut bytes, &mut kind, |fd, message| {
        // SAFETY: what `message` points to is live and writable for the call.
        unsafe { libc::recvmsg(fd, message, 0) }
    })?;
    let described =
        kind.header.cmsg_level == libc::SOL_TLS && kind.header.cmsg_type == GET_RECORD_TYPE;
    Ok(described && kind.kind == ALERT && len == 2 && bytes[1] == CLOSE_NOTIFY[1])
}

/// Sends or receives two bytes of a record with a type.
fn exchange(
    socket: &impl AsFd,
    bytes: &mut [u8; 2],
    kind: &mut RecordType,
    call: impl FnOnce(libc::c_int, &mut libc::msghdr) -> isize,
) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a `msghdr` of zeroes is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut *kind).cast();
    message.msg_controllen = size_of::<RecordType>();
    usize::try_from(call(socket.as_fd().as_raw_fd(), &mut message))
        .map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of `linux/tls.h`'s structures: 40, 56 and 56 bytes.
    #[test]
    fn parameters_are_laid_out_as_the_kernel_has_them() {
        let key: Vec<u8> = (100..132).collect();
        let nonce: Vec<u8> = (1..13).collect();
        let found = parameters(AES_GCM_128, &key[..16], &nonce, 0x0102);
        assert_eq!(found.len(), 40);
        assert_eq!(
            found[..4],
            [TLS_1_3.to_ne_bytes(), 51u16.to_ne_bytes()].concat()
        );
        assert_eq!(found[4..12], nonce[4..]);
        assert_eq!(found[12..28], key[..16]);
        assert_eq!(found[28..32], nonce[..4]);
        assert_eq!(found[32..], [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(parameters(AES_GCM_256, &key, &nonce, 0).len(), 56);
        let found = parameters(CHACHA20_POLY1305, &key, &nonce, 0);
        assert_eq!(found.len(), 56);
        assert_eq!(found[4..16], nonce);
        assert_eq!(found[16..48], key[..]);
    }

    /// A control message ends where the kernel looks for the next one.
    #[test]
    fn a_records_type_is_one_control_message() {
        // SAFETY: computed from sizes alone.
        let (len, space) = unsafe { (libc::CMSG_LEN(1), libc::CMSG_SPACE(1)) };
        assert_eq!(std::mem::offset_of!(RecordType, kind) + 1, len as usize);
        assert_eq!(size_of::<RecordType>(), space as usize);
    }
}
