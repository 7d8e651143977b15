use super::dictionary::{Dictionary, NameKind};
use super::row::whole;
use crate::query::CapacitySums;
use crate::query::Dimension;
use rusqlite::{Connection, params};
use tokengauge_core::throughput::BusySecond;

pub(super) fn save(
    second: &BusySecond,
    dictionary: &mut Dictionary,
    connection: &Connection,
) -> rusqlite::Result<()> {
    let upstream = dictionary.name(
        connection,
        NameKind::Of(Dimension::Upstream),
        &second.upstream,
    )?;
    let mut sums = CapacitySums::default();
    sums.add(second);
    let hour = whole(second.second);
    let mut add = connection.prepare_cached(
        "INSERT INTO capacity VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (hour, upstream, concurrency) DO UPDATE SET
         busy_ms = busy_ms + excluded.busy_ms, tokens = tokens + excluded.tokens,
         decode_tokens = decode_tokens + excluded.decode_tokens,
         decode_us = decode_us + excluded.decode_us",
    )?;
    add.execute(params![
        hour - hour.rem_euclid(3600),
        upstream,
        CapacitySums::concurrency(second),
        whole(sums.busy_millis),
        whole(sums.tokens),
        whole(sums.decoded),
        whole(sums.decode_millis * 1000),
    ])?;
    Ok(())
}
