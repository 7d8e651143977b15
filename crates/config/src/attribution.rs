//! `[attribution]` and `[[agent]]`: from the file's tables to settings.

use super::file;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use http::HeaderName;
use tokengauge_accounting::attribution::{
    AgentNameRule, NameSources, PayerRules, Rules, check_key,
};
use tokengauge_wire::JsonPath;

/// Headers that hold secrets. They must not be recorded, not even as a hash.
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
    (given, payers): (Vec<AgentNameRule>, PayerRules),
    problems: &mut Problems<'_>,
) -> Rules {
    let mut places = |headers: &[_], paths: &[_]| NameSources {
        headers: each(headers, header, problems),
        paths: each(paths, JsonPath::parse, problems),
    };
    Rules {
        session: places(&written.session_headers, &written.session_paths),
        agent: places(&written.agent_headers, &written.agent_paths),
        user: places(&written.user_headers, &written.user_paths),
        hash_users: hash_users.unwrap_or(true),
        guess_sessions: written.guess_sessions,
        agent_names: given,
        default_agent: None,
        payers,
    }
}

/// Resolves the names of `[[agent]]`. `ports` are the ports of the listeners, if the file sets them.
pub(super) fn given(
    written: Vec<Spanned<file::Agent>>,
    ports: Option<&[u16]>,
    problems: &mut Problems<'_>,
) -> Vec<AgentNameRule> {
    let named = written.into_iter().map(|spanned| {
        let span = spanned.span();
        let agent = spanned.into_inner();
        if agent.port.is_none() && agent.path.is_none() && agent.key.is_none() {
            let reason = "needs `port`, `path` or `key`";
            problems.at(&Spanned::new(span, ()), reason);
        }
        check_label(&agent.name, problems);
        check_place(agent.port.as_ref(), agent.path.as_ref(), ports, problems);
        if let Some(key) = &agent.key
            && let Err(reason) = check_key(key.get_ref())
        {
            problems.at(key, reason);
        }
        AgentNameRule {
            name: agent.name.into_inner().into(),
            port: agent.port.map(Spanned::into_inner),
            path: agent.path.map(Spanned::into_inner),
            key: agent.key.map(Spanned::into_inner),
        }
    });
    named.collect()
}

/// Checks the listener port and the path prefix that select calls. The port must be one of `ports`, if the file sets
/// them.
pub(super) fn check_place(
    port: Option<&Spanned<u16>>,
    path: Option<&Spanned<String>>,
    ports: Option<&[u16]>,
    problems: &mut Problems<'_>,
) {
    if let Some(port) = port {
        let listened = |ports: &[u16]| ports.contains(port.get_ref()) || ports.contains(&0);
        if !ports.is_none_or(listened) {
            problems.at(port, format!("`listen` has no port {}", port.get_ref()));
        }
    }
    if let Some(path) = path
        && (!path.get_ref().starts_with('/') || path.get_ref().contains(['?', '#']))
    {
        problems.at(path, "must be a path that begins with `/` and has no query");
    }
}

pub(super) fn header(name: &str) -> Result<HeaderName, &'static str> {
    let name = name
        .parse::<HeaderName>()
        .map_err(|_| "is not a header name")?;
    if SECRET.contains(&name.as_str()) {
        Err("holds a secret, which must not be recorded")
    } else {
        Ok(name)
    }
}

pub(super) fn each<T>(
    written: &[Spanned<String>],
    parse: impl Fn(&str) -> Result<T, &'static str>,
    problems: &mut Problems<'_>,
) -> Vec<T> {
    let mut parsed = Vec::new();
    for text in written {
        match parse(text.get_ref()) {
            Ok(place) => parsed.push(place),
            Err(reason) => problems.at(text, format!("`{}` {reason}", text.get_ref())),
        }
    }
    parsed
}
