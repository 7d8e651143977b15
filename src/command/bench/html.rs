//! Results as one HTML file with plots, for light and dark themes, without external resources.

use maud::{Markup, html};
use tokengauge_bench::level::LevelResult;
use tokengauge_bench::metric::Metric;
use tokengauge_bench::trial::TrialResult;
use tokengauge_bench::{Results, text};
use tokengauge_html::page::{self, figure};
use tokengauge_html::plot::{self, Series};

/// The maximum number of loads in the plot of distributions, which is its number of colours.
const DISTRIBUTIONS: usize = 3;
const COURSES: usize = 12;

pub(super) fn page(results: &Results) -> String {
    let rows: Vec<_> = text::cells(results).collect();
    let rows = rows.iter().map(|row| {
        row.iter()
            .map(|cell| (&*cell.text, &*cell.interval, cell.value))
    });
    let body = html! {
        p { (text::about(results)) }
        (page::table(1, text::heads(), rows))
        ul {
            @for line in text::findings(results) { li { (line) } }
        }
        (curves(results))
        (distributions(results))
        (courses(results))
    };
    page::page("tokengauge bench", "", &body)
}

fn curves(results: &Results) -> Markup {
    let by_load = |value: &dyn Fn(&LevelResult) -> Option<f64>| {
        let points = results.levels.iter();
        points
            .map(|level| (level.load.number(), value(level)))
            .collect::<Series>()
    };
    let plotted =
        |series: &[Series], unit| plot::lines(series, &[], unit, &|load| format!("{load}"));
    let tail = |name: &'static str| {
        move |level: &LevelResult| level.tails.iter().find(|tail| tail.name == name)?.value
    };
    let throughput = by_load(&|level| level.value(Metric::OutputThroughput));
    let speeds = [
        by_load(&|level| level.value(Metric::TpsMean)),
        by_load(&tail("tps_p5")),
    ];
    let waits = [
        by_load(&|level| level.value(Metric::TtftP50)),
        by_load(&tail("ttft_p95")),
        by_load(&tail("ttft_p99")),
    ];
    let throughput = plotted(&[throughput], "tokens/s");
    let (speeds, waits) = (plotted(&speeds, "tokens/s"), plotted(&waits, "seconds"));
    html! {
        (figure("Output tokens per second of all calls, by load", &[], &throughput))
        (figure("Output tokens per second of a call, by load", &["mean", "p5"], &speeds))
        (figure("Time to first token, by load", &["p50", "p95", "p99"], &waits))
    }
}

fn distributions(results: &Results) -> Markup {
    let known: Vec<_> = results
        .levels
        .iter()
        .filter(|level| level.withheld.is_empty())
        .collect();
    let mut chosen: Vec<_> = match known.len() {
        0..=DISTRIBUTIONS => known,
        all => vec![known[0], known[all / 2], known[all - 1]],
    };
    chosen.truncate(DISTRIBUTIONS);
    let names: Vec<_> = chosen.iter().map(|level| level.load.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let plotted = |values: &dyn Fn(&LevelResult) -> Vec<f64>| {
        let shares = |level: &&LevelResult| {
            let values = values(level);
            let last = values.len().saturating_sub(1).max(1) as f64;
            let numbered = values.iter().enumerate();
            numbered
                .map(|(number, value)| (value * 1e3, Some(number as f64 / last * 100.0)))
                .collect::<Series>()
        };
        let series: Vec<_> = chosen.iter().map(shares).collect();
        plot::lines(&series, &[], "% at most", &|milliseconds| {
            format!("{milliseconds:.0} ms")
        })
    };
    let waits = plotted(&|level| level.distributions.ttft.clone());
    let gaps = plotted(&|level| level.distributions.itl.clone());
    html! {
        (figure("Distribution of the time to first token", &names, &waits))
        (figure("Distribution of the time between tokens", &names, &gaps))
    }
}

fn courses(results: &Results) -> Markup {
    let key = ["steady", "warm-up and burn-in", "not counted"];
    html! {
        @for level in results.levels.iter().take(COURSES) {
            @if let Some(trial) = level.trials.first() {
                @let number = trial.trial;
                @let title = format!("{}, trial {number}: tokens per second over time", level.load);
                @let svg = plot::lines(&course(trial), &[], "tokens/s", &|at| format!("{at:.0} s"));
                (figure(&title, &key, &svg))
            }
        }
    }
}

fn course(trial: &TrialResult) -> [Series; 3] {
    let steady_from = trial
        .steady_after
        .map_or(f64::INFINITY, |after| trial.measured_after + after);
    let end = trial.measured_after + trial.measured;
    let phase = |at: f64| match at {
        at if at < trial.measured_after => 1,
        at if at >= steady_from && at < end => 0,
        _ => 2,
    };
    let points = trial.timeline.iter().enumerate();
    let points: Vec<_> = points
        .map(|(number, tps)| (number as f64 * trial.interval, *tps))
        .collect();
    [0, 1, 2].map(|wanted| {
        let points = points.iter();
        points
            .map(|(at, tps)| (*at, (phase(*at) == wanted).then_some(*tps)))
            .collect()
    })
}
