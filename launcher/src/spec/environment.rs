//! The environment as a layer: the variables of Podcradle, and under a profile
//! those of the program that it stands in for.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::fields::{FIELDS, Form};
use super::{Layer, Origin, Problem, Profile, Setting};

/// An environment: the process' own, or one made for a test.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The text of a variable; empty is as good as unset.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.value(name) {
            Ok(text) => Ok(text.filter(|text| !text.is_empty())),
            Err(rule) => Err(Problem::new(name, "", rule)),
        }
    }

    /// The value of a variable, the empty one too.
    pub(super) fn value(&self, name: &str) -> Result<Option<&str>, &'static str> {
        let value = self.0.get(std::ffi::OsStr::new(name));
        value.map_or(Ok(None), |value| {
            value
                .to_str()
                .map(Some)
                .ok_or("its value is not UTF-8 text")
        })
    }

    /// Variables that look like one of ours and are none: a misspelt one would
    /// do nothing, silently. With each the one that was perhaps meant.
    pub fn misspelt(&self, known: &[String]) -> Vec<(String, String)> {
        let names = self.0.keys().filter_map(|name| name.to_str());
        names
            .filter(|name| name.starts_with("PODCRADLE_") && !known.iter().any(|one| one == name))
            .filter_map(|name| {
                let near = known
                    .iter()
                    .find(|one| strsim::damerau_levenshtein(one, name) <= 2)?;
                Some((name.to_owned(), near.clone()))
            })
            .collect()
    }

    /// What the variables of Podcradle set.
    pub fn layer(&self) -> Layer {
        let mut layer = Layer::default();
        for field in FIELDS {
            if let Some(name) = field.variable() {
                self.read(&name, field.form, &mut layer, |texts, origin| {
                    field.settings(texts, origin)
                });
            }
        }
        layer
    }

    /// What the variables of a profile set. They count under that profile alone.
    pub fn profile_layer(&self, profile: Profile) -> Layer {
        let mut layer = Layer::default();
        for (name, path) in profile.variables() {
            let Some(path) = *path else { continue };
            let form = if path == "env" {
                Form::Names
            } else {
                Form::Text
            };
            self.read(name, form, &mut layer, |texts, origin| {
                Ok(texts
                    .iter()
                    .map(|text| match path {
                        "env" => Setting::new(&format!("env.{text}"), true, origin),
                        path => Setting::new(path, text.as_str(), origin),
                    })
                    .collect())
            });
        }
        layer
    }

    fn read(
        &self,
        name: &str,
        form: Form,
        layer: &mut Layer,
        settings: impl Fn(&[String], &Origin) -> Result<Vec<Setting>, Vec<Problem>>,
    ) {
        let text = self.text(name).map_err(|problem| vec![problem]);
        let read = text.and_then(|text| match text {
            Some(text) => settings(&texts(text, form), &Origin::Variable(name.to_owned())),
            None => Ok(Vec::new()),
        });
        match read {
            Ok(settings) => layer.settings.extend(settings),
            Err(problems) => layer.problems.extend(problems),
        }
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let pairs = variables.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// A variable holds what a repeated flag would be given, between blanks or
/// commas; a mount has commas of its own.
fn texts(text: &str, form: Form) -> Vec<String> {
    if !form.repeats() {
        return vec![text.to_owned()];
    }
    let between = |c: char| c.is_whitespace() || (c == ',' && form != Form::Mounts);
    let words = text.split(between).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named_and_a_strangers_is_not() {
        let names = [
            "PODCRADLE_MEMORY_LIMT",
            "PODCRADLE_MEMORY_LIMIT",
            "PODCRADLE_TESTBED",
            "MEMORY_LIMT",
        ];
        let environment: Environment = names.iter().map(|name| (name, "x")).collect();
        let known = FIELDS
            .iter()
            .filter_map(super::super::fields::Field::variable);
        assert_eq!(
            environment.misspelt(&known.collect::<Vec<_>>()),
            [(
                "PODCRADLE_MEMORY_LIMT".into(),
                "PODCRADLE_MEMORY_LIMIT".into()
            )]
        );
    }

    #[test]
    fn an_empty_variable_is_as_good_as_none_and_a_strange_one_is_named() {
        use std::os::unix::ffi::OsStringExt as _;
        let strange = OsString::from_vec(vec![0xff]);
        let variables = [
            (OsString::from("PODCRADLE_IMAGE"), OsString::new()),
            (OsString::from("PODCRADLE_HOME"), strange),
        ];
        let layer = variables.into_iter().collect::<Environment>().layer();
        assert_eq!(layer.settings, []);
        assert_eq!(layer.problems.len(), 1);
        assert!(layer.problems[0].to_string().contains("PODCRADLE_HOME"));
    }

    #[test]
    fn a_repeated_flags_values_stand_between_blanks_or_commas() {
        assert_eq!(texts("a, b c", Form::List), ["a", "b", "c"]);
        let mounts = "claim=a,path=/a secret=b,path=/b";
        assert_eq!(texts(mounts, Form::Mounts).len(), 2);
        assert_eq!(texts("a, b", Form::Text), ["a, b"]);
    }
}
