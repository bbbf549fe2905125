//! Launches against an API server that is a function, in paused time: which
//! wait counts against what.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::engine::Engine;
use super::launch::{Order, launch};
use super::owner::Owners;
use crate::cluster::Cluster;
use crate::cluster::fake::{Answer, broken, object, tells_after};
use crate::launching::{Cancelled, Progress};
use crate::outcome::{Failure, Outcome, Reason};
use crate::spec::SandboxSpec;
use crate::token::Token;

const NAME: &str = "podcradle-a-000000";
const QUOTA: &str = "exceeded quota: q";

/// What the API server says to a request.
enum Says {
    /// An object, or what a watch tells after so long.
    This(Value),
    After(Duration, Value),
    Refused(u16, &'static str),
    Broken,
    /// Nothing, until credentials were read for so long.
    Login(Duration),
}

/// What a launch leads to, and how often each thing was asked: `says` knows what
/// (`create pods`), the how manieth time it is asked, and what was sent.
async fn launched(
    says: impl Fn(&str, usize, Value) -> Says + Clone + Send + 'static,
) -> (Failure, BTreeMap<String, usize>) {
    let asked = Arc::new(Mutex::new(BTreeMap::new()));
    let count = Arc::clone(&asked);
    let reading = watch::Sender::new(0);
    let logins = reading.subscribe();
    let cluster = Cluster::of(move |request| {
        let (says, count) = (says.clone(), Arc::clone(&count));
        let reading = reading.clone();
        async move {
            let what = what(&request);
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let nth = {
                let mut asked = count.lock().unwrap();
                let nth = asked.entry(what.clone()).or_insert(0);
                *nth += 1;
                *nth
            };
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let says = says(&what, nth, sent);
            if let Says::Login(time) = says {
                // As it does it: to the end, though nobody waits any more.
                reading.send_modify(|readers| *readers += 1);
                let read = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    reading.send_modify(|readers| *readers -= 1);
                });
                let _ = read.await;
            }
            answer(says)
        }
    });
    let cluster = cluster.reading(logins);
    let order = Order {
        spec: Arc::new(SandboxSpec::new(NAME, "image:1")),
        token: Token::random().into(),
        rename: false,
    };
    let (to, _from) = mpsc::unbounded_channel();
    let (_caller, caller) = watch::channel(());
    let (_down, down) = watch::channel(false);
    let cancelled = Cancelled::new(caller, down);
    let engine = Engine::new(cluster, Owners::default());
    let (outcome, _) = launch(&engine, order, Progress::new(to), cancelled).await;
    let Outcome::Failed(failure) = outcome else {
        panic!("it was launched");
    };
    let asked = asked.lock().unwrap().clone();
    (*failure, asked)
}

fn what(request: &Request<Body>) -> String {
    let watches = request.uri().query().is_some_and(|q| q.contains("watch="));
    let verb = match request.method().as_str() {
        "GET" if watches => "watch",
        "GET" => "get",
        "POST" => "create",
        "PATCH" => "patch",
        _ => "delete",
    };
    // /api/v1/namespaces/ns/RESOURCE/NAME
    let resource = request.uri().path().split('/').nth(5).unwrap_or_default();
    format!("{verb} {resource}")
}

fn answer(says: Says) -> Answer {
    match says {
        Says::This(value) => object(&value),
        Says::After(time, event) => tells_after(time, &event),
        Says::Broken => broken(),
        Says::Login(_) => object(&json!({ "kind": "Status", "status": "Success" })),
        Says::Refused(code, message) => {
            let reason = match code {
                404 => "NotFound",
                409 => "AlreadyExists",
                _ => "Fault",
            };
            let mut answer = object(&json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": message,
            }));
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            answer
        }
    }
}

/// An object as it was sent, made.
fn made(mut sent: Value, uid: &str) -> Says {
    sent["metadata"]["uid"] = uid.into();
    sent["metadata"]["resourceVersion"] = "1".into();
    Says::This(sent)
}

/// What a launch meets that goes well until its host is to be waited for.
fn well(what: &str, sent: Value) -> Says {
    match what {
        "create services" => made(sent, "s"),
        "create pods" => made(sent, "p"),
        "create secrets" => made(sent, "t"),
        "patch pods" | "get pods" => Says::This(pod("p")),
        _ => Says::Refused(404, "is not there"),
    }
}

fn pod(uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": NAME, "uid": uid, "resourceVersion": "2",
    } })
}

/// An object that is going, as it is read, and as a watch tells of its end after
/// more than two minutes: no watch lives for so long.
fn going(kind: &str, what: &str, nth: usize) -> Says {
    let mut old = pod("old");
    old["kind"] = kind.into();
    old["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    match (what.starts_with("watch"), nth) {
        (false, _) => Says::This(old),
        (true, 3) => Says::After(
            Duration::from_secs(20),
            json!({ "type": "DELETED", "object": old }),
        ),
        (true, _) => Says::After(Duration::from_hours(1), json!({})),
    }
}

#[tokio::test(start_paused = true)]
async fn time_for_what_stands_in_the_way_is_not_that_for_a_quota() {
    let (failure, asked) = launched(|what, nth, sent| match (what, nth) {
        ("create pods", 1) => Says::Refused(409, "exists already"),
        ("create pods", 2..5) => Says::Refused(403, QUOTA),
        ("create pods", _) => Says::Refused(403, "violates PodSecurity"),
        ("get pods" | "watch pods", _) => going("Pod", what, nth),
        _ => well(what, sent),
    })
    .await;
    assert_eq!(failure.reason, Reason::Policy, "{failure:?}");
    assert_eq!(asked["create pods"], 5);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_has_answered_can_be_reached() {
    // Of a quota it spoke for longer than one is tried that never answers.
    let (failure, asked) = launched(|what, nth, sent| match (what, nth) {
        ("create services", 1..6) => Says::Refused(403, QUOTA),
        ("create services", 6) => Says::Broken,
        ("create services", _) => Says::Refused(403, "violates PodSecurity"),
        _ => well(what, sent),
    })
    .await;
    assert_eq!(failure.reason, Reason::Policy, "{failure:?}");
    assert_eq!(asked["create services"], 7);
}

#[tokio::test(start_paused = true)]
async fn an_anchor_that_was_in_the_way_was_seen() {
    let (failure, asked) = launched(|what, nth, sent| match (what, nth) {
        ("create services", 1) => Says::Refused(409, "exists already"),
        ("create services", 2) => Says::Broken,
        ("create services", _) => Says::Refused(403, "violates PodSecurity"),
        ("get services", 1) | ("watch services", _) => going("Service", what, nth),
        _ => well(what, sent),
    })
    .await;
    assert_eq!(failure.reason, Reason::Policy, "{failure:?}");
    assert_eq!(asked["create services"], 3);
}

#[tokio::test(start_paused = true)]
async fn trouble_that_has_passed_is_not_what_a_launch_waited_for() {
    let hour = Duration::from_hours(1);
    let (failure, asked) = launched(move |what, nth, sent| match (what, nth) {
        ("watch pods", 1..10) => Says::Refused(503, "starting"),
        ("watch pods", _) => Says::After(hour, json!({})),
        _ => well(what, sent),
    })
    .await;
    assert_eq!(failure.reason, Reason::Unschedulable, "{failure:?}");
    assert!(asked["watch pods"] > 10, "{asked:?}");
    assert!(
        failure.message.ends_with(": no node yet"),
        "{}",
        failure.message
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_plugin_takes_no_time_from_a_clean_up() {
    let refused = |what: &str, nth, sent| match (what, nth) {
        ("create pods", _) => Says::Refused(403, "violates PodSecurity"),
        ("delete services", 2) => Says::This(json!({ "kind": "Status", "status": "Success" })),
        _ => well(what, sent),
    };
    // A plugin that takes longer than a clean-up may, or than its first part.
    for seconds in [50, 25] {
        let (failure, asked) = launched(move |what, nth, sent| match (what, nth) {
            ("delete services", 1) => Says::Login(Duration::from_secs(seconds)),
            _ => refused(what, nth, sent),
        })
        .await;
        assert!(failure.cleaned_up, "{failure:?}");
        assert_eq!(asked["delete services"], 2);
    }
    // An API server that does.
    let (failure, _) = launched(move |what, nth, sent| match (what, nth) {
        ("delete services", _) => Says::Refused(503, "busy"),
        _ => refused(what, nth, sent),
    })
    .await;
    assert!(
        !failure.cleaned_up && failure.left.len() == 1,
        "{failure:?}"
    );
}
