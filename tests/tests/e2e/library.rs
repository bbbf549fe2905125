//! The library's promises, with the library itself in this process: whatever
//! becomes of its caller, nothing is left.

use podcradle_launcher::cluster::Source;
use podcradle_launcher::spec::Wait;
use podcradle_launcher::token::{Token, TokenSource};
use podcradle_launcher::{Failure, Launch, LaunchEvent, Launcher, Reason, SandboxSpec};
use podcradle_tests::e2e::place::Place;
use podcradle_tests::e2e::{Actor, Arch, Cluster, WATCHDOG};
use podcradle_tests::ensure;
use podcradle_tests::harness::{Outcome, Stop};
use tokio::runtime::{Builder, Runtime};

use crate::Test;
use crate::failures::gone;

pub const TESTS: &[(&str, Test)] = &[
    ("a_launch_that_is_dropped_leaves_nothing", dropped),
    ("a_sandbox_that_nobody_has_read_of_is_deleted", unread),
    ("a_caller_that_panics_leaves_nothing", panics),
    ("a_runtime_that_ends_leaves_nothing", runtime_ends),
    ("a_shutdown_waits_until_all_is_deleted", shutdown),
    (
        "a_launcher_that_is_dropped_leaves_nothing",
        launcher_dropped,
    ),
    ("what_may_not_be_deleted_is_named", named),
    ("a_callback_gives_the_token_of_its_pod", callback),
];

/// A program that uses the library.
struct Caller {
    actor: Actor,
    name: String,
    launcher: Launcher,
    runtime: Runtime,
}

impl Caller {
    fn new(arch: Arch) -> Result<Self, Stop> {
        let actor = Actor::new(arch)?;
        Ok(Self {
            name: actor.reserve("library")?,
            launcher: launcher(&actor, None)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
            actor,
        })
    }

    fn wait<F: Future>(&self, future: F) -> Result<F::Output, Stop> {
        let watched = async { tokio::time::timeout(WATCHDOG, future).await };
        Ok(self.runtime.block_on(watched)?)
    }

    /// A launch that waits for a node which never comes, all its objects made.
    fn waiting(&self) -> Result<Launch, Stop> {
        let mut launch = self.launcher.launch(self.nowhere(), Token::random())?;
        self.until_let_go(&mut launch)?;
        let left = self.actor.cluster.admin.left_of(&self.name)?;
        ensure!(left.len() == 3, "not the whole tree: {left:?}");
        Ok(launch)
    }

    fn nowhere(&self) -> SandboxSpec {
        let mut spec = SandboxSpec::new(&self.name, Cluster::image(self.actor.arch));
        let nowhere = ("podcradle.test/nowhere".to_owned(), "yes".to_owned());
        spec.node_selector.extend([nowhere]);
        spec
    }

    fn until_let_go(&self, launch: &mut Launch) -> Outcome {
        let mut events = launch.events().ok_or("no events")?;
        self.wait(async {
            while events.recv().await.ok_or("it ended")? != LaunchEvent::GateRemoved {}
            Ok::<_, &str>(())
        })??;
        Ok(())
    }

    /// Nobody waits for the launcher here: it does this by itself.
    fn is_gone(&self) -> Outcome {
        let admin = &self.actor.cluster.admin;
        admin.wait_gone("service", &self.name)?;
        admin.wait_gone("pod", &self.name)?;
        admin.wait_gone("secret", &format!("{}-g1-token", self.name))?;
        gone(&self.actor, &self.name)
    }

    fn failure(&self, launch: Launch) -> Result<Failure, Stop> {
        match self.wait(launch)? {
            podcradle_launcher::Outcome::Failed(failure) => Ok(*failure),
            podcradle_launcher::Outcome::Launched(done) => {
                Err(Stop::from(format!("it went well: {done:?}")))
            }
        }
    }
}

/// As a server would give it that binds a token to a Pod.
fn callback(arch: Arch) -> Outcome {
    use base64::Engine as _;
    let caller = Caller::new(arch)?;
    let mut spec = caller.nowhere();
    spec.wait = Wait::None;
    let source = TokenSource::callback(|uid| async move {
        let text = format!("token-of-{uid}");
        Ok(Token::read("the server", text.as_bytes())?)
    });
    let launched = match caller.wait(caller.launcher.launch(spec, source)?)? {
        podcradle_launcher::Outcome::Launched(launched) => launched,
        podcradle_launcher::Outcome::Failed(failure) => Err(failure.message)?,
    };
    let token = format!("token-of-{}", launched.pod_uid);
    let encoded = base64::engine::general_purpose::STANDARD.encode(token);
    let name = format!("{}-g1-token", caller.name);
    let secret = caller.actor.cluster.admin.one("secret", &name)?;
    ensure!(secret["data"]["token"] == encoded, "another token");
    Ok(())
}

fn launcher(actor: &Actor, namespace: Option<&str>) -> Result<Launcher, Stop> {
    let source = Source {
        kubeconfig: Some(actor.kubeconfig().to_owned()),
        namespace: namespace.map(str::to_owned),
        ..Source::default()
    };
    Ok(Launcher::start(&source)?)
}

fn dropped(arch: Arch) -> Outcome {
    let caller = Caller::new(arch)?;
    drop(caller.waiting()?);
    caller.is_gone()
}

/// Its host runs, and the caller's `select!` was over before it heard so.
fn unread(arch: Arch) -> Outcome {
    let caller = Caller::new(arch)?;
    let mut spec = SandboxSpec::new(&caller.name, Cluster::image(arch));
    spec.image_pull_policy = Some("IfNotPresent".to_owned());
    "10m".clone_into(&mut spec.resources.cpu_request);
    "32Mi".clone_into(&mut spec.resources.memory_request);
    spec.host = ["sleep", "1000"].map(str::to_owned).to_vec();
    let mut launch = caller.launcher.launch(spec, Token::random())?;
    let mut events = launch.events().ok_or("no events")?;
    let last = caller.wait(async {
        let mut last = None;
        while let Some(event) = events.recv().await {
            last = Some(event);
        }
        last
    })?;
    ensure!(last == Some(LaunchEvent::Ready), "it came to {last:?}");
    drop(launch);
    caller.is_gone()
}

fn panics(arch: Arch) -> Outcome {
    let caller = Caller::new(arch)?;
    let launch = caller.waiting()?;
    let thread = std::thread::spawn(move || {
        let _held = launch;
        // Without the hook's text among the results.
        std::panic::resume_unwind(Box::new("a bug of the caller's"));
    });
    ensure!(thread.join().is_err(), "it did not panic");
    caller.is_gone()
}

fn runtime_ends(arch: Arch) -> Outcome {
    let caller = Caller::new(arch)?;
    let launch = caller.waiting()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let task = runtime.spawn(launch);
    // It is under way there, and nobody else polls it.
    runtime.block_on(tokio::task::yield_now());
    drop(runtime);
    drop(task);
    caller.is_gone()
}

fn shutdown(arch: Arch) -> Outcome {
    let caller = Caller::new(arch)?;
    let launch = caller.waiting()?;
    caller.wait(caller.launcher.shutdown())?;
    gone(&caller.actor, &caller.name)?;
    let failure = caller.failure(launch)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up,
        "{failure:?}"
    );
    Ok(())
}

fn launcher_dropped(arch: Arch) -> Outcome {
    let mut caller = Caller::new(arch)?;
    let launch = caller.waiting()?;
    // The launch itself is still held: it is the launcher that goes.
    caller.launcher = launcher(&caller.actor, None)?;
    let failure = caller.failure(launch)?;
    ensure!(
        failure.reason == Reason::Cancelled && failure.cleaned_up,
        "{failure:?}"
    );
    caller.is_gone()
}

fn named(arch: Arch) -> Outcome {
    let mut caller = Caller::new(arch)?;
    let place = Place::make(&caller.actor, &caller.name)?;
    place.all_but(&caller.actor, "delete", "services")?;
    let delete = format!("delete services {}/{}", place.name, caller.name);
    caller.launcher = launcher(&caller.actor, Some(&place.name))?;
    let launch = caller.launcher.launch(caller.nowhere(), Token::random());
    let mut launch = launch?;
    caller.until_let_go(&mut launch)?;
    launch.cancel();
    let failure = caller.failure(launch)?;
    let says = |left: &[String]| left.len() == 1 && left[0].contains(&delete);
    ensure!(!failure.cleaned_up && says(&failure.left), "{failure:?}");
    // All the rest is deleted, and what is left is taken by whoever may.
    let all = "--for=delete";
    place.kubectl(&["wait", all, "--all", "--timeout=60s", "pods"])?;
    let left = place.kubectl(&["get", "services,pods", "--output=name"])?;
    ensure!(left.trim() == format!("service/{}", caller.name), "{left}");
    place.kubectl(&["delete", "service", &caller.name])?;
    // The program says the same, for people, for programs, and by its code.
    let launch = caller.actor.launch(&caller.name);
    let launch = launch
        .option(&["-n", &place.name, "--schedule-timeout", "1s"])
        .option(&["--node-selector", "podcradle.test/nowhere=yes"]);
    let ended = launch.try_run()?.with_code(8)?;
    let error = ended.json()?["error"].clone();
    let named = error["left"][0].as_str().unwrap_or_default();
    ensure!(
        error["cleanedUp"] == false && named.contains(&delete),
        "{error:#}"
    );
    let said = format!("may be left behind: {named}");
    ensure!(ended.stderr.contains(&said), "said: {}", ended.stderr);
    Ok(())
}
