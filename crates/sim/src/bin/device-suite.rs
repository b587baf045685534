//! Runs the suite of devices on objects of a real cluster: `device-suite rados:POOL/ID CONF`. The
//! objects stay.

#![allow(clippy::panic)]

use std::process::ExitCode;
use std::sync::Arc;

use weir_base::{AggregateId, Clock, SystemClock};
use weir_rados::Options;
use weir_rados_store::{AggregateObjects, Process, RadosAggregate, RadosPlace, Sizes};
use weir_sim::device_suite::{Subject, run};
use weir_store::{AggregateDevices, Device};

fn devices(place: &RadosPlace, options: &Options, log: bool) -> Result<(), String> {
    let mut owner: Option<RadosAggregate> = None;
    let mut open = || {
        owner = None;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let connected = AggregateObjects::connect(place, options).unwrap_or_else(|e| panic!("{e}"));
        let sizes = Sizes {
            max_blocks: 1 << 16,
            log_bytes: 16 << 20,
        };
        let process = Process::this("here");
        let taken = connected.take(&process, &[], sizes, &clock, &std::thread::sleep, None);
        let taken = taken.unwrap_or_else(|e| panic!("{e}"));
        if taken.id().is_none() {
            let completed = taken.complete(AggregateId([1; 16]));
            completed.unwrap_or_else(|e| panic!("{e}"));
        }
        let device: Arc<dyn Device> = match log {
            true => taken.log_device(),
            false => taken.device(),
        };
        owner = Some(taken);
        device
    };
    run(Subject {
        name: &format!("{place}, {}", if log { "log" } else { "data" }),
        open: &mut open,
        grows: !log,
    });
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, conf] = arguments.as_slice() else {
        eprintln!("usage: device-suite rados:POOL/ID CONF");
        return ExitCode::from(2);
    };
    let options = Options {
        conf: Some(conf.into()),
        ..Options::default()
    };
    let place: Result<RadosPlace, String> = place.parse();
    let ran = place.and_then(|place| {
        devices(&place, &options, false)?;
        devices(&place, &options, true)
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device-suite: {error}");
            ExitCode::FAILURE
        }
    }
}
