//! The two tables that an indexed field refers to (RFC 7541 2.3): entries 1 to 61 are static, the ones behind are dynamic, the newest first.

use std::collections::VecDeque;

use super::{Field, HpackError};

/// RFC 7541 appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Both tables of one direction of a connection.
pub(super) struct Table {
    entries: VecDeque<Field>,
    /// Sum of the entries' sizes.
    size: usize,
    /// What `size` may not exceed.
    limit: usize,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, limit }
    }

    /// Name and value of an entry, counted from 1.
    pub(super) fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let place = index.checked_sub(1).ok_or(HpackError::NoSuchEntry(index))?;
        if let Some((name, value)) = STATIC.get(place) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let field = self.entries.get(place - STATIC.len()).ok_or(HpackError::NoSuchEntry(index))?;
        Ok((&field.name, &field.value))
    }

    /// Puts a field in front and lets the oldest go until all fit. One that is larger than the table leaves it empty, which is no error.
    pub(super) fn insert(&mut self, field: Field) {
        let size = field.size();
        self.shrink_to(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.size += size;
            self.entries.push_front(field);
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.shrink_to(limit);
    }

    /// Lets the oldest entries go until the rest take `size` or less.
    fn shrink_to(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }

    #[cfg(test)]
    pub(super) fn contents(&self) -> (Vec<Field>, usize) {
        (self.entries.iter().cloned().collect(), self.size)
    }
}
