//! A real browser without a window, driven over the pipe of Chromium's DevTools protocol: JSON messages, each ended by
//! a zero byte, on descriptors 3 and 4.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::process::{Directory, Process};
use crate::support::tools::chromium;

/// For an answer of the browser, and for what must come about on a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chromium reads commands from descriptor 3 and answers on 4. A test runs as root, which its sandbox refuses.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#;
const OPTIONS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
];

/// A browser with one page. It ends, and its files go, when this is dropped.
pub struct Browser {
    input: ChildStdin,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    /// What the browser has told besides answers.
    events: Vec<Value>,
    _process: Process,
    _directory: Directory,
}

impl Browser {
    pub fn start() -> Self {
        let directory = Directory::new();
        let path = directory.path();
        let log = path.join("log");
        let mut command = Command::new("sh");
        command
            .args(["-c", START])
            .arg(chromium())
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", path.join("profile").display()))
            .arg("about:blank")
            .envs([("HOME", path), ("XDG_CACHE_HOME", path), ("XDG_CONFIG_HOME", path)])
            .env("TMPDIR", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap());
        let (process, input, output) = Process::with_pipes(&mut command, vec![log]);
        let (tell, messages) = channel();
        // It ends with the browser.
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            input,
            messages,
            sent: 0,
            session: None,
            events: Vec::new(),
            _process: process,
            _directory: directory,
        };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let page = targets.iter().find(|target| target["type"] == "page").unwrap();
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Audits", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.look(1280, 900, false);
        browser
    }

    /// Runs a command of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.input, "{message}\0").unwrap();
        loop {
            let mut message = self
                .messages
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] != self.sent {
                self.events.push(message);
                continue;
            }
            assert!(message.get("error").is_none(), "{method}: {message}");
            return message["result"].take();
        }
    }

    /// The size of the window, and whether its user likes it dark.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Loads a page again, also if the address differs in its fragment alone.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.until("a blank page", "location.href === 'about:blank'");
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// The value of an expression, or of what it promises.
    pub fn js(&mut self, expression: &str) -> Value {
        // As if its user did it: a browser suspects pages that navigate by themselves.
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true,
        });
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// A text of the page.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.js(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// Waits until an expression is true on the page. How long did it take?
    #[track_caller]
    pub fn until(&mut self, what: &str, expression: &str) -> Duration {
        let begun = Instant::now();
        // While a page goes and another comes, there may be nothing to ask.
        let guarded = format!("(() => {{ try {{ return Boolean({expression}) }} catch {{}} }})()");
        while self.js(&guarded) != json!(true) {
            if begun.elapsed() > PATIENCE {
                let page = self.text("document.body.innerText");
                panic!("not in {PATIENCE:?}: {what}: {expression}\n{page}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        begun.elapsed()
    }

    /// Presses a key, and releases it.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// What a screen reader finds: the role and the name of everything on the page.
    pub fn accessible(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().trim().to_owned();
        nodes
            .filter(|node| node["ignored"] != true)
            .map(|node| (text(&node["role"]), text(&node["name"])))
            .collect()
    }

    /// Writes what is to be seen to a file.
    pub fn screenshot(&mut self, path: &Path) {
        self.call("Emulation.setScrollbarsHidden", json!({ "hidden": true }));
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// What the browser has found fault with: errors, warnings, and violations of the page's own policy.
    pub fn complaints(&mut self) -> Vec<String> {
        // All that was said before the answer has arrived with it.
        self.js("new Promise((done) => setTimeout(done))");
        let complains = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Audits.issueAdded") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] != "verbose",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] != "debug",
            _ => false,
        };
        self.events.iter().filter(complains).map(ToString::to_string).collect()
    }
}
