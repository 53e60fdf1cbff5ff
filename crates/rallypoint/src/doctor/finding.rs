//! The result of a check: a verdict, a sentence that names the cause, and the remedy.

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// What was checked is right.
    Ok,
    /// It could not be checked, and the sentence says why.
    Skip,
    /// A job may run, but something deserves a look.
    Warn,
    /// A job will not run, or not as it should.
    Fail,
}

impl Verdict {
    /// The word in the output.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The name of the check.
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    /// What was found, in whole sentences.
    pub(crate) message: String,
    /// What helps, unless all is well.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, message: message.into(), remedy: None }
    }

    pub(crate) fn skip(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Skip, message: message.into(), remedy: None }
    }

    pub(crate) fn warn(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, verdict: Verdict::Warn, message, remedy }
    }

    pub(crate) fn fail(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, message, remedy) }
    }
}
