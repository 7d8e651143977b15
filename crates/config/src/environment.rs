//! Names and values of environment variables.

/// The token of the admin address, for `run` and for commands that call it.
pub const ADMIN_TOKEN: &str = "TOKENGAUGE_ADMIN_TOKEN";

/// The key of the hashes of prompt blocks.
pub const BLOCK_KEY: &str = "TOKENGAUGE_BLOCK_KEY";

/// The name of agents that send only a user agent.
pub const AGENT: &str = "TOKENGAUGE_AGENT";

/// Team that pays for a call if nothing else names one.
pub const TEAM: &str = "TOKENGAUGE_TEAM";
/// Cost center that pays for a call if nothing else names one.
pub const COST_CENTER: &str = "TOKENGAUGE_COST_CENTER";
/// Tenant that pays for a call if nothing else names one.
pub const TENANT: &str = "TOKENGAUGE_TENANT";

/// The fallback configuration that injection gives to a sidecar.
pub const FALLBACK_CONFIG: &str = "TOKENGAUGE_FALLBACK_CONFIG";
/// Sets an [`OnRefusedConfig`] for a sidecar. Set by injection.
pub const ON_REFUSED_CONFIG: &str = "TOKENGAUGE_ON_REFUSED_CONFIG";

/// How calls are handled while a sidecar's configuration cannot be used.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnRefusedConfig {
    /// Refuse calls with 503 if the configuration may limit them: it has a quota, a budget with `block`, or
    /// `requests_per_minute`. Otherwise forward them
    #[default]
    RefuseIfLimited,
    /// Forward calls
    Pass,
    /// Refuse calls with 503
    Refuse,
}
