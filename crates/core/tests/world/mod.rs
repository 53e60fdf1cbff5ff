//! The world that two test programs share: one store, any number of nodes with the real rendezvous
//! machine, virtual time, and all that can go wrong between them. One seed decides everything, so every
//! failure can be repeated.
//!
//! - `plan`: what a seed stands for.
//! - `happening`: virtual time and what is under way in it; `network`, `server`, `node`, `session`, `guard`
//!   and `connections` are the parts of the world, `mishaps` what goes wrong.
//! - `inspector`: what the store holds, and which groups have formed; `invariants`: what must hold after
//!   every step; `one_group`: that there is one group at a time.
//! - `broken`: wrong variants, to prove that the invariants see what they should.
//! - `runner`: many seeds.
//!
//! What a node does with its place in a group is not here. Each program has a module `top` for that: in
//! `sim` an agent as simple as can be, in `agents` the real one.

pub(crate) mod broken;
pub(crate) mod connections;
pub(crate) mod guard;
pub(crate) mod happening;
pub(crate) mod inspector;
pub(crate) mod invariants;
pub(crate) mod mishaps;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod one_group;
pub(crate) mod plan;
pub(crate) mod random;
pub(crate) mod runner;
pub(crate) mod server;
pub(crate) mod session;
