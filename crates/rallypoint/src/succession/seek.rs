//! A node's search for its server: it asks the hosts of the order from time to time, unless it is a member of a group.

use std::pin::Pin;
use std::time::Duration;

use rallypoint_core::rendezvous::succession::order::{Course, HostAnswer, choose};
use tokio::time::{Instant, sleep, sleep_until};

use super::order::{HostOrder, PATIENCE};
use crate::client::{Client, ClientError};
use crate::log_target::EMBEDDED;
use crate::util::backoff::Backoff;

/// How long the first host waits for the answers of the remaining ones before it serves, if it knows of no group.
const FIRST_PATIENCE: Duration = Duration::from_millis(300);

/// When a node that starts asks for the first time, if its host is none of the order. The first host usually serves, and
/// a thousand nodes that ask all hosts would only delay it.
const FIRST_QUESTION: Duration = Duration::from_millis(500);

/// The pause between two questions of a node without a session, and of a node that waits at a server for its group.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_AT_SERVER: Duration = Duration::from_secs(1);

/// The pauses, while no answer changes, of a node whose server has formed a group. The node need not ask at all: a later
/// group elsewhere has more than half of the last one, so this server has lost its right, and its sessions end.
const AT_GROUP: Backoff = Backoff::new(PAUSE_AT_SERVER, Duration::from_secs(30)).without_jitter();

/// The same of a node that knows of no group. Its server never loses its right, so only the question finds a server that
/// has formed one, such as when the host of this one had been cut off.
const BEFORE_ANY_GROUP: Backoff =
    Backoff::new(PAUSE_AT_SERVER, Duration::from_secs(5)).without_jitter();

/// How much longer the pauses are for each node of the job, since all nodes may ask at the same time.
const PAUSE_PER_NODE: Duration = Duration::from_micros(500);

/// How often rank 0 asks which node runs its server, if there is no answer.
const MOST_QUESTIONS: u32 = 5;

type Answers = Pin<Box<dyn Future<Output = Vec<HostAnswer>> + Send>>;

/// The search of one node. The node's client uses the server that was found.
pub(crate) struct Seeker {
    order: HostOrder,
    client: Client,
    max_nodes: usize,
    /// The host whose server the node uses.
    at: usize,
    next: Instant,
    asking: Option<Answers>,
    /// The node whose process serves, as far as it is known.
    head: Option<String>,
    /// Whether there may be connections to the hosts that were asked.
    has_asked: bool,
    /// Whether the node had a session when it last looked.
    had_session: bool,
    /// Whether the node did not look for a server until now.
    has_rested: bool,
    /// The last answers, and how many in a row were the same before.
    answers: Vec<HostAnswer>,
    unchanged: u32,
}

impl Seeker {
    /// A search that begins at the first host.
    pub(crate) fn new(order: HostOrder, client: Client, max_nodes: usize) -> Self {
        client.pin_to(0);
        order.looks();
        let first = if order.own().is_some() { Duration::ZERO } else { FIRST_QUESTION };
        Self {
            order,
            client,
            max_nodes,
            at: 0,
            next: Instant::now() + first,
            asking: None,
            head: None,
            // For the first group, the hosts may have been asked before.
            has_asked: true,
            had_session: false,
            has_rested: false,
            answers: Vec::new(),
            unchanged: 0,
        }
    }

    /// The name of the host whose server the node uses.
    pub(crate) fn host(&self) -> String {
        self.order.name(self.at)
    }

    /// Waits for the next answers, and opens or closes the server of this host accordingly. Returns the host whose server
    /// the node is to use, if it is another one than before. `remembers` is the latest group that the node knows of.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self, remembers: u64, has_session: bool) -> Option<usize> {
        if std::mem::replace(&mut self.had_session, has_session) && !has_session {
            self.hasten();
        }
        if std::mem::take(&mut self.has_rested) {
            match has_session {
                // Its group forms again, at the server that it has. All of its nodes begin to look now.
                true => self.next = Instant::now() + self.spread(PAUSE_AT_SERVER),
                false => self.hurry(),
            }
        }
        if self.asking.is_none() {
            sleep_until(self.next).await;
        }
        let own = self.order.own();
        let first = remembers == 0 && own.is_some_and(|(position, _)| position == 0);
        if let Some((_, own)) = own.filter(|_| !has_session) {
            own.give_up_lost_right();
        }
        let order = self.order.clone();
        self.has_asked = true;
        let asking = self.asking.get_or_insert_with(|| {
            let patience = if first { FIRST_PATIENCE } else { PATIENCE };
            Box::pin(async move { order.ask(remembers, patience).await })
        });
        let answers = asking.await;
        self.asking = None;
        let uses = self.decide(&answers);
        self.answered(answers, remembers);
        uses
    }

    /// The node has its server: the connections to all other hosts are closed.
    pub(crate) fn rest(&mut self) {
        self.asking = None;
        self.has_rested = true;
        if std::mem::take(&mut self.has_asked) {
            self.order.disconnect();
        }
    }

    /// Asks at once.
    pub(crate) fn hurry(&mut self) {
        (self.next, self.unchanged) = (Instant::now(), 0);
    }

    /// Asks soon, after a pause that was long: something has changed. The nodes of a server that has ended do not ask all
    /// at the same moment.
    pub(crate) fn hasten(&mut self) {
        self.unchanged = 0;
        self.next = self.next.min(Instant::now() + self.spread(PAUSE));
    }

    /// Plans the next question after these answers.
    fn answered(&mut self, answers: Vec<HostAnswer>, remembers: u64) {
        let changed = answers != self.answers;
        self.unchanged = if changed { 0 } else { self.unchanged.saturating_add(1) };
        self.answers = answers;
        self.next = Instant::now() + self.spread(self.pause(remembers));
    }

    fn pause(&self, remembers: u64) -> Duration {
        let doubled = |pauses: &Backoff| pauses.delay(self.unchanged, 0.0);
        match self.answers.get(self.at) {
            _ if !self.had_session => PAUSE,
            Some(HostAnswer::Serves { formed: 1.. }) => doubled(&AT_GROUP),
            Some(HostAnswer::Serves { formed: 0 }) if remembers == 0 => doubled(&BEFORE_ANY_GROUP),
            // The node goes to a successor, or its server may have ended.
            _ => PAUSE_AT_SERVER,
        }
    }

    /// The pause, so that not all nodes ask at the same time.
    fn spread(&self, pause: Duration) -> Duration {
        let nodes = u32::try_from(self.max_nodes).unwrap_or(u32::MAX);
        (pause + PAUSE_PER_NODE * nodes).mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    fn decide(&self, answers: &[HostAnswer]) -> Option<usize> {
        let own = self.order.own();
        let uses = match choose(own.map(|(position, _)| position), answers) {
            Course::Use(host) => host,
            Course::WaitFor(_) => return None,
            Course::Open => match own {
                Some((position, host)) => {
                    host.open();
                    position
                }
                None => return None,
            },
        };
        if let Some((_, host)) = own.filter(|(position, _)| *position != uses) {
            host.close();
        }
        (uses != self.at).then_some(uses)
    }

    /// The refusal of this node by a host, if there was one since the last call.
    pub(crate) fn take_refusal(&self) -> Option<ClientError> {
        self.order.take_refusal()
    }

    /// Uses the server of this host from now on.
    pub(crate) fn go_to(&mut self, host: usize) {
        tracing::info!(
            target: EMBEDDED,
            from = self.order.name(self.at), to = self.order.name(host), "this node uses the server of another host"
        );
        self.at = host;
        self.head = None;
        self.unchanged = 0;
        self.client.pin_to(host);
    }

    /// Asks the host of the node's server whether it still serves.
    pub(crate) fn still_serves(&mut self) -> impl Future<Output = HostAnswer> + Send + 'static {
        let (order, at) = (self.order.clone(), self.at);
        self.has_asked = true;
        async move { order.ask_one(at, 0, PATIENCE).await }
    }

    /// Whether this host serves, and the node uses its server.
    pub(crate) fn serves(&self) -> bool {
        self.order
            .own()
            .is_some_and(|(position, host)| position == self.at && host.right().is_some())
    }

    /// Finds out which node runs the server, over the node's own connection to it. Asks again if there is no answer in
    /// time: without one, the death of that node is noticed only when its lease expires.
    pub(crate) fn find_head(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        let (order, client) = (self.order.clone(), self.client.with_timeout(PATIENCE));
        async move {
            for _ in 0..MOST_QUESTIONS {
                match client.ask_host(&order.setup().run_id, 0).await {
                    Ok(Some((HostAnswer::Serves { .. }, node))) => return Some(node),
                    Ok(_) => return None,
                    Err(_) => sleep(PATIENCE).await,
                }
            }
            None
        }
    }

    /// The node that runs the server.
    pub(crate) fn set_head(&mut self, head: Option<String>) {
        self.head = head;
    }

    /// Whether this node runs the server, as far as it is known.
    pub(crate) fn is_head(&self, node: &str) -> bool {
        self.head.as_deref() == Some(node)
    }
}

#[cfg(test)]
mod tests {
    use rallypoint_core::rendezvous::keys::Keys;

    use super::*;
    use crate::client::ClientOptions;
    use crate::config::Endpoint;
    use crate::succession::OrderSetup;

    const STANDS_BY: HostAnswer = HostAnswer::StandsBy { remembers: 3 };

    fn serves(formed: u64) -> HostAnswer {
        HostAnswer::Serves { formed }
    }

    /// The search of a node with a session at the first of two hosts.
    async fn seeker() -> Seeker {
        let hosts = ["127.0.0.1:1", "127.0.0.1:2"];
        let client = ClientOptions::new(hosts);
        let order = HostOrder::new(OrderSetup {
            run_id: "job".to_owned(),
            keys: Keys::new("/p", "job"),
            lease_ttl: Duration::from_secs(10),
            endpoints: hosts.map(|host| Endpoint::parse(host, 0).unwrap()).to_vec(),
            client: client.clone(),
        });
        let client = Client::connect(client).await.unwrap();
        Seeker { had_session: true, ..Seeker::new(order.await.unwrap(), client, 4) }
    }

    /// A pause, which began between two looks at the clock: it has at least and at most these seconds. A busy machine
    /// may let any time pass between the two.
    #[derive(Debug)]
    struct Pause {
        least: f64,
        most: f64,
    }

    impl Pause {
        /// The pause until the next question, which was planned after `before`.
        fn since(before: Instant, seeker: &Seeker) -> Self {
            let most = seeker.next.saturating_duration_since(before).as_secs_f64();
            Self { least: seeker.left(), most }
        }

        fn is_over(&self, seconds: f64) -> bool {
            self.most >= seconds
        }

        fn is_below(&self, seconds: f64) -> bool {
            self.least < seconds
        }
    }

    impl Seeker {
        /// The pauses after these answers, so many times in a row.
        fn pauses(&mut self, answers: [HostAnswer; 2], remembers: u64, times: usize) -> Vec<Pause> {
            let pause = || {
                let before = Instant::now();
                self.answered(answers.to_vec(), remembers);
                Pause::since(before, self)
            };
            std::iter::repeat_with(pause).take(times).collect()
        }

        /// The seconds until the next question.
        fn left(&self) -> f64 {
            self.next.saturating_duration_since(Instant::now()).as_secs_f64()
        }
    }

    #[tokio::test]
    async fn a_node_whose_server_has_a_group_asks_ever_less_often() {
        let mut seeker = seeker().await;
        let pauses = seeker.pauses([serves(3), STANDS_BY], 3, 8);
        assert!(pauses[0].is_below(1.3), "{pauses:?}");
        assert!(pauses[2].is_over(2.9), "{pauses:?}");
        assert!(pauses[7].is_over(22.0) && pauses[7].is_below(38.0), "{pauses:?}");
        // A host more or less, or a later group.
        for answers in [[serves(3), HostAnswer::Silent], [serves(4), HostAnswer::Silent]] {
            let pauses = seeker.pauses(answers, 3, 4);
            assert!(pauses[0].is_below(1.3) && pauses[3].is_over(5.9), "{pauses:?}");
        }
    }

    #[tokio::test]
    async fn a_node_without_a_session_or_on_its_way_to_a_successor_keeps_asking() {
        let mut seeker = seeker().await;
        let asks = |seeker: &mut Seeker, answers, remembers, least: f64, most: f64| {
            let pause = &seeker.pauses(answers, remembers, 9)[8];
            assert!(pause.is_over(least) && pause.is_below(most), "{answers:?}: {pause:?}");
        };
        asks(&mut seeker, [serves(0), STANDS_BY], 3, 0.7, 1.3);
        asks(&mut seeker, [STANDS_BY, STANDS_BY], 3, 0.7, 1.3);
        asks(&mut seeker, [HostAnswer::Silent, serves(4)], 3, 0.7, 1.3);
        asks(&mut seeker, [serves(0), HostAnswer::Silent], 0, 3.7, 6.3);
        seeker.had_session = false;
        asks(&mut seeker, [serves(3), STANDS_BY], 3, 0.1, 0.3);
    }

    #[tokio::test]
    async fn a_node_that_doubts_its_server_or_was_a_member_asks_soon() {
        let mut seeker = seeker().await;
        let wait = |seeker: &mut Seeker| {
            assert!(seeker.pauses([serves(3), STANDS_BY], 3, 9)[8].is_over(22.0))
        };
        wait(&mut seeker);
        seeker.hasten();
        assert!(seeker.left() < 0.3 && seeker.unchanged == 0, "{}", seeker.left());
        wait(&mut seeker);
        // The session is lost. The first poll of the future sees it.
        let asking = seeker.next(3, false);
        let polled = tokio::time::timeout(Duration::ZERO, asking).await;
        assert!(polled.is_err() && seeker.left() < 0.3, "{}", seeker.left());
        seeker.had_session = true;
        wait(&mut seeker);
        // It becomes a member, and is none again: its group forms again where it was, or its session is lost, too.
        for (has_session, least, most) in [(true, 0.7, 1.3), (false, 0.0, 0.1)] {
            seeker.rest();
            let before = Instant::now();
            let asking = seeker.next(3, has_session);
            assert!(tokio::time::timeout(Duration::ZERO, asking).await.is_err());
            let pause = Pause::since(before, &seeker);
            assert!(pause.is_over(least) && pause.is_below(most), "{has_session}: {pause:?}");
        }
    }
}
