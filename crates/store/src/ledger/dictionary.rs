//! Interned names, and combinations of them (series), by id. Bounded: names beyond the bound
//! become `other`.

use rusqlite::{Connection, params};
use std::collections::HashMap;

/// Names of a kind at most.
const MAX_NAMES: usize = 50_000;
/// Series at most; further ones leave out agent, experiment, model, pod and tenant.
const MAX_SERIES: usize = 20_000;
/// Series at most in a ledger of several pods, which has them for each pod.
pub(super) const MAX_SERIES_OF_PODS: usize = 100_000;
/// The name in place of those beyond the bound.
pub(crate) const OTHER: &str = "other";

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    Route,
    Upstream,
    Model,
    Workload,
    Agent,
    Experiment,
    Variant,
    Outcome,
    User,
    Endpoint,
    Dialect,
    Operation,
    OperationClass,
    Method,
    Path,
    ServiceTier,
    ErrorType,
    FinishReasons,
    TokenSource,
    TpsUnavailable,
    CostSource,
    UpstreamFacts,
    SessionGuess,
    Cluster,
    Namespace,
    Pod,
    Team,
    CostCenter,
    Tenant,
    KeyHash,
    Tools,
    ServedBy,
    CostUnavailable,
}

impl Kind {
    pub(crate) const ALL: [Kind; 33] = [
        Kind::Route,
        Kind::Upstream,
        Kind::Model,
        Kind::Workload,
        Kind::Agent,
        Kind::Experiment,
        Kind::Variant,
        Kind::Outcome,
        Kind::User,
        Kind::Endpoint,
        Kind::Dialect,
        Kind::Operation,
        Kind::OperationClass,
        Kind::Method,
        Kind::Path,
        Kind::ServiceTier,
        Kind::ErrorType,
        Kind::FinishReasons,
        Kind::TokenSource,
        Kind::TpsUnavailable,
        Kind::CostSource,
        Kind::UpstreamFacts,
        Kind::SessionGuess,
        Kind::Cluster,
        Kind::Namespace,
        Kind::Pod,
        Kind::Team,
        Kind::CostCenter,
        Kind::Tenant,
        Kind::KeyHash,
        Kind::Tools,
        Kind::ServedBy,
        Kind::CostUnavailable,
    ];

    /// Its name in the file.
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Route, upstream, model, workload, agent, experiment, variant, outcome, class of operation,
/// facts of the upstream, cluster, namespace and name of the pod, and who pays: as ids. Calls of before there were
/// classes, facts, pods or payers have none, and only a ledger of several pods has pods.
pub(crate) type SeriesNames = [Option<i64>; COMMON.len()];
/// The kinds of [`SeriesNames`], which are also the columns of `series`.
pub(crate) const COMMON: [Kind; 16] = [
    Kind::Route,
    Kind::Upstream,
    Kind::Model,
    Kind::Workload,
    Kind::Agent,
    Kind::Experiment,
    Kind::Variant,
    Kind::Outcome,
    Kind::OperationClass,
    Kind::UpstreamFacts,
    Kind::Cluster,
    Kind::Namespace,
    Kind::Pod,
    Kind::Team,
    Kind::CostCenter,
    Kind::Tenant,
];

/// Reads the id and the [`SeriesNames`] of every combination.
pub(crate) fn select_series() -> String {
    format!(
        "SELECT id, {} FROM series",
        COMMON.map(Kind::as_str).join(", ")
    )
}

/// The ids in use. It must be loaded again when a transaction fails.
#[derive(Debug)]
pub(crate) struct Dictionary {
    names: HashMap<Kind, HashMap<Box<str>, i64>>,
    kinds: HashMap<i64, Kind>,
    next_name: i64,
    series: HashMap<SeriesNames, i64>,
    next_series: i64,
    /// The bound of `series`.
    pub(super) max_series: usize,
    /// How often a name became `other`.
    pub(crate) collapsed: u64,
}

impl Dictionary {
    /// Deletes series without references, and loads the ids in use.
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Dictionary> {
        connection.execute(
            "DELETE FROM series WHERE id NOT IN (SELECT series FROM rollups WHERE level = 86400)
             AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.series = series.id)",
            [],
        )?;
        let mut dictionary = Dictionary {
            names: HashMap::new(),
            kinds: HashMap::new(),
            next_name: 0,
            series: HashMap::new(),
            next_series: 0,
            max_series: MAX_SERIES,
            collapsed: 0,
        };
        let mut statement = connection.prepare("SELECT id, kind, name FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, kind): (i64, String) = (row.get(0)?, row.get(1)?);
            let known = Kind::ALL.into_iter().find(|known| known.as_str() == kind);
            if let Some(kind) = known {
                dictionary.took(kind, row.get::<_, String>(2)?.into(), id);
            }
        }
        let mut statement = connection.prepare(&select_series())?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            let mut common = SeriesNames::default();
            for (at, name) in common.iter_mut().enumerate() {
                *name = row.get(at + 1)?;
            }
            dictionary.series.insert(common, id);
            dictionary.next_series = dictionary.next_series.max(id);
        }
        Ok(dictionary)
    }

    fn took(&mut self, kind: Kind, name: Box<str>, id: i64) {
        self.names.entry(kind).or_default().insert(name, id);
        self.kinds.insert(id, kind);
        self.next_name = self.next_name.max(id);
    }

    /// The kind of the name with this id.
    pub(crate) fn kind(&self, id: i64) -> Option<Kind> {
        self.kinds.get(&id).copied()
    }

    /// The id of a name, which is added where it is new.
    pub(crate) fn name(
        &mut self,
        connection: &Connection,
        kind: Kind,
        name: &str,
    ) -> rusqlite::Result<i64> {
        let of_kind = self.names.entry(kind).or_default();
        if let Some(id) = of_kind.get(name) {
            return Ok(*id);
        }
        if of_kind.len() >= MAX_NAMES && name != OTHER {
            self.collapsed += 1;
            return self.name(connection, kind, OTHER);
        }
        let id = self.next_name + 1;
        connection
            .prepare_cached("INSERT INTO names (id, kind, name) VALUES (?, ?, ?)")?
            .execute(params![id, kind.as_str(), name])?;
        self.took(kind, name.into(), id);
        Ok(id)
    }

    /// The same for a name that may be unknown.
    pub(crate) fn maybe(
        &mut self,
        connection: &Connection,
        kind: Kind,
        name: Option<&str>,
    ) -> rusqlite::Result<Option<i64>> {
        name.map(|name| self.name(connection, kind, name))
            .transpose()
    }

    /// The id of a series, which is added where it is new.
    pub(crate) fn series(
        &mut self,
        connection: &Connection,
        mut common: SeriesNames,
    ) -> rusqlite::Result<i64> {
        if let Some(id) = self.series.get(&common) {
            return Ok(*id);
        }
        if self.series.len() >= self.max_series {
            self.collapsed += 1;
            for (at, kind) in COMMON.into_iter().enumerate() {
                let open = matches!(
                    kind,
                    Kind::Model
                        | Kind::Agent
                        | Kind::Experiment
                        | Kind::Variant
                        | Kind::Pod
                        | Kind::Tenant
                );
                if open && common[at].is_some() {
                    common[at] = Some(self.name(connection, kind, OTHER)?);
                }
            }
            if let Some(id) = self.series.get(&common) {
                return Ok(*id);
            }
        }
        let id = self.next_series + 1;
        let columns = COMMON.map(Kind::as_str).join(", ");
        let places = ", ?".repeat(COMMON.len());
        let insert = format!("INSERT INTO series (id, {columns}) VALUES (?{places})");
        let mut statement = connection.prepare_cached(&insert)?;
        statement.raw_bind_parameter(1, id)?;
        for (at, name) in common.iter().enumerate() {
            statement.raw_bind_parameter(at + 2, name)?;
        }
        statement.raw_execute()?;
        self.next_series = id;
        self.series.insert(common, id);
        Ok(id)
    }
}
