//! Header blocks in, fields out (RFC 7541 3 and 6).

use super::table::Table;
use super::{Field, HpackError, huffman};

/// Reads the header blocks of one direction of a connection, all of them and in order: each may add to the table that later ones refer to.
pub(crate) struct Decoder {
    table: Table,
    /// Largest table that the sender may ask for, in bytes.
    allowed_table: usize,
    /// Largest sum of field sizes in one block, in bytes.
    list_limit: usize,
}

impl Decoder {
    pub(crate) fn new(allowed_table: usize, list_limit: usize) -> Self {
        Self { table: Table::new(allowed_table), allowed_table, list_limit }
    }

    /// The fields of one whole block. After an error the decoder is of no more use.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, HpackError> {
        let mut input = Input(block);
        let mut fields = Vec::new();
        let mut size = 0;
        while let Some(&first) = input.0.first() {
            if first & 0b1110_0000 == 0b0010_0000 {
                self.resize(&mut input, fields.is_empty())?;
                continue;
            }
            let field = self.field(first, &mut input)?;
            size += field.size();
            // Checked field by field: one byte of a block can stand for a whole table entry.
            if size > self.list_limit {
                return Err(HpackError::ListTooLarge(self.list_limit));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn resize(&mut self, input: &mut Input<'_>, at_start: bool) -> Result<(), HpackError> {
        if !at_start {
            return Err(HpackError::LateSizeUpdate);
        }
        let asked = input.integer(5)?;
        if asked > self.allowed_table {
            return Err(HpackError::TableTooLarge { asked, allowed: self.allowed_table });
        }
        self.table.set_limit(asked);
        Ok(())
    }

    /// One field; the highest bits of its first byte tell its form.
    fn field(&mut self, first: u8, input: &mut Input<'_>) -> Result<Field, HpackError> {
        if first & 0b1000_0000 != 0 {
            let (name, value) = self.table.entry(input.integer(7)?)?;
            return Ok(Field { name: name.to_vec(), value: value.to_vec(), never_indexed: false });
        }
        if first & 0b0100_0000 != 0 {
            let field = self.literal(input, 6)?;
            self.table.insert(field.clone());
            return Ok(field);
        }
        let field = self.literal(input, 4)?;
        Ok(Field { never_indexed: first & 0b0001_0000 != 0, ..field })
    }

    /// A field whose value is spelled out; its name is an entry of the table, or spelled out too where the index is 0.
    fn literal(&self, input: &mut Input<'_>, prefix: u32) -> Result<Field, HpackError> {
        let name = match input.integer(prefix)? {
            0 => input.string()?,
            index => self.table.entry(index)?.0.to_vec(),
        };
        Ok(Field { name, value: input.string()?, never_indexed: false })
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

/// The part of a block that is not read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, HpackError> {
        let (&byte, rest) = self.0.split_first().ok_or(HpackError::Truncated)?;
        self.0 = rest;
        Ok(byte)
    }

    /// An integer that begins in the low `prefix` bits of the next byte (RFC 7541 5.1); five bytes at most, so below 2^29.
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let full = (1 << prefix) - 1;
        let mut value = usize::from(self.byte()?) & full;
        if value < full {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            value += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HpackError::IntegerTooLong)
    }

    /// A string with its length in front (RFC 7541 5.2).
    fn string(&mut self) -> Result<Vec<u8>, HpackError> {
        let coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(HpackError::Truncated)?;
        self.0 = rest;
        if coded { huffman::decode(text) } else { Ok(text.to_vec()) }
    }
}
