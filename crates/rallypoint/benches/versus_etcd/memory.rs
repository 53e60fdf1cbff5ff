//! What a key costs.

use rallypoint::proto::etcd as pb;

use crate::Arm;
use crate::report::{Better, Report};
use crate::support::wire;

const KEYS: usize = 200_000;
const KEYS_PER_REQUEST: usize = 100;

/// The memory that a process holds, in bytes.
pub(super) fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Keys of 32 bytes with values of 64.
pub(super) async fn per_key(arm: &Arm, report: &mut Report) {
    let mut kv = wire::kv(&arm.endpoint());
    let before = resident(arm.process());
    for request in 0..KEYS / KEYS_PER_REQUEST {
        let put = |index: usize| {
            let key = format!("bench/memory/{:019}", request * KEYS_PER_REQUEST + index);
            let put = pb::PutRequest {
                key: key.into(),
                value: vec![b'v'; 64].into(),
                ..Default::default()
            };
            pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) }
        };
        let success = (0..KEYS_PER_REQUEST).map(put).collect();
        kv.txn(pb::TxnRequest { success, ..Default::default() }).await.unwrap();
    }
    let each = resident(arm.process()).saturating_sub(before) as f64 / KEYS as f64;
    report.add("memory for a key of 32 + 64 bytes, B", Better::Less, arm.name, each);
}
