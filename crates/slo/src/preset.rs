//! Ready-made objectives, each with its source.

use super::objective::Sli;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    pub name: &'static str,
    pub about: &'static str,
    /// The suffix of each objective's name, and its indicator.
    pub slis: &'static [(&'static str, Sli)],
    pub source: &'static str,
}

pub const PRESETS: &[Preset] = &[
    Preset {
        name: "chat",
        about: "a person reads the answer while it is generated",
        slis: &[
            ("ttft", Sli::Ttft(0.5)),
            ("output-tps", Sli::OutputTps(30.0)),
        ],
        source: "serving guides recommend a TTFT below 500 ms and more than 30 tokens/s for chat \
            (inferenceengineering.tech/glossary/slo). MLPerf Inference v5.0 requires 450 ms and \
            25 tokens/s for its interactive Llama 2 70B",
    },
    Preset {
        name: "voice",
        about: "speech is synthesized from the text as it arrives",
        slis: &[
            ("output-tps", Sli::OutputTps(100.0)),
            ("longest-gap", Sli::LongestGap(0.25)),
        ],
        source: "speakers leave about 200 ms between turns (Stivers et al., PNAS 2009), so a gap over \
            250 ms is audible. 100 tokens/s are about twenty times the pace of speech, so that a \
            sentence is complete before it must be spoken",
    },
    Preset {
        name: "analysis",
        about: "a person waits for a long answer",
        slis: &[("output-tps", Sli::OutputTps(30.0))],
        source: "30 tokens/s is the boundary between tokengauge's bands `comfortable` and `fast`: \
            several times the pace of reading (238 words a minute: Brysbaert, 2019)",
    },
];

impl Preset {
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}
