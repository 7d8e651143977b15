//! Chooses ports for the sidecar that the pod does not use.
//!
//! A port may be in a probe, an argument, a shell command, a variable, a mesh's annotation or many other places. Avoiding
//! too many numbers costs nothing, so every number in the pod counts as a used port.

use super::PREFIX;
use super::annotations::Annotations;
use super::error::InjectError;
use super::settings::Settings;
use serde_json::Value;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// The ports of Istio's and similar proxies.
const MESH: RangeInclusive<u16> = 15_000..=15_099;
pub(super) const UNPRIVILEGED: u16 = 1024;
/// The widest range, such as `8000-8010`, whose ports count as used. A filter such as `1-65535` does not mean that
/// something listens.
const MAX_RANGE: u16 = 10_000;
/// The number of bytes before a port that are searched for a URL scheme.
const MAX_URL: usize = 300;
/// The tokengauge annotations that request ports for the sidecar or the engine.
const OWN: &[&str] = &["port", "engine-moves-to"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) traffic: u16,
    pub(super) metrics: u16,
    pub(super) admin: u16,
}

/// Chooses three ports that are not in `object`: the pod, or the object with its template.
pub(super) fn choose(
    object: &Value,
    annotations: &Annotations,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Ports, InjectError> {
    let mut used = UsedPorts::of(object);
    let moves_to = annotations
        .engine
        .as_ref()
        .and_then(|engine| engine.moves_to);
    if let Some(port) = moves_to {
        check_asked(object, "engine-moves-to", port)?;
        used.insert(port);
    }
    if let Some(port) = annotations.port {
        check_asked(object, "port", port)?;
        used.insert(port);
    }
    let defaults = [
        settings.traffic_port,
        settings.metrics_port,
        settings.admin_port,
    ];
    let mut free = |at: usize, what: &str| -> Result<u16, InjectError> {
        let wanted = defaults[at];
        let port = next_free(&used, wanted, &defaults).ok_or_else(|| {
            format!("no port is free for {what}, since the pod mentions all of them")
        })?;
        used.insert(port);
        if port != wanted {
            let place = find(object, |mention| mention.ports.contains(&wanted))
                .unwrap_or_else(|| format!("metadata.annotations[{PREFIX}port]"));
            warnings.push(format!(
                "{wanted} may be in use ({place}): tokengauge takes {port} for {what}"
            ));
        }
        Ok(port)
    };
    let traffic = match (&annotations.engine, annotations.port) {
        (Some(engine), Some(_)) if engine.moves_to.is_some() => {
            return Err(InjectError::Refused(format!(
                "{PREFIX}engine-moves-to makes the sidecar listen on the engine's port; remove {PREFIX}port"
            )));
        }
        (Some(engine), None) if engine.moves_to.is_some() => engine.port,
        (_, Some(port)) => port,
        (_, None) => free(0, "calls")?,
    };
    let metrics = free(1, "its metrics")?;
    let admin = free(2, "operators")?;
    Ok(Ports {
        traffic,
        metrics,
        admin,
    })
}

/// `wanted` or the next higher port that is unused, outside the mesh's range, and not one of our defaults.
fn next_free(used: &UsedPorts, wanted: u16, defaults: &[u16]) -> Option<u16> {
    let is_free = |port: &u16| {
        let reserved = MESH.contains(port) || defaults.contains(port);
        !used.contains(*port) && (*port == wanted || !reserved)
    };
    (wanted..=u16::MAX)
        .chain(UNPRIVILEGED..wanted)
        .find(is_free)
}

/// Refuses a port that an annotation requests and that the pod already uses. The port may also be in a client's URL, which
/// configures a program to call the sidecar.
fn check_asked(object: &Value, annotation: &str, port: u16) -> Result<(), InjectError> {
    let taken = |mention: &Mention| mention.ports.contains(&port) && !mention.is_client_url;
    match find(object, taken) {
        Some(place) => Err(InjectError::Refused(format!(
            "{PREFIX}{annotation}: {port} may be in use already ({place}); name another port"
        ))),
        None => Ok(()),
    }
}

struct UsedPorts(Box<[bool]>);

impl UsedPorts {
    /// All numbers from 1 to 65535 in `object`, except in tokengauge annotations.
    fn of(object: &Value) -> UsedPorts {
        // A difference array: each entry is the change in the number of ranges that cover a port. A string may have many wide
        // ranges.
        let mut steps = vec![0i32; (1 << 16) + 1];
        walk(object, &mut Vec::new(), &mut |_, mention| {
            steps[usize::from(*mention.ports.start())] += 1;
            steps[usize::from(*mention.ports.end()) + 1] -= 1;
            false
        });
        let mut ranges = 0;
        let covered = steps[..1 << 16].iter().map(|step| {
            ranges += step;
            ranges > 0
        });
        UsedPorts(covered.collect())
    }

    fn insert(&mut self, port: u16) {
        self.0[usize::from(port)] = true;
    }

    fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port)]
    }
}

struct Mention {
    ports: RangeInclusive<u16>,
    is_client_url: bool,
}

enum Step<'a> {
    Key(&'a str),
    /// An item of a list, with its name if it has one.
    Item(usize, Option<&'a str>),
}

/// The path of the first mention that satisfies `wanted`, such as `spec.containers[app].args[1]`. The value itself is not
/// shown, since it may be a secret.
fn find(object: &Value, wanted: impl Fn(&Mention) -> bool) -> Option<String> {
    let mut place = None;
    walk(object, &mut Vec::new(), &mut |path, mention| {
        let found = wanted(&mention);
        if found {
            place = Some(written(path));
        }
        found
    });
    place
}

fn written(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        let done = match step {
            Step::Key(key) if key.contains(['.', '/']) => write!(text, "[{key}]"),
            Step::Key(key) if text.is_empty() => write!(text, "{key}"),
            Step::Key(key) => write!(text, ".{key}"),
            Step::Item(_, Some(name)) => write!(text, "[{name}]"),
            Step::Item(at, None) => write!(text, "[{at}]"),
        };
        if done.is_err() || text.len() > 400 {
            break;
        }
    }
    text.chars().take(100).collect()
}

/// Calls `visit` for every mention until it returns `true`. Returns whether it did.
fn walk<'a>(
    value: &'a Value,
    path: &mut Vec<Step<'a>>,
    visit: &mut impl FnMut(&[Step<'a>], Mention) -> bool,
) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => {
            let port = number.as_f64().filter(|port| port.fract() == 0.0);
            let port = port.filter(|port| (1.0..=65_535.0).contains(port));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number between 1 and 65535"
            )]
            port.is_some_and(|port| visit(path, single(port as u16)))
        }
        Value::String(text) => mentions(text).any(|mention| visit(path, mention)),
        Value::Array(all) => all.iter().enumerate().any(|(at, item)| {
            path.push(Step::Item(at, item["name"].as_str()));
            let done = walk(item, path, visit);
            path.pop();
            done
        }),
        Value::Object(all) => all.iter().any(|(key, item)| {
            let own = key.strip_prefix(PREFIX);
            if own.is_some_and(|own| OWN.contains(&own)) {
                return false;
            }
            path.push(Step::Key(key));
            let done = mentions(key).any(|mention| visit(path, mention)) || walk(item, path, visit);
            path.pop();
            done
        }),
    }
}

fn single(port: u16) -> Mention {
    Mention {
        ports: port..=port,
        is_client_url: false,
    }
}

/// Numbers in `text` that may be port numbers, and ranges of them.
fn mentions(text: &str) -> impl Iterator<Item = Mention> {
    let mut at = 0;
    // The end of the previous number, and its value.
    let mut before: Option<(usize, u16)> = None;
    std::iter::from_fn(move || {
        let bytes = text.as_bytes();
        while at < bytes.len() {
            if !bytes[at].is_ascii_digit() {
                at += 1;
                continue;
            }
            let begin = at;
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            let Ok(port @ 1..) = text[begin..at].parse::<u16>() else {
                before = None;
                continue;
            };
            let from = before.filter(|(end, from)| {
                end + 1 == begin && bytes[*end] == b'-' && *from < port && port - from <= MAX_RANGE
            });
            before = Some((at, port));
            return Some(Mention {
                ports: from.map_or(port, |(_, from)| from)..=port,
                is_client_url: is_client_url(&text[..begin]),
            });
        }
        None
    })
}

/// Whether `head` ends with a client's URL up to its port. Options such as `--listen-client-urls=http://…` contain server
/// addresses.
fn is_client_url(head: &str) -> bool {
    let mut begin = head.len().saturating_sub(MAX_URL);
    while !head.is_char_boundary(begin) {
        begin += 1;
    }
    let head = &head[begin..];
    let Some((before, host)) = head
        .strip_suffix(':')
        .and_then(|head| head.rsplit_once("://"))
    else {
        return false;
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-[]:@".contains(c);
    let listens = before.contains("listen") || before.contains("bind");
    let known = before.ends_with("http") || before.ends_with("https");
    known && !listens && host.chars().all(is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(u16, u16, bool)> {
        let all = mentions(text);
        all.map(|one| (*one.ports.start(), *one.ports.end(), one.is_client_url))
            .collect()
    }

    #[test]
    fn numbers_of_a_text_that_can_be_ports() {
        assert_eq!(
            of("--port=8080 -p9,[::]:08081"),
            [(8080, 8080, false), (9, 9, false), (8081, 8081, false)]
        );
        assert_eq!(of("70000 0 é 65536 65535"), [(65535, 65535, false)]);
        assert_eq!(of("8000-8010"), [(8000, 8000, false), (8000, 8010, false)]);
        assert_eq!(of("1-65535").len(), 2);
        assert_eq!(of("1-65535")[1], (65535, 65535, false));
        assert_eq!(of("80 - 90")[1], (90, 90, false));
    }

    #[test]
    fn the_port_of_a_url_is_called_and_not_listened_on() {
        for (text, is_client) in [
            ("http://127.0.0.1:4000/v1", true),
            ("--url=https://[::1]:4000", true),
            ("127.0.0.1:4000", false),
            ("tcp://127.0.0.1:4000", false),
            ("--listen-url=http://127.0.0.1:4000", false),
            ("http://a/b:4000", false),
        ] {
            let all = of(text);
            let (.., found) = all.iter().find(|one| one.0 == 4000).expect(text);
            assert_eq!(*found, is_client, "{text}");
        }
    }
}
