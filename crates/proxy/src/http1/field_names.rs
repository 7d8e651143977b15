//! Field names as they were written. HTTP/1 compares names without case, but recipients may not.

use bytes::Bytes;
use http::HeaderName;

/// The names of a head in order. Empty if all of them are in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNames {
    head: Bytes,
    spans: Box<[NameSpan]>,
}

#[derive(Clone, Copy, Debug)]
struct NameSpan {
    start: u32,
    length: u32,
}

impl FieldNames {
    /// Collects the names of the fields of `head`, whose text is `parsed`. Nothing is stored if all names are in lower
    /// case, like [`HeaderName`].
    pub fn new(head: &Bytes, parsed: &[u8], fields: &[httparse::Header<'_>]) -> FieldNames {
        let upper = |field: &httparse::Header<'_>| {
            let mut bytes = field.name.bytes();
            bytes.any(|byte| byte.is_ascii_uppercase())
        };
        if !fields.iter().any(upper) {
            return FieldNames::default();
        }
        let span = |field: &httparse::Header<'_>| NameSpan {
            start: position(parsed, field.name.as_bytes()),
            length: u32::try_from(field.name.len()).unwrap_or(0),
        };
        FieldNames {
            head: head.clone(),
            spans: fields.iter().map(span).collect(),
        }
    }

    /// Returns the original spelling of the `nth` occurrence of `name`, counted from 0.
    pub fn original<'a>(&'a self, name: &'a HeaderName, nth: usize) -> &'a [u8] {
        let lower = name.as_str().as_bytes();
        let mut same = self.spans.iter().filter_map(|span| {
            if span.length as usize != lower.len() {
                return None;
            }
            let start = span.start as usize;
            let written = self.head.get(start..start + lower.len())?;
            written.eq_ignore_ascii_case(lower).then_some(written)
        });
        same.nth(nth).unwrap_or(lower)
    }
}

pub(super) fn position(whole: &[u8], part: &[u8]) -> u32 {
    let offset = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(head: &'static str) -> FieldNames {
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let status = httparse::parse_headers(head.as_bytes(), &mut fields);
        let httparse::Status::Complete((_, fields)) = status.expect("a head") else {
            panic!("a whole head");
        };
        FieldNames::new(
            &Bytes::from_static(head.as_bytes()),
            head.as_bytes(),
            fields,
        )
    }

    #[test]
    fn each_value_has_the_name_it_came_with() {
        let names = names("X-A: 1\r\nCookie: 2\r\nx-a: 3\r\nX-B: 4\r\n\r\n");
        let x_a = HeaderName::from_static("x-a");
        assert_eq!(names.original(&x_a, 0), b"X-A");
        assert_eq!(names.original(&x_a, 1), b"x-a");
        assert_eq!(names.original(&x_a, 2), b"x-a", "added here");
        assert_eq!(names.original(&http::header::COOKIE, 0), b"Cookie");
        assert_eq!(names.original(&http::header::VIA, 0), b"via");
    }

    #[test]
    fn names_in_lower_case_take_no_memory() {
        let names = names("x-a: 1\r\ncookie: 2\r\n\r\n");
        assert!(names.spans.is_empty() && names.head.is_empty());
        assert_eq!(names.original(&http::header::COOKIE, 0), b"cookie");
    }
}
