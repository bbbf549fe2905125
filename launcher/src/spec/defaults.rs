//! The defaults of a sandbox, in one place.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Budgets, Resources, SandboxSpec};

/// HOME when the spec does not say.
pub const DEFAULT_HOME: &str = "/home/sandbox";
/// User, group and fsGroup when the spec does not say.
pub const DEFAULT_ID: i64 = 1_000_660_000;
/// Where the token's volume is mounted in the host container.
pub const TOKEN_MOUNT: &str = "/run/podcradle/token";
/// Key of the token in its Secret, and its file below [`TOKEN_MOUNT`].
pub const TOKEN_KEY: &str = "token";
/// The token's file in the host container.
pub const TOKEN_FILE: &str = "/run/podcradle/token/token";

pub(super) fn spec(sandbox: String, image: String) -> SandboxSpec {
    SandboxSpec {
        host_id: sandbox.clone(),
        host_name: sandbox.clone(),
        sandbox,
        launch_id: crate::name::random_hex(8),
        image,
        prep_image: None,
        image_pull_policy: None,
        init_dir: "/usr/local/bin".to_owned(),
        host: Vec::new(),
        server: None,
        env_prefix: "PODCRADLE".to_owned(),
        repo: None,
        env: BTreeMap::new(),
        credentials_secret: None,
        service_account: "podcradle-sandbox".to_owned(),
        node_selector: BTreeMap::new(),
        home: DEFAULT_HOME.to_owned(),
        run_as: DEFAULT_ID,
        resources: Resources {
            cpu_request: "500m".to_owned(),
            memory_request: "1Gi".to_owned(),
            cpu_limit: "2".to_owned(),
            memory_limit: "4Gi".to_owned(),
        },
        termination_grace_period: 30,
        grace: 20,
        drain: 5,
        ttl: Some(Duration::from_hours(24)),
        max_lifetime: Duration::from_hours(7 * 24),
        budgets: Budgets {
            schedule: Duration::from_mins(2),
            pull: Duration::from_mins(5),
            init: Duration::from_mins(5),
            start: Duration::from_mins(1),
            total: Duration::from_mins(15),
        },
        keep_on_failure: false,
    }
}
