//! Operations and locations.

use super::steps::{last, list, open, open_named, own};
use crate::Environment;
use crate::args::{At, Locations, Operations};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::http::Method;
use crate::session::Io;

const OPERATIONS: &str = "table(name.basename():label=OPERATION_NAME,
    name.segment(3):label=LOCATION, metadata.verb:label=TYPE, metadata.target.basename(),
    done.yesno(yes='DONE', no='RUNNING'):label=STATUS, metadata.createTime.date():sort=1,
    duration(start=metadata.createTime,end=metadata.endTime).yesno(no=\"<1S\"):label=DURATION)";

const LOCATIONS: &str = "table(name.basename():label=NAME:sort=1)";

/// Runs `weir operations` and its verbs.
pub fn operations(
    command: &Operations,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let named = match command {
        Operations::List(args) => {
            return list(args, "operations", &own(OPERATIONS)?, environment, io);
        }
        Operations::Describe(named)
        | Operations::Wait(named)
        | Operations::Cancel(named)
        | Operations::Delete(named) => named,
    };
    let mut s = open_named(named, environment, io)?;
    let name = s.name("operations", &named.name)?;
    match command {
        Operations::Wait(_) => {
            let operation = s.get(&name)?;
            let response = s.finish(operation)?;
            s.print(&response, &Format::plain(Kind::Yaml))
        }
        Operations::Cancel(_) => {
            s.call(Method::Post, &format!("{name}:cancel"), &[], None)?;
            s.say(&format!("Asked to cancel operation [{}].", last(&name)))
        }
        Operations::Delete(_) => {
            s.confirm(&format!("You are about to delete operation {name}."))?;
            s.call(Method::Delete, &name, &[], None)?;
            s.say(&format!("Deleted operation [{}].", last(&name)))
        }
        Operations::Describe(_) | Operations::List(_) => s.describe(&name),
    }
}

/// Runs `weir locations` and its verbs.
pub fn locations(
    command: &Locations,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    match command {
        Locations::List(args) => {
            let mut s = open(&args.common, &At::default(), environment, io)?;
            let project = s.project();
            s.list(&project, "locations", &args.listing, &own(LOCATIONS)?)
        }
        Locations::Describe(args) => {
            let location = At {
                location: Some(args.name.clone()),
            };
            let mut s = open(&args.common, &location, environment, io)?;
            let name = s.parent();
            s.describe(&name)
        }
    }
}
