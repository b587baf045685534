//! Calls that the service makes to clients: a lock that was waited for is granted, the server
//! has restarted. The service writes the messages; this finds the client's port (its rpcbind
//! knows), sends them, and brings back the answers.
//!
//! Each call is a small task. A host that does not answer keeps its task for some seconds, so the
//! number of tasks is limited by destination ([`Lines`]): one destination has few at once, and
//! those that did not answer lately share a part. The service's clock ticks in a task of its own,
//! so calls do not delay it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::Notify;
use tokio::time::timeout;
use weir_base::limits::net::{
    CALLBACK_PATIENCE as PATIENCE, CALLBACK_TRIES as TRIES, CALLBACK_TRY as TRY,
    CALLBACKS_AT_ONCE as AT_ONCE, CALLBACKS_PER_HOST as AT_ONE, CALLBACKS_TO_SILENT as AT_SILENT,
    MAX_CALLBACK_REPLY as MAX_ANSWER, MAX_SILENT,
};
use weir_base::{Rng, SystemRng};
use weir_nfs::portmap::{self, Entry, Transport};
use weir_nfs::{OutgoingCall, Service};

/// Interval between two ticks of the service.
const TICK: Duration = Duration::from_secs(1);

/// Makes the service's calls and ticks it, for ever. Runs within a local task set.
pub async fn run(service: Arc<Service>) {
    let ticking = Arc::clone(&service);
    tokio::task::spawn_local(async move {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tick.tick().await;
            ticking.tick();
        }
    });
    dispatch(service, |call| async move { deliver(&call).await }).await;
}

/// Source of calls; it receives their outcomes.
pub(crate) trait Source: 'static {
    fn on_outgoing(&self, wake: Arc<dyn Fn() + Send + Sync>);
    fn next(&self, may: &mut dyn FnMut(IpAddr) -> bool) -> Option<OutgoingCall>;
    fn done(&self, token: u64, reply: Option<&[u8]>);
}

impl Source for Service {
    fn on_outgoing(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        Service::on_outgoing(self, wake);
    }
    fn next(&self, may: &mut dyn FnMut(IpAddr) -> bool) -> Option<OutgoingCall> {
        self.next_outgoing(may)
    }
    fn done(&self, token: u64, reply: Option<&[u8]>) {
        self.outgoing_done(token, reply);
    }
}

/// Calls under way, by destination.
#[derive(Default)]
struct Lines {
    busy: HashMap<IpAddr, usize>,
    total: usize,
    /// Destinations that did not answer the last call, with the calls under way to them.
    silent: HashMap<IpAddr, usize>,
    to_silent: usize,
}

impl Lines {
    /// Returns true if a call to `to` is within the limits.
    fn free(&self, to: IpAddr) -> bool {
        let one = self.busy.get(&to).is_none_or(|n| *n < AT_ONE);
        let silent = self.silent.contains_key(&to);
        one && self.total < AT_ONCE && (!silent || self.to_silent < AT_SILENT)
    }

    fn begin(&mut self, to: IpAddr) {
        *self.busy.entry(to).or_insert(0) += 1;
        self.total += 1;
        if let Some(n) = self.silent.get_mut(&to) {
            *n += 1;
            self.to_silent += 1;
        }
    }

    fn end(&mut self, to: IpAddr, answered: bool) {
        self.total -= 1;
        let left = self.busy.get_mut(&to).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            self.busy.remove(&to);
        }
        // What was begun before it fell silent counts from now on.
        if let Some(n) = self.silent.remove(&to) {
            self.to_silent -= n;
        }
        if !answered && self.silent.len() < MAX_SILENT {
            self.silent.insert(to, left);
            self.to_silent += left;
        }
    }
}

/// Makes the calls of `source` by `deliver`, for ever.
pub(crate) async fn dispatch<S, D, F>(source: Arc<S>, deliver: D)
where
    S: Source,
    D: Fn(OutgoingCall) -> F,
    F: Future<Output = io::Result<Vec<u8>>> + 'static,
{
    let news = Arc::new(Notify::new());
    let wakeup = Arc::clone(&news);
    source.on_outgoing(Arc::new(move || wakeup.notify_one()));
    let lines = Rc::new(RefCell::new(Lines::default()));
    loop {
        while let Some(call) = source.next(&mut |to| lines.borrow().free(to)) {
            let (to, token) = (call.destination(), call.token);
            lines.borrow_mut().begin(to);
            tracing::debug!(to = %call.to, program = call.program, "calling a client");
            let outcome = deliver(call);
            let (source, lines, news) = (Arc::clone(&source), Rc::clone(&lines), Arc::clone(&news));
            tokio::task::spawn_local(async move {
                let reply = outcome.await;
                if let Err(error) = &reply {
                    tracing::debug!(%to, %error, "call to a client failed");
                }
                lines.borrow_mut().end(to, reply.is_ok());
                source.done(token, reply.ok().as_deref());
                news.notify_one();
            });
        }
        news.notified().await;
    }
}

/// Sends a call over whatever the client has; TCP if both.
async fn deliver(call: &OutgoingCall) -> io::Result<Vec<u8>> {
    for transport in [Transport::Tcp, Transport::Udp] {
        let entry = Entry {
            program: call.program,
            version: call.version,
            transport,
        };
        let xid = SystemRng.next_u64() as u32;
        let rpcbind = SocketAddr::new(call.to, portmap::PORT);
        let answer = query_rpcbind(rpcbind, call.from, &portmap::getport(xid, entry)).await?;
        if let Some(port) = portmap::reply_port(xid, &answer) {
            let to = SocketAddr::new(call.to, port);
            return match transport {
                Transport::Tcp => timeout(PATIENCE, over_tcp(to, call.from, &call.message)).await?,
                Transport::Udp => over_udp(to, call.from, &call.message).await,
            };
        }
    }
    Err(io::Error::other("the program is not registered there"))
}

/// Asks over UDP, or over TCP if no reply comes to that.
async fn query_rpcbind(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    match over_udp(to, from, message).await {
        Ok(answer) => Ok(answer),
        Err(_) => timeout(PATIENCE, over_tcp(to, from, message)).await?,
    }
}

/// Returns the local addresses to call from, in the order to try: the one that the client knows us
/// by, then any, in case that one is not ours any more or is of another family.
fn sources(to: SocketAddr, from: IpAddr) -> [SocketAddr; 2] {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = if from.is_ipv4() == to.is_ipv4() {
        from
    } else {
        any
    };
    [SocketAddr::new(from, 0), SocketAddr::new(any, 0)]
}

async fn over_udp(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(&sources(to, from)[..]).await?;
    socket.connect(to).await?;
    let mut answer = vec![0; MAX_ANSWER];
    for _ in 0..TRIES {
        socket.send(message).await?;
        match timeout(TRY, socket.recv(&mut answer)).await {
            // A transaction id of another call: a late answer to an earlier attempt of someone.
            Ok(Ok(len)) if answer.get(..4) == message.get(..4) => {
                answer.truncate(len);
                return Ok(answer);
            }
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

async fn over_tcp(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = if to.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    let [known, any] = sources(to, from);
    socket.bind(known).or_else(|_| socket.bind(any))?;
    let mut stream = socket.connect(to).await?;
    let mark = 0x8000_0000 | message.len() as u32;
    stream
        .write_all(&[&mark.to_be_bytes()[..], message].concat())
        .await?;
    let len = (stream.read_u32().await? & 0x7fff_ffff) as usize;
    if len > MAX_ANSWER {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::VecDeque;

    /// Calls in the order in which they were asked for, and the tokens that are done.
    #[derive(Default)]
    struct Calls {
        waiting: Mutex<VecDeque<OutgoingCall>>,
        done: Mutex<Vec<u64>>,
        wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    }

    impl Calls {
        fn put(&self, address: [u8; 4], token: u64) {
            self.waiting.lock().push_back(OutgoingCall {
                token,
                to: address.into(),
                from: address.into(),
                program: 1,
                version: 1,
                message: Arc::from([]),
            });
            if let Some(wake) = &*self.wake.lock() {
                wake();
            }
        }
    }

    impl Source for Calls {
        fn on_outgoing(&self, wake: Arc<dyn Fn() + Send + Sync>) {
            *self.wake.lock() = Some(wake);
        }
        fn next(&self, may: &mut dyn FnMut(IpAddr) -> bool) -> Option<OutgoingCall> {
            let mut waiting = self.waiting.lock();
            let at = waiting.iter().position(|o| may(o.destination()))?;
            waiting.remove(at)
        }
        fn done(&self, token: u64, _: Option<&[u8]>) {
            self.done.lock().push(token);
        }
    }

    /// Runs `test` beside a dispatcher whose calls to 10.0.0.N are never answered, fail if N is 200
    /// or more, and are answered at once for all others. `begun` counts the calls to silent hosts.
    fn with_dispatcher<F: Future<Output = ()>>(
        test: impl FnOnce(Arc<Calls>, Rc<RefCell<usize>>) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (calls, begun) = (Arc::new(Calls::default()), Rc::new(RefCell::new(0)));
            let count = Rc::clone(&begun);
            tokio::task::spawn_local(dispatch(Arc::clone(&calls), move |call| {
                let IpAddr::V4(to) = call.to else {
                    unreachable!()
                };
                let silent = to.octets()[..3] == [10, 0, 0];
                *count.borrow_mut() += usize::from(silent);
                async move {
                    let reply: io::Result<Vec<u8>> = match (silent, to.octets()[3] >= 200) {
                        (true, true) => Err(io::ErrorKind::TimedOut.into()),
                        (true, false) => std::future::pending().await,
                        (false, _) => Ok(Vec::new()),
                    };
                    reply
                }
            }));
            test(calls, begun).await;
        });
    }

    async fn until(mut what: impl FnMut() -> bool) {
        while !what() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_host_that_never_answers_delays_nobody_else() {
        with_dispatcher(|calls, begun| async move {
            (0..4000).for_each(|n| calls.put([10, 0, 0, 1], n));
            calls.put([10, 9, 9, 9], 9000);
            until(|| *calls.done.lock() == [9000]).await;
            assert_eq!(*begun.borrow(), AT_ONE);
        });
    }

    #[test]
    fn hosts_that_failed_share_a_part_of_the_calls() {
        with_dispatcher(|calls, begun| async move {
            // Each has failed once.
            (200..=255).for_each(|n| calls.put([10, 0, 0, n], u64::from(n)));
            until(|| calls.done.lock().len() == 56).await;
            assert_eq!(*begun.borrow(), 56);
            // Hosts of which nothing is known may take the rest, but no more.
            for round in 0..20 {
                (0..50).for_each(|n| calls.put([10, 0, 0, n], 1000 + 100 * round + u64::from(n)));
            }
            until(|| *begun.borrow() == 56 + AT_ONCE).await;
            calls.put([10, 9, 9, 9], 9000);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(*begun.borrow(), 56 + AT_ONCE);
        });
    }

    #[test]
    fn lines_count_what_is_silent() {
        let mut lines = Lines::default();
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        for n in 0..40 {
            lines.begin(host(n));
            lines.end(host(n), false);
        }
        for n in 0..u8::try_from(AT_SILENT).unwrap() {
            assert!(lines.free(host(n)));
            lines.begin(host(n));
        }
        assert!(!lines.free(host(30)), "silent hosts have their part");
        assert!(lines.free(host(99)), "others have the rest");
        lines.end(host(0), true);
        assert!(lines.free(host(0)) && lines.free(host(30)));
        (1..16).for_each(|n| lines.end(host(n), true));
        assert_eq!((lines.total, lines.to_silent, lines.busy.len()), (0, 0, 0));
    }
}
