//! Where a launch takes its token from: a caller has it before, or gives it
//! once there is a Pod, for a server that binds a token to one Pod.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::Token;

type Given = Result<Token, Box<dyn Error + Send + Sync>>;

/// Where a launch takes its token from. A [`Token`] is one too.
#[derive(Clone)]
#[non_exhaustive]
pub enum TokenSource {
    /// It is known before anything is made.
    Known(Token),
    /// It is asked for when there is a Pod: see [`TokenSource::callback`].
    Callback(Callback),
}

/// What is asked for the token of a Pod.
#[derive(Clone)]
pub struct Callback(Arc<dyn Fn(String) -> BoxFuture<'static, Given> + Send + Sync>);

impl From<Token> for TokenSource {
    fn from(token: Token) -> Self {
        Self::Known(token)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known(_) => "Known(..)",
            Self::Callback(_) => "Callback(..)",
        })
    }
}

impl TokenSource {
    /// Asks `give` for the token, with the uid of the Pod that the host will run
    /// in: once for each Pod that a launch makes, while the Pod is held and
    /// before its Secret exists. A launch again that finds the Pod of an earlier
    /// attempt running does not ask: that Pod has its token.
    ///
    /// `give` runs on the launcher's thread, so it must await and not block. It
    /// has what is left of the launch's whole time. An error, a panic, and a
    /// token that [`crate::manifest::check_token`] refuses end the launch
    /// ([`crate::Reason::Token`]); what was made is deleted then. Its error is
    /// shown, so it must not hold a token.
    ///
    /// *Cancel safety*: the future is dropped when its launch is cancelled.
    ///
    /// ```
    /// use podcradle_launcher::token::{Token, TokenSource};
    ///
    /// let source = TokenSource::callback(|pod_uid| async move {
    ///     // As your server would make one for this Pod.
    ///     let text = format!("token-of-{pod_uid}");
    ///     Ok(Token::read("the server", text.as_bytes())?)
    /// });
    /// ```
    pub fn callback<F, G>(give: F) -> Self
    where
        F: Fn(String) -> G + Send + Sync + 'static,
        G: Future<Output = Given> + Send + 'static,
    {
        Self::Callback(Callback(Arc::new(move |uid| Box::pin(give(uid)))))
    }

    /// The token, where it is known.
    pub(crate) fn known(&self) -> Option<&Token> {
        match self {
            Self::Known(token) => Some(token),
            Self::Callback(_) => None,
        }
    }

    /// What tells it from another one, where that matters.
    pub(crate) fn check(&self, launch_id: &str) -> Option<String> {
        self.known().map(|token| token.check(launch_id))
    }

    /// `text` without the token; as it is while nobody knows one.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.known()
            .map_or_else(|| text.to_owned(), |token| token.redact(text))
    }
}

impl Callback {
    /// The token for the Pod with this uid.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn ask(&self, pod_uid: String) -> Result<Token, String> {
        let give = Arc::clone(&self.0);
        // A task: what panics in it ends nothing else, and it ends with this.
        let mut task = JoinSet::new();
        task.spawn(async move { give(pod_uid).await });
        match task.join_next().await {
            Some(Ok(Ok(token))) => Ok(token),
            Some(Ok(Err(error))) => Err(error.to_string()),
            _ => Err("it panicked".to_owned()),
        }
    }
}
