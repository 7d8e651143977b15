//! Reads members of a JSON body by path, in one pass and without storing anything else.

use super::json::Text;
use super::word::word;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::fmt;

const MAX_DEPTH: usize = 8;
/// Members that contain the conversation, which never contains an identifier.
const CONVERSATION: &[&str] = &[
    "contents",
    "input",
    "inputs",
    "instructions",
    "message",
    "messages",
    "prompt",
    "query",
    "suffix",
    "system",
    "systemInstruction",
    "system_instruction",
    "tools",
];

/// The path of a member as names from the body down, such as `metadata.thread`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Box<[Box<str>]>);

impl JsonPath {
    /// Parses names that are joined by dots.
    ///
    /// # Errors
    /// Returns what is wrong with the text.
    pub fn parse(text: &str) -> Result<JsonPath, &'static str> {
        let names: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        if names.iter().any(|name| name.trim().is_empty()) {
            return Err("is not a path such as \"metadata.thread\": one of its names is empty");
        }
        if names.len() > MAX_DEPTH {
            return Err("has more than 8 names");
        }
        if CONVERSATION.contains(&&*names[0]) {
            return Err("leads into the conversation, which is never recorded");
        }
        Ok(JsonPath(names))
    }

    /// The first name of the path.
    pub fn first(&self) -> &str {
        &self.0[0]
    }
}

/// The value at each of `paths` in `body`: a non-empty string or a number, without control
/// characters, truncated to 200 characters. An object that is encoded as a string is also searched.
pub fn pick(paths: &[&JsonPath], body: &[u8]) -> Vec<Option<String>> {
    let found = RefCell::new(vec![None; paths.len()]);
    let wanted = paths.iter().map(|path| &*path.0).enumerate().collect();
    let visitor = PathVisitor {
        wanted,
        found: &found,
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    // Values before a syntax error are kept.
    let _ = visitor.deserialize(&mut reader);
    found.into_inner()
}

/// Visits the members on the `wanted` paths, each with its index, and skips all others.
struct PathVisitor<'p, 'f> {
    wanted: Vec<(usize, &'p [Box<str>])>,
    found: &'f RefCell<Vec<Option<String>>>,
}

impl PathVisitor<'_, '_> {
    fn text(&self, text: &str) {
        let mut found = self.found.borrow_mut();
        for (number, rest) in &self.wanted {
            if rest.is_empty() {
                found[*number] = word(text);
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            let below = self.wanted.iter().filter_map(|(number, path)| {
                let (first, rest) = path.split_first()?;
                (**first == *key).then_some((*number, rest))
            });
            let wanted: Vec<_> = below.collect();
            if wanted.is_empty() {
                entries.next_value::<IgnoredAny>()?;
            } else {
                let found = self.found;
                entries.next_value_seed(PathVisitor { wanted, found })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        IgnoredAny.visit_seq(items).map(|_| ())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if text.starts_with('{') && self.wanted.iter().any(|(_, rest)| !rest.is_empty()) {
            let mut reader = serde_json::Deserializer::from_str(text);
            let _ = self.deserialize(&mut reader);
        } else {
            self.text(text);
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.text(&number.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.text(&number.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.text(&number.to_string());
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(paths: &[&str], body: &str) -> Vec<Option<String>> {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| JsonPath::parse(path).expect("a path"))
            .collect();
        pick(&paths.iter().collect::<Vec<_>>(), body.as_bytes())
    }

    #[test]
    fn members_are_found_at_any_depth_and_nowhere_else() {
        let body = r#"{"messages":[{"thread":"no","metadata":{"thread":"no"}}],"thread":7,
            "metadata":{"other":{"thread":"no"},"thread":"t-1","deep":{"er":{"id":"d"}},
            "packed":"{\"session\":\"p\"}"},"flag":true,"none":null,"list":["no"]}"#;
        let paths = [
            "metadata.thread",
            "thread",
            "metadata.deep.er.id",
            "metadata.packed.session",
        ];
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            picked(&paths, body),
            [some("t-1"), some("7"), some("d"), some("p")]
        );
        let nothing = [
            "flag",
            "none",
            "list",
            "metadata.deep",
            "metadata.packed.other",
            "absent",
        ];
        assert_eq!(picked(&nothing, body), vec![None; nothing.len()]);
    }

    #[test]
    fn values_are_bounded_and_a_broken_body_gives_what_came_before() {
        let long = format!(r#"{{"a":"{}","b":"x\ny","c":"#, "é".repeat(300));
        assert_eq!(
            picked(&["a", "b", "c"], &long),
            [Some("é".repeat(200)), None, None]
        );
        assert_eq!(picked(&["a"], "[1]"), [None]);
    }

    #[test]
    fn no_path_leads_into_the_conversation() {
        for text in [
            "messages",
            "messages.content",
            "system",
            "input.0",
            "",
            "a..b",
            "a.b.c.d.e.f.g.h.i",
        ] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }
}
