//! Containers that call models: sets their base URLs to the sidecar if none are set.

use super::annotations::{Annotations, BaseUrls};
use super::error::InjectError;
use super::lookalikes;
use super::pod::{List, Pod, is_foreign, list_of};
use super::settings::Settings;
use super::sidecar;
use super::{PREFIX, SIDECAR};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokengauge_config::Config;

pub(super) struct ReachableProviders {
    port: u16,
    native: bool,
    /// The path prefixes of the routes. `None` if they are unknown.
    prefixes: Option<Vec<String>>,
    taken: Vec<(String, String)>,
}

impl ReachableProviders {
    pub(super) fn everything() -> ReachableProviders {
        ReachableProviders {
            port: 0,
            native: false,
            prefixes: None,
            taken: Vec::new(),
        }
    }

    pub(super) fn by(text: &str, taken: Vec<(String, String)>) -> ReachableProviders {
        let config = Config::parse(text, "").ok();
        let prefixes = config.map(|config| {
            let routes = config.routes.iter();
            let plain = routes
                .filter(|route| route.matches.host.is_none() && route.matches.headers.is_empty());
            plain
                .map(|route| route.matches.path_prefix.clone())
                .collect()
        });
        ReachableProviders {
            prefixes,
            taken,
            ..ReachableProviders::everything()
        }
    }

    /// The providers at a port. Init containers reach only a `native` sidecar.
    pub(super) fn at(self, port: u16, native: bool) -> ReachableProviders {
        ReachableProviders {
            port,
            native,
            ..self
        }
    }

    fn knows(&self, path: &str) -> bool {
        self.prefixes.as_ref().is_none_or(|prefixes| {
            prefixes.iter().any(|prefix| {
                let rest = path.strip_prefix(prefix.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        })
    }
}

/// Groups of variables with the same meaning, by the path of their URL.
fn groups<'a>(
    settings: &'a Settings,
    annotations: &Annotations,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, path) in &settings.base_urls {
        let wanted = annotations.variables.as_ref();
        if wanted.is_none_or(|wanted| wanted.contains(name)) {
            groups.entry(path).or_default().push(name);
        }
    }
    groups
}

/// The base URLs in the pod that become upstreams, as provider names and URLs. Empty unless the pod requests this.
pub(super) fn taken_over(
    pod: &Pod,
    annotations: &Annotations,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, String)>, InjectError> {
    let mut taken: Vec<(String, String)> = Vec::new();
    if annotations.base_urls != BaseUrls::Replace {
        return Ok(taken);
    }
    let groups = groups(settings, annotations);
    for container in pod
        .containers(List::Main)
        .iter()
        .filter(|c| is_wanted(c, annotations))
    {
        for (path, names) in &groups {
            let Some(url) = names.iter().find_map(|name| literal(container, name)) else {
                continue;
            };
            if !url.starts_with("http://") && !url.starts_with("https://") || url.contains("$(") {
                warnings.push(format!(
                    "container {}: the base URL `{url}` is not a fixed http or https URL, so its calls bypass the sidecar; write the URL literally",
                    container["name"]
                ));
                continue;
            }
            let name = path.trim_start_matches('/');
            let name = name.split('/').next().unwrap_or(name).to_owned();
            if !taken.iter().any(|(known, _)| *known == name) {
                taken.push((name, url.to_owned()));
            }
        }
    }
    Ok(taken)
}

pub(super) fn point(
    pod: &mut Pod,
    annotations: &Annotations,
    settings: &Settings,
    reached: &ReachableProviders,
    warnings: &mut Vec<String>,
) -> Result<(), InjectError> {
    check(pod, annotations, settings)?;
    let groups = groups(settings, annotations);
    if annotations.base_urls == BaseUrls::None {
        return Ok(());
    }
    for list in [List::Init, List::Main] {
        // Init containers run before a sidecar that is not native.
        if list == List::Init && !reached.native {
            continue;
        }
        if pod.containers(list).is_empty() {
            continue;
        }
        let unreached = match list {
            List::Init => sidecar::position(pod.containers(list)),
            List::Main => 0,
        };
        for (at, container) in pod.containers_mut(list).iter_mut().enumerate() {
            if at < unreached && is_wanted(container, annotations) {
                warnings.push(format!(
                    "container {}: it runs before the mesh and the sidecar, so its calls bypass the sidecar",
                    container["name"]
                ));
            } else if is_wanted(container, annotations) {
                point_one(container, &groups, annotations, reached, warnings)?;
                warn_of_lookalikes(container, settings, reached.port, warnings);
            }
        }
    }
    Ok(())
}

fn check(pod: &Pod, annotations: &Annotations, settings: &Settings) -> Result<(), InjectError> {
    for name in annotations.containers.iter().flatten() {
        if !pod.has_container(name) {
            return Err(InjectError::Refused(format!(
                "{PREFIX}containers: there is no container `{name}`"
            )));
        }
    }
    for name in annotations.variables.iter().flatten() {
        if !settings.base_urls.contains_key(name) {
            return Err(InjectError::Refused(format!(
                "{PREFIX}variables: `{name}` has no path; add it to the injector's `base_urls`"
            )));
        }
    }
    Ok(())
}

fn is_wanted(container: &Value, annotations: &Annotations) -> bool {
    let name = container["name"].as_str().unwrap_or_default();
    match &annotations.containers {
        Some(wanted) => wanted.iter().any(|wanted| wanted == name),
        None => !is_foreign(container) && name != SIDECAR,
    }
}

fn point_one(
    container: &mut Value,
    groups: &BTreeMap<&str, Vec<&str>>,
    annotations: &Annotations,
    reached: &ReachableProviders,
    warnings: &mut Vec<String>,
) -> Result<(), InjectError> {
    let who = format!("container {}", container["name"]);
    if !matches!(container["env"], Value::Null | Value::Array(_)) {
        return Err(InjectError::Refused(format!("{who}: env is not a list")));
    }
    let from = container["envFrom"].as_array();
    let could =
        from.is_some_and(|from| !from.is_empty()) && annotations.base_urls == BaseUrls::Unset;
    let mut pointed = false;
    let mut unsure = false;
    for (path, names) in groups.iter().filter(|(path, _)| reached.knows(path)) {
        let url = format!("http://127.0.0.1:{}{path}", reached.port);
        let set: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| sets(container, name))
            .collect();
        if let Some(first) = set.first() {
            if replaced(container, &set, path, &url, reached) {
                pointed = true;
            } else {
                warnings.push(format!(
                    "{who} sets {first} itself, so its calls bypass the sidecar; set {PREFIX}base-urls to `replace` to \
                     redirect them"
                ));
            }
            continue;
        }
        if could {
            unsure = true;
            continue;
        }
        pointed |= set_all(container, names, &url);
    }
    if unsure {
        warnings.push(format!(
            "{who} has envFrom, which could set base URLs, so none is set; set {PREFIX}base-urls to `over-env-from` to set them"
        ));
    }
    if pointed && goes_by_a_proxy(container) {
        warnings.push(format!(
            "{who} has HTTP_PROXY without 127.0.0.1 in NO_PROXY, so its calls go to that proxy and bypass the sidecar"
        ));
    }
    Ok(())
}

/// Warns about unknown variables that contain a base URL. Calls to such a URL bypass the sidecar.
fn warn_of_lookalikes(
    container: &Value,
    settings: &Settings,
    port: u16,
    warnings: &mut Vec<String>,
) {
    let names = lookalikes::names(container, settings, port);
    if !names.is_empty() {
        warnings.push(format!(
            "container {} sets {}: calls to that address bypass the sidecar; add the variable to the injector's `base_urls`, or point it at the sidecar",
            container["name"],
            names.join(", ")
        ));
    }
}

fn set_all(container: &mut Value, names: &[&str], url: &str) -> bool {
    if container["env"].is_null() {
        container["env"] = json!([]);
    }
    let Some(env) = list_of(container, "env") else {
        return false;
    };
    env.extend(
        names
            .iter()
            .map(|name| json!({ "name": name, "value": url })),
    );
    !names.is_empty()
}

fn replaced(
    container: &mut Value,
    set: &[&str],
    path: &str,
    url: &str,
    reached: &ReachableProviders,
) -> bool {
    let provider = path.trim_start_matches('/');
    let provider = provider.split('/').next().unwrap_or(provider);
    let upstream = reached.taken.iter().find(|(name, _)| name == provider);
    let Some((_, upstream)) = upstream else {
        return false;
    };
    let same = |name: &&str| literal(container, name) == Some(upstream);
    if !set.iter().all(same) {
        return false;
    }
    let env = list_of(container, "env").into_iter().flatten();
    for variable in env {
        let named = |name: &&str| variable["name"] == **name;
        if set.iter().any(named) {
            variable["value"] = json!(url);
        }
    }
    true
}

fn variables(container: &Value) -> impl Iterator<Item = &Value> {
    container["env"].as_array().into_iter().flatten()
}

fn sets(container: &Value, name: &str) -> bool {
    variables(container).any(|variable| variable["name"] == name)
}

fn literal<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let mut named = variables(container).filter(|variable| variable["name"] == name);
    named.find_map(|variable| variable["value"].as_str())
}

fn goes_by_a_proxy(container: &Value) -> bool {
    let any = |names: [&str; 2]| names.into_iter().find_map(|name| literal(container, name));
    any(["HTTP_PROXY", "http_proxy"]).is_some_and(|proxy| !proxy.is_empty())
        && !any(["NO_PROXY", "no_proxy"]).is_some_and(|none| none.contains("127.0.0.1"))
}
