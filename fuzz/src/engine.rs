//! Metrics of engines: nothing panics, and neither comments nor line ends change the result.

use tokengauge_telemetry::engine::View;

pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let view = View::read(&text);
    if let Some(share) = view.kv_cache {
        assert!(!share.is_nan(), "{view:?}");
    }
    // Readers disagree whether a carriage return within a line is white space or a line end.
    let lines: Vec<&str> = text.split('\n').map(|line| line.trim_end()).collect();
    for between in ["\r\n", "\n# HELP a b\n", "\n\nother{a=\"}\"} 1\n"] {
        let other = View::read(&lines.join(between));
        assert_eq!(format!("{view:?}"), format!("{other:?}"), "{between:?}");
    }
}
