//! A plain copy through the same TLS: what a transfer's speed is held against.
//!
//! One thread reads a file a mebibyte at a time and sends it over loopback, another receives,
//! writes it to a file, and reports when all is there and synced; two threads, as a transfer has
//! one on each side. TLS is what replication uses: rustls with ring, version 1.3, TCP_NODELAY.
//! Everything that can be is in the copy's favour: the file was just written, so it is read from
//! memory, nothing is checked but what TLS checks, nothing is found out about what has changed, and
//! nothing is made durable before the end.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_bench::clock;
use weir_bench::error::BenchError;

/// Bytes that are read, sent and written at once.
const PIECE: usize = 1 << 20;
/// The name in the certificate.
const NAME: &str = "weir";

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

fn configs() -> io::Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let pair = rcgen::KeyPair::generate().map_err(other)?;
    let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).map_err(other)?;
    let certificate: CertificateDer<'static> = params.self_signed(&pair).map_err(other)?.into();
    let key = PrivateKeyDer::try_from(pair.serialize_der()).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = [&rustls::version::TLS13];
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(other)?;
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(other)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}

/// Moves so many bytes, a piece at a time.
fn pump(mut left: u64, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let want = left.min(PIECE as u64) as usize;
        let part = piece.get_mut(..want).unwrap_or_default();
        from.read_exact(part)?;
        to.write_all(part)?;
        left -= want as u64;
    }
    Ok(())
}

/// Receives until the other side ends, writes, syncs, replies with a byte.
fn receive(listener: &TcpListener, config: Arc<ServerConfig>, to: &Path) -> io::Result<()> {
    let (socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let tls = ServerConnection::new(config).map_err(other)?;
    let mut stream = rustls::StreamOwned::new(tls, socket);
    let mut file = File::create(to)?;
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    pump(u64::from_le_bytes(length), &mut stream, &mut file)?;
    file.sync_data()?;
    stream.write_all(&[1])?;
    stream.flush()
}

/// Sends a file; the seconds until the other side has it.
fn send(listener: &TcpListener, config: Arc<ClientConfig>, from: &Path) -> io::Result<f64> {
    let socket = TcpStream::connect(listener.local_addr()?)?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(NAME).map_err(other)?;
    let tls = ClientConnection::new(config, name).map_err(other)?;
    let mut stream = rustls::StreamOwned::new(tls, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    let mut file = File::open(from)?;
    let began = clock::now_ns();
    let length = file.metadata()?.len();
    stream.write_all(&length.to_le_bytes())?;
    pump(length, &mut file, &mut stream)?;
    stream.flush()?;
    stream.read_exact(&mut [0])?;
    Ok((clock::now_ns() - began) as f64 / 1e9)
}

/// A file to copy; removed with what it is copied to when this is dropped.
pub(super) struct Plain {
    folder: PathBuf,
    size: u64,
}

impl Plain {
    /// Makes the file, of contents that do not compress.
    pub(super) fn new(scratch: &Path, size: u64) -> Result<Plain, BenchError> {
        let folder = scratch.join(format!("weir-bench-copy-{}", clock::now_ns()));
        let plain = Plain { folder, size };
        plain
            .fill()
            .map_err(BenchError::io("make a file to copy"))?;
        Ok(plain)
    }

    fn fill(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = File::create(self.folder.join("from"))?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut piece = vec![0; PIECE];
        let mut left = self.size;
        while left > 0 {
            for word in piece.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            let want = left.min(PIECE as u64) as usize;
            file.write_all(piece.get(..want).unwrap_or_default())?;
            left -= want as u64;
        }
        file.sync_all()
    }

    /// Copies it; bytes a second.
    pub(super) fn copy(&self) -> Result<f64, BenchError> {
        let failed = || BenchError::io("copy a file through TLS");
        let (server, client) = configs().map_err(failed())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed())?;
        let (from, to) = (self.folder.join("from"), self.folder.join("to"));
        let seconds = std::thread::scope(|scope| {
            let (listener, to) = (&listener, &to);
            let receiver = scope.spawn(move || receive(listener, server, to));
            let seconds = send(listener, client, &from)?;
            let received = receiver.join();
            received.map_err(|_| io::Error::other("the receiver failed"))??;
            io::Result::Ok(seconds)
        });
        let seconds = seconds.map_err(failed())?;
        std::fs::remove_file(&to).map_err(failed())?;
        Ok(self.size as f64 / seconds)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_whole() {
        let scratch = std::env::temp_dir();
        let plain = Plain::new(&scratch, (3 << 20) + 17).unwrap();
        let (server, client) = configs().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (from, to) = (plain.folder.join("from"), plain.folder.join("kept"));
        std::thread::scope(|scope| {
            let (listener, to) = (&listener, &to);
            let receiver = scope.spawn(move || receive(listener, server, to));
            send(listener, client, &from).unwrap();
            receiver.join().unwrap().unwrap();
        });
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        assert!(plain.copy().unwrap() > 0.0);
    }
}
