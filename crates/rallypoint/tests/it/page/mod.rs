//! The page of runs as its users see it: a real server, real nodes and a real browser.

mod browser;
mod documents;
mod screenshots;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::browser::Browser;
use self::documents::{Documents, lose};
use crate::http::told_address;
use crate::launch::{Job, wait};
use crate::support::hostile::Target;
use crate::support::tools::free_port;

const NOTHING: [String; 0] = [];

/// A server with a page.
pub struct Served {
    server: Target,
    /// The address of the page.
    page: String,
}

impl Served {
    pub fn start() -> Self {
        let server = wait(Target::start(&["--http", "127.0.0.1:0"]));
        let page = told_address(&server.output()).expect("the log names the address");
        Self { server, page }
    }

    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    pub fn url(&self, fragment: &str) -> String {
        format!("http://{}/{fragment}", self.page)
    }
}

/// A group of members, all well.
fn group(run: &str, size: usize) -> Documents {
    let mut documents = Documents::of(run);
    documents.active(1, "final", (size, size), &json!({ "world": size, "rank0": "n0" }));
    for rank in 0..size {
        let id = format!("n{rank}");
        documents.node(&id, &format!("gpu{rank}"), rank);
        documents.member(1, &id, rank, size);
    }
    documents
}

/// How many cells of the board have this state.
fn cells(state: &str) -> String {
    format!("document.querySelectorAll('.board .cell.{state}').length")
}

#[test]
fn a_run_forms_and_a_node_dies_and_the_page_shows_both_within_a_second() {
    let served = Served::start();
    let mut browser = Browser::start();
    browser.open(&served.url("#/run/job"));
    browser.until("no run", "document.querySelector('#away').innerText.includes('has no run')");
    let conf = "is_host=false,lease_ttl=30,last_call_timeout=1";
    let job = Job::with_conf(&served.server.address().to_string(), "2:3", conf);
    let mut nodes = job.launchers(3);
    let first = job.group(3);
    let took = browser.until("a group", &format!("{} === 3", cells("member")));
    assert!(took < Duration::from_secs(1), "the group was on the page after {took:?}");
    assert_eq!(browser.text("document.querySelector('.title .badge').innerText"), "•\nfinal");
    assert_eq!(browser.js("document.querySelector('#away').hidden"), json!(true));
    let lead = browser.text("document.querySelector('.lead').innerText");
    assert!(lead.starts_with("Run \"job\" runs: round 1 has a group of 3 nodes"), "{lead}");

    let run = told(&mut browser);
    let members = run["status"]["nodes"].as_array().unwrap();
    let lost = members.iter().find(|node| node["pid"] == nodes[1].id()).unwrap()["id"].clone();
    let lost = lost.as_str().unwrap();
    nodes[1].kill();
    let killed = Instant::now();
    let is_gone = format!(
        "![...document.querySelectorAll('.board .cell.member')].some((cell) => \
         cell.getAttribute('aria-label').includes({}))",
        json!(lost)
    );
    browser.until("a member less", &is_gone);
    assert!(killed.elapsed() < Duration::from_secs(1), "a dead node after {:?}", killed.elapsed());
    let second = job.group_after(&first, 2);
    let two =
        format!("{} === 2 && document.querySelectorAll('.round').length === 2", cells("member"));
    let took = browser.until("the next group", &two);
    assert!(took < Duration::from_secs(1), "the next group was on the page after {took:?}");
    second.tell("exit 0");
    nodes[0].ends_with(0);
    nodes[2].ends_with(0);
    browser.until(
        "the end",
        "document.querySelector('.title .badge').innerText.includes('succeeded')",
    );

    let run = told(&mut browser);
    the_timeline_is_that_of_the_events(&mut browser, &run);
    // The story of the node that died is what the events say of it, the latest first.
    let names = |event: &&Value| {
        let fields = ["coordinator", "rank0", "by", "nodes", "why"].iter();
        fields.filter_map(|name| event.get(name)).any(|value| value.to_string().contains(lost))
    };
    let of_it: Vec<&str> = run["events"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter(names)
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    // A coordinator that dies is not noted by itself: the next round began because of it.
    assert!(of_it.contains(&"members_lost") || of_it.contains(&"round_opened"), "{run}");
    browser.open(&served.url(&format!("#/run/job/node/{lost}")));
    let named = "[...document.querySelectorAll('.turn')].map((turn) => turn.dataset.kind).join()";
    browser.until("its story", &format!("{named} === {}", json!(of_it.join(","))));
    assert_eq!(browser.complaints(), NOTHING);
}

/// What the page of the job is made from.
fn told(browser: &mut Browser) -> Value {
    browser.js("fetch('api/runs/job').then((answer) => answer.json())")
}

#[track_caller]
fn the_timeline_is_that_of_the_events(browser: &mut Browser, told: &Value) {
    let shown =
        browser.js("[...document.querySelectorAll('.round')].reverse().flatMap((round) => \
         [...round.querySelectorAll('.turn')].map(({ dataset, innerText }) => \
         [round.querySelector('h3').innerText, Number(dataset.seq), dataset.kind, innerText]))");
    let shown = shown.as_array().unwrap();
    let mut events: Vec<&Value> = told["events"].as_array().unwrap().iter().collect();
    // A proof of a death belongs to the round of the group, and comes in the next one.
    events.sort_by_key(|event| event["round"].as_u64());
    assert_eq!(shown.len(), events.len(), "{shown:?} {events:?}");
    for (turn, event) in shown.iter().zip(events) {
        assert_eq!(turn[0], format!("Round {}", event["round"]), "{event}");
        assert_eq!((&turn[1], &turn[2]), (&event["seq"], &event["kind"]));
        let words = turn[3].as_str().unwrap();
        for said in ["why", "rank0", "by"].iter().filter_map(|name| event[name].as_str()) {
            let said_so = words.contains(said)
                || event["kind"] == "round_frozen" && words.contains(&event["size"].to_string());
            assert!(said_so, "{words:?} does not say {said:?}");
        }
    }
}

#[test]
fn names_that_look_like_markup_are_text() {
    let served = Served::start();
    let (run, node) = ("<img src=x onerror=alert(1)>", "<script>alert(2)</script>");
    let mut documents = group(run, 2);
    documents.node("m", node, 7);
    let id = "<script>alert(3)<\\script>";
    documents.node(id, "<b>host</b>", 8);
    documents.spare(id);
    let failure = json!({ "round": 1, "blame": "<script>alert(4)</script>", "verdict": "counted" });
    documents.restarts(&json!({ "used": 1, "max": 3, "last": failure }));
    let lines = ["Traceback:", "  <img src=x onerror=alert(1)>"];
    documents.failure(&json!({ "round": 1, "failure": "rank 3 exited with 1", "lines": lines }));
    documents.event(
        "2026-01-01T00:00:00.000Z",
        1,
        "round_opened",
        &json!({
            "coordinator": id, "previous": 0, "why": "<script>alert(5)</script>",
        }),
    );
    documents.write(&served.endpoint());
    let mut browser = Browser::start();
    browser.open(&served.url(""));
    browser.until("the run", "document.querySelector('tbody a')");
    assert_eq!(browser.text("document.querySelector('tbody a').innerText"), run);
    browser.js("document.querySelector('tbody a').click()");
    browser.until("its nodes", &format!("{} === 2", cells("member")));
    assert_eq!(browser.text("document.querySelector('h1').innerText"), run);
    assert_eq!(browser.text("document.querySelector('.board .cell.idle .host').innerText"), node);
    assert_eq!(
        browser.text("document.querySelector('.blame').innerText"),
        "<script>alert(4)</script>"
    );
    let output = browser.text("document.querySelector('.output').innerText");
    assert_eq!(output, lines.join("\n"));
    assert_eq!(browser.js("document.querySelectorAll('main script, main img').length"), json!(0));
    let turn = browser.text("document.querySelector('.turn').innerText");
    assert!(turn.contains("<script>alert(5)</script>"), "{turn}");
    browser.js("document.querySelector('.board .cell.spare').click()");
    browser
        .until("the story", &format!("document.querySelector('h1').innerText === {}", json!(id)));
    assert_eq!(
        browser.js("document.querySelectorAll('main script, main img, main b').length"),
        json!(0)
    );
    assert_eq!(browser.complaints(), NOTHING);
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are for those who run it")]
fn four_thousand_nodes_render_within_two_seconds_and_scroll() {
    const NODES: usize = 4096;
    let served = Served::start();
    group("big", NODES).write(&served.endpoint());
    let mut browser = Browser::start();
    // From the beginning of the navigation until the frame after all cells are there.
    let painted = format!(
        "new Promise((done) => {{ const look = () => {} >= {NODES} \
         ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) \
         : setTimeout(look, 5); look(); }})",
        cells("member")
    );
    // Other tests share the machine: one of three times is its own.
    let times = (0..3).map(|_| {
        browser.open(&served.url("#/run/big"));
        browser.until("the page", "location.hash === '#/run/big'");
        browser.js(&painted).as_f64().unwrap()
    });
    let painted = times
        .inspect(|time| eprintln!("4,096 nodes were painted in {time:.0} ms"))
        .fold(f64::MAX, f64::min);
    assert!(painted < 2000.0, "{painted} ms");
    let frames = browser.js(
        "new Promise((done) => { const times = []; const step = () => { times.push(performance.now()); \
         scrollBy(0, 60); if (times.length < 40) requestAnimationFrame(step); \
         else done(Math.max(...times.slice(1).map((time, place) => time - times[place]))) }; step(); })",
    );
    eprintln!("the longest frame of 40 while scrolling took {:.0} ms", frames.as_f64().unwrap());
    assert!(frames.as_f64().unwrap() < 500.0, "{frames} ms");
    let last = browser.js(
        "(() => { const last = [...document.querySelectorAll('.board .cell')].at(-1); \
         last.scrollIntoView(); const { x, y } = last.getBoundingClientRect(); \
         return document.elementFromPoint(x + 4, y + 4) === last && last.getAttribute('aria-label') })()",
    );
    assert_eq!(last, "rank 4095, n4095, member");
    // A change changes the cells that it is about, and no other.
    browser.js("document.querySelectorAll('.board .cell').forEach((cell) => { cell.kept = true })");
    lose(&served.endpoint(), "big", "n77");
    let took = browser.until("a lost node", &format!("{} === 1", cells("lost")));
    eprintln!("a change of one node was on the page after {took:?}");
    let kept = "[...document.querySelectorAll('.board .cell')].every((cell) => cell.kept)";
    assert_eq!(browser.js(kept), json!(true));
    assert_eq!(browser.complaints(), NOTHING);
}

/// Waits until what has this name has the focus.
#[track_caller]
fn has_focus(browser: &mut Browser, name: &str) {
    let focused = "document.activeElement";
    let named = format!("({focused}.getAttribute('aria-label') ?? {focused}.innerText)");
    browser.until(&format!("{name} has the focus"), &format!("{named} === {}", json!(name)));
}

#[test]
fn the_keyboard_reaches_everything() {
    let served = Served::start();
    group("a", 100).write(&served.endpoint());
    group("b", 2).write(&served.endpoint());
    let mut browser = Browser::start();
    browser.open(&served.url(""));
    browser.until("two runs", "document.querySelectorAll('tbody a').length === 2");
    browser.press("ArrowDown");
    has_focus(&mut browser, "a");
    browser.press("ArrowDown");
    has_focus(&mut browser, "b");
    browser.press("ArrowUp");
    browser.press("Enter");
    browser.until("the board", &format!("{} === 100", cells("member")));
    has_focus(&mut browser, "a");
    browser.press("b");
    has_focus(&mut browser, "rank 0, n0, member");
    for (key, at) in [
        ("ArrowRight", 1),
        ("ArrowDown", 65),
        ("ArrowLeft", 64),
        ("ArrowUp", 0),
        ("End", 99),
        ("Home", 0),
    ] {
        browser.press(key);
        has_focus(&mut browser, &format!("rank {at}, n{at}, member"));
    }
    browser.press("/");
    browser.js("document.execCommand('insertText', false, 'gpu42')");
    browser
        .until("one found", "document.querySelector('.readout').innerText.startsWith('1 of 100')");
    browser.press("Enter");
    has_focus(&mut browser, "rank 42, n42, member");
    browser.press("Enter");
    browser.until("its story", "document.querySelector('h1').innerText === 'n42'");
    assert_eq!(browser.text("location.hash"), "#/run/a/node/n42");
    browser.press("Escape");
    browser.until("the board", "location.hash === '#/run/a'");
    has_focus(&mut browser, "rank 42, n42, member");
    browser.press("t");
    browser.until("the table", "document.querySelectorAll('.nodes tbody tr').length === 100");
    browser.press("t");
    browser.press("?");
    browser.until("the keys", "document.querySelector('dialog').open");
    browser.press("Escape");
    browser.until("no keys", "!document.querySelector('dialog').open");
    assert_eq!(browser.text("location.hash"), "#/run/a");
    browser.press("Escape");
    browser.until("all runs", "location.hash === '#/'");
    assert_eq!(browser.complaints(), NOTHING);
}

#[test]
fn every_view_has_names_for_screen_readers_and_no_complaints() {
    let served = Served::start();
    let mut documents = group("job", 3);
    documents.suspect("n2");
    let blame = "no progress on gpu1 for 600 s; the odd node is gpu2";
    let failure = json!({ "round": 1, "blame": blame, "verdict": "counted", "hang": true });
    documents.restarts(&json!({ "used": 1, "max": 3, "last": failure }));
    let output = json!({ "round": 1, "failure": "rank 3 exited with 1", "lines": ["Killed"] });
    documents.failure(&output);
    documents.hang(&json!({
        "round": 1, "number": 1, "host": "gpu1", "silent_ms": 600_000, "missing": [7], "text": "", "groups": [
            { "place": "f (a.py:7)", "count": 1, "ranks": [3], "hosts": ["gpu2"], "frames": ["f (/a.py:7)"] },
            { "place": "g (a.py:9)", "count": 999, "ranks": [0, 1, 2], "hosts": ["gpu0"], "frames": [] },
        ],
    }));
    documents.write(&served.endpoint());
    let mut waiting = Documents::of("waits");
    waiting.active(1, "joinable", (3, 4), &json!({}));
    waiting.node("n1", "gpu1", 1);
    waiting.joined(1, "n1", Some(1));
    waiting.write(&served.endpoint());
    let mut browser = Browser::start();
    let views = [
        ("", "Runs", "document.querySelectorAll('tbody tr').length === 2"),
        ("#/run/job", "job", "document.querySelectorAll('.board .cell').length === 3"),
        ("#/run/waits", "waits", "document.querySelectorAll('.board .cell.missing').length === 2"),
        ("#/run/job/node/n2", "n2", "document.querySelector('meter')"),
        ("#/run/nothing", "nothing", "!document.querySelector('#away').hidden"),
        ("#/server", "Server", "document.querySelector('.facts')"),
    ];
    let roles = [
        "link",
        "button",
        "searchbox",
        "textbox",
        "image",
        "img",
        "table",
        "meter",
        "group",
        "navigation",
        "heading",
        "dialog",
    ];
    for dark in [false, true] {
        browser.look(1280, 900, dark);
        for (fragment, title, ready) in views {
            browser.open(&served.url(fragment));
            browser.until(title, ready);
            let accessible = browser.accessible();
            let nameless: Vec<_> = accessible
                .iter()
                .filter(|(role, name)| roles.contains(&role.as_str()) && name.is_empty())
                .collect();
            assert!(nameless.is_empty(), "{title}: {nameless:?} of {accessible:?}");
            let has =
                |role: &str, name: &str| accessible.contains(&(role.to_owned(), name.to_owned()));
            assert!(has("heading", title), "{title}: {accessible:?}");
            assert!(accessible.iter().any(|(role, _)| role == "main"), "{title}: {accessible:?}");
            if title == "job" {
                let hang = browser.text("document.querySelector('.hang').innerText");
                assert!(hang.contains("rank 3 on gpu2 f (a.py:7)"), "{hang}");
                assert!(hang.contains("999 ranks g (a.py:9)"), "{hang}");
                assert!(hang.contains("did not answer: 7."), "{hang}");
                let failed = browser.text("document.querySelector('.card.bad h3').innerText");
                assert_eq!(failed, "The job hung in round 1");
            }
            if title == "waits" {
                let missing =
                    |(role, name): &&(String, String)| role == "image" && name.contains("missing");
                assert_eq!(accessible.iter().filter(missing).count(), 2, "{accessible:?}");
            }
            assert_eq!(low_contrast(&mut browser), json!([]), "{title}, dark: {dark}");
        }
    }
    assert_eq!(browser.complaints(), NOTHING);
}

/// The texts whose contrast is less than 4.5 to 1, the AA of WCAG.
fn low_contrast(browser: &mut Browser) -> Value {
    browser.js(
        r"(() => {
          const parts = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
          const ground = (element) => {
            for (let at = element; at; at = at.parentElement) {
              const colour = parts(getComputedStyle(at).backgroundColor);
              if (colour.length && colour[3] !== 0) return colour;
            }
            return [255, 255, 255];
          };
          const texts = [...document.querySelectorAll('body *')].filter((element) => element.checkVisibility?.() && !element.closest('.old') &&
            [...element.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
          return texts.map((element) => {
            const [a, b] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.className, element.innerText];
          }).filter(([contrast]) => contrast < 4.5);
        })()",
    )
}

#[test]
fn a_page_whose_server_goes_away_says_so_and_goes_on_when_it_is_back() {
    let page = format!("127.0.0.1:{}", free_port());
    let server = wait(Target::start(&["--http", &page]));
    group("before", 2).write(&server.endpoint());
    let mut browser = Browser::start();
    browser.open(&format!("http://{page}/"));
    browser.until("the run", "document.querySelector('tbody a')?.innerText === 'before'");
    drop(server);
    browser.until(
        "it says so",
        "document.querySelector('#away').innerText.includes('lost its connection')",
    );
    assert_eq!(
        browser.text("document.querySelector('tbody a').innerText"),
        "before",
        "what is known stays"
    );
    let server = wait(Target::start(&["--http", &page]));
    group("after", 2).write(&server.endpoint());
    browser.until("the other run", "document.querySelector('tbody a')?.innerText === 'after'");
    assert_eq!(browser.js("document.querySelector('#away').hidden"), json!(true));
}
