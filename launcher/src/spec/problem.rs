//! What is wrong with a spec: one line a problem, which names the field, the
//! value and what would be right.

use std::fmt;

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, or the flag or variable that gave it.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What would be right.
    pub rule: String,
}

impl Problem {
    /// A problem of a field.
    pub fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl fmt::Display,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.to_string(),
            rule: rule.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.field, self.value, self.rule)
    }
}

/// All that is wrong with a spec; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// `Ok` when there is no problem.
    ///
    /// # Errors
    /// The problems, when there are some, each once: many sandboxes may have
    /// one in common.
    pub fn of(problems: Vec<Problem>) -> Result<(), Self> {
        let mut once: Vec<Problem> = Vec::new();
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        if once.is_empty() {
            Ok(())
        } else {
            Err(Self(once))
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
