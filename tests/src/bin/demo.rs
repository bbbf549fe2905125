//! `make demo`: Podcradle's main job as a person would do it, on the test
//! cluster, each command printed before it runs. The server that the host dials
//! back to and the repository that it clones are parts of this program.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Instant;

use podcradle_tests::e2e::git::Repository;
use podcradle_tests::e2e::process::shown;
use podcradle_tests::e2e::{Actor, Cluster, Ended, Error, Result, Running, WATCHDOG, native};
use podcradle_tests::testserver::{Event, Options, TestServer, digest};

const ORPHANS: &str = "500";

fn main() -> ExitCode {
    let started = Instant::now();
    match demo() {
        Ok(()) => {
            say(&format!(
                "That was all of it, in {:.0} s.",
                started.elapsed().as_secs_f64()
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<()> {
    say("The cluster has what an administrator applies once: kubectl apply -k deploy.");
    say("From here on we are its account podcradle-launcher, with just the rights of that folder.");
    let actor = Actor::new(native())?;
    let repository = Repository::serve(actor.cluster.address)?;
    let server = serve(&actor)?;

    say("A name, before anything exists, so that the server can be told of the host:");
    let name = show(&mut actor.podcradle(&["reserve", "demo", "-o", "name"]))?
        .stdout
        .trim()
        .to_owned();
    actor.own(&name);
    let (file, token) = actor.token()?;
    server.expect(&name, digest(&token));

    say("The launch: a repository to clone, a server to dial back to, orphans to leave behind.");
    let image = Cluster::image(native());
    let launch = ["launch", "--sandbox", &name, "--image", &image];
    let dial = [
        "--server",
        &server.url(),
        "--token-file",
        &file.to_string_lossy(),
    ];
    let work = ["--repo", &repository.url()];
    let host = ["--", "host", "--heartbeat", "0.5", "--orphans", ORPHANS];
    let mut launch = actor.podcradle(&[&launch[..], &dial, &work, &host].concat());
    show(&mut launch)?;

    say("The host dials back with its token, and says who it is:");
    let says = server.wait_for_dial_in(&name, WATCHDOG)?;
    println!("{says:#}");
    say(&format!(
        "It leaves {ORPHANS} orphans behind. PID 1 reaps them: this counts the zombies that are left."
    ));
    server.wait_for_order(&name, "--orphans", WATCHDOG)?;
    zombies(&actor, &name)?;

    say("What there is, what the host wrote, how it is:");
    show(&mut actor.podcradle(&["list"]))?;
    show(&mut actor.podcradle(&["logs", &name]))?;
    show(&mut actor.podcradle(&["status", &name]))?;
    show(
        &mut actor
            .cluster
            .admin
            .command(&["get", "services,pods,secrets"]),
    )?;

    say("The end: one Service is deleted, and all that it owns goes with it.");
    show(&mut actor.podcradle(&["delete", &name]))?;
    let secret = format!("secret/{name}-g1-token");
    show(
        &mut actor
            .cluster
            .admin
            .command(&["wait", "--for=delete", &secret]),
    )?;

    say("The proof that nothing is left:");
    show(
        &mut actor
            .cluster
            .admin
            .command(&["get", "services,pods,secrets"]),
    )?;
    let left = actor.cluster.admin.left_of(&name)?;
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::Missing(format!("left behind: {left:?}")))
}

/// Looks from outside, as the administrator: the launcher may not enter a
/// sandbox.
fn zombies(actor: &Actor, name: &str) -> Result<()> {
    let script = r"while grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done; echo 'zombies: 0'; grep -h '^Name:' /proc/1/status";
    let exec = ["exec", name, "--container=host", "--", "sh", "-c", script];
    show(&mut actor.cluster.admin.command(&exec)).map(drop)
}

/// What happens at the server is part of the show.
fn serve(actor: &Actor) -> Result<TestServer> {
    let sink = |event: &Event| match event {
        Event::Expected { id } => println!("server: expects {id}"),
        Event::DialledIn { id, peer, .. } => println!("server: {id} dialled in from {peer}"),
        Event::Goodbye { id, reason } => println!("server: {id} said goodbye ({reason})"),
        Event::Refused { id, why, .. } => println!("server: {id} was refused: {why:?}"),
        _ => {}
    };
    let options = Options {
        admin: None,
        sink: Some(Box::new(sink)),
    };
    let listen = SocketAddr::new(actor.cluster.address, 0);
    Ok(TestServer::start(listen, options)?)
}

fn say(text: &str) {
    println!("\n# {text}");
}

/// Prints a command, runs it, and prints what it says.
fn show(command: &mut Command) -> Result<Ended> {
    println!("$ {}", shown(command));
    let ended = Running::start(command)?.wait(WATCHDOG)?;
    print!("{}{}", ended.stderr, ended.stdout);
    ended.with_code(0)
}
