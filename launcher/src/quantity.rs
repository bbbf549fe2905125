//! Kubernetes quantities: checked before the first call and compared, so that
//! a request above its limit is refused here and not by the API server.

use std::cmp::Ordering;

/// A quantity in billionths of its unit, the finest that Kubernetes knows.
///
/// *Units*: cores for CPU, bytes for memory and storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nano: i128,
}

/// What a quantity must look like.
pub const RULE: &str = "must be a quantity such as 500m, 2, 1.5, 1e3, 512Mi or 4Gi (decimal k M G T P E, binary Ki Mi Gi Ti Pi Ei)";

impl Quantity {
    /// Reads a quantity; `None` when it is not one or is negative. What is
    /// finer than a billionth is rounded up, as Kubernetes does.
    ///
    /// *Source*: `k8s.io/apimachinery/pkg/api/resource`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || whole.len() > 18 || fraction.len() > 18 {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let places = i32::try_from(fraction.len()).ok()?;
        let (factor, power) = scale(suffix)?;
        let value = digits.checked_mul(factor)?;
        // From units, shifted by the fraction's places, to billionths.
        let power = power + 9 - places;
        let by = 10i128.checked_pow(power.unsigned_abs())?;
        let nano = if power >= 0 {
            value.checked_mul(by)?
        } else {
            value / by + i128::from(value % by != 0)
        };
        Some(Self { nano })
    }

    /// Compares two texts; `None` when one of them is no quantity.
    pub fn compare(a: &str, b: &str) -> Option<Ordering> {
        Some(Self::parse(a)?.cmp(&Self::parse(b)?))
    }
}

/// What a suffix multiplies by: a factor, and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1i128 << (10 * power), 0));
    let decimal = |power: i32| Some((1, power));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-18..=18).contains(&power).then_some((1, power))
        }
    }
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
    fn every_form_that_kubernetes_reads_is_read() {
        for (text, same) in [
            ("1e3", "1k"),
            ("0.3333333333333333", "333333334n"),
            ("1E3", "1000"),
            ("1.5e2", "150"),
            ("12e-1", "1200m"),
            ("1e+3", "1000"),
            ("+2", "2"),
            ("1E", "1000P"),
            ("250000u", "250m"),
            ("5n", "0.000000005"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.5Ki", "512"),
            // Rounded up to the finest there is.
            ("0.1n", "1n"),
            ("1e-18", "1n"),
        ] {
            let found = Quantity::parse(text);
            assert!(found.is_some(), "{text}");
            assert_eq!(found, Quantity::parse(same), "{text}");
        }
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
            "1ee3",
            "1e3k",
            "1e1.5",
            "1e3Mi",
            "e3",
            "--1",
            "1e99999999999",
            "٣",
            "999999999999999999999",
        ] {
            assert_eq!(Quantity::parse(bad), None, "{bad:?}");
        }
    }
}
