//! The figures as one Markdown table, with what was promised beside it.

use std::fmt;

use podcradle_tests::pidns::Arch;

use crate::measure::{Burst, Memory};

/// All that was measured of one contender.
pub struct Figures {
    pub name: &'static str,
    pub size: Option<u64>,
    pub linked: &'static str,
    pub memory: Memory,
    pub life: Vec<f64>,
    pub start: Vec<f64>,
    pub latency: Vec<f64>,
    pub bursts: [Vec<Burst>; 2],
}

pub struct Table<'a> {
    figures: &'a [Figures],
    bare: f64,
    sizes: [usize; 2],
    foreign: (Arch, u64),
}

/// The value below which `part` of the sorted values lie.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index into a list of some thousands"
    )]
    let at = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

fn cpu(bursts: &[Burst]) -> Vec<f64> {
    bursts.iter().map(|burst| burst.cpu).collect()
}

/// The worst of a round, of which the middle one counts.
fn backlog(bursts: &[Burst]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of processes")]
    let all: Vec<f64> = bursts.iter().map(|burst| burst.backlog as f64).collect();
    median(&all)
}

impl<'a> Table<'a> {
    pub fn new(
        figures: &'a [Figures],
        bare: &[f64],
        sizes: [usize; 2],
        foreign: (Arch, u64),
    ) -> Self {
        Self {
            figures,
            bare: median(bare),
            sizes,
            foreign,
        }
    }

    fn named(&self, name: &str) -> Option<&Figures> {
        self.figures.iter().find(|figures| figures.name == name)
    }

    fn row(&self, f: &mut fmt::Formatter, figures: &Figures) -> fmt::Result {
        let size = figures.size.map_or("–".to_owned(), grouped);
        let ratio = |value: f64, of: fn(&Figures) -> f64| {
            let base = self.named("tini-static").map_or(f64::NAN, of);
            format!("{value:.0} ({:.2})", value / base)
        };
        write!(f, "| {} | {size} | {} ", figures.name, figures.linked)?;
        let memory = figures.memory;
        write!(
            f,
            "| {} | {} | {} ",
            memory.resident, memory.private, memory.anonymous
        )?;
        write!(f, "| {:.0} ", median(&figures.life) - self.bare)?;
        write!(
            f,
            "| {} ",
            ratio(median(&figures.start), |f| median(&f.start))
        )?;
        write!(
            f,
            "| {} ",
            ratio(median(&figures.latency), |f| median(&f.latency))
        )?;
        write!(
            f,
            "| {} ",
            ratio(quantile(&figures.latency, 0.99), |f| quantile(
                &f.latency, 0.99
            ))
        )?;
        for bursts in &figures.bursts {
            write!(f, "| {:.2} | {:.0} ", median(&cpu(bursts)), backlog(bursts))?;
        }
        writeln!(f, "|")
    }

    /// (what, got, at most): what was promised.
    fn owed(&self) -> Vec<(String, f64, f64)> {
        let (Some(ours), Some(tini)) = (self.named("podcradle-init"), self.named("tini-static"))
        else {
            return Vec::new();
        };
        #[expect(clippy::cast_precision_loss, reason = "sizes of some kilobytes")]
        let number = |value: u64| value as f64;
        let limit = |arch| {
            if arch == Arch::Amd64 {
                65_536.0
            } else {
                131_072.0
            }
        };
        let native = crate::subjects::native();
        let mut list = vec![
            (
                format!("file size, {}, bytes", native.name()),
                number(ours.size.unwrap_or(0)),
                limit(native),
            ),
            (
                format!("file size, {}, bytes", self.foreign.0.name()),
                number(self.foreign.1),
                limit(self.foreign.0),
            ),
            (
                "resident, kB".to_owned(),
                number(ours.memory.resident),
                96.0,
            ),
            (
                "anonymous, kB".to_owned(),
                number(ours.memory.anonymous),
                24.0,
            ),
            (
                "start to the host's first instruction, µs".to_owned(),
                median(&ours.start),
                0.65 * median(&tini.start),
            ),
            (
                "signal p50, µs".to_owned(),
                median(&ours.latency),
                median(&tini.latency),
            ),
            (
                "signal p99, µs".to_owned(),
                quantile(&ours.latency, 0.99),
                quantile(&tini.latency, 0.99),
            ),
        ];
        for (size, (mine, theirs)) in self.sizes.iter().zip(ours.bursts.iter().zip(&tini.bursts)) {
            let size = grouped(*size as u64);
            list.push((
                format!("CPU an orphan, {size}, µs"),
                median(&cpu(mine)),
                median(&cpu(theirs)),
            ));
            list.push((
                format!("worst backlog, {size}"),
                backlog(mine),
                backlog(theirs),
            ));
        }
        list
    }
}

/// Whole where the fraction says nothing.
fn short(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 {
        return format!("{value:.0}");
    }
    format!("{value:.2}")
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [few, many] = self.sizes.map(|size| grouped(size as u64));
        write!(
            f,
            "| | file, bytes | linked | RSS idle, kB | private, kB | anonymous, kB "
        )?;
        write!(
            f,
            "| added to a bare exec, µs | to the host's first instruction, µs "
        )?;
        write!(f, "| signal p50, µs | signal p99, µs ")?;
        write!(f, "| CPU an orphan, {few}, µs | worst backlog ")?;
        writeln!(f, "| CPU an orphan, {many}, µs | worst backlog |")?;
        writeln!(f, "|{}", "---|".repeat(14))?;
        for figures in self.figures {
            self.row(f, figures)?;
        }
        writeln!(
            f,
            "\nIn brackets: the ratio to tini-static. A bare exec took {:.0} µs.\n",
            self.bare
        )?;
        writeln!(f, "| promised | got | at most | |\n|---|---|---|---|")?;
        for (what, got, most) in self.owed() {
            // Two of the same kind differ by some percent from run to run.
            let flag = match got / most {
                ratio if ratio <= 1.0 => "met",
                ratio if ratio <= 1.05 => "met within noise (5 %)",
                _ => "MISSED",
            };
            writeln!(f, "| {what} | {} | {} | {flag} |", short(got), short(most))?;
        }
        Ok(())
    }
}
