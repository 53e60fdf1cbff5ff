//! The files of the page. They are in the program, so the page needs no network and no installation.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
#[derive(Clone, Copy)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    pub(super) fn response(self) -> Response {
        ([(CONTENT_TYPE, self.kind)], self.text).into_response()
    }
}

macro_rules! assets {
    ($($path:literal is $kind:ident in $file:literal,)*) => {
        &[$(Asset { path: $path, kind: $kind, text: include_str!(concat!("assets/", $file)) }),*]
    };
}

/// All files.
pub(super) const ALL: &[Asset] = assets! {
    "/" is HTML in "index.html",
    "/app.css" is STYLE in "app.css",
    "/app.js" is SCRIPT in "app.js",
    "/board.js" is SCRIPT in "board.js",
    "/dom.js" is SCRIPT in "dom.js",
    "/node.js" is SCRIPT in "node.js",
    "/run.js" is SCRIPT in "run.js",
    "/runs.js" is SCRIPT in "runs.js",
    "/stream.js" is SCRIPT in "stream.js",
    "/timeline.js" is SCRIPT in "timeline.js",
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_page_is_served() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/ui/assets");
        let files = std::fs::read_dir(directory).unwrap();
        let files = files.map(|file| format!("/{}", file.unwrap().file_name().to_string_lossy()));
        let served = ALL.iter().map(|asset| asset.path.replace("index.html", ""));
        let files: BTreeSet<String> = files.map(|file| file.replace("index.html", "")).collect();
        assert_eq!(files, served.collect());
    }

    /// The policy of the page would not let them run.
    #[test]
    fn no_script_and_no_style_is_inline_and_nothing_is_loaded_from_elsewhere() {
        for asset in ALL {
            let text = asset.text.replace("http://www.w3.org/", "");
            for sign in ["http://", "https://", "innerHTML", " style=", "<style", "eval("] {
                assert!(!text.contains(sign), "{} has {sign}", asset.path);
            }
            let inline = text.match_indices("<script").any(|(at, _)| {
                let tag = text[at..].split('>').next().unwrap_or_default();
                !tag.contains(" src=")
            });
            assert!(!(asset.kind == HTML && inline), "{}", asset.path);
        }
    }
}
