//! A node's session, as the real one does it: the time of a lease counts from the sending of the last
//! renewal that was acknowledged, and only seven eighths of it are used.

use rallypoint_core::kv::LeaseId;
use rallypoint_core::rendezvous::Input;

use crate::broken;
use crate::invariants::{Verdict, violation};
use crate::plan::Millis;
use crate::world::{Happening, Message, Timer, Who, World, tell};

/// A lease and how long the node believes in it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) lease: LeaseId,
    /// When the last acknowledged renewal was sent.
    pub(crate) sent: Millis,
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

    /// How long the node believes in a lease: seven eighths of its time.
    fn belief(&self) -> Millis {
        let ttl = self.plan.ttl_millis();
        if broken::believes_too_long(self.broken) { 2 * ttl } else { ttl - ttl / 8 }
    }

    pub(crate) fn granted(
        &mut self,
        who: Who,
        number: u64,
        sent: Millis,
        lease: LeaseId,
    ) -> Verdict {
        let (now, belief, ttl) = (self.now, self.belief(), self.plan.ttl_millis());
        let node = &mut self.nodes[who];
        if !node.opening || node.sessions != number {
            return Ok(());
        }
        if now >= sent + belief {
            self.open_session(who);
            return Ok(());
        }
        node.opening = false;
        node.session = Some(Session { number, lease, sent });
        tell!(self, "{} has lease {lease}", self.nodes[who].id);
        self.at(sent + ttl / 3, Happening::Rings(who, Timer::Renew(number)));
        self.at(sent + belief, Happening::Rings(who, Timer::Expiry(number)));
        self.give(who, Input::SessionOpened { lease })
    }

    pub(crate) fn renews(&mut self, who: Who, number: u64) {
        let session = self.nodes[who].session.as_ref().filter(|session| session.number == number);
        let Some(lease) = session.map(|session| session.lease) else { return };
        self.send(who, Message::Renew { number, lease, sent: self.now });
        self.ring(who, self.plan.ttl_millis() / 3, Timer::Renew(number));
    }

    pub(crate) fn renewed(&mut self, who: Who, number: u64, sent: Millis, alive: bool) -> Verdict {
        let (now, belief) = (self.now, self.belief());
        let node = &mut self.nodes[who];
        let Some(session) = &mut node.session else { return Ok(()) };
        if session.number != number || node.cut {
            return Ok(());
        }
        if alive && now < session.sent + belief {
            session.sent = session.sent.max(sent);
            return Ok(());
        }
        self.loses_session(who)
    }

    /// Looks at the clock.
    pub(crate) fn looks_at_session(&mut self, who: Who, number: u64) -> Verdict {
        let belief = self.belief();
        let Some(session) = &self.nodes[who].session else { return Ok(()) };
        if session.number != number {
            return Ok(());
        }
        let end = session.sent + belief;
        if end <= self.now {
            return self.loses_session(who);
        }
        self.at(end, Happening::Rings(who, Timer::Expiry(number)));
        Ok(())
    }

    fn loses_session(&mut self, who: Who) -> Verdict {
        tell!(self, "{} lost its session", self.nodes[who].id);
        self.nodes[who].session = None;
        self.give(who, Input::SessionLost)?;
        let node = &self.nodes[who];
        if node.machine.view(self.time()).member_of.is_some() {
            return violation("fence", format!("{} lost its lease and is a member", node.id));
        }
        Ok(())
    }
}
