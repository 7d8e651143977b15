use super::file;
use super::problems::Problems;
use super::scalar::Span;
use tokengauge_sessions::{RunawayLimits, TimesUsual};

/// The ceilings of sessions. 0 disables a ceiling.
pub(super) fn limits(written: &file::Runaway, problems: &mut Problems<'_>) -> RunawayLimits {
    let default = RunawayLimits::default();
    let ceiling = |written: Option<f64>, default: Option<f64>| {
        written.map_or(default, |limit| (limit > 0.0).then_some(limit))
    };
    if let Some(times) = &written.times_usual {
        let reason = "is deprecated and will be removed in the next minor version; set tokens_per_minute and usd_per_minute";
        problems.warn(times, reason);
    }
    let window = written.window.as_ref();
    let same = written.same_tool_calls;
    RunawayLimits {
        window: window.map_or(default.window, |Span(window)| *window),
        tokens_per_minute: ceiling(written.tokens_per_minute, default.tokens_per_minute),
        usd_per_minute: ceiling(written.usd_per_minute, default.usd_per_minute),
        same_tool_calls: same.map_or(default.same_tool_calls, |most| (most > 0).then_some(most)),
        times_usual: times_usual(written),
    }
}

fn times_usual(written: &file::Runaway) -> Option<TimesUsual> {
    let over = written.usual_over.as_ref();
    let least = written.usual_sessions;
    Some(TimesUsual {
        times: *written.times_usual.as_ref()?.get_ref(),
        over: over.map_or(TimesUsual::OVER, |Span(over)| *over),
        min_sessions: least.map_or(TimesUsual::MIN_SESSIONS, |least| {
            usize::try_from(least).unwrap_or(usize::MAX)
        }),
    })
}
