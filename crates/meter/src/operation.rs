//! What kind of work a call is, and the template of its path.

use http::{HeaderMap, Method, Uri, header};
use tokengauge_core::call::Operation;
use tokengauge_wire::is_gemini_live;

/// Characters of a template at most.
const MAX_PATH: usize = 200;
/// Path segments that the name of a model follows.
const BEFORE_MODELS: [&str; 4] = ["models", "model", "deployments", "engines"];
/// The longest path segment that is a word: a longer one is an id.
const MAX_WORD: usize = 32;
/// The longest one that is a version.
const MAX_VERSION: usize = 9;

/// Whether a request with this method asks for anything to be generated: a `GET` reads what was
/// generated before, except for a live connection, which begins with one.
pub(crate) fn generates(method: &Method, operation: Operation, is_socket: bool) -> bool {
    method == Method::POST || operation == Operation::Realtime || is_socket
}

/// Whether a request becomes a WebSocket, where the server agrees.
pub(crate) fn is_socket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The path with `{model}` and `{id}` in place of identifiers, without the query.
pub(crate) fn template(uri: &Uri) -> Box<str> {
    let path = uri.path();
    let mut template = String::with_capacity(path.len().min(MAX_PATH));
    let mut before = "";
    for part in path.split('/').filter(|part| !part.is_empty()) {
        template.push('/');
        // Bytes of ASCII are characters.
        let colon = part.bytes().rposition(|byte| byte == b':');
        let (name, verb) = colon.map_or((part, ""), |at| (&part[..at], &part[at + 1..]));
        if BEFORE_MODELS.contains(&before) {
            template.push_str("{model}");
        } else if is_word(name) {
            template.push_str(name);
        } else if is_gemini_live(name) {
            // Behind the name of its service, which is longer than any word.
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

/// Whether it is a word of an API or its version, such as `v1beta2`, and not a name or an id.
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
