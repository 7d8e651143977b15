//! An endpoint of the API as a row of a table.

use crate::Services;
use axum::handler::Handler;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

pub(super) struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The `operationId` in the OpenAPI document.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Services>,
    pub(super) parameters: &'static [&'static [&'static str]],
    pub(super) response: ResponseFormat,
    pub(super) subject: Option<&'static Subject>,
    /// Statuses of problems that other endpoints do not have, or that have another meaning here.
    pub(super) problems: Vec<(&'static str, &'static str)>,
    pub(super) body: Option<RequestBody>,
    /// Whether a provider key is accepted instead of the token.
    pub(super) for_keys: bool,
}

pub(super) enum ResponseFormat {
    Json(fn(&mut SchemaGenerator) -> Schema),
    Events,
    Html,
    Parquet,
}

pub(super) enum RequestBody {
    Hook,
    Mark,
    Scores,
}

/// The object that the path of an endpoint names.
pub(super) struct Subject {
    pub(super) parameter: &'static str,
    pub(super) about: &'static str,
    pub(super) is_uuid: bool,
    pub(super) unknown: &'static str,
}

pub(super) const CALL: Subject = Subject {
    parameter: "id",
    about: "The id of the call's record.",
    is_uuid: true,
    unknown: "No stored call has this id.",
};
pub(super) const SESSION: Subject = Subject {
    parameter: "id",
    about: "The session's name, percent-encoded.",
    is_uuid: false,
    unknown: "No stored call has this session.",
};
pub(super) const OBJECTIVE: Subject = Subject {
    parameter: "name",
    about: "The objective's name, percent-encoded.",
    is_uuid: false,
    unknown: "No [[slo]] in the configuration has this name.",
};
pub(super) const EXPERIMENT: Subject = Subject {
    parameter: "name",
    about: "The experiment's name, percent-encoded.",
    is_uuid: false,
    unknown: "Neither the configuration nor a finished call has this experiment.",
};
pub(super) const GATE: Subject = Subject {
    parameter: "name",
    about: "The gate's name, percent-encoded.",
    is_uuid: false,
    unknown: "No [[gate]] in the configuration has this name.",
};
pub(super) const NO_OBJECTIVE: &str =
    "No [[slo]] in the configuration has the name given in `slo`.";

impl Endpoint {
    pub(super) fn asks(mut self, parameters: &'static [&'static [&'static str]]) -> Endpoint {
        self.parameters = parameters;
        self
    }

    pub(super) fn responds(mut self, response: ResponseFormat) -> Endpoint {
        self.response = response;
        self
    }

    pub(super) fn json<T: JsonSchema>(self) -> Endpoint {
        self.responds(ResponseFormat::Json(SchemaGenerator::subschema_for::<T>))
    }

    pub(super) fn names(mut self, subject: &'static Subject) -> Endpoint {
        self.subject = Some(subject);
        self.problem("404", subject.unknown)
    }

    pub(super) fn problem(mut self, status: &'static str, meaning: &'static str) -> Endpoint {
        self.problems.push((status, meaning));
        self
    }

    pub(super) fn takes(mut self, body: RequestBody) -> Endpoint {
        self.body = Some(body);
        self.problem("403", "The request needs a token, but none is configured.")
    }

    pub(super) fn for_keys(mut self) -> Endpoint {
        self.for_keys = true;
        self.problem("401", "The request has no provider key.")
            .problem("404", "`own_use` in [admin] is off.")
            .problem("429", "The client sent too many requests.")
    }
}

fn endpoint(
    method: &'static str,
    path: &'static str,
    (id, summary): (&'static str, &'static str),
    handler: MethodRouter<Services>,
) -> Endpoint {
    Endpoint {
        method,
        path,
        id,
        summary,
        handler,
        parameters: &[],
        response: ResponseFormat::Events,
        subject: None,
        problems: Vec::new(),
        body: None,
        for_keys: false,
    }
}

pub(super) fn get<M: 'static>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl Handler<M, Services>,
) -> Endpoint {
    endpoint("get", path, (id, summary), axum::routing::get(handler))
}

pub(super) fn post<M: 'static>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl Handler<M, Services>,
) -> Endpoint {
    endpoint("post", path, (id, summary), axum::routing::post(handler))
}
