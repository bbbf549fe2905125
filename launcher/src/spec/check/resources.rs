//! Quantities, and requests that are not above their limits.

use std::cmp::Ordering;

use super::Checks;
use crate::quantity::{self, Quantity};
use crate::spec::SandboxSpec;

pub fn check(spec: &SandboxSpec, c: &mut Checks) {
    let r = &spec.resources;
    let pairs = [
        ("cpu", Some(&*r.cpu_request), Some(&*r.cpu_limit)),
        ("memory", Some(&*r.memory_request), Some(&*r.memory_limit)),
        (
            "ephemeralStorage",
            r.ephemeral_storage_request.as_deref(),
            r.ephemeral_storage_limit.as_deref(),
        ),
    ];
    for (kind, request, limit) in pairs {
        let field = format!("resources.{kind}Request");
        quantity(&field, request, c);
        let field_of_limit = format!("resources.{kind}Limit");
        quantity(&field_of_limit, limit, c);
        more_than_nothing(&field_of_limit, limit, c);
        if let (Some(request), Some(limit)) = (request, limit)
            && Quantity::compare(request, limit) == Some(Ordering::Greater)
        {
            c.refuse(
                &field,
                request,
                format!("must not be above its limit {limit}"),
            );
        }
    }
    quantity("homeSizeLimit", spec.home_size_limit.as_deref(), c);
    more_than_nothing("homeSizeLimit", spec.home_size_limit.as_deref(), c);
}

/// Kubernetes reads a limit of zero as none.
fn more_than_nothing(field: &str, limit: Option<&str>, c: &mut Checks) {
    if let Some(limit) = limit
        && Quantity::parse(limit) == Quantity::parse("0")
    {
        c.refuse(field, limit, "must be more than nothing");
    }
}

fn quantity(field: &str, text: Option<&str>, c: &mut Checks) {
    if let Some(text) = text {
        let right = Quantity::parse(text).is_some();
        c.require(right, field, text, quantity::RULE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{problems, refused};

    #[test]
    fn each_quantity_is_read_and_a_request_keeps_below_its_limit() {
        refused("resources.cpuLimit", "quantity", |s| {
            s.resources.cpu_limit = "2 cores".into();
        });
        refused("resources.cpuRequest \"3\"", "above its limit 2", |s| {
            s.resources.cpu_request = "3".into();
        });
        refused("resources.memoryRequest", "above its limit 1Gi", |s| {
            s.resources.memory_limit = "1Gi".into();
            s.resources.memory_request = "1025Mi".into();
        });
        refused(
            "resources.ephemeralStorageRequest",
            "above its limit 1Gi",
            |s| {
                s.resources.ephemeral_storage_request = Some("2Gi".into());
                s.resources.ephemeral_storage_limit = Some("1Gi".into());
            },
        );
        refused("resources.ephemeralStorageLimit", "quantity", |s| {
            s.resources.ephemeral_storage_limit = Some("big".into());
        });
        refused("homeSizeLimit", "quantity", |s| {
            s.home_size_limit = Some("1GB".into());
        });
        refused("homeSizeLimit", "more than nothing", |s| {
            s.home_size_limit = Some("0Mi".into());
        });
        for zero in ["0", "0m", "0.0", "0e3"] {
            refused("resources.cpuLimit", "more than nothing", |s| {
                s.resources.cpu_request = "0".into();
                s.resources.cpu_limit = zero.into();
            });
        }
        // Whoever fills a spec by hand sets both: a default is a request like any.
        refused("resources.memoryRequest \"1Gi\"", "its limit 512Mi", |s| {
            s.resources.memory_limit = "512Mi".into();
        });
        let found = problems(|s| s.resources.ephemeral_storage_limit = Some("1Gi".into()));
        assert_eq!(found, Vec::<String>::new());
    }
}
