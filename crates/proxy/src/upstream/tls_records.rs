//! Tracks the boundaries of TLS records in the bytes read from a socket (RFC 8446 §5.1).

/// Bytes of a record's header: type, version and length.
const HEADER: usize = 5;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TlsRecords {
    /// Header bytes that were read. 0 between records.
    header: usize,
    /// While the header is read, the partial length. Then the remaining bytes.
    remaining: usize,
}

impl TlsRecords {
    pub fn is_inside_record(&self) -> bool {
        self.header > 0
    }

    pub fn advance(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            if self.header < HEADER {
                // The last two bytes of the header are the length.
                if self.header + 2 >= HEADER {
                    self.remaining = self.remaining << 8 | usize::from(*first);
                }
                self.header += 1;
                bytes = rest;
            } else {
                let here = self.remaining.min(bytes.len());
                self.remaining -= here;
                bytes = &bytes[here..];
            }
            if self.header == HEADER && self.remaining == 0 {
                *self = TlsRecords::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_their_headers_say_however_they_are_cut() {
        let record = |length: u16| {
            let [high, low] = length.to_be_bytes();
            let body = vec![0x17; usize::from(length)];
            [vec![0x17, 3, 3, high, low], body].concat()
        };
        let lengths = [0, 1, 300, 16_640];
        let all: Vec<u8> = lengths.into_iter().flat_map(record).collect();
        let mut ends: Vec<_> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += HEADER + usize::from(*length);
                Some(*end)
            })
            .collect();
        ends.insert(0, 0);
        for size in [1, 2, 7, 1_000, all.len()] {
            let (mut records, mut read) = (TlsRecords::default(), 0);
            for piece in all.chunks(size) {
                records.advance(piece);
                read += piece.len();
                assert_eq!(records.is_inside_record(), !ends.contains(&read), "{read}");
            }
        }
    }
}
