//! The host against the test server, both real, over the loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podcradle_tests::testserver::{Event, Options, Order, TestServer, What, Why, digest};

const WATCHDOG: Duration = Duration::from_mins(1);
const TOKEN: &str = "s3cret-token-of-the-test";

/// A host as its own process; killed when the test is done with it.
struct Host(Child);

impl Host {
    fn start(server: &str, token: &str, flags: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_host"))
            .args(["--server", server, "--heartbeat", "0.05"])
            .args(flags)
            .env("PODCRADLE_HOST_ID", "h1")
            .env("PODCRADLE_HOST_NAME", "the host")
            .env("PODCRADLE_HOST_TOKEN", token)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Host(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// Waits for the end; returns the status and everything it printed.
    fn end(mut self) -> (ExitStatus, String) {
        let mut text = String::new();
        let streams: [Option<Box<dyn std::io::Read>>; 2] = [
            self.0.stdout.take().map(|stream| Box::new(stream) as _),
            self.0.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            for line in BufReader::new(stream).lines() {
                text += &(line.unwrap() + "\n");
            }
        }
        (self.0.wait().unwrap(), text)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server() -> TestServer {
    let server = TestServer::on_loopback().unwrap();
    server.expect("h1", digest(TOKEN));
    server
}

#[test]
fn it_says_who_it_is_beats_and_dies_of_sigterm_with_a_goodbye() {
    let server = server();
    let host = Host::start(&server.url(), TOKEN, &[]);
    let says = server.wait_for_dial_in("h1", WATCHDOG).unwrap();
    assert_eq!(says["name"], "the host");
    assert_eq!(says["pid"], host.0.id());
    assert_eq!(says["arch"], std::env::consts::ARCH);
    let third = |events: &[Event]| {
        events
            .iter()
            .find(|e| matches!(e, Event::Heartbeat { beat: 3, .. }))
            .cloned()
    };
    server.wait("a third heartbeat", WATCHDOG, third).unwrap();
    host.signal(Signal::SIGTERM);
    let (status, text) = host.end();
    assert_eq!(status.signal(), Some(15));
    assert!(text.contains("host: started pid="), "{text}");
    assert!(text.contains("server says: welcome, h1"), "{text}");
    let goodbye = Event::Goodbye {
        id: "h1".to_owned(),
        reason: "SIGTERM".to_owned(),
    };
    assert!(server.events().contains(&goodbye));
}

#[test]
fn a_refused_token_ends_it_with_78() {
    let server = server();
    let (status, text) = Host::start(&server.url(), "wrong", &[]).end();
    assert_eq!(status.code(), Some(78));
    assert!(text.contains("refused the token (401"), "{text}");
    let why = Why::WrongToken;
    assert!(server.events().contains(&Event::Refused {
        id: "h1".to_owned(),
        verb: "dial-in",
        why
    }));
}

#[test]
fn commands_come_back_with_their_results_and_never_see_the_token() {
    let server = server();
    server.order(
        "h1",
        vec![
            Order::run("env", &["env"]),
            Order::run("fail", &["sh", "-c", "exit 5"]),
        ],
    );
    let host = Host::start(&server.url(), TOKEN, &[]);
    let done = server.wait_for_order("h1", "env", WATCHDOG).unwrap();
    let environment = done["stdout"].as_str().unwrap();
    assert!(
        environment.contains("PODCRADLE_HOST_ID=h1"),
        "{environment}"
    );
    assert!(!environment.contains(TOKEN), "the token reached a command");
    let done = server.wait_for_order("h1", "fail", WATCHDOG).unwrap();
    assert_eq!(done["exitCode"], 5);
    host.signal(Signal::SIGINT);
    let (status, text) = host.end();
    assert_eq!(status.signal(), Some(2));
    assert!(!text.contains(TOKEN), "the token was printed");
}

#[test]
fn orphans_are_left_by_flag_and_by_order() {
    let server = server();
    let orphans = What::Orphans {
        count: 3,
        lifetime_ms: 1,
    };
    server.order(
        "h1",
        vec![Order {
            id: "more".to_owned(),
            what: orphans,
        }],
    );
    let _host = Host::start(&server.url(), TOKEN, &["--orphans", "2"]);
    for order in ["--orphans", "more"] {
        let done = server.wait_for_order("h1", order, WATCHDOG).unwrap();
        assert_eq!(done["exitCode"], 0, "{done}");
    }
}

#[test]
fn it_waits_for_a_server_that_is_not_there_yet_and_dials_in_again_at_a_new_one() {
    // An address of the loopback that no other test uses: the port stays ours
    // while nobody listens on it.
    let address = TcpListener::bind("127.7.3.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let host = Host::start(&format!("http://{address}"), TOKEN, &[]);
    for _ in 0..2 {
        let server = TestServer::start(address, Options::default()).unwrap();
        server.expect("h1", digest(TOKEN));
        server.wait_for_dial_in("h1", WATCHDOG).unwrap();
    }
    host.signal(Signal::SIGTERM);
    assert_eq!(host.end().0.signal(), Some(15));
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let host = Host::start(
        &url,
        TOKEN,
        &["--request-timeout", "86400", "--exit-zero-on-term"],
    );
    let connection = silent.accept().unwrap();
    host.signal(Signal::SIGTERM);
    assert_eq!(host.end().0.code(), Some(0));
    drop(connection);
}

#[test]
fn a_missing_server_is_one_line_and_64() {
    let host = Command::new(env!("CARGO_BIN_EXE_host"))
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(host.status.code(), Some(64));
    let said = String::from_utf8(host.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("--server") && said.contains("PODCRADLE_SERVER"),
        "{said}"
    );
}
