//! Requesting usage for the agent: the bytes removed from a response do not depend on cuts, and a request stays valid
//! JSON.

use bytes::Bytes;
use tokengauge_core::observer::Filter;
use tokengauge_wire::inject::{UsageFilter, rewrite_request};

pub fn run(input: &[u8]) {
    if let Some(rewritten) = rewrite_request(input) {
        assert!(rewritten.len() > input.len());
        assert_eq!(
            rewrite_request(&rewritten),
            None,
            "now the agent has an opinion"
        );
    }
    let [cut, body @ ..] = input else { return };
    assert_eq!(
        filtered(body, body.len().max(1)),
        filtered(body, usize::from(*cut).max(1))
    );
}

fn filtered(body: &[u8], length: usize) -> Vec<u8> {
    let mut filter = UsageFilter::default();
    let mut out = Vec::new();
    for piece in body.chunks(length) {
        out.extend(filter.push(Bytes::copy_from_slice(piece)));
    }
    out.extend(filter.finish());
    assert!(out.len() <= body.len());
    out
}
