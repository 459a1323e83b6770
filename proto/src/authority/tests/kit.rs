//! What the tests share: frames by hand, and readers that use nothing of the repair's own code.

use bytes::BytesMut;

use super::super::RepairError;
use super::super::repair::Repair;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PING: u8 = 0x6;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// What grpc-go makes of a registration socket's path.
pub(super) const PATH_AUTHORITY: &str = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.devicetaint.dev-reg.sock";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes(), &self.payload].concat()
    }

    /// The first frame of the bytes and what is behind it; `None` while it is not whole.
    pub(super) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[l0, l1, l2, kind, flags, s0, s1, s2, s3], rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes([0, l0, l1, l2])).unwrap();
        let (payload, rest) = rest.split_at_checked(length)?;
        Some((Self::new(kind, flags, u32::from_be_bytes([s0, s1, s2, s3]), payload), rest))
    }
}

/// A client's bytes: the preface and the frames.
pub(super) fn stream(frames: &[Frame]) -> Vec<u8> {
    [PREFACE.to_vec(), frames.iter().flat_map(Frame::bytes).collect()].concat()
}

/// The frames behind the preface; what is not a whole frame is an error of the test.
#[track_caller]
pub(super) fn frames_of(bytes: &[u8]) -> Vec<Frame> {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap();
    let mut frames = Vec::new();
    while let Some((frame, after)) = Frame::split(rest) {
        frames.push(frame);
        rest = after;
    }
    assert_eq!(rest, b"", "half a frame");
    frames
}

/// All that comes out for an input that arrives in the given pieces, and how it ended.
pub(super) fn repair_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), RepairError>) {
    let mut repair = Repair::new();
    let mut out = BytesMut::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            match repair.step(piece, &mut out) {
                Ok(taken) => piece = &piece[taken..],
                Err(error) => return (out.to_vec(), Err(error)),
            }
        }
    }
    (out.to_vec(), Ok(()))
}

pub(super) fn repair(frames: &[Frame]) -> Result<Vec<Frame>, RepairError> {
    let (out, ended) = repair_pieces([stream(frames).as_slice()]);
    ended.map(|()| frames_of(&out))
}

pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// What kubelet sends for GetInfo, with its two kinds of authority.
pub(super) fn get_info(authority: &str) -> Fields {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/pluginregistration.Registration/GetInfo"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.83.0"),
        ("te", "trailers"),
    ])
}

pub(super) fn encode(encoder: &mut loona_hpack::Encoder<'_>, fields: &Fields) -> Vec<u8> {
    encoder.encode(fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
}

/// The fields of all header blocks, read by a plain decoder that only knows frames without padding.
pub(super) fn read_blocks(frames: &[Frame]) -> Vec<(u32, Fields)> {
    let mut decoder = loona_hpack::Decoder::new();
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    for frame in frames.iter().filter(|frame| matches!(frame.kind, HEADERS | CONTINUATION)) {
        assert_eq!(frame.flags & PADDED, 0, "padding goes with the repair");
        let priority = if frame.flags & PRIORITY == 0 { 0 } else { 5 };
        block.extend_from_slice(&frame.payload[priority..]);
        if frame.flags & END_HEADERS != 0 {
            blocks.push((frame.stream, decoder.decode(&std::mem::take(&mut block)).unwrap()));
        }
    }
    blocks
}
