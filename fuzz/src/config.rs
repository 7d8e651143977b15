//! Configuration files, settings of the injector, and OpenSLO documents: nothing panics, errors are reported, and
//! objectives survive a round trip through OpenSLO.

use tokengauge_config::Config;
use tokengauge_inject::Settings;
use tokengauge_slo::{Objective, openslo};

const ORIGIN: &str = "fuzzed.toml";

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match Config::parse(text, ORIGIN) {
        Err(invalid) => assert!(invalid.to_string().contains(ORIGIN), "{invalid}"),
        Ok(config) => {
            let written = openslo::write(&config.slos).expect("YAML");
            let read = openslo::read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
            assert_eq!(read.len(), config.slos.len(), "{written}");
            for (read, slo) in read.into_iter().zip(&config.slos) {
                // Without a description, the text of the objective is used.
                let described = slo.description.is_some();
                let description = read.description.clone().filter(|_| described);
                let read = Objective {
                    description,
                    ..read
                };
                assert_eq!(read, **slo, "{written}");
            }
        }
    }
    if let Err(reason) = Settings::parse(text) {
        assert!(!reason.to_string().is_empty());
    }
    if let Err(unusable) = openslo::read(text) {
        assert!(!unusable.to_string().is_empty());
    }
}
