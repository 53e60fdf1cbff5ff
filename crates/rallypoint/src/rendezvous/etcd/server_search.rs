//! The driver's part in the succession of servers: which server the node uses, and whether that still serves.

use std::future::pending;
use std::time::Duration;

use rallypoint_core::rendezvous::FormedGroup;
use rallypoint_core::rendezvous::succession::Succession;
use rallypoint_core::rendezvous::succession::order::HostAnswer;
use tokio::time::{Instant, timeout_at};

use super::driver::Boxed;
use super::errors::connection_error;
use crate::client::Client;
use crate::rendezvous::RendezvousError;
use crate::succession::{HostOrder, Seeker, VoteNote};

/// The shortest interval between two notes of a membership.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What the search has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchEvent {
    /// The node is to use the server of the host of this position.
    Found(usize),
    /// The server of the node has ended, and with it the session.
    ServerEnded,
}

/// What makes the node doubt that its server still serves, the weaker reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    /// The connection to it has ended. A host that does not answer proves nothing.
    Connection,
    /// Rank 0 has left its place, so the group has to form again. A server that does not answer is not waited for.
    Rank0Parted,
}

/// The search of a node for its server. Does nothing where the server of the run has no successor.
#[derive(Default)]
pub(super) struct ServerSearch(Option<Search>);

struct Search {
    order: HostOrder,
    seeker: Seeker,
    note: Option<VoteNote>,
    noted: Option<Instant>,
    doubt: Option<(Doubt, Boxed<HostAnswer>)>,
    finding_head: Option<Boxed<Option<String>>>,
}

impl ServerSearch {
    /// Begins at the first host of the order.
    pub(super) fn begin(order: Option<HostOrder>, client: &Client, max_nodes: usize) -> Self {
        Self(order.map(|order| Search {
            seeker: Seeker::new(order.clone(), client.clone(), max_nodes),
            note: None,
            noted: None,
            doubt: None,
            finding_head: None,
            order,
        }))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the node counts for the first group.
    ///
    /// # Errors
    /// [`RendezvousError::Timeout`] with the reason if that is not known at the deadline, `patience` after the beginning.
    pub(super) async fn votes(
        &mut self,
        run_id: &str,
        patience: Duration,
        deadline: Instant,
    ) -> Result<bool, RendezvousError> {
        let Some(search) = &mut self.0 else { return Ok(false) };
        let order = &search.order;
        timeout_at(deadline, order.votes()).await.map_err(|_| RendezvousError::Timeout {
            run_id: run_id.to_owned(),
            waited: patience,
            missing: order.vote_obstacle(),
        })
    }

    /// The node's part in the succession, for the core.
    pub(super) fn part(&self, votes: bool) -> Option<Succession> {
        let search = self.0.as_ref()?;
        Some(Succession { hosts: u32::try_from(search.order.len()).unwrap_or(u32::MAX), votes })
    }

    pub(super) fn set_node(&self, id: &str) {
        if let Some(search) = &self.0 {
            search.order.set_node(id);
        }
    }

    /// Searches while a first answer of a server is awaited.
    ///
    /// # Errors
    /// That of `answered`; or that of a host which refuses this node, as all of them would.
    pub(super) async fn during(
        &mut self,
        answered: impl Future<Output = Result<(), RendezvousError>>,
        servers: &str,
    ) -> Result<(), RendezvousError> {
        let searching = async {
            let Some(Search { seeker, .. }) = &mut self.0 else { return pending().await };
            loop {
                if let Some(host) = seeker.next(0, false).await {
                    seeker.go_to(host);
                }
                if let Some(refusal) = seeker.take_refusal() {
                    return Err(connection_error(servers, refusal));
                }
            }
        };
        tokio::select! {
            answered = answered => answered,
            refused = searching => refused,
        }
    }

    /// Waits for the next event. `seeks` has the latest group that the node knows of, and whether the node has a session,
    /// if it looks for a server; `None` if it has one. Cancel-safe.
    pub(super) async fn next(&mut self, seeks: Option<(u64, bool)>) -> SearchEvent {
        let Some(Search { seeker, doubt, finding_head, .. }) = &mut self.0 else {
            return pending().await;
        };
        if seeks.is_none() && doubt.is_none() {
            seeker.rest();
        }
        loop {
            tokio::select! {
                (why, answer) = doubted(doubt) => {
                    *doubt = None;
                    if seeks.is_none() {
                        seeker.rest();
                    }
                    let ended = match answer {
                        HostAnswer::Serves { .. } => false,
                        HostAnswer::StandsBy { .. } => true,
                        HostAnswer::Silent => why == Doubt::Rank0Parted,
                    };
                    if ended || answer == HostAnswer::Silent {
                        seeker.hurry();
                    }
                    if ended {
                        return SearchEvent::ServerEnded;
                    }
                }
                head = found(finding_head) => {
                    *finding_head = None;
                    seeker.set_head(head);
                }
                found = seek(seeker, seeks) => if let Some(host) = found {
                    return SearchEvent::Found(host);
                },
            }
        }
    }

    /// Uses the server of this host from now on.
    pub(super) fn go_to(&mut self, host: usize) {
        if let Some(search) = &mut self.0 {
            search.seeker.go_to(host);
            (search.doubt, search.finding_head) = (None, None);
        }
    }

    /// Asks the host of the server whether it still serves.
    pub(super) fn doubt(&mut self, why: Doubt) {
        if let Some(search) = &mut self.0 {
            search.seeker.hasten();
            let is_stronger = search.doubt.as_ref().is_none_or(|(before, _)| *before < why);
            if is_stronger {
                search.doubt = Some((why, Box::pin(search.seeker.still_serves())));
            }
        }
    }

    /// Whether the process of this node runs the server that the node uses.
    pub(super) fn serves(&self) -> bool {
        self.0.as_ref().is_some_and(|search| search.seeker.serves())
    }

    /// The node is a member of this group. The death of the node that runs the server ends the session. Rank 0 tells all
    /// members whether it is that node, and they notice the death of no other one; rank 0 itself asks which node it is.
    pub(super) fn formed(&mut self, group: &FormedGroup) {
        let Some(search) = &mut self.0 else { return };
        search.seeker.set_head(group.head.clone());
        let asks = group.rank == 0 && group.head.is_none();
        search.finding_head = asks.then(|| -> Boxed<_> { Box::pin(search.seeker.find_head()) });
    }

    /// Whether this node runs the server, as far as it is known.
    pub(super) fn is_head(&self, node: &str) -> bool {
        self.0.as_ref().is_some_and(|search| search.seeker.is_head(node))
    }

    /// Looks for a server at once.
    pub(super) fn hurry(&mut self) {
        if let Some(search) = &mut self.0 {
            search.seeker.hurry();
        }
    }

    /// The name of the host whose server the node uses.
    pub(super) fn host(&self) -> String {
        self.0.as_ref().map(|search| search.seeker.host()).unwrap_or_default()
    }

    /// Notes on this host that its node is about to confirm a rank. The confirmation waits for it.
    pub(super) fn note_confirmation(&mut self) -> Option<Boxed<()>> {
        let (note, noted) = self.note()?;
        *noted = Some(Instant::now());
        Some(Box::pin(note.write()))
    }

    /// Notes on this host that its node is a member of a group, if that is due.
    pub(super) fn note_membership(&mut self) -> Option<Boxed<()>> {
        let (note, noted) = self.note()?;
        if noted.is_some_and(|noted| noted.elapsed() < NOTE_EVERY) {
            return None;
        }
        *noted = Some(Instant::now());
        Some(Box::pin(note.refresh()?))
    }

    /// Removes the note of this host: its node has left in good order.
    pub(super) async fn remove_note(&mut self) {
        if let Some((note, noted)) = self.note()
            && noted.take().is_some()
        {
            note.remove().await;
        }
    }

    /// The note of this host, if it is one of the order, and when it was written last.
    fn note(&mut self) -> Option<(&VoteNote, &mut Option<Instant>)> {
        let search = self.0.as_mut()?;
        if search.note.is_none() {
            search.note = VoteNote::of(&search.order);
        }
        Some((search.note.as_ref()?, &mut search.noted))
    }
}

async fn doubted(doubt: &mut Option<(Doubt, Boxed<HostAnswer>)>) -> (Doubt, HostAnswer) {
    match doubt {
        Some((why, answer)) => (*why, answer.as_mut().await),
        None => pending().await,
    }
}

async fn found(finding_head: &mut Option<Boxed<Option<String>>>) -> Option<String> {
    match finding_head {
        Some(finding) => finding.as_mut().await,
        None => pending().await,
    }
}

async fn seek(seeker: &mut Seeker, seeks: Option<(u64, bool)>) -> Option<usize> {
    match seeks {
        Some((remembers, has_session)) => seeker.next(remembers, has_session).await,
        None => pending().await,
    }
}
