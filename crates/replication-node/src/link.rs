//! A connection between the two sides of a transfer: frames over a stream, which is TLS between two
//! nodes and a pipe within one.
//!
//! What is sent never waits for the other side alone: while a write waits, what comes in is taken
//! in, so two sides that both have much to say cannot block each other.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use weir_base::limits::replica::{LINK_AHEAD as AHEAD, LINK_CHUNK as CHUNK, LINK_REPLY as ANSWER};
use weir_transfer::session::{self, Ask, Told};
use weir_transfer::wire::{self, Decoder, Hello, Kind, Message, WireError};

/// Either kind of stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection broke with this error.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// The other side has closed it.
    #[error("the other side closed the connection")]
    Closed,
    /// What came cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The other side does not answer.
    #[error("the other side does not answer")]
    Silent,
    /// The other side refuses, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The other side refuses for now, for this reason.
    #[error("{0}")]
    Later(String),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        match error.kind() {
            // A node that ends takes no leave of its peers, and what was transferred does not
            // depend on it.
            io::ErrorKind::UnexpectedEof => LinkError::Closed,
            _ => LinkError::Io(error),
        }
    }
}

/// See the module's head.
pub struct Link {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    /// What has come in.
    pub incoming: Decoder,
    /// What is to be sent.
    pub out: Vec<u8>,
    buffer: Vec<u8>,
    ahead: usize,
}

impl Link {
    /// Over a stream; greets, and waits for the other side's greeting.
    ///
    /// # Errors
    /// It is no such service, or of another version.
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
                Hello::of(&frame)?.agree()?;
                return Ok(link);
            }
            link.fill().await?;
        }
    }

    /// Waits for more to come in.
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

    /// Sends what is to be sent, and takes in what comes meanwhile.
    ///
    /// # Errors
    /// The connection is gone.
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

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// `Refused` and `Later` as the other side says; else the connection is of no more use.
    pub async fn ask(&mut self, question: &Ask) -> Result<Told, LinkError> {
        wire::put_frame(
            &mut self.out,
            Kind::Control,
            &session::encode(question),
            None,
        )?;
        self.flush().await?;
        loop {
            let answer = tokio::time::timeout(ANSWER, self.control::<Told>()).await;
            match answer.map_err(|_| LinkError::Silent)?? {
                Told::Refused(why) => return Err(LinkError::Refused(why)),
                Told::Later(why) => return Err(LinkError::Later(why)),
                Told::Working => {}
                told => return Ok(told),
            }
        }
    }

    /// The next frame: its kind, its payload, and its bytes on the wire.
    ///
    /// # Errors
    /// The connection is gone, or what came cannot be read.
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
    /// The connection is gone.
    pub async fn tell(&mut self, answer: &Told) -> Result<(), LinkError> {
        wire::put_frame(&mut self.out, Kind::Control, &session::encode(answer), None)?;
        self.flush().await
    }

    /// The next message of the other side's manager.
    ///
    /// # Errors
    /// Something else came, or nothing any more.
    pub async fn control<T: for<'de> serde::Deserialize<'de>>(&mut self) -> Result<T, LinkError> {
        loop {
            if let Some(frame) = self.incoming.frame()? {
                // A transfer that has ended may have left a word for the other side that is no
                // longer waited for.
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
