//! The defaults of a sandbox, in one place.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::{Budgets, Inject, Profile, Resources, SandboxSpec, TokenDelivery, Wait};

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

/// Where `podcradle-init` is mounted when the image does not hold it.
pub const COPIED_INIT: &str = "/podcradle";
/// The metadata services of the clouds: they give away the node's credentials.
pub const METADATA: [IpAddr; 5] = [
    // Most of them.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Alibaba's, and what Azure's nodes are set up by.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Amazon's and Google's.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

pub(super) fn spec(profile: Profile) -> SandboxSpec {
    match profile {
        Profile::Default => own(),
        Profile::Omnigent => SandboxSpec {
            profile,
            // Its images are built for this one alone.
            arch: Some("amd64".to_owned()),
            login_shell: true,
            env_prefix: "OMNIGENT".to_owned(),
            service_account: "omnigent-runner".to_owned(),
            home: "/home/omnigent".to_owned(),
            ..own()
        },
    }
}

fn own() -> SandboxSpec {
    SandboxSpec {
        profile: Profile::Default,
        sandbox: String::new(),
        launch_id: String::new(),
        session: None,
        image: String::new(),
        prep_image: None,
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        arch: None,
        inject: Inject::default(),
        baked_image: None,
        supervisor_image: None,
        init_dir: "/usr/local/bin".to_owned(),
        host: Vec::new(),
        login_shell: false,
        server: None,
        host_id: String::new(),
        host_name: String::new(),
        env_prefix: "PODCRADLE".to_owned(),
        token_delivery: TokenDelivery::default(),
        restart: None,
        repo: None,
        env: BTreeMap::new(),
        credentials_secret: None,
        service_account: "podcradle-sandbox".to_owned(),
        labels: BTreeMap::new(),
        node_selector: BTreeMap::new(),
        tolerations: Vec::new(),
        affinity: None,
        runtime_class: None,
        priority_class: None,
        host_users: None,
        home: DEFAULT_HOME.to_owned(),
        home_size_limit: None,
        mounts: Vec::new(),
        run_as: DEFAULT_ID,
        resources: resources(),
        termination_grace_period: 30,
        grace: 20,
        drain: 5,
        ttl: Some(Duration::from_hours(24)),
        max_lifetime: Duration::from_hours(7 * 24),
        owner: None,
        network_policy: None,
        wait: Wait::default(),
        budgets: budgets(),
        keep_on_failure: false,
        overlay: None,
        allow_unsafe_overlay: false,
    }
}

pub(super) fn resources() -> Resources {
    Resources {
        cpu_request: "500m".to_owned(),
        memory_request: "1Gi".to_owned(),
        cpu_limit: "2".to_owned(),
        memory_limit: "4Gi".to_owned(),
        ephemeral_storage_request: None,
        ephemeral_storage_limit: None,
    }
}

pub(super) fn budgets() -> Budgets {
    Budgets {
        schedule: Duration::from_mins(2),
        pull: Duration::from_mins(5),
        init: Duration::from_mins(5),
        start: Duration::from_mins(1),
        total: Duration::from_mins(15),
    }
}
