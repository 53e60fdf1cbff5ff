//! The stacks of the workers of all nodes: what each node publishes, and the report of which ranks are where.
//!
//! Names of functions and files come from the programs of users, and from other nodes: they are bounded, and
//! characters that a terminal would interpret are escaped.

mod document;
mod odd;
mod report;

use serde::{Deserialize, Serialize};

pub use self::document::{HangDocument, StackGroup};
pub use self::odd::{OddNode, OddNodes};
pub use self::report::HangReport;
use self::report::Places;

/// The largest encoded document of a node, in bytes, unless two frames of each worker need more.
const LARGEST: usize = 64 << 10;

/// The largest number of frames of a worker, from the innermost on.
const MOST_FRAMES: usize = 16;

/// The largest number of characters of a name.
const LONGEST_NAME: usize = 160;

/// A call on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function; of a process without a readable stack, the function of the kernel in which it waits.
    pub function: String,
    /// The file of the source; of a process without a readable stack, the name of the process.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    #[serde(default)]
    pub line: u32,
}

impl Frame {
    /// Whether the frame is of Python's library, or of an installed package.
    fn is_of_a_library(&self) -> bool {
        let file = &self.file;
        let standard = ["/lib/python", "/lib64/python", "/site-packages/", "/dist-packages/"];
        file.starts_with('<') || standard.iter().any(|part| file.contains(part))
    }

    /// The function with the name of its file, without the directory.
    fn short(&self) -> String {
        self.described(self.file.rsplit('/').next().unwrap_or_default())
    }

    /// The function with the path of its file.
    fn long(&self) -> String {
        self.described(&self.file)
    }

    fn described(&self, file: &str) -> String {
        let Self { function, line, .. } = self;
        match line {
            0 => format!("{function} ({file})"),
            line => format!("{function} ({file}:{line})"),
        }
    }
}

/// The stack of a worker's main thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStack {
    /// The rank of the worker.
    pub rank: u32,
    /// The step of its last beat, if it said one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The calls, the innermost first.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// The reason why there are no calls, or why they are those of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl WorkerStack {
    /// Where the worker is: the innermost call of the user's own code, and the call of a library that it is in.
    fn place(&self) -> String {
        let own = self.frames.iter().position(|frame| !frame.is_of_a_library());
        match (own.unwrap_or(0), self.frames.as_slice()) {
            (_, []) => self.note.clone().unwrap_or_else(|| "an unknown place".to_owned()),
            (0, [frame, ..]) => frame.short(),
            (own, frames) => format!("{}, in {}", frames[own].short(), frames[own - 1].short()),
        }
    }
}

/// The stacks of a node's workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStacks {
    /// The name of the host.
    pub host: String,
    /// The id of the node; empty if an earlier version wrote the document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The workers, in the order of their ranks.
    pub workers: Vec<WorkerStack>,
}

impl NodeStacks {
    /// The document, with as many frames of each worker as there is room for.
    pub fn encode(&self) -> String {
        let mut bounded = self.clone().plain(MOST_FRAMES);
        for frames in [8, 4, 2] {
            let text = bounded.text();
            if text.len() <= LARGEST {
                return text;
            }
            bounded = bounded.plain(frames);
        }
        bounded.text()
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers are JSON")
    }

    /// The document, unless it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(|stacks: Self| stacks.plain(MOST_FRAMES))
    }

    /// The place and the stack of each worker, for the log.
    pub fn describe(&self) -> String {
        let places = Places::of(std::slice::from_ref(self));
        format!("{places}{}", places.stacks()).trim_start().to_owned()
    }

    /// With as many frames of each worker as a report shows, and bounded, printable names.
    #[must_use]
    pub fn bounded(self) -> Self {
        self.plain(MOST_FRAMES)
    }

    /// With bounded, printable names.
    fn plain(mut self, most_frames: usize) -> Self {
        self.host = plain(&self.host);
        self.node = plain(&self.node);
        for worker in &mut self.workers {
            cut(&mut worker.frames, most_frames);
            worker.note = worker.note.as_deref().map(plain);
            for frame in &mut worker.frames {
                frame.function = plain(&frame.function);
                frame.file = plain_end(&frame.file);
            }
        }
        self
    }
}

/// Keeps the innermost frames, and those that tell the place of the worker.
fn cut(frames: &mut Vec<Frame>, most: usize) {
    let own = frames.iter().position(|frame| !frame.is_of_a_library());
    if let Some(own) = own.filter(|own| *own >= most) {
        frames.drain(most - 2..own - 1);
    }
    frames.truncate(most);
}

/// The beginning of a text, with escapes for what is not printable. A plain text stays as it is.
fn plain(text: &str) -> String {
    let mut plain: String = escaped(text).take(LONGEST_NAME + 1).collect();
    if let Some((end, _)) = plain.char_indices().nth(LONGEST_NAME) {
        plain.truncate(end);
        plain.push('…');
    }
    plain
}

/// The same with the end of a text, which of a path says most.
fn plain_end(text: &str) -> String {
    let plain: String = escaped(text).collect();
    match plain.char_indices().rev().nth(LONGEST_NAME - 1) {
        Some((start, _)) if start > 0 => format!("…{}", &plain[start..]),
        _ => plain,
    }
}

fn escaped(text: &str) -> impl Iterator<Item = char> + '_ {
    // What is escaped already is not escaped again by the next reader.
    let is_plain = |c: char| matches!(c, '"' | '\'' | '\\');
    text.chars().flat_map(move |c| {
        let (kept, escape) =
            if is_plain(c) { (Some(c), None) } else { (None, Some(c.escape_debug())) };
        kept.into_iter().chain(escape.into_iter().flatten())
    })
}

#[cfg(test)]
mod tests;
