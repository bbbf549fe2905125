//! The flags of a spec's fields: made from the library's table and schema, so
//! that each field has its flag, and each flag says what the schema says.

use clap::builder::{Arg, Command};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Error, FromArgMatches};
use podcradle_launcher::spec::fields::{FIELDS, Field};
use podcradle_launcher::spec::{Layer, Origin, Setting, schema};

/// What the flags of a command line set.
#[derive(Debug, Clone, Default)]
pub struct SpecFlags(pub Layer);

fn own() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| !field.heading.is_empty())
}

/// What the flags of `session create` set: those of these fields that a session
/// has, and its sandboxes have not.
#[derive(Debug, Clone, Default)]
pub struct SessionFlags(pub Layer);

fn of_session() -> impl Iterator<Item = &'static Field> {
    let paths = [
        "labels",
        "owner",
        "ttl",
        "networkPolicy",
        "networkPolicy.egress",
    ];
    own().filter(move |field| paths.contains(&field.path))
}

impl Args for SessionFlags {
    fn augment_args(command: Command) -> Command {
        of_session().fold(command, |command, field| command.arg(argument(field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SessionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(layer_of(of_session(), matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SpecFlags {
    fn augment_args(command: Command) -> Command {
        let command = own().fold(command, |command, field| command.arg(argument(field)));
        command.arg(
            Arg::new("host")
                .last(true)
                .num_args(1..)
                .value_name("HOST")
                .help("The host's command line [default: host, with --server URL when given]"),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(field: &Field) -> Arg {
    let argument = Arg::new(field.flag)
        .long(field.flag)
        .value_name(field.value)
        .help_heading(field.heading)
        .help(help(field))
        .action(if field.form.repeats() {
            ArgAction::Append
        } else {
            ArgAction::Set
        });
    if field.form.switches() {
        let argument = argument.num_args(0..=1).require_equals(true);
        return argument.default_missing_value("true");
    }
    argument
}

fn help(field: &Field) -> String {
    let what = schema::description(field.path).unwrap_or_default();
    let what = what.trim_end_matches('.').replace('`', "");
    let repeats = if field.form.repeats() {
        " (repeatable)"
    } else {
        ""
    };
    let default = schema::default(field.path);
    let default = default.map_or_else(String::new, |value| format!(" [default: {value}]"));
    format!("{what}{repeats}{default}")
}

impl FromArgMatches for SpecFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut layer = layer_of(own(), matches);
        let host = given(matches, "host");
        if !host.is_empty() {
            let origin = Origin::Flag("-- HOST".to_owned());
            layer.settings.push(Setting::new("host", host, &origin));
        }
        Ok(Self(layer))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn layer_of(fields: impl Iterator<Item = &'static Field>, matches: &ArgMatches) -> Layer {
    let mut layer = Layer::default();
    for field in fields {
        let texts = given(matches, field.flag);
        if texts.is_empty() {
            continue;
        }
        match field.settings(&texts, &Origin::Flag(format!("--{}", field.flag))) {
            Ok(settings) => layer.settings.extend(settings),
            Err(problems) => layer.problems.extend(problems),
        }
    }
    layer
}

fn given(matches: &ArgMatches, id: &str) -> Vec<String> {
    if matches.value_source(id) != Some(ValueSource::CommandLine) {
        return Vec::new();
    }
    let texts = matches.get_many::<String>(id);
    texts.map_or_else(Vec::new, |texts| texts.cloned().collect())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::super::args::{Cli, Command};
    use super::*;

    #[test]
    fn every_flag_of_launch_and_session_create_is_in_the_readme() {
        let readme = include_str!("../../README.md");
        let mut cli = Cli::command();
        cli.build();
        let launch = cli.find_subcommand("launch").unwrap();
        let session = cli.find_subcommand("session").unwrap();
        let create = session.find_subcommand("create").unwrap();
        let flags = launch.get_arguments().chain(create.get_arguments());
        let flags = flags.filter_map(Arg::get_long);
        for flag in flags.filter(|flag| *flag != "help") {
            assert!(
                readme.contains(&format!("`--{flag}")),
                "--{flag} is not in the README"
            );
        }
    }

    fn layer(args: &[&str]) -> Layer {
        let all = ["podcradle", "launch"].iter().chain(args);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Launch(launch) => launch.wanted.fields.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flag_that_is_not_given_sets_nothing() {
        assert_eq!(layer(&[]), Layer::default());
    }

    #[test]
    fn a_switch_stands_alone_or_says_no() {
        let value = |args: &[&str]| layer(args).settings[0].value.clone();
        assert_eq!(value(&["--login-shell"]), true);
        assert_eq!(value(&["--login-shell=false"]), false);
        let taken = layer(&["--login-shell", "--", "agent", "--flag"]);
        assert_eq!(taken.settings[1].path, ["host"]);
        assert_eq!(
            taken.settings[1].value,
            serde_json::json!(["agent", "--flag"])
        );
    }

    #[test]
    fn the_last_of_a_flag_counts_and_lists_grow() {
        assert_eq!(
            layer(&["--image", "a", "--image", "b"]).settings[0].value,
            "b"
        );
        let both = layer(&["--egress", "10.0.0.0/8", "--egress", "::/0"]);
        assert_eq!(
            both.settings[0].value,
            serde_json::json!(["10.0.0.0/8", "::/0"])
        );
    }
}
