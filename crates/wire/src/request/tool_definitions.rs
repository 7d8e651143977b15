//! The definitions of tools in a request.

use super::part::{Each, Part, TextKind};
use super::raw::{members, string};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Gives a tool and its definition as JSON. `around` is the MCP server that listed the tool.
pub(super) fn definition(tool: &RawValue, around: Option<&str>, each: Each<'_>) {
    let named = Named::of(tool.get());
    let name = match (&*named.name, &*named.server, &*named.r#type) {
        ("", "", "") => "tool",
        ("", "", kind) => kind,
        ("", server, _) => server,
        (name, ..) => name,
    };
    let server = Some(&*named.server).filter(|server| !server.is_empty());
    let server = server.or(around).or_else(|| server_in(name));
    each(Part::Tool { name, server });
    each(Part::Text {
        kind: TextKind::ToolSchema,
        text: tool.get(),
    });
}

/// The server in a name such as `mcp__github__search`, as Claude Code makes them.
pub(super) fn server_in(name: &str) -> Option<&str> {
    let (server, _) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty()).then_some(server)
}

#[derive(Default)]
struct Named<'a> {
    name: Cow<'a, str>,
    server: Cow<'a, str>,
    r#type: Cow<'a, str>,
}

impl<'a> Named<'a> {
    fn of(json: &'a str) -> Named<'a> {
        let mut named = Named::default();
        named.read(json, 0);
        named
    }

    fn read(&mut self, json: &'a str, depth: usize) {
        members(json, |key, value| {
            let word = || string(value).unwrap_or_default();
            match key {
                "name" => self.name = word(),
                "type" if depth == 0 => self.r#type = word(),
                "server_label" | "mcp_server_name" => self.server = word(),
                "function" | "toolSpec" | "custom" if depth == 0 && self.name.is_empty() => {
                    self.read(value.get(), 1);
                }
                _ => {}
            }
        });
    }
}
