//! The operator's settings of injection: a TOML file in which every key has a default.

use super::error::InjectError;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use tokengauge_config::environment::OnRefusedConfig;

/// Whether the sidecar is an init container that goes on running, so that it starts
/// before the pod's containers and ends after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum NativeSidecar {
    /// From Kubernetes 1.29 on.
    #[default]
    Auto,
    /// Always.
    #[serde(alias = "always")]
    #[value(alias = "always")]
    On,
    /// Never.
    #[serde(alias = "never")]
    #[value(alias = "never")]
    Off,
}

/// Variables that SDKs and agents read a base URL from, and the path after the sidecar's
/// address.
const BASE_URLS: &[(&str, &str)] = &[
    ("OPENAI_BASE_URL", "/openai/v1"),
    ("OPENAI_API_BASE", "/openai/v1"),
    ("ANTHROPIC_BASE_URL", "/anthropic"),
    ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
    ("CO_API_URL", "/cohere"),
    ("GROQ_BASE_URL", "/groq"),
    ("TOGETHER_BASE_URL", "/together/v1"),
];

/// The first minor version of Kubernetes 1 that has native sidecars switched on.
const NATIVE_SINCE: u32 = 29;
/// The first with `sleep` in `preStop` switched on.
const SLEEP_SINCE: u32 = 30;

/// An address of the pod: `*` for all of them, of both families, or an IP address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Bind {
    #[default]
    All,
    /// This one, such as `0.0.0.0`.
    Address(IpAddr),
}

impl Bind {
    /// The text for `--listen`.
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

/// Labels of pods that name who pays, after `tokengauge.dev/team` and so on: of each list the first that a pod has.
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
    /// Checks that Kubernetes takes each for the key of a label.
    fn check(&self) -> Result<(), InjectError> {
        let kinds = [&self.team, &self.cost_center, &self.tenant];
        let wrong = kinds.into_iter().flatten().find(|label| !is_label(label));
        wrong.map_or(Ok(()), |label| {
            Err(InjectError::Refused(format!(
                "payer_labels: `{label}` is no key of a label such as `example.com/team`"
            )))
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub image: String,
    /// The pull policy; the cluster's default where there is none.
    pub image_pull_policy: Option<String>,
    pub native_sidecar: NativeSidecar,
    /// The cluster's version, such as `1.31`; the newest where there is none.
    pub kubernetes_version: Option<String>,
    /// Secrets of the pod's namespace by which its images are pulled, added to the pod's own.
    pub image_pull_secrets: Vec<String>,
    /// Where agents of the pod connect, where it is free.
    pub traffic_port: u16,
    /// Where metrics and health are on the pod's address, where it is free.
    pub metrics_port: u16,
    /// Where operators connect within the pod, where it is free.
    pub admin_port: u16,
    /// The token of the operators' address, from a Secret of the pod's namespace.
    pub admin_token_secret: Option<SecretKey>,
    /// The address that others than the pod itself connect to.
    pub bind: Bind,
    /// The ConfigMap with the configuration, in the pod's namespace. Where it is missing,
    /// the built-in configuration is used until it is there.
    pub config_map: Option<String>,
    /// The file with the configuration that annotations change; the ConfigMap's, if any.
    pub base_config: Option<std::path::PathBuf>,
    /// Variables with base URLs, and the paths of these; `""` removes a variable.
    pub base_urls: BTreeMap<String, String>,
    /// What becomes of calls while the sidecar's configuration cannot be used.
    pub on_refused_config: OnRefusedConfig,
    pub log_level: String,
    /// Labels of pods that name who pays for their calls.
    pub payer_labels: PayerLabels,
    /// Additional variables of the sidecar, in Kubernetes' format.
    pub env: Vec<Value>,
    /// Its requests and limits, in Kubernetes' format.
    pub resources: Value,
    /// Its security context in Kubernetes' format, instead of the restricted one.
    pub security_context: Option<Value>,
    /// Whether pods get `prometheus.io/scrape`, `port` and `path`.
    pub prometheus_annotations: bool,
    /// How long a sidecar that is not native runs on before it drains.
    pub pre_stop_seconds: u32,
    /// The content of `base_config`.
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
            // Uncommon ones, next to those of Istio (15000 to 15090).
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
    /// Reads a file, and the configuration that it names.
    ///
    /// # Errors
    /// What is wrong, with the file's name.
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
                    "{}: {origin} has `metrics_token`, and sidecars have no token: set `admin_token_secret`",
                    path.display()
                )));
            }
            settings.base = Some(text);
        }
        Ok(settings)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, with the line.
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
                "kubernetes_version `{version}` is no version such as `1.31`"
            )));
        }
        let mut ports = [self.traffic_port, self.metrics_port, self.admin_port];
        ports.sort_unstable();
        if ports[0] == 0 || ports[0] == ports[1] || ports[1] == ports[2] {
            return Err(InjectError::Refused(
                "traffic_port, metrics_port and admin_port must be three ports above 0".to_owned(),
            ));
        }
        for name in &self.image_pull_secrets {
            if !is_name(name) {
                return Err(InjectError::Refused(format!(
                    "image_pull_secrets: `{name}` is no name of a Secret"
                )));
            }
        }
        if let Some(secret) = &self.admin_token_secret
            && (!is_name(&secret.name) || secret.key.is_empty())
        {
            return Err(InjectError::Refused(
                "admin_token_secret is the `name` of a Secret and a `key` in it".to_owned(),
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
                "resources is a table of `requests` and `limits`".to_owned(),
            ));
        }
        super::resources::check(&self.resources)?;
        if self.image.trim().is_empty() {
            return Err(InjectError::Refused("image names none".to_owned()));
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

    /// Whether the cluster has the `sleep` action for `preStop`.
    pub(super) fn sleeps(&self) -> bool {
        self.is_since(SLEEP_SINCE)
    }

    fn is_since(&self, wanted: u32) -> bool {
        let version = self.kubernetes_version.as_deref();
        version.and_then(minor).is_none_or(|minor| minor >= wanted)
    }
}

/// Whether an object may have this name (RFC 1123).
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    (1..=253).contains(&name.len()) && name.chars().all(allowed)
}

/// Whether a label may have this key: a name, and before a slash the domain that it is of.
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
        assert!(wrong("traffic_port = 15464").contains("three ports"));
        assert!(wrong("bind = \"all\"").contains("neither `*` nor an IP address"));
        assert!(wrong("[base_urls]\nA = \"openai\"").contains("base_urls.A"));
        assert!(wrong("resources = 5").contains("resources"));
        for label in ["", "a b", "-team", "it's", "a/b/team", "x/"] {
            let text = format!("[payer_labels]\nteam = [\"{label}\"]");
            assert!(wrong(&text).contains("no key of a label"), "{label}");
        }
        assert!(wrong("[payer_labels]\nteams = []").contains("unknown field `teams`"));
    }
}
