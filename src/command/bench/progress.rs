//! The progress of a benchmark on standard error: a changing line on a terminal, otherwise one line per trial.

use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokengauge_bench::run::Progress;
use tokengauge_process::output;

pub(super) struct Shown {
    terminal: bool,
    number: usize,
}

impl Shown {
    pub(super) fn new() -> Shown {
        let terminal = std::io::stderr().is_terminal();
        Shown {
            terminal,
            number: 0,
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(progress));
            let _ = std::io::stderr().flush();
        } else if self.number != progress.number {
            output::note(&begins(progress));
        }
        self.number = progress.number;
    }

    pub(super) fn clear(&self) {
        if self.terminal && self.number > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn begins(progress: &Progress) -> String {
    let of = progress.of.map_or(String::new(), |of| format!("/{of}"));
    let left = progress
        .left
        .map_or(String::new(), |left| format!(", {} left", whole(left)));
    format!(
        "[{}{of}] {}, trial {}{left}",
        progress.number, progress.load, progress.trial
    )
}

fn line(progress: &Progress) -> String {
    let it = &progress.trial_progress;
    let phase: &str = it.phase.into();
    format!(
        "{}: {phase}, {} calls, {:.0} tok/s",
        begins(progress),
        it.calls,
        it.tps
    )
}

fn whole(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.as_secs_f64().ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_bench::level::LoadName;
    use tokengauge_bench::load::{Load, Phase, TrialProgress};

    #[test]
    fn a_line_has_load_trial_phase_calls_speed_and_the_time_left() {
        let progress = Progress {
            load: LoadName::of(&Load::Concurrency(4)),
            trial: 2,
            number: 7,
            of: Some(20),
            trial_progress: TrialProgress {
                phase: Phase::BurnIn,
                calls: 31,
                tps: 401.6,
                left: Duration::from_secs(63),
            },
            left: Some(Duration::from_millis(1_038_400)),
        };
        assert_eq!(
            line(&progress),
            "[7/20] concurrency 4, trial 2, 17m 19s left: burn-in, 31 calls, 402 tok/s"
        );
    }
}
