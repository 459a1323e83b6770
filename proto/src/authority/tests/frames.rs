//! Each rule of framing once.

use super::super::repair::RepairError;
use super::super::{AUTHORITY, HpackError, MAX_CONTINUATIONS, MAX_HEADER_BLOCK};
use super::kit::*;

/// A request's block from an encoder of its own.
fn block(authority: &str) -> Vec<u8> {
    encode(&mut loona_hpack::Encoder::new(), &get_info(authority))
}

#[test]
fn the_authority_changes_and_nothing_else() {
    for authority in [PATH_AUTHORITY, "/var/lib/kubelet/plugins_registry/x.sock", "localhost", ""] {
        let sent = Frame::new(HEADERS, END_HEADERS | END_STREAM, 1, block(authority));
        let out = repair(&[sent]).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].kind, out[0].flags, out[0].stream), (HEADERS, END_HEADERS | END_STREAM, 1));
        assert_eq!(read_blocks(&out), [(1, get_info(AUTHORITY))], "{authority}");
    }
}

#[test]
fn trailers_without_authority_get_none() {
    let trailers = fields(&[("grpc-status", "0")]);
    let sent = encode(&mut loona_hpack::Encoder::new(), &trailers);
    let out = repair(&[Frame::new(HEADERS, END_HEADERS | END_STREAM, 3, sent)]).unwrap();
    assert_eq!(read_blocks(&out), [(3, trailers)]);
}

#[test]
fn padding_goes_and_priority_stays() {
    let priority = [0x80, 0, 0, 7, 15];
    let payload = [&[4], &priority[..], &block(PATH_AUTHORITY), &[0; 4]].concat();
    let out = repair(&[Frame::new(HEADERS, PADDED | PRIORITY | END_HEADERS, 9, payload)]).unwrap();
    assert_eq!(out[0].flags, PRIORITY | END_HEADERS);
    assert_eq!(out[0].payload[..5], priority);
    assert_eq!(read_blocks(&out), [(9, get_info(AUTHORITY))]);
}

#[test]
fn a_block_in_pieces_is_joined() {
    let block = block(PATH_AUTHORITY);
    let (first, rest) = block.split_at(10);
    let (second, third) = rest.split_at(1);
    let out = repair(&[
        Frame::new(HEADERS, END_STREAM, 5, first),
        Frame::new(CONTINUATION, 0, 5, second),
        Frame::new(CONTINUATION, 0, 5, []),
        Frame::new(CONTINUATION, END_HEADERS, 5, third),
    ])
    .unwrap();
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].flags, END_STREAM | END_HEADERS);
    assert_eq!(read_blocks(&out), [(5, get_info(AUTHORITY))]);
}

#[test]
fn an_empty_headers_frame_may_begin_or_be_a_block() {
    let block = block(PATH_AUTHORITY);
    let begun = [Frame::new(HEADERS, 0, 1, []), Frame::new(CONTINUATION, END_HEADERS, 1, block)];
    assert_eq!(read_blocks(&repair(&begun).unwrap()), [(1, get_info(AUTHORITY))]);
    let empty = [Frame::new(HEADERS, END_HEADERS, 1, [])];
    assert_eq!(repair(&empty).unwrap(), empty);
}

#[test]
fn a_large_block_leaves_in_frames_that_every_server_takes() {
    let mut sent = get_info(PATH_AUTHORITY);
    sent.push((b"large".to_vec(), vec![b'x'; 40_000]));
    let coded = encode(&mut loona_hpack::Encoder::new(), &sent);
    let priority = [0; 5];
    let payload = [&priority[..], &coded].concat();
    let out = repair(&[Frame::new(HEADERS, PRIORITY | END_STREAM | END_HEADERS, 1, payload)]).unwrap();
    let shape: Vec<_> = out.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(shape, [(HEADERS, PRIORITY | END_STREAM), (CONTINUATION, 0), (CONTINUATION, END_HEADERS)]);
    assert_eq!(out[0].payload.len(), 16_384);
    assert_eq!(out[1].payload.len(), 16_384);
    sent[3].1 = AUTHORITY.into();
    assert_eq!(read_blocks(&out), [(1, sent)]);
}

#[test]
fn later_requests_may_refer_to_the_table() {
    let mut encoder = loona_hpack::Encoder::new();
    let mut sent = get_info(PATH_AUTHORITY);
    // A name of its own goes into the encoder's table.
    sent.push((b"x-trace".to_vec(), b"abc".to_vec()));
    let blocks: Vec<_> = (0..3).map(|_| encode(&mut encoder, &sent)).collect();
    assert!(blocks[1].len() < blocks[0].len(), "the table is in use");
    let frames: Vec<_> =
        (0..).zip(blocks).map(|(n, block)| Frame::new(HEADERS, END_HEADERS, 2 * n + 1, block)).collect();
    sent[3].1 = AUTHORITY.into();
    assert_eq!(read_blocks(&repair(&frames).unwrap()), [(1, sent.clone()), (3, sent.clone()), (5, sent)]);
}

#[test]
fn an_authority_in_the_table_is_replaced_each_time() {
    // grpc-go puts it there: literal with incremental indexing, name from the static table, then only its index.
    let path = PATH_AUTHORITY.as_bytes();
    let indexed = [&[0x41, u8::try_from(path.len()).unwrap()], path].concat();
    let out = repair(&[
        Frame::new(HEADERS, END_HEADERS, 1, indexed),
        Frame::new(HEADERS, END_HEADERS, 3, [0xbe]),
        // A name by index of the dynamic table, with another value.
        Frame::new(HEADERS, END_HEADERS, 5, [0x0f, 0x2f, 1, b'/']),
    ])
    .unwrap();
    let repaired = fields(&[(":authority", AUTHORITY)]);
    assert_eq!(read_blocks(&out), [(1, repaired.clone()), (3, repaired.clone()), (5, repaired)]);
}

#[test]
fn a_table_size_update_may_open_a_block() {
    let sent = [&[0x20, 0x3f, 0xe1, 0x1f], &block(PATH_AUTHORITY)[..]].concat();
    let out = repair(&[Frame::new(HEADERS, END_HEADERS, 1, sent)]).unwrap();
    assert_eq!(read_blocks(&out), [(1, get_info(AUTHORITY))]);
}

#[test]
fn a_field_that_must_not_be_indexed_is_written_so() {
    let out = repair(&[Frame::new(HEADERS, END_HEADERS, 1, b"\x10\x01a\x01b\x00\x01c\x01d".as_slice())]).unwrap();
    assert_eq!(out[0].payload, b"\x10\x01a\x01b\x00\x01c\x01d");
}

#[test]
fn other_frames_pass_unchanged() {
    let frames = [
        Frame::new(SETTINGS, 0, 0, [0, 4, 0, 0, 255, 255]),
        Frame::new(SETTINGS, 1, 0, []),
        Frame::new(WINDOW_UPDATE, 0, 0, [0, 1, 0, 0]),
        Frame::new(PING, 0, 0, *b"12345678"),
        Frame::new(DATA, PADDED | END_STREAM, 1, vec![3; 40_000]),
        Frame::new(RST_STREAM, 0, 1, [0, 0, 0, 8]),
        Frame::new(0xee, 0xff, 77, *b"unknown"),
    ];
    assert_eq!(repair(&frames).unwrap(), frames);
}

#[test]
fn a_data_frame_is_not_held_back() {
    let sent = stream(&[Frame::new(DATA, 0, 1, vec![7; 16_000])]);
    let begun = &sent[..PREFACE.len() + 9 + 10];
    assert_eq!(repair_pieces([begun]), (begun.to_vec(), Ok(())));
}

#[test]
fn what_breaks_a_rule_ends_the_connection() {
    let block = block(PATH_AUTHORITY);
    let continued = |stream| Frame::new(CONTINUATION, END_HEADERS, stream, block.clone());
    let truncated = RepairError::Hpack { stream: 1, source: HpackError::Truncated };
    for (frames, error) in [
        (vec![continued(1)], RepairError::NothingToContinue { stream: 1 }),
        (vec![Frame::new(HEADERS, 0, 1, []), continued(3)], RepairError::Interrupted { stream: 1 }),
        (vec![Frame::new(HEADERS, 0, 1, []), Frame::new(DATA, 0, 1, [])], RepairError::Interrupted { stream: 1 }),
        (vec![Frame::new(HEADERS, PADDED, 1, [])], RepairError::BadHeaders { stream: 1 }),
        (vec![Frame::new(HEADERS, PADDED, 1, [3, 0, 0])], RepairError::BadHeaders { stream: 1 }),
        (vec![Frame::new(HEADERS, PRIORITY, 1, [0; 4])], RepairError::BadHeaders { stream: 1 }),
        (vec![Frame::new(HEADERS, END_HEADERS, 1, [0x40])], truncated),
    ] {
        assert_eq!(repair(&frames), Err(error), "{frames:?}");
    }
}

#[test]
fn a_first_byte_of_another_protocol_is_refused_at_once() {
    assert_eq!(repair_pieces([b"\x16\x03\x01".as_slice()]), (vec![], Err(RepairError::NotHttp2)));
    assert_eq!(repair_pieces([b"PRI * HTTP/1".as_slice()]), (vec![], Err(RepairError::NotHttp2)));
}

#[test]
fn an_oversized_block_is_refused_before_it_is_read() {
    let too_large = || (PREFACE.to_vec(), Err(RepairError::BlockTooLarge { stream: 1 }));
    let head_of = |frame: &Frame| frame.bytes()[..9].to_vec();
    let headers = Frame::new(HEADERS, 0, 1, vec![0; MAX_HEADER_BLOCK + 1]);
    assert_eq!(repair_pieces([PREFACE, &head_of(&headers)]), too_large());

    let full = Frame::new(HEADERS, 0, 1, vec![0; MAX_HEADER_BLOCK]).bytes();
    let more = head_of(&Frame::new(CONTINUATION, END_HEADERS, 1, [0]));
    assert_eq!(repair_pieces([PREFACE, &full, &more]), too_large());
}

#[test]
fn an_endless_row_of_empty_continuations_is_refused() {
    let mut frames = vec![Frame::new(HEADERS, 0, 1, [])];
    frames.extend(vec![Frame::new(CONTINUATION, 0, 1, []); MAX_CONTINUATIONS]);
    assert_eq!(repair(&frames), Ok(vec![]));
    frames.push(Frame::new(CONTINUATION, 0, 1, []));
    assert_eq!(repair(&frames), Err(RepairError::BlockTooLarge { stream: 1 }));
}
