//! Physical space, promises beyond it, and the warnings of changes.

use super::*;
use crate::backend::{Facts, Space};
use crate::{Extra, PoolChange, SecurityStyle, Status, VolumeChange};

const GIB: u64 = 1 << 30;

async fn bench(overcommit: Option<f64>) -> Bench {
    let bench = Bench::new().await;
    // The first start created a pool of 100 GiB.
    bench.node.set_facts(Facts {
        space: Space {
            size: 4096 * GIB,
            free: 1000 * GIB,
        },
        overcommit,
        smb_off: true,
        usage_off: false,
        backups: false,
    });
    bench
}

async fn warnings(bench: &Bench, mutation: Mutation) -> Vec<String> {
    let operation = bench.submit(mutation).await.unwrap();
    assert_eq!(operation.outcome, Some(Outcome::Done));
    // Readers of the catalog get them, too.
    let kept = bench.control.operation(&operation.name).unwrap();
    assert_eq!(kept.warnings, operation.warnings);
    operation.warnings.clone()
}

fn resize(id: &str, gib: u64) -> Mutation {
    let change = VolumeChange {
        capacity_gib: Some(gib),
        ..VolumeChange::default()
    };
    Mutation::UpdateVolume(vol(id), change)
}

fn grow(id: &str, gib: u64) -> Mutation {
    let change = PoolChange {
        capacity_gib: Some(gib),
        ..PoolChange::default()
    };
    Mutation::UpdatePool(name(id), change)
}

#[tokio::test]
async fn promises_beyond_the_space_are_answered_with_both_figures() {
    let bench = bench(None).await;
    let none: [&str; 0] = [];
    let fits = pool("fits", "PREMIUM", 2048, QosType::Auto);
    assert_eq!(warnings(&bench, fits).await, none);
    let said = warnings(&bench, pool("big", "PREMIUM", 102_400, QosType::Auto)).await;
    assert_eq!(
        said,
        [
            "storage pools and instances have 102.098 TiB in all, and this server has 4 TiB of physical space (1,000 GiB free): writes fail with \"no space\" when that is used up"
        ]
    );
    // A change that does not raise the promises gets no warning.
    let words = PoolChange {
        description: Some("x".to_owned()),
        ..PoolChange::default()
    };
    let words = Mutation::UpdatePool(name("big"), words);
    assert_eq!(warnings(&bench, words).await, none);
    assert_eq!(warnings(&bench, grow("big", 90_000)).await, none);
    assert_eq!(warnings(&bench, grow("big", 100_000)).await.len(), 1);
    assert_eq!(warnings(&bench, volume("v", "big", 1024)).await, none);
    let said = warnings(&bench, resize("v", 50_000)).await;
    assert!(
        said[0].starts_with("volumes have 48.926 TiB in all"),
        "{said:?}"
    );
    let said = warnings(&bench, resize("v", 1024)).await;
    assert!(
        said[0].starts_with("volume v shrinks from 48.828 TiB to 1 TiB; its data holds "),
        "{said:?}"
    );
    // Two thirds of a MiB/s.
    let said = warnings(&bench, volume("small", "big", 10)).await;
    assert!(
        said[0].contains("limited to 0.625 MiB/s by automatic QoS (64 MiB/s per TiB"),
        "{said:?}"
    );
    assert_eq!(
        warnings(&bench, resize("small", 12)).await,
        none,
        "it was slow before"
    );
}

#[tokio::test]
async fn the_bound_refuses_more_and_nothing_else() {
    let mut bench = bench(None).await;
    bench
        .done(pool("big", "PREMIUM", 102_400, QosType::Auto))
        .await;
    bench.restart(2).await;
    bench.node.set_facts(Facts {
        space: Space {
            size: 4096 * GIB,
            free: 1000 * GIB,
        },
        overcommit: Some(1.5),
        smb_off: false,
        usage_off: false,
        backups: false,
    });
    for more in [
        pool("more", "PREMIUM", 2048, QosType::Auto),
        grow("big", 102_401),
    ] {
        let refusal = bench.refused(more).await;
        assert_eq!(
            (refusal.status, &*refusal.reason),
            (Status::FailedPrecondition, "OVERCOMMIT")
        );
        assert!(
            refusal
                .message
                .contains("--overcommit 1.5 allows 6,144 GiB on 4 TiB"),
            "{refusal}"
        );
    }
    // Smaller, but still beyond: an overcommitted folder can be tidied and used.
    bench.done(grow("big", 50_000)).await;
    bench.done(volume("v", "big", 40_000)).await;
    bench.done(grow("big", 40_000)).await;
    bench
        .done(Mutation::DeleteVolume {
            name: vol("v"),
            force: false,
        })
        .await;
    bench.done(grow("big", 2048)).await;
    let refusal = bench
        .refused(pool("more", "PREMIUM", 4096, QosType::Auto))
        .await;
    assert!(refusal.message.ends_with("3,996 GiB more fit"), "{refusal}");
    bench
        .done(pool("more", "PREMIUM", 3996, QosType::Auto))
        .await;
    bench.done(Mutation::DeletePool(name("big"))).await;
    bench
        .done(pool("again", "PREMIUM", 2048, QosType::Auto))
        .await;
}

#[tokio::test]
async fn a_volume_with_smb_alone_can_be_written_and_several_protocols_say_their_style() {
    let bench = bench(None).await;
    let made = |id: &str, protocols: &[Protocol], change: fn(&mut NewVolume)| {
        let mut new = new_volume(id, "default", 20);
        new.presentation = Presentation::in_pool("p");
        new.protocols = protocols.to_vec();
        change(&mut new);
        Mutation::CreateVolume(vol(id), new)
    };
    bench.done(pool("p", "PREMIUM", 2048, QosType::Auto)).await;
    let nothing: fn(&mut NewVolume) = |_| {};
    let view = |id: &str| {
        let volume = bench.control.view().volume(&vol(id)).cloned().unwrap();
        (volume.smb.style, volume.unix_permissions)
    };
    let said = warnings(&bench, made("alone", &[Protocol::Smb], nothing)).await;
    assert!(said.len() == 1 && said[0].contains("--smb off"), "{said:?}");
    assert_eq!(view("alone"), (Some(SecurityStyle::Ntfs), 0o777));
    let said = warnings(
        &bench,
        made("both", &[Protocol::Nfsv3, Protocol::Smb], nothing),
    )
    .await;
    assert!(
        said[1].contains("security style UNIX") && said[1].contains("mode 0755"),
        "{said:?}"
    );
    assert_eq!(view("both"), (None, 0o755));
    let moded = made("moded", &[Protocol::Smb], |new| {
        new.unix_permissions = Some(0o770)
    });
    warnings(&bench, moded).await;
    assert_eq!(view("moded"), (None, 0o770));
    let chosen = made("chosen", &[Protocol::Nfsv3, Protocol::Smb], |new| {
        new.smb.style = Some(SecurityStyle::Ntfs);
        new.extra = Extra::new();
    });
    assert_eq!(
        warnings(&bench, chosen).await.len(),
        1,
        "SMB is off, and the style was chosen"
    );
}
