//! The cluster itself: its members, and the status of a server.

use super::Client;
use super::error::ClientError;
use crate::proto::etcd as pb;

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMember {
    /// The id of the member.
    pub id: u64,
    /// The name of the member; empty until its first start.
    pub name: String,
    /// The URLs for the other members.
    pub peer_urls: Vec<String>,
    /// The URLs for clients.
    pub client_urls: Vec<String>,
    /// Whether the member is a learner, which has no vote.
    pub is_learner: bool,
}

#[cfg(feature = "cli")]
impl ClusterMember {
    /// Whether the member is Rallypoint's server. An etcd has a port of its own for its peers.
    pub(crate) fn is_ours(&self) -> bool {
        self.peer_urls == self.client_urls
    }
}

/// The status of the server that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// The id of the cluster.
    pub cluster_id: u64,
    /// The id of the server.
    pub member_id: u64,
    /// The id of the cluster's leader; 0 if there is none.
    pub leader: u64,
    /// The version of the server.
    pub version: String,
    /// The revision of the store.
    pub revision: i64,
    /// The size of the store on disk in bytes.
    pub db_size: i64,
    /// The part of that size that is in use.
    pub db_size_in_use: i64,
    /// The problems that the server reports.
    pub errors: Vec<String>,
}

impl Client {
    /// The members of the cluster.
    ///
    /// # Errors
    /// As for every read.
    pub async fn members(&self) -> Result<Vec<ClusterMember>, ClientError> {
        let response = self.rpc_members(pb::MemberListRequest { linearizable: true }).await?;
        Ok(response.members.into_iter().map(ClusterMember::from).collect())
    }

    /// Adds a member that others reach at `peer_url` to an etcd cluster. It has to be started then.
    ///
    /// # Errors
    /// As for every write. Rallypoint's server refuses it.
    pub async fn member_add(&self, peer_url: &str) -> Result<(), ClientError> {
        let peer_urls = vec![peer_url.to_owned()];
        self.rpc_member_add(pb::MemberAddRequest { peer_urls, is_learner: false }).await?;
        Ok(())
    }

    /// Removes a member from an etcd cluster.
    ///
    /// # Errors
    /// As for every write. Rallypoint's server refuses it.
    pub async fn member_remove(&self, id: u64) -> Result<(), ClientError> {
        self.rpc_member_remove(pb::MemberRemoveRequest { id }).await?;
        Ok(())
    }

    /// The status of the current server.
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

impl From<pb::Member> for ClusterMember {
    fn from(member: pb::Member) -> Self {
        let pb::Member { id, name, peer_urls, client_urls, is_learner } = member;
        Self { id, name, peer_urls, client_urls, is_learner }
    }
}
