//! The tables on a real PostgreSQL.

use weir_testclient::postgres::Postgres;

use super::*;
use crate::directory::Listing;
use crate::rows::{Kind, NodeApi, Role, Settings};

const SECRET: &str = "00112233445566778899aabbccddeeff";

fn node(name: &str) -> Node {
    let child = Child {
        role: Role::Owner,
        epoch: 3,
        ..Child::default()
    };
    Node {
        name: name.to_owned(),
        address: "127.0.0.2".to_owned(),
        version: "0".to_owned(),
        memory: 1 << 30,
        drained: false,
        silent: Duration::ZERO,
        children: BTreeMap::from([("a".to_owned(), child)]),
        api: Some(NodeApi {
            address: "127.0.0.2:8049".parse().unwrap(),
            certificate: Some("aa".to_owned()),
        }),
    }
}

fn aggregate(name: &str) -> Aggregate {
    Aggregate {
        name: name.to_owned(),
        kind: Kind::Rados,
        place: format!("rados:p/{name}"),
        settings: Settings {
            nfs: Some("2049".parse().unwrap()),
            memory: 1 << 28,
            ..Settings::default()
        },
        nodes: Assignment::default(),
        deleting: false,
        created: 0,
        version: 0,
    }
}

async fn beat(database: &mut Database, name: &str, term: i64) -> Round {
    let node = node(name);
    let beat = Beat {
        node: &node,
        holder: name,
        term,
    };
    database.beat(&beat).await.unwrap()
}

fn change(view: &View, owner: &str) -> Change {
    Change {
        aggregate: "a".to_owned(),
        version: view.aggregates["a"].version,
        to: Some(Assignment {
            owner: Some(owner.to_owned()),
            target: Some(Target {
                node: "n2".to_owned(),
                epoch: 3,
            }),
            epoch: 3,
            ..Assignment::default()
        }),
    }
}

/// The list of a newer owner replaces an older one's, and every daemon learns it.
async fn lists_are_exchanged(one: &mut Database, two: &mut Database) {
    let list = |epoch, port: u16| {
        let listing = Listing {
            nfs: vec![([10, 0, 0, 1], port).into()],
            ..Listing::default()
        };
        let entry = Entry::new(epoch, listing).unwrap();
        BTreeMap::from([("a".to_owned(), entry)])
    };
    let none = BTreeMap::new();
    let (mut first, mut second) = (Directory::default(), Directory::default());
    one.exchange(&list(3, 1), &mut first).await.unwrap();
    assert_eq!(first.secret, SECRET);
    let rows = two.exchange(&none, &mut second).await.unwrap();
    assert_eq!(rows, BTreeSet::from(["a".to_owned()]));
    assert_eq!(second.entries["a"], list(3, 1)["a"].0);
    two.exchange(&list(2, 7), &mut second).await.unwrap();
    one.exchange(&none, &mut first).await.unwrap();
    assert_eq!(
        first.entries["a"].epoch, 3,
        "an older owner changes nothing"
    );
    two.exchange(&list(4, 2), &mut second).await.unwrap();
    one.exchange(&none, &mut first).await.unwrap();
    assert_eq!(first.entries["a"], list(4, 2)["a"].0);
}

/// The leader's shares are in every view, a former leader's are not, and tables of an earlier
/// program get their table.
async fn shares_are_granted(one: &mut Database, two: &mut Database, raw: &mut PgConnection) {
    let grant = |part, rate| Grant {
        limit: u64::MAX,
        part,
        share: Share {
            rate,
            number: 2,
            ceiling: u64::MAX,
            term: 1,
        },
    };
    assert!(!one.grant(2, "n1", &[grant(0, 5)]).await.unwrap());
    assert!(!one.grant(1, "n2", &[grant(0, 5)]).await.unwrap());
    assert!(two.view().await.unwrap().shares.is_empty());
    let both = [grant(0, 5), grant(1, 6)];
    assert!(one.grant(1, "n1", &both).await.unwrap());
    assert!(one.grant(1, "n1", &[grant(1, 7)]).await.unwrap());
    let shares = two.view().await.unwrap().shares;
    let rates: Vec<_> = shares
        .iter()
        .map(|(key, share)| (*key, share.rate))
        .collect();
    assert_eq!(rates, [((u64::MAX, 0), 5), ((u64::MAX, 1), 7)]);
    assert_eq!(shares[&(u64::MAX, 0)].number, 2);
    two.forget_limit(1, "n2", u64::MAX).await.unwrap();
    assert_eq!(two.view().await.unwrap().shares.len(), 2);
    one.forget_limit(1, "n1", u64::MAX).await.unwrap();
    assert!(two.view().await.unwrap().shares.is_empty());
    sqlx::query("DROP TABLE weir_cluster_shares")
        .execute(raw)
        .await
        .unwrap();
    assert!(two.view().await.is_err());
    assert!(beat(two, "n2", 0).await.view.shares.is_empty());
}

#[tokio::test]
async fn rows_leases_and_terms_on_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = match Postgres::start(folder.path()) {
        Ok(server) => server,
        Err(why) => {
            eprintln!("skipped: {why} (package postgresql)");
            return;
        }
    };
    let url = server.create_database("cluster").unwrap();
    let (mut one, mut two) = (Database::new(&url).unwrap(), Database::new(&url).unwrap());
    let none = one.check().await.unwrap_err().to_string();
    assert!(none.contains("weir cluster init"), "{none}");
    one.create(SECRET).await.unwrap();
    two.create(SECRET).await.unwrap();

    // The first one leads; the second one does not while the lease holds.
    let first = beat(&mut one, "n1", 0).await;
    assert_eq!(first.term, Some(1));
    assert_eq!(first.view.leader.unwrap().node, "n1");
    let second = beat(&mut two, "n2", 0).await;
    assert_eq!(second.term, None);
    assert_eq!(second.view.nodes.len(), 2);
    assert!(second.view.nodes["n1"].is_up());
    assert_eq!(second.view.nodes["n1"].children["a"].epoch, 3);
    assert_eq!(second.view.nodes["n1"].api, node("n1").api);

    // A row is entered once, and changed by the leader's term and the row's version only.
    assert!(two.enter(&aggregate("a")).await.unwrap());
    assert!(!two.enter(&aggregate("a")).await.unwrap());
    let view = two.view().await.unwrap();
    assert_eq!(view.aggregates["a"].settings, aggregate("a").settings);
    let to = change(&view, "n1");
    assert!(!one.change(2, "n1", &to).await.unwrap());
    assert!(!one.change(1, "n2", &to).await.unwrap());
    assert!(one.change(1, "n1", &to).await.unwrap());
    assert!(!one.change(1, "n1", &to).await.unwrap());
    let view = one.view().await.unwrap();
    assert_eq!(Some(view.aggregates["a"].nodes.clone()), to.to);
    let stale = two.set_target(&aggregate("a"), Some("n1")).await.unwrap();
    assert!(!stale);
    assert!(two.set_target(&view.aggregates["a"], None).await.unwrap());
    assert!(two.set_drained("n2", true).await.unwrap());
    assert!(!two.set_drained("n9", true).await.unwrap());
    assert!(two.view().await.unwrap().nodes["n2"].drained);

    lists_are_exchanged(&mut one, &mut two).await;
    let mut raw = PgConnection::connect(&url).await.unwrap();
    shares_are_granted(&mut one, &mut two, &mut raw).await;
    // A token is entered once, and goes.
    let token = |expires| Token {
        name: "ops".to_owned(),
        role: "editor".to_owned(),
        hash: "00ff".to_owned(),
        created: 0,
        created_by: "local".to_owned(),
        expires,
    };
    assert!(one.enter_token(&token(Some(1_900_000_000))).await.unwrap());
    assert!(!two.enter_token(&token(None)).await.unwrap());
    let mut tokens = two.view().await.unwrap().tokens;
    let found = tokens.pop().unwrap();
    assert!(tokens.is_empty() && found.created > 0);
    let created = found.created;
    let wanted = Token {
        created,
        ..token(Some(1_900_000_000))
    };
    assert_eq!(found, wanted);
    assert!(two.delete_token("ops").await.unwrap());
    assert!(!two.delete_token("ops").await.unwrap());

    // A name is locked by one connection, until that connection ends.
    let mut holder = Database::new(&url).unwrap();
    assert!(holder.lock("a name").await.unwrap());
    assert!(!two.lock("a name").await.unwrap());
    assert!(two.lock("another name").await.unwrap());
    drop(holder);
    while !one.lock("a name").await.unwrap() {}

    // The server dies: the next question fails, and the one after its return does not.
    server.kill();
    assert!(one.view().await.is_err());
    server.start_again().unwrap();
    assert_eq!(beat(&mut one, "n1", 1).await.term, Some(1));
    // This one had a connection, too.
    assert!(two.view().await.is_err());

    // The lease of a daemon that vanished runs out, and the old term changes nothing.
    let taken = loop {
        if let Some(term) = beat(&mut two, "n2", 0).await.term {
            break term;
        }
    };
    assert_eq!(taken, 2);
    assert!(!one.change(1, "n1", &change(&view, "n2")).await.unwrap());
    assert_eq!(beat(&mut one, "n1", 1).await.term, None);

    two.delete("a").await.unwrap();
    let version = two.view().await.unwrap().aggregates["a"].version;
    let gone = Change {
        aggregate: "a".to_owned(),
        version,
        to: None,
    };
    assert!(two.change(2, "n2", &gone).await.unwrap());
    assert!(two.view().await.unwrap().aggregates.is_empty());
    let mut directory = Directory::default();
    let rows = two.exchange(&BTreeMap::new(), &mut directory).await;
    assert!(rows.unwrap().is_empty(), "its list is deleted with it");
    assert!(
        !two.remove_node("n1", Duration::from_secs(60))
            .await
            .unwrap()
    );
    assert!(two.remove_node("n1", Duration::ZERO).await.unwrap());

    // Tables of another version are refused.
    let mut raw = PgConnection::connect(&url).await.unwrap();
    sqlx::query("UPDATE weir_cluster SET version = 99")
        .execute(&mut raw)
        .await
        .unwrap();
    let other = one.check().await.unwrap_err().to_string();
    assert!(other.contains("have version 99"), "{other}");
}
