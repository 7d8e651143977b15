//! The variables that a process reads from its environment, and their values.

/// The variable with the token of the admin address: for `run`, and for commands that send it.
pub const ADMIN_TOKEN: &str = "TOKENGAUGE_ADMIN_TOKEN";

/// The variable with the name of agents that have only a user agent.
pub const AGENT: &str = "TOKENGAUGE_AGENT";

/// The variables with the team, the cost center and the tenant that pay for a call if nothing else names them.
pub const TEAM: &str = "TOKENGAUGE_TEAM";
/// See [`TEAM`].
pub const COST_CENTER: &str = "TOKENGAUGE_COST_CENTER";
/// See [`TEAM`].
pub const TENANT: &str = "TOKENGAUGE_TENANT";

/// The variable by which injection gives a sidecar its fallback configuration.
pub const FALLBACK_CONFIG: &str = "TOKENGAUGE_FALLBACK_CONFIG";
/// The variable by which injection says what becomes of calls while the fallback is in use.
pub const ON_REFUSED_CONFIG: &str = "TOKENGAUGE_ON_REFUSED_CONFIG";

/// What becomes of calls while a sidecar's configuration cannot be used.
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
    /// They are refused with 503 where the configuration may limit calls: it has a quota, a
    /// budget with `block`, or `requests_per_minute`. Else they are forwarded
    #[default]
    RefuseIfLimited,
    /// They are forwarded
    Pass,
    /// They are refused with 503
    Refuse,
}
