//! A client that writes whatever comes to its mind until the server is gone.

use std::sync::{Arc, Mutex};

use rallypoint::proto::etcd as pb;

use super::truth::{Change, Truth};
use super::{Lost, revision};
use crate::support::wire;

pub(super) const TTL: i64 = 600;

pub(super) async fn run(
    endpoint: String,
    truth: Arc<Mutex<Truth>>,
    number: usize,
    random: fastrand::Rng,
) {
    let kv = wire::kv(&endpoint);
    let leases = pb::lease_client::LeaseClient::new(wire::channel(&endpoint));
    let mut writer = Writer { kv, leases, truth, number, random, granted: Vec::new() };
    while writer.step().await.is_ok() {}
}

struct Writer {
    kv: pb::kv_client::KvClient<tonic::transport::Channel>,
    leases: pb::lease_client::LeaseClient<tonic::transport::Channel>,
    truth: Arc<Mutex<Truth>>,
    number: usize,
    random: fastrand::Rng,
    granted: Vec<i64>,
}

impl Writer {
    async fn step(&mut self) -> Result<(), Lost> {
        match self.random.u8(..100) {
            0..60 => self.put().await,
            60..80 => self.txn().await,
            80..92 => self.delete().await,
            92..97 => self.grant().await,
            _ => self.revoke().await,
        }
    }

    fn key(&mut self) -> String {
        format!("{}/{:02}", self.number, self.random.u8(..20))
    }

    /// A value that no other writer will ever write, noted as one that may turn up from now on.
    fn value(&mut self) -> String {
        let length = if self.random.u8(..20) == 0 { 20_000 } else { 20 };
        let value = format!("{:x}-{}", self.random.u128(..), "0".repeat(length));
        self.truth.lock().unwrap().attempted.insert(value.clone());
        value
    }

    async fn put(&mut self) -> Result<(), Lost> {
        let (key, value) = (self.key(), self.value());
        let lease = match self.granted.last() {
            Some(lease) if self.random.bool() => *lease,
            _ => 0,
        };
        let request = pb::PutRequest {
            key: key.clone().into(),
            value: value.clone().into(),
            lease,
            ..Default::default()
        };
        let at = revision(self.kv.put(request).await?.into_inner().header);
        let change = Change { key, value: Some(value), lease };
        self.truth.lock().unwrap().acknowledge(at, vec![change]);
        Ok(())
    }

    async fn txn(&mut self) -> Result<(), Lost> {
        let keys = [format!("{}/txn-a", self.number), format!("{}/txn-b", self.number)];
        let value = self.value();
        let success = keys.iter().map(|key| pb::PutRequest {
            key: key.clone().into(),
            value: value.clone().into(),
            ..Default::default()
        });
        let request = pb::TxnRequest {
            success: success
                .map(|put| pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestPut(put)),
                })
                .collect(),
            ..Default::default()
        };
        let at = revision(self.kv.txn(request).await?.into_inner().header);
        let change = |key| Change { key, value: Some(value.clone()), lease: 0 };
        self.truth.lock().unwrap().acknowledge(at, keys.map(change).into());
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), Lost> {
        let key = self.key();
        let request = pb::DeleteRangeRequest { key: key.clone().into(), ..Default::default() };
        let answer = self.kv.delete_range(request).await?.into_inner();
        let deleted = Change { key, value: None, lease: 0 };
        let changes = if answer.deleted == 1 { vec![deleted] } else { Vec::new() };
        self.truth.lock().unwrap().acknowledge(revision(answer.header), changes);
        Ok(())
    }

    async fn grant(&mut self) -> Result<(), Lost> {
        let request = pb::LeaseGrantRequest { ttl: TTL, id: 0 };
        let id = self.leases.lease_grant(request).await?.into_inner().id;
        self.truth.lock().unwrap().leases.insert(id);
        self.granted.push(id);
        Ok(())
    }

    async fn revoke(&mut self) -> Result<(), Lost> {
        let Some(id) = self.granted.pop() else { return Ok(()) };
        // From here on it may be gone, and when the answer is here, it is.
        self.truth.lock().unwrap().leases.remove(&id);
        let answer = self.leases.lease_revoke(pb::LeaseRevokeRequest { id }).await?.into_inner();
        let mut truth = self.truth.lock().unwrap();
        truth.revoked.insert(id);
        truth.acknowledge(revision(answer.header), Vec::new());
        Ok(())
    }
}
