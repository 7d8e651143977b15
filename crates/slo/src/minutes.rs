//! Throughput of an upstream by the minute: the tokens of all its calls, and the number of
//! concurrent streams.

use super::objective::{Judgement, Sli};
use super::reason::{CallVerdict, Reason};
use super::verdict::Events;
use std::collections::VecDeque;
use std::ops::Range;
use tokengauge_core::observer::MAX_MEASURE_DELAY;

const MINUTE: u64 = 60;
/// Seconds after its end when a minute is judged, because all its chunks have been measured.
const SETTLED: u64 = MAX_MEASURE_DELAY.as_secs() + 2;
/// A minute with fewer samples is not judged, because the process was blocked.
const ENOUGH_LOOKS: u32 = 30;

/// Number of judged minutes that are kept for the search of causes.
const KEPT: usize = 120;

#[derive(Clone, Copy, Debug, Default)]
pub struct UnderWay {
    pub streams: u32,
    pub calls: u32,
}

/// A minute: the least number of concurrent streams, and the sum of calls in progress over its
/// samples.
#[derive(Clone, Copy, Debug)]
struct Minute {
    number: u64,
    fewest: u32,
    looks: u32,
    calls: u64,
}

impl Minute {
    fn look(&mut self, under_way: UnderWay) {
        self.fewest = self.fewest.min(under_way.streams);
        self.looks += 1;
        self.calls += u64::from(under_way.calls);
    }
}

/// The minutes of one objective, counted from the first sample.
#[derive(Debug, Default)]
pub struct Minutes {
    /// The first sample, in seconds since 1970.
    from: Option<u64>,
    open: Option<Minute>,
    /// The previous minute, not judged yet.
    over: Option<Minute>,
    /// Recent minutes that were good or bad, in calendar time.
    judged: VecDeque<tokengauge_cause::Minute>,
    /// Seconds by which the calendar is ahead since its clock was set.
    ahead: f64,
}

impl Minutes {
    pub fn of(judgement: &Judgement) -> Option<Minutes> {
        matches!(judgement.sli, Sli::Throughput(_)).then(Minutes::default)
    }

    pub fn judged(&self, from: f64) -> Vec<tokengauge_cause::Minute> {
        let judged = self.judged.iter().copied();
        judged.filter(|minute| minute.begin >= from).collect()
    }

    /// Must be called once a second. `second` is in seconds since 1970, `under_way` the calls in
    /// progress. Returns the verdict on a settled minute, if any; `tokens` returns the number of
    /// its tokens.
    pub fn look(
        &mut self,
        judgement: &Judgement,
        second: u64,
        under_way: UnderWay,
        tokens: impl FnOnce(Range<u64>) -> u64,
    ) -> Option<Events> {
        let from = *self.from.get_or_insert(second);
        let seconds = second.saturating_sub(from);
        let number = seconds / MINUTE;
        match &mut self.open {
            Some(open) if open.number == number => open.look(under_way),
            open => {
                let mut next = Minute {
                    number,
                    fewest: u32::MAX,
                    looks: 0,
                    calls: 0,
                };
                next.look(under_way);
                self.over = open.replace(next);
            }
        }
        let settled = |over: &mut Minute| seconds >= (over.number + 1) * MINUTE + SETTLED;
        let over = self.over.take_if(settled)?;
        let begin = from + over.number * MINUTE;
        let events = verdict(judgement, over, || tokens(begin..begin + MINUTE));
        self.keep(begin, over, &events);
        Some(events)
    }

    pub fn redate(&mut self, seconds: i64) {
        if self.from.is_some() {
            self.ahead += seconds as f64;
        }
        let judged = self.judged.iter_mut();
        judged.for_each(|minute| minute.begin += seconds as f64);
    }

    fn keep(&mut self, begin: u64, minute: Minute, events: &Events) {
        let (Some(throughput), CallVerdict::Good | CallVerdict::Bad) =
            (events.value, events.verdict)
        else {
            return;
        };
        if self.judged.len() == KEPT {
            self.judged.pop_front();
        }
        self.judged.push_back(tokengauge_cause::Minute {
            begin: begin as f64 + self.ahead,
            bad: events.verdict == CallVerdict::Bad,
            throughput,
            under_way: minute.calls as f64 / f64::from(minute.looks.max(1)),
        });
    }
}

fn verdict(judgement: &Judgement, minute: Minute, tokens: impl FnOnce() -> u64) -> Events {
    let excluded = |reason| Events {
        verdict: CallVerdict::Excluded,
        reason,
        count: 1,
        value: None,
    };
    if minute.looks < ENOUGH_LOOKS {
        return excluded(Reason::Lagged);
    }
    if minute.fewest < judgement.min_streams {
        return excluded(Reason::TooFewStreams);
    }
    let throughput = tokens() as f64 / MINUTE as f64;
    Events::held_against(judgement.sli, throughput, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Selector, Weight};

    const BEGIN: u64 = 1_700_000_000;

    fn judgement(least: f64, min_streams: u32) -> Judgement {
        Judgement {
            sli: Sli::Throughput(least),
            select: Selector::default(),
            weight: Weight::Request,
            min_output_tokens: 0,
            min_streams,
            warm_up: true,
            slice: None,
        }
    }

    #[test]
    fn a_minute_is_good_where_enough_tokens_came_and_counts_where_enough_streams_ran() {
        let judgement = judgement(100.0, 4);
        let mut all = Minutes::of(&judgement).expect("on throughput");
        let minutes = [(100, 4), (99, 5), (500, 3), (0, 9), (0, 0)];
        let came = |second: u64| minutes[((second - BEGIN) / MINUTE) as usize].0;
        let mut found = Vec::new();
        for second in BEGIN..BEGIN + 5 * MINUTE {
            let (_, streams) = minutes[((second - BEGIN) / MINUTE) as usize];
            let tokens = |seconds: Range<u64>| seconds.map(came).sum();
            let under_way = UnderWay {
                streams,
                calls: streams + 1,
            };
            let events = all.look(&judgement, second, under_way, tokens);
            found.extend(events.map(|one| (one.verdict, one.reason, one.value)));
        }
        let expected = [
            (CallVerdict::Good, Reason::Met, Some(100.0)),
            (CallVerdict::Bad, Reason::Missed, Some(99.0)),
            (CallVerdict::Excluded, Reason::TooFewStreams, None),
            (CallVerdict::Bad, Reason::Missed, Some(0.0)),
        ];
        assert_eq!(found, expected);
        let kept = all.judged(BEGIN as f64 + 1.0);
        let kept: Vec<_> = kept
            .iter()
            .map(|one| {
                (
                    one.begin as u64 - BEGIN,
                    one.bad,
                    one.throughput,
                    one.under_way,
                )
            })
            .collect();
        assert_eq!(kept, [(60, true, 99.0, 6.0), (180, true, 0.0, 10.0)]);
        all.redate(3_600);
        assert_eq!(all.judged((BEGIN + 3_600) as f64).len(), 3);
    }

    #[test]
    fn a_minute_in_which_the_process_was_held_up_is_left_out() {
        let judgement = judgement(10.0, 0);
        let mut minutes = Minutes::of(&judgement).expect("on throughput");
        let seconds = [0, 1, 2, 3, 61, 66];
        let looks = seconds
            .map(|second| minutes.look(&judgement, BEGIN + second, UnderWay::default(), |_| 0));
        let reasons: Vec<_> = looks.into_iter().flatten().map(|one| one.reason).collect();
        assert_eq!(reasons, [Reason::Lagged]);
    }
}
