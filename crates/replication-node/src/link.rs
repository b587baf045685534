//! A connection between the two sides of a transfer: frames over a stream, which is TLS between two
//! nodes and a pipe within one.
//!
//! While a write waits, incoming bytes are read, so two sides that both send much cannot block each
//! other.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use weir_base::limits::replica::{LINK_AHEAD as AHEAD, LINK_CHUNK as CHUNK, LINK_REPLY as ANSWER};
use weir_transfer::session::{self, Ask, PeerReply};
use weir_transfer::wire::{self, Decoder, Hello, Kind, Message, WireError};

/// Stream below a link: TLS or a pipe.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Error after which a connection is not used any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection broke.
    #[error("connection lost: {0}")]
    Io(io::Error),
    /// The other side has closed the connection.
    #[error("connection closed by the other side")]
    Closed,
    /// Received bytes are malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side has not replied in time.
    #[error("no reply from the other side")]
    Silent,
    /// The other side refuses. The cause.
    #[error("{0}")]
    Refused(String),
    /// The other side refuses for now. The cause.
    #[error("{0}")]
    Later(String),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        match error.kind() {
            // A node that ends sends no farewell to its peers, and transferred data does not depend
            // on one.
            io::ErrorKind::UnexpectedEof => LinkError::Closed,
            _ => LinkError::Io(error),
        }
    }
}

/// Connection of one side of a transfer.
pub struct Link {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    /// Received bytes.
    pub incoming: Decoder,
    /// Bytes to send.
    pub out: Vec<u8>,
    buffer: Vec<u8>,
    ahead: usize,
}

impl Link {
    /// Creates the link over a stream, and exchanges greetings.
    ///
    /// # Errors
    /// The other side is not a replication service, or has another version.
    pub async fn open(stream: Box<dyn Stream>, node: [u8; 16]) -> Result<Link, LinkError> {
        let (reader, writer) = tokio::io::split(stream);
        let mut link = Link {
            reader,
            writer,
            incoming: Decoder::new(),
            out: Vec::new(),
            buffer: vec![0; CHUNK],
            ahead: 0,
        };
        Hello::ours(node).frame(&mut link.out)?;
        link.flush().await?;
        loop {
            if let Some(frame) = link.incoming.frame()? {
                Hello::from_frame(&frame)?.agree()?;
                return Ok(link);
            }
            link.fill().await?;
        }
    }

    /// Waits for more bytes.
    ///
    /// # Errors
    /// The other side has closed the connection, or it broke.
    pub async fn fill(&mut self) -> Result<(), LinkError> {
        self.ahead = 0;
        match self.reader.read(&mut self.buffer).await? {
            0 => Err(LinkError::Closed),
            n => {
                self.incoming.feed(self.buffer.get(..n).unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Sends the bytes in `out`, and reads incoming bytes meanwhile.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        let mut sent = 0;
        while let Some(rest) = self.out.get(sent..).filter(|rest| !rest.is_empty()) {
            tokio::select! {
                biased;
                written = self.writer.write(rest) => match written? {
                    0 => return Err(LinkError::Closed),
                    n => sent += n,
                },
                read = self.reader.read(&mut self.buffer), if self.ahead < AHEAD => match read? {
                    0 => return Err(LinkError::Closed),
                    n => {
                        self.ahead += n;
                        self.incoming.feed(self.buffer.get(..n).unwrap_or_default());
                    }
                },
            }
        }
        self.out.clear();
        self.writer.flush().await?;
        Ok(())
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// `Refused` and `Later` as the other side replies; after any other error the connection is not
    /// used any more.
    pub async fn request(&mut self, question: &Ask) -> Result<PeerReply, LinkError> {
        wire::put_frame(
            &mut self.out,
            Kind::Control,
            &session::encode(question),
            None,
        )?;
        self.flush().await?;
        loop {
            let answer = tokio::time::timeout(ANSWER, self.control::<PeerReply>()).await;
            match answer.map_err(|_| LinkError::Silent)?? {
                PeerReply::Refused(why) => return Err(LinkError::Refused(why)),
                PeerReply::Later(why) => return Err(LinkError::Later(why)),
                PeerReply::Working => {}
                told => return Ok(told),
            }
        }
    }

    /// Returns the next frame: its kind, its payload, and its bytes on the wire.
    ///
    /// # Errors
    /// The connection is lost, or received bytes are malformed.
    pub async fn frame(&mut self) -> Result<(Kind, Vec<u8>, usize), LinkError> {
        loop {
            if let Some(frame) = self.incoming.frame()? {
                return Ok((frame.kind, frame.payload.into_owned(), frame.wire));
            }
            self.fill().await?;
        }
    }

    /// Sends `answer` to the other side at once.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn tell(&mut self, answer: &PeerReply) -> Result<(), LinkError> {
        wire::put_frame(&mut self.out, Kind::Control, &session::encode(answer), None)?;
        self.flush().await
    }

    /// Returns the next control message of the other side.
    ///
    /// # Errors
    /// The next frame has another kind, or the connection is lost.
    pub async fn control<T: for<'de> serde::Deserialize<'de>>(&mut self) -> Result<T, LinkError> {
        loop {
            if let Some(frame) = self.incoming.frame()? {
                // A transfer that has ended may have sent another frame that nobody waits for any
                // more.
                match frame.kind {
                    Kind::Control => {
                        return session::decode(&frame.payload).map_err(LinkError::Refused);
                    }
                    Kind::Ack | Kind::Refusal => continue,
                    _ => return Err(WireError::Malformed("a frame out of turn").into()),
                }
            }
            self.fill().await?;
        }
    }
}
