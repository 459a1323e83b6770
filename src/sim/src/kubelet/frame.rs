//! HTTP/2 frames (RFC 9113, 4.1) and gRPC messages, as far as a client of unary calls needs them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// What a client sends first on a connection (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest payload that a peer may send us: we never raise SETTINGS_MAX_FRAME_SIZE.
const MAX_PAYLOAD: usize = 16_384;

/// END_STREAM, of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// ACK, of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// END_HEADERS, of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A frame's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    ResetStream,
    Settings,
    Ping,
    GoAway,
    Continuation,
    /// PRIORITY, PUSH_PROMISE, WINDOW_UPDATE and whatever comes later: read and ignored.
    Other(u8),
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::ResetStream => 0x3,
            Self::Settings => 0x4,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::Continuation => 0x9,
            Self::Other(code) => code,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x9 => Self::Continuation,
            other => Self::Other(other),
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) const fn new(kind: Kind, flags: u8, stream: u32, payload: Vec<u8>) -> Self {
        Self { kind, flags, stream, payload }
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Appends the frame as it goes over the wire.
    ///
    /// # Errors
    /// When the payload is longer than a frame may be without asking the peer first.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let length = u32::try_from(self.payload.len()).ok().filter(|length| *length as usize <= MAX_PAYLOAD);
        let length = length.ok_or_else(|| invalid("a frame of more than 16384 bytes cannot be sent"))?;
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind.code(), self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
        Ok(())
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// When the peer closes the connection, or announces a payload that it may not send.
    pub(super) async fn read_from(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0_u8; 9];
        reader.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > MAX_PAYLOAD {
            return Err(invalid("the server sent a frame of more than 16384 bytes"));
        }
        let mut payload = vec![0; length];
        reader.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Ok(Self { kind: Kind::from_code(head[3]), flags: head[4], stream, payload })
    }

    /// The payload of DATA or HEADERS without padding and priority.
    pub(super) fn content(&self) -> io::Result<&[u8]> {
        let mut content = self.payload.as_slice();
        let mut padding = 0;
        if self.has(PADDED) {
            let (length, rest) = content.split_first().ok_or_else(|| invalid("a padded frame without a length"))?;
            (padding, content) = (usize::from(*length), rest);
        }
        if self.kind == Kind::Headers && self.has(PRIORITY) {
            content = content.get(5..).ok_or_else(|| invalid("a HEADERS frame that is cut in its priority"))?;
        }
        let end = content.len().checked_sub(padding).ok_or_else(|| invalid("padding longer than its frame"))?;
        Ok(&content[..end])
    }
}

pub(super) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Wraps a message for DATA frames: not compressed, with its length.
pub(super) fn wrap_message(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.len()).map_err(|_| invalid("a message of more than 4 GiB cannot be sent"))?;
    let mut out = Vec::with_capacity(message.len() + 5);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    Ok(out)
}

/// Takes the only message of a unary answer out of its DATA.
pub(super) fn unwrap_message(data: &[u8]) -> io::Result<&[u8]> {
    let Some((head, message)) = data.split_at_checked(5) else {
        return Err(invalid("the answer holds no message"));
    };
    if head[0] != 0 {
        return Err(invalid("the answer is compressed, which was not asked for"));
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length == message.len() {
        Ok(message)
    } else {
        Err(invalid("the answer's message has another length than it says"))
    }
}

/// The name of an error code (RFC 9113, 7).
pub(super) fn error_name(payload: &[u8]) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    let Some(code) = payload.first_chunk::<4>().map(|code| u32::from_be_bytes(*code)) else {
        return "no error code".to_owned();
    };
    NAMES.get(code as usize).map_or_else(|| format!("error code {code}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_reads_back_as_it_was_written() {
        let frame = Frame::new(Kind::Headers, END_HEADERS | END_STREAM, 3, vec![1, 2, 3]);
        let mut wire = Vec::new();
        frame.write_to(&mut wire).unwrap();
        assert_eq!(wire, [0, 0, 3, 1, 5, 0, 0, 0, 3, 1, 2, 3]);
        assert_eq!(Frame::read_from(&mut wire.as_slice()).await.unwrap(), frame);
    }

    #[tokio::test]
    async fn frames_that_are_cut_or_too_long_are_errors() {
        assert!(Frame::read_from(&mut [0, 0, 3, 1].as_slice()).await.is_err());
        assert!(Frame::read_from(&mut [0, 0, 3, 1, 0, 0, 0, 0, 1, 9].as_slice()).await.is_err());
        assert!(Frame::read_from(&mut [1, 0, 0, 0, 0, 0, 0, 0, 1].as_slice()).await.is_err());
        let long = Frame::new(Kind::Data, 0, 1, vec![0; MAX_PAYLOAD + 1]);
        assert!(long.write_to(&mut Vec::new()).is_err());
    }

    #[test]
    fn padding_and_priority_are_taken_off() {
        let padded = Frame::new(Kind::Headers, PADDED | PRIORITY, 1, vec![2, 0, 0, 0, 0, 9, 7, 8, 0, 0]);
        assert_eq!(padded.content().unwrap(), [7, 8]);
        let data = Frame::new(Kind::Data, PADDED, 1, vec![1, 5, 0]);
        assert_eq!(data.content().unwrap(), [5]);
        for bad in [vec![], vec![9, 1], vec![0]] {
            assert!(Frame::new(Kind::Headers, PADDED | PRIORITY, 1, bad).content().is_err());
        }
    }

    #[test]
    fn messages_are_wrapped_with_their_length() {
        let wrapped = wrap_message(b"abc").unwrap();
        assert_eq!(wrapped, [0, 0, 0, 0, 3, b'a', b'b', b'c']);
        assert_eq!(unwrap_message(&wrapped).unwrap(), b"abc");
        for bad in [&b""[..], &[0, 0, 0, 0, 4, 1], &[1, 0, 0, 0, 0], &[0, 0, 0]] {
            assert!(unwrap_message(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn error_codes_have_names() {
        assert_eq!(error_name(&[0, 0, 0, 1]), "PROTOCOL_ERROR");
        assert_eq!(error_name(&[0, 0, 1, 0]), "error code 256");
        assert_eq!(error_name(&[]), "no error code");
    }
}
