//! The annotations of a pod. Unknown ones are refused.

use super::PREFIX;
use super::error::InjectError;
use super::pod::Pod;
use super::resources;
use clap::ValueEnum;
use tokengauge_config::environment::OnRefusedConfig;

const KNOWN: &[&str] = &[
    "inject",
    "config",
    ON_REFUSED_CONFIG,
    "upstream",
    "port",
    "workload",
    "containers",
    "base-urls",
    "variables",
    "slo",
    "engine-port",
    "engine-moves-to",
    "engine-metrics",
    CONFIG,
    super::WARNINGS,
];

/// The annotation that contains the configuration, which the pod mounts as a file.
pub(super) const CONFIG: &str = "proxy-config";
const ON_REFUSED_CONFIG: &str = "on-refused-config";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BaseUrls {
    /// Containers without a base URL, and without an `envFrom` that could set one.
    #[default]
    Unset,
    /// Containers without a base URL, even if they have an `envFrom`.
    OverEnvFrom,
    /// All containers. A URL that is already set becomes the upstream.
    Replace,
    None,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slo {
    Preset(String),
    /// A name, and the keys of a `[[slo]]` table.
    Table(String, toml::Table),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Engine {
    pub(super) port: u16,
    pub(super) moves_to: Option<u16>,
    pub(super) metrics: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Annotations {
    pub(super) config: Option<String>,
    pub(super) on_refused_config: Option<OnRefusedConfig>,
    pub(super) upstreams: Vec<(String, String)>,
    pub(super) port: Option<u16>,
    pub(super) workload: Option<String>,
    pub(super) slos: Vec<Slo>,
    pub(super) containers: Option<Vec<String>>,
    pub(super) base_urls: BaseUrls,
    pub(super) variables: Option<Vec<String>>,
    pub(super) engine: Option<Engine>,
    pub(super) resources: resources::Overrides,
}

/// Whether the pod opts in or out. `None` if it does neither.
pub(super) fn wants_sidecar(pod: &Pod) -> Result<Option<bool>, InjectError> {
    match pod.annotation("inject") {
        None => Ok(None),
        Some("true" | "enabled") => Ok(Some(true)),
        Some("false" | "disabled") => Ok(Some(false)),
        Some(other) => Err(wrong("inject", other, "must be `true` or `false`")),
    }
}

impl Annotations {
    pub(super) fn of(pod: &Pod) -> Result<Annotations, InjectError> {
        for name in pod.annotations() {
            if !known().any(|known| known == name) && !name.starts_with("slo.") {
                return Err(InjectError::Refused(format!(
                    "the annotation {PREFIX}{name} does not exist; the annotations are {}",
                    known().collect::<Vec<_>>().join(", ")
                )));
            }
        }
        Ok(Annotations {
            config: text(pod, "config"),
            on_refused_config: on_refused_config(pod)?,
            upstreams: upstreams(pod)?,
            port: port(pod, "port")?,
            workload: text(pod, "workload"),
            slos: slos(pod)?,
            containers: list(pod, "containers"),
            base_urls: base_urls(pod)?,
            variables: list(pod, "variables"),
            engine: engine(pod)?,
            resources: resources::overrides(pod)?,
        })
    }

    pub(super) fn composes(&self) -> bool {
        !self.upstreams.is_empty() || self.workload.is_some() || !self.slos.is_empty()
    }
}

fn known() -> impl Iterator<Item = &'static str> {
    let resources = resources::ANNOTATIONS.iter().map(|(name, ..)| *name);
    KNOWN.iter().copied().chain(resources)
}

fn wrong(name: &str, value: &str, reason: impl std::fmt::Display) -> InjectError {
    InjectError::Refused(format!("{PREFIX}{name}: `{value}` {reason}"))
}

fn text(pod: &Pod, name: &str) -> Option<String> {
    let text = pod.annotation(name)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn list(pod: &Pod, name: &str) -> Option<Vec<String>> {
    let parts = text(pod, name)?;
    let parts = parts.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    Some(parts.map(str::to_owned).collect())
}

fn port(pod: &Pod, name: &str) -> Result<Option<u16>, InjectError> {
    let Some(text) = text(pod, name) else {
        return Ok(None);
    };
    match text.parse::<u16>() {
        Ok(port @ 1..) => Ok(Some(port)),
        _ => Err(wrong(name, &text, "is not a port from 1 to 65535")),
    }
}

/// Parses `URL`, which becomes OpenAI's, or a list of `NAME=URL`.
fn upstreams(pod: &Pod) -> Result<Vec<(String, String)>, InjectError> {
    let all = list(pod, "upstream").unwrap_or_default().into_iter();
    all.map(|one| {
        let bare = one.starts_with("http://") || one.starts_with("https://");
        match one.split_once('=') {
            _ if bare => Ok(("openai".to_owned(), one)),
            Some((name, url)) => Ok((name.trim().to_owned(), url.trim().to_owned())),
            None => Err(wrong(
                "upstream",
                &one,
                "is neither a URL nor a name and a URL such as `openai=http://engine:8000`",
            )),
        }
    })
    .collect()
}

fn slos(pod: &Pod) -> Result<Vec<Slo>, InjectError> {
    let presets = list(pod, "slo").unwrap_or_default();
    let mut all: Vec<Slo> = presets.into_iter().map(Slo::Preset).collect();
    for name in pod.annotations() {
        let Some(slo) = name.strip_prefix("slo.").filter(|slo| !slo.is_empty()) else {
            continue;
        };
        let body = pod.annotation(name).unwrap_or_default();
        let table = table(body).map_err(|error| wrong(name, body, error))?;
        all.push(Slo::Table(slo.to_owned(), table));
    }
    Ok(all)
}

fn table(body: &str) -> Result<toml::Table, InjectError> {
    let explain = "is not the content of a [[slo]] table such as `ttft.at_most = \"500ms\", objective = 0.99`";
    let text = format!("slo = {{ {} }}", body.replace(['\n', '\r'], " "));
    let parsed: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        InjectError::text(explain, error.message().trim().to_owned())
    })?;
    // An annotation with a closing brace could add other tables.
    match (parsed.len(), parsed.get("slo")) {
        (1, Some(toml::Value::Table(table))) => Ok(table.clone()),
        _ => Err(explain.into()),
    }
}

fn on_refused_config(pod: &Pod) -> Result<Option<OnRefusedConfig>, InjectError> {
    let Some(text) = text(pod, ON_REFUSED_CONFIG) else {
        return Ok(None);
    };
    let known = OnRefusedConfig::from_str(&text, false);
    known.map(Some).map_err(|_| {
        wrong(
            ON_REFUSED_CONFIG,
            &text,
            "must be `refuse-if-limited`, `pass` or `refuse`",
        )
    })
}

fn base_urls(pod: &Pod) -> Result<BaseUrls, InjectError> {
    match text(pod, "base-urls").as_deref() {
        None | Some("unset") => Ok(BaseUrls::Unset),
        Some("over-env-from") => Ok(BaseUrls::OverEnvFrom),
        Some("replace") => Ok(BaseUrls::Replace),
        Some("none") => Ok(BaseUrls::None),
        Some(other) => Err(wrong(
            "base-urls",
            other,
            "must be `unset`, `over-env-from`, `replace` or `none`",
        )),
    }
}

fn engine(pod: &Pod) -> Result<Option<Engine>, InjectError> {
    let moves_to = port(pod, "engine-moves-to")?;
    let metrics = text(pod, "engine-metrics").unwrap_or_else(|| "/metrics".to_owned());
    let Some(port) = port(pod, "engine-port")? else {
        return match moves_to {
            Some(_) => Err(InjectError::Refused(format!(
                "{PREFIX}engine-moves-to needs {PREFIX}engine-port"
            ))),
            None => Ok(None),
        };
    };
    if moves_to == Some(port) {
        return Err(InjectError::Refused(format!(
            "{PREFIX}engine-moves-to is the engine's present port; name another port"
        )));
    }
    if metrics != "none" && !metrics.starts_with('/') {
        return Err(wrong(
            "engine-metrics",
            &metrics,
            "is neither a path such as `/metrics` nor `none`",
        ));
    }
    Ok(Some(Engine {
        port,
        moves_to,
        metrics: (metrics != "none").then_some(metrics),
    }))
}
