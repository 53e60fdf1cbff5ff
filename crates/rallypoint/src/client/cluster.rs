//! The cluster itself: who is in it and how it is doing.

use super::Client;
use super::error::ClientError;
use crate::proto::etcd as pb;

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// Its name; empty until it has first started.
    pub name: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it only follows, without a vote.
    pub is_learner: bool,
}

/// How the server that answered is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// The endpoint's cluster.
    pub cluster_id: u64,
    /// Its own number.
    pub member_id: u64,
    /// The number of the cluster's leader; 0 if there is none.
    pub leader: u64,
    /// Its version.
    pub version: String,
    /// Its revision.
    pub revision: i64,
    /// The bytes that it takes on disk.
    pub db_size: i64,
    /// The bytes of those that are in use.
    pub db_size_in_use: i64,
    /// What it complains about.
    pub errors: Vec<String>,
}

impl Client {
    /// The members of the cluster.
    ///
    /// # Errors
    /// As for every read.
    pub async fn members(&self) -> Result<Vec<Member>, ClientError> {
        let response = self.rpc_members(pb::MemberListRequest { linearizable: true }).await?;
        Ok(response.members.into_iter().map(Member::from).collect())
    }

    /// How the current server is doing.
    ///
    /// # Errors
    /// As for every read.
    pub async fn status(&self) -> Result<ServerStatus, ClientError> {
        let response = self.rpc_status(pb::StatusRequest {}).await?;
        let header = response.header.unwrap_or_default();
        Ok(ServerStatus {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            leader: response.leader,
            version: response.version,
            revision: header.revision,
            db_size: response.db_size,
            db_size_in_use: response.db_size_in_use,
            errors: response.errors,
        })
    }
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Self {
        let pb::Member { id, name, peer_urls, client_urls, is_learner } = member;
        Self { id, name, peer_urls, client_urls, is_learner }
    }
}
