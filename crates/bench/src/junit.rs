//! Results as JUnit XML: a test case for each load and one for each objective at that load.

use crate::level::LevelResult;
use crate::objective::ObjectiveVerdict;
use crate::results::Results;
use maud::Render;
use std::fmt::Write;

/// Returns the results as one test suite. A load with withheld figures is an error. An objective that is not shown to
/// be met is a failure.
pub fn junit(results: &Results) -> String {
    let mut cases = String::new();
    let (mut tests, mut errors, mut failures) = (0, 0, 0);
    for level in &results.levels {
        let load = level.load.to_string();
        tests += 1 + level.objectives.len();
        let reasons = level.withheld.iter().chain(&level.partly_withheld);
        let reasons: Vec<_> = reasons.map(ToString::to_string).collect();
        let problem = (!reasons.is_empty()).then(|| ("error", reasons.join("; ")));
        errors += usize::from(problem.is_some());
        case(&mut cases, &load, "figures", seconds(level), problem);
        for objective in &level.objectives {
            let problem = (objective.verdict != ObjectiveVerdict::Kept).then(|| {
                let verdict: &str = objective.verdict.into();
                let reason = objective.reason.clone();
                let reason = reason.unwrap_or_else(|| format!("{:?}", objective.value));
                ("failure", format!("{verdict}: {reason}"))
            });
            failures += usize::from(problem.is_some());
            case(&mut cases, &load, &objective.objective, 0.0, problem);
        }
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"tokengauge bench\" tests=\"{tests}\" errors=\"{errors}\" failures=\"{failures}\" \
         timestamp=\"{}\">\n{cases}</testsuite>\n",
        escaped(results.started_at.trim_end_matches('Z'))
    )
}

fn seconds(level: &LevelResult) -> f64 {
    level
        .trials
        .iter()
        .map(|trial| trial.measured_after + trial.measured)
        .sum()
}

fn case(cases: &mut String, load: &str, name: &str, seconds: f64, problem: Option<(&str, String)>) {
    let (load, name) = (escaped(load), escaped(name));
    let _ = write!(
        cases,
        "  <testcase classname=\"{load}\" name=\"{name}\" time=\"{seconds:.3}\""
    );
    let _ = match problem {
        None => writeln!(cases, "/>"),
        Some((kind, message)) => {
            writeln!(
                cases,
                "><{kind} message=\"{}\"/></testcase>",
                escaped(&message)
            )
        }
    };
}

fn escaped(text: &str) -> String {
    // XML forbids control characters even as references. The entities of HTML are also valid in XML.
    let text = text.replace(char::is_control, " ");
    text.render().into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::LevelResult;
    use crate::level::tests::trial;
    use crate::load::Load;
    use crate::results::Settings;
    use crate::steady::{Criteria, Reason};

    #[test]
    fn loads_without_figures_are_errors_and_missed_objectives_failures() {
        let objectives = ["output_throughput>=50".parse().expect("one")];
        let level = |streams, throughput| {
            let load = crate::level::LoadName::of(&Load::Concurrency(streams));
            LevelResult::of(
                load,
                vec![trial(1, throughput)],
                &objectives,
                None,
                &Criteria::default(),
            )
        };
        let levels = vec![
            level(1, Ok(40.0)),
            level(2, Ok(80.0)),
            level(4, Err(Reason::NotSteady)),
        ];
        let results = Results::of(
            Settings::default(),
            "2026-11-25T00:00:00.000Z".to_owned(),
            levels,
            false,
        );
        let xml = junit(&results);
        assert!(
            xml.contains("tests=\"6\" errors=\"1\" failures=\"2\""),
            "{xml}"
        );
        assert!(xml.contains("name=\"output_throughput&gt;=50\""), "{xml}");
        assert!(xml.contains("classname=\"concurrency 1\""), "{xml}");
        assert!(xml.contains("<error message=\"trial 1: why\"/>"), "{xml}");
    }
}
