//! The operator's injection settings: a TOML file in which every key has a default.

use super::error::InjectError;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use tokengauge_config::environment::OnRefusedConfig;

/// Whether the sidecar is a native sidecar: an init container that keeps running. It starts before the pod's containers and
/// ends after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum NativeSidecar {
    /// The sidecar is native if the cluster has Kubernetes 1.29 or later.
    #[default]
    Auto,
    /// The sidecar is always native.
    #[serde(alias = "always")]
    #[value(alias = "always")]
    On,
    /// The sidecar is never native.
    #[serde(alias = "never")]
    #[value(alias = "never")]
    Off,
}

/// Variables from which SDKs and agents read a base URL, and the path after the sidecar's address.
const BASE_URLS: &[(&str, &str)] = &[
    ("OPENAI_BASE_URL", "/openai/v1"),
    ("OPENAI_API_BASE", "/openai/v1"),
    ("ANTHROPIC_BASE_URL", "/anthropic"),
    ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
    ("CO_API_URL", "/cohere"),
    ("GROQ_BASE_URL", "/groq"),
    ("TOGETHER_BASE_URL", "/together/v1"),
];

/// The first minor version of Kubernetes 1 with native sidecars enabled.
const NATIVE_SINCE: u32 = 29;
/// The first minor version with `sleep` in `preStop` enabled.
const SLEEP_SINCE: u32 = 30;

/// An address of the pod: `*` for all IPv4 and IPv6 addresses, or an IP address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Bind {
    #[default]
    All,
    Address(IpAddr),
}

impl Bind {
    pub(super) fn at(self, port: u16) -> String {
        match self {
            Bind::All => format!("*:{port}"),
            Bind::Address(address) => SocketAddr::new(address, port).to_string(),
        }
    }
}

impl TryFrom<String> for Bind {
    type Error = InjectError;

    fn try_from(text: String) -> Result<Bind, InjectError> {
        match text.as_str() {
            "*" => Ok(Bind::All),
            address => address.parse().map(Bind::Address).map_err(|_| {
                InjectError::Refused(format!(
                    "bind: `{address}` is neither `*` nor an IP address such as `0.0.0.0`"
                ))
            }),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretKey {
    pub name: String,
    pub key: String,
}

/// Pod labels that name who pays, in addition to `tokengauge.dev/team` and the like. The first label of a list that a pod
/// has is used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayerLabels {
    pub team: Vec<String>,
    pub cost_center: Vec<String>,
    pub tenant: Vec<String>,
}

impl Default for PayerLabels {
    fn default() -> Self {
        PayerLabels {
            team: vec!["team".to_owned()],
            cost_center: vec!["cost-center".to_owned()],
            tenant: vec!["tenant".to_owned()],
        }
    }
}

impl PayerLabels {
    fn check(&self) -> Result<(), InjectError> {
        let kinds = [&self.team, &self.cost_center, &self.tenant];
        let wrong = kinds.into_iter().flatten().find(|label| !is_label(label));
        wrong.map_or(Ok(()), |label| {
            Err(InjectError::Refused(format!(
                "payer_labels: `{label}` is not a label key such as `example.com/team`"
            )))
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub image: String,
    /// The image pull policy. Without one the cluster's default applies.
    pub image_pull_policy: Option<String>,
    pub native_sidecar: NativeSidecar,
    /// The cluster's version, such as `1.31`. Without one the newest version is assumed.
    pub kubernetes_version: Option<String>,
    /// Image pull secrets in the pod's namespace, which are added to the pod's own.
    pub image_pull_secrets: Vec<String>,
    /// The port to which the pod's agents connect, if it is free.
    pub traffic_port: u16,
    /// The port for metrics and health checks on the pod's address, if it is free.
    pub metrics_port: u16,
    /// The port to which operators connect within the pod, if it is free.
    pub admin_port: u16,
    /// The token of the admin address, from a Secret in the pod's namespace.
    pub admin_token_secret: Option<SecretKey>,
    /// The address to which clients outside the pod connect.
    pub bind: Bind,
    /// The ConfigMap with the configuration, in the pod's namespace. While it is missing, the built-in configuration is
    /// used.
    pub config_map: Option<String>,
    /// The file with the configuration that annotations change: the ConfigMap's content, if there is one.
    pub base_config: Option<std::path::PathBuf>,
    /// Variables that contain base URLs, and the paths of these URLs. A path `""` removes a variable.
    pub base_urls: BTreeMap<String, String>,
    pub on_refused_config: OnRefusedConfig,
    pub log_level: String,
    pub payer_labels: PayerLabels,
    pub env: Vec<Value>,
    pub resources: Value,
    /// The sidecar's security context in Kubernetes' format, instead of the restricted one.
    pub security_context: Option<Value>,
    /// Whether pods get the annotations `prometheus.io/scrape`, `port` and `path`.
    pub prometheus_annotations: bool,
    /// The seconds for which a sidecar that is not native waits before it drains.
    pub pre_stop_seconds: u32,
    #[serde(skip)]
    pub base: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let all = BASE_URLS.iter();
        Settings {
            image: format!("tokengauge:{}", env!("CARGO_PKG_VERSION")),
            image_pull_policy: None,
            native_sidecar: NativeSidecar::Auto,
            kubernetes_version: None,
            image_pull_secrets: Vec::new(),
            // Uncommon ports next to Istio's (15000 to 15090).
            traffic_port: 15480,
            metrics_port: 15464,
            admin_port: 15465,
            admin_token_secret: None,
            bind: Bind::All,
            config_map: None,
            base_config: None,
            base_urls: all
                .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()))
                .collect(),
            on_refused_config: OnRefusedConfig::default(),
            log_level: "info".to_owned(),
            payer_labels: PayerLabels::default(),
            env: Vec::new(),
            resources: serde_json::json!({
                "requests": { "cpu": "20m", "memory": "32Mi" },
                "limits": { "memory": "384Mi" },
            }),
            security_context: None,
            prometheus_annotations: false,
            pre_stop_seconds: 5,
            base: None,
        }
    }
}

impl Settings {
    /// Reads a settings file, and the configuration that it names.
    ///
    /// # Errors
    /// Returns what is wrong, with the file's name.
    pub fn load(path: &Path) -> Result<Settings, InjectError> {
        let failed = |path: &Path, error| {
            InjectError::text(format!("{}: cannot be read", path.display()), error)
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
        let mut settings =
            Settings::parse(&text).map_err(|error| error.of(path.display().to_string()))?;
        if let Some(base) = &settings.base_config {
            let text = std::fs::read_to_string(base).map_err(|error| failed(base, error))?;
            let origin = base.display().to_string();
            let config = tokengauge_config::Config::parse(&text, &origin)
                .map_err(|invalid| InjectError::Refused(invalid.to_string()))?;
            if config.admin.metrics_token && settings.admin_token_secret.is_none() {
                return Err(InjectError::Refused(format!(
                    "{}: {origin} sets `metrics_token`, but sidecars have no token; set `admin_token_secret`",
                    path.display()
                )));
            }
            settings.base = Some(text);
        }
        Ok(settings)
    }

    /// Reads settings from a TOML string.
    ///
    /// # Errors
    /// Returns what is wrong, with the line.
    pub fn parse(text: &str) -> Result<Settings, InjectError> {
        let mut settings: Settings = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            });
            let line = line
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            format!("{line}{}", error.message().trim())
        })?;
        let own = std::mem::take(&mut settings.base_urls);
        let mut all = Settings::default().base_urls;
        all.extend(own);
        all.retain(|_, path| !path.is_empty());
        settings.base_urls = all;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), InjectError> {
        if let Some(version) = &self.kubernetes_version
            && minor(version).is_none()
        {
            return Err(InjectError::Refused(format!(
                "kubernetes_version `{version}` is not a version such as `1.31`"
            )));
        }
        let mut ports = [self.traffic_port, self.metrics_port, self.admin_port];
        ports.sort_unstable();
        if ports[0] == 0 || ports[0] == ports[1] || ports[1] == ports[2] {
            return Err(InjectError::Refused(
                "traffic_port, metrics_port and admin_port must be three different ports above 0"
                    .to_owned(),
            ));
        }
        for name in &self.image_pull_secrets {
            if !is_name(name) {
                return Err(InjectError::Refused(format!(
                    "image_pull_secrets: `{name}` cannot be the name of a Secret: use at most 253 lower-case \
                     letters, digits, `-` and `.`"
                )));
            }
        }
        if let Some(secret) = &self.admin_token_secret
            && (!is_name(&secret.name) || secret.key.is_empty())
        {
            return Err(InjectError::Refused(
                "admin_token_secret must have the `name` of a Secret and a `key` in it".to_owned(),
            ));
        }
        self.payer_labels.check()?;
        for (name, path) in &self.base_urls {
            if !path.starts_with('/') || path.ends_with('/') {
                return Err(InjectError::Refused(format!(
                    "base_urls.{name}: `{path}` must be a path such as `/openai/v1`"
                )));
            }
        }
        if !self.resources.is_object() {
            return Err(InjectError::Refused(
                "resources must be a table of `requests` and `limits`".to_owned(),
            ));
        }
        super::resources::check(&self.resources)?;
        if self.image.trim().is_empty() {
            return Err(InjectError::Refused(
                "image is empty; name an image".to_owned(),
            ));
        }
        Ok(())
    }

    pub fn native(&self) -> bool {
        match self.native_sidecar {
            NativeSidecar::Auto => self.is_since(NATIVE_SINCE),
            NativeSidecar::On => true,
            NativeSidecar::Off => false,
        }
    }

    pub(super) fn sleeps(&self) -> bool {
        self.is_since(SLEEP_SINCE)
    }

    fn is_since(&self, wanted: u32) -> bool {
        let version = self.kubernetes_version.as_deref();
        version.and_then(minor).is_none_or(|minor| minor >= wanted)
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    (1..=253).contains(&name.len()) && name.chars().all(allowed)
}

/// Whether a string is a valid label key: a name, optionally after a domain and a slash.
fn is_label(key: &str) -> bool {
    let (domain, name) = key.rsplit_once('/').unwrap_or(("label", key));
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = |c: char| c.is_ascii_alphanumeric();
    is_name(domain)
        && (1..=63).contains(&name.len())
        && name.chars().all(inner)
        && name.starts_with(end)
        && name.ends_with(end)
}

/// The minor version of `1.31`, `v1.31.2` or `1.31+`.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim().trim_start_matches('v').split('.');
    (parts.next() == Some("1")).then_some(())?;
    let minor = parts.next()?;
    minor
        .trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_sidecars_are_for_clusters_that_have_them() {
        let of = |text: &str| Settings::parse(text).expect(text).native();
        assert!(of("") && of("kubernetes_version = \"v1.29.3\""));
        assert!(!of("kubernetes_version = \"1.28+\""));
        assert!(of(
            "kubernetes_version = \"1.28\"\nnative_sidecar = \"always\""
        ));
        assert!(!of("native_sidecar = \"off\""));
        assert!(Settings::parse("kubernetes_version = \"two\"").is_err());
    }

    #[test]
    fn base_urls_are_added_to_the_known_ones_and_can_be_taken_out() {
        let text = "[base_urls]\nMY_LLM = \"/mine\"\nCO_API_URL = \"\"";
        let urls = Settings::parse(text).expect("settings").base_urls;
        assert_eq!(urls["MY_LLM"], "/mine");
        assert!(urls.contains_key("OPENAI_BASE_URL") && !urls.contains_key("CO_API_URL"));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let wrong = |text: &str| Settings::parse(text).expect_err(text).to_string();
        assert!(wrong("image = \"a\"\nimages = 1").contains("line 2: unknown field `images`"));
        assert!(wrong("traffic_port = 15464").contains("three different ports"));
        assert!(wrong("bind = \"all\"").contains("neither `*` nor an IP address"));
        assert!(wrong("[base_urls]\nA = \"openai\"").contains("base_urls.A"));
        assert!(wrong("resources = 5").contains("resources"));
        for label in ["", "a b", "-team", "it's", "a/b/team", "x/"] {
            let text = format!("[payer_labels]\nteam = [\"{label}\"]");
            assert!(wrong(&text).contains("not a label key"), "{label}");
        }
        assert!(wrong("[payer_labels]\nteams = []").contains("unknown field `teams`"));
    }
}
