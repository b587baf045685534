use super::*;
use std::cell::RefCell;

/// A resolver that returns fixed names.
#[derive(Default)]
struct Zone {
    hosts: RefCell<HashMap<String, Vec<IpAddr>>>,
    reverse: RefCell<HashMap<IpAddr, String>>,
    down: Cell<bool>,
    asked: Cell<usize>,
}

use std::cell::Cell;

impl Zone {
    fn host(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        self.hosts.borrow_mut().insert(name.to_owned(), addresses);
    }
    fn reverse(&self, address: &str, name: &str) {
        let address = address.parse().unwrap();
        self.reverse.borrow_mut().insert(address, name.to_owned());
    }
}

impl Resolver for Zone {
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable> {
        self.asked.set(self.asked.get() + 1);
        match self.down.get() {
            true => Err(Unavailable),
            false => Ok(self.hosts.borrow().get(name).cloned().unwrap_or_default()),
        }
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable> {
        self.asked.set(self.asked.get() + 1);
        match self.down.get() {
            true => Err(Unavailable),
            false => Ok(self.reverse.borrow().get(&address).cloned()),
        }
    }
}

fn parse_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seconds(names: &Names, n: u64) {
    (0..n).for_each(|_| names.tick());
}

#[test]
fn a_host_is_its_addresses_once_they_are_known() {
    let (names, zone) = (Names::default(), Zone::default());
    zone.host("a", &["10.0.0.1", "::ffff:10.0.0.2"]);
    let a = Arc::from("a");
    assert!(
        names
            .is_host(&a, parse_address("10.0.0.1"))
            .unwrap_err()
            .coming
    );
    let before = names.generation();
    names.serve_pending(&zone);
    assert_ne!(names.generation(), before);
    assert_eq!(names.is_host(&a, parse_address("10.0.0.1")), Ok(true));
    assert_eq!(names.is_host(&a, parse_address("10.0.0.2")), Ok(true));
    assert_eq!(names.is_host(&a, parse_address("10.0.0.3")), Ok(false));
    assert_eq!(zone.asked.get(), 1);
}

#[test]
fn only_a_name_that_leads_back_counts() {
    let (names, zone) = (Names::default(), Zone::default());
    zone.reverse("10.0.0.1", "Good.Example.com.");
    zone.host("good.example.com", &["10.0.0.1"]);
    zone.reverse("10.6.6.6", "good.example.com");
    zone.reverse("10.7.7.7", "10.7.7.7");
    zone.host("10.7.7.7", &["10.7.7.7"]);
    let has = |client: &str| names.has_name(parse_address(client), |n| n == "good.example.com");
    for client in ["10.0.0.1", "10.6.6.6", "10.8.8.8"] {
        assert!(has(client).unwrap_err().coming);
    }
    assert!(names.has_name(parse_address("10.7.7.7"), |_| true).is_err());
    names.serve_pending(&zone);
    assert_eq!(has("10.0.0.1"), Ok(true));
    assert_eq!(has("10.6.6.6"), Ok(false), "it chose its own name");
    assert_eq!(has("10.8.8.8"), Ok(false));
    assert_eq!(
        names.has_name(parse_address("10.7.7.7"), |_| true),
        Ok(false)
    );
}

#[test]
fn a_resolver_that_is_down_is_asked_again_and_old_answers_stand_for_a_while() {
    let (names, zone) = (Names::default(), Zone::default());
    zone.host("a", &["10.0.0.1"]);
    zone.down.set(true);
    let a: Arc<str> = Arc::from("a");
    let ask = || names.is_host(&a, parse_address("10.0.0.1"));
    assert!(ask().unwrap_err().coming);
    names.serve_pending(&zone);
    assert!(!ask().unwrap_err().coming, "no use in waiting");
    seconds(&names, RETRY);
    assert!(ask().unwrap_err().coming);
    zone.down.set(false);
    names.serve_pending(&zone);
    assert_eq!(ask(), Ok(true));

    zone.down.set(true);
    let mut known = 0;
    for _ in 0..2 * STALE / RECHECK {
        seconds(&names, RECHECK);
        known += u64::from(ask().is_ok());
        names.serve_pending(&zone);
    }
    let expected = STALE / RECHECK;
    assert!((expected..expected + 4).contains(&known), "{known}");
    zone.down.set(false);
    seconds(&names, RETRY);
    assert!(ask().is_err());
    names.serve_pending(&zone);
    assert_eq!(ask(), Ok(true));
}

#[test]
fn answers_in_use_follow_changes_and_unused_ones_go() {
    let (names, zone) = (Names::default(), Zone::default());
    zone.host("a", &["10.0.0.1"]);
    let a: Arc<str> = Arc::from("a");
    let ask = || names.is_host(&a, parse_address("10.0.0.1"));
    assert!(ask().is_err());
    names.serve_pending(&zone);
    assert_eq!(ask(), Ok(true));
    zone.host("a", &["10.0.0.2"]);
    // Connections ask again whenever the generation moves.
    let (mut generation, mut after) = (names.generation(), 0);
    while ask() == Ok(true) {
        names.tick();
        names.serve_pending(&zone);
        if names.generation() != generation {
            generation = names.generation();
            let _ = ask();
        }
        after += 1;
        assert!(after < 1000, "the change is never seen");
    }
    assert!(after >= FRESH, "{after}");
    assert_eq!(ask(), Ok(false));
    seconds(&names, UNUSED + RECHECK);
    assert!(ask().is_err(), "forgotten");
}

#[test]
fn the_number_of_entries_is_bounded() {
    let (names, zone) = (Names::default(), Zone::default());
    for n in 0..ENTRIES as u32 + 10 {
        let _ = names.has_name(IpAddr::from(n.to_be_bytes()), |_| true);
        if n % 1000 == 0 {
            names.serve_pending(&zone);
        }
    }
    assert!(names.state.lock().clients.0.len() <= ENTRIES);
}

#[test]
fn waiters_are_told() {
    let (names, zone) = (Names::default(), Zone::default());
    let a: Arc<str> = Arc::from("a");
    let woken = |wait: Wait, what: &dyn Fn()| {
        let mut news = std::pin::pin!(names.news(wait));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(news.as_mut().poll(&mut cx).is_pending());
        what();
        news.as_mut().poll(&mut cx).is_ready()
    };
    let wait = names.is_host(&a, parse_address("::1")).unwrap_err();
    assert!(woken(wait, &|| names.serve_pending(&zone)));
    let wait = names.has_name(parse_address("::1"), |_| true).unwrap_err();
    assert!(woken(wait, &|| names.tick()));
}

#[test]
fn threads_serve_until_closed() {
    struct Local;
    impl Resolver for Local {
        fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, Unavailable> {
            Ok(vec![parse_address("127.0.0.1")])
        }
        fn name(&self, _: IpAddr) -> Result<Option<String>, Unavailable> {
            Ok(None)
        }
    }
    let names = Names::default();
    let a: Arc<str> = Arc::from("a");
    std::thread::scope(|s| {
        s.spawn(|| names.serve(&Local));
        s.spawn(|| names.serve(&Local));
        while names.is_host(&a, parse_address("127.0.0.1")).is_err() {
            std::thread::yield_now();
        }
        names.close();
    });
    assert_eq!(names.is_host(&a, parse_address("127.0.0.1")), Ok(true));
}
