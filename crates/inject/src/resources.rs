//! The sidecar's requests and limits: the operator's settings, changed by the pod's annotations.
//!
//! A pod of the QoS class Guaranteed keeps its class, so that its node does not evict it earlier and pinned cores stay
//! pinned. See <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>.

use super::PREFIX;
use super::error::InjectError;
use super::pod::{List, Pod, object};
use super::quantity::Quantity;
use serde_json::{Value, json};

pub(super) const ANNOTATIONS: &[(&str, Part, &str)] = &[
    ("cpu-request", Part::Requests, "cpu"),
    ("cpu-limit", Part::Limits, "cpu"),
    ("memory-request", Part::Requests, "memory"),
    ("memory-limit", Part::Limits, "memory"),
];
const COUNTED: [&str; 2] = ["cpu", "memory"];
/// The default limits in a Guaranteed pod, which must have limits. One core measures 55,000 to 70,000 events per second.
const GUARANTEED: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "384Mi")];
/// The smallest memory limit. An idle process uses half of it.
const LEAST_MEMORY: Quantity = Quantity::mebibytes(32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Requests,
    Limits,
}

impl Part {
    fn key(self) -> &'static str {
        match self {
            Part::Requests => "requests",
            Part::Limits => "limits",
        }
    }
}

/// The resources that a pod's annotations set: half, name and quantity.
pub(super) type Overrides = Vec<(Part, &'static str, String)>;

pub(super) fn overrides(pod: &Pod) -> Result<Overrides, InjectError> {
    let mut all = Overrides::new();
    for (annotation, part, name) in ANNOTATIONS {
        let Some(text) = pod.annotation(annotation) else {
            continue;
        };
        let quantity = Quantity::parse(text).ok_or_else(|| {
            format!(
                "{PREFIX}{annotation}: `{text}` is not a quantity above 0 such as {}",
                if *name == "cpu" {
                    "`250m` or `1`"
                } else {
                    "`512Mi` or `1Gi`"
                }
            )
        })?;
        if *name == "memory" && quantity < LEAST_MEMORY {
            return Err(InjectError::Refused(format!(
                "{PREFIX}{annotation}: `{text}` is too small: tokengauge needs at least {}",
                LEAST_MEMORY.bytes()
            )));
        }
        all.push((*part, name, text.to_owned()));
    }
    Ok(all)
}

pub(super) fn check(resources: &Value) -> Result<(), InjectError> {
    for part in [Part::Requests, Part::Limits] {
        for name in COUNTED {
            let value = &resources[part.key()][name];
            if !value.is_null() && Quantity::of(value).is_none() {
                return Err(InjectError::Refused(format!(
                    "resources.{}.{name}: {value} is not a quantity above 0 such as `250m` or `512Mi`",
                    part.key()
                )));
            }
        }
    }
    Ok(())
}

/// The sidecar's resources. Pod-level resources, if any, grow by the same amount, so that the other containers keep theirs.
pub(super) fn of_sidecar(
    pod: &mut Pod,
    base: &Value,
    overrides: &Overrides,
    warnings: &mut Vec<String>,
) -> Result<Value, InjectError> {
    let mut resources = base.clone();
    for (part, name, text) in overrides {
        put(&mut resources, *part, name, json!(text));
    }
    for name in COUNTED {
        fit(&mut resources, name, overrides)?;
    }
    if is_guaranteed(pod) {
        for (name, least) in GUARANTEED {
            equal(&mut resources, name, least, overrides, warnings);
        }
    }
    grow(pod, &resources);
    Ok(resources)
}

fn get<'a>(resources: &'a Value, part: Part, name: &str) -> Option<&'a Value> {
    resources.get(part.key())?.get(name)
}

fn quantity(resources: &Value, part: Part, name: &str) -> Option<Quantity> {
    Quantity::of(get(resources, part, name)?)
}

fn put(resources: &mut Value, part: Part, name: &str, value: Value) {
    if let Some(map) = object(resources)
        && let Some(half) = object(map.entry(part.key()).or_insert(Value::Null))
    {
        half.insert(name.to_owned(), value);
    }
}

fn is_set(overrides: &Overrides, part: Part, name: &str) -> bool {
    overrides
        .iter()
        .any(|(of, known, _)| *of == part && *known == name)
}

/// Lowers the request or raises the limit if the request is above the limit, which API servers refuse. A value from an
/// annotation stays.
fn fit(resources: &mut Value, name: &str, overrides: &Overrides) -> Result<(), InjectError> {
    let both = (
        quantity(resources, Part::Requests, name),
        quantity(resources, Part::Limits, name),
    );
    if !matches!(both, (Some(request), Some(limit)) if request > limit) {
        return Ok(());
    }
    let (from, to) = match (
        is_set(overrides, Part::Requests, name),
        is_set(overrides, Part::Limits, name),
    ) {
        (true, true) => {
            return Err(InjectError::Refused(format!(
                "{PREFIX}{name}-request is above {PREFIX}{name}-limit"
            )));
        }
        (true, false) => (Part::Requests, Part::Limits),
        _ => (Part::Limits, Part::Requests),
    };
    let value = get(resources, from, name).cloned().unwrap_or_default();
    put(resources, to, name, value);
    Ok(())
}

/// Whether all containers, or the pod as a whole, have limits of CPU and memory that equal their requests. A missing
/// request equals the limit.
fn is_guaranteed(pod: &Pod) -> bool {
    let equal = |resources: &Value| {
        COUNTED.iter().all(|name| {
            let limit = quantity(resources, Part::Limits, name);
            limit.is_some()
                && match get(resources, Part::Requests, name) {
                    None | Some(Value::Null) => true,
                    Some(request) => Quantity::of(request) == limit,
                }
        })
    };
    let whole = pod.resources();
    if COUNTED.iter().any(|name| {
        quantity(whole, Part::Limits, name)
            .or(quantity(whole, Part::Requests, name))
            .is_some()
    }) {
        return equal(whole);
    }
    let lists = [List::Init, List::Main].map(|list| pod.containers(list));
    lists
        .iter()
        .all(|all| all.iter().all(|one| equal(&one["resources"])))
        && !pod.containers(List::Main).is_empty()
}

fn equal(
    resources: &mut Value,
    name: &str,
    least: &str,
    overrides: &Overrides,
    warnings: &mut Vec<String>,
) {
    let request = get(resources, Part::Requests, name).cloned();
    let requested = is_set(overrides, Part::Requests, name);
    let value = match get(resources, Part::Limits, name).cloned() {
        Some(limit) => {
            // A request in the pod's annotations takes precedence over the operator's limit.
            if requested && !is_set(overrides, Part::Limits, name) {
                request.unwrap_or(limit)
            } else {
                if requested && request.as_ref() != Some(&limit) {
                    warnings.push(format!(
                        "the pod keeps the QoS class Guaranteed, so {PREFIX}{name}-limit is also the request"
                    ));
                }
                limit
            }
        }
        None => match request {
            Some(request) if requested || Quantity::of(&request) > Quantity::parse(least) => {
                request
            }
            _ => json!(least),
        },
    };
    put(resources, Part::Requests, name, value.clone());
    put(resources, Part::Limits, name, value);
}

fn grow(pod: &mut Pod, sidecar: &Value) {
    for part in [Part::Requests, Part::Limits] {
        for name in COUNTED {
            let Some(known) = quantity(pod.resources(), part, name) else {
                continue;
            };
            let more = quantity(sidecar, part, name);
            let Some(more) = more.or(quantity(sidecar, Part::Requests, name)) else {
                continue;
            };
            let sum = known.plus(more);
            let text = if name == "cpu" {
                sum.cores()
            } else {
                sum.bytes()
            };
            put(pod.resources_mut(), part, name, json!(text));
        }
    }
}
