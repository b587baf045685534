//! A connection to a server, as a channel of a session: what numbers, signs and encrypts its
//! messages.
//!
//! Requests of one operation leave as one chain, related to its first: so an open, a write and a
//! close are one message, as clients that know what they want send them. A connection spends a
//! credit for each 64 KiB of a request (MS-SMB2 §3.1.5.2) and asks for as many as keep its pipeline
//! full.

use super::args::Protection;
use super::crypto::{self, Cipher, Key, Preauth, Sealer, Signer, Signing, utf16};
use super::wire::{
    Bytes, HEADER, PROTOCOL, Request, Response, SEALED, TRANSFORM, flag, malformed, put16, put32,
    status, status_name,
};
use crate::error::BenchError;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Credits that a connection wants to hold.
const CREDITS: u32 = 2048;
/// The command that 3.1.1 has signed even where nothing else is (MS-SMB2 §3.2.4.1.1).
const TREE_CONNECT: u16 = 3;
/// Longest message that is taken from a server, in bytes.
pub const MAX_MESSAGE: usize = 9 << 20;

/// Account that logs on, and the protection of its messages.
#[derive(Clone)]
pub struct Account {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// Protection of messages.
    pub protection: Protection,
    /// Signing algorithm, if they are signed.
    pub signing: Signing,
    /// Cipher, if they are encrypted.
    pub cipher: Cipher,
    /// Longest wait for a response before and after the measurement.
    pub timeout: Duration,
}

/// State that the channels of a session share.
pub struct Session {
    id: u64,
    tree: u32,
    /// Signer of its first connection, and of the requests that bind others to it.
    first: Signer,
    sealer: Option<Sealer>,
}

/// A connection that has logged on, or been bound to a session.
pub struct Link {
    /// Blocking, with the account's timeout; the engine's calls say each that they do not wait
    /// (MSG_DONTWAIT).
    pub stream: TcpStream,
    account: Account,
    session: Option<Arc<Session>>,
    signer: Option<Signer>,
    /// The number of the next message.
    pub next: u64,
    /// Credits that it holds.
    pub credits: u32,
    /// Nonces of what is encrypted: the channel's number and a count.
    channel: u32,
    sealed: u64,
    /// Greatest READ, WRITE and listing, in bytes.
    pub limits: [u32; 3],
}

/// A body with a security token: SESSION_SETUP.
fn setup(token: &[u8], binds: bool, must_sign: bool) -> Vec<u8> {
    let mut body = Vec::new();
    put16(&mut body, [25]);
    body.extend_from_slice(&[u8::from(binds), if must_sign { 2 } else { 1 }]);
    put32(&mut body, [0, 0]);
    put16(&mut body, [HEADER as u16 + 24, token.len() as u16]);
    put32(&mut body, [0, 0]);
    body.extend_from_slice(token);
    body
}

/// NEGOTIATE of 3.1.1 alone.
fn negotiate(account: &Account, guid: &[u8; 16], salt: u64) -> Vec<u8> {
    let must_sign = account.protection != Protection::None;
    let mut body = Vec::new();
    put16(&mut body, [36, 1, if must_sign { 2 } else { 1 }, 0]);
    // Large requests, several channels, encryption.
    put32(&mut body, [0x4 | 0x8 | 0x40]);
    body.extend_from_slice(guid);
    let count = 3;
    put32(&mut body, [HEADER as u32 + 40]);
    put16(&mut body, [count, 0, 0x0311, 0]);
    let mut context = |kind: u16, data: &[u8]| {
        body.resize(body.len().next_multiple_of(8), 0);
        put16(&mut body, [kind, data.len() as u16]);
        put32(&mut body, [0]);
        body.extend_from_slice(data);
    };
    let mut integrity = Vec::new();
    put16(&mut integrity, [1, 32, 1]);
    integrity.extend_from_slice(&[salt.to_le_bytes(); 4].concat());
    context(1, &integrity);
    let two = |value: u16| [1u16.to_le_bytes(), value.to_le_bytes()].concat();
    context(2, &two(account.cipher as u16));
    context(8, &two(account.signing as u16));
    body
}

/// Result of NEGOTIATE.
struct NegotiatedTerms {
    must_sign: bool,
    limits: [u32; 3],
    cipher: Option<u16>,
    signing: u16,
}

fn agreed(response: &Response<'_>) -> Result<NegotiatedTerms, BenchError> {
    let body = Bytes(
        response
            .bytes
            .slice_at(HEADER, response.bytes.0.len() - HEADER)?,
    );
    if body.u16(0)? != 65 || body.u16(4)? != 0x0311 {
        return Err(BenchError::Usage(
            "the server does not speak SMB 3.1.1".into(),
        ));
    }
    let limits = [body.u32(32)?, body.u32(36)?, body.u32(28)?];
    let mut out = NegotiatedTerms {
        must_sign: body.u16(2)? & 2 != 0,
        limits,
        cipher: None,
        // Where the server does not choose (§3.2.5.2).
        signing: Signing::Cmac as u16,
    };
    let mut at = body.u32(60)? as usize;
    for _ in 0..body.u16(6)? {
        let (kind, len) = (
            response.bytes.u16(at)?,
            usize::from(response.bytes.u16(at + 2)?),
        );
        let data = Bytes(response.bytes.slice_at(at + 8, len)?);
        match kind {
            2 => out.cipher = Some(data.u16(2)?),
            8 => out.signing = data.u16(2)?,
            _ => {}
        }
        at = (at + 8 + len).next_multiple_of(8);
    }
    Ok(out)
}

impl Link {
    /// A connection that becomes a channel: of a session of its own, or of `binds`. `number`: of
    /// the channel in its session.
    pub fn new(
        stream: TcpStream,
        account: &Account,
        guid: &[u8; 16],
        binds: Option<Arc<Session>>,
        number: u32,
        salt: u64,
    ) -> Result<Self, BenchError> {
        let io = || BenchError::io("socket options");
        stream.set_nodelay(true).map_err(io())?;
        stream
            .set_read_timeout(Some(account.timeout))
            .map_err(io())?;
        let mut link = Self {
            stream,
            account: account.clone(),
            session: None,
            signer: None,
            next: 0,
            credits: 1,
            channel: number,
            sealed: 0,
            limits: [0; 3],
        };
        let mut preauth = Preauth::NONE;
        let body = negotiate(account, guid, salt);
        let (request, response) = link.exchange_setup(&Request::Plain(0, &body), None, 0)?;
        preauth.add(&request);
        preauth.add(&response);
        let (first, _) = Response::take(&response)?;
        expect("NEGOTIATE", &first, 0)?;
        let agreed = agreed(&first)?;
        link.limits = agreed.limits;
        link.accept(&agreed)?;

        let binding = binds.as_deref();
        let id = binding.map_or(0, |session| session.id);
        let must_sign = account.protection != Protection::None;
        let body = setup(&crypto::ntlm_negotiate(), binding.is_some(), must_sign);
        let (request, response) = link.exchange_setup(&Request::Plain(1, &body), binding, id)?;
        preauth.add(&request);
        preauth.add(&response);
        let (first, _) = Response::take(&response)?;
        expect("SESSION_SETUP", &first, status::MORE_PROCESSING_REQUIRED)?;
        let id = first.session;
        let challenge = first.security()?;
        let (token, key) = crypto::ntlm_authenticate(
            challenge,
            &account.user,
            &account.password,
            salt.to_be_bytes(),
        )
        .ok_or_else(|| malformed("challenge of NTLM"))?;
        let body = setup(&token, binding.is_some(), must_sign);
        let (request, response) = link.exchange_setup(&Request::Plain(1, &body), binding, id)?;
        preauth.add(&request);
        let (last, _) = Response::take(&response)?;
        expect("SESSION_SETUP", &last, 0)?;
        link.believe(&last, &key, &preauth)?;
        match binds {
            Some(session) => link.session = Some(session),
            None => link.begin(id, &key, &preauth)?,
        }
        Ok(link)
    }

    /// Returns true if what was negotiated is what was asked for.
    fn accept(&self, agreed: &NegotiatedTerms) -> Result<(), BenchError> {
        let a = &self.account;
        let refused = match a.protection {
            Protection::None if agreed.must_sign => {
                "the server wants signatures: --protection sign or encrypt".into()
            }
            Protection::Encrypt if agreed.cipher != Some(a.cipher as u16) => {
                format!("the server does not encrypt by {:?}", a.cipher)
            }
            // What binds a channel, and the end of a setup, is signed always.
            _ if agreed.signing != a.signing as u16 => {
                format!("the server does not sign by {:?}", a.signing)
            }
            _ => return Ok(()),
        };
        Err(BenchError::Usage(refused))
    }

    /// Checks the signature of the response that ends a setup, which the new key makes.
    fn believe(
        &mut self,
        last: &Response<'_>,
        key: &Key,
        preauth: &Preauth,
    ) -> Result<(), BenchError> {
        let signer = Signer::new(self.account.signing, key, preauth);
        let mut message = last.bytes.0.to_vec();
        if last.flags & flag::SIGNED == 0 || !verify(&signer, &mut message) {
            return Err(BenchError::Protocol(
                "the end of SESSION_SETUP is not signed as it should".into(),
            ));
        }
        self.signer = Some(signer);
        Ok(())
    }

    /// Makes the session that this connection is the first channel of.
    fn begin(&mut self, id: u64, key: &Key, preauth: &Preauth) -> Result<(), BenchError> {
        let sealer = (self.account.protection == Protection::Encrypt)
            .then(|| Sealer::new(self.account.cipher, key, preauth));
        self.session = Some(Arc::new(Session {
            id,
            tree: 0,
            first: Signer::new(self.account.signing, key, preauth),
            sealer,
        }));
        Ok(())
    }

    /// Connects to a share: the session as others are bound to it. To be called on its first
    /// channel, before there are others.
    pub fn connect(&mut self, server: &str, share: &str) -> Result<Arc<Session>, BenchError> {
        let path = utf16(&format!("\\\\{server}\\{share}"));
        let mut body = Vec::new();
        put16(&mut body, [9, 0, HEADER as u16 + 8, path.len() as u16]);
        body.extend_from_slice(&path);
        let mut tree = 0;
        self.call(
            "TREE_CONNECT",
            &[Request::Plain(TREE_CONNECT, &body)],
            |_, response| {
                tree = response.tree;
                Ok(())
            },
        )?;
        let session = self.session.take();
        let Some(Ok(session)) = session.map(Arc::try_unwrap) else {
            return Err(BenchError::Usage("a session with channels already".into()));
        };
        let session = Arc::new(Session { tree, ..session });
        self.session = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Asks for credits, by ECHO, until it holds `goal` or the server grants no more: a request
    /// that costs more than are there would wait for ever if nothing else were in flight.
    pub fn stock(&mut self, goal: u32) -> Result<(), BenchError> {
        while self.credits < goal.min(CREDITS) {
            let before = self.credits;
            self.call("ECHO", &[Request::Echo], |_, _| Ok(()))?;
            if self.credits <= before {
                break;
            }
        }
        Ok(())
    }

    /// Sends a request before there is a session on the connection, signed by the session that it
    /// is to be bound to; both messages.
    fn exchange_setup(
        &mut self,
        request: &Request<'_>,
        binds: Option<&Session>,
        session: u64,
    ) -> Result<(Vec<u8>, Vec<u8>), BenchError> {
        let mut out = vec![0; 4];
        let header = Header {
            request,
            number: self.next,
            session,
            tree: 0,
            flags: 0,
            credits: 32,
        };
        header.put(&mut out);
        if let Some(session) = binds {
            sign(&session.first, &mut out[4..]);
        }
        self.next += 1;
        self.credits -= 1;
        frame(&mut out, 0);
        self.stream
            .write_all(&out)
            .map_err(BenchError::io("send"))?;
        let response = self.receive()?;
        let (first, _) = Response::take(&response)?;
        self.credits += u32::from(first.credits);
        out.drain(..4);
        Ok((out, response))
    }

    /// Credits that these requests cost.
    pub fn cost(requests: &[Request<'_>]) -> u32 {
        requests.iter().map(|r| u32::from(r.charge())).sum()
    }

    /// Appends a chain of requests to `out`; the numbers of its messages are `self.next` and on.
    /// The credits must be there.
    pub fn put(&mut self, out: &mut Vec<u8>, requests: &[Request<'_>]) {
        let Some(session) = self.session.clone() else {
            unreachable!("a chain before the session");
        };
        let start = out.len();
        out.resize(start + 4, 0);
        let sealer = session.sealer.as_ref();
        if sealer.is_some() {
            out.resize(start + 4 + TRANSFORM, 0);
        }
        let body = out.len();
        // A server refuses a TREE_CONNECT of 3.1.1 that is neither signed nor encrypted (MS-SMB2
        // §3.3.5.7).
        let connects = matches!(requests, [Request::Plain(TREE_CONNECT, _), ..]);
        let signs = match self.account.protection {
            Protection::None => connects,
            Protection::Sign => true,
            Protection::Encrypt => false,
        };
        let want = CREDITS.saturating_sub(self.credits).min(128) as u16;
        for (n, request) in requests.iter().enumerate() {
            let at = out.len();
            let header = Header {
                request,
                number: self.next,
                session: session.id,
                tree: session.tree,
                flags: if n > 0 { flag::RELATED } else { 0 },
                credits: request.charge() + want,
            };
            header.put(out);
            self.next += u64::from(request.charge());
            self.credits -= u32::from(request.charge());
            if n + 1 < requests.len() {
                let len = (out.len() - at).next_multiple_of(8);
                out.resize(at + len, 0);
                out[at + 20..at + 24].copy_from_slice(&(len as u32).to_le_bytes());
            }
            if let Some(signer) = self.signer.as_ref().filter(|_| signs) {
                sign(signer, &mut out[at..]);
            }
        }
        if let Some(sealer) = sealer {
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&self.channel.to_le_bytes());
            nonce[4..].copy_from_slice(&self.sealed.to_le_bytes());
            self.sealed += 1;
            let len = (out.len() - body) as u32;
            let (head, data) = out[start + 4..].split_at_mut(TRANSFORM);
            head[..4].copy_from_slice(&SEALED);
            head[20..32].copy_from_slice(&nonce);
            head[36..40].copy_from_slice(&len.to_le_bytes());
            head[42] = 1;
            head[44..].copy_from_slice(&session.id.to_le_bytes());
            let code = sealer.seal(nonce, &head[20..], data);
            head[4..20].copy_from_slice(&code);
        }
        frame(out, start);
    }

    /// Checks and decrypts a message in place, and hands out its responses.
    pub fn take(
        &mut self,
        message: &mut [u8],
        mut each: impl FnMut(&mut Self, Response<'_>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let sealed = message.starts_with(&SEALED);
        let mut rest = match sealed {
            true => self.open(message)?,
            false => message,
        };
        loop {
            let (head, next) = {
                let (response, next) = Response::take(rest)?;
                // Breaks, which nothing here asks for, and what says that something goes on.
                (
                    (response.message, response.flags, response.is_interim()),
                    next,
                )
            };
            let (this, after) = match next {
                0 => (rest, &mut [][..]),
                next => rest.split_at_mut(next),
            };
            let (number, flags, interim) = head;
            let unasked = number == u64::MAX;
            match self.account.protection {
                Protection::None => {}
                _ if unasked || interim => {}
                Protection::Encrypt if sealed => {}
                Protection::Encrypt => {
                    return Err(BenchError::Protocol("a response is not encrypted".into()));
                }
                Protection::Sign => {
                    let good = flags & flag::SIGNED != 0
                        && self.signer.as_ref().is_some_and(|s| verify(s, this));
                    if !good {
                        return Err(BenchError::Protocol(
                            "a response without its signature".into(),
                        ));
                    }
                }
            }
            let (mut response, _) = Response::take(this)?;
            // The rest of a chain is not this response's.
            response.bytes = Bytes(this);
            self.credits += u32::from(response.credits);
            if !unasked && !interim {
                each(self, response)?;
            }
            if next == 0 {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Decrypts a message in place.
    fn open<'m>(&self, message: &'m mut [u8]) -> Result<&'m mut [u8], BenchError> {
        let session = self.session.as_deref();
        let sealer = session.and_then(|session| session.sealer.as_ref());
        let sealer = sealer.ok_or_else(|| BenchError::Protocol("encrypted, unasked".into()))?;
        let (head, data) = message
            .split_at_mut_checked(TRANSFORM)
            .ok_or_else(|| malformed("encrypted message"))?;
        let bytes = Bytes(head);
        let (code, nonce) = (bytes.array(4)?, bytes.array(20)?);
        match sealer.open(nonce, &head[20..], code, data) {
            true => Ok(data),
            false => Err(BenchError::Protocol(
                "a message that the server did not encrypt".into(),
            )),
        }
    }

    /// Receives one message, and waits for it.
    fn receive(&mut self) -> Result<Vec<u8>, BenchError> {
        let mut mark = [0; 4];
        let io = || BenchError::io("receive");
        self.stream.read_exact(&mut mark).map_err(io())?;
        let mut message = vec![0; length(mark)?];
        self.stream.read_exact(&mut message).map_err(io())?;
        Ok(message)
    }

    /// Sends a chain and waits for its responses, which must all have succeeded; `each` gets them
    /// with their places.
    pub fn call(
        &mut self,
        what: &'static str,
        requests: &[Request<'_>],
        mut each: impl FnMut(usize, Response<'_>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut out = Vec::new();
        let first = self.next;
        self.put(&mut out, requests);
        self.stream
            .write_all(&out)
            .map_err(BenchError::io("send"))?;
        let mut left = requests.len();
        while left > 0 {
            let mut message = self.receive()?;
            self.take(&mut message, |_, response| {
                let place = response.message.wrapping_sub(first) as usize;
                if place >= requests.len() {
                    return Err(BenchError::Protocol("a response to no request".into()));
                }
                left = left.saturating_sub(1);
                expect(what, &response, 0)?;
                each(place, response)
            })?;
        }
        Ok(())
    }
}

/// Bytes of a message, from its mark.
pub fn length(mark: [u8; 4]) -> Result<usize, BenchError> {
    let len = u32::from_be_bytes(mark) as usize;
    match len {
        0..=MAX_MESSAGE => Ok(len),
        _ => Err(BenchError::Protocol(format!("a message of {len} bytes"))),
    }
}

/// Fails with a response's status if it is another.
fn expect(what: &'static str, response: &Response<'_>, status: u32) -> Result<(), BenchError> {
    match response.status {
        found if found == status => Ok(()),
        found => Err(BenchError::Refused(what, status_name(found), found)),
    }
}

/// Header before a request's body.
struct Header<'a> {
    request: &'a Request<'a>,
    number: u64,
    session: u64,
    tree: u32,
    flags: u32,
    credits: u16,
}

impl Header<'_> {
    /// Appends the header and the body.
    fn put(&self, out: &mut Vec<u8>) {
        let related = self.flags & flag::RELATED != 0;
        out.extend_from_slice(&PROTOCOL);
        put16(out, [HEADER as u16, self.request.charge(), 0, 0]);
        put16(out, [self.request.command(), self.credits]);
        put32(out, [self.flags, 0]);
        out.extend_from_slice(&self.number.to_le_bytes());
        put32(out, [0xfeff, if related { u32::MAX } else { self.tree }]);
        let session = if related { u64::MAX } else { self.session };
        out.extend_from_slice(&session.to_le_bytes());
        out.resize(out.len() + 16, 0);
        self.request.put(out);
    }
}

/// Writes the mark of the message that began at `start` with room for it.
fn frame(out: &mut [u8], start: usize) {
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

fn sign(signer: &Signer, message: &mut [u8]) {
    message[16] |= flag::SIGNED as u8;
    let signature = signer.sign(message);
    message[48..HEADER].copy_from_slice(&signature);
}

/// Returns true if a message, whose signature is zeroed by this, is signed as it should.
fn verify(signer: &Signer, message: &mut [u8]) -> bool {
    let mut signature: Key = [0; 16];
    signature.copy_from_slice(&message[48..HEADER]);
    message[48..HEADER].fill(0);
    signer.sign(message) == signature
}

impl<'a> Response<'a> {
    /// SESSION_SETUP's token.
    fn security(&self) -> Result<&'a [u8], BenchError> {
        let at = usize::from(self.bytes.u16(HEADER + 4)?);
        let len = usize::from(self.bytes.u16(HEADER + 6)?);
        self.bytes.slice_at(at, len)
    }
}
