//! Times: what a stop may take, how long a session lives, the budgets.

use std::time::Duration;

use super::Checks;
use crate::spec::{SandboxSpec, time};

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const DECADE: Duration = Duration::from_hours(10 * 365 * 24);

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    let needed = u64::from(spec.grace) + u64::from(spec.drain) + 2;
    let enough = needed <= u64::from(spec.termination_grace_period);
    let rule = format!(
        "grace {} + drain {} + 2 must not be above terminationGracePeriod {}",
        spec.grace, spec.drain, spec.termination_grace_period
    );
    c.require(enough, "grace", spec.grace, &rule);
    let period = u64::from(spec.termination_grace_period) <= DAY.as_secs();
    let rule = "must not be above a day, 86400";
    c.require(
        period,
        "terminationGracePeriod",
        spec.termination_grace_period,
        rule,
    );
    life(spec, c);
    let b = &spec.budgets;
    for (field, budget) in [
        ("budgets.schedule", b.schedule),
        ("budgets.pull", b.pull),
        ("budgets.init", b.init),
        ("budgets.start", b.start),
        ("budgets.total", b.total),
    ] {
        let right = (Duration::from_secs(1)..=DAY).contains(&budget);
        c.require(right, field, time::format(budget), "must be from 1s to 24h");
    }
}

fn life(spec: &SandboxSpec, c: &mut Checks) {
    // In a shared session, or with an owner, the sandbox has no time to live.
    let its_own = spec.owner.is_none() && spec.session.is_none();
    if let Some(time_to_live) = spec.ttl {
        ttl(time_to_live, c);
        let cap = time::format(spec.max_lifetime);
        let rule = format!("must not be above maxLifetime, {cap}");
        let right = time_to_live <= spec.max_lifetime || !its_own;
        c.require(right, "ttl", time::format(time_to_live), &rule);
    }
    let right = (MINUTE..=DECADE).contains(&spec.max_lifetime);
    let shown = time::format(spec.max_lifetime);
    c.require(right, "maxLifetime", shown, "must be from 1m to 10 years");
}

pub fn ttl(ttl: Duration, c: &mut Checks) {
    c.require(time::is_ttl(ttl), "ttl", time::format(ttl), time::TTL_RULE);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};
    use super::*;

    #[test]
    fn a_stop_fits_into_the_pods_grace_period() {
        refused("grace", "grace 24 + drain 5 + 2", |s| s.grace = 24);
        assert_eq!(problems(|s| s.grace = 23).len(), 0);
        refused("terminationGracePeriod", "a day", |s| {
            s.termination_grace_period = 90_000;
        });
    }

    #[test]
    fn a_session_ends_and_before_its_compute() {
        refused("ttl \"30s\"", "1m to 10 years", |s| {
            s.ttl = Some(Duration::from_secs(30));
        });
        refused("ttl \"192h\"", "maxLifetime, 168h", |s| {
            s.ttl = Some(8 * DAY);
        });
        assert_eq!(problems(|s| s.ttl = None).len(), 0);
        refused("maxLifetime", "1m to 10 years", |s| {
            s.ttl = None;
            s.max_lifetime = Duration::from_secs(1);
        });
    }

    #[test]
    fn a_budget_is_a_second_at_least() {
        let zero = Duration::ZERO;
        refused("budgets.schedule \"0s\"", "1s to 24h", |s| {
            s.budgets.schedule = zero;
        });
        refused("budgets.pull", "1s to 24h", |s| s.budgets.pull = zero);
        refused("budgets.init", "1s to 24h", |s| s.budgets.init = zero);
        refused("budgets.start", "1s to 24h", |s| s.budgets.start = zero);
        refused("budgets.total", "1s to 24h", |s| s.budgets.total = 2 * DAY);
    }
}
