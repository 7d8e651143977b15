//! Ready-made objectives, each with its source.

use super::objective::Sli;

/// A set of objectives for a kind of workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The value in the configuration.
    pub name: &'static str,
    pub about: &'static str,
    /// The suffix of each objective's name, and its indicator.
    pub slis: &'static [(&'static str, Sli)],
    pub source: &'static str,
}

pub const PRESETS: &[Preset] = &[
    Preset {
        name: "chat",
        about: "a person reads while it is written",
        slis: &[
            ("ttft", Sli::Ttft(0.5)),
            ("output-tps", Sli::OutputTps(30.0)),
        ],
        source: "the figures that serving guides name for chat (TTFT below 500 ms, above 30 tokens/s: \
            inferenceengineering.tech/glossary/slo); MLPerf Inference v5.0 asks 450 ms and 25 tokens/s of its \
            interactive Llama 2 70B",
    },
    Preset {
        name: "voice",
        about: "speech is made of the text as it comes",
        slis: &[
            ("output-tps", Sli::OutputTps(100.0)),
            ("longest-gap", Sli::LongestGap(0.25)),
        ],
        source: "speakers leave about 200 ms between turns (Stivers et al., PNAS 2009), so a gap over 250 ms is \
            heard; 100 tokens/s are some twenty times the pace of speech, which is what lets a sentence be \
            complete before it is due",
    },
    Preset {
        name: "analysis",
        about: "a long answer that somebody waits for",
        slis: &[("output-tps", Sli::OutputTps(30.0))],
        source: "30 tokens/s is where this project's band `comfortable` ends and `fast` begins: several times \
            the pace of reading (238 words a minute: Brysbaert, 2019)",
    },
];

impl Preset {
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}
