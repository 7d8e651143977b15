//! Detects the dialect of an event or a body by members that no other dialect has.

use super::find::OBJECT;
use super::json::is_object;
use super::members::Members;
use super::registration::OverruledBy;
use super::{DIALECTS, Registration};
use memchr::{memchr, memchr2};
use tokengauge_core::call::Dialect;

/// The dialect of an event or a body, if it is unambiguous.
pub(super) fn sniff(name: &str, payload: &[u8]) -> Option<Dialect> {
    let by_name = first(|dialect| dialect.event_names.contains(&name));
    if by_name.is_some() {
        return by_name;
    }
    let object = Some(payload).filter(|payload| is_object(payload))?;
    let members: Members<'_> = serde_json::from_slice(object).ok()?;
    let (object, kind) = (&*members.object, &*members.r#type);
    let known = first(|dialect| dialect.objects.contains(&object))
        .or_else(|| first(|dialect| dialect.types.contains(&kind)));
    if known.is_some() {
        return known;
    }
    let members = match members.choices() {
        Some(_) => members.of_choices(),
        None => members,
    };
    first(|dialect| (dialect.has_members)(&members))
}

/// Whether an unnamed event identifies itself as `dialect` before any nested value. [`sniff`] would
/// have the same result, but reads the whole event.
pub(super) fn confirms(dialect: &Registration, payload: &[u8]) -> bool {
    let Some((b'{', members)) = payload.split_first() else {
        return false;
    };
    let outermost = memchr2(b'{', b'[', members).map_or(members, |nested| &members[..nested]);
    let Some(found) = OBJECT.find(outermost) else {
        return false;
    };
    // A quote within a string is escaped, so a following colon proves that this is a member.
    let value = outermost[found + OBJECT.needle().len()..].trim_ascii_start();
    let value = value.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
    let Some(value) = value.and_then(|value| value.strip_prefix(b"\"")) else {
        return false;
    };
    let end = memchr(b'"', value).unwrap_or(0);
    let mut objects = dialect.objects.iter();
    objects.any(|object| object.as_bytes() == &value[..end])
}

fn first(recognises: impl Fn(&Registration) -> bool) -> Option<Dialect> {
    let mut all = DIALECTS.iter();
    all.find(|dialect| recognises(dialect))
        .map(|found| found.dialect)
}

/// Whether an event that looks like `seen` must be read as that dialect although the path indicates
/// `expected`.
pub(super) fn overrules(seen: Dialect, expected: &Registration) -> bool {
    match expected.overruled_by {
        OverruledBy::All => seen != expected.dialect,
        OverruledBy::AllBut(other) => seen != expected.dialect && seen != other,
        OverruledBy::None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_confirms_its_dialect_by_its_own_member_alone() {
        let chat: &Registration = Dialect::OpenaiChat.into();
        for (payload, should) in [
            (
                r#"{"id":"c","object":"chat.completion.chunk","choices":[]}"#,
                true,
            ),
            (r#"{"object":"chat.completion"}"#, true),
            (r#"{"object":"response","choices":[]}"#, false),
            (r#"{"object":"","choices":[]}"#, false),
            (
                "{\n  \"id\": \"c\",\n  \"object\" : \"chat.completion\",\n  \"choices\": []\n}",
                true,
            ),
            (r#"{"object": 1, "id":"chat.completion"}"#, false),
            (r#"{"type":"object","object":"chat.completion"}"#, false),
            (
                r#"{"id":"\"object\":\"chat.completion\"","type":"response.created"}"#,
                false,
            ),
            (r#"{"inner":{"object":"chat.completion"}}"#, false),
            (r#"[{"object":"chat.completion"}]"#, false),
            (r#"{"object":"chat.completion"#, false),
            ("", false),
        ] {
            assert_eq!(confirms(chat, payload.as_bytes()), should, "{payload}");
            if should {
                assert_eq!(
                    sniff("", payload.as_bytes()),
                    Some(Dialect::OpenaiChat),
                    "{payload}"
                );
            }
        }
    }
}
