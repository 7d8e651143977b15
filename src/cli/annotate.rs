//! The options of `annotate`.

use super::*;

/// Options of `annotate`.
#[derive(Debug, Clone, Args)]
pub struct AnnotateArgs {
    /// What happened, such as "deployed v2.1"
    pub text: String,
    /// When it happened: an instant, or a duration before now such as `10m` [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub at: Option<When>,
    /// Tag for searches; may be repeated
    #[arg(long = "tag", value_name = "TEXT")]
    pub tags: Vec<String>,
    /// Model that the note is about [default: all models]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Upstream that the note is about [default: all upstreams]
    #[arg(long, value_name = "NAME")]
    pub upstream: Option<String>,
    /// Route that the note is about [default: all routes]
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// Workload that the note is about [default: all workloads]
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    #[command(flatten)]
    pub admin: AdminArgs,
}
