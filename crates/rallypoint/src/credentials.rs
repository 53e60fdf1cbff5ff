//! A user and a password, as the client sends and the server checks them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, header};
use subtle::{Choice, ConstantTimeEq};

/// What a request over HTTP without the password is asked for.
pub(crate) const CHALLENGE: &str = "Basic realm=\"rallypoint\"";

/// A user name and its password.
#[derive(Clone)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Credentials {
    /// This user with this password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// Whether these are the user and the password.
    pub(crate) fn are(&self, user: &[u8], password: &[u8]) -> bool {
        let right = user.ct_eq(self.user.as_bytes()) & self.has_password(password);
        right.into()
    }

    fn has_password(&self, password: &[u8]) -> Choice {
        password.ct_eq(self.password.as_bytes())
    }

    /// Whether a request over HTTP has them: `Authorization: Basic` with both, or `Bearer` with the password alone.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(header::AUTHORIZATION) else { return false };
        let Ok(given) = given.to_str() else { return false };
        match given.split_once(' ') {
            Some((scheme, password)) if scheme.eq_ignore_ascii_case("bearer") => {
                self.has_password(password.trim().as_bytes()).into()
            }
            Some((scheme, pair)) if scheme.eq_ignore_ascii_case("basic") => {
                let pair = BASE64_STANDARD.decode(pair.trim()).unwrap_or_default();
                let colon = pair.iter().position(|byte| *byte == b':');
                colon.is_some_and(|at| self.are(&pair[..at], &pair[at + 1..]))
            }
            _ => false,
        }
    }
}

impl std::fmt::Debug for Credentials {
    /// Without the password, which has no business in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_both_or_the_password_alone() {
        let credentials = Credentials::new("root", "open: sesame");
        let admits = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            credentials.admit(&headers)
        };
        let basic = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        assert!(admits(&basic("root:open: sesame")));
        assert!(admits("Bearer open: sesame"));
        assert!(admits("bearer open: sesame"));
        let wrong = ["root:open", "toor:open: sesame", "open: sesame", "", ":", "root:"];
        for wrong in wrong {
            assert!(!admits(&basic(wrong)), "{wrong:?}");
        }
        for wrong in ["", "Bearer", "Bearer ", "Bearer root", "Basic", "Basic !", "open: sesame"] {
            assert!(!admits(wrong), "{wrong:?}");
        }
        assert!(!credentials.admit(&HeaderMap::new()));
    }
}
