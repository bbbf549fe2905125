//! make: what hangs below the anchor, each part in force or in place before the
//! next: policy, gated Pod, Secret; then the gate goes. A creation that the
//! cluster refuses for now is tried again, within the schedule budget.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::Instant;

use super::anchor::{generation_of, is_going};
use super::cleanup::{Tried, delete_uid};
use super::holder::{Holder, is_owned_by};
use super::launch::{Run, SLACK, after, owner_of};
use super::stop::{self, Stop};
use crate::cluster::{Deadline, Error, Pause, Policy};
use crate::launching::LaunchEvent;
use crate::manifest::{self, LAUNCH_ID, Owner, TOKEN_GATE};
use crate::outcome::{Failure, Reason};
use crate::token::{Token, TokenSource};
use crate::watch::{Stage, Subscription};

/// How long, and how often, a creation is tried that the cluster refuses for now.
pub(super) struct Patience {
    until: Instant,
    /// Since when its time counts.
    since: Instant,
    pause: Pause,
    /// What it was refused with last.
    refused: Option<Error>,
}

impl Patience {
    /// For a creation that begins now. All of them, and the wait for a node,
    /// share one schedule budget.
    pub(super) fn new(deadline: Deadline) -> Self {
        Self {
            until: deadline.instant(),
            since: Instant::now(),
            pause: Pause::LONG,
            refused: None,
        }
    }
}

impl Run<'_> {
    /// Policy (when there is one), Pod, Secret, gate.
    pub(super) async fn make(
        &mut self,
        anchor: &Owner,
        deadline: Deadline,
    ) -> Result<(Box<Pod>, Subscription), Stop> {
        self.restrict(anchor, deadline).await?;
        let pod = Box::pin(self.create_pod(anchor, deadline, deadline)).await?;
        self.let_go(anchor, &pod, deadline).await
    }

    /// What a gated Pod needs to run: that it is what was sent, and its Secret.
    pub(super) async fn let_go(
        &mut self,
        anchor: &Owner,
        pod: &Pod,
        deadline: Deadline,
    ) -> Result<(Box<Pod>, Subscription), Stop> {
        let owner = owner_of(pod);
        self.made.pod = Tried::Yes(owner.clone());
        self.say_created("pod", &owner.name);
        let sent = self.pod_for(anchor)?;
        manifest::check_admitted(&sent, pod).map_err(|changes| stop::changed(&changes))?;
        drop(sent);
        let seen = self.hub.subscribe(pod);

        let token = self.token_for(&owner, deadline).await?;
        Box::pin(self.create_secret(&owner, &token, deadline)).await?;
        drop(token);

        let pod = self.cluster.remove_gate(pod, TOKEN_GATE, deadline).await?;
        Ok((Box::new(pod), seen))
    }

    /// In force before there is a Pod; it goes with the anchor, its owner.
    async fn restrict(&mut self, owner: &Owner, deadline: Deadline) -> Result<(), Stop> {
        let policy = manifest::network_policy(&self.spec, self.made.generation, owner);
        let Some(policy) = policy else {
            return Ok(());
        };
        let mut patience = Patience::new(deadline);
        let mut in_doubt = false;
        loop {
            let created = self
                .cluster
                .create_policy(&policy, owner, &mut in_doubt, deadline);
            match created.await {
                Ok(Policy::Made) => break self.say_created("networkpolicy", &owner.name),
                Ok(Policy::Found(found)) => {
                    if found.spec != policy.spec {
                        return Err(stop::other_traffic(&owner.name).into());
                    }
                    break;
                }
                Err(error) => self.wait_out(&mut patience, error).await?,
            }
        }
        Ok(())
    }

    /// Creates the Pod; what an earlier attempt left under the name makes room,
    /// but for one that holds the record of its launch. `reach` is for the first
    /// try.
    pub(super) async fn create_pod(
        &mut self,
        anchor: &Owner,
        mut reach: Deadline,
        deadline: Deadline,
    ) -> Result<Pod, Stop> {
        let mut patience = Patience::new(deadline);
        let mut in_doubt = false;
        loop {
            let wanted = self.pod_for(anchor)?;
            self.made.pod = Tried::Sent(self.spec.sandbox.clone());
            let created = self.cluster.create("pods", &wanted, &mut in_doubt, reach);
            let error = match created.await {
                Ok(pod) => return Ok(pod),
                Err(error) => error,
            };
            drop(wanted);
            reach = deadline;
            // Errors that prove that nothing was made leave nothing to clean up.
            if !in_doubt {
                self.made.pod = Tried::No;
            }
            match error {
                Error::Exists { .. } if self.session.is_none() => {
                    self.make_room(anchor, error, deadline).await?;
                    patience.since = Instant::now();
                }
                error => self.wait_out(&mut patience, error).await?,
            }
        }
    }

    /// The caller's token, who may want the Pod's uid for it.
    async fn token_for(&mut self, pod: &Owner, deadline: Deadline) -> Result<Token, Stop> {
        let callback = match &self.token {
            TokenSource::Known(token) => return Ok(token.clone()),
            TokenSource::Callback(callback) => callback.clone(),
        };
        self.say(LaunchEvent::Waiting {
            stage: Stage::Schedule,
            why: "the caller is asked for the token".to_owned(),
        });
        self.give_turn_back();
        let asked = callback.ask(pod.uid.clone());
        let asked = tokio::time::timeout_at(deadline.instant(), Box::pin(asked)).await;
        let given = asked.map_err(|_| stop::token_late(&pod.name, deadline.given()))?;
        let token = given.map_err(|why| stop::no_token(&pod.name, &why))?;
        manifest::check_token(&self.spec, &token)
            .map_err(|problems| stop::no_token(&pod.name, &problems.to_string()))?;
        self.token = TokenSource::Known(token.clone());
        self.take_turn().await;
        Ok(token)
    }

    async fn create_secret(
        &mut self,
        owner: &Owner,
        token: &Token,
        deadline: Deadline,
    ) -> Result<(), Stop> {
        let secret = manifest::secret(&self.spec, self.made.generation, owner, token);
        let name = secret.name_any();
        let mut patience = Patience::new(deadline);
        let mut in_doubt = false;
        let uid = loop {
            self.made.secret = Tried::Sent(name.clone());
            let created =
                self.cluster
                    .create_secret(&secret, owner, token, &mut in_doubt, deadline);
            let error = match created.await {
                Ok(uid) => break uid,
                Err(error) => error,
            };
            if !in_doubt {
                self.made.secret = Tried::No;
            }
            if matches!(error, Error::Leftover { .. }) {
                // It may be the other way round: of a Pod that took the place of ours.
                let now = self.cluster.pod(&owner.name, deadline).await?;
                let ours = now.filter(|now| now.uid().as_ref() == Some(&owner.uid));
                ours.ok_or_else(stop::gone)?;
            }
            self.wait_out(&mut patience, error).await?;
        };
        self.say_created("secret", &name);
        self.made.secret = Tried::Yes(Owner { name, uid });
        Ok(())
    }

    fn pod_for(&self, anchor: &Owner) -> Result<Pod, Stop> {
        let generation = self.made.generation;
        let made = manifest::pod(&self.spec, generation, anchor).map_err(|problems| {
            let text = problems.to_string();
            Failure::new(Reason::Invalid, text, "change the overlay")
        })?;
        if self.session.is_none() {
            return Ok(made);
        }
        let record = self.launching(generation);
        let expires = after(self.spec.budgets.total + SLACK);
        Ok(manifest::with_record(made, &record, expires))
    }

    /// The name of our Pod is taken: by one that is going anyway, by one that
    /// an earlier attempt left behind, or by somebody else's, which stays.
    async fn make_room(
        &mut self,
        anchor: &Owner,
        taken: Error,
        deadline: Deadline,
    ) -> Result<(), Stop> {
        let name = &self.spec.sandbox;
        let Some(pod) = self.cluster.pod(name, deadline).await? else {
            return Ok(());
        };
        if !is_going(&pod) {
            if !is_owned_by(&pod, Some(&anchor.uid))
                || pod.labels().get(LAUNCH_ID) != Some(&self.spec.launch_id)
            {
                return Err(taken.into());
            }
            if generation_of(&pod) >= self.made.generation {
                return Err(stop::taken_over(name).into());
            }
            let uid = pod.uid().unwrap_or_default();
            delete_uid::<Pod>(self.cluster, "pods", name, uid, deadline).await?;
        }
        self.wait_gone(&Holder::from(&pod), deadline).await
    }

    /// A quota may free up, or a webhook come back, within the schedule budget:
    /// returns when the creation is to be tried again.
    ///
    /// # Errors
    /// The reason why it is not.
    pub(super) async fn wait_out(
        &mut self,
        patience: &mut Patience,
        error: Error,
    ) -> Result<(), Error> {
        self.waited += patience.since.elapsed();
        let pause = patience.pause.next();
        if !error.may_pass()
            || self.waited + pause >= self.spec.budgets.schedule
            || Instant::now() + pause >= patience.until
        {
            return Err(match error {
                // That the last try had too little time is not the reason.
                Error::TimedOut { .. } => patience.refused.take().unwrap_or(error),
                error => error,
            });
        }
        self.say(LaunchEvent::Waiting {
            stage: Stage::Schedule,
            why: error.to_string(),
        });
        patience.refused = Some(error);
        self.give_turn_back();
        patience.pause.sleep(pause).await;
        self.waited += pause;
        self.take_turn().await;
        patience.since = Instant::now();
        Ok(())
    }
}
