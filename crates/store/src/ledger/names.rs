//! The names that a call has, as ids of the dictionary.

use super::dictionary::{Dictionary, Kind, SeriesNames};
use super::row::{Entry, word};
use rusqlite::Connection;
use tokengauge_core::pod::PodName;

/// The names of a call, as ids.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) common: SeriesNames,
    pub(super) series: i64,
    pub(super) user: Option<i64>,
    pub(super) key_hash: Option<i64>,
    pub(super) tools: Option<i64>,
    pub(super) served_by: Option<i64>,
    pub(super) cost_unavailable: Option<i64>,
    pub(super) parent_agent: Option<i64>,
    pub(super) endpoint: Option<i64>,
    pub(super) dialect: i64,
    pub(super) operation: i64,
    pub(super) method: Option<i64>,
    pub(super) path: Option<i64>,
    pub(super) service_tier: Option<i64>,
    pub(super) total_unavailable: Option<i64>,
    pub(super) session_guess: Option<i64>,
    pub(super) model_requested: Option<i64>,
    pub(super) error_type: Option<i64>,
    pub(super) finish_reasons: Option<i64>,
    pub(super) token_source: Option<i64>,
    pub(super) tps_unavailable: Option<i64>,
    pub(super) cost_source: Option<i64>,
}

impl Names {
    pub(super) fn of(
        entry: &Entry<'_>,
        dictionary: &mut Dictionary,
        connection: &Connection,
    ) -> rusqlite::Result<Names> {
        let record = entry.record;
        let mut maybe = |kind, name: Option<&str>| dictionary.maybe(connection, kind, name);
        let finish = (!record.finish_reasons.is_empty())
            .then(|| serde_json::to_string(&record.finish_reasons).unwrap_or_default());
        let facts = record
            .upstream_facts
            .as_ref()
            .map(|facts| facts.to_string());
        let pod = record.pod.as_deref();
        let of_pod =
            |part: fn(&PodName) -> &Option<String>| pod.and_then(|pod| part(pod).as_deref());
        let common = [
            maybe(Kind::Route, Some(&record.route))?,
            maybe(Kind::Upstream, Some(&record.upstream))?,
            maybe(Kind::Model, entry.model())?,
            maybe(Kind::Workload, record.workload.as_deref())?,
            maybe(Kind::Agent, record.agent.as_deref())?,
            maybe(Kind::Experiment, record.experiment.as_deref())?,
            maybe(Kind::Variant, record.variant.as_deref())?,
            maybe(Kind::Outcome, Some(record.outcome.as_str()))?,
            maybe(Kind::OperationClass, Some(record.operation_class.as_str()))?,
            maybe(Kind::UpstreamFacts, facts.as_deref())?,
            maybe(Kind::Cluster, of_pod(|pod| &pod.cluster))?,
            maybe(Kind::Namespace, of_pod(|pod| &pod.namespace))?,
            maybe(Kind::Pod, of_pod(|pod| &pod.name))?,
            maybe(Kind::Team, record.team.as_deref())?,
            maybe(Kind::CostCenter, record.cost_center.as_deref())?,
            maybe(Kind::Tenant, record.tenant.as_deref())?,
        ];
        let source = record.tokens.source.as_ref().map(word);
        let unavailable = record.tps.unavailable.map(|reason| reason.as_str());
        let total_unavailable = record.tps.total_unavailable.map(|reason| reason.as_str());
        let guess = record.session_guess.map(|guess| guess.as_str());
        let cost_unavailable = record.cost_unavailable.map(|reason| reason.as_str());
        let cost_source = record.cost_source.map(|source| source.as_str());
        Ok(Names {
            common,
            user: maybe(Kind::User, record.user.as_deref())?,
            key_hash: maybe(Kind::KeyHash, record.key_hash.as_deref())?,
            tools: maybe(Kind::Tools, record.tools.as_deref())?,
            served_by: maybe(Kind::ServedBy, record.served_by.as_deref())?,
            cost_unavailable: maybe(Kind::CostUnavailable, cost_unavailable)?,
            parent_agent: maybe(Kind::Agent, record.parent_agent.as_deref())?,
            endpoint: maybe(Kind::Endpoint, record.endpoint.as_deref())?,
            model_requested: maybe(Kind::Model, record.model_requested.as_deref())?,
            error_type: maybe(Kind::ErrorType, record.error_type.as_deref())?,
            finish_reasons: maybe(Kind::FinishReasons, finish.as_deref())?,
            token_source: maybe(Kind::TokenSource, source.as_deref())?,
            tps_unavailable: maybe(Kind::TpsUnavailable, unavailable)?,
            cost_source: maybe(Kind::CostSource, cost_source)?,
            method: maybe(Kind::Method, record.method.as_deref())?,
            path: maybe(Kind::Path, record.path.as_deref())?,
            service_tier: maybe(Kind::ServiceTier, record.service_tier.as_deref())?,
            session_guess: maybe(Kind::SessionGuess, guess)?,
            total_unavailable: maybe(Kind::TpsUnavailable, total_unavailable)?,
            dialect: dictionary.name(connection, Kind::Dialect, &word(&record.dialect))?,
            operation: dictionary.name(connection, Kind::Operation, &word(&record.operation))?,
            series: dictionary.series(connection, common)?,
        })
    }
}
