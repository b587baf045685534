//! The tests on PostgreSQL.

use super::*;
use weir_testclient::postgres::Postgres;

async fn bench(server: &Postgres, name: &str) -> Bench {
    let url = server.create_database(name).unwrap();
    let node = SimBackend::new();
    let control = open(&url, &node, 1).await.unwrap();
    Bench {
        control,
        node,
        url,
        _folder: None,
    }
}

#[tokio::test]
async fn the_same_code_runs_on_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    let server = match Postgres::start(folder.path()) {
        Ok(server) => server,
        Err(why) => {
            eprintln!("skipped: {why} (package postgresql)");
            return;
        }
    };
    sqlx::any::install_default_drivers();
    let mut on = bench(&server, "flows").await;
    flows::cradle_to_grave(&mut on).await;
    many::two_hundred_at_once(&bench(&server, "many").await).await;
    let mut on = bench(&server, "random").await;
    random::keeps_the_rules(&mut on, 11).await;
    faults::tokens(&on.url).await;
    let mut on = bench(&server, "replication").await;
    replication::relationships_are_rows(&mut on).await;
    faults::superseded(&bench(&server, "superseded").await).await;
    faults::newer(&bench(&server, "newer").await).await;
}
