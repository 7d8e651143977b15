//! `[attribution]`, from as written to as used.

use super::file;
use super::resolve::Problems;
use crate::attribution::{MAX_PLACES, Places, Rules};
use crate::wire::JsonPath;
use http::HeaderName;
use toml::Spanned;

/// Headers that hold secrets, which are recorded in no form.
const SECRET: &[&str] = &[
    "api-key",
    "authorization",
    "cookie",
    "ocp-apim-subscription-key",
    "proxy-authorization",
    "x-amz-security-token",
    "x-api-key",
    "x-goog-api-key",
];

pub(super) fn rules(
    hash_users: Option<bool>,
    written: file::Attribution,
    problems: &mut Problems<'_>,
) -> Rules {
    let mut places = |headers: &[_], paths: &[_]| Places {
        headers: each(headers, header, problems),
        paths: each(paths, JsonPath::parse, problems),
    };
    Rules {
        session: places(&written.session_headers, &written.session_paths),
        agent: places(&written.agent_headers, &written.agent_paths),
        user: places(&written.user_headers, &written.user_paths),
        hash_users: hash_users.unwrap_or(true),
    }
}

fn header(name: &str) -> Result<HeaderName, &'static str> {
    let name = name
        .parse::<HeaderName>()
        .map_err(|_| "is not a header name")?;
    match SECRET.contains(&name.as_str()) {
        true => Err("holds a secret, which is recorded in no form"),
        false => Ok(name),
    }
}

fn each<T>(
    written: &[Spanned<String>],
    parse: impl Fn(&str) -> Result<T, &'static str>,
    problems: &mut Problems<'_>,
) -> Vec<T> {
    if let Some(beyond) = written.get(MAX_PLACES) {
        problems.at(beyond, format!("there can be {MAX_PLACES} of these"));
    }
    let mut parsed = Vec::new();
    for text in written {
        match parse(text.get_ref()) {
            Ok(place) => parsed.push(place),
            Err(reason) => problems.at(text, format!("`{}` {reason}", text.get_ref())),
        }
    }
    parsed
}
