//! The Huffman code for strings (RFC 7541 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and the first code of the next length follows
//! from the last one before. So the symbols in order of length say everything.

use super::HpackError;

/// Length of the code in bits, and the symbols of that length. The end-of-string code is the one after the last of these.
const CODES: [(u32, &[u8]); 21] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (22, b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9"),
    (
        23,
        b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    ),
    (24, b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, b"\xc7\xcf\xea\xeb"),
    (26, b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"),
    (27, b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"),
    (
        28,
        b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    ),
    (30, b"\n\r\x16"),
];

/// Bits that a reader looks at, the next one highest.
#[derive(Default)]
struct Window {
    bits: u64,
    count: u32,
}

impl Window {
    /// Takes bytes for as long as the longest code might need them.
    fn fill(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        while self.count <= 32 {
            let Some(byte) = bytes.next() else { return };
            self.bits = self.bits << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    /// The next `count` bits as a number, left in place.
    fn peek(&self, count: u32) -> u64 {
        (self.bits >> (self.count - count)) & ((1 << count) - 1)
    }

    /// The next symbol, taken off; `None` when what is left is no whole code.
    fn symbol(&mut self) -> Result<Option<u8>, HpackError> {
        let (mut first, mut last_length) = (0, 0);
        for (length, symbols) in CODES {
            if length > self.count {
                return Ok(None);
            }
            first <<= length - last_length;
            // Shorter codes are prefixes of smaller numbers, so a code that none of them matched is not below the first of this length.
            let place = usize::try_from(self.peek(length).saturating_sub(first)).unwrap_or(usize::MAX);
            if let Some(&symbol) = symbols.get(place) {
                self.count -= length;
                return Ok(Some(symbol));
            }
            first += symbols.len() as u64;
            last_length = length;
        }
        Err(HpackError::Huffman)
    }

    /// Whether what is left is padding: less than a byte, all ones (the start of the end-of-string code).
    fn is_padding(&self) -> bool {
        self.count < 8 && self.peek(self.count) == (1 << self.count) - 1
    }
}

/// The string behind a Huffman-coded one. At most 8/5 of its length.
pub(super) fn decode(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut plain = Vec::with_capacity(coded.len() * 8 / 5);
    let mut bytes = coded.iter().copied();
    let mut window = Window::default();
    loop {
        window.fill(&mut bytes);
        match window.symbol()? {
            Some(symbol) => plain.push(symbol),
            None if window.is_padding() => return Ok(plain),
            None => return Err(HpackError::Huffman),
        }
    }
}

/// The coded form of a string; only tests need it, what we send is plain.
#[cfg(test)]
pub(super) fn encode(plain: &[u8]) -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    for byte in plain {
        let (code, length) = code_of(*byte);
        bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
    }
    bits.chunks(8).map(|byte| (0..8).fold(0, |sum, bit| sum << 1 | u8::from(*byte.get(bit).unwrap_or(&true)))).collect()
}

#[cfg(test)]
fn code_of(byte: u8) -> (u64, u32) {
    let (mut first, mut last_length) = (0, 0);
    for (length, symbols) in CODES {
        first <<= length - last_length;
        if let Some(place) = symbols.iter().position(|symbol| *symbol == byte) {
            return (first + place as u64, length);
        }
        first += symbols.len() as u64;
        last_length = length;
    }
    unreachable!("every byte has a code")
}
