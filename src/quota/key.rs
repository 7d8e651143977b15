//! Whose keys a request carries, without the keys.

use crate::caller::SHARED;
use crate::wire::percent_decoded;
use http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};

/// Where providers take keys. Which of them an upstream reads is its own affair: a call
/// counts for each key that it carries, so that another one beside it changes nothing.
const HEADERS: [&str; 13] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "x-litellm-api-key",
    "x-portkey-api-key",
    "x-access-token",
    "x-api-token",
    "x-auth-token",
    "x-functions-key",
    "cf-aig-authorization",
    "helicone-auth",
];
/// The same in the query.
const PARAMETERS: [&str; 7] = [
    "key",
    "api-key",
    "api_key",
    "apikey",
    "access_token",
    "subscription-key",
    "x-amz-credential",
];
/// Keys of one request; it counts for [`SHARED`] in place of the others.
const MAX_KEYS: usize = 16;

/// What stands for each key of a request: the same for the same key wherever it is written,
/// and no way back.
pub fn keys_of(headers: &HeaderMap, uri: &Uri) -> Vec<String> {
    let mut keys = Vec::new();
    let mut add = |credential: &[u8]| {
        if credential.is_empty() || keys.len() > MAX_KEYS {
            return;
        }
        let key = match keys.len() {
            MAX_KEYS => SHARED.to_owned(),
            _ => digest(credential),
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    };
    for name in HEADERS {
        for line in headers.get_all(name) {
            credentials(line.as_bytes(), &mut add);
        }
    }
    for (name, value) in uri.query().into_iter().flat_map(form_urlencoded) {
        if PARAMETERS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        {
            credentials(value.as_bytes(), &mut add);
        }
    }
    keys
}

/// Names and values of a query, without their escapes.
fn form_urlencoded(query: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = query
        .split(['&', ';'])
        .filter_map(|pair| pair.split_once('='));
    let plain = |text: &str| percent_decoded(&text.replace('+', " "));
    pairs.map(move |(name, value)| (plain(name), plain(value)))
}

/// The credentials of one line: of each part between commas the words behind the scheme, or
/// its only word. Amazon signs each request anew: its key is the first part of `Credential=`.
fn credentials(line: &[u8], add: &mut impl FnMut(&[u8])) {
    let text = String::from_utf8_lossy(line);
    if let Some(key) = amazon(&text) {
        return add(key.as_bytes());
    }
    for part in text.split(',') {
        let mut words = part.split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut behind = words.peekable();
        if behind.peek().is_none() {
            add(first.as_bytes());
        }
        behind.for_each(|word| add(word.as_bytes()));
    }
}

fn amazon(text: &str) -> Option<&str> {
    let signed = text.trim_start().get(..4)?.eq_ignore_ascii_case("AWS4");
    let (_, scope) = text.split_once("Credential=").filter(|_| signed)?;
    scope.split('/').next()
}

fn digest(credential: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(b"tokengauge key\0");
    digest.update(credential);
    let digest = digest.finalize();
    let bytes = digest.iter().take(8);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn of(headers: &[(&'static str, &'static str)], target: &'static str) -> Vec<String> {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        keys_of(&map, &Uri::from_static(target))
    }

    #[test]
    fn the_same_key_is_known_again_wherever_it_is_written_and_cannot_be_read() {
        let one = of(&[("authorization", "Bearer sk-secret")], "/");
        assert_eq!((one.len(), one[0].len()), (1, 16));
        assert!(!one[0].contains("secret"));
        for same in [
            of(&[("authorization", "bearer   sk-secret ")], "/"),
            of(&[("authorization", "BEARER\tsk-secret")], "/"),
            of(&[("x-api-key", "sk-secret")], "/"),
            of(
                &[("api-key", "sk-secret"), ("x-goog-api-key", "sk-secret")],
                "/",
            ),
            of(
                &[],
                "/v1beta/models/m:generateContent?alt=sse&key=sk-secret",
            ),
            of(&[], "/v1?%6bey=sk%2dsecret"),
            of(
                &[("authorization", "Bearer sk-secret, Bearer sk-secret")],
                "/",
            ),
        ] {
            assert_eq!(same, one);
        }
        assert_ne!(of(&[("x-api-key", "sk-other")], "/"), one);
        assert!(of(&[("x-api-key", " ")], "/?key=").is_empty());
    }

    #[test]
    fn a_call_has_every_key_that_it_carries() {
        let one = of(&[("x-api-key", "sk-secret")], "/");
        for more in [
            of(
                &[("authorization", "Bearer x"), ("x-api-key", "sk-secret")],
                "/",
            ),
            of(&[("x-api-key", "x"), ("x-api-key", "sk-secret")], "/"),
            of(&[("x-api-key", "x,sk-secret")], "/"),
            of(&[("authorization", "Bearer sk-secret x")], "/"),
            of(&[("x-api-key", "sk-secret")], "/?key=x"),
        ] {
            assert_eq!(more.len(), 2);
            assert!(more.contains(&one[0]));
        }
    }

    #[test]
    fn what_amazon_signs_anew_each_time_is_one_key() {
        let signed = |value| of(&[("authorization", value)], "/");
        let one = signed(
            "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa",
        );
        let again = signed(
            "AWS4-HMAC-SHA256 Credential=AKIA1/20260102/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=bb",
        );
        assert_eq!((one.len(), &one), (1, &again));
        let other = signed(
            "AWS4-HMAC-SHA256 Credential=AKIA2/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa",
        );
        assert_ne!(one, other);
    }

    #[test]
    fn too_many_keys_are_as_many_as_are_remembered_and_one_for_the_others() {
        let list: String = (0..1000).map(|number| format!("k{number},")).collect();
        let value = HeaderValue::from_str(&list).expect("a value");
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        let keys = keys_of(&headers, &Uri::from_static("/"));
        assert_eq!((keys.len(), &*keys[MAX_KEYS]), (MAX_KEYS + 1, SHARED));
    }
}
