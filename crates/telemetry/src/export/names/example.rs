//! The metric of the example in docs/contributing.md.

use super::families;

families! {
    /// Answers that were read aloud, by whether the whole answer was read.
    ANSWERS_READ_ALOUD: Counter[ByResult] = "tokengauge_answers_read_aloud_total", Count;
}

#[test]
fn the_example_is_in_the_document_and_does_what_it_says() {
    use crate::export::labels::ByResult;
    use crate::export::registry::Registry;
    let document = include_str!("../../../../../docs/contributing.md");
    let definition: Vec<_> = include_str!("example.rs").lines().skip(4).take(4).collect();
    assert!(document.contains(&definition.join("\n")), "{definition:?}");
    let use_of_it = r#"registry.series(&names::ANSWERS_READ_ALOUD, &labels::ByResult { result: "whole" }).increment(1);"#;
    assert!(document.contains(use_of_it));

    let registry = Registry::new(&[]);
    let labels = ByResult { result: "whole" };
    registry.series(&ANSWERS_READ_ALOUD, &labels).increment(1);
    assert_eq!(registry.series(&ANSWERS_READ_ALOUD, &labels).value(), 1);
    assert_eq!(
        ANSWERS_READ_ALOUD.help,
        "Answers that were read aloud, by whether the whole answer was read."
    );
    assert_eq!(ALL.len(), 1);
}
