//! `make bench-launch`: what a launch costs on the test cluster, beside a
//! launcher of the usual kind (`poller.py`), and what a thousand at once cost.
//! Prints one table; a figure that is owed says whether it is met.

mod bulk;
mod process;
mod single;
mod table;

use std::process::ExitCode;

use table::Table;

fn main() -> ExitCode {
    let mut table = Table::default();
    let filled = single::measure(&mut table).and_then(|()| bulk::measure(&mut table));
    print!("{table}");
    if let Err(error) = filled {
        eprintln!("bench-launch: {error}");
        return ExitCode::FAILURE;
    }
    if table.missed() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The value that this share of all values does not exceed; 0 for none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small index"
    )]
    let place = (share * sorted.len().saturating_sub(1) as f64).ceil() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert!((quantile(&values, 0.5) - 3.0).abs() < f64::EPSILON);
        assert!((quantile(&values, 0.99) - 5.0).abs() < f64::EPSILON);
        assert!(quantile(&[], 0.5).abs() < f64::EPSILON);
    }
}
