//! Repairs JSON that serde refuses although every agent accepts it.

use std::borrow::Cow;

/// A copy of `payload` that serde can read: invalid UTF-8 and lone surrogates become U+FFFD.
/// `None` if there was nothing to repair.
pub fn repair(payload: &[u8]) -> Option<Vec<u8>> {
    // Checking what is valid is several times faster than looking for what is not.
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

/// Where the first lone surrogate is, from `at` on.
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

/// The code unit of a `\\uXXXX` at the start of `bytes`.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::repair;

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
