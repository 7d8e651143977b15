//! Columns of the table for each kind of scenario.

use crate::metrics::*;
use crate::scenario::Work;

static SHORT: [&Metric; 6] = [
    &CALLS_PER_SECOND,
    &CPU_PER_CALL,
    &FIRST_P50,
    &FIRST_P99,
    &FIRST_P999,
    &BUSY,
];
static SHORT_AND_SILENT: [&Metric; 7] = [
    &CALLS_PER_SECOND,
    &CPU_PER_CALL,
    &FIRST_P50,
    &FIRST_P99,
    &FIRST_P999,
    &BUSY,
    &OPEN,
];
static FIRST_TOKEN: [&Metric; 4] = [&FIRST_P50, &FIRST_P99, &FIRST_P999, &CPU_PER_CALL];
static PACED: [&Metric; 9] = [
    &CHUNK_P50,
    &CHUNK_P99,
    &CHUNK_P999,
    &CPU_PER_EVENT,
    &EVENTS_PER_CORE,
    &KB_PER_STREAM,
    &IDLE_MB,
    &OPEN,
    &DELIVERED,
];
static FLAT_OUT_SINGLE: [&Metric; 6] = [
    &EVENTS_PER_SECOND,
    &CPU_PER_EVENT,
    &EVENTS_PER_CORE,
    &CHUNK_P50,
    &CHUNK_P99,
    &BUSY,
];
static FLAT_OUT: [&Metric; 4] = [&EVENTS_PER_SECOND, &CPU_PER_EVENT, &EVENTS_PER_CORE, &BUSY];
static RECORDED: [&Metric; 6] = [
    &MEGABYTES_PER_SECOND,
    &EVENTS_PER_SECOND,
    &CALLS_PER_SECOND,
    &CPU_PER_MEGABYTE,
    &CPU_PER_EVENT,
    &BUSY,
];
static NOISY: [&Metric; 6] = [
    &CHUNK_P50,
    &CHUNK_P99,
    &CHUNK_P999,
    &BUSY,
    &BUSY_MB,
    &DELIVERED,
];
static SCRAPED: [&Metric; 7] = [
    &CHUNK_P50,
    &CHUNK_P99,
    &CHUNK_P999,
    &SCRAPE_P50,
    &SCRAPE_P99,
    &SCRAPE_KB,
    &CPU_PER_EVENT,
];

pub fn columns(work: &Work) -> &'static [&'static Metric] {
    match work {
        Work::Short { silent: 0, .. } => &SHORT,
        Work::Short { .. } => &SHORT_AND_SILENT,
        Work::FirstToken { .. } => &FIRST_TOKEN,
        Work::Paced(_) => &PACED,
        Work::FlatOut { per_write: 1, .. } => &FLAT_OUT_SINGLE,
        Work::FlatOut { .. } => &FLAT_OUT,
        Work::Recorded { .. } => &RECORDED,
        Work::Noisy(_) => &NOISY,
        Work::Scraped(_) => &SCRAPED,
    }
}
