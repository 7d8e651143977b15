//! Ids of interned names, and of their combinations (series). Both are bounded: further names
//! become `other`.

use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use tokengauge_core::dimension::{DIMENSIONS, Dimension, IN_SERIES, Kept};

const MAX_NAMES: usize = 50_000;
/// Maximum number of series. Further series lack the dimensions that have open-ended values.
const MAX_SERIES: usize = 20_000;
/// The name that replaces names beyond the bound.
pub(crate) const OTHER: &str = "other";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NameKind {
    /// A dimension, by which calls are filtered and grouped.
    Of(Dimension),
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
    SessionGuess,
    CostUnavailable,
}

impl NameKind {
    const OTHERS: [NameKind; 14] = [
        NameKind::Endpoint,
        NameKind::Dialect,
        NameKind::Operation,
        NameKind::OperationClass,
        NameKind::Method,
        NameKind::Path,
        NameKind::ServiceTier,
        NameKind::ErrorType,
        NameKind::FinishReasons,
        NameKind::TokenSource,
        NameKind::TpsUnavailable,
        NameKind::CostSource,
        NameKind::SessionGuess,
        NameKind::CostUnavailable,
    ];

    fn named(name: &str) -> Option<NameKind> {
        let dimensions = DIMENSIONS.iter().map(|row| NameKind::Of(row.dimension));
        let mut all = dimensions.chain(NameKind::OTHERS);
        all.find(|kind| kind.as_str() == name)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            NameKind::Of(dimension) => dimension.column(),
            other => other.into(),
        }
    }
}

/// Ids of the names that the calls of a series share: the dimensions in series, then the class of
/// the operation. An id is `None` in calls older than its dimension. Pods exist only in a ledger of
/// several pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SeriesNames(pub(crate) [Option<i64>; COMMON.len()]);

/// The kinds of [`SeriesNames`], which are also the columns of `series`.
pub(crate) const COMMON: [NameKind; IN_SERIES.len() + 1] = {
    let mut all = [NameKind::OperationClass; IN_SERIES.len() + 1];
    let mut at = 0;
    while at < IN_SERIES.len() {
        all[at] = NameKind::Of(IN_SERIES[at]);
        at += 1;
    }
    all
};

/// The index of each dimension in [`COMMON`].
const PLACES: [Option<usize>; DIMENSIONS.len()] = {
    let mut all = [None; DIMENSIONS.len()];
    let mut at = 0;
    while at < IN_SERIES.len() {
        all[IN_SERIES[at] as usize] = Some(at);
        at += 1;
    }
    all
};

impl SeriesNames {
    pub(crate) fn read(row: &Row<'_>, from: usize) -> rusqlite::Result<SeriesNames> {
        let mut names = SeriesNames::default();
        for (at, name) in names.0.iter_mut().enumerate() {
            *name = row.get(from + at)?;
        }
        Ok(names)
    }

    pub(crate) fn of(&self, by: Dimension) -> Option<i64> {
        PLACES[by as usize].and_then(|at| self.0[at])
    }

    pub(crate) fn class(&self) -> Option<i64> {
        self.0[IN_SERIES.len()]
    }
}

pub(crate) fn select_series() -> String {
    format!(
        "SELECT id, {} FROM series",
        COMMON.map(NameKind::as_str).join(", ")
    )
}

/// The ids in use. Must be loaded again after a failed transaction.
#[derive(Debug)]
pub(crate) struct Dictionary {
    names: HashMap<NameKind, HashMap<Box<str>, i64>>,
    kinds: HashMap<i64, NameKind>,
    next_name: i64,
    series: HashMap<SeriesNames, i64>,
    next_series: i64,
    pub(super) max_series: usize,
    /// Number of times that a name became `other`.
    pub(crate) collapsed: u64,
}

impl Dictionary {
    /// Deletes unreferenced series, and loads the ids in use.
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
            if let Some(kind) = NameKind::named(&kind) {
                dictionary.took(kind, row.get::<_, String>(2)?.into(), id);
            }
        }
        let mut statement = connection.prepare(&select_series())?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            dictionary.series.insert(SeriesNames::read(row, 1)?, id);
            dictionary.next_series = dictionary.next_series.max(id);
        }
        Ok(dictionary)
    }

    fn took(&mut self, kind: NameKind, name: Box<str>, id: i64) {
        self.names.entry(kind).or_default().insert(name, id);
        self.kinds.insert(id, kind);
        self.next_name = self.next_name.max(id);
    }

    pub(crate) fn kind(&self, id: i64) -> Option<NameKind> {
        self.kinds.get(&id).copied()
    }

    pub(crate) fn name(
        &mut self,
        connection: &Connection,
        kind: NameKind,
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

    /// Like [`Dictionary::name`], for a name that may be unknown.
    pub(crate) fn maybe(
        &mut self,
        connection: &Connection,
        kind: NameKind,
        name: Option<&str>,
    ) -> rusqlite::Result<Option<i64>> {
        name.map(|name| self.name(connection, kind, name))
            .transpose()
    }

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
                let open =
                    matches!(kind, NameKind::Of(by) if by.definition().kept == Kept::OpenSeries);
                if open && common.0[at].is_some() {
                    common.0[at] = Some(self.name(connection, kind, OTHER)?);
                }
            }
            if let Some(id) = self.series.get(&common) {
                return Ok(*id);
            }
        }
        let id = self.next_series + 1;
        let columns = COMMON.map(NameKind::as_str).join(", ");
        let places = ", ?".repeat(COMMON.len());
        let insert = format!("INSERT INTO series (id, {columns}) VALUES (?{places})");
        let mut statement = connection.prepare_cached(&insert)?;
        statement.raw_bind_parameter(1, id)?;
        for (at, name) in common.0.iter().enumerate() {
            statement.raw_bind_parameter(at + 2, name)?;
        }
        statement.raw_execute()?;
        self.next_series = id;
        self.series.insert(common, id);
        Ok(id)
    }
}
