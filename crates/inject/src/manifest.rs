//! Files of manifests: several documents of YAML or JSON. A document without a sidecar is written unchanged. A document
//! with a sidecar loses its comments.

use super::error::InjectError;
use super::kinds::{self, Found};
use super::settings::Settings;
use super::{InjectBy, Outcome, PREFIX, inject_template};
use serde_json::Value;

/// The warning about pull secrets. The API server adds a ServiceAccount's pull secrets only to pods without pull secrets.
/// Pods from the API server already have them.
const HIDDEN: &str = "a pod with pull secrets does not get the pull secrets of its ServiceAccount: if its images need \
    them, also name them in `image_pull_secrets`";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    pub text: String,
    pub injected: usize,
    /// Warnings for the authors, each with the name of the object.
    pub warnings: Vec<String>,
    pub refused: Vec<String>,
    /// Objects that seem to create pods but have no pod template, with the reason.
    pub unknown: Vec<String>,
}

/// # Errors
/// Fails if a document cannot be read. The error names the document.
pub fn inject_all(text: &str, by: InjectBy, settings: &Settings) -> Result<Manifests, InjectError> {
    let mut all = Manifests::default();
    for (number, document) in documents(text).into_iter().enumerate() {
        let (marker, body) = document;
        all.text.push_str(marker);
        let place = format!("document {}", number + 1);
        let Some(mut value) = read(body).map_err(|error| error.of(&place))? else {
            all.text.push_str(body);
            continue;
        };
        let before = all.injected;
        object(&mut value, &place, by, settings, &mut all);
        if all.injected == before {
            all.text.push_str(body);
            continue;
        }
        let written = if body.trim_start().starts_with(['{', '[']) {
            serde_json::to_string_pretty(&value)
                .map_err(|error| InjectError::text(&place, error))?
                + "\n"
        } else {
            write(&value).map_err(|error| InjectError::text(&place, error))?
        };
        all.text.push_str(&written);
    }
    Ok(all)
}

fn documents(text: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let (mut begin, mut marker) = (0, "");
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if is_marker(bare) {
            all.push((marker, &text[begin..at]));
            (marker, begin) = (line, at + line.len());
        }
        at += line.len();
    }
    all.push((marker, &text[begin..]));
    all
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| {
        rest.is_empty() || (rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#'))
    })
}

/// Parses a document. `None` if it contains only comments.
fn read(body: &str) -> Result<Option<Value>, InjectError> {
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if body.lines().all(is_empty) {
        return Ok(None);
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let value: Value = serde_saphyr::from_str_with_options(body, options)
        .map_err(|error| InjectError::text("cannot be read", error))?;
    Ok((value.is_object() || value.is_array()).then_some(value))
}

fn write(value: &Value) -> Result<String, serde_saphyr::ser::Error> {
    let text = serde_saphyr::to_string(value)?;
    Ok(if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    })
}

/// Injects an object, or every object of a list. `place` names an object without a name.
fn object(value: &mut Value, place: &str, by: InjectBy, settings: &Settings, all: &mut Manifests) {
    if let Some(items) = items(value) {
        for item in items.iter_mut().filter(|item| item.is_object()) {
            object(item, place, by, settings, all);
        }
        return;
    }
    // The template's own annotation decides. The object's annotation counts only if it opts out.
    let own = value["metadata"]["annotations"][format!("{PREFIX}inject")].as_str();
    if matches!(own, Some("false" | "disabled")) {
        return;
    }
    let name = named(value, place);
    match kinds::find(value) {
        Found::Nothing => {}
        Found::Unknown(reason) => {
            if asks(value, by) {
                all.unknown.push(format!("{name}: {reason}"));
            }
        }
        Found::Templates {
            kind,
            pointers,
            missing,
        } => {
            let missing = missing.iter().filter(|_| asks(value, by));
            let missing = missing.map(|path| format!("{name}: {path} is missing"));
            all.unknown.extend(missing);
            let object = value.clone();
            for pointer in pointers {
                let Some(template) = value.pointer_mut(&pointer) else {
                    continue;
                };
                let outcome = inject_template(&object, template, kind.ends, by, settings);
                let name = if kind.is_plain() {
                    name.clone()
                } else {
                    format!("{name}: {}", pointer[1..].replace('/', "."))
                };
                take(outcome, template, name, all);
            }
        }
    }
}

fn asks(object: &Value, by: InjectBy) -> bool {
    kinds::asks(object).unwrap_or(by == InjectBy::Namespace)
}

fn take(outcome: Outcome, template: &mut Value, name: String, all: &mut Manifests) {
    match outcome {
        Outcome::Left => {}
        Outcome::Refused(reason) => all.refused.push(format!("{name}: {reason}")),
        Outcome::Injected { pod, mut warnings } => {
            let secrets = |pod: &Value| pod["spec"]["imagePullSecrets"].as_array().map(Vec::len);
            if secrets(template).unwrap_or(0) == 0 && secrets(&pod).unwrap_or(0) > 0 {
                warnings.push(HIDDEN.to_owned());
            }
            *template = pod;
            all.injected += 1;
            let warnings = warnings.iter().map(|warning| format!("{name}: {warning}"));
            all.warnings.extend(warnings);
        }
    }
}

/// The items of a list. Items of a `DeploymentList` and similar lists have no kind, so it is added.
fn items(value: &mut Value) -> Option<&mut Vec<Value>> {
    if value.is_array() {
        return value.as_array_mut();
    }
    let kind = value["kind"].as_str()?.strip_suffix("List")?.to_owned();
    let version = value["apiVersion"].clone();
    let items = value.get_mut("items")?.as_array_mut()?;
    if !kind.is_empty() {
        let items = items.iter_mut().filter_map(Value::as_object_mut);
        for item in items.filter(|item| !item.contains_key("kind")) {
            item.insert("kind".to_owned(), kind.as_str().into());
            item.insert("apiVersion".to_owned(), version.clone());
        }
    }
    Some(items)
}

/// A name such as `Deployment/bot`, or `place` if the object has neither kind nor name.
fn named(value: &Value, place: &str) -> String {
    let metadata = &value["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    match (value["kind"].as_str(), name) {
        (None, None) => place.to_owned(),
        (kind, name) => format!("{}/{}", kind.unwrap_or(place), name.unwrap_or_default()),
    }
}
