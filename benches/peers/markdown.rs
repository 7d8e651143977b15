//! The table of docs/benchmarks.md.

use crate::columns::columns;
use crate::goals::{Against, Goal, goals};
use crate::metrics::Metric;
use crate::peer::Peer;
use crate::report::{Report, Runs};
use crate::table::with_thousands;

impl Report {
    /// Prints the table of docs/benchmarks.md with one line per figure.
    pub fn print_markdown(&self) {
        let all: Vec<Peer> = Peer::ALL
            .into_iter()
            .filter(|peer| self.has(*peer))
            .collect();
        let names: Vec<_> = all.iter().map(Peer::to_string).collect();
        println!("\n| | {} | ÷ nginx | goals |", names.join(" | "));
        println!("|---|{}", "---|".repeat(all.len() + 2));
        for runs in self.of_tokengauge() {
            for metric in columns(&runs.scenario.work) {
                self.print_markdown_line(runs, metric, &all);
            }
        }
    }

    fn print_markdown_line(&self, ours: &Runs, metric: &'static Metric, peers: &[Peer]) {
        let figure = |peer: &Peer| {
            let median = self.find(&ours.scenario, *peer)?.median(metric)?;
            Some(with_thousands(median, metric.decimals))
        };
        let missing = || "–".to_owned();
        let figures: Vec<_> = peers
            .iter()
            .map(|peer| figure(peer).unwrap_or_else(missing))
            .collect();
        if figures.iter().all(|figure| *figure == "–") {
            return;
        }
        let nginx = Against::Peer(Peer::Nginx);
        let ratio = metric.ratio.then(|| self.compared(ours, metric, nginx));
        let ratio = ratio
            .flatten()
            .map_or_else(missing, |ratio| ratio.to_string());
        let goals = goals(&ours.scenario).iter();
        let of_metric = goals.filter(|goal| std::ptr::eq(goal.metric, metric));
        let verdicts: Vec<_> = of_metric
            .filter_map(|goal| self.verdict(ours, goal))
            .collect();
        println!(
            "| {}: {} | {} | {ratio} | {} |",
            ours.scenario.title(),
            metric.title,
            figures.join(" | "),
            verdicts.join("; ")
        );
    }

    fn verdict(&self, ours: &Runs, goal: &Goal) -> Option<String> {
        let found = self.compared(ours, goal.metric, goal.against)?;
        let (against, bound, verdict) = (goal.against, goal.bound, goal.bound.judge(&found));
        let moonshot = if goal.moonshot { "moonshot " } else { "" };
        let against = match against {
            Against::Peer(Peer::Nginx) => String::new(),
            Against::Nothing => format!("{found} "),
            other => format!("{} {found} ", other.to_string().trim_start()),
        };
        Some(format!("{against}{moonshot}{bound}: {verdict}"))
    }
}
