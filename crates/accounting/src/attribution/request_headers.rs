//! The headers of a request, made for many lookups of absent names.

use http::{HeaderMap, HeaderValue};

/// The headers of a request with a filter over their names. Attribution looks for about thirty
/// names, but a request has only two or three of them. A lookup in the map would hash each name.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHeaders<'a> {
    headers: &'a HeaderMap,
    filter: NameFilter,
}

impl<'a> RequestHeaders<'a> {
    pub(super) fn new(headers: &'a HeaderMap) -> RequestHeaders<'a> {
        let mut filter = NameFilter::default();
        for name in headers.keys() {
            filter.add(name.as_str());
        }
        RequestHeaders { headers, filter }
    }

    /// Returns `false` if no header has this name. `name` is in lower case.
    #[inline]
    pub(super) fn may_contain(self, name: &str) -> bool {
        self.filter.may_contain(name)
    }

    pub(super) fn all(self) -> &'a HeaderMap {
        self.headers
    }

    pub(super) fn get(self, name: &str) -> Option<&'a HeaderValue> {
        self.get_all(name).next()
    }

    pub(super) fn get_all(self, name: &str) -> impl Iterator<Item = &'a HeaderValue> + use<'a> {
        let all = self.may_contain(name).then(|| self.headers.get_all(name));
        all.into_iter().flatten()
    }
}

/// One of 64 bits for the length of each name, and one for two of its characters. Names of one
/// family begin and often end with equal characters. The lookup is inlined because the names are
/// constants.
#[derive(Clone, Copy, Debug, Default)]
struct NameFilter {
    lengths: u64,
    letters: u64,
}

impl NameFilter {
    fn add(&mut self, name: &str) {
        self.lengths |= length_bit(name);
        self.letters |= letters_bit(name);
    }

    #[inline]
    fn may_contain(self, name: &str) -> bool {
        self.lengths & length_bit(name) != 0 && self.letters & letters_bit(name) != 0
    }
}

#[inline]
fn length_bit(name: &str) -> u64 {
    1 << (name.len() % 64)
}

#[inline]
fn letters_bit(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let at = |index: usize| bytes.get(index).map_or(0, |byte| usize::from(*byte));
    1 << ((7 * at(name.len() / 2) + 13 * at(name.len().wrapping_sub(1))) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_the_map_finds(
            sent in proptest::collection::vec("[a-e_-]{1,4}", 0..12),
            wanted in "[a-e_-]{1,4}",
        ) {
            let mut headers = HeaderMap::new();
            for (number, name) in sent.iter().enumerate() {
                let name: http::HeaderName = name.parse().expect("a name");
                headers.append(name, HeaderValue::from(number));
            }
            let filtered = RequestHeaders::new(&headers);
            prop_assert_eq!(filtered.get(&wanted), headers.get(&wanted));
            let all: Vec<_> = filtered.get_all(&wanted).collect();
            prop_assert_eq!(all, headers.get_all(&wanted).iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_of_the_names_that_are_looked_for_seem_to_be_in_a_common_request() {
        let sent = "host content-type content-length authorization user-agent accept accept-encoding \
                    x-stainless-lang x-stainless-runtime x-stainless-arch x-stainless-os";
        let mut headers = HeaderMap::new();
        for name in sent.split(' ') {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        let filtered = RequestHeaders::new(&headers);
        let wanted = "x-tokengauge-session x-tokengauge-agent x-tokengauge-user traceparent baggage \
                      x-claude-code-agent-id originator x-openai-subagent helicone-user-id x-litellm-tags \
                      x-portkey-metadata x-openwebui-user-id x-bf-dim-user x-tokengauge-experiment";
        let seeming = wanted.split(' ').filter(|name| filtered.may_contain(name));
        assert!(seeming.count() <= 1);
    }
}
