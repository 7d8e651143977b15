//! Serves recorded bodies, with the requested cuts and pace.

use super::profile::{Cut, Fault, FaultKind, Profile};
use super::stream::Source;
use super::text_gen::Random;
use super::truth::{ChunkTokens, ResponseSummary};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use std::io;
use std::path::{Component, Path};
use std::time::Duration;
use tokengauge_core::call::Channel;

/// A body and the facts of its transport, from the folder `<name>/`.
#[derive(Clone, Debug)]
pub struct Recording {
    pub body: Bytes,
    pub meta: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Meta {
    pub status: Option<u16>,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub framing: Option<String>,
    pub stream: bool,
}

impl Recording {
    /// Reads `<folder>/<name>/response.body` and its `meta.json`.
    pub async fn read(folder: &Path, name: &str) -> io::Result<Recording> {
        let inside = Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !inside || name.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a valid name of a recording",
            ));
        }
        let folder = folder.join(name);
        let body = tokio::fs::read(folder.join("response.body")).await?;
        let meta = tokio::fs::read(folder.join("meta.json")).await?;
        let meta = serde_json::from_slice(&meta)?;
        Ok(Recording {
            body: body.into(),
            meta,
        })
    }

    /// The recorded media type, or otherwise the usual one of the framing.
    pub fn content_type(&self) -> String {
        let implied = match self.meta.framing.as_deref() {
            Some("sse") => "text/event-stream",
            Some("ndjson" | "websocket-ndjson") => "application/x-ndjson",
            Some("aws-eventstream") => "application/vnd.amazon.eventstream",
            _ => "application/json",
        };
        self.meta
            .content_type
            .clone()
            .unwrap_or_else(|| implied.to_owned())
    }
}

pub struct RecordedChunks {
    chunks: Vec<Bytes>,
    stalls: Vec<(Duration, u64)>,
    fault: Option<Fault>,
}

impl RecordedChunks {
    /// Positions in `profile` count chunks here.
    pub fn new(recording: &Recording, profile: &Profile, random: &mut Random) -> RecordedChunks {
        let mut chunks = cut(recording, profile.cut, random);
        let fault = profile
            .fault
            .clone()
            .filter(|fault| fault.after <= chunks.len() as u64);
        if let Some(fault) = &fault {
            chunks.truncate(fault.after as usize);
        }
        RecordedChunks {
            chunks,
            stalls: profile.stalls.clone(),
            fault,
        }
    }
}

fn cut(recording: &Recording, cut: Cut, random: &mut Random) -> Vec<Bytes> {
    let mut rest = recording.body.clone();
    let mut chunks = Vec::new();
    let mut places = match cut {
        Cut::Random(Some(seed)) => Random::new(seed),
        _ => random.clone(),
    };
    while !rest.is_empty() {
        let length = match cut {
            Cut::Bytes(count) => count as usize,
            Cut::Random(_) => 1 + places.below(rest.len().min(1500) as u64) as usize,
            Cut::Events => event_length(&recording.meta, &rest),
        };
        chunks.push(rest.split_to(length.clamp(1, rest.len())));
    }
    chunks
}

/// The length of the first event, including its end.
fn event_length(meta: &Meta, rest: &[u8]) -> usize {
    if meta.content_encoding.is_some() {
        // In a compressed body the ends of events are not visible.
        return 512;
    }
    let after = |needle: &[u8]| {
        memchr::memmem::find(rest, needle).map_or(rest.len(), |at| at + needle.len())
    };
    match meta.framing.as_deref() {
        Some("sse") => after(b"\n\n").min(after(b"\r\n\r\n")),
        Some("ndjson" | "json-array" | "websocket-ndjson") => after(b"\n"),
        Some("aws-eventstream") => rest
            .first_chunk()
            .map_or(rest.len(), |n| u32::from_be_bytes(*n) as usize),
        _ => rest.len(),
    }
}

impl Source for RecordedChunks {
    fn open(&mut self, _out: &mut BytesMut) {}

    fn step(&self, n: usize) -> Option<(u64, Duration)> {
        self.chunks.get(n)?;
        let due = self.stalls.iter().filter(|(_, at)| *at == n as u64);
        Some((n as u64, due.map(|(pause, _)| *pause).sum()))
    }

    /// The content of a recorded chunk is unknown, so it counts as one token.
    fn chunk(&mut self, n: usize, out: &mut BytesMut) -> ChunkTokens {
        out.extend_from_slice(&self.chunks[n]);
        let mut carried = ChunkTokens::default();
        carried.add(Channel::Answer, 1);
        carried
    }

    fn ping(&mut self, _out: &mut BytesMut) {}

    fn close(&mut self, _out: &mut BytesMut) -> ResponseSummary {
        ResponseSummary::default()
    }

    fn fault(&self) -> Option<FaultKind> {
        self.fault.as_ref().map(|fault| fault.kind.clone())
    }

    /// A recording contains its own errors, so this function only ends the recording.
    fn error(&mut self, kind: Option<&str>, _out: &mut BytesMut) -> String {
        kind.unwrap_or("cut").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(framing: &str, body: &str, settings: &str) -> Vec<String> {
        let meta = Meta {
            framing: Some(framing.into()),
            ..Meta::default()
        };
        let recording = Recording {
            body: body.to_owned().into(),
            meta,
        };
        let profile: Profile = settings.parse().expect(settings);
        let played = RecordedChunks::new(&recording, &profile, &mut Random::new(1));
        played
            .chunks
            .iter()
            .map(|chunk| String::from_utf8_lossy(chunk).into_owned())
            .collect()
    }

    #[test]
    fn chunks_are_cut_where_asked_and_lose_nothing() {
        let body = "data: 1\n\ndata: 2\r\n\r\ndata: 3";
        assert_eq!(
            chunks("sse", body, ""),
            ["data: 1\n\n", "data: 2\r\n\r\n", "data: 3"]
        );
        assert_eq!(chunks("ndjson", "{}\n{}\n", ""), ["{}\n", "{}\n"]);
        assert_eq!(
            chunks("sse", body, "cut=20"),
            ["data: 1\n\ndata: 2\r\n\r\n", "data: 3"]
        );
        let random = chunks("sse", body, "cut=random:3");
        assert_eq!(random.concat(), body);
        assert_eq!(random, chunks("sse", body, "cut=random:3"));
        assert_eq!(chunks("sse", body, "close=@1"), ["data: 1\n\n"]);
    }

    #[tokio::test]
    async fn a_name_cannot_leave_the_folder() {
        for name in ["../x", "/etc", "a/../../b", ""] {
            let error = Recording::read(Path::new("."), name).await.expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
