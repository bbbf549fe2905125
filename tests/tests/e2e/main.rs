//! End to end: `podcradle` as a user has it, on a real kubelet, with the rights
//! of `deploy/`. Every test runs once for each architecture, which means the
//! launcher and the image built for it; the foreign one runs under QEMU.
//!
//! `cargo test -p podcradle-tests --test e2e [FILTER]`, as root, after
//! `make build images`. With `PODCRADLE_KUBECONFIG` the same tests run against a
//! cluster that is already there.

mod again;
mod bulk;
mod calls;
mod collector;
mod diagnosis;
mod expiry;
mod failures;
mod fields;
mod inject;
mod input;
mod interrupt;
mod library;
mod life;
mod manifest;
mod names;
mod owner;
mod policy;
mod readme;
mod relaunch;
mod secrecy;
mod shared;
mod spec;
mod stop;
mod transport;
mod wanted;

use std::process::ExitCode;

use podcradle_tests::e2e::{Arch, Cluster};
use podcradle_tests::harness::{Outcome, Suite};

/// A test for one architecture.
type Test = fn(Arch) -> Outcome;

fn main() -> ExitCode {
    let areas: &[(&str, &[(&str, Test)])] = &[
        ("life", life::TESTS),
        ("stop", stop::TESTS),
        ("failures", failures::TESTS),
        ("interrupt", interrupt::TESTS),
        ("library", library::TESTS),
        ("names", names::TESTS),
        ("again", again::TESTS),
        ("relaunch", relaunch::TESTS),
        ("bulk", bulk::TESTS),
        ("owner", owner::TESTS),
        ("expiry", expiry::TESTS),
        ("input", input::TESTS),
        ("manifest", manifest::TESTS),
        ("fields", fields::TESTS),
        ("wanted", wanted::TESTS),
        ("inject", inject::TESTS),
        ("policy", policy::TESTS),
        ("secrecy", secrecy::TESTS),
        ("shared", shared::TESTS),
        ("spec", spec::TESTS),
        ("collector", collector::TESTS),
        ("calls", calls::TESTS),
        ("transport", transport::TESTS),
    ];
    // They wait for the kubelet more than they compute.
    let mut suite = Suite::new().threads(4);
    for arch in [Arch::Amd64, Arch::Arm64] {
        for &(area, tests) in areas {
            for &(name, test) in tests {
                suite.test(format!("{}::{area}::{name}", arch.name()), move || {
                    test(arch)
                });
            }
        }
    }
    for arch in [Arch::Amd64, Arch::Arm64] {
        for (name, test) in diagnosis::tests() {
            suite.test(format!("{}::diagnosis::{name}", arch.name()), move || {
                test(arch)
            });
        }
    }
    readme::add(&mut suite);
    for arch in [Arch::Amd64, Arch::Arm64] {
        let (name, test) = transport::ALONE;
        suite.alone(format!("{}::transport::{name}", arch.name()), move || {
            test(arch)
        });
    }
    let code = suite.run();
    match nothing_left() {
        Ok(()) => code,
        Err(left) => {
            eprintln!("left behind in the cluster by the whole suite: {left}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever single tests saw, at the end the namespace is empty.
fn nothing_left() -> Result<(), String> {
    let Some(cluster) = Cluster::used() else {
        return Ok(());
    };
    let all = ["services", "pods", "secrets", "networkpolicies", "leases"];
    for kind in all {
        let wait = ["wait", "--for=delete", "--all", "--timeout=120s", kind];
        let waited = cluster
            .admin
            .try_run(&wait)
            .map_err(|error| error.to_string())?;
        // With nothing to wait for kubectl says "no matching resources".
        if waited.code != 0 && !waited.stderr.contains("no matching resources") {
            return Err(format!("{kind}: {}", waited.stderr));
        }
    }
    Ok(())
}
