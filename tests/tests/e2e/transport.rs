//! The way to the API server and back: lost answers, busy servers, watches that
//! break, credentials that change, proxies, and the account of a Pod.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podcradle_tests::e2e::middle::{Fault, Seen, Storm, WatchFault, once};
use podcradle_tests::e2e::proxy::{Proxy, Tunnel};
use podcradle_tests::e2e::{Actor, Arch, Cluster, Middle, NAMESPACE, Running, WATCHDOG};
use podcradle_tests::harness::{Outcome, Stop, skip};
use podcradle_tests::{ensure, testbed};
use serde_json::{Value, json};

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("every_write_survives_what_may_happen_to_it", writes),
    ("a_write_that_is_never_answered_is_tried_again", unanswered),
    ("a_watch_that_breaks_goes_on", watches),
    ("a_watch_that_falls_silent_is_given_up", silence),
    ("what_a_silent_watch_keeps_back_is_looked_at", untold),
    ("a_storm_is_survived", storms),
    ("a_busy_server_is_asked_again_when_it_says", busy),
    (
        "an_exec_plugin_is_asked_again_when_its_token_is_refused",
        exec,
    ),
    (
        "an_exec_plugin_that_fails_is_named_and_not_its_output",
        bad_exec,
    ),
    ("a_token_file_that_changes_is_read_again", rotation),
    ("a_client_certificate_will_do", certificate),
    ("a_proxy_is_used_unless_no_proxy_names_the_server", proxies),
    ("an_https_proxy_is_trusted_as_the_server_is", https_proxies),
    ("the_account_of_a_pod_will_do", in_cluster),
];

/// The one test that others would not survive.
pub const ALONE: (&str, Test) = ("a_restart_of_the_api_server_is_survived", restart);

const WRITES: [(&str, &str); 5] = [
    ("POST", "services"),
    ("POST", "pods"),
    ("POST", "secrets"),
    ("PATCH", "pods"),
    ("PATCH", "services"),
];

/// Launches, whatever the weather, to exactly one sandbox; deletes it.
fn launch_through(actor: &Actor, middle: &Middle, what: &str) -> Outcome {
    let name = actor.reserve("weather")?;
    let launch = actor.launch(&name).host(&["sleep", "1000"]).start()?;
    came_through(actor, middle, what, &name, launch)
}

fn came_through(
    actor: &Actor,
    middle: &Middle,
    what: &str,
    name: &str,
    launch: Running,
) -> Outcome {
    let ended = launch.wait(WATCHDOG)?;
    ensure!(
        ended.code == 0,
        "{what}: exit {}: {}{}; met {:#?}",
        ended.code,
        ended.stdout,
        ended.stderr,
        middle.hurt()
    );
    ensure!(!middle.hurt().is_empty(), "{what}: nothing was met");
    let left = actor.cluster.admin.left_of(name)?;
    ensure!(left.len() == 3, "{what}: there are {left:?}");
    middle.script(|_| None);
    actor.run(&["delete", name])?;
    gone(actor, name)
}

/// Each takes the time of a try, so they go at the same time.
fn unanswered(arch: Arch) -> Outcome {
    let mut begun = Vec::new();
    let done = WRITES.map(|(verb, resource)| (verb, resource, Fault::DoneButSilent));
    for (verb, resource, fault) in done.into_iter().chain([("POST", "pods", Fault::Silent)]) {
        let actor = Actor::new(arch)?;
        let middle = Middle::before(&actor)?;
        middle.script(once(verb, resource, fault));
        let name = actor.reserve("unanswered")?;
        let launch = actor.launch(&name).host(&["sleep", "1000"]).start()?;
        begun.push((
            format!("{fault:?} at {verb} {resource}"),
            actor,
            middle,
            name,
            launch,
        ));
    }
    for (what, actor, middle, name, launch) in begun {
        came_through(&actor, &middle, &what, &name, launch)?;
    }
    Ok(())
}

fn writes(arch: Arch) -> Outcome {
    for fault in [
        Fault::Refuse(503),
        Fault::DoneButSay(504),
        Fault::Reset,
        Fault::DoneButReset,
        Fault::Late(Duration::from_millis(500)),
    ] {
        let actor = Actor::new(arch)?;
        let middle = Middle::before(&actor)?;
        let mut met = BTreeSet::new();
        middle.script(move |seen: &Seen| {
            let write = WRITES.contains(&(seen.verb.as_str(), seen.resource.as_str()));
            let first = met.insert((seen.verb.clone(), seen.resource.clone()));
            (write && first).then_some(fault)
        });
        launch_through(&actor, &middle, &format!("{fault:?}"))?;
    }
    Ok(())
}

fn watches(arch: Arch) -> Outcome {
    for fault in [
        Fault::Watch(1, WatchFault::Truncated),
        Fault::Watch(1, WatchFault::End),
        Fault::Watch(1, WatchFault::Gone),
        Fault::Refuse(410),
    ] {
        let actor = Actor::new(arch)?;
        let middle = Middle::before(&actor)?;
        middle.script(once("WATCH", "pods", fault));
        launch_through(&actor, &middle, &format!("{fault:?}"))?;
    }
    Ok(())
}

/// An API server ends a watch after a minute; one that does not is gone.
fn silence(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let fault = Fault::Watch(0, WatchFault::Silence);
    middle.script(once("WATCH", "pods", fault));
    launch_through(&actor, &middle, "silence")
}

/// Nobody's time is over before the Pod was looked at: the host runs, only the
/// watch does not say so.
fn untold(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    middle.script(once("WATCH", "pods", Fault::Watch(0, WatchFault::Silence)));
    let name = actor.reserve("untold")?;
    let options = ["--schedule-timeout", "30s", "--pull-timeout", "30s"];
    let launch = actor.launch(&name).option(&options);
    let launch = launch.option(&["--init-timeout", "30s"]);
    launch.host(&["sleep", "1000"]).run()?;
    ensure!(!middle.hurt().is_empty(), "nothing was met");
    Ok(())
}

fn storms(arch: Arch) -> Outcome {
    for seed in 1..=3 {
        let actor = Actor::new(arch)?;
        let middle = Middle::before(&actor)?;
        let mut storm = Storm::new(seed, 8);
        middle.script(move |seen| storm.fault(seen));
        launch_through(&actor, &middle, &format!("storm {seed}"))?;
    }
    Ok(())
}

fn busy(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let mut left = 3;
    middle.script(move |_| {
        left -= i32::from(left > 0);
        (left > 0).then_some(Fault::TryAgainIn(1))
    });
    let before = std::time::Instant::now();
    launch_through(&actor, &middle, "429")?;
    // Two refusals that each ask for a second.
    let took = before.elapsed();
    ensure!(took >= Duration::from_secs(2), "asked again after {took:?}");
    Ok(())
}

/// A kubeconfig whose user is what this plugin says, for whoever is in the middle.
fn plugin(actor: &Actor, middle: &Middle, script: &str) -> Outcome {
    let program = actor.folder().join("plugin");
    let folder = actor.folder().display();
    std::fs::write(&program, format!("#!/bin/sh\ncd '{folder}'\n{script}\n"))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
    let user = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": program, "provideClusterInfo": true,
    }});
    let (server, authority) = middle.server();
    let cluster = actor.cluster;
    cluster.kubeconfig_for(actor.kubeconfig(), &server, authority, &user)?;
    Ok(())
}

/// It has a token that is no good, unless there is a file `good` with another.
const PLUGIN: &str = r#"token=$(cat good 2> /dev/null || echo no.such.token)
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$token""#;

/// How often services were asked for.
fn lists(middle: &Middle) -> usize {
    let seen = middle.seen();
    seen.iter().filter(|s| s.resource == "services").count()
}

fn exec(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    plugin(&actor, &middle, PLUGIN)?;
    // One that has no good token is asked once more, and no third time.
    let refused = actor.try_run(&["list"])?.with_code(3)?;
    let stderr = &refused.stderr;
    ensure!(stderr.contains("credentials"), "stderr: {stderr}");
    ensure!(lists(&middle) == 2, "asked: {:?}", middle.seen());
    // One that has it meanwhile: the request is sent again.
    let (to, good) = (
        actor.folder().join("good"),
        actor.credential_token().to_owned(),
    );
    middle.script(move |_| {
        // What cannot be written shows as credentials that are refused.
        let _ = std::fs::write(&to, &good);
        None
    });
    actor.run(&["list"])?;
    ensure!(lists(&middle) == 4, "asked: {:?}", middle.seen());
    let name = actor.reserve("exec-plugin")?;
    actor.launch(&name).host(&["sleep", "1000"]).run()?;
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

fn bad_exec(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let script = "echo half-a-secret; echo log in first >&2; exit 3";
    plugin(&actor, &middle, script)?;
    let ended = actor.try_run(&["list"])?.with_code(2)?;
    let stderr = &ended.stderr;
    ensure!(
        stderr.contains("plugin") && stderr.contains("log in first"),
        "stderr: {stderr}"
    );
    ensure!(!stderr.contains("half-a-secret"), "stderr: {stderr}");
    Ok(())
}

fn rotation(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let middle = Middle::before(&actor)?;
    let file = actor.folder().join("rotated");
    std::fs::write(&file, "no.such.token")?;
    let (server, authority) = middle.server();
    let user = json!({ "tokenFile": file });
    let cluster = actor.cluster;
    cluster.kubeconfig_for(actor.kubeconfig(), &server, authority, &user)?;
    // Whoever rotates it is just late.
    let (to, good) = (file.clone(), actor.credential_token().to_owned());
    middle.script(move |_| {
        // What cannot be written shows as credentials that are refused.
        let _ = std::fs::write(&to, &good);
        None
    });
    actor.run(&["list"])?;
    ensure!(lists(&middle) == 2, "asked: {:?}", middle.seen());
    Ok(())
}

fn certificate(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let kubeconfig = actor.cluster.admin.kubeconfig();
    let text = std::fs::read_to_string(kubeconfig)?;
    if !text.contains("client-certificate") {
        return Err(skip("the cluster's kubeconfig has no client certificate"));
    }
    let name = actor.reserve("certificate")?;
    let launch = actor.launch(&name).option(&["-n", NAMESPACE]);
    for mut command in [
        launch.host(&["sleep", "1000"]).command(),
        actor.podcradle(&["delete", &name, "-n", NAMESPACE]),
    ] {
        command.env("KUBECONFIG", kubeconfig);
        Running::start(&mut command)?.wait(WATCHDOG)?.with_code(0)?;
    }
    gone(&actor, &name)
}

/// The API server at an address that is not the loopback, which no proxy is
/// asked for.
fn outside(actor: &Actor) -> Result<(Proxy, SocketAddr), Stop> {
    let api = actor.cluster.api()?;
    actor.cluster.audit.as_ref().map_err(skip)?;
    let proxy = Proxy::between(actor.cluster.address, api)?;
    let at = proxy.address();
    Ok((proxy, at))
}

fn proxies(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (_outside, at) = outside(&actor)?;
    actor.go_through(at)?;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let list = |variables: &[(&str, &str)]| {
        let mut command = actor.podcradle(&["list"]);
        Running::start(with_proxy(&mut command, variables))?.wait(WATCHDOG)
    };
    let nobody = format!("http://{closed}");
    let refused = list(&[("HTTPS_PROXY", &nobody)])?.with_code(3)?;
    ensure!(
        refused.stderr.contains(&nobody) && refused.stderr.contains("proxy"),
        "does not name the proxy: {}",
        refused.stderr
    );
    let host = at.ip().to_string();
    for exceptions in [host.as_str(), "*", "10.0.0.0/8,", &at.to_string()] {
        list(&[("HTTPS_PROXY", &nobody), ("NO_PROXY", exceptions)])?.with_code(0)?;
    }
    // That NO_PROXY names the proxy is no reason not to use it.
    let tunnel = Tunnel::open()?;
    let through = format!("http://{}", tunnel.address());
    list(&[("HTTPS_PROXY", &through), ("NO_PROXY", "127.0.0.1")])?.with_code(0)?;
    ensure!(
        tunnel.used() == 1,
        "the proxy was asked {} times",
        tunnel.used()
    );
    let bad = list(&[("HTTPS_PROXY", "socks5://127.0.0.1:1")])?.with_code(2)?;
    ensure!(
        bad.stderr.contains("HTTPS_PROXY") && bad.stderr.contains("SOCKS"),
        "stderr: {}",
        bad.stderr
    );
    Ok(())
}

/// A program with these variables of a proxy and no others.
fn with_proxy<'a>(command: &'a mut Command, variables: &[(&str, &str)]) -> &'a mut Command {
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "NO_PROXY",
        "no_proxy",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied())
}

/// By the authorities of the kubeconfig, or the system's where it names none.
fn https_proxies(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (_outside, at) = outside(&actor)?;
    let server = format!("https://{at}");
    let (_, authority, token) = actor.credentials();
    let authority = STANDARD.decode(authority)?;
    let (tunnel, certificate) = Tunnel::behind_tls()?;
    let both = [&authority[..], b"\n", certificate.as_bytes()].concat();
    let proxy = format!("https://{}", tunnel.address());
    let kubeconfig = |cluster: &Value| -> Outcome {
        let mut cluster = cluster.clone();
        cluster["server"] = json!(server);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": {
                "cluster": "c", "user": "u", "namespace": NAMESPACE,
            } }],
        });
        Ok(std::fs::write(actor.kubeconfig(), config.to_string())?)
    };
    let name = actor.reserve("https-proxy")?;
    let launch = |variables: &[(&str, &str)]| {
        let mut command = actor.launch(&name).host(&["sleep", "1000"]).command();
        Running::start(with_proxy(&mut command, variables))?.wait(WATCHDOG)
    };
    let used = || tunnel.used();
    // One that nobody vouches for: nothing was sent, and so nothing is in doubt.
    kubeconfig(&json!({ "certificate-authority-data": STANDARD.encode(&authority) }))?;
    let refused = launch(&[("HTTPS_PROXY", &proxy)])?.with_code(3)?.json()?;
    let error = &refused["error"];
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        error["reason"] == "Unreachable" && error["cleanedUp"] == true,
        "{error:#}"
    );
    let why = "the proxy itself: invalid peer certificate";
    ensure!(
        message.contains(why) && message.contains(&proxy) && message.contains(&server),
        "{message}"
    );
    ensure!(used() == 0, "it was used all the same");
    // By the kubeconfig, with one of both ways to name a proxy.
    kubeconfig(
        &json!({ "certificate-authority-data": STANDARD.encode(&both), "proxy-url": proxy }),
    )?;
    launch(&[])?.with_code(0)?;
    ensure!(used() > 0, "the proxy was not used");
    // By the system, which a variable may name.
    kubeconfig(&json!({}))?;
    let system = actor.folder().join("authorities.pem");
    std::fs::write(&system, &both)?;
    let system = system.display().to_string();
    let before = used();
    let mut command = actor.podcradle(&["delete", &name]);
    let variables = [("HTTPS_PROXY", proxy.as_str()), ("SSL_CERT_FILE", &system)];
    Running::start(with_proxy(&mut command, &variables))?
        .wait(WATCHDOG)?
        .with_code(0)?;
    ensure!(used() > before, "the proxy was not used");
    gone(&actor, &name)
}

fn in_cluster(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let (_outside, at) = outside(&actor)?;
    let image = Cluster::image(arch).replace("/sandbox:", "/launcher:");
    if image == Cluster::image(arch) {
        return Err(skip(format!("{image} is not this repository's image")));
    }
    let name = actor.reserve("in-cluster")?;
    let admin = &actor.cluster.admin;
    let sandbox = Cluster::image(arch);
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let container = |label: &str, args: &[&str], kubeconfig: Option<&str>| {
        // The test cluster has no service network.
        let mut env = vec![
            variable("KUBERNETES_SERVICE_HOST", &host),
            variable("KUBERNETES_SERVICE_PORT", &port),
        ];
        env.extend(kubeconfig.map(|file| variable("KUBECONFIG", file)));
        json!({
            "name": label, "image": image, "imagePullPolicy": "IfNotPresent",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            },
            "args": args, "env": env,
        })
    };
    let launch = [
        "launch",
        "-n",
        NAMESPACE,
        "--sandbox",
        &name,
        "--image",
        &sandbox,
        "--image-pull-policy",
        "IfNotPresent",
        "--cpu-request",
        "10m",
        "--memory-request",
        "32Mi",
        "--",
        "sleep",
        "1000",
    ];
    let list = |which| ["list", "-n", NAMESPACE, "--in-cluster", which];
    // A kubeconfig that is named comes first, unless it is not to be asked.
    let nowhere = Some("/nowhere");
    admin.create_in(
        "podcradle-system",
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "restartPolicy": "Never", "serviceAccountName": "podcradle-launcher",
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [
                    container("podcradle", &launch, None),
                    container("always", &list("always"), nowhere),
                    container("auto", &list("auto"), nowhere),
                    container("never", &list("never"), None),
                ],
            },
        }),
    )?;
    let there = ["--namespace", "podcradle-system"];
    let pod = format!("pod/{name}");
    // Two of them are to fail.
    let done = "--for=jsonpath={.status.phase}=Failed";
    let waited = admin.try_run(&[&["wait", &pod, done, "--timeout=120s"], &there[..]].concat());
    let log = admin.run(&[&["logs", &pod, "--all-containers=true"], &there[..]].concat());
    let now = admin.get(&[&[pod.as_str()], &there[..]].concat());
    admin.run(&[&["delete", &pod, "--wait=false"], &there[..]].concat())?;
    let (ended, log) = (waited?, log?);
    ensure!(
        ended.code == 0 && log.contains("host runs") && log.contains(&name),
        "{}: {log}",
        ended.stderr
    );
    let now = now?;
    let statuses = now["status"]["containerStatuses"].as_array();
    let code = |label: &str| {
        let status = statuses?.iter().find(|status| status["name"] == label)?;
        status["state"]["terminated"]["exitCode"].as_i64()
    };
    let codes = ["podcradle", "always", "auto", "never"].map(code);
    ensure!(
        codes == [Some(0), Some(0), Some(2), Some(2)],
        "ended with {codes:?}: {log}"
    );
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}

/// In the middle of a launch, its watch open.
fn restart(arch: Arch) -> Outcome {
    let actor = Actor::new(arch)?;
    let admin = &actor.cluster.admin;
    let bed = actor.cluster.testbed.as_ref().map_err(skip)?;
    let layout = testbed::Layout::new(bed)?;
    let name = actor.reserve("restart")?;
    let launching = actor
        .launch(&name)
        .option(&["--node-selector", "podcradle.test/restarted=yes"])
        .host(&["sleep", "1000"])
        .start()?;
    let unschedulable =
        r#"--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable"#;
    admin.wait_for("pod", &name, "--for=create")?;
    admin.wait_for("pod", &name, unschedulable)?;
    testbed::restart_api_server(&layout)?;
    let label = |label: &str| admin.run(&["label", "nodes", "--all", label]);
    label("podcradle.test/restarted=yes")?;
    let ended = launching.wait(WATCHDOG);
    label("podcradle.test/restarted-")?;
    ended?.with_code(0)?;
    let left = admin.left_of(&name)?;
    ensure!(left.len() == 3, "not one of each: {left:?}");
    actor.run(&["delete", &name])?;
    gone(&actor, &name)
}
