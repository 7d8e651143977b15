//! Shortens errors of `object_store`: their texts contain the whole response body, which may repeat
//! tokens.

use crate::s3_credentials::NoCredentials;
use crate::sink::{SendErrorKind, first_line};
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error;
use std::iter::successors;

/// Start of `object_store`'s error text for an unsuccessful response; the status and the body
/// follow.
const STATUS: &str = "Server returned non-2xx status code: ";
/// Codes with which AWS services ask for fewer requests.
const THROTTLED: [&str; 3] = ["SlowDown", "Throttling", "ThrottlingException"];

#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    /// The kind of failure; `None` if it is not known that a request reached a server.
    pub(crate) kind: Option<SendErrorKind>,
    pub(crate) text: String,
    pub(crate) of_credentials: bool,
}

impl Said {
    pub(crate) fn by(error: &(dyn Error + 'static)) -> Said {
        let causes = || successors(Some(error), |error| (*error).source());
        // The last cause says what happened; earlier causes name the request.
        let texts: Vec<_> = causes().map(ToString::to_string).collect();
        let text = texts.iter().rev().find(|text| !text.is_empty());
        let text = text.map_or("", String::as_str);
        let http = causes().find_map(|error| error.downcast_ref::<HttpError>());
        Said {
            kind: match http {
                Some(error) => Some(of_connection(error.kind())),
                None => of_response(text),
            },
            text: plain(text),
            of_credentials: causes().any(|error| error.is::<NoCredentials>()),
        }
    }
}

fn of_connection(kind: HttpErrorKind) -> SendErrorKind {
    match kind {
        HttpErrorKind::Timeout => SendErrorKind::Timeout,
        // A server responded, but not as expected.
        HttpErrorKind::Decode => SendErrorKind::Unavailable,
        _ => SendErrorKind::Unreachable,
    }
}

fn of_response(text: &str) -> Option<SendErrorKind> {
    let status = text.strip_prefix(STATUS)?.get(..3)?.parse().ok()?;
    let throttled = element(text, "Code").is_some_and(|code| THROTTLED.contains(&code));
    match status {
        429 => Some(SendErrorKind::Throttled),
        _ if throttled => Some(SendErrorKind::Throttled),
        408 | 500.. => Some(SendErrorKind::Unavailable),
        400.. => Some(SendErrorKind::Denied),
        _ => None,
    }
}

/// AWS's code and message; otherwise the first line of the text, without markup.
fn plain(text: &str) -> String {
    let text = text.strip_prefix(STATUS).unwrap_or(text);
    let said = match (element(text, "Code"), element(text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {}", unescaped(message)),
        (Some(code), None) => code.to_owned(),
        (None, _) => text.split('<').next().unwrap_or_default().to_owned(),
    };
    first_line(&said).trim_end_matches([':', ' ']).to_owned()
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, from) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = from.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

fn unescaped(text: &str) -> String {
    let named = [
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    named
        .iter()
        .fold(text.to_owned(), |text, (name, character)| {
            text.replace(name, character)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_s3_is_its_code_and_message_and_repeats_no_token() {
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>ExpiredToken</Code><Message>The provided token has \
                    expired.</Message><Token-0>IQoJb3JpZ2luX2Vj</Token-0></Error>";
        let text = format!("{STATUS}400 Bad Request: {body}");
        assert_eq!(
            plain(&text),
            "ExpiredToken: The provided token has expired."
        );
        assert_eq!(of_response(&text), Some(SendErrorKind::Denied));
    }

    #[test]
    fn quotes_of_a_message_are_quotes() {
        let message = "User: arn:aws:sts::1:assumed-role/a/b is not authorized to perform: s3:PutObject on resource: \
                       &quot;arn:aws:s3:::llm/a&quot;";
        let body =
            format!("<Error>\n<Code>AccessDenied</Code>\n<Message>{message}</Message>\n</Error>");
        let text = plain(&format!("{STATUS}403 Forbidden: {body}"));
        assert!(text.starts_with("AccessDenied: User: arn:aws:sts::1:assumed-role/a/b is not"));
        assert!(text.ends_with("on resource: \"arn:aws:s3:::llm/a\""));
    }

    #[test]
    fn pages_and_empty_bodies_are_their_status() {
        let page = "<?xml version=\"1.0\"?>\n<html><title>404 - Not Found</title></html>";
        for body in [page, ""] {
            assert_eq!(
                plain(&format!("{STATUS}404 Not Found: {body}")),
                "404 Not Found"
            );
        }
        let text = format!("{STATUS}401 Unauthorized: no token\nmore");
        assert_eq!(plain(&text), "401 Unauthorized: no token");
    }

    #[test]
    fn who_is_at_fault_is_told_by_the_status() {
        let kind = |status: &str, body: &str| of_response(&format!("{STATUS}{status}: {body}"));
        let slower =
            "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>";
        assert_eq!(
            kind("503 Service Unavailable", ""),
            Some(SendErrorKind::Unavailable)
        );
        assert_eq!(
            kind("503 Service Unavailable", slower),
            Some(SendErrorKind::Throttled)
        );
        assert_eq!(
            kind("429 Too Many Requests", ""),
            Some(SendErrorKind::Throttled)
        );
        assert_eq!(kind("404 Not Found", ""), Some(SendErrorKind::Denied));
        assert_eq!(kind("301 Moved Permanently", ""), None);
        assert_eq!(of_response("Connection refused"), None);
    }
}
