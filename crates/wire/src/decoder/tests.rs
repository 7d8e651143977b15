use super::*;

const MEMORY: usize = 256 * 1024;

fn decoder(memory: &Arc<Memory>, framing: Framing) -> Decoder {
    let limits = Limits::default();
    Decoder::with_framing_within(memory, Dialect::OpenaiChat, framing, None, limits)
}

/// The beginning and the end of `length` bytes of one event or of one body.
fn event(framing: Framing, length: usize) -> (Vec<u8>, &'static [u8]) {
    let header = |first: u8, length: u64| [&[first, 127][..], &length.to_be_bytes()].concat();
    match framing {
        Framing::Sse => (b"data: ".to_vec(), b"\n\n"),
        Framing::Ndjson => (Vec::new(), b"\n"),
        Framing::JsonArray => (b"[\"".to_vec(), b"\","),
        Framing::WebSocket => (header(0x81, length as u64), b""),
        Framing::Json | Framing::AwsEventStream => (Vec::new(), b""),
    }
}

const STREAMS: [Framing; 4] = [
    Framing::Sse,
    Framing::Ndjson,
    Framing::JsonArray,
    Framing::WebSocket,
];

#[test]
fn what_has_not_come_whole_is_held_within_the_memory_and_given_back() {
    for framing in STREAMS.into_iter().chain([Framing::Json]) {
        let memory = Memory::new(MEMORY);
        let mut decoder = decoder(&memory, framing);
        let (begin, _) = event(framing, 2 * MEMORY);
        decoder.push(&begin, &mut |_| ()).expect("little");
        let piece = [b'x'; 1000];
        let pieces = (0..2 * MEMORY / piece.len()).map(|_| {
            let pushed = decoder.push(&piece, &mut |_| ());
            assert!(memory.used() <= MEMORY, "{framing:?}");
            pushed
        });
        assert_eq!(pieces.last(), Some(Err(DecodeError::Memory)), "{framing:?}");
        drop(decoder);
        assert_eq!(memory.used(), 0, "{framing:?}");
    }
}

#[test]
fn an_event_that_came_whole_leaves_nothing_held() {
    for framing in STREAMS {
        let memory = Memory::new(4 * MEMORY);
        let mut decoder = decoder(&memory, framing);
        let (begin, end) = event(framing, MEMORY);
        let all = [&begin, &vec![b'x'; MEMORY][..], end].concat();
        let mut most = 0;
        for piece in all.chunks(1000) {
            decoder.push(piece, &mut |_| ()).expect("it fits");
            most = most.max(memory.used());
        }
        assert_eq!(decoder.messages(), 1, "{framing:?}");
        assert!(most >= MEMORY / 2, "{framing:?}: {most}");
        assert_eq!(memory.used(), 0, "{framing:?}");
    }
}

#[test]
fn a_structure_of_more_items_than_anybody_sends_is_not_read() {
    let events = |body: &[u8]| {
        let memory = Memory::unbounded();
        let mut decoder = decoder(&memory, Framing::Json);
        let (mut finishes, mut unparsed) = (0, false);
        let mut sink = |event: tokengauge_core::call::Event<'_>| match event {
            tokengauge_core::call::Event::Finish { .. } => finishes += 1,
            tokengauge_core::call::Event::Damaged => unparsed = true,
            _ => {}
        };
        decoder.push(body, &mut sink).expect("it fits");
        decoder.finish(&mut sink).expect("it fits");
        (finishes, unparsed)
    };
    let choices = |count: usize| {
        let choices: Vec<_> = (0..count)
            .map(|n| format!("{{\"index\":{n},\"message\":{{}},\"finish_reason\":\"stop\"}}"))
            .collect();
        format!("{{\"choices\":[{}]}}", choices.join(",")).into_bytes()
    };
    assert_eq!(events(&choices(1000)), (1000, false));
    assert_eq!(events(&choices(100_000)), (0, true));
}
