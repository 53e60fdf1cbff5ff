//! The queue of log records from the library to Python's `logging`.
//!
//! Threads of the runtime never wait for Python: they put records into this queue, and a Python thread takes them out.
//! If the queue is full, the oldest records are dropped.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The capacity of the queue, in records.
const KEPT: usize = 1000;

/// The prefix of the log targets of the library: see [`rallypoint::log_target`].
const LIBRARY: &str = "rallypoint::";

/// A log record: the level in Python's numbers, the name of the logger, and the text.
type Record = (u8, String, String);

static RECORDS: Mutex<VecDeque<Record>> = Mutex::new(VecDeque::new());
static ARRIVED: Condvar = Condvar::new();

fn records() -> MutexGuard<'static, VecDeque<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the queue. Returns false if the process has another subscriber for log records already.
#[pyfunction]
pub(crate) fn start_log(debug: bool) -> bool {
    let level = if debug { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let subscriber = tracing_subscriber::registry().with(LogQueueLayer { level });
    tracing::subscriber::set_global_default(subscriber).is_ok()
}

/// Waits for a record, for at most ``seconds``.
#[pyfunction]
pub(crate) fn wait_for_records(py: Python<'_>, seconds: f64) {
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        let said = ARRIVED.wait_timeout_while(records(), patience, |said| said.is_empty());
        drop(said);
    });
}

/// Takes all records out of the queue.
#[pyfunction]
pub(crate) fn next_records() -> Vec<Record> {
    records().drain(..).collect()
}

struct LogQueueLayer {
    level: LevelFilter,
}

impl<S: Subscriber> Layer<S> for LogQueueLayer {
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
        let mut text = RecordText::default();
        event.record(&mut text);
        let logger = event.metadata().target().replace("::", ".");
        let mut said = records();
        if said.len() == KEPT {
            said.pop_front();
        }
        said.push_back((level, logger, text.message + &text.fields));
        ARRIVED.notify_one();
    }
}

/// The text of a record: its message, followed by its fields as `name=value`.
#[derive(Default)]
struct RecordText {
    message: String,
    fields: String,
}

impl Visit for RecordText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
