//! The pure core of the repair: a client's bytes in, the same bytes with another `:authority` out, for any cut of the input into pieces.
//!
//! preface -> frame header -> (pass the payload | collect it -> header block -> fields -> new frames) -> frame header -> ...

use std::io;

use bytes::{BufMut, BytesMut};

use super::{AUTHORITY, HEADER_TABLE_SIZE, MAX_CONTINUATIONS, MAX_HEADER_BLOCK, MAX_HEADER_LIST};
use crate::hpack::{self, Decoder, HpackError};

/// What a client sends before its first frame (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEADER: usize = 9;

/// Largest payload of the frames that we make: every server takes this much (RFC 9113 4.2).
const MAX_FRAME: usize = 16_384;

/// Bytes of a PRIORITY section in a HEADERS frame.
const PRIORITY_SECTION: usize = 5;

mod kind {
    pub(super) const HEADERS: u8 = 0x1;
    pub(super) const CONTINUATION: u8 = 0x9;
}

mod flag {
    pub(super) const END_STREAM: u8 = 0x1;
    pub(super) const END_HEADERS: u8 = 0x4;
    pub(super) const PADDED: u8 = 0x8;
    pub(super) const PRIORITY: u8 = 0x20;
}

/// Why a client's bytes cannot be repaired. The connection is of no more use then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The first bytes are not HTTP/2's connection preface.
    #[error("the client does not speak HTTP/2: wrong connection preface")]
    NotHttp2,
    /// A HEADERS frame is too short for the padding or priority that its flags announce.
    #[error("a HEADERS frame of stream {stream} is shorter than its padding or priority")]
    BadHeaders {
        /// The frame's stream.
        stream: u32,
    },
    /// A header block was begun and another frame than its CONTINUATION came.
    #[error("the header block of stream {stream} is interrupted by another frame")]
    Interrupted {
        /// The block's stream.
        stream: u32,
    },
    /// A CONTINUATION frame continues nothing.
    #[error("a CONTINUATION frame of stream {stream} continues no header block")]
    NothingToContinue {
        /// The frame's stream.
        stream: u32,
    },
    /// A header block is longer than [`MAX_HEADER_BLOCK`] or comes in more than [`MAX_CONTINUATIONS`] pieces.
    #[error(
        "the header block of stream {stream} is too large: {MAX_HEADER_BLOCK} bytes and {MAX_CONTINUATIONS} CONTINUATION frames are allowed"
    )]
    BlockTooLarge {
        /// The block's stream.
        stream: u32,
    },
    /// A header block cannot be decoded.
    #[error("the header block of stream {stream} cannot be read: {source}")]
    Hpack {
        /// The block's stream.
        stream: u32,
        /// What is wrong with it.
        source: HpackError,
    },
}

impl From<RepairError> for io::Error {
    fn from(error: RepairError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The head of one frame.
#[derive(Clone, Copy, Debug)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn parse(bytes: [u8; FRAME_HEADER]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2),
            kind,
            flags,
            // The highest bit is reserved and says nothing.
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn write(self, out: &mut BytesMut) {
        // Lengths that we write are at most MAX_FRAME.
        out.put_uint(self.length as u64, 3);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        out.put_u32(self.stream);
    }
}

/// A header block of which the last frame has not come yet.
#[derive(Debug)]
struct Block {
    stream: u32,
    end_stream: bool,
    priority: Option<[u8; PRIORITY_SECTION]>,
    fragment: Vec<u8>,
    continuations: usize,
}

/// Where in the stream of frames the next byte falls.
#[derive(Clone, Copy, Debug)]
enum State {
    Preface { seen: usize },
    Head { bytes: [u8; FRAME_HEADER], seen: usize },
    Pass { left: usize },
    Collect(Head),
}

impl State {
    const NEXT_FRAME: Self = Self::Head { bytes: [0; FRAME_HEADER], seen: 0 };
}

/// The state of one connection's repair.
pub(super) struct Repair {
    state: State,
    /// What [`State::Collect`] has so far.
    payload: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder,
}

/// Without the decoder's table: values of header fields do not belong in a log.
impl std::fmt::Debug for Repair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Repair").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Repair {
    pub(super) fn new() -> Self {
        let decoder = Decoder::new(HEADER_TABLE_SIZE, MAX_HEADER_LIST);
        Self { state: State::Preface { seen: 0 }, payload: Vec::new(), block: None, decoder }
    }

    /// Whether the whole preface was seen.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.state, State::Preface { .. })
    }

    /// Takes some of the input, at least one byte where there is one, and appends what becomes of it to `out`: at most the preface, as much as was taken, or
    /// one header block. Returns how many bytes were taken.
    pub(super) fn step(&mut self, input: &[u8], out: &mut BytesMut) -> Result<usize, RepairError> {
        match self.state {
            State::Preface { seen } => self.preface(seen, input, out),
            State::Head { bytes, seen } => self.head(bytes, seen, input, out),
            State::Pass { left } => Ok(self.pass(left, input, out)),
            State::Collect(head) => self.collect(head, input, out),
        }
    }

    fn preface(&mut self, seen: usize, input: &[u8], out: &mut BytesMut) -> Result<usize, RepairError> {
        let taken = input.len().min(PREFACE.len() - seen);
        if input[..taken] != PREFACE[seen..seen + taken] {
            return Err(RepairError::NotHttp2);
        }
        let seen = seen + taken;
        if seen < PREFACE.len() {
            self.state = State::Preface { seen };
        } else {
            // Passed on when it is whole: a client of another protocol never reaches the server.
            out.extend_from_slice(PREFACE);
            self.state = State::NEXT_FRAME;
        }
        Ok(taken)
    }

    fn head(
        &mut self,
        mut bytes: [u8; FRAME_HEADER],
        seen: usize,
        input: &[u8],
        out: &mut BytesMut,
    ) -> Result<usize, RepairError> {
        let taken = input.len().min(FRAME_HEADER - seen);
        bytes[seen..seen + taken].copy_from_slice(&input[..taken]);
        let seen = seen + taken;
        if seen == FRAME_HEADER {
            self.begin_frame(bytes, out)?;
        } else {
            self.state = State::Head { bytes, seen };
        }
        Ok(taken)
    }

    fn pass(&mut self, left: usize, input: &[u8], out: &mut BytesMut) -> usize {
        let taken = input.len().min(left);
        out.extend_from_slice(&input[..taken]);
        self.state = if taken == left { State::NEXT_FRAME } else { State::Pass { left: left - taken } };
        taken
    }

    fn collect(&mut self, head: Head, input: &[u8], out: &mut BytesMut) -> Result<usize, RepairError> {
        let taken = input.len().min(head.length - self.payload.len());
        self.payload.extend_from_slice(&input[..taken]);
        if self.payload.len() == head.length {
            let payload = std::mem::take(&mut self.payload);
            self.end_frame(head, &payload, out)?;
        }
        Ok(taken)
    }

    /// Decides what to do with a frame by its head.
    ///
    /// A client may not send the third kind of frame with a header block, PUSH_PROMISE; it passes, and the server ends the connection.
    fn begin_frame(&mut self, bytes: [u8; FRAME_HEADER], out: &mut BytesMut) -> Result<(), RepairError> {
        let head = Head::parse(bytes);
        match (&self.block, head.kind) {
            (None, kind::HEADERS) => self.begin_collect(head, 0, out),
            (Some(block), kind::CONTINUATION) if block.stream == head.stream => {
                let before = block.fragment.len();
                self.begin_collect(head, before, out)
            }
            (Some(block), _) => Err(RepairError::Interrupted { stream: block.stream }),
            (None, kind::CONTINUATION) => Err(RepairError::NothingToContinue { stream: head.stream }),
            (None, _) => {
                out.extend_from_slice(&bytes);
                self.state = if head.length == 0 { State::NEXT_FRAME } else { State::Pass { left: head.length } };
                Ok(())
            }
        }
    }

    fn begin_collect(&mut self, head: Head, before: usize, out: &mut BytesMut) -> Result<(), RepairError> {
        // Refused by its announced length, before anything is kept.
        if before + head.length > MAX_HEADER_BLOCK {
            return Err(RepairError::BlockTooLarge { stream: head.stream });
        }
        if head.length == 0 {
            return self.end_frame(head, &[], out);
        }
        self.state = State::Collect(head);
        Ok(())
    }

    /// A whole HEADERS or CONTINUATION frame is there.
    fn end_frame(&mut self, head: Head, payload: &[u8], out: &mut BytesMut) -> Result<(), RepairError> {
        self.state = State::NEXT_FRAME;
        let block = match self.block.take() {
            None => open_block(head, payload)?,
            Some(block) => continue_block(block, payload)?,
        };
        if head.has(flag::END_HEADERS) {
            self.write_repaired(&block, out)?;
        } else {
            self.block = Some(block);
        }
        Ok(())
    }

    fn write_repaired(&mut self, block: &Block, out: &mut BytesMut) -> Result<(), RepairError> {
        let decoded = self.decoder.decode(&block.fragment);
        let mut fields = decoded.map_err(|source| RepairError::Hpack { stream: block.stream, source })?;
        for field in &mut fields {
            if field.name == b":authority" {
                field.value = AUTHORITY.into();
            }
        }
        write_block(block, &hpack::encode(&fields), out);
        Ok(())
    }
}

/// Takes padding and priority off the payload of a HEADERS frame (RFC 9113 6.2).
fn open_block(head: Head, payload: &[u8]) -> Result<Block, RepairError> {
    let too_short = || RepairError::BadHeaders { stream: head.stream };
    let mut rest = payload;
    let mut padding = 0;
    if head.has(flag::PADDED) {
        let (&count, after) = rest.split_first().ok_or_else(too_short)?;
        (padding, rest) = (usize::from(count), after);
    }
    let mut priority = None;
    if head.has(flag::PRIORITY) {
        let (section, after) = rest.split_first_chunk().ok_or_else(too_short)?;
        (priority, rest) = (Some(*section), after);
    }
    let length = rest.len().checked_sub(padding).ok_or_else(too_short)?;
    Ok(Block {
        stream: head.stream,
        end_stream: head.has(flag::END_STREAM),
        priority,
        fragment: rest[..length].to_vec(),
        continuations: 0,
    })
}

fn continue_block(mut block: Block, payload: &[u8]) -> Result<Block, RepairError> {
    block.continuations += 1;
    if block.continuations > MAX_CONTINUATIONS {
        return Err(RepairError::BlockTooLarge { stream: block.stream });
    }
    block.fragment.extend_from_slice(payload);
    Ok(block)
}

/// Writes an encoded block as HEADERS, and CONTINUATION where one frame cannot hold it; without padding, with the priority it had.
fn write_block(block: &Block, encoded: &[u8], out: &mut BytesMut) {
    let priority = block.priority.as_ref().map_or(&[][..], |section| section);
    let (first, mut rest) = encoded.split_at(encoded.len().min(MAX_FRAME - priority.len()));
    let mut flags = if rest.is_empty() { flag::END_HEADERS } else { 0 };
    flags |= if block.end_stream { flag::END_STREAM } else { 0 };
    flags |= if priority.is_empty() { 0 } else { flag::PRIORITY };
    let length = priority.len() + first.len();
    Head { length, kind: kind::HEADERS, flags, stream: block.stream }.write(out);
    out.extend_from_slice(priority);
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(MAX_FRAME));
        let flags = if after.is_empty() { flag::END_HEADERS } else { 0 };
        Head { length: piece.len(), kind: kind::CONTINUATION, flags, stream: block.stream }.write(out);
        out.extend_from_slice(piece);
        rest = after;
    }
}
