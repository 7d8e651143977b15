//! Files of manifests: several documents of YAML or JSON. A document that gets no
//! sidecar stays as it is, to the byte; in one that does, only comments go.

use super::settings::Settings;
use super::{Asked, Outcome, inject};
use serde_json::Value;

/// A file of manifests with sidecars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    /// The documents, in their order.
    pub text: String,
    /// How many pods and templates have a sidecar now.
    pub injected: usize,
    /// What their authors should know: which object, and what.
    pub warnings: Vec<String>,
    /// Objects that were asked for and cannot be: which, and why.
    pub refused: Vec<String>,
}

/// Puts sidecars into every pod and template of pods of a text.
///
/// # Errors
/// Where a document cannot be read: which, and why.
pub fn inject_all(text: &str, asked: Asked, settings: &Settings) -> Result<Manifests, String> {
    let mut all = Manifests::default();
    for (number, document) in documents(text).into_iter().enumerate() {
        let (marker, body) = document;
        all.text.push_str(marker);
        let place = format!("document {}", number + 1);
        let Some(mut value) = read(body).map_err(|error| format!("{place}: {error}"))? else {
            all.text.push_str(body);
            continue;
        };
        let before = all.injected;
        object(&mut value, asked, settings, &mut all);
        if all.injected == before {
            all.text.push_str(body);
            continue;
        }
        let written = if body.trim_start().starts_with('{') {
            serde_json::to_string_pretty(&value).map_err(|error| error.to_string())? + "\n"
        } else {
            write(&value).map_err(|error| format!("{place}: {error}"))?
        };
        all.text.push_str(&written);
    }
    Ok(all)
}

/// The documents, each with the line that begins it.
fn documents(text: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let (mut begin, mut marker) = (0, "");
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if bare == "---" || bare.starts_with("--- #") {
            all.push((marker, &text[begin..at]));
            (marker, begin) = (line, at + line.len());
        }
        at += line.len();
    }
    all.push((marker, &text[begin..]));
    all
}

/// `None` where there is nothing but comments.
fn read(body: &str) -> Result<Option<Value>, String> {
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if body.lines().all(is_empty) {
        return Ok(None);
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let value: Value = serde_saphyr::from_str_with_options(body, options)
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(value.is_object().then_some(value))
}

fn write(value: &Value) -> Result<String, String> {
    let text = serde_saphyr::to_string(value).map_err(|error| error.to_string())?;
    Ok(if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    })
}

/// An object, or a list of them.
fn object(value: &mut Value, asked: Asked, settings: &Settings, all: &mut Manifests) {
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    if kind.ends_with("List") {
        let items = value.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            if item.is_object() {
                object(item, asked, settings, all);
            }
        }
        return;
    }
    let path: &str = match kind.as_str() {
        "Pod" => "",
        "PodTemplate" => "/template",
        "CronJob" => "/spec/jobTemplate/spec/template",
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Job" => "/spec/template",
        _ => return,
    };
    let name = format!(
        "{kind}/{}",
        value["metadata"]["name"].as_str().unwrap_or_default()
    );
    let Some(template) = value.pointer_mut(path) else {
        all.refused.push(format!("{name}: there is no {path}"));
        return;
    };
    match inject(template, asked, settings) {
        Outcome::Left => {}
        Outcome::Refused(reason) => all.refused.push(format!("{name}: {reason}")),
        Outcome::Injected { pod, warnings } => {
            *template = pod;
            all.injected += 1;
            let warnings = warnings.iter().map(|warning| format!("{name}: {warning}"));
            all.warnings.extend(warnings);
        }
    }
}
