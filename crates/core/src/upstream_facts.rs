//! The engine and the hardware of an upstream as configured. Reports group by them, and metrics
//! join them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The engine and the hardware of an upstream as configured when the call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamFacts {
    /// The type and number of accelerators, such as `8xH100-SXM`.
    #[serde(default)]
    pub hardware: Option<String>,
    /// The format of the weights, such as `fp8`.
    #[serde(default)]
    pub quantization: Option<String>,
    /// The maximum number of sequences that the engine decodes at once.
    #[serde(default)]
    pub batch_size: Option<String>,
    /// The engine, such as `vllm`.
    #[serde(default)]
    pub engine: Option<String>,
    /// The version of the engine.
    #[serde(default)]
    pub engine_version: Option<String>,
    /// The revision of the model's weights.
    #[serde(default)]
    pub model_version: Option<String>,
}

impl UpstreamFacts {
    /// Maximum length of a value in bytes.
    pub const MAX_VALUE: usize = 100;
    /// The names of all fields, in the order of [`UpstreamFacts::values`].
    pub const NAMES: [&'static str; 6] = [
        "hardware",
        "quantization",
        "batch_size",
        "engine",
        "engine_version",
        "model_version",
    ];

    /// The values of all fields, in the order of [`UpstreamFacts::NAMES`].
    pub fn values(&self) -> [Option<&str>; 6] {
        [
            self.hardware.as_deref(),
            self.quantization.as_deref(),
            self.batch_size.as_deref(),
            self.engine.as_deref(),
            self.engine_version.as_deref(),
            self.model_version.as_deref(),
        ]
    }

    /// Whether every field is absent.
    pub fn is_empty(&self) -> bool {
        self.values().iter().all(Option::is_none)
    }

    /// The name of the first field whose value is empty, longer than allowed, or contains a `;` or a
    /// control character.
    pub fn unusable(&self) -> Option<&'static str> {
        let bad = |value: &str| {
            let length = value.len();
            length == 0
                || length > UpstreamFacts::MAX_VALUE
                || value.contains(|c: char| c == ';' || c.is_control())
        };
        let named = UpstreamFacts::NAMES.into_iter().zip(self.values());
        let mut named = named.filter_map(|(name, value)| Some((name, value?)));
        named.find(|(_, value)| bad(value)).map(|(name, _)| name)
    }

    fn place(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "hardware" => &mut self.hardware,
            "quantization" => &mut self.quantization,
            "batch_size" => &mut self.batch_size,
            "engine" => &mut self.engine,
            "engine_version" => &mut self.engine_version,
            "model_version" => &mut self.model_version,
            _ => return None,
        })
    }
}

/// Writes the fields that are present, such as `hardware=8xH100; engine=vllm`.
impl fmt::Display for UpstreamFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = UpstreamFacts::NAMES.into_iter().zip(self.values());
        let said = named.filter_map(|(name, value)| Some((name, value?)));
        for (at, (name, value)) in said.enumerate() {
            let apart = if at == 0 { "" } else { "; " };
            write!(f, "{apart}{name}={value}")?;
        }
        Ok(())
    }
}

/// The error for a string that [`UpstreamFacts`] cannot parse.
#[derive(Debug, thiserror::Error)]
#[error("the text is not a list of upstream facts such as `hardware=8xH100; engine=vllm`")]
pub struct NoFacts;

impl FromStr for UpstreamFacts {
    type Err = NoFacts;

    fn from_str(text: &str) -> Result<UpstreamFacts, NoFacts> {
        let mut facts = UpstreamFacts::default();
        for fact in text.split("; ") {
            let (name, value) = fact.split_once('=').ok_or(NoFacts)?;
            *facts.place(name).ok_or(NoFacts)? = Some(value.to_owned());
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_text_is_read_back() {
        let facts = UpstreamFacts {
            hardware: Some("8 x H100".to_owned()),
            engine: Some("vllm".to_owned()),
            engine_version: Some("0.11=rc".to_owned()),
            ..UpstreamFacts::default()
        };
        let text = facts.to_string();
        assert_eq!(
            text,
            "hardware=8 x H100; engine=vllm; engine_version=0.11=rc"
        );
        assert_eq!(text.parse::<UpstreamFacts>().expect("facts"), facts);
        assert!("hardware".parse::<UpstreamFacts>().is_err());
        assert!("colour=red".parse::<UpstreamFacts>().is_err());
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let with = |value: &str| UpstreamFacts {
            quantization: Some(value.to_owned()),
            ..UpstreamFacts::default()
        };
        for bad in ["", "a;b", "a\nb", &"x".repeat(101)] {
            assert_eq!(with(bad).unusable(), Some("quantization"), "{bad:?}");
        }
        assert_eq!(with("fp8").unusable(), None);
    }
}
