//! The log of whoever uses the library, every level and every target of it, as
//! a subscriber that hides nothing would write it.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

/// What was logged since somebody asked for it; `None` while nobody does.
static LOG: Mutex<Option<String>> = Mutex::new(None);
/// One at a time.
static TURN: Mutex<()> = Mutex::new(());

/// All that is logged in this process while `go` runs, by others too.
pub fn of<T>(go: impl FnOnce() -> T) -> (T, String) {
    static ONCE: Once = Once::new();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Nobody else in this process sets one.
    ONCE.call_once(|| set_global_default(Everything).unwrap_or(()));
    *log() = Some(String::new());
    let done = go();
    let logged = log().take();
    (done, logged.unwrap_or_default())
}

fn log() -> std::sync::MutexGuard<'static, Option<String>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Everything;

impl Subscriber for Everything {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        log().is_some()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        write(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        if let Some(text) = log().as_mut() {
            values.record(&mut Line(text));
        }
    }

    fn event(&self, event: &Event<'_>) {
        write(event.metadata(), |line| event.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn write(metadata: &Metadata<'_>, fields: impl FnOnce(&mut Line<'_>)) {
    if let Some(text) = log().as_mut() {
        let _ = write!(text, "{} {}:", metadata.level(), metadata.target());
        fields(&mut Line(text));
        text.push('\n');
    }
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
