//! `tokengauge annotate`: adds a mark to a running proxy.

use super::api_client::{self, Proxy};
use crate::Error;
use crate::cli::AnnotateArgs;
use serde_json::json;
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_millis;
use tokengauge_process::output;
use tokengauge_store::query::Mark;

pub(super) fn annotate(args: &AnnotateArgs) -> Result<(), Error> {
    let proxy = Proxy::of(&args.admin)?;
    let mut body = json!({"text": args.text, "tags": args.tags});
    let time = args.at.map(|at| at.before(SystemTime::now()));
    let time = time.map(|at| rfc3339_millis(at).to_string());
    for (name, value) in [
        ("time", &time),
        ("model", &args.model),
        ("upstream", &args.upstream),
        ("route", &args.route),
        ("workload", &args.workload),
    ] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let added: Mark =
        api_client::runtime()?.block_on(proxy.post(tokengauge_admin::MARKS, &body))?;
    output::print(&format!("mark {} at {}\n", added.id, added.time))
}
