//! The exec plugin of a kubeconfig: a program that says who one is, and until
//! when. Asked here and not by the client library, which runs it several times
//! for each client, and again in the middle of a request.

use std::io::IsTerminal as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::ChildStderr;

use super::config::Source;

/// Longest it may take; one that asks a person is slow.
const LONGEST: Duration = Duration::from_mins(1);

/// What it prints. All the rest of it is of no use here.
#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Why it said nothing that is of use.
#[derive(Debug, PartialEq)]
pub(super) enum Trouble {
    /// It did not end.
    Late(String),
    /// All else.
    Wrong(String),
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::Wrong(message)
    }
}

/// Asks the plugin of `user`, when it is the plugin that counts, and puts what
/// it says into its place. Until when that holds, if it says so. It has a minute,
/// or the time of `source`; with `log_plugins` the lines of its standard error
/// go to the log as they come.
///
/// # Errors
/// What is wrong, without what may be a credential: the plugin's arguments and
/// variables, and what it wrote to its standard output.
pub(super) async fn ask(
    user: &mut AuthInfo,
    source: &Source,
) -> Result<Option<Timestamp>, Trouble> {
    let others = [
        user.auth_provider.is_some(),
        user.username.is_some() && user.password.is_some(),
        user.token.is_some(),
        user.token_file.is_some(),
    ];
    let Some(exec) = user.exec.take().filter(|_| !others.contains(&true)) else {
        return Ok(None);
    };
    let command = exec.command.as_deref();
    let command = command.ok_or_else(|| "user: exec: has no command".to_owned())?;
    let plugin = format!("exec plugin {command:?}");
    let time = source.plugin_time.unwrap_or(LONGEST).min(LONGEST);
    let asked = tokio::time::timeout(time, run(command, &exec, source.log_plugins)).await;
    let late = format!("no credentials within {time:?}: {plugin} does not end");
    let output = asked
        .map_err(|_| Trouble::Late(late))?
        .map_err(|error| format!("{plugin} cannot be run: {error}"))?;
    let taken = take(user, &output).map_err(|problem| format!("{plugin} {problem}"));
    Ok(taken?)
}

async fn run(command: &str, exec: &ExecConfig, log: bool) -> std::io::Result<Output> {
    let never = exec.interactive_mode == Some(ExecInteractiveMode::Never);
    let asks = !never && std::io::stdin().is_terminal();
    let mut spec = json!({ "interactive": asks });
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    let info = json!({
        "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec,
    });
    let variables = exec.env.iter().flatten();
    let variables = variables.filter_map(|v| Some((v.get("name")?, v.get("value")?)));
    let mut program = tokio::process::Command::new(command);
    program
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(if asks {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        // Whom to log in as, and where, is for a person to read at once; for
        // a program it would stand between what we say.
        .stderr(if !log && !never && std::io::stderr().is_terminal() {
            Stdio::inherit()
        } else {
            Stdio::piped()
        })
        .kill_on_drop(true);
    let mut child = program.spawn()?;
    let said = child.stderr.take();
    let said = listen(said, |line| {
        if log {
            tracing::warn!("exec plugin {command:?}: {line}");
        }
    });
    let (output, said) = tokio::join!(child.wait_with_output(), said);
    Ok(Output {
        stderr: said?,
        ..output?
    })
}

/// All that a plugin says on standard error, each line told as it comes.
async fn listen(said: Option<ChildStderr>, tell: impl Fn(&str)) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let Some(said) = said else { return Ok(all) };
    let mut said = BufReader::new(said);
    loop {
        let before = all.len();
        if said.read_until(b'\n', &mut all).await? == 0 {
            return Ok(all);
        }
        tell(String::from_utf8_lossy(&all[before..]).trim_end());
    }
}

fn take(user: &mut AuthInfo, output: &Output) -> Result<Option<Timestamp>, String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty());
        let said = said.unwrap_or("see what it wrote to standard error").trim();
        return Err(format!("failed ({}): {said}", output.status));
    }
    let said: Credential = serde_saphyr::from_slice(&output.stdout).map_err(|error| {
        let place = super::config::place(&error);
        format!("gave no ExecCredential: its output is wrong{place}")
    })?;
    let status = said
        .status
        .ok_or("gave no ExecCredential: its output has no status")?;
    match (
        status.token,
        status.client_certificate_data,
        status.client_key_data,
    ) {
        (_, Some(certificate), Some(key)) => {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
            user.client_certificate = None;
            user.client_key = None;
        }
        (Some(token), ..) => user.token = Some(token.into()),
        _ => return Err("gave neither a token nor a certificate with its key".to_owned()),
    }
    let until = status.expiration_timestamp.map(|text| text.parse());
    until
        .transpose()
        .map_err(|_| "gave an expirationTimestamp that is no RFC 3339 time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a plugin that is this script leads to.
    async fn asked(script: &str) -> Result<(AuthInfo, Option<Timestamp>), Trouble> {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "/bin/sh", "args": ["-c", script, "s3cret"],
            "env": [{ "name": "LOGIN", "value": "s3cret" }],
        });
        let mut user = AuthInfo {
            exec: Some(serde_json::from_value(exec).unwrap()),
            ..AuthInfo::default()
        };
        let until = ask(&mut user, &Source::default()).await?;
        Ok((user, until))
    }

    async fn said_of(script: &str) -> String {
        match asked(script).await {
            Ok(_) => panic!("{script}: no error"),
            Err(Trouble::Wrong(message)) => message,
            Err(late) => panic!("{script}: {late:?}"),
        }
    }

    #[tokio::test]
    async fn of_a_plugin_only_its_name_and_its_words_are_shown() {
        let failed = said_of("echo s3cret; echo log in first >&2; exit 3").await;
        assert!(
            failed.contains(r#"exec plugin "/bin/sh" failed"#),
            "{failed}"
        );
        assert!(failed.contains("log in first"), "{failed}");
        let malformed = said_of(r#"printf '{"kind": 1, "status": {"token": "s3cret"'"#).await;
        assert!(malformed.contains("at line 1, column "), "{malformed}");
        let of_another_type = said_of(r#"printf '{"status": {"token": ["s3cret"]}}'"#).await;
        assert!(of_another_type.contains("at line 1"), "{of_another_type}");
        let nothing = said_of(r#"printf '{"status": {"clientKeyData": "s3cret"}}'"#).await;
        assert!(nothing.contains("neither a token nor"), "{nothing}");
        let never = r#"printf '{"status": {"token": "s3cret", "expirationTimestamp": "s3cret"}}'"#;
        let never = said_of(never).await;
        assert!(never.contains("expirationTimestamp"), "{never}");
        for text in [failed, malformed, of_another_type, nothing, never] {
            assert!(
                !text.contains("s3cret") && !text.contains("LOGIN"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn what_it_says_takes_its_place_until_then() {
        let token =
            r#"printf '{"status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}}'"#;
        let (user, until) = asked(token).await.unwrap();
        assert!(user.token.is_some() && user.exec.is_none());
        assert_eq!(until, Some("2030-01-01T00:00:00Z".parse().unwrap()));
        // YAML, as for kubectl; what it is told of comes as a variable.
        let certificate = r#"case $KUBERNETES_EXEC_INFO in *ExecCredential*interactive*false*) ;; *) exit 1;; esac
            [ "$LOGIN" = s3cret ] && printf 'status:\n  clientCertificateData: C\n  clientKeyData: K\n'"#;
        let (user, until) = asked(certificate).await.unwrap();
        assert_eq!(user.client_certificate_data, Some(STANDARD.encode("C")));
        assert!(user.client_key_data.is_some() && user.token.is_none() && until.is_none());
    }

    #[tokio::test]
    async fn a_token_of_ones_own_counts_before_the_plugin() {
        let exec = json!({ "command": "/does/not/exist" });
        let mut user = AuthInfo {
            exec: Some(serde_json::from_value(exec).unwrap()),
            token: Some("mine".to_owned().into()),
            ..AuthInfo::default()
        };
        assert_eq!(ask(&mut user, &Source::default()).await, Ok(None));
    }
}
