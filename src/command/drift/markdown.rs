//! What has changed, for people: a sentence for each series, and a table of its signals.

use std::fmt::Write;
use tokengauge_admin::Drifts;
use tokengauge_drift::{Entry, Figures, Series, SignalDrift, Why};
use tokengauge_process::output::markdown;

pub(super) fn page(answer: &Drifts) -> String {
    let mut page = String::new();
    let written = answer
        .drifts
        .iter()
        .try_for_each(|one| entry(&mut page, one));
    written.expect("a string takes every word");
    page
}

fn entry(page: &mut String, entry: &Entry) -> std::fmt::Result {
    let state: &str = entry.state.into();
    let windows = &entry.windows;
    writeln!(page, "# {}: {state}\n", markdown(&entry.name))?;
    writeln!(
        page,
        "{} to {}, against the time from {} to its beginning.\n",
        windows.current_since, windows.current_until, windows.reference_since
    )?;
    if entry.series.is_empty() {
        writeln!(page, "No calls in the current window.\n")?;
    }
    entry.series.iter().try_for_each(|one| series(page, one))?;
    match entry.series_left_out {
        0 => Ok(()),
        more => writeln!(
            page,
            "{more} more series with fewer calls were not evaluated.\n"
        ),
    }
}

fn series(page: &mut String, series: &Series) -> std::fmt::Result {
    let names = [&series.model, &series.route, &series.workload]
        .map(|name| markdown(name.as_deref().unwrap_or("–")));
    writeln!(page, "## {}\n", names.join(" · "))?;
    writeln!(page, "{}\n", series.sentence)?;
    writeln!(
        page,
        "| signal | class | state | sessions then | sessions now | calls then | calls now | mean then | mean now | p50 then | p50 now | distance | PSI |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    series.signals.iter().try_for_each(|one| row(page, one))?;
    writeln!(page)?;
    for point in &series.change_points {
        writeln!(
            page,
            "- {}: {} {:+.0} % ({} → {})",
            point.at,
            point.signal.as_str(),
            point.change * 100.0,
            number(Some(point.before)),
            number(Some(point.after))
        )?;
    }
    if let Some(missing) = &series.change_points_learning {
        writeln!(page, "Since when is not known yet: {missing}.")?;
    }
    writeln!(page)?;
    series.why.iter().try_for_each(|one| why(page, one))
}

fn row(page: &mut String, one: &SignalDrift) -> std::fmt::Result {
    let state: &str = one.state.into();
    let of =
        |figures: Option<Figures>, of: fn(Figures) -> Option<f64>| number(figures.and_then(of));
    let both = |figure: fn(Figures) -> Option<f64>| {
        format!(
            "{} | {}",
            of(one.reference, figure),
            of(one.current, figure)
        )
    };
    writeln!(
        page,
        "| {} | {} | {state} | {} | {} | {} | {} | {} | {} |",
        one.signal.as_str(),
        one.bucket.as_deref().unwrap_or("all"),
        both(|figures| Some(figures.sessions.floor())),
        both(|figures| Some(figures.calls.floor())),
        both(|figures| Some(figures.mean)),
        both(|figures| figures.p50),
        number(one.distance),
        number(one.stability_index)
    )
}

fn why(page: &mut String, why: &Why) -> std::fmt::Result {
    let number = |value| number(Some(value));
    writeln!(
        page,
        "Mean {}: {} → {}; {} by the mix of calls, {} within classes.\n",
        why.signal.as_str(),
        number(why.before),
        number(why.after),
        number(why.mix),
        number(why.within)
    )
}

/// Three significant digits, whole numbers from 100 on.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}
