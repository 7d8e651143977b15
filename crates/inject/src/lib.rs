#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod agents;
mod annotations;
mod compose;
mod engine;
mod error;
mod kinds;
mod lookalikes;
pub mod manifest;
pub mod patch;
mod pod;
mod ports;
mod quantity;
mod resources;
pub mod review;
pub mod settings;
mod sidecar;

use agents::ReachableProviders;
use annotations::Annotations;
pub use error::InjectError;
use pod::Pod;
use serde_json::Value;
pub use settings::Settings;
use sidecar::{Sidecar, Source};

pub const PREFIX: &str = "tokengauge.dev/";
pub const SIDECAR: &str = "tokengauge";
const WARNINGS: &str = "warnings";
/// The largest size of the annotation with warnings, in bytes.
const MAX_WARNINGS: usize = 1024;

/// The largest size of a fallback, in bytes. Linux does not start a program with a variable above 128 KiB.
const MAX_FALLBACK: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectBy {
    /// The namespace or the command requests sidecars. A pod may opt out.
    Namespace,
    /// An annotation of the pod requests the sidecar.
    Annotation,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Injected {
        pod: Value,
        warnings: Vec<String>,
    },
    /// The sidecar was not requested, or the pod already has one.
    Left,
    /// The sidecar was requested but is impossible. The text says why and what to do.
    Refused(String),
}

pub fn inject(pod: &Value, by: InjectBy, settings: &Settings) -> Outcome {
    inject_template(pod, pod, false, by, settings)
}

/// Adds the sidecar to a pod template of `object`. `ends` is whether its pods run to completion although the template does
/// not say so.
fn inject_template(
    object: &Value,
    template: &Value,
    ends: bool,
    by: InjectBy,
    settings: &Settings,
) -> Outcome {
    match changed(object, template, ends, by, settings) {
        Ok(Some((pod, warnings))) => Outcome::Injected { pod, warnings },
        Ok(None) => Outcome::Left,
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

type Changed = Option<(Value, Vec<String>)>;

fn changed(
    object: &Value,
    before: &Value,
    ends: bool,
    by: InjectBy,
    settings: &Settings,
) -> Result<Changed, InjectError> {
    let mut pod = Pod::new(before.clone())?;
    let wanted = match annotations::wants_sidecar(&pod)? {
        Some(wants) => wants,
        None => by == InjectBy::Namespace,
    };
    if !wanted || pod.has_container(SIDECAR) {
        return Ok(None);
    }
    let annotations = Annotations::of(&pod)?;
    let native = settings.native();
    refuse_what_cannot_be(&pod, native, ends)?;
    if annotations.config.is_some() && annotations.composes() {
        return Err(two_sources());
    }
    let mut warnings = Vec::new();
    let ports = ports::choose(object, &annotations, settings, &mut warnings)?;
    let mut sidecar = Sidecar {
        native,
        ports,
        mesh: pod.mesh(),
        resources: resources::of_sidecar(
            &mut pod,
            &settings.resources,
            &annotations.resources,
            &mut warnings,
        )?,
        on_refused_config: annotations
            .on_refused_config
            .unwrap_or(settings.on_refused_config),
        ..Sidecar::default()
    };
    let source = match &annotations.engine {
        Some(engine) => {
            let front = Front {
                engine,
                annotations: &annotations,
                settings,
            };
            front.put(&mut pod, &mut sidecar, &mut warnings)?
        }
        None => serve_agents(
            &mut pod,
            &mut sidecar,
            &annotations,
            settings,
            &mut warnings,
        )?,
    };
    let too_long = |text: &mut String| text.len() > MAX_FALLBACK;
    if sidecar.fallback.take_if(too_long).is_some() {
        warnings.push(format!(
            "the routes of the configuration need more than {MAX_FALLBACK} bytes, too many for a variable: the pod will \
             not start if its configuration cannot be used"
        ));
    }
    if ports.traffic < ports::UNPRIVILEGED {
        pod.allow_low_ports()?;
        warnings.push(format!(
            "the sidecar listens on port {} without privileges, so the pod gets the sysctl \
             net.ipv4.ip_unprivileged_port_start=0",
            ports.traffic
        ));
    }
    sidecar::add(&mut pod, &sidecar, &source, settings)?;
    if !warnings.is_empty() {
        pod.annotate(
            &format!("{PREFIX}{WARNINGS}"),
            &bounded(&warnings.join("; ")),
        );
    }
    Ok(Some((pod.into_value(), warnings)))
}

struct Front<'a> {
    engine: &'a annotations::Engine,
    annotations: &'a Annotations,
    settings: &'a Settings,
}

impl Front<'_> {
    fn put(
        self,
        pod: &mut Pod,
        sidecar: &mut Sidecar,
        warnings: &mut Vec<String>,
    ) -> Result<Source, InjectError> {
        let fronted = engine::front(pod, &self, sidecar.ports.traffic, warnings)?;
        sidecar.serves = Some(fronted.port);
        sidecar.fallback = Some(compose::fallback(&fronted.config, pod.grace())?);
        Ok(match &self.annotations.config {
            None => Source::Text(fronted.config),
            Some(name) => Source::ConfigMap {
                name: name.clone(),
                by_pod: true,
            },
        })
    }
}

fn serve_agents(
    pod: &mut Pod,
    sidecar: &mut Sidecar,
    annotations: &Annotations,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Source, InjectError> {
    let (source, reached) = source(pod, annotations, settings, warnings)?;
    let routes = match &source {
        Source::BuiltIn => None,
        Source::ConfigMap { .. } => Some(base(settings)),
        Source::Text(text) => Some(text.as_str()),
    };
    let fallback = routes.map(|routes| compose::fallback(routes, pod.grace()));
    sidecar.fallback = fallback.transpose()?;
    let reached = reached.at(sidecar.ports.traffic, sidecar.native);
    agents::point(pod, annotations, settings, &reached, warnings)?;
    Ok(source)
}

fn bounded(text: &str) -> String {
    if text.len() <= MAX_WARNINGS {
        return text.to_owned();
    }
    let mut end = MAX_WARNINGS - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

fn refuse_what_cannot_be(pod: &Pod, native: bool, ends: bool) -> Result<(), InjectError> {
    if pod.flag("hostNetwork") {
        return Err(InjectError::Refused(
            "the pod uses the host's network, where the sidecar's ports may be in use; run \
            `tokengauge run` next to the pod, or remove `hostNetwork`"
                .to_owned(),
        ));
    }
    if pod.is_windows() {
        return Err(InjectError::Refused(
            "the pod runs on Windows, and tokengauge has no image for Windows".to_owned(),
        ));
    }
    if !native && (ends || pod.ends_by_itself()) {
        return Err(InjectError::Refused(
            "the pod runs to completion, and a sidecar that is not native would keep it running; native sidecars need \
             Kubernetes 1.29"
                .to_owned(),
        ));
    }
    Ok(())
}

fn two_sources() -> InjectError {
    InjectError::Refused(format!(
        "{PREFIX}config names a ConfigMap with the whole configuration: remove it, or the annotations on upstreams, \
         workload, objectives and `base-urls: replace`"
    ))
}

fn base(settings: &Settings) -> &str {
    settings
        .base
        .as_deref()
        .unwrap_or(tokengauge_config::BUILT_IN)
}

fn source(
    pod: &Pod,
    annotations: &Annotations,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<(Source, ReachableProviders), InjectError> {
    let taken = agents::taken_over(pod, annotations, settings, warnings)?;
    if let Some(name) = &annotations.config {
        if !taken.is_empty() {
            return Err(two_sources());
        }
        let source = Source::ConfigMap {
            name: name.clone(),
            by_pod: true,
        };
        return Ok((source, ReachableProviders::everything()));
    }
    let base = base(settings);
    if annotations.composes() || !taken.is_empty() {
        let text = compose::agents(base, annotations, &taken, &settings.base_urls, pod.grace())?;
        let reached = ReachableProviders::by(&text, taken);
        return Ok((Source::Text(text), reached));
    }
    Ok(match &settings.config_map {
        Some(name) => {
            let source = Source::ConfigMap {
                name: name.clone(),
                by_pod: false,
            };
            (source, ReachableProviders::by(base, taken))
        }
        None => match &settings.base {
            Some(_) => {
                let text =
                    compose::agents(base, annotations, &taken, &settings.base_urls, pod.grace())?;
                let reached = ReachableProviders::by(&text, taken);
                (Source::Text(text), reached)
            }
            None => (Source::BuiltIn, ReachableProviders::by(base, taken)),
        },
    })
}
