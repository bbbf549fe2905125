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
    /// A list for each round.
    pub latency: Vec<Vec<f64>>,
    pub bursts: [Vec<Burst>; 2],
}

/// What a host costs without any init.
#[derive(Default)]
pub struct Bare {
    pub life: Vec<f64>,
    pub start: Vec<f64>,
}

pub struct Table<'a> {
    figures: &'a [Figures],
    bare: &'a Bare,
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

/// The rounds whose median is the larger.
fn larger(one: Vec<f64>, other: Vec<f64>) -> Vec<f64> {
    if median(&one) > median(&other) {
        one
    } else {
        other
    }
}

/// The worst of each round.
fn backlogs(bursts: &[Burst]) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a count of processes")]
    let number = |burst: &Burst| burst.backlog as f64;
    bursts.iter().map(number).collect()
}

impl Figures {
    /// A quantile of the signal latencies, round by round.
    fn rounds(&self, part: f64) -> Vec<f64> {
        self.latency
            .iter()
            .map(|round| quantile(round, part))
            .collect()
    }
}

impl<'a> Table<'a> {
    pub fn new(
        figures: &'a [Figures],
        bare: &'a Bare,
        sizes: [usize; 2],
        foreign: (Arch, u64),
    ) -> Self {
        Self {
            figures,
            bare,
            sizes,
            foreign,
        }
    }

    fn named(&self, name: &str) -> Option<&Figures> {
        self.figures.iter().find(|figures| figures.name == name)
    }

    fn row(&self, f: &mut fmt::Formatter, figures: &Figures) -> fmt::Result {
        let size = figures.size.map_or("–".to_owned(), grouped);
        let beside = |text: String, of: &dyn Fn(&Figures) -> f64| {
            let to = |name| of(figures) / self.named(name).map_or(f64::NAN, of);
            format!("{text} ({:.2}, {:.2})", to("tini"), to("tini-static"))
        };
        let ratio = |of: &dyn Fn(&Figures) -> f64| beside(format!("{:.0}", of(figures)), of);
        write!(f, "| {} | {size} | {} ", figures.name, figures.linked)?;
        let memory = figures.memory;
        write!(
            f,
            "| {} | {} | {} ",
            memory.resident, memory.private, memory.anonymous
        )?;
        write!(
            f,
            "| {:.0} ",
            median(&figures.life) - median(&self.bare.life)
        )?;
        let start = ratio(&|f| median(&f.start));
        let p50 = ratio(&|f| median(&f.rounds(0.5)));
        let p99 = ratio(&|f| median(&f.rounds(0.99)));
        write!(f, "| {start} | {p50} | {p99} ")?;
        for size in 0..self.sizes.len() {
            let each = |f: &Figures| median(&cpu(&f.bursts[size]));
            let each = beside(format!("{:.2}", each(figures)), &each);
            let backlog = ratio(&|f| median(&backlogs(&f.bursts[size])));
            write!(f, "| {each} | {backlog} ")?;
        }
        writeln!(f, "|")
    }

    /// What was promised, in the order of the columns: the start is held against tini-static,
    /// which starts like us without a loader, all else against the larger figure of the two.
    fn owed(&self) -> Vec<Owed> {
        let named = ["podcradle-init", "tini", "tini-static"].map(|name| self.named(name));
        let [Some(ours), Some(dynamic), Some(fixed)] = named else {
            return Vec::new();
        };
        let limit = |arch| if arch == Arch::Amd64 { 65_536 } else { 131_072 };
        let native = crate::subjects::native();
        let (foreign, size) = self.foreign;
        let bytes = |arch: Arch| format!("file size, {}, bytes", arch.name());
        let first = "to the host's first instruction, µs";
        let (p50, p99) = ("signal p50, µs", "signal p99, µs");
        let mut list = vec![
            Owed::fixed(&bytes(native), ours.size.unwrap_or(0), limit(native)),
            Owed::fixed(&bytes(foreign), size, limit(foreign)),
            Owed::fixed("resident, kB", ours.memory.resident, 96),
            Owed::fixed("anonymous, kB", ours.memory.anonymous, 24),
            Owed::measured(first, &ours.start, &fixed.start, 0.65),
        ];
        let mut no_more_than_tini = |what: &str, of: &dyn Fn(&Figures) -> Vec<f64>| {
            let theirs = larger(of(dynamic), of(fixed));
            list.push(Owed::measured(what, &of(ours), &theirs, 1.0));
        };
        no_more_than_tini(p50, &|f| f.rounds(0.5));
        no_more_than_tini(p99, &|f| f.rounds(0.99));
        for (at, size) in self.sizes.iter().enumerate() {
            let size = grouped(*size as u64);
            let what = format!("CPU an orphan, {size}, µs");
            no_more_than_tini(&what, &|f| cpu(&f.bursts[at]));
            let what = format!("worst backlog, {size}");
            no_more_than_tini(&what, &|f| backlogs(&f.bursts[at]));
        }
        list
    }
}

/// One promise, and what became of it.
struct Owed {
    what: String,
    got: f64,
    most: f64,
    flag: &'static str,
}

impl Owed {
    /// A figure that does not change from round to round.
    fn fixed(what: &str, got: u64, most: u64) -> Self {
        let flag = if got <= most { "met" } else { "MISSED" };
        #[expect(clippy::cast_precision_loss, reason = "sizes of some kilobytes")]
        let (got, most) = (got as f64, most as f64);
        let what = what.to_owned();
        Self {
            what,
            got,
            most,
            flag,
        }
    }

    /// At most `part` of what a peer needs, by the medians. Where ours is above
    /// but the middle halves of the rounds overlap, the run does not tell.
    fn measured(what: &str, ours: &[f64], theirs: &[f64], part: f64) -> Self {
        let (got, most) = (median(ours), part * median(theirs));
        let overlap = quantile(ours, 0.25) <= part * quantile(theirs, 0.75);
        let flag = match (got <= most, overlap) {
            (true, _) => "met",
            (false, true) => "met within noise",
            (false, false) => "MISSED",
        };
        let what = what.to_owned();
        Self {
            what,
            got,
            most,
            flag,
        }
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
            "\nIn brackets: the ratios to tini and to tini-static. Times are from the exec. Alone, the host took {:.0} µs to its first instruction, {:.0} to its end.\n",
            median(&self.bare.start),
            median(&self.bare.life)
        )?;
        writeln!(f, "| promised | got | at most | |\n|---|---|---|---|")?;
        for owed in self.owed() {
            let (got, most) = (short(owed.got), short(owed.most));
            writeln!(f, "| {} | {got} | {most} | {} |", owed.what, owed.flag)?;
        }
        Ok(())
    }
}
