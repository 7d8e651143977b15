//! The sums of sessions, updated with every batch.

use super::aggregates::{SessionSums, Sums};
use super::dictionary::Dictionary;
use super::interval_union::IntervalUnion;
use super::names::Names;
use super::row::Entry;
use crate::query::Dimension::{Experiment, User, Variant, Workload};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{HashMap, HashSet};

/// Maximum number of names of a kind per session.
const MAX_NAMES: usize = 16;

/// The sums in a session's row, in the order of [`read`].
pub(super) const COLUMNS: &str = "started_us, last_us, calls, errors, input_tokens, \
    cached_input_tokens, output_tokens, reasoning_tokens, cost_nano_usd, unpriced_calls, \
    decode_tokens, decode_us, ttft, busy";

#[derive(Debug)]
pub(super) struct Sessions {
    open: HashMap<String, Open>,
    pub(super) next: i64,
}

#[derive(Debug)]
struct Open {
    id: i64,
    sums: SessionSums,
    /// Workload, user, experiment and variant, each from the last call that had one.
    latest: [Option<i64>; 4],
    names: HashSet<i64>,
    fresh: Vec<i64>,
}

impl Sessions {
    pub(super) fn new(next: i64) -> Sessions {
        Sessions {
            open: HashMap::new(),
            next,
        }
    }

    /// Adds a call. Returns the id of its session, if any.
    pub(super) fn add(
        &mut self,
        entry: &Entry<'_>,
        names: &Names,
        dictionary: &mut Dictionary,
        connection: &Connection,
    ) -> rusqlite::Result<Option<i64>> {
        let Some(name) = entry.record.session.as_deref() else {
            return Ok(None);
        };
        if !self.open.contains_key(name) {
            let open = match load(connection, name)? {
                Some(open) => open,
                None => self.begin(),
            };
            self.open.insert(name.to_owned(), open);
        }
        let Some(open) = self.open.get_mut(name) else {
            return Ok(None);
        };
        if entry.nested {
            // The enclosing call, which ends later, adds the rest.
            open.sums.lasted(entry.started_us, entry.ended_us);
            return Ok(Some(open.id));
        }
        open.sums
            .add(&entry.share, entry.started_us, entry.ended_us);
        for (latest, now) in open
            .latest
            .iter_mut()
            .zip([Workload, User, Experiment, Variant].map(|by| names.name_of(by)))
        {
            *latest = now.or(*latest);
        }
        for name in names.common.0.into_iter().chain(names.spending).flatten() {
            open.called(name, dictionary);
        }
        Ok(Some(open.id))
    }

    fn begin(&mut self) -> Open {
        let id = self.next;
        self.next += 1;
        Open {
            id,
            sums: SessionSums::empty(),
            latest: [None; 4],
            names: HashSet::new(),
            fresh: Vec::new(),
        }
    }

    pub(super) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut put = connection.prepare_cached(&format!(
            "INSERT INTO sessions (id, name, workload, user, experiment, variant, model_us, \
             ttft_p50_us, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, \
             ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
             ON CONFLICT (id) DO UPDATE SET workload = excluded.workload, \
             user = excluded.user, experiment = excluded.experiment, \
             variant = excluded.variant, model_us = excluded.model_us, \
             ttft_p50_us = excluded.ttft_p50_us, started_us = excluded.started_us, \
             last_us = excluded.last_us, calls = excluded.calls, errors = excluded.errors, \
             input_tokens = excluded.input_tokens, \
             cached_input_tokens = excluded.cached_input_tokens, \
             output_tokens = excluded.output_tokens, \
             reasoning_tokens = excluded.reasoning_tokens, \
             cost_nano_usd = excluded.cost_nano_usd, \
             unpriced_calls = excluded.unpriced_calls, \
             decode_tokens = excluded.decode_tokens, decode_us = excluded.decode_us, \
             ttft = excluded.ttft, busy = excluded.busy"
        ))?;
        let mut call = connection
            .prepare_cached("INSERT OR IGNORE INTO session_names (session, name) VALUES (?, ?)")?;
        for (name, open) in &self.open {
            let (session, sums) = (&open.sums, &open.sums.sums);
            let [workload, user, experiment, variant] = open.latest;
            let ttft = sums
                .ttft
                .quantile(0.5)
                .map(|ttft| (ttft * 1e6).round() as i64);
            put.execute(params![
                open.id,
                name,
                workload,
                user,
                experiment,
                variant,
                session.busy.length(),
                ttft,
                session.started_us,
                session.last_us,
                sums.calls,
                sums.errors,
                sums.input,
                sums.cached_input,
                sums.output,
                sums.reasoning,
                sums.cost_nano,
                sums.unpriced,
                sums.decode_tokens,
                sums.decode_us,
                sums.ttft.encode(),
                session.busy.encode(),
            ])?;
            for fresh in &open.fresh {
                call.execute([open.id, *fresh])?;
            }
        }
        Ok(())
    }
}

impl Open {
    fn called(&mut self, name: i64, dictionary: &Dictionary) {
        if self.names.contains(&name) {
            return;
        }
        let kind = dictionary.kind(name);
        let alike = self
            .names
            .iter()
            .filter(|known| dictionary.kind(**known) == kind);
        if alike.count() < MAX_NAMES {
            self.names.insert(name);
            self.fresh.push(name);
        }
    }
}

fn load(connection: &Connection, name: &str) -> rusqlite::Result<Option<Open>> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, id, workload, user, experiment, variant FROM sessions WHERE name = ?"
    ))?;
    let found = find.query_row([name], |row| {
        let latest = [row.get(15)?, row.get(16)?, row.get(17)?, row.get(18)?];
        Ok((row.get::<_, i64>(14)?, read(row)?, latest))
    });
    let Some((id, sums, latest)) = found.optional()? else {
        return Ok(None);
    };
    let mut names =
        connection.prepare_cached("SELECT name FROM session_names WHERE session = ?")?;
    let names = names.query_map([id], |row| row.get(0))?;
    Ok(Some(Open {
        id,
        sums,
        latest,
        names: names.collect::<Result<_, _>>()?,
        fresh: Vec::new(),
    }))
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<SessionSums> {
    let mut sums = Sums {
        calls: row.get(2)?,
        errors: row.get(3)?,
        input: row.get(4)?,
        cached_input: row.get(5)?,
        output: row.get(6)?,
        reasoning: row.get(7)?,
        cost_nano: row.get(8)?,
        unpriced: row.get(9)?,
        decode_tokens: row.get(10)?,
        decode_us: row.get(11)?,
        ..Sums::default()
    };
    if let Some(bytes) = row.get_ref(12)?.as_blob_or_null()? {
        sums.ttft.merge_encoded(bytes);
    }
    Ok(SessionSums {
        sums,
        started_us: row.get(0)?,
        last_us: row.get(1)?,
        busy: IntervalUnion::decode(row.get_ref(13)?.as_blob()?),
    })
}
