//! From the command line to a [`SandboxSpec`].

use std::collections::BTreeMap;

use podcradle_launcher::spec::{Problem, Problems, Repo, passthrough};
use podcradle_launcher::{SandboxSpec, name};

use super::args::{Global, Launch};
use super::exit::Failed;

pub fn spec_of(global: &Global, args: &Launch) -> Result<SandboxSpec, Failed> {
    let sandbox = match (&args.sandbox, &args.name) {
        (Some(exact), _) => exact.clone(),
        (None, label) => {
            let label = label.as_deref().unwrap_or("sandbox");
            name::check_rfc1123_label(label, name::MAX_LABEL)
                .map_err(|rule| Failed::input(format!("--name {label:?}: {rule}")))?;
            name::generate(label)
        }
    };
    let mut spec = SandboxSpec::new(sandbox, &args.image);
    let set = |field: &mut String, value: &Option<String>| {
        if let Some(value) = value {
            field.clone_from(value);
        }
    };
    set(&mut spec.launch_id, &args.launch_id);
    set(&mut spec.init_dir, &args.init_dir);
    set(&mut spec.host_id, &args.host_id);
    set(&mut spec.host_name, &args.host_name);
    set(&mut spec.env_prefix, &args.env_prefix);
    set(&mut spec.service_account, &args.service_account);
    set(&mut spec.resources.cpu_request, &args.cpu_request);
    set(&mut spec.resources.memory_request, &args.memory_request);
    set(&mut spec.resources.cpu_limit, &args.cpu_limit);
    set(&mut spec.resources.memory_limit, &args.memory_limit);
    spec.prep_image.clone_from(&args.prep_image);
    spec.image_pull_policy.clone_from(&args.image_pull_policy);
    spec.server.clone_from(&args.server);
    spec.credentials_secret.clone_from(&args.credentials_secret);
    spec.host.clone_from(&args.host);
    spec.node_selector = args.node_selector.iter().cloned().collect();
    spec.keep_on_failure = args.keep_on_failure;
    if let Some(ttl) = args.ttl {
        spec.ttl = ttl.0;
    }
    if let Some(lifetime) = args.max_lifetime {
        spec.max_lifetime = lifetime;
    }
    if let Some(total) = global.timeout {
        spec.budgets.total = total;
    }
    spec.repo = args.repo.as_ref().map(|url| Repo {
        url: url.clone(),
        branch: args.branch.clone(),
        dir: args.repo_dir.clone().unwrap_or_default(),
    });
    spec.env = environment(&args.env, &spec.env_prefix)?;
    Ok(spec)
}

fn environment(names: &[String], prefix: &str) -> Result<BTreeMap<String, String>, Failed> {
    let mut env = BTreeMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    for name in names {
        let value = std::env::var_os(name).map(std::ffi::OsString::into_string);
        match value {
            Some(Err(_)) => problems.push(Problem {
                field: "env".to_owned(),
                value: name.clone(),
                rule: "its value is not UTF-8 text".to_owned(),
            }),
            value => {
                match passthrough(name, value.as_ref().and_then(|v| v.as_deref().ok()), prefix) {
                    Ok(()) => {
                        env.insert(name.clone(), value.and_then(Result::ok).unwrap_or_default());
                    }
                    Err(problem) => problems.push(problem),
                }
            }
        }
    }
    if problems.is_empty() {
        Ok(env)
    } else {
        Err(Failed::problems(&Problems(problems).to_string()))
    }
}
