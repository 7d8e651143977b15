//! The instants of one generation and the values computed from them, with the formulas of
//! `docs/measurement.md`. Functions take the time as an argument.

use std::time::{Duration, Instant};
use tokengauge_core::call::{SEGMENT_SECONDS, ServerTool, SpeedSegment, seconds};
use tokengauge_core::inter_token::{ClassifiedLatency, InterToken};

const SEGMENT: Duration = Duration::from_secs(SEGMENT_SECONDS);
/// The limit for segments of one generation, which covers an hour. Later tokens count in the last
/// segment.
const MAX_SEGMENTS: usize = 360;

/// The limit for stalls of one generation that are kept. Further stalls are only counted.
const MAX_STALLED: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) all: u64,
    pub(crate) answer: u64,
    pub(crate) answered: bool,
}

/// The chunks of a run of tokens, either of all channels or of the answer only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) first: Instant,
    pub(crate) first_tokens: u64,
    pub(crate) last: Instant,
    pub(crate) chunks: u64,
    paused_millis: u32,
}

impl Span {
    fn extend(span: &mut Option<Span>, at: Instant, tokens: u64, paused: Duration) {
        match span {
            Some(span) => {
                span.last = span.last.max(at);
                span.chunks += 1;
                span.pause(paused);
            }
            None => {
                *span = Some(Span {
                    first: at,
                    first_tokens: tokens,
                    last: at,
                    chunks: 1,
                    paused_millis: 0,
                });
            }
        }
    }

    pub(crate) fn paused(&self) -> Duration {
        Duration::from_millis(u64::from(self.paused_millis))
    }

    fn pause(&mut self, paused: Duration) {
        let millis = u32::try_from(paused.as_millis()).unwrap_or(u32::MAX);
        self.paused_millis = self.paused_millis.saturating_add(millis);
    }

    pub(crate) fn duration(&self) -> Duration {
        let all = self.last.saturating_duration_since(self.first);
        all.saturating_sub(self.paused())
    }

    pub(crate) fn decoded(&self, total: u64) -> u64 {
        total.saturating_sub(self.first_tokens)
    }

    /// (n − n_first) / (last − first). It is infinite if all tokens came at once, and `None` if no
    /// token came after the first chunk.
    pub(crate) fn rate(&self, total: u64) -> Option<f64> {
        let decoded = self.decoded(total);
        (decoded > 0).then(|| decoded as f64 / self.duration().as_secs_f64())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) all: Option<Span>,
    pub(crate) answer: Option<Span>,
    pub(crate) longest_gap: Option<Duration>,
    pub(crate) stalls: u64,
    pub(crate) stalled: Vec<(Instant, Duration)>,
    pub(crate) inter_token: Option<Box<InterToken>>,
    /// Gaps between chunks with generated text, regardless of the number of tokens in them.
    pub(crate) inter_chunk: Option<Box<InterToken>>,
    /// The highest running count so far. A merge of tokens can lower the current count.
    highest: u64,
    grown: Option<Instant>,
    segments: Vec<u32>,
    /// Waits for the agent; `None` if there were none.
    blocked: Option<Box<AgentBlocked>>,
    server_tools: Option<Box<ServerTools>>,
}

#[derive(Debug, Default)]
struct ServerTools {
    /// The number of running tools, and since when at least one runs.
    running: u32,
    since: Option<Instant>,
    new: Duration,
}

#[derive(Debug, Default)]
struct AgentBlocked {
    all: Duration,
    since: Duration,
    decoding: Duration,
}

impl Timeline {
    /// Adds the time during which the agent did not read, before the next chunk could be read.
    pub(crate) fn blocked(&mut self, waited: Duration) {
        if waited > Duration::ZERO {
            let blocked = self.blocked.get_or_insert_default();
            blocked.all += waited;
            blocked.since += waited;
        }
    }

    pub(crate) fn agent_blocked(&self) -> Duration {
        self.blocked.as_ref().map(|it| it.all).unwrap_or_default()
    }

    fn blocked_since(&mut self) -> Duration {
        let Some(blocked) = &mut self.blocked else {
            return Duration::ZERO;
        };
        let since = std::mem::take(&mut blocked.since);
        if self.all.is_some() {
            blocked.decoding += since;
        }
        since
    }

    pub(crate) fn server_tool(&mut self, at: Instant, tool: ServerTool) {
        let tools = self.server_tools.get_or_insert_default();
        match tool {
            ServerTool::Began => {
                tools.running += 1;
                tools.since.get_or_insert(at);
            }
            ServerTool::Ended => {
                tools.running = tools.running.saturating_sub(1);
                if tools.running == 0
                    && let Some(since) = tools.since.take()
                {
                    tools.new += at.saturating_duration_since(since);
                }
            }
        }
    }

    fn paused_since(&mut self) -> Duration {
        let tools = self.server_tools.as_mut();
        tools.map_or(Duration::ZERO, |tools| std::mem::take(&mut tools.new))
    }

    /// Whether the agent set the pace: the proxy waited for it during more than a tenth of the time
    /// from the first to the last token.
    pub(crate) fn is_agent_limited(&self) -> bool {
        let decoding = self.all.map(|span| span.duration()).unwrap_or_default();
        let blocked = self.blocked.as_ref().map(|it| it.decoding);
        blocked.is_some_and(|blocked| blocked > decoding / 10)
    }

    /// Adds a chunk with generated text that arrived at `at` and raised the counts to `running`.
    pub(crate) fn chunk(&mut self, at: Instant, running: Running, stall_threshold: Duration) {
        let blocked = self.blocked_since();
        let paused = self.paused_since();
        if let Some(tools) = &mut self.server_tools
            && let Some(since) = &mut tools.since
        {
            // The model still writes the call, so the tool cannot run before now.
            *since = at;
        }
        let mut classified = None;
        if let Some(span) = &self.all {
            // A wait for the agent or for a tool is not a gap of the model.
            let gap = at
                .saturating_duration_since(span.last)
                .saturating_sub(blocked)
                .saturating_sub(paused);
            self.longest_gap = Some(self.longest_gap.unwrap_or_default().max(gap));
            if blocked.is_zero() && paused.is_zero() {
                let latency = ClassifiedLatency::new(gap.as_secs_f64());
                let inter_chunk = self.inter_chunk.get_or_insert_default();
                inter_chunk.record_classified(latency, 1);
                classified = Some(latency);
            } else {
                // The tokens of this gap were read late, or were not generated.
                self.grown = None;
            }
            if gap > stall_threshold {
                self.stalls += 1;
                if self.stalled.len() < MAX_STALLED {
                    self.stalled.push((at, gap));
                }
            }
        }
        let new = running.all.saturating_sub(self.highest);
        self.fill(at, new);
        self.weigh(at, running.all, classified);
        Span::extend(&mut self.all, at, running.all, paused);
        if let Some(answer) = self.answer.as_mut().filter(|_| !running.answered) {
            answer.pause(paused);
        }
        if running.answered {
            Span::extend(&mut self.answer, at, running.answer, paused);
        }
    }

    /// Adds the chunk's tokens to its segment. A chunk exactly at the end of a segment belongs to
    /// that segment.
    fn fill(&mut self, at: Instant, new: u64) {
        let Some(first) = self.all.map(|span| span.first) else {
            return;
        };
        let since = at.saturating_duration_since(first);
        let index = since.saturating_sub(Duration::from_nanos(1)).as_secs() / SEGMENT_SECONDS;
        let index = usize::try_from(index).map_or(MAX_SEGMENTS - 1, |at| at.min(MAX_SEGMENTS - 1));
        if self.segments.len() <= index {
            self.segments.resize(index + 1, 0);
        }
        if let Some(tokens) = self.segments.get_mut(index) {
            *tokens = tokens.saturating_add(u32::try_from(new).unwrap_or(u32::MAX));
        }
    }

    /// The speed of each segment of a stream of `total` tokens. The tokens add up to the tokens
    /// after the first chunk. The list is empty for a stream that is no longer than one segment, or
    /// during which the provider ran tools.
    pub(crate) fn segments(&self, total: u64) -> Vec<SpeedSegment> {
        let is_long = |span: &Span| span.duration() > SEGMENT && span.paused_millis == 0;
        let Some(span) = self.all.filter(is_long) else {
            return Vec::new();
        };
        let counted: u64 = self.segments.iter().map(|tokens| u64::from(*tokens)).sum();
        let mut segments: Vec<_> = self
            .segments
            .iter()
            .map(|tokens| SpeedSegment {
                tokens: u64::from(*tokens),
                seconds: seconds(SEGMENT),
            })
            .collect();
        let before = SEGMENT * (segments.len() as u32).saturating_sub(1);
        if let Some(last) = segments.last_mut() {
            last.seconds = seconds(span.duration().saturating_sub(before));
            // The end of the text can merge tokens, or turn withheld text into a token.
            last.tokens = (last.tokens + span.decoded(total)).saturating_sub(counted);
        }
        segments
    }

    /// Adds the inter-token latencies of a chunk. If a chunk completes no token, its gap counts for
    /// the next chunk that does. `chunk_gap` is the time since the previous chunk, which usually is
    /// the latency of one token.
    fn weigh(&mut self, at: Instant, tokens: u64, chunk_gap: Option<ClassifiedLatency>) {
        let new = tokens.saturating_sub(self.highest);
        self.highest = self.highest.max(tokens);
        let Some(since) = self.grown else {
            self.grown = Some(at);
            return;
        };
        if new == 0 {
            return;
        }
        let latency = at.saturating_duration_since(since).as_secs_f64() / new as f64;
        let classified =
            chunk_gap.map_or_else(|| ClassifiedLatency::new(latency), |gap| gap.with(latency));
        let inter_token = self.inter_token.get_or_insert_default();
        inter_token.record_classified(classified, new);
        self.grown = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Plays chunks of (milliseconds, running count of all channels). All text is answer.
    fn timeline(start: Instant, chunks: &[(u64, u64)]) -> Timeline {
        let mut timeline = Timeline::default();
        for (millis, tokens) in chunks {
            let running = Running {
                all: *tokens,
                answer: *tokens,
                answered: true,
            };
            timeline.chunk(start + Duration::from_millis(*millis), running, SECOND);
        }
        timeline
    }

    #[test]
    fn rate_leaves_out_the_tokens_of_the_first_chunk() {
        let timeline = timeline(Instant::now(), &[(100, 8), (600, 36), (1100, 64)]);
        let span = timeline.all.expect("chunks came");
        assert_eq!(span.first_tokens, 8);
        assert_eq!(span.decoded(64), 56);
        assert_eq!(span.rate(64), Some(56.0));
    }

    #[test]
    fn everything_in_one_chunk_has_no_rate_and_in_one_instant_an_infinite_one() {
        let start = Instant::now();
        let one = timeline(start, &[(0, 64)]).all.expect("a chunk came");
        assert_eq!(one.rate(64), None);
        let burst = timeline(start, &[(0, 1), (0, 64)]).all.expect("chunks");
        assert_eq!(burst.rate(64), Some(f64::INFINITY));
    }

    #[test]
    fn latency_is_weighted_by_token_and_its_sum_is_the_decode_time() {
        let timeline = timeline(Instant::now(), &[(0, 3), (300, 6), (350, 7), (1350, 8)]);
        let inter_token = timeline.inter_token.expect("gaps were seen");
        assert_eq!(inter_token.tokens(), 5);
        let classes: Vec<_> = inter_token.classes().collect();
        assert_eq!(classes.len(), 3, "0.1 thrice and 0.05 and 1.0: {classes:?}");
        let sum: f64 = classes.iter().map(|(mean, n)| mean * f64::from(*n)).sum();
        assert!((sum - 1.35).abs() < 1e-9);
    }

    #[test]
    fn a_chunk_that_finishes_no_token_leaves_its_gap_to_the_next() {
        let timeline = timeline(Instant::now(), &[(0, 2), (100, 2), (200, 1), (300, 3)]);
        let inter_token = timeline.inter_token.expect("gaps were seen");
        let classes: Vec<_> = inter_token.classes().collect();
        assert_eq!(classes.len(), 1);
        assert_eq!(classes[0].1, 1);
        assert!((classes[0].0 - 0.3).abs() < 1e-9);
    }

    #[test]
    fn stalls_are_gaps_over_the_threshold_and_the_longest_gap_is_kept() {
        let timeline = timeline(Instant::now(), &[(0, 1), (1000, 2), (2001, 3), (4000, 4)]);
        assert_eq!(timeline.stalls, 2, "a gap of exactly the threshold is none");
        assert_eq!(timeline.longest_gap, Some(Duration::from_millis(1999)));
    }

    #[test]
    fn the_providers_own_tools_take_no_time_of_decoding() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timeline = timeline(start, &[(0, 10), (500, 20)]);
        // Two tools at once, from 0.6 s to 5.6 s.
        for (millis, tool) in [
            (600, ServerTool::Began),
            (1_000, ServerTool::Began),
            (4_000, ServerTool::Ended),
            (5_600, ServerTool::Ended),
            (5_650, ServerTool::Ended),
        ] {
            timeline.server_tool(at(millis), tool);
        }
        let running = Running {
            all: 30,
            answer: 30,
            answered: true,
        };
        timeline.chunk(at(6_000), running, SECOND);
        let span = timeline.all.expect("chunks");
        assert_eq!(span.paused(), Duration::from_secs(5));
        assert_eq!(span.rate(30), Some(20.0), "20 tokens in 1 s");
        assert_eq!(timeline.answer.expect("chunks").rate(30), Some(20.0));
        assert_eq!(
            (timeline.stalls, timeline.longest_gap),
            (0, Some(SECOND / 2))
        );
        assert_eq!(timeline.inter_token.expect("gaps").tokens(), 10);
    }

    #[test]
    fn a_tool_runs_from_the_last_text_of_its_call_on() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timeline = timeline(start, &[(0, 10), (500, 20)]);
        let running = |all| Running {
            all,
            answer: 20,
            answered: true,
        };
        timeline.server_tool(at(600), ServerTool::Began);
        timeline.chunk(at(1_000), running(30), SECOND);
        timeline.server_tool(at(4_000), ServerTool::Ended);
        timeline.chunk(at(4_500), running(40), SECOND);
        let span = timeline.all.expect("chunks");
        assert_eq!(span.paused(), Duration::from_secs(3));
        assert_eq!(span.rate(40), Some(20.0), "30 tokens in 1.5 s");
    }

    #[test]
    fn a_single_chunk_has_no_gap() {
        let timeline = timeline(Instant::now(), &[(0, 1)]);
        assert_eq!(timeline.longest_gap, None);
        assert_eq!(timeline.inter_token, None);
    }

    #[test]
    fn the_answer_has_a_span_of_its_own_after_reasoning() {
        let start = Instant::now();
        let mut timeline = Timeline::default();
        let at = |millis| start + Duration::from_millis(millis);
        for (millis, all, answer, answered) in [
            (0, 10, 0, false),
            (1000, 20, 0, false),
            (2000, 25, 5, true),
            (3000, 45, 25, true),
            (4000, 50, 25, false),
        ] {
            let running = Running {
                all,
                answer,
                answered,
            };
            timeline.chunk(at(millis), running, SECOND);
        }
        let answer = timeline.answer.expect("answers came");
        assert_eq!((answer.first, answer.last), (at(2000), at(3000)));
        assert_eq!(answer.rate(25), Some(20.0));
        assert_eq!(timeline.all.expect("chunks").rate(50), Some(10.0));
    }

    #[test]
    fn a_long_stream_has_a_speed_for_each_ten_seconds() {
        let chunks = [
            (0, 5),
            (4_000, 105),
            (10_000, 205),
            (10_001, 206),
            (31_000, 256),
        ];
        let timeline = timeline(Instant::now(), &chunks);
        let segments = timeline.segments(257);
        let found: Vec<_> = segments.iter().map(|s| (s.tokens, s.seconds)).collect();
        assert_eq!(found, [(200, 10.0), (1, 10.0), (0, 10.0), (51, 1.0)]);
        let tokens: u64 = segments.iter().map(|segment| segment.tokens).sum();
        assert_eq!(tokens, timeline.all.expect("chunks").decoded(257));
    }

    #[test]
    fn a_stream_of_one_segment_has_none_and_an_endless_one_has_bounded_ones() {
        let start = Instant::now();
        assert_eq!(timeline(start, &[(0, 1), (10_000, 50)]).segments(50), []);
        let day: Vec<_> = (0..1440).map(|minute| (minute * 60_000, minute)).collect();
        let segments = timeline(start, &day).segments(1439);
        assert_eq!(segments.len(), MAX_SEGMENTS);
        let seconds: f64 = segments.iter().map(|segment| segment.seconds).sum();
        assert_eq!(seconds, 1439.0 * 60.0);
    }
}
