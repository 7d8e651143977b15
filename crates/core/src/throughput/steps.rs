//! Tokens in consecutive time steps.

/// Tokens in consecutive steps of whole seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    from: u64,
    step: u64,
    sums: Vec<Sum>,
}

/// Tokens in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Tokens of streamed responses.
    pub streamed: f64,
    /// Tokens of responses that were not streamed.
    pub spread: f64,
}

/// The tokens of one call, and the time in which they were generated. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generated {
    /// The time of the first token.
    pub from: f64,
    /// The time of the last token.
    pub to: f64,
    /// The number of tokens.
    pub tokens: f64,
    /// Whether the response arrived at one instant.
    pub whole: bool,
}

impl Steps {
    /// `count` steps of `step` seconds, starting at `from` in seconds since 1970.
    pub fn new(from: u64, step: u64, count: usize) -> Steps {
        Steps {
            from,
            step: step.max(1),
            sums: vec![Sum::default(); count],
        }
    }

    /// Adds tokens in a second to its step.
    pub fn add(&mut self, second: u64, streamed: f64, spread: f64) {
        let at = second.checked_sub(self.from).map(|since| since / self.step);
        if let Some(sum) = at.and_then(|at| self.sums.get_mut(at as usize)) {
            sum.streamed += streamed;
            sum.spread += spread;
        }
    }

    /// Adds the tokens of one call, evenly over the time in which they were generated.
    pub fn add_call(&mut self, call: &Generated) {
        let (from, step) = (self.from as f64, self.step as f64);
        let length = call.to - call.from;
        let last = self.sums.len() as f64 - 1.0;
        let index = |at: f64| ((at - from) / step).floor();
        let (first, end) = (index(call.from).max(0.0), index(call.to).min(last));
        let mut at = first;
        while at <= end {
            let begin = (from + at * step).max(call.from);
            let until = (from + (at + 1.0) * step).min(call.to);
            let share = if length > 0.0 {
                (until - begin).max(0.0) / length
            } else {
                1.0
            };
            if let Some(sum) = self.sums.get_mut(at as usize) {
                let part = call.tokens * share;
                *(if call.whole {
                    &mut sum.spread
                } else {
                    &mut sum.streamed
                }) += part;
            }
            at += 1.0;
        }
    }

    /// Tokens per second in a step, and the part of them from responses that were not streamed.
    pub fn rate(&self, at: usize) -> (f64, f64) {
        let sum = self.sums.get(at).copied().unwrap_or_default();
        let step = self.step as f64;
        ((sum.streamed + sum.spread) / step, sum.spread / step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_call_lie_where_it_generated_them() {
        let mut steps = Steps::new(100, 10, 4);
        let call = Generated {
            from: 105.0,
            to: 135.0,
            tokens: 300.0,
            whole: false,
        };
        steps.add_call(&call);
        steps.add(111, 20.0, 10.0);
        let rates: Vec<_> = (0..4).map(|at| steps.rate(at)).collect();
        assert_eq!(
            rates,
            [(5.0, 0.0), (13.0, 1.0), (10.0, 0.0), (5.0, 0.0)],
            "300 tokens over 30 s, and 30 in one second"
        );
        steps.add_call(&Generated {
            from: 90.0,
            to: 110.0,
            tokens: 200.0,
            whole: true,
        });
        assert_eq!(steps.rate(0), (15.0, 10.0), "what was before is not there");
        steps.add(99, 1.0, 0.0);
        steps.add(140, 1.0, 0.0);
        assert_eq!(steps.rate(3), (5.0, 0.0));
    }

    #[test]
    fn what_came_at_one_instant_is_in_one_step() {
        let mut steps = Steps::new(0, 1, 3);
        steps.add_call(&Generated {
            from: 1.5,
            to: 1.5,
            tokens: 7.0,
            whole: false,
        });
        assert_eq!([0, 1, 2].map(|at| steps.rate(at).0), [0.0, 7.0, 0.0]);
    }
}
