//! The anchor under a launch: made, or adopted when it is of the same launch
//! id, and handed over at the end. Each process that launches is an *attempt*;
//! the record names the one that holds the anchor, and every change of hands is
//! a write that fails when somebody else wrote first. An attempt that makes a
//! Pod does so under a generation of its own, so that nothing of two attempts
//! has the same name and the same label.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::cleanup::Tried;
use super::launch::{Run, SLACK, after, plus};
use super::make::Patience;
use super::stop::{self, Stop};
use crate::cluster::{Deadline, Error};
use crate::launching::LaunchEvent;
use crate::manifest::{self, EXPIRES, GENERATION, LAUNCH_ID, OWNER, RECORD, Record, TOKEN_GATE};
use crate::name;
use crate::watch::{Stage, Watch};

/// How far an earlier attempt came.
pub(super) enum Claim {
    /// Not to a Pod that may run: it is to be made.
    Make(Service),
    /// To a Pod that may run: it is to be waited for and handed over.
    Join(Service, Box<Pod>, Box<Record>),
    /// To its end: it stays, whatever becomes of this attempt.
    Done(Service, Box<Pod>, Box<Record>),
}

impl Run<'_> {
    /// Makes the anchor, or adopts the one of an earlier attempt.
    pub(super) async fn claim(&mut self, deadline: Deadline) -> Result<Claim, Stop> {
        let mut first = deadline.unless_unreachable();
        loop {
            let name = self.spec.sandbox.clone();
            let created = self.create_anchor(first, deadline).await;
            // Whatever it was, it was an answer.
            first = deadline;
            let found = match created {
                Ok(made) if self.is_mine(&made) => {
                    let anchor = bare(&made);
                    self.made.service = Tried::Yes(anchor.clone());
                    self.say_created("service", &name);
                    return Ok(Claim::Make(anchor));
                }
                // The answer was lost, and another attempt was first.
                Ok(theirs) => theirs,
                Err(error @ Error::Exists { .. }) => {
                    match self.cluster.service(&name, deadline).await? {
                        None => continue,
                        Some(found) if is_going(&found) => {
                            self.wait_gone(found, "services", deadline).await?;
                            continue;
                        }
                        Some(found) if self.is_this_launch(&found) => found,
                        Some(_) if self.take_another_name() => continue,
                        Some(_) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            if let Some(claim) = self.adopt(found, deadline).await? {
                return Ok(claim);
            }
        }
    }

    async fn create_anchor(
        &mut self,
        mut first: Deadline,
        deadline: Deadline,
    ) -> Result<Service, Error> {
        self.made.service = Tried::Sent(self.spec.sandbox.clone());
        let mut patience = Patience::new(deadline);
        let mut in_doubt = false;
        let record = Record::launching(&self.spec, self.made.generation, &self.made.attempt);
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
                self.made.service = Tried::No;
            }
            self.wait_out(&mut patience, error).await?;
            first = deadline;
            self.made.service = Tried::Sent(self.spec.sandbox.clone());
        }
    }

    /// Takes the anchor of this launch over from the attempt that holds it;
    /// `None` when somebody wrote meanwhile and all is to be looked at again.
    async fn adopt(&mut self, found: Service, deadline: Deadline) -> Result<Option<Claim>, Stop> {
        let name = found.name_any();
        let mut record = record_of(&found).ok_or_else(|| stop::unreadable_record(&name))?;
        // By a change whose answer was lost.
        let mine = record.attempt == self.made.attempt;
        if !mine {
            self.made.service = Tried::No;
        }
        let pod = self.cluster.pod(&name, deadline).await?;
        let runs = pod.filter(|pod| {
            is_owned_by(pod, &found)
                && generation_of(pod) == record.generation
                && !is_going(pod)
                && !is_gated(pod)
        });
        let done = record.operation.is_none();
        let mut anchor = found;
        if !mine {
            if runs.is_none() && done {
                return Err(stop::without_pod(&name).into());
            }
            if runs.is_some() && self.token.is_new() {
                return Err(stop::other_token(&name).into());
            }
            if runs.is_none() {
                let next = record.generation + 1;
                record = Record::launching(&self.spec, next, &self.made.attempt);
            }
            record.attempt.clone_from(&self.made.attempt);
            match self.take(&anchor, &record, deadline).await {
                Ok(taken) => anchor = taken,
                Err(Error::Conflict { .. } | Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        self.adopted = true;
        self.say(LaunchEvent::Adopted { name });
        if done {
            self.made.leave();
        } else {
            self.made.service = Tried::Yes(bare(&anchor));
        }
        Ok(Some(match runs {
            None => Claim::Make(bare(&anchor)),
            Some(pod) if done => Claim::Done(anchor, Box::new(pod), Box::new(record)),
            Some(pod) => Claim::Join(bare(&anchor), Box::new(pod), Box::new(record)),
        }))
    }

    /// Writes that this attempt holds the anchor from now on.
    async fn take(
        &mut self,
        anchor: &Service,
        record: &Record,
        deadline: Deadline,
    ) -> Result<Service, Error> {
        let mut changes = vec![(RECORD, Some(record.to_annotation()))];
        // What was handed over is nobody's to delete, and keeps its expiry.
        if record.operation.is_some() {
            let expires = after(self.spec.budgets.total + SLACK).to_string();
            changes.push((EXPIRES, Some(expires)));
            self.made.service = Tried::Sent(anchor.name_any());
            self.made.generation = record.generation;
        }
        let generation = Some(record.generation);
        self.cluster
            .change_anchor(anchor, &changes, generation, deadline)
            .await
    }

    /// From the launch's deadline to the session's own expiry, in one write.
    /// The expiry counts from the anchor's creation, by the server's clock.
    pub(super) async fn hand_over(
        &mut self,
        mut seen: Service,
        record: &Record,
        deadline: Deadline,
    ) -> Result<Option<String>, Stop> {
        let created = seen
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or_else(Timestamp::now, |t| t.0);
        // Its expiry or its owner, never both.
        let owner = record.spec.owner.clone();
        let ttl = record.spec.ttl.filter(|_| owner.is_none());
        let expires = ttl.map(|ttl| plus(created, ttl).to_string());
        let uid = seen.uid();
        loop {
            let mut changes = vec![
                (EXPIRES, expires.clone()),
                (RECORD, Some(record.to_annotation())),
            ];
            if owner.is_some() {
                changes.push((OWNER, owner.clone()));
            }
            match self.cluster.annotate(&seen, &changes, deadline).await {
                Ok(service) => {
                    self.made.service = Tried::Yes(bare(&service));
                    return Ok(expires);
                }
                Err(Error::Conflict { .. }) => {}
                Err(Error::NotFound { .. }) => return Err(stop::gone().into()),
                Err(error) => return Err(error.into()),
            }
            let found = self.cluster.service(&seen.name_any(), deadline).await?;
            let found = found
                .filter(|s| s.uid() == uid && !is_going(s))
                .ok_or_else(stop::gone)?;
            let theirs = record_of(&found).unwrap_or_else(|| record.clone());
            let another = theirs.attempt != record.attempt;
            if theirs.generation != record.generation || another && theirs.operation.is_some() {
                return Err(stop::taken_over(&seen.name_any()).into());
            }
            if another {
                // Another attempt at the same Pod was first, and answers for it.
                self.made.leave();
                return Ok(found.annotations().get(EXPIRES).cloned());
            }
            seen = bare(&found);
        }
    }

    /// Waits for the end of what stands in the way under our name.
    pub(super) async fn wait_gone<K>(
        &mut self,
        object: K,
        resource: &'static str,
        deadline: Deadline,
    ) -> Result<(), Stop>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    {
        let name = object.name_any();
        self.say(LaunchEvent::Waiting {
            stage: Stage::Schedule,
            why: format!("{resource} {name} of before is still being deleted"),
        });
        let watch = Watch::of_object(self.cluster, resource, &object);
        self.give_turn_back();
        tokio::select! {
            // First, since a watch that has no time left says something else.
            biased;
            () = tokio::time::sleep_until(deadline.instant()) => {
                return Err(stop::still_going(resource, &name, deadline.given()).into());
            }
            gone = watch.gone(&object, deadline) => gone?,
        }
        self.take_turn().await;
        Ok(())
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

    fn is_mine(&self, service: &Service) -> bool {
        record_of(service).is_some_and(|record| record.attempt == self.made.attempt)
    }

    fn is_this_launch(&self, service: &Service) -> bool {
        service.labels().get(LAUNCH_ID) == Some(&self.spec.launch_id)
    }
}

/// Whether it is being deleted.
pub(super) fn is_going<K: kube::Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether it belongs to this anchor.
pub(super) fn is_owned_by<K: kube::Resource>(object: &K, anchor: &Service) -> bool {
    let owners = object.owner_references();
    owners
        .iter()
        .any(|owner| Some(&owner.uid) == anchor.metadata.uid.as_ref())
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

/// The record of an anchor, when it has one that can be read.
pub(super) fn record_of(service: &Service) -> Option<Record> {
    Record::parse(service.annotations().get(RECORD)?)
}

/// What a write needs to know of the anchor, without its annotations: a
/// process may hold a thousand of them.
fn bare(service: &Service) -> Service {
    let meta = &service.metadata;
    Service {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            creation_timestamp: meta.creation_timestamp.clone(),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }
}
