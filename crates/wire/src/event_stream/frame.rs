//! One frame of Amazon's binary event stream, read in place:
//!
//! ```text
//! u32 total length   u32 length of the headers   u32 CRC-32 of these eight bytes
//! headers: u8 length of the name, the name, u8 type, and the value as its type says
//! payload
//! u32 CRC-32 of everything before
//! ```

use super::super::DecodeError;

/// Total length, length of the headers, and their checksum.
const PRELUDE_BYTES: usize = 12;
const SUM_BYTES: usize = 4;
const SMALLEST: usize = PRELUDE_BYTES + SUM_BYTES;

/// The beginning of a frame, not verified yet.
pub(super) struct Prelude<'a>(&'a [u8; PRELUDE_BYTES]);

impl<'a> Prelude<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Prelude)
    }

    /// The length of the frame, at most `limit`. An error means that the next frame cannot be
    /// found.
    pub(super) fn frame_length(&self, limit: usize) -> Result<usize, DecodeError> {
        if self.number(8) != crc32fast::hash(&self.0[..8]) {
            return Err(DecodeError::Framing);
        }
        match usize::try_from(self.number(0)) {
            Ok(length) if length < SMALLEST => Err(DecodeError::Framing),
            Ok(length) if length <= limit => Ok(length),
            _ => Err(DecodeError::TooLarge),
        }
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.0[at..].first_chunk().copied();
        bytes.map_or(0, u32::from_be_bytes)
    }
}

/// The headers that tell what a frame is.
#[derive(Clone, Copy, Debug)]
pub(super) enum KnownHeader {
    MessageType,
    EventType,
    ExceptionType,
    ErrorCode,
}

const NAMES: [&str; 4] = [
    ":message-type",
    ":event-type",
    ":exception-type",
    ":error-code",
];

/// A frame with a valid checksum and readable headers.
#[derive(Debug, PartialEq)]
pub(super) struct Frame<'a> {
    /// The value of the first header of each name, in the order of [`KnownHeader`]. The inner value
    /// is `None` if it is not text.
    headers: [Option<Option<&'a str>>; NAMES.len()],
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads `bytes`, whose length is the one in the prelude. `None` if the frame is damaged.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (summed, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        if crc32fast::hash(summed) != u32::from_be_bytes(*sum) {
            return None;
        }
        let prelude = Prelude::of(summed)?;
        let length = usize::try_from(prelude.number(4)).ok()?;
        let (mut left, payload) = summed[PRELUDE_BYTES..].split_at_checked(length)?;
        let mut headers = [None; NAMES.len()];
        while !left.is_empty() {
            let (name, value) = header(&mut left)?;
            match NAMES.iter().position(|known| known.as_bytes() == name) {
                Some(at) => headers[at] = headers[at].or(Some(value)),
                None => str::from_utf8(name).map(drop).ok()?,
            }
        }
        Some(Frame { headers, payload })
    }

    pub(super) fn text(&self, header: KnownHeader) -> Option<&'a str> {
        self.headers[header as usize].flatten()
    }
}

/// Takes the next header: its name, and its value if it is text.
fn header<'a>(left: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a str>)> {
    let length = take(left, 1)?[0];
    let name = take(left, length.into())?;
    let kind = take(left, 1)?[0];
    let length = match kind {
        // Booleans.
        0 | 1 => 0,
        // Integers of one, two, four and eight bytes, and a timestamp.
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        // Bytes and text.
        6 | 7 => {
            let length = take(left, 2)?;
            u16::from_be_bytes([length[0], length[1]]).into()
        }
        // A UUID.
        9 => 16,
        _ => return None,
    };
    let value = take(left, length)?;
    match kind {
        7 => Some((name, Some(str::from_utf8(value).ok()?))),
        _ => Some((name, None)),
    }
}

fn take<'a>(left: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    left.split_off(..length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_eventstream::frame::{read_message_from, write_message_to};
    use aws_smithy_types::DateTime;
    use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = HeaderValue> {
        prop_oneof![
            any::<bool>().prop_map(HeaderValue::Bool),
            any::<i8>().prop_map(HeaderValue::Byte),
            any::<i16>().prop_map(HeaderValue::Int16),
            any::<i32>().prop_map(HeaderValue::Int32),
            any::<i64>().prop_map(HeaderValue::Int64),
            any::<Vec<u8>>().prop_map(|bytes| HeaderValue::ByteArray(bytes.into())),
            ".{0,20}".prop_map(|text| HeaderValue::String(text.into())),
            any::<u32>().prop_map(|at| HeaderValue::Timestamp(DateTime::from_secs(at.into()))),
            any::<u128>().prop_map(HeaderValue::Uuid),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let known = prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
        let name = prop_oneof![known, "[a-z:-]{0,9}"];
        let headers = prop::collection::vec((name, value()), 0..5);
        (headers, any::<Vec<u8>>()).prop_map(|(headers, payload)| {
            let headers = headers.into_iter();
            let headers = headers.map(|(name, value)| Header::new(name, value));
            Message::new_from_parts(headers.collect(), payload)
        })
    }

    fn written(message: &Message) -> Vec<u8> {
        let mut frame = Vec::new();
        write_message_to(message, &mut frame).expect("it fits");
        frame
    }

    fn sum(frame: &mut [u8]) {
        let prelude = crc32fast::hash(&frame[..8]).to_be_bytes();
        frame[8..PRELUDE_BYTES].copy_from_slice(&prelude);
        let end = frame.len() - SUM_BYTES;
        let all = crc32fast::hash(&frame[..end]).to_be_bytes();
        frame[end..].copy_from_slice(&all);
    }

    /// Checks that the vendor's reader and this reader agree on a frame.
    fn agree(frame: &[u8]) -> Result<(), TestCaseError> {
        let theirs = read_message_from(frame);
        let length = Prelude::of(frame).expect("one").frame_length(usize::MAX);
        let ours = Frame::read(frame).filter(|_| length == Ok(frame.len()));
        let (Ok(theirs), Some(ours)) = (&theirs, &ours) else {
            prop_assert_eq!(theirs.is_ok(), ours.is_some());
            return Ok(());
        };
        prop_assert_eq!(&theirs.payload()[..], ours.payload);
        for of in [
            KnownHeader::MessageType,
            KnownHeader::EventType,
            KnownHeader::ExceptionType,
            KnownHeader::ErrorCode,
        ] {
            let mut headers = theirs.headers().iter();
            let first = headers.find(|header| header.name().as_str() == NAMES[of as usize]);
            let value = first.and_then(|header| header.value().as_string().ok());
            prop_assert_eq!(value.map(|value| value.as_str()), ours.text(of));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_frame_reads_as_its_vendors_library_reads_it(message in message()) {
            let frame = written(&message);
            prop_assert!(Frame::read(&frame).is_some());
            agree(&frame)?;
        }

        #[test]
        fn a_damaged_frame_is_one_to_both(
            message in message(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            headers in prop::option::of(0_u8..64),
            summed in any::<bool>(),
        ) {
            let mut frame = written(&message);
            for (at, byte) in damage {
                // The length is not changed, since the readers would then read different frames.
                let at = 4 + at.index(frame.len() - 4);
                frame[at] = byte;
            }
            if let Some(headers) = headers {
                frame[4..8].copy_from_slice(&[0, 0, 0, headers]);
            }
            if summed {
                sum(&mut frame);
            }
            agree(&frame)?;
        }
    }
}
