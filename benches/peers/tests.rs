//! Tests of the benchmark's computations: intervals of ratios and their verdicts, chunks, events of recorded bodies,
//! and requests to the backend.

#![allow(dead_code)]

mod chunked;
mod folded;
mod recorded;
mod recorded_events;
mod recorded_files;
mod statistics;
mod wire;

use chunked::{Dechunk, LAST_CHUNK, push_chunk};
use folded::fold;
use recorded::{Framing, Library, RecordedSpec};
use recorded_events::{longest_run, split};
use statistics::{Bound, ROUNDS_TO_MEET, Verdict, interval, median};
use wire::{StreamRequest, answering_model, instants, take_instants, write_event};

fn assert_near(is: f64, should: f64) {
    assert!((is / should - 1.0).abs() < 1e-6, "{is}, should be {should}");
}

/// The mean of the logarithms is 0.0430678, their standard deviation 0.1238410, and a table has
/// 3.182446 for t at 3 degrees of freedom.
#[test]
fn an_interval_uses_students_t_on_logarithms() {
    let found = interval(&[0.9, 1.1, 1.0, 1.2]).expect("an interval");
    assert_near(found.estimate, 1.044_008_68);
    assert_near(found.low, 0.857_285_56);
    assert_near(found.high, 1.271_401_48);
    assert_eq!(found.rounds, 4);
}

#[test]
fn twice_and_half_as_much_cancel_out() {
    let found = interval(&[2.0, 0.5]).expect("an interval");
    assert_near(found.estimate, 1.0);
    assert!(found.low < 0.5 && found.high > 2.0, "{found:?}");
}

#[test]
fn one_round_decides_nothing_and_nothing_has_no_interval() {
    let one = interval(&[0.5]).expect("an estimate");
    assert_eq!((one.low, one.high), (0.0, f64::INFINITY));
    let verdict = Bound::AtMost(1.0).judge(&one);
    assert_eq!(verdict, Verdict::Undecided { rounds: 1 });
    for none in [&[][..], &[1.0, 0.0], &[1.0, -1.0], &[1.0, f64::NAN]] {
        assert_eq!(interval(none), None, "{none:?}");
    }
}

#[test]
fn a_goal_is_met_only_by_a_whole_interval_over_enough_rounds() {
    let values = |around: f64, rounds: usize| -> Vec<f64> {
        let value = |round: usize| around * if round.is_multiple_of(2) { 1.01 } else { 0.99 };
        (0..rounds).map(value).collect()
    };
    let judged = |bound: Bound, around, rounds| {
        let found = interval(&values(around, rounds)).expect("an interval");
        bound.judge(&found)
    };
    let few = ROUNDS_TO_MEET - 1;
    let undecided = |rounds| Verdict::Undecided { rounds };
    for (bound, around, rounds, verdict) in [
        (Bound::AtMost(1.05), 1.0, ROUNDS_TO_MEET, Verdict::Met),
        (Bound::AtMost(1.05), 1.0, few, undecided(few)),
        (Bound::AtMost(1.05), 1.05, ROUNDS_TO_MEET, undecided(15)),
        (Bound::AtMost(1.05), 1.1, few, Verdict::Missed),
        (Bound::AtLeast(0.6), 0.65, ROUNDS_TO_MEET, Verdict::Met),
        (Bound::AtLeast(0.6), 0.6, ROUNDS_TO_MEET, undecided(15)),
        (Bound::AtLeast(0.6), 0.5, few, Verdict::Missed),
    ] {
        assert_eq!(judged(bound, around, rounds), verdict, "{bound} {around}");
    }
}

#[test]
fn a_median_is_the_middle_or_between_two() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert!(median(&[]).is_nan());
}

#[test]
fn chunks_come_back_however_they_are_cut() {
    let payload = b"data: one\n\n".repeat(30);
    let mut coded = Vec::new();
    payload
        .chunks(7)
        .for_each(|piece| push_chunk(piece, &mut coded));
    coded.extend_from_slice(LAST_CHUNK);
    for cut in 1..coded.len() {
        let (mut dechunk, mut decoded) = (Dechunk::default(), Vec::new());
        for piece in coded.chunks(cut) {
            dechunk.feed(piece, &mut decoded).expect("valid");
        }
        assert!(matches!(dechunk, Dechunk::Over), "cut every {cut}");
        assert_eq!(decoded, payload, "cut every {cut}");
    }
}

#[test]
fn the_backend_reads_what_the_request_asks_for() {
    let spec = StreamRequest {
        events: 100,
        interval_us: 20_000,
        phase_us: 7,
        per_write: 48,
        per_chunk: 3,
        without_usage: true,
        one_write: true,
        model: 12,
    };
    let body = spec.body(" more");
    let json: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(json["model"], "bench-12");
    let read = StreamRequest::of_body(body.as_bytes()).expect("a specification");
    assert_eq!(format!("{read:?}"), format!("{spec:?}"));
    assert!(StreamRequest::of_body(b"{}").is_none());
}

#[test]
fn instants_are_found_across_any_cut() {
    let mut stream = String::new();
    for event in 0..5 {
        write_event(
            event,
            u64::from(event) + 1,
            &answering_model(0),
            &mut stream,
        );
    }
    for cut in 1..stream.len() {
        let (mut unread, mut found) = (Vec::new(), Vec::new());
        for piece in stream.as_bytes().chunks(cut) {
            unread.extend_from_slice(piece);
            take_instants(&mut unread, |instant| found.push(instant));
        }
        assert_eq!(found, [1, 2, 3, 4, 5], "cut every {cut}");
    }
    let mut whole = Vec::new();
    instants(stream.as_bytes(), |instant| whole.push(instant));
    assert_eq!(whole, [1, 2, 3, 4, 5]);
}

#[test]
fn events_are_cut_where_their_framing_ends_them() {
    let lengths = |framing, body: &[u8]| -> Vec<usize> {
        let events = split(framing, body);
        assert_eq!(
            events.iter().map(ExactSizeIterator::len).sum::<usize>(),
            body.len()
        );
        events.iter().map(ExactSizeIterator::len).collect()
    };
    assert_eq!(
        lengths(Framing::Sse, b"data: 1\n\ndata: 2\r\n\r\ndata"),
        [9, 11, 4]
    );
    assert_eq!(lengths(Framing::Ndjson, b"{}\n{\"a\":1}\n{}"), [3, 8, 2]);
    assert_eq!(
        lengths(Framing::EventStream, b"\0\0\0\x05x\0\0\0\x04\0\0"),
        [5, 4, 2]
    );
    assert_eq!(lengths(Framing::Pieces(4), b"123456789"), [4, 4, 1]);
}

#[test]
fn similar_events_differ_only_in_texts_numbers_and_spaces() {
    let body = b"data: {\"start\":1}\n\n\
        data: {\"text\":\"a\",\"at\":1}\n\ndata: {\"text\":\"b\\\"\",\"at\":22}  \n\ndata: {\"text\":\"\",\"at\":-3.5}\n\n\
        data: {\"stop\":1}\n\n";
    let events = split(Framing::Sse, body);
    assert_eq!(events.len(), 5);
    assert_eq!(longest_run(Framing::Sse, body, &events), 1..4);
}

/// If `TOKENGAUGE_CORPUS` names a folder, there are some hundred recorded bodies.
#[test]
fn recorded_bodies_of_all_dialects_are_whole_and_can_be_repeated() {
    let library = Library::default();
    let all = library.all().expect("readable");
    for dialect in recorded_files::dialects() {
        let of_dialect = all.iter().filter(|body| body.dialect == dialect);
        assert!(of_dialect.count() > 0, "{dialect}");
    }
    assert!(all.iter().any(|body| body.can_be_repeated()));
    let mut bodies = all.iter();
    let bedrock = bodies.find(|body| body.name == "bedrock_invoke/anthropic.chunks");
    assert!(
        !bedrock.expect("a fixture").can_be_repeated(),
        "its events are similar only on the outside"
    );
    for body in all.iter() {
        let once = body.events(false).count();
        assert!(once > 0, "{}", body.name);
        if body.can_be_repeated() {
            assert!(body.events(true).count() >= 1000, "{}", body.name);
            let ends = |repeated| {
                let (first, last) = (body.events(repeated).next(), body.events(repeated).last());
                (first.map(<[u8]>::to_vec), last.map(<[u8]>::to_vec))
            };
            assert_eq!(ends(true), ends(false), "{}", body.name);
        } else {
            assert_eq!(body.events(true).count(), once, "{}", body.name);
        }
    }
}

#[test]
fn the_backend_reads_which_recording_is_meant() {
    let spec = RecordedSpec {
        index: 17,
        per_write: 48,
        repeated: true,
    };
    let library = Library::default();
    let all = library.all().expect("readable");
    let request = String::from_utf8(spec.request(&all[17])).expect("text");
    assert!(request.starts_with(&format!("POST {} HTTP/1.1\r\n", all[17].path)));
    let header = format!("{}: ", RecordedSpec::HEADER);
    let value = request.lines().find_map(|line| line.strip_prefix(&header));
    let read = RecordedSpec::of_header(value.expect("the header"));
    assert_eq!(read, Some(spec));
    for wrong in ["", "1", "1 0 0", "x 1 0"] {
        assert_eq!(RecordedSpec::of_header(wrong), None, "{wrong}");
    }
}

#[test]
fn stacks_are_folded_from_the_outermost_function() {
    let script = "traffic \n\t  7f00 inner+0x12 (bin)\n\t  7f01 <A as B>::outer\n\n\
        traffic \n\t  7f09 inner\n\t  7f01 <A as B>::outer\n\nmain \n\t  1 start\n\n";
    assert_eq!(
        fold(script),
        "main;start 1\ntraffic;<A as B>::outer;inner 2\n"
    );
}
