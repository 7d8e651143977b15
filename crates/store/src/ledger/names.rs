use super::dictionary::{COMMON, Dictionary, NameKind, SeriesNames};
use super::row::{Entry, word};
use rusqlite::Connection;
use tokengauge_core::dimension::{Dimension, SPENDING};

#[derive(Debug)]
pub(super) struct Names {
    pub(super) common: SeriesNames,
    pub(super) series: i64,
    pub(super) spending: [Option<i64>; SPENDING.len()],
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
    /// The id of the name of a dimension, except classes.
    pub(super) fn name_of(&self, by: Dimension) -> Option<i64> {
        let own = SPENDING.iter().position(|own| *own == by);
        own.map_or_else(|| self.common.of(by), |at| self.spending[at])
    }

    pub(super) fn of(
        entry: &Entry<'_>,
        dictionary: &mut Dictionary,
        connection: &Connection,
    ) -> rusqlite::Result<Names> {
        let record = entry.record;
        let finish = (!record.finish_reasons.is_empty())
            .then(|| serde_json::to_string(&record.finish_reasons).unwrap_or_default());
        let mut of = |kind, connection| match kind {
            NameKind::Of(by) => dictionary.maybe(connection, kind, by.of(record).as_deref()),
            _ => dictionary.maybe(connection, kind, Some(record.operation_class.as_str())),
        };
        let mut common = SeriesNames::default();
        for (id, kind) in common.0.iter_mut().zip(COMMON) {
            *id = of(kind, connection)?;
        }
        let mut spending = [None; SPENDING.len()];
        for (id, by) in spending.iter_mut().zip(SPENDING) {
            *id = of(NameKind::Of(by), connection)?;
        }
        let mut maybe = |kind, name: Option<&str>| dictionary.maybe(connection, kind, name);
        let source = record.tokens.source.as_ref().map(word);
        let unavailable = record.tps.unavailable.map(|reason| reason.as_str());
        let total_unavailable = record.tps.total_unavailable.map(|reason| reason.as_str());
        let guess = record.session_guess.map(|guess| guess.as_str());
        let cost_unavailable = record.cost_unavailable.map(|reason| reason.as_str());
        let cost_source = record.cost_source.map(|source| source.as_str());
        Ok(Names {
            common,
            spending,
            cost_unavailable: maybe(NameKind::CostUnavailable, cost_unavailable)?,
            parent_agent: maybe(
                NameKind::Of(Dimension::Agent),
                record.parent_agent.as_deref(),
            )?,
            endpoint: maybe(NameKind::Endpoint, record.endpoint.as_deref())?,
            model_requested: maybe(
                NameKind::Of(Dimension::Model),
                record.model_requested.as_deref(),
            )?,
            error_type: maybe(NameKind::ErrorType, record.error_type.as_deref())?,
            finish_reasons: maybe(NameKind::FinishReasons, finish.as_deref())?,
            token_source: maybe(NameKind::TokenSource, source.as_deref())?,
            tps_unavailable: maybe(NameKind::TpsUnavailable, unavailable)?,
            cost_source: maybe(NameKind::CostSource, cost_source)?,
            method: maybe(NameKind::Method, record.method.as_deref())?,
            path: maybe(NameKind::Path, record.path.as_deref())?,
            service_tier: maybe(NameKind::ServiceTier, record.service_tier.as_deref())?,
            session_guess: maybe(NameKind::SessionGuess, guess)?,
            total_unavailable: maybe(NameKind::TpsUnavailable, total_unavailable)?,
            dialect: dictionary.name(connection, NameKind::Dialect, &word(&record.dialect))?,
            operation: dictionary.name(
                connection,
                NameKind::Operation,
                &word(&record.operation),
            )?,
            series: dictionary.series(connection, common)?,
        })
    }
}
