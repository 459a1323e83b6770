//! The registration dial: unary gRPC calls over a unix socket whose `:authority` is the socket's path, percent-encoded.
//!
//! Kubelet's plugin manager dials with grpc-go on the bare path and no authority of its own, so grpc-go sends
//! `%2Fvar%2Flib%2Fkubelet%2F...`. The http crate under tonic and h2 refuses to send such a value as much as to receive it, so a
//! tonic client could not show whether a driver stands it. Hence a small client of our own: one stream at a time, headers with a
//! dynamic table as grpc-go uses it (the second call of a connection refers back to the first).

use std::io;
use std::path::Path;
use std::time::Duration;

use loona_hpack::{Decoder, Encoder};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::frame::{
    ACK, END_HEADERS, END_STREAM, Frame, Kind, PREFACE, error_name, invalid, unwrap_message, wrap_message,
};

/// The longest answer that is read: a registration answers with a few names.
const MAX_ANSWER: usize = 256 * 1024;
/// How long to wait before dialling a socket again on which nobody listens yet.
const REDIAL: Duration = Duration::from_millis(20);

/// Why a call over the registration socket failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens on the socket, or the connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No connection, or no answer, in time.
    #[error("no answer within {}s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The server ended the stream. PROTOCOL_ERROR is what a server says that does not take a path as `:authority`.
    #[error("stream terminated by RST_STREAM with error code: {0}")]
    Reset(String),
    /// The server ends the connection.
    #[error("connection closed by GOAWAY with error code: {0}")]
    GoAway(String),
    /// The server answered with a gRPC status other than OK.
    #[error("gRPC status {code}: {message}")]
    Status {
        /// The status code.
        code: String,
        /// The message.
        message: String,
    },
    /// The answer's headers cannot be decoded.
    #[error("the answer's headers cannot be decoded: {0}")]
    Headers(String),
    /// The message is not what the service promises.
    #[error("the answer cannot be read: {0}")]
    Message(#[from] prost::DecodeError),
}

/// A connection for unary calls, one after the other.
pub struct Connection {
    stream: UnixStream,
    authority: String,
    encoder: Encoder<'static>,
    decoder: Decoder<'static>,
    next_stream: u32,
}

impl Connection {
    /// Dials a socket as kubelet dials a registration socket. A socket on which nobody listens yet is dialled again, as
    /// grpc-go's blocking dial does, until the time is up.
    ///
    /// # Errors
    /// [`DialError::Io`], [`DialError::Timeout`].
    pub async fn open(socket: &Path, limit: Duration) -> Result<Self, DialError> {
        let authority = encode_authority(&socket.to_string_lossy());
        timeout(limit, Self::open_as(socket, authority)).await.map_err(|_| DialError::Timeout(limit))?
    }

    async fn open_as(socket: &Path, authority: String) -> Result<Self, DialError> {
        let mut stream = loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => break stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => tokio::time::sleep(REDIAL).await,
                Err(error) => return Err(error.into()),
            }
        };
        let mut hello = PREFACE.to_vec();
        Frame::new(Kind::Settings, 0, 0, Vec::new()).write_to(&mut hello)?;
        stream.write_all(&hello).await?;
        Ok(Self { stream, authority, encoder: Encoder::new(), decoder: Decoder::new(), next_stream: 1 })
    }

    /// One call.
    ///
    /// # Errors
    /// When no good answer comes in time. A timeout leaves the connection in the middle of an answer: drop it then.
    pub async fn unary<A: Message + Default>(
        &mut self,
        path: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<A, DialError> {
        let answer = timeout(limit, self.call(path, &request.encode_to_vec(), limit)).await;
        let data = answer.map_err(|_| DialError::Timeout(limit))??;
        Ok(A::decode(unwrap_message(&data)?)?)
    }

    async fn call(&mut self, path: &str, message: &[u8], limit: Duration) -> Result<Vec<u8>, DialError> {
        let id = self.next_stream;
        self.next_stream += 2;
        let limit = format!("{}u", limit.as_micros());
        let headers: [(&[u8], &[u8]); 8] = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.as_bytes()),
            (b":authority", self.authority.as_bytes()),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"grpc-go/1.83.0"),
            (b"te", b"trailers"),
            (b"grpc-timeout", limit.as_bytes()),
        ];
        let block = self.encoder.encode(headers);
        let mut out = Vec::new();
        Frame::new(Kind::Headers, END_HEADERS, id, block).write_to(&mut out)?;
        Frame::new(Kind::Data, END_STREAM, id, wrap_message(message)?).write_to(&mut out)?;
        self.stream.write_all(&out).await?;
        self.answer(id).await
    }

    async fn answer(&mut self, id: u32) -> Result<Vec<u8>, DialError> {
        let mut answer = Answer::default();
        loop {
            let frame = Frame::read_from(&mut self.stream).await?;
            match frame.kind {
                Kind::Settings | Kind::Ping => self.acknowledge(frame).await?,
                Kind::GoAway => return Err(DialError::GoAway(error_name(frame.payload.get(4..).unwrap_or_default()))),
                Kind::ResetStream if frame.stream == id => return Err(DialError::Reset(error_name(&frame.payload))),
                Kind::Data if frame.stream == id => answer.data(&frame)?,
                Kind::Headers | Kind::Continuation => answer.headers(&frame, &mut self.decoder)?,
                Kind::Data | Kind::ResetStream | Kind::Other(_) => {}
            }
            if frame_ends(&answer) {
                return answer.finish();
            }
        }
    }

    async fn acknowledge(&mut self, frame: Frame) -> io::Result<()> {
        if frame.has(ACK) {
            return Ok(());
        }
        let payload = if frame.kind == Kind::Ping { frame.payload } else { Vec::new() };
        let mut out = Vec::new();
        Frame::new(frame.kind, ACK, 0, payload).write_to(&mut out)?;
        self.stream.write_all(&out).await
    }
}

fn frame_ends(answer: &Answer) -> bool {
    answer.ended && answer.block.is_none()
}

/// What has come of an answer so far.
#[derive(Default)]
struct Answer {
    data: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// A header block whose CONTINUATION is to come.
    block: Option<Vec<u8>>,
    ended: bool,
}

impl Answer {
    fn data(&mut self, frame: &Frame) -> io::Result<()> {
        self.data.extend_from_slice(frame.content()?);
        self.ended |= frame.has(END_STREAM);
        self.within_bounds(self.data.len())
    }

    fn headers(&mut self, frame: &Frame, decoder: &mut Decoder<'static>) -> Result<(), DialError> {
        let mut block = self.block.take().unwrap_or_default();
        match frame.kind {
            Kind::Headers => {
                block.extend_from_slice(frame.content()?);
                self.ended |= frame.has(END_STREAM);
            }
            _ => block.extend_from_slice(&frame.payload),
        }
        self.within_bounds(block.len())?;
        if !frame.has(END_HEADERS) {
            self.block = Some(block);
            return Ok(());
        }
        let fields = decoder.decode(&block).map_err(|error| DialError::Headers(format!("{error:?}")))?;
        self.fields.extend(fields);
        Ok(())
    }

    fn within_bounds(&self, length: usize) -> io::Result<()> {
        if length > MAX_ANSWER { Err(invalid("the answer is longer than 256 KiB")) } else { Ok(()) }
    }

    fn field(&self, name: &[u8]) -> Option<String> {
        let (_, value) = self.fields.iter().rev().find(|(field, _)| field == name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    fn finish(self) -> Result<Vec<u8>, DialError> {
        match self.field(b"grpc-status").as_deref() {
            Some("0") => Ok(self.data),
            Some(code) => {
                let message = self.field(b"grpc-message").unwrap_or_default();
                Err(DialError::Status { code: code.to_owned(), message: decode_percent(&message) })
            }
            None => {
                let status = self.field(b":status").unwrap_or_else(|| "no status".to_owned());
                Err(invalid(&format!("the answer has no gRPC status (HTTP {status})")).into())
            }
        }
    }
}

/// A path as grpc-go writes it into `:authority`: what a URL's authority may not hold is percent-encoded, `/` first of all.
pub fn encode_authority(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The text of `grpc-message`, which is percent-encoded.
fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
