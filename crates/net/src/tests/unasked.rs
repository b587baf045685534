//! Protocols by listener, messages that no client asked for, and requests that wait on purpose.

use super::*;
use crate::mail::Full;

/// The number that the server knows a connection by.
fn number_of(stream: &mut TcpStream) -> u64 {
    stream.write_all(&marked(b"i")).unwrap();
    u64::from_be_bytes(reply(stream).try_into().unwrap())
}

#[test]
fn each_listener_has_its_own_protocol_on_the_same_event_loops() {
    let server = Server::usual();
    let mut rpc: Vec<_> = (0..2).map(|_| server.connect()).collect();
    let smb = || {
        let stream = TcpStream::connect(server.smb).unwrap();
        let limit = Some(Duration::from_secs(30));
        stream.set_read_timeout(limit).unwrap();
        stream
    };
    let message: Vec<u8> = (0..300_000).map(|i| (i / 9) as u8).collect();
    let framed = [&DirectTcp::mark(message.len())[..], &message].concat();
    for mut stream in [smb(), smb(), smb()] {
        for c in &mut rpc {
            c.write_all(&marked(b"erpc")).unwrap();
            assert_eq!(reply(c), b"erpc");
        }
        for part in framed.chunks(70_000) {
            stream.write_all(part).unwrap();
        }
        let mut back = vec![0; framed.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == framed);
        // RPC where SMB is spoken is nothing.
        stream.write_all(&marked(b"erpc")).unwrap();
        assert!(ended(&mut stream));
    }
}

/// From any thread to any core: a connection at rest gets what is sent to it, each message once and
/// in order, and between replies if there are any.
#[test]
fn unasked_messages_reach_their_connections_from_any_thread() {
    let server = Server::usual();
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let numbers: Vec<u64> = clients.iter_mut().map(number_of).collect();
    let cores: std::collections::BTreeSet<u64> = numbers.iter().map(|n| n % 2).collect();
    assert_eq!(cores.len(), 2, "both event loops have some");
    let wakeups = &server.wakeups;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let numbers = &numbers;
            scope.spawn(move || {
                for round in 0..200 {
                    for number in numbers {
                        let text = format!("m{number} {thread} {round}");
                        while wakeups.send(*number, text.as_bytes().into()) == Err(Full) {
                            std::thread::yield_now();
                        }
                    }
                }
            });
        }
        for (c, number) in clients.iter_mut().zip(&numbers) {
            scope.spawn(move || {
                let mut asked = 0;
                let mut next = [0; 3];
                let mut echoed = 0;
                while next.iter().sum::<u64>() < 600 || echoed < asked {
                    if asked < 100 {
                        c.write_all(&marked(b"easked")).unwrap();
                        asked += 1;
                    }
                    let message = String::from_utf8(reply(c)).unwrap();
                    let Some(message) = message.strip_prefix('m') else {
                        assert_eq!(message, "easked");
                        echoed += 1;
                        continue;
                    };
                    let parts: Vec<u64> = message.split(' ').map(|p| p.parse().unwrap()).collect();
                    assert_eq!(parts[0], *number);
                    assert_eq!(parts[2], next[parts[1] as usize], "in order, each once");
                    next[parts[1] as usize] += 1;
                }
            });
        }
    });
    // To one that is over: no connection gets it, and nothing is left of it.
    let gone = clients.remove(0);
    let before = server.stub.gone.load(Ordering::SeqCst);
    drop(gone);
    while server.stub.gone.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    assert_eq!(
        wakeups.send(numbers[0], b"nobody".as_slice().into()),
        Ok(())
    );
    assert_eq!(wakeups.send(numbers[1], b"mlast".as_slice().into()), Ok(()));
    assert_eq!(reply(&mut clients[0]), b"mlast");
    while server.ledger.used() > 0 {
        std::thread::yield_now();
    }
}

/// A peer that takes no messages costs no more than a connection may have under way, and is dropped
/// then.
#[test]
fn who_takes_no_messages_is_dropped() {
    let server = Server::usual();
    let mut c = server.connect();
    let number = number_of(&mut c);
    let message: mail::Message = vec![b'm'; 64 << 10].into();
    while server.stub.gone.load(Ordering::SeqCst) == 0 {
        let _ = server.wakeups.send(number, message.clone());
        assert!(server.ledger.used() <= 2 * limits::CONNECTION_IN_FLIGHT + (1 << 20));
    }
    while server.ledger.used() > 0 {
        std::thread::yield_now();
    }
    let mut other = server.connect();
    other.write_all(&marked(b"eother")).unwrap();
    assert_eq!(reply(&mut other), b"eother");
}

/// The event that ends a wait on purpose arrives over the same connection, so it is read however
/// many requests wait.
#[test]
fn requests_that_wait_on_purpose_keep_nothing_from_being_read() {
    let server = Server::usual();
    let mut c = server.connect();
    let most = limits::CONNECTION_PARKED as u64;
    assert!(most > limits::CONNECTION_PENDING as u64);
    for n in 0..most {
        c.write_all(&command(b'p', n)).unwrap();
    }
    c.write_all(&marked(b"eread")).unwrap();
    assert_eq!(reply(&mut c), b"eread");
    // One more may not wait; it gets an error at once.
    c.write_all(&command(b'p', most)).unwrap();
    assert_eq!(reply(&mut c), b"too many");
    for n in [most - 1, 0, 7] {
        c.write_all(&command(b'r', n)).unwrap();
        assert_eq!(reply(&mut c), &command(b'p', n)[4..]);
    }
    c.write_all(&[command(b'p', most + 1), command(b'r', most + 1)].concat())
        .unwrap();
    assert_eq!(reply(&mut c), &command(b'p', most + 1)[4..]);
    // One that is announced: the announcement comes first.
    let mut announced = command(b'p', most + 2)[4..].to_vec();
    announced.push(b'!');
    c.write_all(&marked(&announced)).unwrap();
    assert_eq!(reply(&mut c), b"pending");
    c.write_all(&command(b'r', most + 2)).unwrap();
    assert_eq!(reply(&mut c), announced);
    // They go with their connection.
    drop(c);
    while server.ledger.used() > 0 {
        std::thread::yield_now();
    }
}
