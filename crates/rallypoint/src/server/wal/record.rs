//! The content of a frame as bytes: conversion between the store's records and the log's messages.

use prost::Message;
use rallypoint_core::mvcc::Record;

use super::frame::WalFrame;
use crate::proto::log;

/// Appends the content of a frame to `bytes`.
pub(super) fn encode(frame: WalFrame, bytes: &mut Vec<u8>) {
    let WalFrame { cluster_id, records } = frame;
    let records = records.into_iter().map(Into::into).collect();
    let frame = log::Frame { cluster_id, records };
    frame.encode(bytes).expect("a vector grows as needed");
}

/// Reads the content of a frame; the error says in what way it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Result<WalFrame, String> {
    let frame = log::Frame::decode(bytes).map_err(|error| error.to_string())?;
    let records: Option<_> = frame.records.into_iter().map(read).collect();
    let records = records.ok_or("a record is of a kind that this version does not know")?;
    Ok(WalFrame { cluster_id: frame.cluster_id, records })
}

impl From<Record> for log::Record {
    fn from(record: Record) -> Self {
        use log::record::Record as Kind;
        Self {
            record: Some(match record {
                Record::Write { revision, events } => Kind::Write(log::Write {
                    revision,
                    events: events.into_iter().map(Into::into).collect(),
                }),
                Record::LeaseGranted { id, ttl } => Kind::LeaseGranted(log::Lease { id, ttl }),
                Record::LeaseRevoked { id } => Kind::LeaseRevoked(id),
                Record::Compacted { revision } => Kind::Compacted(revision),
            }),
        }
    }
}

/// One record; `None` if it is of a kind that this version does not know.
fn read(record: log::Record) -> Option<Record> {
    use log::record::Record as Kind;
    Some(match record.record? {
        Kind::Write(log::Write { revision, events }) => {
            Record::Write { revision, events: events.into_iter().map(Into::into).collect() }
        }
        Kind::LeaseGranted(log::Lease { id, ttl }) => Record::LeaseGranted { id, ttl },
        Kind::LeaseRevoked(id) => Record::LeaseRevoked { id },
        Kind::Compacted(revision) => Record::Compacted { revision },
    })
}
