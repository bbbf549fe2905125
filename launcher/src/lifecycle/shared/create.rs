//! session create: anchor, policy, and then the write that opens it to launches.
//! Until that it has the expiry of a creation, for the sweep.

use std::time::Duration;

use super::super::cleanup::{Made, Tried};
use super::super::engine::Engine;
use super::super::holder::{Holder, Kind};
use super::super::launch::{SLACK, after, plus};
use super::super::stop::{self, Stop};
use super::list::SharedSession;
use crate::cluster::{Deadline, Error, Pause, wait_before_retry};
use crate::launching::Cancelled;
use crate::manifest::{self, EXPIRES, MAKING, OWNER};
use crate::name;
use crate::outcome::{Failure, Reason};
use crate::spec::SessionSpec;

/// Creates a shared session; its spec has been validated. With it comes what
/// [`take_back`] deletes. `rename` is for a generated name.
pub(crate) async fn create(
    engine: &Engine,
    spec: SessionSpec,
    rename: bool,
    timeout: Duration,
    cancelled: Cancelled,
) -> Result<(SharedSession, Made), Box<Failure>> {
    let mut made = Made::new(&name::random_hex(8), Kind::Anchor);
    let result = tokio::select! {
        biased;
        () = cancelled.wait() => Err(Stop::Cancelled),
        result = steps(engine, spec, rename, timeout, &mut made) => result,
    };
    let stop = match result {
        Ok(session) if !cancelled.is_set() => return Ok((session, made)),
        Ok(_) => Stop::Cancelled,
        Err(stop) => stop,
    };
    let mut failure = match stop {
        Stop::Cancelled => stop::creation_cancelled(),
        stop => stop.into_failure(),
    };
    if failure.reason == Reason::NameTaken {
        "take another name, or let --name generate one; podcradle session list names those there are".clone_into(&mut failure.hint);
    }
    clean_up(engine, made, &mut failure).await;
    Err(Box::new(failure))
}

/// Deletes a session that was created, and that nobody has heard of.
pub(crate) async fn take_back(engine: &Engine, made: Made) -> Failure {
    let mut failure = stop::creation_cancelled();
    clean_up(engine, made, &mut failure).await;
    failure
}

async fn clean_up(engine: &Engine, mut made: Made, failure: &mut Failure) {
    let removed = made.delete(&engine.cluster).await;
    failure.cleaned_up = removed.is_ok();
    failure.left = removed.err().unwrap_or_default();
}

async fn steps(
    engine: &Engine,
    mut spec: SessionSpec,
    rename: bool,
    timeout: Duration,
    made: &mut Made,
) -> Result<SharedSession, Stop> {
    let cluster = &engine.cluster;
    let deadline = Deadline::after(timeout);
    let mut reach = deadline.unless_unreachable();
    let owner = spec.owner.clone();
    if let Some(owner) = &owner {
        // Before its session, so that none names a Lease that is not there.
        engine.owners.ensure(cluster, owner, reach).await?;
    }
    let anchor = loop {
        let wanted = manifest::session(&spec, &made.launch_id, after(timeout + SLACK));
        let mut in_doubt = false;
        made.has_begun(Some(&spec.session));
        let error = match cluster
            .create("services", &wanted, &mut in_doubt, reach)
            .await
        {
            Ok(anchor) => break anchor,
            Err(error) => error,
        };
        // Errors that prove that nothing was made leave nothing to clean up.
        if !in_doubt {
            made.has_begun(None);
        }
        let taken = rename && matches!(error, Error::Exists { .. });
        let Some(another) = taken.then(|| name::another(&spec.session)).flatten() else {
            return Err(error.into());
        };
        spec.session = another;
        reach = deadline;
    };
    let mut seen = Holder::from(&anchor).bare();
    made.anchor = Tried::Yes(seen.clone());
    if let Some(policy) = manifest::session_policy(&spec, &made.launch_id, &seen.owner()) {
        let (owner, mut in_doubt) = (seen.owner(), false);
        let mut pause = Pause::SHORT;
        // One of before, under this name, is the collector's to take.
        while let Err(error) = cluster
            .create_policy(&policy, &owner, &mut in_doubt, deadline)
            .await
        {
            let passes = matches!(error, Error::Leftover { .. });
            if !passes || !wait_before_retry(&error, &mut pause, deadline).await {
                return Err(error.into());
            }
        }
    }
    // Its expiry or its owner, never both.
    let ttl = spec.ttl.filter(|_| owner.is_none());
    let expires = ttl.map(|ttl| plus(seen.created(), ttl).to_string());
    let mut changes = vec![(MAKING, None), (EXPIRES, expires)];
    changes.extend(owner.map(|owner| (OWNER, Some(owner))));
    loop {
        match seen.change(cluster, &changes, None, deadline).await {
            Ok(open) => {
                made.anchor = Tried::Yes(open.bare());
                return Ok(SharedSession::of(cluster, &open, 0));
            }
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let found = Holder::read(cluster, Kind::Anchor, seen.name(), deadline).await?;
        seen = found
            .filter(|found| found.uid() == seen.uid() && !found.is_going())
            .ok_or_else(|| stop::session_went(&spec.session))?
            .bare();
    }
}
