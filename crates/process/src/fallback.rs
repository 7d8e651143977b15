//! The fallback configuration of an injected sidecar whose own configuration cannot be used at the start. It has the
//! upstreams and routes from the injection, so that the application keeps working. Calls are still refused if the
//! unusable configuration may have limits, unless the injection allows them.

use crate::ProcessError;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use tokengauge_admin::Running;
use tokengauge_config::environment::OnRefusedConfig;
use tokengauge_config::{Config, may_guard_metrics, may_have_token, may_limit};

/// A configuration that is used until the one in `file` can be used.
#[derive(Clone)]
pub struct Fallback {
    config: Config,
    policy: OnRefusedConfig,
    file: PathBuf,
}

/// The content of the refused configuration file.
enum Refused {
    Missing,
    Unreadable,
    Text(String),
}

impl Fallback {
    pub fn new(config: Config, policy: OnRefusedConfig, file: PathBuf) -> Fallback {
        Fallback {
            config,
            policy,
            file,
        }
    }

    /// Builds the fallback's configuration, which depends on the file's current content. Blocks on the disk.
    pub fn config(&self) -> Config {
        let refused = self.refused();
        let mut config = self.config.clone();
        config.refusal = self.refuses(&refused).then(|| self.refusal());
        let admin = &mut config.admin;
        admin.restricted = admin.token.is_none() && refused.may(may_have_token);
        admin.metrics_token = admin.token.is_some() && refused.may(may_guard_metrics);
        config
    }

    fn refuses(&self, refused: &Refused) -> bool {
        match self.policy {
            OnRefusedConfig::Pass => false,
            OnRefusedConfig::Refuse => true,
            OnRefusedConfig::RefuseIfLimited => refused.may(may_limit),
        }
    }

    fn refusal(&self) -> Arc<str> {
        let limits = match self.policy {
            OnRefusedConfig::Refuse => "",
            _ => ", which may limit calls,",
        };
        format!(
            "tokengauge, which this call goes through, cannot use its configuration {}{limits} and forwards \
             no call until it can: a fault of the configuration, not of the caller. Its log and \
             `tokengauge check` name the line; the pod's annotation tokengauge.dev/on-refused-config: \"pass\" \
             lets calls pass meanwhile",
            self.file.display()
        )
        .into()
    }

    fn refused(&self) -> Refused {
        match std::fs::read(&self.file) {
            // A file in UTF-16, with or without a byte order mark, is unreadable.
            Ok(bytes) if bytes.contains(&0) => Refused::Unreadable,
            Ok(bytes) => String::from_utf8(bytes).map_or(Refused::Unreadable, Refused::Text),
            Err(error) if error.kind() == ErrorKind::NotFound => Refused::Missing,
            Err(_) => Refused::Unreadable,
        }
    }

    /// Logs why the fallback is in use and whether calls are forwarded or refused.
    pub fn log(&self, reason: &str, running: Running) {
        let reason = reason.replace('\n', "; ");
        let calls = match running {
            Running::Refusing => {
                "calls are refused, because the configuration may limit them or the injection requires it"
            }
            _ => "calls are forwarded and measured with defaults",
        };
        tracing::error!(
            reason,
            calls,
            "the configuration was refused at the start; the fallback of the injection is in use. \
             Fix the configuration: it is reloaded when it changes"
        );
    }
}

impl Refused {
    /// Whether the file's text may satisfy `say`. `false` if there is no file, `true` if it cannot be read.
    fn may(&self, say: impl Fn(&str) -> bool) -> bool {
        match self {
            Refused::Missing => false,
            Refused::Unreadable => true,
            Refused::Text(text) => say(text),
        }
    }
}

pub fn running(config: &Config) -> Running {
    match config.refusal {
        Some(_) => Running::Refusing,
        None => Running::Fallback,
    }
}

/// An error with both reasons, for a fallback that also cannot be used.
pub fn both(refused: &ProcessError, fallback: &ProcessError) -> ProcessError {
    ProcessError::Configuration(format!(
        "{refused}\nthe fallback also cannot be used: {fallback}"
    ))
}
