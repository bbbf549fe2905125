//! The anchor under a launch, or in a shared session its Pod: made, or adopted
//! when it is of the same launch id, and handed over at the end. Each process
//! that launches is an *attempt*; the record names the one that holds it, and
//! every change of hands is a write that fails when somebody else wrote first.
//! An attempt that makes a Pod does so under a generation of its own, so that
//! nothing of two attempts has the same name and the same label.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;

use super::cleanup::{Tried, delete_uid};
use super::holder::{Holder, Kind};
use super::launch::{Run, SLACK, after, plus};
use super::make::Patience;
use super::stop::{self, Stop};
use crate::cluster::{Deadline, Error};
use crate::launching::LaunchEvent;
use crate::manifest::{self, EXPIRES, GENERATION, OWNER, Owner, RECORD, Record, TOKEN_GATE};
use crate::name;
use crate::watch::Stage;

/// How far an earlier attempt came.
pub(super) enum Claim {
    /// Not to a Pod that may run: it is to be made below this anchor.
    Make(Holder),
    /// The same, and in a shared session it has been made with the claim.
    Gated(Holder, Box<Pod>),
    /// To a Pod that may run: it is to be waited for and handed over.
    Join(Holder, Box<Pod>, Box<Record>),
    /// To its end: it stays, whatever becomes of this attempt.
    Done(Holder, Box<Pod>, Box<Record>),
}

impl Run<'_> {
    /// Makes the anchor or the Pod, or adopts the one of an earlier attempt.
    pub(super) async fn claim(&mut self, deadline: Deadline) -> Result<Claim, Stop> {
        let mut first = deadline.unless_unreachable();
        loop {
            let name = self.spec.sandbox.clone();
            let begun = self.begin(first, deadline).await;
            // Whatever it was, it was an answer.
            first = deadline;
            let found = match begun {
                Ok((made, pod)) if self.is_mine(&made) => {
                    if let Some(pod) = pod {
                        return Ok(Claim::Gated(made.bare(), pod));
                    }
                    self.made.anchor = Tried::Yes(made.bare());
                    self.say_created("service", &name);
                    return Ok(Claim::Make(made.bare()));
                }
                // The answer was lost, and another attempt was first.
                Ok((theirs, _)) => theirs,
                Err(Stop::Error(error @ Error::Exists { .. })) => {
                    let kind = self.made.kind;
                    match Holder::read(self.cluster, kind, &name, deadline).await? {
                        None => continue,
                        Some(found) if found.is_going() => {
                            self.wait_gone(&found, deadline).await?;
                            continue;
                        }
                        Some(found) if self.is_this_launch(&found) => found,
                        Some(_) if self.take_another_name() => continue,
                        Some(_) => return Err(error.into()),
                    }
                }
                Err(stop) => return Err(stop),
            };
            let mut there = Some(found);
            while let Some(found) = there.take() {
                let (kind, name) = (found.kind, found.name().to_owned());
                if let Some(claim) = self.adopt(found, deadline).await? {
                    return Ok(claim);
                }
                // Somebody wrote meanwhile, or this attempt, whose answer was lost:
                // what is there, and may have been handed over, is not made anew.
                let now = Holder::read(self.cluster, kind, &name, deadline).await?;
                there = now.filter(|now| !now.is_going() && self.is_this_launch(now));
            }
        }
    }

    /// Makes what holds the record.
    async fn begin(
        &mut self,
        first: Deadline,
        deadline: Deadline,
    ) -> Result<(Holder, Option<Box<Pod>>), Stop> {
        let Some(session) = self.session.clone() else {
            let anchor = self.create_anchor(first, deadline).await?;
            return Ok(((&anchor).into(), None));
        };
        let created = Box::pin(self.create_pod(&session.anchor, first, deadline));
        let pod = Box::new(created.await?);
        Ok(((&*pod).into(), Some(pod)))
    }

    async fn create_anchor(
        &mut self,
        mut first: Deadline,
        deadline: Deadline,
    ) -> Result<Service, Error> {
        self.made.anchor = Tried::Sent(self.spec.sandbox.clone());
        let mut patience = Patience::new(deadline);
        let mut in_doubt = false;
        let record = self.launching(self.made.generation);
        loop {
            let expires = after(self.spec.budgets.total + SLACK);
            let wanted = manifest::service(&record, expires);
            let created = self
                .cluster
                .create("services", &wanted, &mut in_doubt, first);
            let error = match created.await {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            // Errors that prove that nothing was made leave nothing to clean up.
            if !in_doubt {
                self.made.anchor = Tried::No;
            }
            self.wait_out(&mut patience, error).await?;
            first = deadline;
            self.made.anchor = Tried::Sent(self.spec.sandbox.clone());
        }
    }

    /// Takes it over from the attempt that holds it; `None` when somebody wrote
    /// meanwhile, or it had to go, and all is to be looked at again.
    async fn adopt(&mut self, found: Holder, deadline: Deadline) -> Result<Option<Claim>, Stop> {
        let name = found.name().to_owned();
        let unreadable = || stop::unreadable_record(found.kind.resource(), &name);
        let mut record = found.record().ok_or_else(unreadable)?;
        // By a change whose answer was lost.
        let mine = record.attempt == self.made.attempt;
        if !mine {
            self.made.has_begun(None);
        }
        let pod = self.cluster.pod(&name, deadline).await?;
        let runs = pod.filter(|pod| {
            found.is_about(pod)
                && generation_of(pod) == record.generation
                && !is_going(pod)
                && !is_gated(pod)
        });
        let done = record.operation.is_none();
        let mut holder = found;
        if !mine {
            if runs.is_none() && done {
                return Err(stop::without_pod(&name).into());
            }
            if runs.is_some() && self.has_another_token(&record) {
                return Err(stop::other_token(&name).into());
            }
            if runs.is_none() {
                record = self.launching(record.generation + 1);
            }
            record.attempt.clone_from(&self.made.attempt);
            match self.take(&holder, &record, deadline).await {
                Ok(taken) if taken.is_going() => return Ok(None),
                Ok(taken) => holder = taken,
                Err(Error::Conflict { .. } | Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        if !self.adopted {
            self.adopted = true;
            if runs.is_some() {
                self.differs = record.differences(&self.spec);
            }
            let differs = self.differs.clone();
            self.say(LaunchEvent::Adopted { name, differs });
        }
        if done {
            self.made.leave();
        } else if holder.kind == Kind::Anchor {
            self.made.anchor = Tried::Yes(holder.bare());
        }
        Ok(match runs {
            None if holder.kind == Kind::Pod => {
                self.replace(&holder, deadline).await?;
                None
            }
            None => Some(Claim::Make(holder.bare())),
            Some(pod) if done => Some(Claim::Done(holder, Box::new(pod), Box::new(record))),
            Some(pod) => Some(Claim::Join(holder.bare(), Box::new(pod), Box::new(record))),
        })
    }

    /// Writes that this attempt holds it from now on.
    async fn take(
        &mut self,
        holder: &Holder,
        record: &Record,
        deadline: Deadline,
    ) -> Result<Holder, Error> {
        let mut changes = vec![(RECORD, Some(record.to_annotation()))];
        // What was handed over is nobody's to delete, and keeps its expiry.
        if record.operation.is_some() {
            let expires = after(self.spec.budgets.total + SLACK).to_string();
            changes.push((EXPIRES, Some(expires)));
            self.made.has_begun(Some(holder.name()));
            self.made.generation = record.generation;
        }
        let generation = Some(record.generation);
        holder
            .change(self.cluster, &changes, generation, deadline)
            .await
    }

    /// A gated Pod of an earlier attempt goes, since its token is not ours; the
    /// next one has the generation that its record has got.
    async fn replace(&mut self, gated: &Holder, deadline: Deadline) -> Result<(), Stop> {
        let Owner { name, uid } = gated.owner();
        delete_uid::<Pod>(self.cluster, "pods", &name, uid, deadline).await?;
        self.wait_gone(gated, deadline).await?;
        self.made.has_begun(None);
        Ok(())
    }

    /// From the launch's deadline to the session's own expiry, in one write.
    /// The expiry counts from the anchor's creation, by the server's clock; in a
    /// shared session it is on an anchor that is not ours to write.
    pub(super) async fn hand_over(
        &mut self,
        mut seen: Holder,
        record: &Record,
        deadline: Deadline,
    ) -> Result<Option<String>, Stop> {
        // Its expiry or its owner, never both.
        let owner = record.spec.owner.clone();
        let ttl = record.spec.ttl.filter(|_| owner.is_none());
        let expires = match &self.session {
            Some(session) => session.expires.map(|t| t.to_string()),
            None => ttl.map(|ttl| plus(seen.created(), ttl).to_string()),
        };
        let on_holder = expires.clone().filter(|_| seen.kind == Kind::Anchor);
        loop {
            let mut changes = vec![
                (EXPIRES, on_holder.clone()),
                (RECORD, Some(record.to_annotation())),
            ];
            if owner.is_some() {
                changes.push((OWNER, owner.clone()));
            }
            match seen.change(self.cluster, &changes, None, deadline).await {
                Ok(written) if written.is_going() => return Err(stop::gone().into()),
                Ok(written) => {
                    if written.kind == Kind::Anchor {
                        self.made.anchor = Tried::Yes(written.bare());
                    }
                    return Ok(expires);
                }
                Err(Error::Conflict { .. }) => {}
                Err(Error::NotFound { .. }) => return Err(stop::gone().into()),
                Err(error) => return Err(error.into()),
            }
            let found = Holder::read(self.cluster, seen.kind, seen.name(), deadline).await?;
            let found = found
                .filter(|found| found.uid() == seen.uid() && !found.is_going())
                .ok_or_else(stop::gone)?;
            let theirs = found.record().unwrap_or_else(|| record.clone());
            let another = theirs.attempt != record.attempt;
            if theirs.generation != record.generation || another && theirs.operation.is_some() {
                return Err(stop::taken_over(seen.name()).into());
            }
            if another {
                // Another attempt at the same Pod was first, and answers for it.
                self.made.leave();
                let on_anchor = found.annotation(EXPIRES).map(str::to_owned);
                return Ok(on_anchor.or(expires.filter(|_| seen.kind == Kind::Pod)));
            }
            seen = found.bare();
        }
    }

    /// Waits for the end of what stands in the way under our name.
    pub(super) async fn wait_gone(
        &mut self,
        found: &Holder,
        deadline: Deadline,
    ) -> Result<(), Stop> {
        let (resource, name) = (found.kind.resource(), found.name());
        self.say(LaunchEvent::Waiting {
            stage: Stage::Schedule,
            why: format!("{resource} {name} of before is still being deleted"),
        });
        self.give_turn_back();
        tokio::select! {
            // First, since a watch that has no time left says something else.
            biased;
            () = tokio::time::sleep_until(deadline.instant()) => {
                return Err(stop::still_going(resource, name, deadline.given()).into());
            }
            gone = found.gone(self.cluster, deadline) => gone?,
        }
        self.take_turn().await;
        Ok(())
    }

    /// The record this attempt begins with.
    pub(super) fn launching(&self, generation: u32) -> Record {
        Record {
            token_check: self.token.check(&self.spec.launch_id),
            ..Record::launching(&self.spec, generation, &self.made.attempt)
        }
    }

    /// Whether the sandbox of this record has another token than this launch. What
    /// a callback gave, the sandbox has.
    fn has_another_token(&self, record: &Record) -> bool {
        let Some(ours) = self.token.known().filter(|token| token.is_known()) else {
            return false;
        };
        let check = ours.check(&self.spec.launch_id);
        let theirs = record.token_check.as_ref();
        ours.is_new() || theirs.is_some_and(|theirs| *theirs != check)
    }

    /// A generated name that is taken gets a new suffix.
    fn take_another_name(&mut self) -> bool {
        let another = self.rename.then(|| name::another(&self.spec.sandbox));
        if let Some(name) = another.flatten() {
            Arc::make_mut(&mut self.spec).sandbox = name;
            return true;
        }
        false
    }

    fn is_mine(&self, holder: &Holder) -> bool {
        let record = holder.record();
        record.is_some_and(|record| record.attempt == self.made.attempt)
    }

    fn is_this_launch(&self, holder: &Holder) -> bool {
        let there = self.session.as_ref();
        holder.is_of(&self.spec.launch_id)
            && there.is_none_or(|session| holder.is_owned_by(&session.anchor))
    }
}

/// Whether it is being deleted.
pub(super) fn is_going<K: kube::Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether our gate still holds it.
pub(super) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == TOKEN_GATE))
}

/// The generation its label says.
pub(super) fn generation_of(pod: &Pod) -> u32 {
    let label = pod.labels().get(GENERATION);
    label.and_then(|text| text.parse().ok()).unwrap_or(0)
}
