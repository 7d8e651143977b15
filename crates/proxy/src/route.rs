use crate::settings::{Endpoint, Matches, Route};
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use std::sync::Arc;

pub(super) fn choose(routes: &[Arc<Route>], request: &Parts) -> Option<usize> {
    routes
        .iter()
        .position(|route| matches(&route.matches, request))
}

fn matches(wanted: &Matches, request: &Parts) -> bool {
    under(&wanted.path_prefix, request.uri.path())
        && wanted.host.as_deref().is_none_or(|wanted| {
            host(request).is_some_and(|host| wanted.eq_ignore_ascii_case(host))
        })
        && wanted.headers.iter().all(|(name, value)| {
            request
                .headers
                .get_all(name)
                .iter()
                .any(|sent| sent == value)
        })
}

fn under(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

fn host(request: &Parts) -> Option<&str> {
    if let Some(host) = request.uri.host() {
        return Some(host);
    }
    let host = request.headers.get(HOST)?.to_str().ok()?;
    match host.rfind(':') {
        // The colons in `[::1]` do not start a port.
        Some(colon) if !host[colon..].contains(']') => Some(&host[..colon]),
        _ => Some(host),
    }
}

/// Whether a path would escape the prefix of its route, or the base path of its endpoint, on a server that resolves
/// `..`.
pub(super) fn escapes_prefix(route: &Route, path: &str) -> bool {
    let mut endpoints = route.upstreams().flat_map(|upstream| &upstream.endpoints);
    let confined = !route.matches.path_prefix.is_empty()
        || endpoints.any(|endpoint| !endpoint.base_path.is_empty());
    if !confined || !(path.contains("..") || path.contains('%')) {
        return false;
    }
    // Some servers decode these codes to dots and slashes, or read backslashes as slashes.
    let mut path = path.to_ascii_lowercase();
    for (written, meant) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("\\", "/")] {
        path = path.replace(written, meant);
    }
    // Text after `;` is a parameter of the segment.
    let mut segments = path.split('/').map(|segment| segment.split(';').next());
    segments.any(|segment| segment == Some(".."))
}

/// The target at the endpoint: the agent's target byte for byte, except for the stripped prefix and the added base
/// path. `None` if the result is not a valid target.
pub(super) fn target(
    route: &Route,
    endpoint: &Endpoint,
    request: &http::Uri,
) -> Option<PathAndQuery> {
    let Some(target) = request.path_and_query() else {
        return Some(PathAndQuery::from_static("/"));
    };
    let stripped = if route.strip_prefix {
        route.matches.path_prefix.as_str()
    } else {
        ""
    };
    if stripped.is_empty() && endpoint.base_path.is_empty() || target.as_str() == "*" {
        return Some(target.clone());
    }
    let rest = target
        .as_str()
        .strip_prefix(stripped)
        .unwrap_or(target.as_str());
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = format!("{}{slash}{rest}", endpoint.base_path);
    // A path that starts with two slashes could be read as another host.
    match path.strip_prefix("//") {
        Some(rest) => PathAndQuery::try_from(format!("/{}", rest.trim_start_matches('/'))).ok(),
        None => PathAndQuery::try_from(path).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Upstream;
    use http::{HeaderName, HeaderValue, Request};

    fn route(prefix: &str, strip: bool) -> Route {
        let upstream = Arc::new(Upstream::new("u", Vec::new()));
        Route {
            matches: Matches {
                path_prefix: prefix.into(),
                ..Matches::default()
            },
            strip_prefix: strip,
            ..Route::new("r", upstream)
        }
    }

    #[test]
    fn a_path_may_not_climb_out_of_its_prefix() {
        for (path, climbs_out) in [
            ("/a/v1/chat", false),
            ("/a/models/gemini-2.5..x:generate", false),
            ("/a/...", false),
            ("/a/b%20c%2Fd", false),
            ("/a/..", true),
            ("/a/../b", true),
            ("/a/%2e%2E/b", true),
            ("/a/.%2e/b", true),
            ("/a/..%2fb", true),
            ("/a/..%5Cb", true),
            ("/a/..\\b", true),
            ("/a/..;x=1/b", true),
        ] {
            assert_eq!(
                escapes_prefix(&route("/a", true), path),
                climbs_out,
                "{path}"
            );
            assert!(!escapes_prefix(&route("", false), path), "{path}");
        }
    }

    fn rewritten(prefix: &str, strip: bool, base: &str, uri: &str) -> String {
        let endpoint = Endpoint {
            scheme: http::uri::Scheme::HTTP,
            authority: "host:1".parse().unwrap(),
            base_path: base.into(),
        };
        target(&route(prefix, strip), &endpoint, &uri.parse().unwrap())
            .unwrap()
            .to_string()
    }

    fn parts(uri: &str, host: Option<&str>) -> Parts {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_prefix_matches_whole_segments_only() {
        for (prefix, path, expected) in [
            ("/openai", "/openai", true),
            ("/openai", "/openai/v1", true),
            ("/openai", "/openai?x=1", true),
            ("/openai", "/openai2/v1", false),
            ("/openai", "//openai/v1", false),
            ("", "/anything", true),
        ] {
            let found = choose(&[Arc::new(route(prefix, true))], &parts(path, None)).is_some();
            assert_eq!(found, expected, "{prefix} against {path}");
        }
    }

    #[test]
    fn the_first_match_wins_by_host_and_header_too() {
        let mut by_host = route("", false);
        by_host.name = Arc::from("host");
        by_host.matches.host = Some("api.example".into());
        let mut by_header = route("", false);
        by_header.name = Arc::from("header");
        by_header.matches.headers = vec![(
            HeaderName::from_static("x-team"),
            HeaderValue::from_static("a"),
        )];
        let routes = [
            Arc::new(by_host),
            Arc::new(by_header),
            Arc::new(route("", false)),
        ];
        let name = |request: &Parts| routes[choose(&routes, request).unwrap()].name.to_string();
        assert_eq!(name(&parts("/", Some("API.example:8080"))), "host");
        assert_eq!(name(&parts("http://api.example/", None)), "host");
        assert_eq!(name(&parts("/", Some("other"))), "r");
        let mut request = parts("/", Some("[::1]:80"));
        request
            .headers
            .append("x-team", HeaderValue::from_static("b"));
        assert_eq!(name(&request), "r");
        request
            .headers
            .append("x-team", HeaderValue::from_static("a"));
        assert_eq!(name(&request), "header");
    }

    #[test]
    fn a_target_keeps_every_byte_that_is_not_a_prefix() {
        for (prefix, strip, base, uri, expected) in [
            (
                "/o",
                true,
                "",
                "/o/v1//chat/%2e%2E/a%20b?x=%3A&y&&",
                "/v1//chat/%2e%2E/a%20b?x=%3A&y&&",
            ),
            ("/o", false, "", "/o/v1", "/o/v1"),
            ("/o", true, "", "/o", "/"),
            ("/o", true, "", "/o?", "/?"),
            ("/o", true, "/api", "/o?a=b", "/api/?a=b"),
            ("/o", true, "/api", "/o/v1/", "/api/v1/"),
            ("", true, "/api", "//v1/chat", "/api//v1/chat"),
            ("/o", true, "", "/o//v1", "/v1"),
            ("", false, "", "*", "*"),
            ("", false, "", "http://elsewhere/path?q", "/path?q"),
        ] {
            assert_eq!(rewritten(prefix, strip, base, uri), expected, "{uri}");
        }
    }
}
