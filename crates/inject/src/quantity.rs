//! Kubernetes quantities, such as `250m`, `1.5`, `384Mi` and `1e3`.

use serde_json::Value;

/// The number of nano units in one unit. Kubernetes distinguishes no smaller part.
const NANO: u128 = 1_000_000_000;
const MI: u128 = (1 << 20) * NANO;

/// An amount in billionths of a core or of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(u128);

impl Quantity {
    pub(super) const fn mebibytes(count: u128) -> Quantity {
        Quantity(count * MI)
    }

    /// `None` if the value is not a quantity above 0.
    pub(super) fn of(value: &Value) -> Option<Quantity> {
        match value {
            Value::String(text) => Quantity::parse(text),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            _ => None,
        }
    }

    pub(super) fn parse(text: &str) -> Option<Quantity> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return None;
        }
        // Nine digits are kept, so that no suffix loses one of them.
        let part: String = part.chars().chain("000000000".chars()).take(9).collect();
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        let number = whole.checked_mul(NANO)?.checked_add(part.parse().ok()?)?;
        let amount = number.checked_mul(factor(suffix)?)? / NANO;
        (amount > 0).then_some(Quantity(amount))
    }

    pub(super) fn plus(self, other: Quantity) -> Quantity {
        Quantity(self.0.saturating_add(other.0))
    }

    pub(super) fn cores(self) -> String {
        format!("{}m", self.0.div_ceil(NANO / 1000))
    }

    /// A number of bytes, such as `1408Mi` for a whole number of mebibytes.
    pub(super) fn bytes(self) -> String {
        match self.0 % MI {
            0 => format!("{}Mi", self.0 / MI),
            _ => self.0.div_ceil(NANO).to_string(),
        }
    }
}

fn factor(suffix: &str) -> Option<u128> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
        return Some(NANO << (10 * (at + 1)));
    }
    if let Some(at) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some(1000u128.pow(u32::try_from(at).ok()?));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let exponent = u32::try_from(exponent + 9).ok().filter(|all| *all <= 27)?;
    Some(10u128.pow(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let nano = |text: &str| Quantity::parse(text).map(|quantity| quantity.0);
        for (text, wanted) in [
            ("1", NANO),
            ("0.5", NANO / 2),
            (".5", NANO / 2),
            ("1.", NANO),
            ("250m", NANO / 4),
            ("100u", 100_000),
            ("7n", 7),
            ("1e3", 1000 * NANO),
            ("1E-3", NANO / 1000),
            ("384Mi", 384 * MI),
            ("1.5Gi", 1536 * MI),
            ("2M", 2_000_000 * NANO),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("+1", NANO),
        ] {
            assert_eq!(nano(text), Some(wanted), "{text}");
        }
        for text in [
            "",
            "-1",
            "0",
            "0m",
            "1 Mi",
            "Mi",
            ".",
            "1.2.3",
            "1MB",
            "1mi",
            "1e99",
            "1e",
            "é",
            "99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(nano(text), None, "{text}");
        }
    }

    #[test]
    fn sums_are_written_in_common_units() {
        let sum = |one, other| {
            let (one, other) = (Quantity::parse(one), Quantity::parse(other));
            one.expect("one").plus(other.expect("other"))
        };
        assert_eq!(sum("1", "200m").cores(), "1200m");
        assert_eq!(sum("1Gi", "384Mi").bytes(), "1408Mi");
        assert_eq!(sum("1G", "1Mi").bytes(), "1001048576");
    }
}
