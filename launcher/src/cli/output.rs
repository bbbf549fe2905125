//! Printing: JSON for programs, aligned columns for people. A reader that has
//! gone away (`| head`) is no failure.

use std::fmt::Write as _;
use std::io::Write as _;

use jiff::Timestamp;
use serde::Serialize;

use super::args::Output;
use super::exit::Failed;
use super::say::printable;

/// Writes to stdout.
pub fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failed::unexpected(format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failed> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| Failed::unexpected(e.to_string()))?;
    print(&format!("{text}\n"))
}

/// Prints a value as YAML when that is asked for, else as JSON.
pub fn data(format: Output, value: &impl Serialize) -> Result<(), Failed> {
    if format == Output::Yaml {
        print(&yaml(value)?)
    } else {
        json(value)
    }
}

/// One YAML document.
pub fn yaml(value: &impl Serialize) -> Result<String, Failed> {
    let text = serde_saphyr::to_string(value).map_err(|e| Failed::unexpected(e.to_string()))?;
    Ok(format!("{}\n", text.trim_end()))
}

/// Rows under a heading, in columns.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain(heading.get(column).map(|h| h.len()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    let heading: Vec<_> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{:width$}   ", printable(cell));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How long until an expiry.
pub fn until(expires: Option<&str>) -> String {
    let at = expires.and_then(|text| text.parse::<Timestamp>().ok());
    if at.is_some_and(|at| at <= Timestamp::now()) {
        return "expired".to_owned();
    }
    distance(expires)
}

/// A moment, as how far it is from now: `5m`, `3h`, `2d`.
pub fn distance(moment: Option<&str>) -> String {
    let Some(moment) = moment else {
        return "-".to_owned();
    };
    let Ok(at) = moment.parse::<Timestamp>() else {
        return moment.to_owned();
    };
    let seconds = (at.as_second() - Timestamp::now().as_second()).unsigned_abs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_that_is_over_is_told_apart_from_one_to_come() {
        assert_eq!(until(Some("2001-01-01T00:00:00Z")), "expired");
        assert!(until(Some("2999-01-01T00:00:00Z")).ends_with('d'));
        assert_eq!(until(None), "-");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["long-name".to_owned(), "x".to_owned()]];
        assert_eq!(
            table(&["NAME", "STATE"], &rows),
            "NAME        STATE\nlong-name   x\n"
        );
    }
}
