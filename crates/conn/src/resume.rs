//! Driver of suspended requests: waits for the event that a request is suspended for, runs it
//! again, and repeats this to its end.
//!
//! A suspended request has changed nothing since its last restart point, and continues there. The
//! point differs by protocol: NFSv3 runs a call from its start, NFSv4 a COMPOUND from its current
//! operation, SMB a chain from its current command. Each is a [`Request`].
//!
//! If a protocol's clients retry calls, a call need not wait for as long as another client may take
//! to answer. Such a request has [`Patience`], at whose end it runs once more and has to reply.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use weir_base::limits::protocol::NAME_WAIT;
use weir_vfs::signal::Signal;
use weir_vfs::waits::WaitTimer;
use weir_vfs::{Error, OpContext, Suspend, Vfs};

use crate::{Outcome, Patience};

/// Result of a wait.
pub enum WaitOutcome<C> {
    /// The event has happened.
    Ready,
    /// The event will not happen.
    Failed(Error),
    /// Another client has not returned its delegation or lock in the time that the request may
    /// wait.
    NotRecalled,
    /// The name service has not answered in the time that the request may wait.
    NotNamed,
    /// The client has cancelled the request.
    Cancelled(C),
}

/// Parts of a request that the driver uses.
pub struct Parts<'r, C> {
    /// Access to volumes.
    pub vfs: &'r Vfs,
    /// Context of the suspended operation.
    pub cx: &'r mut OpContext,
    /// Bound on waits for other clients and for the name service; `None` if the request waits as
    /// long as they take.
    pub patience: Option<&'r Patience>,
    /// Set when the client cancels the request.
    pub cancelled: Option<Arc<Signal<C>>>,
}

/// A suspended request.
pub trait Request {
    /// The reply that it ends with.
    type Reply;

    /// Kind of a client's cancellation.
    type Cancel: Copy;

    /// Returns the parts that the driver uses.
    fn parts(&mut self) -> Parts<'_, Self::Cancel>;

    /// Continues the request after a wait.
    ///
    /// # Errors
    /// It is suspended again.
    fn resume(
        &mut self,
        resumed: WaitOutcome<Self::Cancel>,
    ) -> Result<Outcome<Self::Reply>, Suspend>;
}

/// Runs the suspended `request` to its end. `held` is the credit that the request takes up while it
/// waits for its limits; it is dropped after the first wait.
pub async fn resume<R: Request, G>(
    mut request: R,
    mut suspend: Suspend,
    held: G,
) -> Outcome<R::Reply> {
    let begun = request.parts().vfs.names.seconds();
    let mut held = Some(held);
    loop {
        let resumed = wait(request.parts(), suspend, begun).await;
        drop(held.take());
        match request.resume(resumed) {
            Ok(outcome) => return outcome,
            Err(again) => suspend = again,
        }
    }
}

/// Waits for the event that a request is suspended for. `begun` is the second in which the request
/// was first suspended.
async fn wait<C: Copy>(parts: Parts<'_, C>, suspend: Suspend, begun: u64) -> WaitOutcome<C> {
    let Parts {
        vfs,
        cx,
        patience,
        cancelled,
    } = parts;
    let measured = WaitTimer::start(vfs, cx, &suspend);
    let event = async {
        match (suspend, patience) {
            (Suspend::NameService(news), Some(_)) => {
                if !news.coming || vfs.names.seconds() >= begun + NAME_WAIT {
                    return WaitOutcome::NotNamed;
                }
                vfs.names.news(news).await;
                WaitOutcome::Ready
            }
            (Suspend::Recall(ticket), Some(patience)) => match patience.wait(ticket.wait()).await {
                true => WaitOutcome::Ready,
                false => WaitOutcome::NotRecalled,
            },
            (suspend, _) => match cx.resume(vfs, suspend).await {
                Ok(()) => WaitOutcome::Ready,
                Err(error) => WaitOutcome::Failed(error),
            },
        }
    };
    let event = async {
        let resumed = event.await;
        if let Some(measured) = measured {
            measured.end(vfs);
        }
        resumed
    };
    let Some(cancelled) = cancelled else {
        return event.await;
    };
    let (mut event, mut cancelled) = (pin!(event), cancelled.settled());
    std::future::poll_fn(|cx| match Pin::new(&mut cancelled).poll(cx) {
        Poll::Ready(how) => Poll::Ready(WaitOutcome::Cancelled(how)),
        Poll::Pending => event.as_mut().poll(cx),
    })
    .await
}
