//! Properties over whole connections: right whatever the client's choices, the same for every cut of the input, and no panic whatever comes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::AUTHORITY;
use super::kit::*;

/// One request and the choices that a client has in sending it.
#[derive(Clone, Debug)]
struct Request {
    fields: Fields,
    padding: Option<u8>,
    priority: Option<[u8; 5]>,
    cuts: Vec<Index>,
    resize: Option<usize>,
    body: Option<Vec<u8>>,
}

fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![
        2 => Just(b":authority".to_vec()),
        1 => Just(b":path".to_vec()),
        2 => "x-[ab]{1,2}".prop_map(String::into_bytes),
    ];
    (
        name,
        prop_oneof![Just(PATH_AUTHORITY.as_bytes().to_vec()), vec(any::<u8>(), 0..60), vec(any::<u8>(), 9_000..20_000)],
    )
}

fn request() -> impl Strategy<Value = Request> {
    let priority = proptest::option::of(any::<[u8; 5]>());
    let choices = (proptest::option::of(any::<u8>()), priority, vec(any::<Index>(), 0..4));
    let rest = (proptest::option::of(0usize..=4096), proptest::option::of(vec(any::<u8>(), 0..2_000)));
    (vec(field(), 1..4), choices, rest).prop_map(|(fields, (padding, priority, cuts), (resize, body))| Request {
        fields,
        padding,
        priority,
        cuts,
        resize,
        body,
    })
}

impl Request {
    fn frames(&self, encoder: &mut loona_hpack::Encoder<'_>, stream: u32) -> Vec<Frame> {
        let mut block = Vec::new();
        if let Some(size) = self.resize {
            encoder.set_max_table_size(size);
            loona_hpack::encoder::encode_integer_into(size, 5, 0x20, &mut block).unwrap();
        }
        block.extend(encode(encoder, &self.fields));
        let mut pieces = self.split(&block).into_iter();
        let mut frames = vec![self.headers(stream, &pieces.next().unwrap())];
        frames.extend(pieces.map(|piece| Frame::new(CONTINUATION, 0, stream, piece)));
        frames.last_mut().unwrap().flags |= END_HEADERS;
        frames.extend(self.body.iter().map(|body| Frame::new(DATA, END_STREAM, stream, body.clone())));
        frames
    }

    fn split(&self, block: &[u8]) -> Vec<Vec<u8>> {
        let mut places: Vec<_> =
            self.cuts.iter().map(|cut| cut.index(block.len() + 1)).chain([0, block.len()]).collect();
        places.sort_unstable();
        places.windows(2).map(|pair| block[pair[0]..pair[1]].to_vec()).collect()
    }

    fn headers(&self, stream: u32, piece: &[u8]) -> Frame {
        let mut flags = if self.body.is_none() { END_STREAM } else { 0 };
        flags |= self.padding.map_or(0, |_| PADDED) | self.priority.map_or(0, |_| PRIORITY);
        let mut payload = Vec::from_iter(self.padding);
        payload.extend(self.priority.into_iter().flatten());
        payload.extend_from_slice(piece);
        payload.extend(vec![0; self.padding.map_or(0, usize::from)]);
        Frame::new(HEADERS, flags, stream, payload)
    }

    fn repaired(&self) -> Fields {
        let value =
            |name: &Vec<u8>, value: &Vec<u8>| if name == b":authority" { AUTHORITY.into() } else { value.clone() };
        self.fields.iter().map(|(name, old)| (name.clone(), value(name, old))).collect()
    }
}

fn connection(requests: &[Request]) -> Vec<Frame> {
    let mut encoder = loona_hpack::Encoder::new();
    (0..).zip(requests).flat_map(|(n, request)| request.frames(&mut encoder, 2 * n + 1)).collect()
}

fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_plain_decoder_reads_each_request_with_another_authority(requests in vec(request(), 1..5)) {
        let out = repair(&connection(&requests)).unwrap();
        let expected: Vec<_> = (0..).zip(&requests).map(|(n, request)| (2 * n + 1, request.repaired())).collect();
        prop_assert_eq!(read_blocks(&out), expected);
        prop_assert!(out.iter().all(|frame| frame.payload.len() <= 16_384));
        let bodies: Vec<_> = out.into_iter().filter(|frame| frame.kind == DATA).map(|frame| frame.payload).collect();
        prop_assert_eq!(bodies, requests.into_iter().filter_map(|request| request.body).collect::<Vec<_>>());
    }

    #[test]
    fn every_cut_of_the_input_gives_the_same_output(requests in vec(request(), 1..4), cuts in vec(any::<Index>(), 0..60)) {
        let bytes = stream(&connection(&requests));
        let whole = repair_pieces([bytes.as_slice()]);
        prop_assert_eq!(&whole.1, &Ok(()));
        prop_assert_eq!(repair_pieces(cut(&bytes, &cuts)), whole.clone());
        prop_assert_eq!(repair_pieces(bytes.chunks(1)), whole);
    }

    /// A valid connection with some bytes changed: an end with or without an error, never a panic, and never more output than the limits allow.
    #[test]
    fn a_damaged_connection_ends_in_order(
        requests in vec(request(), 1..3),
        changes in vec((any::<Index>(), any::<u8>()), 1..8),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let mut bytes = stream(&connection(&requests));
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let whole = repair_pieces([bytes.as_slice()]);
        prop_assert_eq!(repair_pieces(cut(&bytes, &cuts)), whole);
    }

    #[test]
    fn garbage_behind_the_preface_ends_in_order(garbage in vec(any::<u8>(), 0..400)) {
        let bytes = [PREFACE, &garbage].concat();
        let whole = repair_pieces([bytes.as_slice()]);
        prop_assert_eq!(repair_pieces(bytes.chunks(1)), whole);
    }

    /// Frames with sound heads and any payload, so that garbage reaches the header blocks.
    #[test]
    fn garbage_in_frames_ends_in_order(
        frames in vec((prop_oneof![Just(HEADERS), Just(CONTINUATION), any::<u8>()], any::<u8>(), 0u32..3, vec(any::<u8>(), 0..30)), 0..12),
    ) {
        let frames: Vec<_> =
            frames.into_iter().map(|(kind, flags, id, payload)| Frame::new(kind, flags, id, payload)).collect();
        let bytes = stream(&frames);
        let whole = repair_pieces([bytes.as_slice()]);
        prop_assert_eq!(repair_pieces(bytes.chunks(1)), whole);
    }
}

#[test]
fn a_connection_cut_at_any_byte_gives_the_beginning_of_its_output() {
    let mut encoder = loona_hpack::Encoder::new();
    let first = encode(&mut encoder, &get_info(PATH_AUTHORITY));
    let second = encode(&mut encoder, &get_info(PATH_AUTHORITY));
    let bytes = stream(&[
        Frame::new(SETTINGS, 0, 0, []),
        Frame::new(HEADERS, PADDED | END_HEADERS, 1, [&[2], &first[..], &[0, 0]].concat()),
        Frame::new(DATA, END_STREAM, 1, [0; 5]),
        Frame::new(HEADERS, END_STREAM, 3, &second[..3]),
        Frame::new(CONTINUATION, END_HEADERS, 3, &second[3..]),
    ]);
    let (whole, ended) = repair_pieces([bytes.as_slice()]);
    assert_eq!(ended, Ok(()));
    for end in 0..bytes.len() {
        let (begun, ended) = repair_pieces([&bytes[..end]]);
        assert_eq!(ended, Ok(()), "{end}");
        assert!(whole.starts_with(&begun), "{end}");
    }
}
