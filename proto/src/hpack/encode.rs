//! Fields in, a header block out, with every field spelled out.

use super::Field;

/// A block that reads the same whatever the reader's tables hold. Never larger than the sum of the fields' sizes: a field takes at most 11 bytes
/// beyond its name and value, and its size counts 32.
pub(crate) fn encode(fields: &[Field]) -> Vec<u8> {
    let mut block = Vec::with_capacity(fields.iter().map(Field::size).sum());
    for field in fields {
        // Literal without indexing, or never indexed, with a new name (RFC 7541 6.2.2 and 6.2.3).
        block.push(if field.never_indexed { 0b0001_0000 } else { 0 });
        string(&field.name, &mut block);
        string(&field.value, &mut block);
    }
    block
}

/// A string as it is, with its length as an integer of prefix 7 in front.
fn string(text: &[u8], block: &mut Vec<u8>) {
    integer(text.len(), block);
    block.extend_from_slice(text);
}

fn integer(value: usize, block: &mut Vec<u8>) {
    const FULL: u8 = 0x7f;
    let Some(mut rest) = value.checked_sub(usize::from(FULL)) else {
        block.push(low_bits(value));
        return;
    };
    block.push(FULL);
    while rest > usize::from(FULL) {
        block.push(low_bits(rest) | 0x80);
        rest >>= 7;
    }
    block.push(low_bits(rest));
}

fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}
