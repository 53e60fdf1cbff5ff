//! A node's session, as the real one: the time to live of a lease counts from the sending of the last acknowledged
//! renewal, and only seven eighths of it are used.

use std::time::Duration;

use rallypoint_core::kv::{LeaseId, Time};
use rallypoint_core::rendezvous::NodeInput;
use rallypoint_core::rendezvous::succession::RENEWALS_PER_TTL;

use super::broken;
use super::events::{Message, SimEvent, Timer, Who, World, tell};
use super::invariants::{Verdict, violation};
use super::plan::Millis;

/// A lease, and how long the node relies on it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) lease: LeaseId,
    /// When the last acknowledged renewal was sent.
    pub(crate) sent: Millis,
    /// The server did not know the lease at the last renewal.
    doubtful: bool,
    /// When the last response arrived.
    heard: Millis,
    /// When the server sent the last response, which the next renewal confirms.
    confirms: Option<Time>,
}

/// The pause before a renewal is retried that the server refused for an unknown lease.
const SECOND_THOUGHTS: Millis = 100;

/// How a session was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The lease was not renewed in time, perhaps because the launcher was suspended.
    Expired { slept: bool },
    /// The server does not know the lease.
    Gone,
}

impl World {
    pub(crate) fn open_session(&mut self, who: Who) {
        let node = &mut self.nodes[who];
        node.sessions += 1;
        node.opening = true;
        let number = node.sessions;
        self.send(who, Message::Grant { number, sent: self.now });
        self.ring(who, self.plan.network.retry, Timer::GrantAgain(number));
    }

    /// How long the node relies on a lease: seven eighths of its time to live.
    fn belief(&self, who: Who) -> Millis {
        let ttl = self.plan.ttl_millis();
        let belief = if broken::believes_too_long(self.broken) { 2 * ttl } else { ttl - ttl / 8 };
        self.span(self.nodes[who].host, belief)
    }

    /// The pause between two renewals. Without succession no rule depends on it, and leases that are renewed less often
    /// than a session does are lost more often.
    fn renewal_pause(&self) -> Millis {
        let parts = if self.has_succession() { Millis::from(RENEWALS_PER_TTL) } else { 3 };
        self.plan.ttl_millis() / parts
    }

    pub(crate) fn granted(
        &mut self,
        who: Who,
        number: u64,
        sent: Millis,
        lease: LeaseId,
    ) -> Verdict {
        let (now, belief, pause) = (self.now, self.belief(who), self.renewal_pause());
        let node = &mut self.nodes[who];
        if !node.opening || node.sessions != number {
            return Ok(());
        }
        if now >= sent + belief {
            self.open_session(who);
            return Ok(());
        }
        node.opening = false;
        node.session =
            Some(Session { number, lease, sent, doubtful: false, heard: now, confirms: None });
        tell!(self, "{} has lease {lease}", self.nodes[who].id);
        self.at(sent + pause, SimEvent::Rings(who, Timer::Renew(number)));
        self.at(sent + belief, SimEvent::Rings(who, Timer::Expiry(number)));
        self.give(who, NodeInput::SessionOpened { lease })
    }

    pub(crate) fn renews(&mut self, who: Who, number: u64) {
        if self.sends_renewal(who, number) {
            self.ring(who, self.renewal_pause(), Timer::Renew(number));
        }
    }

    /// Sends a renewal, if this is the session. False if it is not.
    fn sends_renewal(&mut self, who: Who, number: u64) -> bool {
        let session = self.nodes[who].session.as_mut().filter(|session| session.number == number);
        let Some(session) = session else { return false };
        let (lease, confirms) = (session.lease, session.confirms.take());
        self.send(who, Message::Renew { number, lease, sent: self.now, confirms });
        true
    }

    pub(crate) fn renewed(
        &mut self,
        who: Who,
        (number, sent): (u64, Millis),
        (alive, withheld): (bool, bool),
        stamp: Time,
    ) -> Verdict {
        let (now, belief) = (self.now, self.belief(who));
        let node = &mut self.nodes[who];
        let Some(session) = &mut node.session else { return Ok(()) };
        if session.number != number || node.cut {
            return Ok(());
        }
        if now >= session.sent + belief {
            return self.loses_session(who, Loss::Expired { slept: false });
        }
        session.heard = now;
        session.confirms = session.confirms.max(Some(stamp));
        if alive && withheld {
            // The next renewal confirms that this was heard.
            session.doubtful = false;
            self.ring(who, SECOND_THOUGHTS, Timer::Confirm(number));
            return Ok(());
        }
        if alive {
            session.sent = session.sent.max(sent);
            session.doubtful = false;
            return self.tell_guard(who);
        }
        if std::mem::replace(&mut session.doubtful, true) {
            return self.loses_session(who, Loss::Gone);
        }
        let lease = session.lease;
        self.ring(who, SECOND_THOUGHTS, Timer::AskAgain(number, lease));
        Ok(())
    }

    /// Retries the renewal of a lease that the server did not know.
    pub(crate) fn asks_again(&mut self, who: Who, number: u64, lease: LeaseId) {
        let session = self.nodes[who].session.as_ref();
        if session.is_some_and(|session| session.number == number && session.doubtful) {
            self.send(who, Message::Renew { number, lease, sent: self.now, confirms: None });
        }
    }

    /// Checks whether the session has expired.
    pub(crate) fn looks_at_session(&mut self, who: Who, number: u64, slept: bool) -> Verdict {
        let belief = self.belief(who);
        let Some(session) = &self.nodes[who].session else { return Ok(()) };
        if session.number != number {
            return Ok(());
        }
        let end = session.sent + belief;
        if end <= self.now {
            return self.loses_session(who, Loss::Expired { slept });
        }
        self.at(end, SimEvent::Rings(who, Timer::Expiry(number)));
        Ok(())
    }

    fn loses_session(&mut self, who: Who, loss: Loss) -> Verdict {
        tell!(self, "{} lost its session: {loss:?}", self.nodes[who].id);
        let session = self.nodes[who].session.take();
        let silent = session.as_ref().map_or(0, |session| self.now - session.heard);
        // A lease that the server does not know may have been over for long.
        let end = match (loss, session) {
            (Loss::Expired { .. }, Some(session)) => {
                session.sent + self.span(self.nodes[who].host, self.plan.ttl_millis())
            }
            _ => self.now,
        };
        self.nodes[who].lease_end = end;
        let slept = loss == Loss::Expired { slept: true };
        self.give(who, NodeInput::SessionLost { slept, silent: Duration::from_millis(silent) })?;
        let node = &self.nodes[who];
        if node.alive && node.rendezvous.holds_place() && node.session.is_none() {
            return violation("fence", format!("{} lost its lease and is a member", node.id));
        }
        Ok(())
    }

    /// Confirms a response that did not renew the lease.
    pub(crate) fn confirms(&mut self, who: Who, number: u64) {
        self.sends_renewal(who, number);
    }

    /// The server is dead, and with it the lease.
    pub(crate) fn session_gone(&mut self, who: Who) -> Verdict {
        match self.nodes[who].session.is_some() {
            true => self.loses_session(who, Loss::Gone),
            false => Ok(()),
        }
    }

    /// The node goes to another server. It has no workers that rely on the lease.
    pub(crate) fn leaves_session(&mut self, who: Who) -> Verdict {
        if let Some(session) = &self.nodes[who].session {
            let lease = session.lease;
            self.send(who, Message::Revoke { lease });
            return self.loses_session(who, Loss::Gone);
        }
        Ok(())
    }

    /// The server has lost its state, and with it the lease.
    pub(crate) fn ends_session(&mut self, who: Who) {
        let belief = self.belief(who);
        let node = &mut self.nodes[who];
        node.opening = false;
        if let Some(session) = node.session.take() {
            node.lease_end = session.sent + belief;
        }
    }
}
