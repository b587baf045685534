//! The connection between the two nodes. Side B connects, whichever of the two is primary, over TLS
//! between the certificates that they know each other by; a newer connection takes the place of an
//! older one.
//!
//! Each side begins with the state and position of its copy. The primary then announces the
//! position at which it resumes ([`Message::Join`]) and sends entries as long as there are any. One
//! write carries all that have gathered since the last, so batches form by themselves.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use weir_mirror::wire::{self, CopyState, Decoder, Greeting, Message};
use weir_mirror::{Register, Role, Side};
use weir_volume::{Advance, Carrier, ChangeStream, Entry, MarkId, Sequence, Stop, StreamPosition};

use super::advance::{self, ReceivedAdvances, SentAdvances, WireMessage};
use super::config::{Config, Mode, State};
use super::connection::Hello;
use super::fault::{self, Fault, RefusalError};
use super::feed::{Feed, FeedEntry, TakeOutcome};
use super::incoming_files::IncomingFile;
use super::own_register;
use super::pair::{Inner, Pair};
use super::restart::begin_anew;
use super::standby::ReceivedEntry;
use weir_peer_link::door::Door;
use weir_peer_link::identity::{AdmittedCertificates, in_words};
use weir_peer_link::stream::secure;

/// Maximum time that a partner may take to show its certificate and to greet.
const GREETING: Duration = Duration::from_secs(3);
/// Delay between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);
/// Role polling interval.
const KNOWN: Duration = Duration::from_millis(5);
/// Delay after a refusal.
const REFUSED: Duration = Duration::from_secs(1);
/// Read buffer size in bytes. TLS delivers at most [`RECORD`] bytes per call.
const READ: usize = 256 << 10;
const RECORD: usize = 16 << 10;
/// Maximum number of bytes that TLS buffers for the socket. A whole batch fits and is written with
/// one call.
const BUFFER: usize = 1 << 20;
/// Maximum bytes and number of entries per write.
const WRITE: i64 = 512 << 10;
const ENTRIES: usize = 64;

/// Adds a read buffer. TLS by itself reads 4 KiB at a time, which takes three system calls for an
/// entry of 8 KiB and fifty for the entries of 24 writes.
fn buffered(stream: TcpStream) -> BufReader<TcpStream> {
    BufReader::with_capacity(READ, stream)
}

/// Connects to the partner or accepts its connections, for as long as the process runs.
pub async fn run(pair: &Arc<Pair>, listener: Option<TcpListener>) {
    let outcome = match listener {
        Some(listener) => accept(pair, listener).await,
        None => dial(pair).await,
    };
    if let Err(error) = outcome {
        tracing::error!("cannot reach the partner any more: {error:#}");
    }
}

fn known(pair: &Pair) -> String {
    pair.config.partner.clone().unwrap_or_default()
}

async fn accept(pair: &Arc<Pair>, listener: TcpListener) -> Result<()> {
    let config = pair
        .identity
        .server(AdmittedCertificates::These(vec![known(pair)]))?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let door = Arc::new(Door::default());
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept the partner's connection");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let (pair, config) = (Arc::clone(pair), Arc::clone(&config));
        let guest = door.enter(from.ip());
        tokio::spawn(async move {
            let greeted = async {
                stream.set_nodelay(true)?;
                TlsAcceptor::from(config).accept(buffered(stream)).await
            };
            match guest.greet(greeted).await {
                Some(Ok(mut tls)) => {
                    guest.admitted();
                    tls.get_mut().1.set_buffer_limit(Some(BUFFER));
                    converse(&pair, tls).await;
                }
                _ => {
                    tracing::info!(%from, "refused a connection: no certificate of the partner's")
                }
            }
        });
    }
}

async fn dial(pair: &Arc<Pair>) -> Result<()> {
    let config = pair.identity.client(&known(pair))?;
    let address = pair.config.partner_address.clone();
    let address = address.context("side b of a pair has no address to connect to")?;
    loop {
        match timeout(GREETING, TcpStream::connect(&address)).await {
            Ok(Ok(stream)) => {
                // Without this, it is slower.
                let _ = stream.set_nodelay(true);
                let greeted = secure(Arc::clone(&config), buffered(stream));
                match timeout(GREETING, greeted).await {
                    Ok(Ok(mut tls)) => {
                        tls.get_mut().1.set_buffer_limit(Some(BUFFER));
                        converse(pair, tls).await;
                    }
                    Ok(Err(error)) => pair.note_passing(format!(
                        "{address} does not show the partner's certificate, or does not accept this node's: {}",
                        in_words(&error.into())
                    )),
                    Err(_) => pair.note_passing(format!("{address} does not greet")),
                }
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Its machine replies that no process listens.
                pair.with(|node, now| node.partner_gone(now));
            }
            Ok(Err(error)) => pair.note_passing(format!("{address}: {error}")),
            Err(_) => pair.note_passing(format!("{address} does not reply")),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn refused(why: &str) -> anyhow::Error {
    RefusalError(format!("the partner refuses: {why}")).into()
}

/// Runs one connection to its end.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(pair: &Arc<Pair>, stream: S) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut decoder = Decoder::default();
    let greeting = async {
        // The position is known only once everything received is applied.
        let waits = Arc::clone(&pair.standby);
        tokio::task::spawn_blocking(move || waits.drain()).await?;
        let greeting = Arc::clone(pair);
        let greeting = tokio::task::spawn_blocking(move || greeting.greets()).await?;
        writer.write_all(&greeting.encode()).await?;
        writer.flush().await?;
        loop {
            if let Some(message) = decoder.pop()? {
                return pair.greeted(message);
            }
            let mut some = [0; 256];
            match reader.read(&mut some).await? {
                0 => bail!("cannot greet the partner: connection closed"),
                n => decoder.push(some.get(..n).unwrap_or_default()),
            }
        }
    };
    let number = match timeout(GREETING, greeting).await {
        Ok(Ok(number)) => number,
        Ok(Err(error)) => {
            let why = in_words(&error);
            let refusal = Message::Refusal(why.clone()).encode();
            // The other side may be gone.
            let _ = writer.write_all(&refusal).await;
            let _ = writer.flush().await;
            pair.inner.lock().note_fault(fault::from_error(&error, ""));
            return pair.wait_if_refused().await;
        }
        Err(_) => return pair.note_passing("the partner does not greet".to_owned()),
    };
    let ended = tokio::select! {
        ended = read(pair, number, &mut reader, decoder) => ended,
        ended = write(pair, number, &mut writer) => ended,
    };
    if let Err(error) = ended {
        let fault = fault::from_error(&error, "the connection to the partner is over: ");
        pair.inner.lock().note_fault(fault);
    }
    pair.unlinked(number);
    pair.wait_if_refused().await;
}

async fn read(
    pair: &Arc<Pair>,
    number: u64,
    reader: &mut (impl AsyncRead + Unpin),
    mut decoder: Decoder,
) -> Result<()> {
    let mut incoming = IncomingFile::default();
    let mut arrived = ReceivedAdvances::new(pair.standby.ahead());
    loop {
        // Entries that have come together are applied, logged and acknowledged together.
        let mut entries = VecDeque::new();
        while let Some(message) = decoder.pop()? {
            match message {
                Message::Entry {
                    term,
                    sequence,
                    meta,
                    mut pages,
                    advance,
                } => {
                    let at = StreamPosition { term, sequence };
                    let ahead = match advance {
                        Some(before) => arrived.join(before, &mut pages)?,
                        None => None,
                    };
                    entries.push_back(ReceivedEntry {
                        at,
                        meta,
                        pages,
                        ahead,
                    });
                }
                Message::Advance { id, pages } => {
                    arrived.keep(id, pages, |pages| pair.standby.place(&pair.engine, pages))?;
                }
                Message::Back { id } => arrived.forget(id),
                message => {
                    pair.receives(number, std::mem::take(&mut entries)).await?;
                    pair.hears(number, message, &mut incoming).await?;
                }
            }
        }
        pair.receives(number, entries).await?;
        let mut taken = reader.read_buf(decoder.room(RECORD)).await?;
        let mut all = 0;
        loop {
            if taken == 0 {
                bail!("closed by the partner");
            }
            all += taken;
            if all >= READ {
                break;
            }
            // TLS hands out one record at a time, whatever has come.
            let more = tokio::select! {
                biased;
                more = reader.read_buf(decoder.room(RECORD)) => more,
                () = std::future::ready(()) => break,
            };
            taken = more?;
        }
    }
}

/// Data that the link writes next.
struct Next {
    small: Vec<u8>,
    term: u64,
    joined: Option<u64>,
    stream: Option<Arc<ChangeStream>>,
    feed: Option<Arc<Feed>>,
    closing: bool,
    /// Maximum number of bytes that the partner keeps in advance of their entries.
    ahead: u32,
}

async fn write(
    pair: &Arc<Pair>,
    number: u64,
    writer: &mut (impl AsyncWrite + Unpin),
) -> Result<()> {
    let mut sent: Option<u64> = None;
    let (mut carrier, mut carried) = (None, SentAdvances::new(0));
    loop {
        let next = pair.next_words(number)?;
        if let Some(why) = pair.standby.failure() {
            // The primary does not wait for this side any more.
            writer
                .write_all(&Message::Refusal(why.clone()).encode())
                .await?;
            writer.flush().await?;
            bail!("{why}");
        }
        let mut round = Vec::new();
        if let Some(feed) = &next.feed {
            match feed.take(WRITE as usize) {
                TakeOutcome::Entries(entries) => round = entries,
                TakeOutcome::Nothing => {}
                TakeOutcome::Whole(follow) => pair.round_sent(number, follow),
                TakeOutcome::Failed(why) => pair.round_failed(number, &why),
            }
        }
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        if let (Some(stream), Some(from)) = (&next.stream, next.joined) {
            let at = sent.get_or_insert(from);
            let mut bytes = 0;
            while let Some(entry) = (entries.len() < ENTRIES && bytes < WRITE)
                .then(|| stream.after(Sequence(*at)))
                .flatten()
            {
                *at = entry.sequence.0;
                bytes += entry.weight();
                entries.push(entry);
            }
            if entries.is_empty() && (stream.is_overrun() || *at < stream.acknowledged().0) {
                bail!("cannot send the next entries: not in memory any more");
            }
        }
        let carries = next.stream.as_ref().filter(|_| next.joined.is_some());
        if let Some(stream) =
            carries.filter(|s| !carrier.as_ref().is_some_and(|c: &Carrier| c.is_of(s)))
        {
            (carrier, carried) = (Some(Carrier::new(stream)), SentAdvances::new(next.ahead));
        }
        let advances: Vec<Advance> = carrier
            .iter()
            .flat_map(Carrier::take)
            .filter(|advance| carried.admits(advance))
            .collect();
        // Messages queued before an entry travel before it, such as a file whose arrival the
        // entry's acknowledgement confirms.
        let mut small = next.small;
        let more = pair.next_words(number)?;
        small.extend(more.small);
        if !small.is_empty() {
            writer.write_all(&small).await?;
        }
        if next.closing || more.closing {
            writer.flush().await?;
            // The side that closes first loses what the other has not read.
            let _ = timeout(GREETING, writer.shutdown()).await;
            return Ok(());
        }
        if !round.is_empty() {
            let front =
                |e: &FeedEntry| wire::entry_front(e.at.term, e.at.sequence, &e.meta, &e.sums);
            let all: Vec<WireMessage<'_>> = round
                .iter()
                .map(|e| (front(e), &e.pages[..], &[][..]))
                .collect();
            write_together(writer, &all).await?;
        }
        if !(entries.is_empty() && advances.is_empty()) {
            let mut all: Vec<WireMessage<'_>> = advances.iter().map(advance::outgoing).collect();
            all.extend(entries.iter().map(|entry| carried.entry(next.term, entry)));
            let bytes = write_together(writer, &all).await?;
            pair.service.traffic().send(bytes);
        }
        let wrote =
            !(small.is_empty() && round.is_empty() && entries.is_empty() && advances.is_empty());
        if wrote {
            writer.flush().await?;
            pair.sent(number);
            continue;
        }
        // Before the last check: an entry that is added after it wakes this task.
        if let Some(stream) = &next.stream {
            stream.rest();
            if sent.is_some_and(|at| stream.after(Sequence(at)).is_some())
                || carrier.as_ref().is_some_and(|carrier| !carrier.is_idle())
            {
                continue;
            }
        }
        pair.send.notified().await;
    }
}

/// Writes all messages, with one vectored write as far as the socket takes them. Returns the number
/// of bytes.
async fn write_together(
    writer: &mut (impl AsyncWrite + Unpin),
    all: &[WireMessage<'_>],
) -> io::Result<usize> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    for (front, head, tail) in all {
        slices.push(IoSlice::new(front));
        slices.extend(head.iter().chain(*tail).map(|page| IoSlice::new(&page[..])));
    }
    let bytes = slices.iter().map(|slice| slice.len()).sum();
    write_slices(writer, &mut slices).await?;
    Ok(bytes)
}

async fn write_slices(
    writer: &mut (impl AsyncWrite + Unpin),
    slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    let mut rest = slices;
    while !rest.is_empty() {
        match writer.write_vectored(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut rest, n),
        }
    }
    Ok(())
}

impl Pair {
    /// Waits before the next connection if the last one was refused, since that will be refused as
    /// well.
    async fn wait_if_refused(&self) {
        if self.refused() {
            tokio::time::sleep(REFUSED).await;
        }
    }

    /// Returns the entries of this process's stream that a copy lacks although it had reported them
    /// as durable: the first and last sequence number. Such a copy is trusted again once it is
    /// brought up anew.
    fn lost_by(&self, greeting: &Greeting) -> Option<(u64, u64)> {
        if self.config.mode == Mode::Memory || greeting.copy != CopyState::Exact {
            return None;
        }
        let inner = self.inner.lock();
        let acknowledged = inner.partner.stream()?.acknowledged().0;
        let ours = inner.partner.lineage()?.terms.contains(&greeting.term);
        (ours && greeting.sequence < acknowledged).then_some((greeting.sequence, acknowledged))
    }

    /// Compares the clocks as the standby, for a beat that the primary sent at `sent` by its clock.
    /// Refuses the partner if they run at different rates.
    fn compare_clocks(&self, number: u64, sent: Duration) {
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        let Some(link) = inner.partner.numbered(number) else {
            return;
        };
        if let Some(rate) = link.clocks.hear(now, sent) {
            let why = format!(
                "the clocks of the two nodes run apart: a second here takes {rate:.3} seconds there; mend the clock that is wrong, and \
                 start this node again"
            );
            link.refuse(&why);
            inner.note_fault(Fault::Refusal(why.clone()));
            inner.partner.set_clocks_apart(why);
            self.send.notify_one();
        }
    }

    fn greets(&self) -> Message {
        let Hello {
            at,
            copy,
            marks,
            ahead,
        } = self.hello();
        Message::Hello(Greeting {
            aggregate: self.engine.aggregate().id().0,
            version: wire::VERSION,
            term: at.term,
            sequence: at.sequence,
            copy,
            memory: self.config.mode == Mode::Memory,
            ahead,
            marks: marks.iter().map(|mark| mark.0).collect(),
        })
    }

    /// Takes the partner's greeting. Returns the number of the connection, which becomes the
    /// current one.
    fn greeted(self: &Arc<Self>, message: Message) -> Result<u64> {
        let Message::Hello(greeting) = message else {
            return match message {
                Message::Refusal(why) => Err(refused(&why)),
                _ => bail!("cannot greet the partner: its first message is no greeting"),
            };
        };
        if let Some(why) = self.is_refused(&greeting) {
            return Err(RefusalError(why).into());
        }
        let forced = self.config.keeps_register() && {
            own_register::has_met(&self.folder)?;
            let at = StreamPosition {
                term: greeting.term,
                sequence: greeting.sequence,
            };
            // The partner serves or has served changes that this side lacks; its register, sent
            // next, says so.
            at.mark().is_none() && at.term > self.inner.lock().rules.register().term
        };
        let mut inner = self.inner.lock();
        if !forced {
            inner.rules.hear();
        }
        let number = inner.partner.open(Hello {
            at: StreamPosition {
                term: greeting.term,
                sequence: greeting.sequence,
            },
            copy: greeting.copy,
            marks: greeting.marks.into_iter().map(MarkId).collect(),
            ahead: greeting.ahead,
        });
        self.follow_alone(&mut inner);
        tracing::info!("connected to the partner");
        if self.config.keeps_register() {
            let register = inner.rules.register();
            inner.partner.say(&Message::Register(register));
        }
        self.offer(&mut inner);
        // Wakes the writer of an older connection, which then ends.
        self.send.notify_one();
        Ok(number)
    }

    /// Returns the reason to refuse the partner, if there is one.
    fn is_refused(&self, greeting: &Greeting) -> Option<String> {
        let own = self.engine.aggregate().id();
        if greeting.version != wire::VERSION {
            return Some(format!(
                "the two nodes run different versions (of what travels between them: {} there, {} here); give both the same one",
                greeting.version,
                wire::VERSION
            ));
        }
        if greeting.aggregate != own.0 {
            let theirs = uuid::Uuid::from_bytes(greeting.aggregate);
            return Some(format!(
                "the two nodes hold different aggregates ({theirs} there, {own} here): `weir pair delete` on the one that is wrong, and join again"
            ));
        }
        if greeting.memory != (self.config.mode == Mode::Memory) {
            let why = "one node of the pair acknowledges what is durable, the other what it has received: make both with the same --mode";
            return Some(why.to_owned());
        }
        if let Some(why) = self.inner.lock().partner.clocks_apart().cloned() {
            return Some(why);
        }
        let (from, to) = self.lost_by(greeting)?;
        Some(format!(
            "the partner lacks changes {from} to {to}, which it had reported as durable: its disk does not keep what it says it has written. \
             Replace that, then `weir pair resync --everything` on the partner"
        ))
    }

    fn next_words(&self, number: u64) -> Result<Next> {
        let mut inner = self.inner.lock();
        let term = inner.rules.register().term;
        let ack = self.standby.acknowledge(&self.engine);
        let acknowledges =
            |inner: &Inner, term| inner.rules.acknowledges(term) && !inner.rules.stopping();
        let acknowledged = ack.filter(|(term, _)| acknowledges(&inner, *term));
        let link = inner.partner.numbered(number);
        let link = link.context("another connection has taken its place")?;
        if let Some((term, sequence)) =
            acknowledged.filter(|(term, _)| link.receiving == Some(*term))
        {
            link.say(&Message::Ack { term, sequence });
        }
        link.sending |= !link.out.is_empty();
        Ok(Next {
            small: std::mem::take(&mut link.out),
            term,
            joined: link.joined,
            stream: link.stream.clone(),
            feed: link.feed.clone(),
            closing: link.closing,
            ahead: link.hello.ahead,
        })
    }

    fn sent(&self, number: u64) {
        let mut inner = self.inner.lock();
        if let Some(link) = inner.partner.numbered(number) {
            link.sending = false;
        }
    }

    /// Applies entries that have arrived together.
    async fn receives(&self, number: u64, mut entries: VecDeque<ReceivedEntry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        {
            let inner = self.inner.lock();
            let link = inner.partner.link().filter(|link| link.number == number);
            let link = link.context("another connection has taken its place")?;
            // Entries of a term that has ended are dropped; the primary closes the connection.
            entries.retain(|entry| link.receiving == Some(entry.at.term));
            // A node that is about to serve acknowledges nothing, and drops the entries.
            ensure!(
                entries.is_empty() || inner.rules.acknowledges(link.term),
                "cannot apply entries: this node is no standby of term {}",
                link.term
            );
        }
        self.standby.take(&self.engine, &self.send, entries).await
    }

    async fn hears(
        self: &Arc<Self>,
        number: u64,
        message: Message,
        incoming: &mut IncomingFile,
    ) -> Result<()> {
        match message {
            Message::Hello(_) => bail!("unexpected message from the partner: a second greeting"),
            Message::Entry { .. } | Message::Advance { .. } | Message::Back { .. } => {
                unreachable!("entries are received together")
            }
            Message::Ack { term, sequence } => self.acknowledged(number, term, sequence),
            Message::Beat {
                term,
                version,
                sent,
            } => {
                self.compare_clocks(number, sent);
                self.with(|node, now| node.heard_beat(now, term, version, sent));
                Ok(())
            }
            Message::Answer { term, sent } => {
                let mut inner = self.inner.lock();
                inner
                    .partner
                    .set_round_trip(self.clock.monotonic().saturating_sub(sent));
                self.happens(&mut inner, |node, now| {
                    node.heard_answer(now, term, sent);
                    Vec::new()
                });
                Ok(())
            }
            Message::Round { term, mark, base } => {
                self.knows(term).await?;
                let mark = MarkId(mark);
                match base.map(MarkId) {
                    Some(base) => {
                        tracing::info!("resync: this copy is brought from mark {base} to {mark}");
                    }
                    None => tracing::info!("resync: this copy is brought from nothing to {mark}"),
                }
                let mut inner = self.inner.lock();
                ensure!(!inner.rules.serving(), "both sides are primary");
                if let Some(link) = inner.partner.numbered(number) {
                    link.receiving = Some(StreamPosition::at_mark(mark).term);
                    link.term = term;
                    inner.partner.clear_fault();
                }
                Ok(())
            }
            Message::Join { term, sequence } => {
                self.joins(number, StreamPosition { term, sequence }).await
            }
            Message::File {
                name,
                bytes,
                first,
                last,
            } => incoming.take(self, &name, &bytes, first, last),
            Message::HandOver {
                term,
                sequence,
                verifier,
            } => self.takes_over(term, sequence, verifier).await,
            Message::Register(register) => self.is_told(register),
            Message::Verify {
                term,
                mark,
                sequence,
            } => {
                let acknowledges = self.inner.lock().rules.acknowledges(term);
                ensure!(acknowledges, "cannot compare: no standby of term {term}");
                self.is_verified(number, MarkId(mark), sequence);
                Ok(())
            }
            Message::Verified { mark, last, hashes } => {
                self.compares(mark, last, hashes);
                Ok(())
            }
            Message::Connections {
                whole,
                opened,
                closed,
            } => {
                self.service.clients().take(whole, &opened, &closed);
                Ok(())
            }
            Message::Again => {
                let pair = Arc::clone(self);
                tokio::task::spawn_blocking(move || pair.resync(true)).await?
            }
            Message::Refusal(why) => {
                self.with(|node, now| match node.role() {
                    Role::Primary => node.partner_gone(now),
                    _ => Vec::new(),
                });
                Err(refused(&why))
            }
        }
    }

    /// Takes the register of a pair without a witness. If both sides keep one, that with the newer
    /// term has the last word, and this node starts again as the other side's standby.
    fn is_told(&self, register: Register) -> Result<()> {
        let mut inner = self.inner.lock();
        if !self.config.keeps_register() {
            inner.rules.tell(register);
            return Ok(());
        }
        // Both sides keep a register: a user has made the other side take over by hand.
        if register.term <= inner.rules.register().term {
            return Ok(());
        }
        let config = Config {
            preferred: Some(Side::from(self.config.side).other().into()),
            ..self.config.clone()
        };
        config.write(&self.folder)?;
        begin_anew("a user has had the partner take over, and it has the last word now")
    }

    /// Waits until the rules know that this node is a standby of the term; a node that has just
    /// started may not know yet.
    async fn knows(&self, term: u64) -> Result<()> {
        let knows = async {
            while !self.inner.lock().rules.acknowledges(term) {
                tokio::time::sleep(KNOWN).await;
            }
        };
        timeout(GREETING, knows)
            .await
            .context("cannot follow the partner: this node does not know yet that it is a standby")
    }

    /// Joins the stream at `at`, the position of this copy in it.
    async fn joins(self: &Arc<Self>, number: u64, at: StreamPosition) -> Result<()> {
        self.knows(at.term).await?;
        let pair = Arc::clone(self);
        tokio::task::spawn_blocking(move || -> Result<()> {
            pair.standby.drain();
            // Left by a primary that has handed over and serves again.
            pair.engine.take_verifier(None);
            let now = pair.engine.position();
            if at < now {
                bail!("cannot join: the partner resumes at {at:?}, and this copy is at {now:?}");
            }
            while at != pair.engine.position() {
                match pair.engine.note_position(at) {
                    Ok(lsn) => pair.engine.wait_durable(Some(lsn))?,
                    Err(Stop::Wait(_)) => pair.engine.cp_now()?,
                    Err(stop) => bail!("{stop:?}"),
                }
            }
            pair.is_exact()
        })
        .await??;
        let mut inner = self.inner.lock();
        if inner.rules.serving()
            || inner.rules.side() == Side::A && inner.rules.role() == Role::Alone
        {
            bail!("both sides are primary");
        }
        if let Some(link) = inner.partner.numbered(number) {
            link.receiving = Some(at.term);
            link.term = at.term;
            inner.partner.clear_fault();
            self.happens(&mut inner, |node, now| node.has_everything(now, at.term));
        }
        Ok(())
    }

    /// Records that this copy is exactly at its position, which is durable.
    fn is_exact(&self) -> Result<()> {
        let was = self.inner.lock().rules.state();
        if was.open || was.lacking {
            let state = State::new(was.register(), false);
            state.write(&self.folder)?;
            self.inner.lock().rules.set_state(state);
        }
        self.standby.is_at_a_place();
        Ok(())
    }

    /// Takes over from a primary that has ceased to serve; `sequence` is its last entry.
    async fn takes_over(
        self: &Arc<Self>,
        term: u64,
        sequence: u64,
        verifier: Option<u64>,
    ) -> Result<()> {
        let waits = Arc::clone(&self.standby);
        tokio::task::spawn_blocking(move || waits.drain()).await?;
        let at = self.engine.position();
        if at.sequence < sequence {
            bail!(
                "cannot take over: the partner has handed over at {sequence}, and this copy is at {at:?}"
            );
        }
        self.engine.take_verifier(verifier);
        self.with(|node, now| node.handed_over(now, term));
        Ok(())
    }
}
