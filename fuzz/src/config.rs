//! Configuration files and OpenSLO documents: nothing panics, and what is wrong is said.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokengauge::config::Config;
use tokengauge::slo::openslo;

fuzz_target!(|text: &str| {
    if let Err(invalid) = Config::parse(text, "fuzzed.toml") {
        assert!(invalid.to_string().contains("fuzzed.toml"), "{invalid}");
    }
    if let Err(unusable) = openslo::read(text) {
        assert!(!unusable.to_string().is_empty());
    }
});
