//! A call that has been suspended, to its end: what it waits for, and how often it is run again.

use std::sync::Arc;

use weir_base::limits::protocol::NAME_WAIT;
use weir_vfs::Suspend;

use super::{Handled, Run, Service, Stopped, Suspended, failed, finish, refuse};
use crate::connection::ConnInfo;
use crate::rpc::{self, Message};

/// A call that waits. One that is dropped is charged for nothing.
pub(super) struct Waiting {
    pub(super) service: Arc<Service>,
    pub(super) suspended: Box<Suspended>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.suspended.cx.settle(&self.service.vfs.throttle);
    }
}

/// Runs a suspended call to its end.
pub(super) async fn later(mut waiting: Waiting, conn: ConnInfo, record: Vec<u8>) -> Handled {
    let Message::Call(call) = rpc::message(&record) else {
        return Handled::Close("not an RPC message");
    };
    let Waiting { service, suspended } = &mut waiting;
    let Suspended {
        stopped,
        ticket,
        cx,
        held,
    } = &mut **suspended;
    let names = &service.vfs.names;
    let begun = names.seconds();
    let mut patient = true;
    loop {
        let again = std::mem::replace(stopped, Stopped::Running);
        match again {
            Stopped::Operation(Suspend::Recall(ticket)) => {
                patient &= service.patience.wait(ticket.over()).await;
            }
            Stopped::Operation(suspend) => {
                if let Err(error) = cx.resume(&service.vfs, suspend).await {
                    return failed(&call, error);
                }
                drop(held.take());
            }
            Stopped::Name { reply, .. } if names.seconds() >= begun + NAME_WAIT => {
                return finish(ticket.take(), reply, None, false);
            }
            Stopped::Name { wait, .. } => names.news(wait).await,
            Stopped::Record { lsn, reply } => {
                if !service.records.settled(lsn).await {
                    return finish(ticket.take(), reply, None, false);
                }
            }
            Stopped::Running => {}
        }
        match service.run(&conn, &call, cx, patient) {
            Ok(Run::Answered { reply, lsn, done }) => {
                return finish(ticket.take(), reply, lsn, done);
            }
            Ok(Run::Stopped(again)) => *stopped = again,
            Err(why) => return refuse(call.xid, why),
        }
    }
}
