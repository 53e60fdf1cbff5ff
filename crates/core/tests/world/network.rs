//! The network: messages are delayed, lost and duplicated.

use super::events::{At, Delivery, Message, SimEvent, Who, World, tell};
use super::plan::Millis;

impl World {
    /// The delay of a message.
    pub(crate) fn delay(&mut self) -> Millis {
        let longest =
            if self.healed { self.plan.network.delay.min(20) } else { self.plan.network.delay };
        self.random.between(0, longest)
    }

    fn is_lost(&mut self) -> bool {
        !self.healed && self.random.chance(self.plan.network.loss)
    }

    /// The delay of a duplicate, if there is one.
    fn comes_again(&mut self) -> Option<Millis> {
        let again = !self.healed && self.random.chance(self.plan.network.twice);
        again.then(|| self.random.between(0, self.plan.network.later))
    }

    /// Sends a message to the node's server.
    pub(crate) fn send(&mut self, who: Who, message: Message) {
        let at = self.nodes[who].at;
        let (cut, host) = (self.nodes[who].cut, self.nodes[who].host);
        let alone = self.has_succession();
        let arrives = |at: &At| !cut && (!alone || self.reaches(host, *at));
        let Some(at) = at.filter(arrives).filter(|_| !self.is_lost()) else {
            tell!(self, "{} sends in vain: {}", self.nodes[who].id, describe(&message));
            return;
        };
        let delay = self.delay();
        // Only requests are retried when in doubt. A renewal is one in a stream, and would keep the
        // dead alive.
        if let Message::Txn { .. } = message
            && let Some(later) = self.comes_again()
        {
            self.after(delay + later, SimEvent::Arrives(who, at, message.clone()));
        }
        self.after(delay, SimEvent::Arrives(who, at, message));
    }

    /// Sends a reply to a node.
    pub(crate) fn reply(&mut self, who: Who, at: At, delivery: Delivery) {
        let blocked = self.has_succession() && !self.reaches(at, self.nodes[who].host);
        if self.nodes[who].cut || blocked || self.is_lost() {
            tell!(self, "an answer to {} is lost", self.nodes[who].id);
            return;
        }
        let delay = self.delay();
        if let Some(later) = self.comes_again() {
            self.after(delay + later, SimEvent::Delivered(who, delivery.clone()));
        }
        self.after(delay, SimEvent::Delivered(who, delivery));
    }

    /// Partitions the node from the server.
    pub(crate) fn cut(&mut self, who: Who) {
        self.nodes[who].cut = true;
        self.break_streams(who);
    }

    /// Heals the partition.
    pub(crate) fn mends(&mut self, who: Who) {
        if std::mem::replace(&mut self.nodes[who].cut, false) {
            tell!(self, "{} reaches the server again", self.nodes[who].id);
            self.reconnect(who);
        }
    }

    /// Breaks the node's streams, with the messages in flight on them.
    pub(crate) fn break_streams(&mut self, who: Who) {
        let node = &mut self.nodes[who];
        node.epoch += 1;
        node.active.stream = None;
        if let Some(set) = &mut node.set {
            set.stream = None;
        }
        self.close_streams(who);
    }

    /// Closes the node's streams at every server.
    pub(crate) fn close_streams(&mut self, who: Who) {
        self.servers.iter_mut().for_each(|server| server.close_streams(who));
    }

    pub(crate) fn reconnect(&mut self, who: Who) {
        let delay = self.delay();
        self.after(delay, SimEvent::Connects(who));
    }
}

pub(crate) fn describe(message: &Message) -> String {
    match message {
        Message::Txn { id, purpose, .. } => format!("request {id}, {purpose:?}"),
        Message::Grant { .. } => "a session".to_owned(),
        Message::Renew { .. } => "a renewal".to_owned(),
        Message::GrantRun => "the run's lease".to_owned(),
        Message::Revoke { .. } => "the end of its session".to_owned(),
    }
}
