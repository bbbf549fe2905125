//! Kubernetes quantities: checked before the first call and compared, so that
//! a request above its limit is refused here and not by the API server.

use std::cmp::Ordering;

/// A quantity in thousandths of its unit, exact.
///
/// *Units*: cores for CPU, bytes for memory and storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    milli: i128,
}

/// What a quantity must look like.
pub const RULE: &str = "must be a quantity such as 500m, 2, 1.5, 512Mi or 4Gi (decimal k M G T P E, binary Ki Mi Gi Ti Pi Ei)";

impl Quantity {
    /// Reads a quantity; `None` when it is not one, is negative, or is finer
    /// than a thousandth.
    ///
    /// *Source*: `k8s.io/apimachinery/pkg/api/resource`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || whole.len() > 18 || fraction.len() > 9 {
            return None;
        }
        let scale = scale_milli(suffix)?;
        let mut value = parse_digits(whole)?.checked_mul(scale)?;
        if !fraction.is_empty() {
            let part = parse_digits(fraction)?.checked_mul(scale)?;
            let divisor = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            if part % divisor != 0 {
                return None;
            }
            value = value.checked_add(part / divisor)?;
        }
        Some(Self { milli: value })
    }

    /// Compares two texts; `None` when one of them is no quantity.
    pub fn compare(a: &str, b: &str) -> Option<Ordering> {
        Some(Self::parse(a)?.cmp(&Self::parse(b)?))
    }
}

fn parse_digits(digits: &str) -> Option<i128> {
    if digits.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    }
}

fn scale_milli(suffix: &str) -> Option<i128> {
    let binary = |power: u32| 1000 * (1i128 << (10 * power));
    let decimal = |power: u32| 1000 * 1000i128.pow(power);
    Some(match suffix {
        "m" => 1,
        "" => 1000,
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        let cmp = |a, b| Quantity::compare(a, b);
        assert_eq!(cmp("500m", "0.5"), Some(Ordering::Equal));
        assert_eq!(cmp("1Gi", "1G"), Some(Ordering::Greater));
        assert_eq!(cmp("1Gi", "1024Mi"), Some(Ordering::Equal));
        assert_eq!(cmp("2", "1999m"), Some(Ordering::Greater));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            ".",
            "m",
            "1 Gi",
            "-1",
            "1gb",
            "1KB",
            "1..2",
            "0x10",
            "1e",
            "٣",
            "999999999999999999999",
        ] {
            assert_eq!(Quantity::parse(bad), None, "{bad:?}");
        }
    }
}
