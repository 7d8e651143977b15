//! `[admin]` and the scraping of upstreams' metrics: from the file's tables to settings.

use super::common::server_tls;
use super::file;
use super::file::DEFAULT_ADMIN;
use super::file::DEFAULT_INTERVAL;
use super::problems::Problems;
use super::scalar::Url;
use super::spanned::Spanned;
use super::*;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use tokengauge_meter::settings::ThinkTags;

/// Minimum number of characters of a token, so that it cannot be guessed.
const TOKEN_LENGTH: usize = 16;

pub(super) fn admin(written: file::Admin, problems: &mut Problems<'_>) -> Admin {
    let enabled = written.enabled.unwrap_or(true);
    let address = enabled.then(|| written.listen.map_or(DEFAULT_ADMIN, |listen| listen.0));
    if let Some(metrics) = &written.metrics_listen
        && address.is_some_and(|address| address.port() != 0 && address == metrics.get_ref().0)
    {
        let reason =
            "is also `listen` of [admin], which already serves metrics; set another address";
        problems.at(metrics, reason);
    }
    Admin {
        address,
        metrics_address: written.metrics_listen.map(|listen| listen.into_inner().0),
        metrics_token: written.metrics_token,
        native_histograms_alone: !written.classic_histograms.unwrap_or(true),
        restricted: false,
        token: token(
            written.token,
            written.token_file,
            ("token", "token_file"),
            problems,
        ),
        hosts: hosts(written.hosts, problems),
        url: written
            .url
            .map(|Url(url)| format!("{}://{}{}", url.scheme, url.authority, url.base_path)),
        tls: written.tls.map(server_tls),
        own_use: written.own_use,
    }
}

fn hosts(written: Vec<Spanned<String>>, problems: &mut Problems<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for host in written {
        let name = host.get_ref().trim_end_matches('.').to_ascii_lowercase();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            problems.at(
                &host,
                format!(
                    "`{name}` is not a host name such as \"gauge.example.com\", without scheme, \
                     port and wildcard"
                ),
            );
        }
        hosts.push(name);
    }
    hosts
}

pub(super) fn facts(
    upstreams: &[Spanned<file::Upstream>],
    problems: &mut Problems<'_>,
) -> HashMap<Arc<str>, Arc<UpstreamFacts>> {
    let mut all = HashMap::new();
    for upstream in upstreams.iter().map(Spanned::get_ref) {
        let Some(facts) = &upstream.facts else {
            continue;
        };
        if let Some(name) = facts.get_ref().unusable() {
            let longest = UpstreamFacts::MAX_VALUE;
            let rule =
                format!("`{name}` must have 1 to {longest} bytes, without `;` and line breaks");
            problems.at(facts, rule);
        }
        if !facts.get_ref().is_empty() {
            let name = upstream.name.get_ref().as_str().into();
            all.insert(name, Arc::new(facts.get_ref().clone()));
        }
    }
    all
}

/// How to interpret `<think>` in responses, by upstream.
pub(super) fn think_tags(upstreams: &[Spanned<file::Upstream>]) -> HashMap<Arc<str>, ThinkTags> {
    let upstreams = upstreams.iter().map(Spanned::get_ref);
    let others = upstreams.filter(|upstream| upstream.think_tags != ThinkTags::Auto);
    others
        .map(|upstream| (upstream.name.get_ref().as_str().into(), upstream.think_tags))
        .collect()
}

/// Checks that no upstream is the admin or metrics address. Otherwise agents could reach it.
pub(super) fn check_separate(
    admin: &Admin,
    upstreams: &HashMap<String, Arc<Upstream>>,
    problems: &mut Problems<'_>,
) {
    let mut names: Vec<_> = upstreams.values().collect();
    names.sort_by(|one, other| one.name.cmp(&other.name));
    let addresses = admin.address.into_iter().chain(admin.metrics_address);
    for address in addresses.filter(|address| address.port() != 0) {
        for upstream in &names {
            if !upstream.endpoints.iter().any(|one| leads_to(one, address)) {
                continue;
            }
            let reason = format!(
                "`{}` is the admin or metrics address {address}, which agents must not reach; set another address",
                upstream.name
            );
            problems.nowhere("upstream", reason);
        }
    }
}

/// Whether an endpoint is the given address. Host names are not resolved.
fn leads_to(endpoint: &Endpoint, address: SocketAddr) -> bool {
    let host = endpoint.authority.host().trim_matches(['[', ']']);
    let ip = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse::<IpAddr>().ok(),
    };
    let secure = endpoint.scheme == Scheme::HTTPS;
    let port = endpoint.authority.port_u16();
    // The unspecified address stands for every address of this machine.
    let here = |ip: IpAddr| match address.ip() {
        own if own.is_unspecified() => ip.is_loopback() || ip.is_unspecified(),
        own => ip == own || (ip.is_unspecified() && own.is_loopback()),
    };
    port.unwrap_or(if secure { 443 } else { 80 }) == address.port() && ip.is_some_and(here)
}

pub(super) fn token(
    text: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    (text_name, file_name): (&str, &str),
    problems: &mut Problems<'_>,
) -> Option<Token> {
    if let (Some(text), Some(_)) = (&text, &file) {
        let reason = format!("give either `{text_name}` or `{file_name}`, not both");
        problems.at(text, reason);
    }
    if let Some(written) = text {
        if let Err(reason) = check_token(written.get_ref()) {
            problems.at(&written, reason.to_string());
        }
        return Some(Token::Text(Secret::new(written.get_ref())));
    }
    file.map(|file| Token::File(file.into_inner()))
}

/// Checks that `token` can be sent in a header and is hard to guess.
///
/// # Errors
/// What is wrong with it, without quoting it.
pub fn check_token(token: &str) -> Result<(), InvalidToken> {
    if token.chars().any(|c| !c.is_ascii_graphic()) {
        return Err(InvalidToken::NotPrintable);
    }
    if token.len() < TOKEN_LENGTH {
        return Err(InvalidToken::TooShort);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    #[error("a token must be printable ASCII without blanks; `openssl rand -hex 32` creates one")]
    NotPrintable,
    #[error(
        "a token must have at least {TOKEN_LENGTH} characters; `openssl rand -hex 32` creates one"
    )]
    TooShort,
}

/// Scrapes of upstreams' metrics. Their TLS settings are set later from the upstream.
pub(super) fn scrapes(
    upstreams: &[Spanned<file::Upstream>],
    problems: &mut Problems<'_>,
) -> Vec<Scrape> {
    let mut scrapes = Vec::new();
    for written in upstreams.iter().map(Spanned::get_ref) {
        let interval = written.metrics_interval.as_ref();
        let Some(url) = &written.metrics_url else {
            if let Some(interval) = interval {
                problems.at(interval, "needs a `metrics_url`");
            }
            continue;
        };
        let mut endpoint = url.0.clone();
        if endpoint.base_path.is_empty() {
            endpoint.base_path = "/metrics".to_owned();
        }
        scrapes.push(Scrape {
            upstream: written.name.get_ref().as_str().into(),
            endpoint,
            interval: interval.map_or(DEFAULT_INTERVAL, |span| span.get_ref().0),
            tls: ClientTls::default(),
        });
    }
    scrapes
}
