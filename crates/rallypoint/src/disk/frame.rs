//! How records lie in the log file, and what a damaged file looks like.
//!
//! The file is a header, then frames, then zeros. A frame is one group commit: its length, a
//! checksum over length and content, the content. The file grows by whole chunks of zeros before
//! anything is written into them, and at least one empty frame header of zeros follows the last
//! frame. So what an interrupted write leaves behind (zeros where the rest should be) can be told
//! from what is cut off (a length that is no whole number of chunks, or a frame without its zeros)
//! and from what is damaged (anything else): the first is mended, the others are refused.

use prost::Message;
use rallypoint_core::store::Record;

use crate::convert;
use crate::proto::log;

/// The last byte is the version of the format.
pub(super) const HEADER: &[u8; 16] = b"RALLYPOINT LOG 1";

/// The file's length is always a multiple of this.
pub(super) const CHUNK: u64 = 1 << 20;

/// Length and checksum.
pub(super) const FRAME_HEADER: usize = 8;

/// A disk writes a sector whole or not at all.
const SECTOR: usize = 512;

/// Something in the file that no crash can explain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) what: String,
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    /// Where the next frame goes.
    pub(super) end: u64,
    /// Bytes of a last frame that was never written whole, and so never acknowledged.
    pub(super) torn: u64,
}

pub(super) fn encode(records: Vec<Record>) -> Vec<u8> {
    let frame = log::Frame { records: records.into_iter().map(Into::into).collect() };
    let mut bytes = vec![0; FRAME_HEADER];
    frame.encode(&mut bytes).expect("a vector grows as needed");
    let length = u32::try_from(bytes.len() - FRAME_HEADER).expect("requests are far smaller");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(length, &bytes[FRAME_HEADER..]);
    bytes[4..FRAME_HEADER].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn checksum(length: u32, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// Reads a whole file whose header has been checked.
pub(super) fn decode(file: &[u8]) -> Result<Contents, Damage> {
    if !(file.len() as u64).is_multiple_of(CHUNK) {
        return Err(Damage {
            offset: file.len(),
            what: format!("the file is cut off: {} bytes is no whole number of chunks", file.len()),
        });
    }
    let mut records = Vec::new();
    let mut offset = HEADER.len();
    loop {
        let damage = |what: &str| Damage { offset, what: what.to_owned() };
        let Some(header) = file[offset..].first_chunk::<FRAME_HEADER>() else {
            return Err(damage("the file is cut off: the mark after the last frame is missing"));
        };
        if header == &[0; FRAME_HEADER] {
            return match file[offset..].iter().position(|byte| *byte != 0) {
                None => Ok(Contents { records, end: offset as u64, torn: 0 }),
                Some(_) => Err(damage("there is something after the end")),
            };
        }
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let expected = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let start = offset + FRAME_HEADER;
        let end = start.saturating_add(length as usize);
        let Some(content) = file.get(start..end) else {
            return Err(damage("a frame goes on beyond the end of the file"));
        };
        if checksum(length, content) != expected {
            let rest_is_empty = file[end..].iter().all(|byte| *byte == 0);
            if rest_is_empty && has_unwritten_sector(file, offset, end) {
                let torn = (end - offset) as u64;
                return Ok(Contents { records, end: offset as u64, torn });
            }
            return Err(damage("a checksum does not match"));
        }
        let frame = log::Frame::decode(content).map_err(|error| damage(&error.to_string()))?;
        for record in frame.records {
            let record = convert::record(record)
                .ok_or_else(|| damage("a record is of a kind that this version does not know"))?;
            records.push(record);
        }
        offset = end;
    }
}

/// Whether some sector of `start..end`, or the part of it in there, is still all zeros.
fn has_unwritten_sector(file: &[u8], start: usize, end: usize) -> bool {
    let mut from = start;
    while from < end {
        let to = ((from / SECTOR + 1) * SECTOR).min(end);
        if file[from..to].iter().all(|byte| *byte == 0) {
            return true;
        }
        from = to;
    }
    false
}
