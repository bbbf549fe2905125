//! Shared sessions: what [`Launcher`] does with them.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::Launcher;
use crate::cluster::Error;
use crate::launching::Cancelled;
use crate::lifecycle::{self, Deleted, SharedSession};
use crate::outcome::{Failure, Reason};
use crate::spec::SessionSpec;

impl Launcher {
    /// Creates a shared session, which sandboxes are launched into by its name.
    ///
    /// *Cancel safety*: dropped, it is cancelled; what was made is deleted on the
    /// launcher's thread, a session whose creation nobody has heard of included.
    /// [`Launcher::shutdown`] does the same, and waits.
    ///
    /// # Errors
    /// Why there is none, and what could not be deleted of it.
    pub async fn create_session(
        &self,
        spec: SessionSpec,
        timeout: Duration,
    ) -> Result<SharedSession, Box<Failure>> {
        self.create(spec, false, timeout).await
    }

    /// The same, for a name that [`crate::name::generate`] made: when it is taken,
    /// the session gets another suffix; the result says the name.
    ///
    /// # Errors
    /// As for [`Launcher::create_session`].
    pub async fn create_session_generated(
        &self,
        spec: SessionSpec,
        timeout: Duration,
    ) -> Result<SharedSession, Box<Failure>> {
        self.create(spec, true, timeout).await
    }

    async fn create(
        &self,
        spec: SessionSpec,
        rename: bool,
        timeout: Duration,
    ) -> Result<SharedSession, Box<Failure>> {
        if let Err(problems) = spec.validate() {
            let hint = "change what the message names; nothing was created";
            let failure = Failure::new(Reason::Invalid, problems.to_string(), hint);
            return Err(Box::new(failure));
        }
        let name = spec.session.clone();
        // Dropped with this future.
        let (_caller, gone) = watch::channel(());
        let cancelled = Cancelled::new(gone, self.inner.shutdown.subscribe());
        let (tell, mut told) = mpsc::unbounded_channel();
        self.submit(move |engine| async move {
            let made = lifecycle::create_shared(&engine, spec, rename, timeout, cancelled.clone());
            let (session, made) = match Box::pin(made).await {
                Ok(made) => made,
                Err(failure) => {
                    // Whoever is gone does not want to know.
                    let _ = tell.send(Err(failure));
                    return;
                }
            };
            let (read, heard) = oneshot::channel();
            let _ = tell.send(Ok((session, read)));
            if !cancelled.is_heard(heard).await {
                let failure = lifecycle::take_back_shared(&engine, made).await;
                let _ = tell.send(Err(Box::new(failure)));
            }
        });
        while let Some(answer) = told.recv().await {
            match answer {
                Ok((session, read)) => {
                    // Else it is being taken back; what became of it follows.
                    if read.send(()).is_ok() {
                        return Ok(session);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Box::new(Failure {
            cleaned_up: false,
            left: vec![format!("session {name}: its clean-up was cut short")],
            ..Failure::new(
                Reason::Cancelled,
                "the creation of the session was cancelled, or its launcher shut down",
                format!("delete it: podcradle session delete {name}"),
            )
        }))
    }

    /// All shared sessions of the namespace.
    pub async fn sessions(&self, timeout: Duration) -> Result<Vec<SharedSession>, Error> {
        self.ask(move |cluster| lifecycle::list_shared(cluster, timeout))
            .await
    }

    /// Deletes a shared session with all that is in it, and waits until its Pods
    /// are gone.
    pub async fn delete_session(&self, name: &str, timeout: Duration) -> Result<Deleted, Error> {
        let name = name.to_owned();
        self.ask_engine(move |engine| async move {
            let deleted = lifecycle::delete_shared(engine.cluster, name.clone(), timeout).await;
            // A launch may have read it meanwhile.
            engine.sessions.forget(&name);
            deleted
        })
        .await
    }
}
