//! `podcradle extend`.

use podcradle_launcher::lifecycle::ExtendError;
use serde_json::json;

use super::args::{Extend, Global, Output};
use super::exit::{self, Failed};
use super::{connect, output, sessions, timeout};

pub async fn extend(global: &Global, args: &Extend) -> Result<(), Failed> {
    let name = &args.name;
    sessions::check_name("sandbox", name)?;
    let launcher = connect(global)?;
    let moved = launcher.extend(name, args.ttl.0, timeout(global)).await;
    let expires = moved.map_err(|error| match error {
        ExtendError::Call(error) => error.into(),
        ExtendError::NoSuch { .. } | ExtendError::Ending { .. } => {
            Failed::new(exit::NAME, error.to_string())
        }
        refused => Failed::input(refused.to_string()),
    })?;
    match global.output {
        Output::Json | Output::Yaml => output::data(
            global.output,
            &json!({ "sandbox": name, "expires": expires }),
        ),
        Output::Name => output::print(&format!("{name}\n")),
        Output::Table | Output::Wide => {
            let until = expires.map_or_else(
                || "never expires".to_owned(),
                |expires| format!("expires {expires}"),
            );
            output::print(&format!("{name} {until}\n"))
        }
    }
}
