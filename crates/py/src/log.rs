//! What the library has to say, on its way to Python's `logging`.
//!
//! Threads of the runtime never wait for Python: they leave their words here, and a thread of Python's takes
//! them. If nobody does, the oldest are forgotten.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// As many as a person might still read.
const KEPT: usize = 1000;

/// The targets of the records that are kept begin with this: see [`rallypoint::log_target`].
const LIBRARY: &str = "rallypoint::";

/// The level in Python's numbers, who speaks, and what.
type Record = (u8, String, String);

static RECORDS: Mutex<VecDeque<Record>> = Mutex::new(VecDeque::new());
static ARRIVED: Condvar = Condvar::new();

fn records() -> MutexGuard<'static, VecDeque<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to keep what is said. False if it goes elsewhere already.
#[pyfunction]
pub(crate) fn start_log(debug: bool) -> bool {
    let level = if debug { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let subscriber = tracing_subscriber::registry().with(Keeper { level });
    tracing::subscriber::set_global_default(subscriber).is_ok()
}

/// Waits until something was said, or for as long as ``seconds``.
#[pyfunction]
pub(crate) fn wait_for_records(py: Python<'_>, seconds: f64) {
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        let said = ARRIVED.wait_timeout_while(records(), patience, |said| said.is_empty());
        drop(said);
    });
}

/// What was said since the last call.
#[pyfunction]
pub(crate) fn next_records() -> Vec<Record> {
    records().drain(..).collect()
}

struct Keeper {
    level: LevelFilter,
}

impl<S: Subscriber> Layer<S> for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with(LIBRARY)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        let speaker = event.metadata().target().replace("::", ".");
        let mut said = records();
        if said.len() == KEPT {
            said.pop_front();
        }
        said.push_back((level, speaker, sentence.message + &sentence.fields));
        ARRIVED.notify_one();
    }
}

/// The message, and behind it the fields as `name=value`.
#[derive(Default)]
struct Sentence {
    message: String,
    fields: String,
}

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
