//! The vectors of RFC 7541 appendix C, and properties against the plain codec of loona-hpack.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Decoder, Field, HpackError, encode, huffman};

const LIST_LIMIT: usize = 64 * 1024;

fn decoder() -> Decoder {
    Decoder::new(4096, LIST_LIMIT)
}

fn bytes(hex_text: &str) -> Vec<u8> {
    hex::decode(hex_text.replace([' ', '\n'], "")).unwrap()
}

fn pairs(fields: &[Field]) -> Vec<(&str, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    fields.iter().map(|field| (text(&field.name), text(&field.value))).collect()
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A block in hex, its fields, and after it the table's entries (newest first) and the table's size.
type Vector<'a> = (&'a str, Pairs<'a>, Pairs<'a>, usize);

#[track_caller]
fn check_blocks(table: usize, blocks: &[Vector<'_>]) {
    let mut decoder = Decoder::new(table, LIST_LIMIT);
    for &(block, fields, entries, size) in blocks {
        assert_eq!(pairs(&decoder.decode(&bytes(block)).unwrap()), fields);
        let (table, table_size) = decoder.table().contents();
        assert_eq!((pairs(&table).as_slice(), table_size), (entries, size));
    }
}

#[test]
fn c_2_each_form_of_a_field() {
    let custom = [("custom-key", "custom-header")];
    check_blocks(4096, &[("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", &custom, &custom, 55)]);
    check_blocks(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], &[], 0)]);
    check_blocks(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")], &[], 0)]);
    check_blocks(4096, &[("82", &[(":method", "GET")], &[], 0)]);
}

/// The three requests of C.3 and C.4, the same fields with plain and with Huffman-coded strings.
#[track_caller]
fn check_requests(blocks: [&str; 3]) {
    const AUTHORITY: (&str, &str) = (":authority", "www.example.com");
    const CACHE: (&str, &str) = ("cache-control", "no-cache");
    const CUSTOM: (&str, &str) = ("custom-key", "custom-value");
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY];
    let cached = [(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY, CACHE];
    let index = [(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), AUTHORITY, CUSTOM];
    check_blocks(
        4096,
        &[
            (blocks[0], &get, &[AUTHORITY], 57),
            (blocks[1], &cached, &[CACHE, AUTHORITY], 110),
            (blocks[2], &index, &[CUSTOM, CACHE, AUTHORITY], 164),
        ],
    );
}

#[test]
fn c_3_requests_without_huffman_code() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c_4_requests_with_huffman_code() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

/// The three responses of C.5 and C.6, with a table of 256 bytes so that entries are evicted.
#[track_caller]
fn check_responses(blocks: [&str; 3]) {
    const CACHE: (&str, &str) = ("cache-control", "private");
    const DATE: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    const LATER: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    const LOCATION: (&str, &str) = ("location", "https://www.example.com");
    const GZIP: (&str, &str) = ("content-encoding", "gzip");
    const COOKIE: (&str, &str) = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    let found = (":status", "302");
    let temporary = (":status", "307");
    check_blocks(
        256,
        &[
            (blocks[0], &[found, CACHE, DATE, LOCATION], &[LOCATION, DATE, CACHE, found], 222),
            (blocks[1], &[temporary, CACHE, DATE, LOCATION], &[temporary, LOCATION, DATE, CACHE], 222),
            (blocks[2], &[(":status", "200"), CACHE, LATER, LOCATION, GZIP, COOKIE], &[COOKIE, GZIP, LATER], 215),
        ],
    );
}

#[test]
fn c_5_responses_without_huffman_code() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e
         1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d
         4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572
         7369 6f6e 3d31",
    ]);
}

#[test]
fn c_6_responses_with_huffman_code() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b
         97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf
         cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

#[test]
fn a_never_indexed_field_stays_one() {
    let fields = decoder().decode(&bytes("1008 7061 7373 776f 7264 0673 6563 7265 74 82")).unwrap();
    assert_eq!(fields.iter().map(|field| field.never_indexed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(decoder().decode(&encode(&fields)).unwrap(), fields);
}

#[test]
fn a_smaller_table_forgets_and_a_larger_one_does_not_bring_back() {
    let mut decoder = decoder();
    decoder.decode(&bytes("4001 61 01 62 4001 63 01 64")).unwrap();
    assert_eq!(pairs(&decoder.decode(&bytes("bf")).unwrap()), [("a", "b")]);
    // 0x3f03: a table of 34 bytes, room for the newer entry alone.
    assert_eq!(pairs(&decoder.decode(&bytes("3f03 be")).unwrap()), [("c", "d")]);
    // 0x20: no table; 0x3fe11f: 4096 bytes again. Both may open one block.
    assert_eq!(decoder.decode(&bytes("20 3fe11f be")), Err(HpackError::NoSuchEntry(62)));
}

#[test]
fn what_breaks_a_rule_is_named() {
    let table_too_large = HpackError::TableTooLarge { asked: 4097, allowed: 4096 };
    for (block, error) in [
        ("3fe21f", table_too_large),
        ("82 20", HpackError::LateSizeUpdate),
        ("80", HpackError::NoSuchEntry(0)),
        ("be", HpackError::NoSuchEntry(62)),
        ("7e 00", HpackError::NoSuchEntry(62)),
        ("ff ffff ffff 00", HpackError::IntegerTooLong),
        ("40", HpackError::Truncated),
        ("40 05 61", HpackError::Truncated),
        ("ff 80", HpackError::Truncated),
        // A whole byte of padding, padding of zeros, and an end of string spelled out.
        ("40 82 1fff 00", HpackError::Huffman),
        ("40 81 18 00", HpackError::Huffman),
        ("40 84 ffff ffff 00", HpackError::Huffman),
    ] {
        assert_eq!(decoder().decode(&bytes(block)), Err(error), "{block}");
    }
}

/// A block of single bytes, each of which stands for a large table entry, is stopped at the limit and not at the end.
#[test]
fn a_small_block_cannot_become_a_large_list() {
    let mut decoder = decoder();
    let large = [&bytes("4001 61 7f a11e")[..], &[b'x'; 4000]].concat();
    assert_eq!(decoder.decode(&large).unwrap()[0].size(), 4033);
    assert_eq!(decoder.decode(&[0xbe; 16]).unwrap().len(), 16);
    assert_eq!(decoder.decode(&[0xbe; 17]), Err(HpackError::ListTooLarge(LIST_LIMIT)));
}

#[test]
fn lengths_around_each_step_of_an_integer_survive() {
    for length in [0, 1, 126, 127, 128, 254, 255, 256, 16_383, 16_510, 16_511, 16_512, 40_000] {
        let field = Field { name: b"x".to_vec(), value: vec![b'v'; length], never_indexed: false };
        assert_eq!(decoder().decode(&encode(std::slice::from_ref(&field))).unwrap(), [field], "{length}");
    }
}

/// Few names and values, so that blocks refer to what earlier ones put into the table.
fn field_pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![Just(b":path".to_vec()), Just(b"te".to_vec()), "[a-c]{1,3}".prop_map(String::into_bytes)];
    (name, prop_oneof![Just(b"/".to_vec()), vec(any::<u8>(), 0..200)])
}

proptest! {
    #[test]
    fn reads_what_another_encoder_writes(blocks in vec((vec(field_pair(), 1..12), proptest::option::of(0usize..4096)), 1..8)) {
        let (mut encoder, mut decoder) = (loona_hpack::Encoder::new(), decoder());
        for (block, resize) in blocks {
            let mut coded = Vec::new();
            if let Some(size) = resize {
                encoder.set_max_table_size(size);
                loona_hpack::encoder::encode_integer_into(size, 5, 0x20, &mut coded).unwrap();
            }
            coded.extend(encoder.encode(block.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))));
            let fields = decoder.decode(&coded).unwrap();
            prop_assert_eq!(fields.into_iter().map(|field| (field.name, field.value)).collect::<Vec<_>>(), block);
        }
    }

    #[test]
    fn another_decoder_reads_what_we_write(block in vec((field_pair(), any::<bool>()), 0..12)) {
        let fields: Vec<_> = block
            .into_iter()
            .map(|((name, value), never_indexed)| Field { name, value, never_indexed })
            .collect();
        let coded = encode(&fields);
        prop_assert!(coded.len() <= fields.iter().map(Field::size).sum());
        let read = loona_hpack::Decoder::new().decode(&coded).unwrap();
        prop_assert_eq!(read, fields.into_iter().map(|field| (field.name, field.value)).collect::<Vec<_>>());
    }

    /// Whatever bytes come: no panic, and what we can read, another decoder reads the same.
    #[test]
    fn any_bytes_read_like_another_decoder_reads_them(blocks in vec(vec(any::<u8>(), 0..40), 1..4)) {
        let (mut plain, mut decoder) = (loona_hpack::Decoder::new(), decoder());
        for block in blocks {
            let Ok(fields) = decoder.decode(&block) else { break };
            match plain.decode(&block) {
                Ok(read) => {
                    prop_assert_eq!(fields.into_iter().map(|field| (field.name, field.value)).collect::<Vec<_>>(), read);
                }
                // It refuses a block of nothing but size updates, which the RFC does not.
                Err(loona_hpack::decoder::DecoderError::SizeUpdateAtEnd) => prop_assert_eq!(fields, []),
                Err(error) => prop_assert!(false, "{block:02x?}: {error:?}, ours {fields:?}"),
            }
        }
    }

    #[test]
    fn huffman_code_comes_back(plain in vec(any::<u8>(), 0..300)) {
        let coded = huffman::encode(&plain);
        prop_assert_eq!(&huffman::decode(&coded).unwrap(), &plain);
        prop_assert_eq!(loona_hpack::huffman::HuffmanDecoder::new().decode(&coded).unwrap(), plain);
    }

    #[test]
    fn any_bytes_are_huffman_code_for_both_or_for_neither(coded in vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(huffman::decode(&coded).ok(), loona_hpack::huffman::HuffmanDecoder::new().decode(&coded).ok());
    }
}
