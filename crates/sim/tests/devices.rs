//! Every kind of device keeps the promises of a device.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use weir_base::{Clock, SystemClock};
use weir_rados::Objects;
use weir_rados_store::{AggregateObjects, Process, RadosAggregate, Sizes};
use weir_sim::device_suite::{LENGTH, MAX, Subject, run};
use weir_sim::rados::Cluster;
use weir_store::{AggregateDevices, Device, Discards, FileDevice, FileOptions, MemDevice};

#[test]
fn in_memory() {
    for discards in [Discards::Never, Discards::Hint, Discards::Deprovision] {
        let device = Arc::new(MemDevice::growable(LENGTH, MAX).discarding(discards));
        run(Subject {
            name: &format!("in memory, {discards:?}"),
            open: &mut || Arc::clone(&device) as _,
            grows: true,
        });
    }
}

#[test]
fn in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = FileOptions::data(MAX).create(LENGTH);
    for (name, options, grows) in [
        ("file", data, true),
        ("log", FileOptions::log().create(LENGTH), false),
    ] {
        let path = folder.path().join(name);
        run(Subject {
            name,
            open: &mut || Arc::new(FileDevice::open(&path, options).unwrap()),
            grows,
        });
    }
}

#[test]
fn on_simulated_objects() {
    for log in [false, true] {
        let cluster = Cluster::new();
        let mut clients = 0;
        let mut owner: Option<RadosAggregate> = None;
        let mut open = || {
            owner = None;
            clients += 1;
            let client: Arc<dyn Objects> = Arc::new(cluster.client(clients));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let connected = AggregateObjects::on("rados:sim/devices", Arc::clone(&client), client);
            let sizes = Sizes {
                max_blocks: 1 << 16,
                log_bytes: LENGTH * 4096,
            };
            let process = Process::this("here");
            let taken = connected
                .take(&process, &[], sizes, &clock, &|_| {}, None)
                .unwrap();
            if taken.id().is_none() {
                taken.complete(weir_base::AggregateId([1; 16])).unwrap();
            }
            let device: Arc<dyn Device> = match log {
                true => taken.log_device(),
                false => taken.device(),
            };
            owner = Some(taken);
            device
        };
        run(Subject {
            name: if log {
                "log on objects"
            } else {
                "data on objects"
            },
            open: &mut open,
            grows: !log,
        });
    }
}
