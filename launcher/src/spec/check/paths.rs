//! Directories and mounts: none covers what the sandbox stands on, or another.

use super::Checks;
use crate::name;
use crate::spec::{COPIED_INIT, Inject, Mount, SandboxSpec, TOKEN_MOUNT};

const RULE: &str = "must be an absolute path without '..', ':' or an empty part";

/// Directories of the system, under each name that images give them.
const SYSTEM: [&str; 13] = [
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run/podcradle",
    "/var/run",
];

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    c.require(is_clean_absolute(&spec.home), "home", &spec.home, RULE);
    let root = spec.init_dir == "/";
    c.require(
        root || is_clean_absolute(&spec.init_dir),
        "initDir",
        &spec.init_dir,
        RULE,
    );
    let clash = SYSTEM.into_iter().chain([TOKEN_MOUNT, init_dir(spec)]);
    if clash.into_iter().any(|path| overlap(&spec.home, path)) {
        let rule = "must not cover or lie in a system directory, the token's mount or initDir";
        c.refuse("home", &spec.home, rule);
    }
    let id = 1..=i64::from(i32::MAX);
    let rule = "must be a user id from 1 to 2147483647 (root is not allowed)";
    c.require(id.contains(&spec.run_as), "runAs", spec.run_as, rule);
    // Kubernetes maps that many ids into a Pod's own user namespace.
    let mapped = spec.host_users != Some(false) || spec.run_as < 65_536;
    let rule = "must be below 65536 with hostUsers: false";
    c.require(mapped, "runAs", spec.run_as, rule);
    for (index, mount) in spec.mounts.iter().enumerate() {
        source(mount, &format!("mounts[{index}]"), c);
        let field = format!("mounts[{index}].path");
        if !is_clean_absolute(&mount.path) {
            c.refuse(&field, &mount.path, RULE);
        } else if let Some(rule) = wrong_place(spec, &mount.path) {
            c.refuse(&field, &mount.path, rule);
        }
        let earlier = spec.mounts[..index].iter();
        if let Some(other) = earlier
            .map(|m| &m.path)
            .find(|other| overlap(other, &mount.path))
        {
            let rule = if *other == mount.path {
                "is mounted twice".to_owned()
            } else {
                format!("one of this mount and {other} lies in the other")
            };
            c.refuse(&field, &mount.path, rule);
        }
    }
}

fn source(mount: &Mount, field: &str, c: &mut Checks) {
    match (&mount.claim, &mount.secret) {
        (Some(claim), None) => {
            c.name(
                &format!("{field}.claim"),
                claim,
                name::check_rfc1123_subdomain(claim),
            );
        }
        (None, Some(secret)) => {
            c.name(
                &format!("{field}.secret"),
                secret,
                name::check_rfc1123_subdomain(secret),
            );
            let rule = "a Secret cannot be written to";
            c.require(!mount.writable, &format!("{field}.writable"), "true", rule);
        }
        _ => c.refuse(field, &mount.path, "needs exactly one of claim and secret"),
    }
}

/// Where PID 1 lies: in a directory of the image, or in a volume of its own.
fn init_dir(spec: &SandboxSpec) -> &str {
    match spec.inject() {
        Inject::Copy | Inject::ImageVolume => COPIED_INIT,
        Inject::Auto | Inject::Baked => &spec.init_dir,
    }
}

fn wrong_place(spec: &SandboxSpec, path: &str) -> Option<String> {
    let workspace = format!("{}/workspace", spec.home);
    if let Some(system) = SYSTEM.into_iter().find(|system| overlap(path, system)) {
        return Some(format!("must not cover or lie in {system}"));
    }
    // Of a directory of the image the rest is the image's own.
    let init = format!("{}/podcradle-init", init_dir(spec).trim_end_matches('/'));
    if overlap(path, &init) || overlap(path, COPIED_INIT) {
        return Some("must not cover podcradle-init".to_owned());
    }
    if under(&spec.home, path) {
        return Some(format!(
            "must not cover HOME, {}; below it there is room",
            spec.home
        ));
    }
    let clash = overlap(path, &workspace);
    clash.then(|| format!("must not cover or lie in the workspace, {workspace}"))
}

fn is_clean_absolute(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.starts_with('/')
        && !path.contains(':')
        && !path.chars().any(char::is_control)
        && path.split('/').skip(1).all(part)
}

fn under(inner: &str, outer: &str) -> bool {
    inner == outer
        || inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with('/'))
}

fn overlap(a: &str, b: &str) -> bool {
    under(a, b) || under(b, a)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use super::*;

    fn mount(path: &str) -> Mount {
        Mount {
            path: path.into(),
            claim: Some("c".into()),
            secret: None,
            writable: false,
        }
    }

    #[test]
    fn home_does_not_cover_the_system_or_the_token() {
        for bad in [
            "/",
            "/run",
            "/run/podcradle/token/x",
            "/etc/x",
            "relative",
            "/a/../b",
            "/a/",
        ] {
            assert_ne!(problems(|s| s.home = bad.into()).len(), 0, "{bad}");
        }
        assert_eq!(problems(|s| s.home = "/home/omnigent".into()).len(), 0);
    }

    #[test]
    fn a_user_namespace_of_its_own_has_few_ids() {
        let found = |id, host_users| {
            problems(|s| {
                s.run_as = id;
                s.host_users = host_users;
            })
        };
        assert_eq!(found(65_535, Some(false)).len(), 0);
        assert_eq!(found(65_536, Some(true)).len(), 0);
        assert!(found(65_536, Some(false))[0].starts_with("runAs \"65536\""));
    }

    #[test]
    fn a_mount_has_one_source_and_a_secret_is_never_written() {
        for good in ["/data", "/home/sandbox/.cache", "/srv/a/b", "/var/cache"] {
            assert_eq!(
                problems(|s| s.mounts = vec![mount(good)]),
                Vec::<String>::new(),
                "{good}"
            );
        }
        let neither = Mount {
            claim: None,
            ..mount("/data")
        };
        refused("mounts[0]", "exactly one", |s| s.mounts = vec![neither]);
        let both = Mount {
            secret: Some("s".into()),
            ..mount("/data")
        };
        refused("mounts[0]", "exactly one", |s| {
            s.mounts = vec![both.clone()];
        });
        let secret = Mount {
            claim: None,
            writable: true,
            ..both
        };
        refused("mounts[0].writable", "Secret", |s| s.mounts = vec![secret]);
        let named = Mount {
            claim: Some("A".into()),
            ..mount("/data")
        };
        refused("mounts[0].claim", "subdomain", |s| s.mounts = vec![named]);
    }

    #[test]
    fn a_mount_keeps_off_what_the_sandbox_stands_on() {
        for bad in [
            "/",
            "/proc",
            "/proc/1",
            "/sys/fs",
            "/dev/shm",
            "/etc/ssl",
            "/usr",
            "/bin",
            "/sbin/x",
            "/lib64",
            "/run",
            "/run/podcradle",
            "/run/podcradle/token",
            "/var/run/podcradle/token",
            "/usr/local/bin",
            "/podcradle",
            "/podcradle/podcradle-init",
            "/podcradle/x",
            "/home",
            "/home/sandbox",
            "/home/sandbox/workspace",
            "/home/sandbox/workspace/x",
            "data",
            "/a/../etc",
            "/a//b",
            "/a:b",
            "/a/",
        ] {
            refused("mounts[0].path", "must", |s| s.mounts = vec![mount(bad)]);
        }
        for (dir, bad) in [
            ("/opt/p", "/opt"),
            ("/opt/p", "/opt/p"),
            ("/opt/p", "/opt/p/podcradle-init"),
            ("/opt/p", "/opt/p/podcradle-init/x"),
            ("/", "/podcradle-init"),
        ] {
            refused("mounts[0].path", "podcradle-init", |s| {
                s.init_dir = dir.into();
                s.mounts = vec![mount(bad)];
            });
        }
        let beside = problems(|s| {
            s.init_dir = "/opt/p".into();
            s.mounts = vec![mount("/opt/p/data")];
        });
        assert_eq!(beside, Vec::<String>::new());
    }

    #[test]
    fn no_mount_lies_in_another() {
        refused("mounts[1].path \"/a\"", "twice", |s| {
            s.mounts = vec![mount("/a"), mount("/a")];
        });
        for pair in [["/a", "/a/b"], ["/a/b", "/a"]] {
            refused("mounts[1].path", "lies in the other", |s| {
                s.mounts = pair.map(mount).into();
            });
        }
        let beside = ["/a", "/ab"].map(mount);
        assert_eq!(problems(|s| s.mounts = beside.into()), Vec::<String>::new());
    }
}
