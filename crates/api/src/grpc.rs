//! Reply to callers over gRPC until it is served: it says at once, and in a form that their
//! libraries show, that this is REST.
//!
//! The client libraries of Python and Go speak gRPC unless configured otherwise, and gRPC is
//! HTTP/2. Against a server of HTTP/1 they report `Socket closed`, or try again until their
//! deadline. The least that says more is a response of trailers only
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>): one HEADERS frame with
//! grpc-status UNIMPLEMENTED and a message, for whatever is called. It is the same for all calls,
//! so requests are not decoded. Of HTTP/2 (RFC 9113) this takes the frame headers, of HPACK (RFC
//! 7541) literals without indexing. No token is asked for, as the reply is only the constant. What
//! arrives is bounded in bytes and in time.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// First bytes of a client of HTTP/2 (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Name of HTTP/2 in TLS's handshake (RFC 7301).
pub const ALPN: &[u8] = b"h2";

/// Message for people; percent-encoding (gRPC over HTTP/2, "Status-Message") leaves all of it as it
/// is.
const MESSAGE: &str =
    "this server speaks REST, not gRPC: Python NetAppClient(transport='rest'), Go NewRESTClient";
/// A connection may last so long, and bring so many bytes: hundreds of calls.
const TIME: Duration = Duration::from_secs(10);
const MOST: usize = 256 << 10;

/// Frames (RFC 9113 §6).
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Maximum length of a frame without any settings to the contrary, in bytes (RFC 9113 §6.5.2).
const MAX_FRAME: usize = 1 << 14;

/// Refuses all calls of a connection behind its preface.
pub async fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin) {
    if let Ok(Err(e)) = tokio::time::timeout(TIME, converse(stream)).await {
        tracing::debug!("a caller over gRPC: {e}");
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut payload = vec![0; MAX_FRAME];
    let mut read = 0;
    while read < MOST {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(payload) = payload.get_mut(..length) else {
            return Err(io::Error::other("a frame of more than the least size"));
        };
        stream.read_exact(payload).await?;
        read += head.len() + length;
        let id = u32::from_be_bytes(id) & !(1 << 31);
        let reply = match kind {
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(PING, ACK, 0, payload),
            HEADERS | CONTINUATION if flags & END_HEADERS != 0 => {
                frame(HEADERS, END_STREAM | END_HEADERS, id, &trailers())
            }
            GOAWAY => break,
            _ => continue,
        };
        stream.write_all(&reply).await?;
    }
    stream.shutdown().await
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(9 + payload.len());
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Returns the header block: `:status` 200 is entry 8 of the static table (RFC 7541 Appendix A),
/// the rest are literals.
fn trailers() -> Vec<u8> {
    let mut out = vec![0x88];
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "12"),
        ("grpc-message", MESSAGE),
    ] {
        // Without indexing, with a name of its own (§6.2.2); lengths below 127 are one byte (§5.1).
        out.push(0);
        for text in [name, value] {
            debug_assert!(text.len() < 127);
            out.push(u8::try_from(text.len()).unwrap_or(126));
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

const _: () = assert!(MESSAGE.len() < 127);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_is_refused_with_the_way_out() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(refuse(server));
        let mut sent = frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 0]);
        sent.extend(frame(PING, 0, 0, b"12345678"));
        // A call whose head comes in two parts, with a body; and another one.
        sent.extend(frame(HEADERS, 0, 1, &[0x82]));
        sent.extend(frame(CONTINUATION, END_HEADERS, 1, &[0x84]));
        sent.extend(frame(0, END_STREAM, 1, b"\0\0\0\0\0"));
        sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x82]));
        sent.extend(frame(GOAWAY, 0, 0, &[0; 8]));
        client.write_all(&sent).await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        let mut expected = frame(SETTINGS, 0, 0, &[]);
        expected.extend(frame(SETTINGS, ACK, 0, &[]));
        expected.extend(frame(PING, ACK, 0, b"12345678"));
        for stream in [1, 3] {
            expected.extend(frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                stream,
                &trailers(),
            ));
        }
        assert_eq!(got, expected);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn what_a_caller_may_cost_is_bounded() {
        // Frames without end.
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(refuse(server));
        let junk = frame(0xee, 0, 0, &[0; MAX_FRAME]);
        let mut sent = 0;
        while client.write_all(&junk).await.is_ok() {
            sent += junk.len();
        }
        assert!(sent < MOST + (1 << 17), "{sent}");
        serving.await.unwrap();
        // A frame that is too large.
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(refuse(server));
        client.write_all(&[0xff; 9]).await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, frame(SETTINGS, 0, 0, &[]));
        serving.await.unwrap();
    }
}
