//! What the readers of JSON have in common.

use serde_json::value::RawValue;

/// A JSON value without white space, keys in the order sent, only mandatory escapes.
#[allow(dead_code)] // used by readers still to land
pub(crate) fn compact(value: &RawValue) -> String {
    let bytes = value.get().as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'"' {
            let end = string_end(bytes, at);
            push_string(&value.get()[at..end], &mut out);
            at = end;
        } else {
            if !bytes[at].is_ascii_whitespace() {
                out.push(char::from(bytes[at]));
            }
            at += 1;
        }
    }
    out
}

/// The index behind the string literal that begins at `start`.
pub(crate) fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn push_string(literal: &str, out: &mut String) {
    let plain = serde_json::from_str::<String>(literal)
        .ok()
        .and_then(|text| serde_json::to_string(&text).ok());
    out.push_str(plain.as_deref().unwrap_or(literal));
}
