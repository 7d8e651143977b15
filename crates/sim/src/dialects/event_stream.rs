//! The binary framing of AWS.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::{BufMut, Bytes, BytesMut};

pub fn event(name: &'static str, payload: String, out: &mut BytesMut) {
    write("event", ":event-type", name.to_owned(), payload, out);
}

/// Writes an exception, which ends a stream.
pub fn exception(name: &str, payload: String, out: &mut BytesMut) {
    write(
        "exception",
        ":exception-type",
        name.to_owned(),
        payload,
        out,
    );
}

fn write(
    kind: &'static str,
    named: &'static str,
    name: String,
    payload: String,
    out: &mut BytesMut,
) {
    let text = |value: String| HeaderValue::String(value.into());
    let message = Message::new(Bytes::from(payload))
        .add_header(Header::new(named, text(name)))
        .add_header(Header::new(
            ":content-type",
            text("application/json".into()),
        ))
        .add_header(Header::new(":message-type", text(kind.into())));
    let mut framed = Vec::new();
    // This fails only for headers that are longer than a frame, and these have a few bytes.
    if write_message_to(&message, &mut framed).is_ok() {
        out.put_slice(&framed);
    }
}
