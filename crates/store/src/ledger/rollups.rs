//! Rollups: sums of each series by five minutes, hour and day, so that queries need not read
//! millions of calls.

use super::aggregates::Sums;
use super::prompt_blob;
use super::row::Entry;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use std::collections::HashMap;

/// Lengths of the steps in seconds. Days and hours are kept as long as the calls, the finest steps
/// for [`FINE_FOR`].
pub(super) const LEVELS: [i64; 3] = [300, 3_600, 86_400];
/// How long the finest steps are kept, in seconds.
pub(super) const FINE_FOR: i64 = 8 * 86_400;

/// The columns of `rollups` after its key, in the order of [`read`].
pub(super) const COLUMNS: &str = "calls, input_tokens, cached_input_tokens, output_tokens, \
    reasoning_tokens, cost_nano_usd, unpriced_calls, priced_output_tokens, decode_tokens, \
    decode_us, tps_below_5, tps_below_15, tps_below_30, tps_below_60, tps_from_60, tps, ttft, \
    ttft_us, waited_us, reported_millitokens, reported_us, tps_reported, prompt";

#[derive(Debug, Default)]
pub(super) struct Rollups {
    sums: HashMap<(i64, i64, i64), Sums>,
}

impl Rollups {
    pub(super) fn add(&mut self, entry: &Entry<'_>, series: i64) {
        let second = entry.started_us.div_euclid(1_000_000);
        for level in LEVELS {
            let start = second - second.rem_euclid(level);
            let sums = self.sums.entry((level, start, series)).or_default();
            sums.add(&entry.share);
        }
    }

    pub(super) fn save(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut find = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM rollups WHERE level = ? AND start = ? AND series = ?"
        ))?;
        let mut put = connection.prepare_cached(&format!(
            "INSERT OR REPLACE INTO rollups (level, start, series, {COLUMNS}) VALUES (?, ?, ?, \
             ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ))?;
        for ((level, start, series), mut sums) in self.sums {
            let found = |row: &Row<'_>| read(row, &mut sums, [true; 4]);
            find.query_row([level, start, series], found).optional()?;
            write(&mut put, [level, start, series], &sums)?;
        }
        Ok(())
    }
}

/// Adds a row that begins with [`COLUMNS`] to `sums`. `wanted` selects the sketches of TPS, TTFT
/// and reported TPS, and the parts of prompts.
pub(super) fn read(row: &Row<'_>, sums: &mut Sums, wanted: [bool; 4]) -> rusqlite::Result<()> {
    let [tps, ttft, reported, prompt] = wanted;
    let mut found = Sums {
        calls: row.get(0)?,
        errors: 0,
        input: row.get(1)?,
        cached_input: row.get(2)?,
        output: row.get(3)?,
        reasoning: row.get(4)?,
        cost_nano: row.get(5)?,
        unpriced: row.get(6)?,
        priced_output: row.get(7)?,
        decode_tokens: row.get(8)?,
        decode_us: row.get(9)?,
        ttft_us: row.get(17)?,
        waited_us: row.get(18)?,
        reported_millitokens: row.get(19)?,
        reported_us: row.get(20)?,
        ..Sums::default()
    };
    for (at, band) in found.bands.iter_mut().enumerate() {
        *band = row.get(10 + at)?;
    }
    sums.merge_counts(&found);
    let sketches = [
        (tps, 15, &mut sums.tps),
        (ttft, 16, &mut sums.ttft),
        (reported, 21, &mut sums.reported),
    ];
    for (wanted, at, sketch) in sketches {
        if let Some(bytes) = row.get_ref(at)?.as_blob_or_null()?.filter(|_| wanted) {
            sketch.merge_encoded(bytes);
        }
    }
    if let Some(bytes) = row.get_ref(22)?.as_blob_or_null()?.filter(|_| prompt) {
        prompt_blob::merge(&mut sums.prompt, bytes);
    }
    Ok(())
}

fn write(put: &mut CachedStatement<'_>, key: [i64; 3], sums: &Sums) -> rusqlite::Result<usize> {
    let [level, start, series] = key;
    let bands = &sums.bands;
    put.execute(params![
        level,
        start,
        series,
        sums.calls,
        sums.input,
        sums.cached_input,
        sums.output,
        sums.reasoning,
        sums.cost_nano,
        sums.unpriced,
        sums.priced_output,
        sums.decode_tokens,
        sums.decode_us,
        bands[0],
        bands[1],
        bands[2],
        bands[3],
        bands[4],
        sums.tps.encode(),
        sums.ttft.encode(),
        sums.ttft_us,
        sums.waited_us,
        sums.reported_millitokens,
        sums.reported_us,
        sums.reported.encode(),
        prompt_blob::encode(&sums.prompt),
    ])
}
