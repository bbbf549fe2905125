//! The table: what was measured, what it is compared with, what is owed.

use std::fmt;

/// Rows in the order they were added.
#[derive(Default)]
pub struct Table {
    rows: Vec<[String; 4]>,
    missed: bool,
}

impl Table {
    /// A figure with an upper limit.
    pub fn owed(&mut self, what: &str, value: f64, unit: &str, limit: f64, beside: &str) {
        let met = value <= limit;
        self.missed |= !met;
        let word = if met { "met" } else { "MISSED" };
        let owed = format!("≤ {} {word}", number(limit));
        self.push(what, format!("{} {unit}", number(value)), beside, owed);
    }

    /// A figure with a lower limit.
    pub fn least(&mut self, what: &str, value: f64, unit: &str, limit: f64) {
        let met = value >= limit;
        self.missed |= !met;
        let word = if met { "met" } else { "MISSED" };
        let owed = format!("≥ {} {word}", number(limit));
        self.push(what, format!("{} {unit}", number(value)), "", owed);
    }

    /// A figure that only informs.
    pub fn plain(&mut self, what: &str, value: f64, unit: &str, beside: &str) {
        self.push(
            what,
            format!("{} {unit}", number(value)),
            beside,
            String::new(),
        );
    }

    /// Figures that cannot be had here, and so are not met.
    pub fn absent(&mut self, what: &str, why: &str) {
        self.missed = true;
        self.push(what, "–".to_owned(), why, "NOT MEASURED".to_owned());
    }

    /// Whether an owed figure was missed.
    pub fn missed(&self) -> bool {
        self.missed
    }

    fn push(&mut self, what: &str, value: String, beside: &str, owed: String) {
        self.rows
            .push([what.to_owned(), value, beside.to_owned(), owed]);
    }
}

/// Whole numbers with thousands apart, small ones with a digit.
fn number(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["figure", "here", "beside", "owed"].map(str::to_owned);
        let rule = ["---", "---", "---", "---"].map(str::to_owned);
        let all: Vec<_> = [head, rule].iter().chain(&self.rows).cloned().collect();
        let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
        let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
        for row in all {
            let cells = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
        }
        Ok(())
    }
}
