//! The kind of work of a call, and the template of its path.

use http::{HeaderMap, Method, Uri, header};
use tokengauge_core::call::Operation;
use tokengauge_wire::{detect, is_gemini_live};

const MAX_PATH: usize = 200;
const BEFORE_MODELS: [&str; 4] = ["models", "model", "deployments", "engines"];
/// A longer path segment is an id and not a word.
const MAX_WORD: usize = 32;
/// A longer path segment is not a version.
const MAX_VERSION: usize = 9;

/// Whether a request with this method asks to generate anything. A `GET` reads what was generated
/// earlier, unless it opens a live connection.
pub(crate) fn generates(method: &Method, operation: Operation, is_socket: bool) -> bool {
    method == Method::POST || operation == Operation::Realtime || is_socket
}

pub(crate) fn is_socket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Whether the path names a stored answer or an action on one, such as `/v1/responses/ID/cancel`.
/// An earlier call generated that answer.
pub(crate) fn is_of_stored(uri: &Uri) -> bool {
    let path = uri.path();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let is_stored = |path: &str| {
        let stored = path.parse().map(|uri| detect(&Method::GET, &uri));
        stored.is_ok_and(|stored| stored.operation == Operation::Retrieve)
    };
    is_stored(path) || is_stored(parent)
}

/// Whether these headers announce a JSON body; `None` if they do not name a media type.
pub(crate) fn is_json(headers: &HeaderMap) -> Option<bool> {
    let kind = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let end = kind.iter().position(|byte| *byte == b';');
    let kind = kind[..end.unwrap_or(kind.len())].trim_ascii_end();
    let kind = kind.to_ascii_lowercase();
    Some(kind.ends_with(b"/json") || kind.ends_with(b"+json"))
}

/// The path without the query, with `{model}` and `{id}` instead of identifiers.
pub(crate) fn template(uri: &Uri) -> Box<str> {
    let path = uri.path();
    let mut template = String::with_capacity(path.len().min(MAX_PATH));
    let mut before = "";
    for part in path.split('/').filter(|part| !part.is_empty()) {
        template.push('/');
        // Every byte of ASCII is one character.
        let colon = part.bytes().rposition(|byte| byte == b':');
        let (name, verb) = colon.map_or((part, ""), |at| (&part[..at], &part[at + 1..]));
        if BEFORE_MODELS.contains(&before) {
            template.push_str("{model}");
        } else if is_word(name) {
            template.push_str(name);
        } else if is_gemini_live(name) {
            // A method follows the name of its gRPC service, which is longer than any word.
            template.push_str(name.rsplit('.').next().unwrap_or(name));
        } else {
            template.push_str("{id}");
        }
        if is_word(verb) {
            template.push(':');
            template.push_str(verb);
        }
        before = part;
        if template.len() > MAX_PATH {
            template.push_str("/…");
            break;
        }
    }
    if template.is_empty() {
        template.push('/');
    }
    template.into_boxed_str()
}

/// Whether a segment is a word or a version of an API, such as `v1beta2`, and not a name or an id.
fn is_word(part: &str) -> bool {
    if part.is_empty() || part.len() > MAX_WORD {
        return false;
    }
    let is_version = matches!(part.as_bytes(), [b'v', first, ..] if first.is_ascii_digit())
        && part.len() <= MAX_VERSION;
    let plain = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_' | b'.');
    let mut bytes = part.bytes();
    bytes.all(|byte| plain(byte) || is_version && byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_answer_and_what_is_done_to_it_are_known_by_their_paths() {
        for (path, should) in [
            ("/v1/responses/resp_1", true),
            ("/v1/responses/resp_1/cancel?x=y", true),
            ("/openai/v1/chat/completions/c_1", true),
            ("/v1beta/interactions/i_1/cancel", true),
            ("/foo/bar", false),
            ("/v1/responses", false),
            ("/own/agents/17", false),
            ("/", false),
        ] {
            let uri: Uri = path.parse().expect("a path");
            assert_eq!(is_of_stored(&uri), should, "{path}");
        }
    }

    #[test]
    fn json_is_known_by_its_media_type() {
        for (kind, should) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.api+json ;v=1", true),
            ("multipart/form-data", false),
            ("application/json-seq", false),
        ] {
            let value = kind.parse().expect("a value");
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
            assert_eq!(is_json(&headers), Some(should), "{kind}");
        }
        assert_eq!(is_json(&HeaderMap::new()), None);
    }

    #[test]
    fn a_template_has_no_names_and_no_ids() {
        for (path, should) in [
            ("/v1/chat/completions?key=secret", "/v1/chat/completions"),
            ("/v1/responses/resp_0a1b2c", "/v1/responses/{id}"),
            ("/v1/responses/resp_1/cancel", "/v1/responses/{id}/cancel"),
            (
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
                "/v1beta/models/{model}:streamGenerateContent",
            ),
            (
                "/openai/deployments/my-own/chat/completions",
                "/openai/deployments/{model}/chat/completions",
            ),
            (
                "/model/us.anthropic.claude-sonnet-4%3A0/converse-stream",
                "/model/{model}/converse-stream",
            ),
            ("/v1/files/file-Ab3dEf6hIj9", "/v1/files/{id}"),
            ("/sk-proj-abcdefghijklmnopqrstuvwxyzabcdef/x", "/{id}/x"),
            ("/", "/"),
            ("//api//hello", "/api/hello"),
            ("/v1/models", "/v1/models"),
        ] {
            let uri: Uri = path.parse().expect("a path");
            assert_eq!(&*template(&uri), should, "{path}");
        }
        let long: Uri = "/a".repeat(5_000).parse().expect("a path");
        assert!(template(&long).len() <= MAX_PATH + 8);
    }
}
