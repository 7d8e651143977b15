//! A sidecar in front of a container that serves models.
//!
//! A webhook cannot redirect packets. The sidecar can take the *name* of the engine's port, so that Services that target
//! the name reach the sidecar. Or the engine moves to another port and the sidecar listens on the old one, so that Services
//! that target the number also reach it.

use super::Front;
use super::PREFIX;
use super::annotations::{Annotations, Engine};
use super::compose;
use super::error::InjectError;
use super::pod::{List, Pod, is_foreign, list_of, object};
use serde_json::{Value, json};

pub(super) struct EngineSidecar {
    /// The sidecar's `containerPort`, with the name of the engine's port.
    pub(super) port: Value,
    /// A configuration that forwards everything to the engine, unless the pod names another configuration.
    pub(super) config: String,
}

/// The fields of a container with probes and hooks that name a port.
const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];
const HOOKS: &[&str] = &["postStart", "preStop"];
const WAYS: &[&str] = &["httpGet", "tcpSocket", "grpc"];
/// The options that set an engine's port. KServe's runtimes use `--http_port`.
const PORT_OPTIONS: [&str; 3] = ["--port", "--http-port", "--http_port"];

pub(super) fn front(
    pod: &mut Pod,
    front: &Front<'_>,
    traffic: u16,
    warnings: &mut Vec<String>,
) -> Result<EngineSidecar, InjectError> {
    let &Front {
        engine,
        annotations,
        settings,
    } = front;
    if !annotations.upstreams.is_empty() {
        return Err(InjectError::Refused(format!(
            "{PREFIX}engine-port makes the engine the upstream; remove {PREFIX}upstream"
        )));
    }
    let at = find(pod, engine, annotations)?;
    let name = pod.containers(List::Main)[at]["name"].as_str();
    let name = name.unwrap_or("engine").to_owned();
    let base = settings
        .base
        .as_deref()
        .unwrap_or(tokengauge_config::BUILT_IN);
    let config = compose::engine(base, annotations, engine, &name, pod.grace())?;
    let container = &mut pod.containers_mut(List::Main)[at];
    let to = engine.moves_to.unwrap_or(engine.port);
    if engine.moves_to.is_some() && move_arguments(container, engine.port, to) == 0 {
        return Err(InjectError::Refused(format!(
            "container {name}: neither `--port {0}` nor a variable PORT tells it to listen on {0}; set one of them, so \
             that {PREFIX}engine-moves-to can change it",
            engine.port
        )));
    }
    let port_name = move_port(container, engine.port, to);
    follow(container, engine.port, port_name.as_deref(), to);
    if engine.moves_to.is_none() {
        warnings.push(who_passes_by(engine.port, port_name.as_deref(), traffic));
    }
    let mut port = json!({ "containerPort": traffic, "protocol": "TCP" });
    if let Some(name) = port_name {
        port["name"] = json!(name);
    }
    Ok(EngineSidecar { port, config })
}

fn who_passes_by(port: u16, name: Option<&str>, traffic: u16) -> String {
    match name {
        Some(name) => format!(
            "Services that target port {name} by name reach tokengauge now; Services that target {port} by number still \
             bypass it ({PREFIX}engine-moves-to changes that)"
        ),
        None => format!(
            "port {port} has no name that Services could target: point Services at {traffic}, or set {PREFIX}engine-moves-to"
        ),
    }
}

/// The container with the engine's port, otherwise the named container, otherwise the only container.
fn find(pod: &Pod, engine: &Engine, annotations: &Annotations) -> Result<usize, InjectError> {
    let all = pod.containers(List::Main);
    let listens = |container: &Value| {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports
            .into_iter()
            .any(|port| port["containerPort"] == engine.port)
    };
    let named = |container: &Value| {
        let mut names = annotations.containers.iter().flatten();
        names.any(|name| container["name"] == **name)
    };
    let own: Vec<usize> = (0..all.len()).filter(|at| !is_foreign(&all[*at])).collect();
    let found = all
        .iter()
        .position(listens)
        .or_else(|| all.iter().position(named));
    match (found, own.as_slice()) {
        (Some(at), _) | (None, &[at]) => Ok(at),
        _ => Err(InjectError::Refused(format!(
            "{PREFIX}engine-port: no container has the port {}; name the engine's container in {PREFIX}containers",
            engine.port
        ))),
    }
}

/// Changes the port in arguments and variables. Returns the number of changes.
fn move_arguments(container: &mut Value, from: u16, to: u16) -> usize {
    let mut places = 0;
    for key in ["command", "args"] {
        let Some(words) = list_of(container, key) else {
            continue;
        };
        let mut is_port = false;
        for word in words {
            let Some(text) = word.as_str() else {
                continue;
            };
            let moved = if is_port && text == from.to_string() {
                Some(to.to_string())
            } else {
                moved_within(text, from, to)
            };
            is_port = text == "-p" || PORT_OPTIONS.contains(&text);
            if let Some(moved) = moved {
                *word = json!(moved);
                places += 1;
            }
        }
    }
    for variable in list_of(container, "env").into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        let is_port = name == "PORT" || name.ends_with("_PORT");
        let Some(value) = variable["value"].as_str() else {
            continue;
        };
        let moved = match value.strip_suffix(&format!(":{from}")) {
            Some(host) if name.ends_with("HOST") => format!("{host}:{to}"),
            _ if is_port && value == from.to_string() => to.to_string(),
            _ => continue,
        };
        variable["value"] = json!(moved);
        places += 1;
    }
    places
}

/// Replaces the port in `--port=8000`, as an argument or within a shell command.
fn moved_within(text: &str, from: u16, to: u16) -> Option<String> {
    for option in PORT_OPTIONS {
        for separator in ["=", " "] {
            let wanted = format!("{option}{separator}{from}");
            let Some(at) = text.find(&wanted) else {
                continue;
            };
            let rest = &text[at + wanted.len()..];
            if rest.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            return Some(format!("{}{option}{separator}{to}{rest}", &text[..at]));
        }
    }
    None
}

/// Changes the number of the engine's port. Removes and returns its name.
fn move_port(container: &mut Value, from: u16, to: u16) -> Option<String> {
    let ports = list_of(container, "ports")?;
    let port = ports
        .iter_mut()
        .find(|port| port["containerPort"] == from)?;
    let port = object(port)?;
    port.insert("containerPort".to_owned(), json!(to));
    let name = port.shift_remove("name")?;
    name.as_str().map(str::to_owned)
}

/// Changes the port of probes and hooks, so that they still reach the engine itself.
fn follow(container: &mut Value, from: u16, name: Option<&str>, to: u16) {
    let leads = |port: &Value| *port == from || name.is_some_and(|name| *port == name);
    let turn = |action: &mut Value| {
        for way in WAYS {
            if let Some(port) = action.get_mut(way).and_then(|way| way.get_mut("port"))
                && leads(port)
            {
                *port = json!(to);
            }
        }
    };
    for probe in PROBES {
        if let Some(probe) = container.get_mut(probe) {
            turn(probe);
        }
    }
    for hook in HOOKS {
        if let Some(hook) = container
            .get_mut("lifecycle")
            .and_then(|all| all.get_mut(hook))
        {
            turn(hook);
        }
    }
}
