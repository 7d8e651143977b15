//! Repairs JSON that serde refuses although agents accept it.

use std::borrow::Cow;

/// A copy of `payload` in which invalid UTF-8 and lone surrogates are replaced by U+FFFD. `None` if
/// there was nothing to repair.
pub fn repair(payload: &[u8]) -> Option<Vec<u8>> {
    // Checking valid text is several times faster than searching for invalid text.
    let valid = str::from_utf8(payload).map(Cow::Borrowed);
    let text = valid.unwrap_or_else(|_| String::from_utf8_lossy(payload));
    let lone = lone_surrogate(text.as_bytes(), 0);
    if lone.is_none() && matches!(text, Cow::Borrowed(_)) {
        return None;
    }
    let (mut bytes, mut next) = (text.into_owned().into_bytes(), lone);
    while let Some(at) = next {
        bytes[at + 2..at + 6].copy_from_slice(b"fffd");
        next = lone_surrogate(&bytes, at + 6);
    }
    Some(bytes)
}

/// A copy of `payload` in which `NaN` and `Infinity`, which Python writes for numbers, are replaced
/// by `null`, and only the last of members with the same name remains. `None` if the result is not
/// JSON.
pub fn rewritten(payload: &[u8]) -> Option<Vec<u8>> {
    // A longer payload could become structures of many times its size.
    const MOST_BYTES: usize = 64 * 1024;
    if payload.len() > MOST_BYTES {
        return None;
    }
    let text = without_nan(std::str::from_utf8(payload).ok()?);
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    serde_json::to_vec(&value).ok()
}

/// Replaces the numbers that JSON does not have by `null`, outside of strings.
fn without_nan(text: &str) -> Cow<'_, str> {
    const NAMES: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !NAMES.iter().any(|name| text.contains(name)) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(first) = rest.chars().next() {
        let (piece, length) = match NAMES.iter().find(|name| rest.starts_with(**name)) {
            _ if first == '"' => {
                let end = string_end(rest.as_bytes(), 0);
                (&rest[..end], end)
            }
            Some(name) => ("null", name.len()),
            None => (&rest[..first.len_utf8()], first.len_utf8()),
        };
        out.push_str(piece);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// The index after the string literal that begins at `start`.
pub fn string_end(bytes: &[u8], start: usize) -> usize {
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

fn lone_surrogate(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr(b'\\', bytes.get(at..)?)?;
        match code_unit(&bytes[at..]) {
            Some(0xd800..=0xdbff)
                if matches!(code_unit(&bytes[at + 6..]), Some(0xdc00..=0xdfff)) =>
            {
                at += 12;
            }
            Some(0xd800..=0xdfff) => return Some(at),
            _ => at += 2,
        }
    }
}

fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{repair, rewritten};

    #[test]
    fn numbers_that_json_lacks_become_null_and_the_last_of_equal_members_remains() {
        for (broken, fixed) in [
            (
                r#"{"a":NaN,"b":"NaN \" NaN"}"#,
                Some(r#"{"a":null,"b":"NaN \" NaN"}"#),
            ),
            ("[-Infinity,Infinity,1]", Some("[null,null,1]")),
            (r#"{"a":1,"b":2,"a":3}"#, Some(r#"{"a":3,"b":2}"#)),
            (r#"{"a":"NaN"#, None),
            ("NaN and more", None),
        ] {
            let repaired =
                rewritten(broken.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
            assert_eq!(repaired.as_deref(), fixed, "{broken}");
        }
    }

    #[test]
    fn lone_surrogates_and_invalid_bytes_become_replacement_characters() {
        let cases: [(&[u8], Option<&str>); 8] = [
            (br#""plain""#, None),
            (br#""\ud83d\ude00""#, None),
            (br#""\\ud800""#, None),
            (br#""\ud800""#, Some(r#""\ufffd""#)),
            (br#""\udc00\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (br#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (b"\"\xff\"", Some("\"\u{fffd}\"")),
            (br#""\ud8"#, None),
        ];
        for (broken, fixed) in cases {
            let repaired = repair(broken).map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
            assert_eq!(
                repaired.as_deref(),
                fixed,
                "{}",
                String::from_utf8_lossy(broken)
            );
        }
    }
}
