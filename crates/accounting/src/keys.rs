//! The API keys of a request, as digests.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};
use tokengauge_core::caller::SHARED;
use tokengauge_wire::percent_decoded;

/// Headers in which providers accept keys. It is unknown which of them an upstream reads. A call
/// therefore counts for each key that it carries, so that an additional key evades no limit.
const HEADERS: [&str; 15] = [
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
    "x-auth-key",
    "xi-api-key",
];
const PARAMETERS: [&str; 6] = [
    "key",
    "api-key",
    "api_key",
    "apikey",
    "access_token",
    "subscription-key",
];
const SIGNED_PARAMETER: &str = "x-amz-credential";
const SIGNED: [&[u8]; 2] = [b"AWS4-HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256"];
const BEARER: &[u8] = b"bearer";
/// Authorization schemes. The name of a scheme is never a key.
const SCHEMES: [&[u8]; 6] = [BEARER, b"basic", b"api-key", b"apikey", b"token", b"key"];
const MAX_SCHEME: usize = 16;
/// Words before the dot in a WebSocket subprotocol that carries a key, such as
/// `openai-insecure-api-key.`.
const KEY_PREFIXES: [&[u8]; 3] = [b"key", b"secret", b"token"];
/// Further keys of a request count as [`SHARED`].
const MAX_KEYS: usize = 16;
/// In a long list of lines, words or parameters, only this many at each end are searched for keys.
/// Servers use the first or the last line as a whole.
const ENDS: usize = 9;

/// A digest of each key of a request. The digest does not depend on where the key is written, and
/// cannot be reversed.
pub fn keys_of(headers: &HeaderMap, uri: &Uri) -> Vec<String> {
    let mut keys = Vec::new();
    each_credential(headers, uri, &mut |credential| {
        if keys.len() > MAX_KEYS {
            return;
        }
        let key = match keys.len() {
            MAX_KEYS => SHARED.to_owned(),
            _ => digest(credential),
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    });
    keys
}

/// The digests of a request's keys that are among `known`. It finds all of them, regardless of how
/// many other keys the request carries.
pub fn known_keys_of(headers: &HeaderMap, uri: &Uri, known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut keys = Vec::new();
    each_credential(headers, uri, &mut |credential| {
        let key = digest(credential);
        if known(&key) && !keys.contains(&key) {
            keys.push(key);
        }
    });
    keys
}

/// Calls `each` with everything in a request that could be a key. The argument is never empty.
fn each_credential(headers: &HeaderMap, uri: &Uri, each: &mut impl FnMut(&[u8])) {
    let mut add = |credential: &[u8]| {
        if !credential.is_empty() {
            each(credential);
        }
    };
    for name in HEADERS {
        for line in ends(headers.get_all(name).iter()) {
            credentials(line.as_bytes(), &mut add);
        }
    }
    for line in ends(headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter()) {
        of_protocols(line.as_bytes(), &mut add);
    }
    let is_known = |name: &str| {
        let mut names = PARAMETERS.iter().chain([&SIGNED_PARAMETER]);
        names.any(|known| name.eq_ignore_ascii_case(known))
    };
    let parameters = uri.query().into_iter().flat_map(form_urlencoded);
    for (name, value) in ends(parameters.filter(|(name, _)| is_known(name))) {
        if name.eq_ignore_ascii_case(SIGNED_PARAMETER) {
            add(before(value.as_bytes(), b'/').trim_ascii());
        } else {
            credentials(value.as_bytes(), &mut add);
        }
    }
}

fn ends<T>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    if all.len() > 2 * ENDS {
        all.drain(ENDS..all.len() - ENDS);
    }
    all
}

fn form_urlencoded(query: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = query
        .split(['&', ';'])
        .filter_map(|pair| pair.split_once('='));
    let plain = |text: &str| percent_decoded(&text.replace('+', " "));
    pairs.map(move |(name, value)| (plain(name), plain(value)))
}

/// The credentials of one header line: every word except the scheme. Everything except visible
/// ASCII separates words, because servers strip different characters.
fn credentials(line: &[u8], add: &mut impl FnMut(&[u8])) {
    let parts = line.split(|byte| !byte.is_ascii_graphic() || *byte == b',');
    let words = ends(parts.filter(|word| !word.is_empty()));
    let Some((&first, behind)) = words.split_first() else {
        return;
    };
    if SIGNED.contains(&first) {
        return behind.iter().for_each(|word| signed(word, add));
    }
    if first.eq_ignore_ascii_case(b"basic") {
        basic(line, add);
    }
    if behind.is_empty() {
        return plain(first, add);
    }
    let listed = before(line, b',').trim_ascii() == first && !is_known_scheme(first);
    if listed || !is_scheme(first) {
        plain(first, add);
    }
    let keys = behind.iter().filter(|word| !is_known_scheme(word));
    keys.for_each(|word| plain(word, add));
}

/// Adds a word, and also the rest of a word that begins with `Bearer`.
fn plain(word: &[u8], add: &mut impl FnMut(&[u8])) {
    let word = trimmed(word, |byte| matches!(byte, b'"' | b'\''));
    add(word);
    if let Some((scheme, rest)) = word.split_at_checked(BEARER.len())
        && scheme.eq_ignore_ascii_case(BEARER)
    {
        add(trimmed(rest, |byte| !byte.is_ascii_alphanumeric()));
    }
}

/// Whether a leading word is a scheme. A key is longer, or does not consist of letters.
fn is_scheme(word: &[u8]) -> bool {
    let letters = word.len() <= MAX_SCHEME && word.iter().all(u8::is_ascii_alphabetic);
    letters || is_known_scheme(word)
}

fn is_known_scheme(word: &[u8]) -> bool {
    let is = |scheme: &&[u8]| word.eq_ignore_ascii_case(scheme);
    SCHEMES.iter().any(is)
}

/// Adds the key of an AWS signature, which is the first part of `Credential=`. The other parts
/// change with each request.
fn signed(word: &[u8], add: &mut impl FnMut(&[u8])) {
    let about = |name: &[u8]| word.starts_with(name);
    if about(b"SignedHeaders=") || about(b"Signature=") {
        return;
    }
    let scope = word.strip_prefix(b"Credential=").unwrap_or(word);
    add(before(scope, b'/'));
}

/// Adds user and password of basic credentials. Some decoders skip characters that are not base64,
/// and some stop at the padding.
fn basic(line: &[u8], add: &mut impl FnMut(&[u8])) {
    let begins = line.iter().position(u8::is_ascii_alphabetic).unwrap_or(0);
    let behind = line.get(begins + b"basic".len()..).unwrap_or_default();
    for coded in [behind, before(behind, b'=')] {
        let signs = coded.iter().filter_map(|byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b'+' | b'/' => Some(*byte),
            _ => Some(*byte).filter(u8::is_ascii_alphanumeric),
        });
        let mut signs: Vec<u8> = signs.collect();
        // A single trailing character encodes no byte.
        signs.truncate(signs.len() - usize::from(signs.len() % 4 == 1));
        let decoded = LENIENT.decode(signs).unwrap_or_default();
        let user = before(&decoded, b':');
        add(user);
        add(decoded.get(user.len() + 1..).unwrap_or_default());
    }
}

/// Base64 without padding that accepts leftover bits.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// The keys among the subprotocols that a browser offers for a WebSocket, because it cannot send
/// other headers. A key follows a prefix that announces a key, or the word `token`.
fn of_protocols(line: &[u8], add: &mut impl FnMut(&[u8])) {
    let protocols = ends(line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii));
    let mut announced = false;
    for protocol in protocols {
        let prefix = before(protocol, b'.');
        if announced {
            credentials(protocol, add);
        }
        if KEY_PREFIXES.iter().any(|word| contains(prefix, word)) {
            credentials(protocol.get(prefix.len() + 1..).unwrap_or_default(), add);
        }
        announced |= matches!(
            &*protocol.to_ascii_lowercase(),
            b"token" | b"bearer" | b"authorization"
        );
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}

fn before(text: &[u8], end: u8) -> &[u8] {
    let end = text.iter().position(|byte| *byte == end);
    &text[..end.unwrap_or(text.len())]
}

fn trimmed(mut text: &[u8], strip: impl Fn(u8) -> bool) -> &[u8] {
    while let [first, rest @ ..] = text
        && strip(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && strip(*last)
    {
        text = rest;
    }
    text
}

const OWN: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
/// The minimum length of such a key, in bytes. A shorter key could be guessed, and many clients
/// share `EMPTY` or `sk-1234`.
pub const MIN_OWN_KEY: usize = 16;

/// Parts of placeholders for keys, reduced to lower-case letters and digits.
const PLACEHOLDERS: [&str; 10] = [
    "nokey",
    "yourkey",
    "yourapikey",
    "notneeded",
    "notrequired",
    "placeholder",
    "changeme",
    "dummy",
    "xxxxxxxx",
    "1234567890",
];

/// The digest of the key that identifies its holder. The first of these is used: a bearer token,
/// one of three headers, or Gemini's parameter `key`. `None` if others may know the key, such as
/// the id of an AWS signature or a user name, if the key could be guessed, or if it is a
/// placeholder from an example.
pub fn own_key(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let of_header = OWN.iter().filter_map(|name| {
        let value = headers.get(*name)?.as_bytes().trim_ascii();
        if *name != "authorization" {
            return Some(value.to_vec());
        }
        let (scheme, key) = value.split_at_checked(BEARER.len())?;
        let bearer = scheme.eq_ignore_ascii_case(BEARER) && key.starts_with(b" ");
        bearer.then(|| key.trim_ascii().to_vec())
    });
    let of_query = uri.query().into_iter().flat_map(form_urlencoded);
    let of_query = of_query.filter_map(|(name, value)| (name == "key").then(|| value.into_bytes()));
    let key = of_header.chain(of_query).find(|key| !key.is_empty())?;
    let whole = key.iter().all(u8::is_ascii_graphic) && key.len() >= MIN_OWN_KEY;
    (whole && !is_aws_id(&key) && !is_placeholder(&key)).then(|| digest(&key))
}

fn is_placeholder(key: &[u8]) -> bool {
    let key = String::from_utf8_lossy(key).to_ascii_lowercase();
    let letters: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    PLACEHOLDERS.iter().any(|words| letters.contains(words))
}

/// Whether the text is the id of an AWS key, which is not a secret.
fn is_aws_id(key: &[u8]) -> bool {
    let upper = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    (key.starts_with(b"AKIA") || key.starts_with(b"ASIA")) && key.iter().all(upper)
}

/// The digest of one key, as [`keys_of`] returns it.
pub fn digest_of(key: &str) -> String {
    digest(key.as_bytes())
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
    fn a_holder_is_known_by_a_secret_alone() {
        const KEY: &str = "sk-0123456789abcdef";
        let own = |headers: &[(&'static str, &'static str)], target| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            own_key(&map, &Uri::from_static(target))
        };
        let known = Some(digest_of(KEY));
        assert_eq!(
            own(&[("authorization", "Bearer sk-0123456789abcdef")], "/"),
            known
        );
        for name in ["x-api-key", "api-key", "x-goog-api-key"] {
            assert_eq!(own(&[(name, KEY)], "/"), known);
        }
        assert_eq!(own(&[], "/v1beta/models?key=sk-0123456789abcdef"), known);
        assert_eq!(of(&[("x-api-key", KEY)], "/"), [digest_of(KEY)]);
        for (name, value) in [
            ("authorization", "Bearer EMPTY"),
            ("authorization", "sk-0123456789abcdef"),
            ("authorization", "Basic c2stMDEyMzQ1Njc4OWFiY2RlZjpzay0w"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIA0123456789ABCDEF/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa",
            ),
            ("x-api-key", "sk-0123456789abcdef, another"),
            ("x-api-key", "AKIA0123456789ABCDEF"),
            ("x-api-key", "sk-no-key-required"),
            ("x-api-key", "sk-your-API-key-here"),
            ("x-api-key", "sk-xxxxxxxxxxxxxxxx"),
            ("cookie", KEY),
        ] {
            assert_eq!(own(&[(name, value)], "/"), None, "{value}");
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
    fn no_spelling_of_a_key_is_another_key() {
        let bytes = |name: &'static str, value: &[u8]| {
            let value = HeaderValue::from_bytes(value).expect("a value");
            let name = HeaderName::from_static(name);
            keys_of(
                &HeaderMap::from_iter([(name, value)]),
                &Uri::from_static("/"),
            )
        };
        let one = of(&[("x-api-key", "sk-real")], "/").remove(0);
        for (name, value) in [
            ("x-api-key", &b"sk-real\xa0"[..]),
            ("x-api-key", b"\x85sk-real"),
            ("x-api-key", b"\xc2\xa0sk-real\xe3\x80\x80"),
            ("authorization", b"Bearer \xa0sk-real"),
            ("authorization", b"Bearer Bearer sk-real"),
            ("authorization", b"Bearersk-real"),
            ("authorization", b"Bearer:sk-real"),
            ("authorization", b"Bearer \"sk-real\""),
            ("authorization", b"sk-real Bearer2"),
            ("authorization", b"AWS4 Credential=Z/ sk-real"),
            ("authorization", b"AWS4-HMAC-SHA256 Credential=Z/ sk-real"),
            (
                "authorization",
                b"AWS4-HMAC-SHA256 Credential=Z/1, Credential=sk-real/2",
            ),
            (
                "authorization",
                b"AWS4-HMAC-SHA256 XCredential=Z/1, Credential=sk-real/2",
            ),
            // any:sk-real, sk-real:any and sk-real: with characters that decoders skip.
            ("authorization", b"Basic YW55OnNrLXJlYWw="),
            ("authorization", b"basic YW5!5OnNr,LXJ lYWw=="),
            ("authorization", b"Basic c2stcmVhbDphbnk"),
            ("authorization", b"Basic c2stcmVhbDo\xa0="),
            ("authorization", b"Basic c2stcmVhbDo=AAAA"),
            ("authorization", b"\xa0,Basic c2stcmVhbDo="),
            (
                "sec-websocket-protocol",
                b"realtime, openai-insecure-api-key.sk-real, v1",
            ),
            ("sec-websocket-protocol", b"xai-client-secret.sk-real"),
            ("sec-websocket-protocol", b"Token, sk-real"),
        ] {
            let keys = bytes(name, value);
            assert!(keys.contains(&one), "{}", String::from_utf8_lossy(value));
        }
        assert!(
            bytes(
                "sec-websocket-protocol",
                b"realtime, openai-beta.realtime-v1"
            )
            .is_empty()
        );
        let signed = |target| of(&[], target);
        assert_eq!(
            signed("/?X-Amz-Credential=AKIA1%2F20260101%2Fr"),
            signed("/?x-amz-credential=AKIA1/20260102/r")
        );
    }

    #[test]
    fn what_every_caller_sends_is_no_key() {
        let aws = "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host;x-amz-date, Signature=aa";
        for (name, value) in [
            ("authorization", aws),
            ("authorization", "Bearer sk-real"),
            ("authorization", "Api-Key sk-real"),
            ("authorization", "Custom sk-real"),
            (
                "sec-websocket-protocol",
                "realtime, openai-insecure-api-key.sk-real, openai-beta.realtime-v1",
            ),
        ] {
            assert_eq!(of(&[(name, value)], "/").len(), 1, "{value}");
        }
    }

    #[test]
    fn a_known_key_is_found_among_many() {
        let known = digest_of("sk-real");
        let junk = |count: usize| {
            (0..count)
                .map(|number| format!("k{number},"))
                .collect::<String>()
        };
        for before in [0, 16, 100, 2_000] {
            let mut headers = HeaderMap::new();
            let mut put = |name: &'static str, value: &str| {
                headers.append(name, HeaderValue::from_str(value).expect("a value"));
            };
            put("x-api-key", &junk(before));
            (0..before).for_each(|number| put("x-goog-api-key", &format!("j{number}")));
            put("x-goog-api-key", "sk-real");
            put("xi-api-key", &junk(before));
            let uri = Uri::from_static("/?key=a&key=b");
            let found = known_keys_of(&headers, &uri, |key| key == known);
            assert_eq!(found, std::slice::from_ref(&known), "{before} others");
        }
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
