//! The options of `annotate`.

use super::*;

/// Options of `annotate`.
#[derive(Debug, Clone, Args)]
pub struct AnnotateArgs {
    /// What happened, such as "deployed v2.1"
    pub text: String,
    /// When it happened: an instant, or a time back such as `10m` [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub at: Option<When>,
    /// A word to find it by; may be given several times
    #[arg(long = "tag", value_name = "TEXT")]
    pub tags: Vec<String>,
    /// The model that it is about [default: all, as below]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The upstream that it is about
    #[arg(long, value_name = "NAME")]
    pub upstream: Option<String>,
    /// The route that it is about
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// The workload that it is about
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    #[command(flatten)]
    pub admin: AdminArgs,
}
