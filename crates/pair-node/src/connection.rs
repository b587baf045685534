//! One connection to the partner: what each side has said of its copy, and what is queued.

use std::sync::Arc;

use weir_mirror::Clocks;
use weir_mirror::wire::{CopyState, Message};
use weir_volume::{ChangeStream, MarkId, StreamPosition};

use super::feed::Feed;

/// State of a side's copy, as it reports it when it connects.
#[derive(Clone, Debug)]
pub struct Hello {
    pub at: StreamPosition,
    pub copy: CopyState,
    /// The newest that it holds, oldest first.
    pub marks: Vec<MarkId>,
    /// Bytes of pages that it keeps of those sent before their entries.
    pub ahead: u32,
}

/// The current connection to the partner.
pub struct Link {
    pub number: u64,
    /// The partner's.
    pub hello: Hello,
    /// A primary's: entries behind this one are sent.
    pub joined: Option<u64>,
    /// The stream that `joined` is a position in.
    pub stream: Option<Arc<ChangeStream>>,
    /// A primary's: what brings the partner's copy up, before it joins.
    pub feed: Option<Arc<Feed>>,
    /// A standby's: the term whose entries it takes; while it is brought up, that of positions
    /// towards the mark.
    pub receiving: Option<u64>,
    /// The primary's term of what is received.
    pub term: u64,
    /// What is to be sent before more entries are.
    pub out: Vec<u8>,
    /// Some of it is on its way.
    pub sending: bool,
    /// It ends when that is sent.
    pub closing: bool,
    /// A standby's, beside the primary's.
    pub clocks: Clocks,
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(feed) = &self.feed {
            feed.close();
        }
    }
}

impl Link {
    /// Begins a connection to a partner that has greeted.
    pub fn new(number: u64, hello: Hello) -> Link {
        Link {
            number,
            hello,
            joined: None,
            stream: None,
            feed: None,
            receiving: None,
            term: 0,
            out: Vec::new(),
            sending: false,
            closing: false,
            clocks: Clocks::default(),
        }
    }

    /// Queues `message` ahead of stream entries.
    pub fn say(&mut self, message: &Message) {
        self.out.extend(message.encode());
    }

    /// Says why it does not go on, and ends.
    pub fn refuse(&mut self, why: &str) {
        self.say(&Message::Refusal(why.to_owned()));
        self.closing = true;
    }

    /// Ends.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether everything is on its way.
    pub fn said_all(&self) -> bool {
        self.out.is_empty() && !self.sending
    }

    /// Bytes that are to be sent before more entries are.
    pub fn queued(&self) -> usize {
        self.out.len()
    }
}
