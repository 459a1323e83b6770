//! HPACK, the header compression of HTTP/2 (RFC 7541): as much of it as the `:authority` repair needs.
//!
//! Header block -> [`Decoder`] (static table, dynamic table, Huffman) -> [`Field`]s -> [`encode`] (literals only, so that no state has to be kept in
//! step with the reader) -> header block.

mod decode;
mod encode;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decode::Decoder;
pub(crate) use encode::encode;

/// What a field costs beyond its bytes, both in the dynamic table (RFC 7541 4.1) and in the size of a header list (RFC 9113 6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// One header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The sender forbids to put the value into any table on the way: it may be a secret that a guess could hit (RFC 7541 7.1.3).
    pub(crate) never_indexed: bool,
}

impl Field {
    /// The size that limits count, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_OVERHEAD
    }
}

/// Why a header block cannot be read. The connection is lost with it: the sender's table and ours are no longer the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends inside a field.
    #[error("it ends inside a field")]
    Truncated,
    /// An integer takes more than five bytes.
    #[error("it holds an integer of more than five bytes")]
    IntegerTooLong,
    /// A field refers to an entry that neither table has.
    #[error("it refers to table entry {0}, which does not exist")]
    NoSuchEntry(usize),
    /// A string is not valid Huffman code, or is padded wrongly.
    #[error("it holds a string that is not valid Huffman code")]
    Huffman,
    /// A table size update stands behind a field; it may only open a block.
    #[error("it changes the table size after a field")]
    LateSizeUpdate,
    /// A table size update asks for more than the server allows.
    #[error("it asks for a table of {asked} bytes where {allowed} are allowed")]
    TableTooLarge {
        /// Bytes asked for.
        asked: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// The decoded fields are larger than the limit.
    #[error("its fields take more than {0} bytes")]
    ListTooLarge(usize),
}
