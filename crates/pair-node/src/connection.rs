//! One connection to the partner: the state of each side's copy, and the messages queued.

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
    /// Newest marks that the copy holds, oldest first.
    pub marks: Vec<MarkId>,
    /// Maximum number of bytes of pages that the side keeps before their entries arrive.
    pub ahead: u32,
}

/// The current connection to the partner.
pub struct Link {
    pub number: u64,
    /// State of the partner's copy.
    pub hello: Hello,
    /// On a primary: number of the entry after which entries are sent.
    pub joined: Option<u64>,
    /// The stream that `joined` is a position in.
    pub stream: Option<Arc<ChangeStream>>,
    /// On a primary: the round that brings the partner's copy up before it joins.
    pub feed: Option<Arc<Feed>>,
    /// On a standby: the term whose entries it accepts. During a round this is the term of
    /// positions towards the mark.
    pub receiving: Option<u64>,
    /// Term of the primary whose entries are received.
    pub term: u64,
    /// Encoded messages that are sent before further entries.
    pub out: Vec<u8>,
    /// True while messages taken from `out` are being written.
    pub sending: bool,
    /// True if the connection ends once `out` is sent.
    pub closing: bool,
    /// Comparison of a standby's clock with the primary's.
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

    /// Sends the reason for a refusal and ends the connection.
    pub fn refuse(&mut self, why: &str) {
        self.say(&Message::Refusal(why.to_owned()));
        self.closing = true;
    }

    /// Ends the connection once the queued messages are sent.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Returns true if no message is queued or being written.
    pub fn said_all(&self) -> bool {
        self.out.is_empty() && !self.sending
    }

    /// Returns the number of bytes queued ahead of further entries.
    pub fn queued(&self) -> usize {
        self.out.len()
    }
}
