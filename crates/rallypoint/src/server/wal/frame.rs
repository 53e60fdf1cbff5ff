//! The layout of the log file in frames, and how an interrupted write is told from damage.
//!
//! The file is a header, then frames, then zeros. A frame is one group commit: a header of its own,
//! then the content, both checksummed. The file grows by whole chunks of zeros before frames are written
//! into them, and at least one frame header of zeros follows the last frame.
//!
//! The remains of an interrupted write must be told from damage: the former was never acknowledged and is
//! dropped, the latter may be acknowledged data and is refused. An interrupted write leaves sectors that
//! are still all zeros, and a frame has no such sector once it is written:
//!
//! - Frames begin at multiples of their header's length, so a header lies in one sector, which is
//!   written whole or not at all. Its length is valid, or the header is damaged.
//! - Content is combined with a mask, chosen so that no sector of it is nearly empty. The mask is 0 unless
//!   a client stores long runs of zeros.

use std::collections::BTreeSet;

use rallypoint_core::mvcc::Record;

use super::record;

/// The last byte is the version of the format.
pub(super) const HEADER: &[u8; 16] = b"RALLYPOINT LOG 1";

/// The file's length is always a multiple of this.
pub(super) const CHUNK: u64 = 1 << 20;

/// Length of the content, its mask, its checksum, and the checksum of these three. Frames are a
/// multiple of this long.
pub(super) const FRAME_HEADER: usize = 16;

/// A disk writes a sector whole or not at all.
pub(super) const SECTOR: usize = 512;

/// A defect of the file that no crash can explain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) what: String,
}

/// The content of one frame.
#[derive(Debug, Default)]
pub(super) struct WalFrame {
    /// The id of the cluster whose history this is; 0 in all frames but the first.
    pub(super) cluster_id: u64,
    pub(super) records: Vec<Record>,
}

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) cluster_id: u64,
    pub(super) records: Vec<Record>,
    /// The offset of the next frame.
    pub(super) end: u64,
    /// Bytes of a last frame that was never written whole, and so never acknowledged.
    pub(super) torn: u64,
}

/// The size in bytes at which a frame is complete, so that its length fits in its header and a log can be
/// rewritten without a second copy of it in memory.
const FRAME_BYTES: usize = 16 << 20;

/// Distributes records over frames.
pub(super) fn frames(records: Vec<Record>) -> impl Iterator<Item = WalFrame> {
    let mut records = records.into_iter();
    std::iter::from_fn(move || {
        let mut frame = WalFrame { cluster_id: 0, records: vec![records.next()?] };
        let mut bytes = size(&frame.records[0]);
        while bytes < FRAME_BYTES
            && let Some(record) = records.next()
        {
            bytes += size(&record);
            frame.records.push(record);
        }
        Some(frame)
    })
}

/// The approximate size of a record in bytes.
pub(super) fn size(record: &Record) -> usize {
    match record {
        Record::Write { events, .. } => {
            events.iter().map(|event| event.kv.key.len() + event.kv.value.len() + 64).sum()
        }
        _ => 16,
    }
}

/// The bytes of a frame when it is written at `offset`.
pub(super) fn encode(frame: WalFrame, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_HEADER];
    record::encode(frame, &mut bytes);
    let length = u32::try_from(bytes.len() - FRAME_HEADER).expect("requests are far smaller");
    bytes.resize(bytes.len().next_multiple_of(FRAME_HEADER), 0);
    let (header, content) = bytes.split_at_mut(FRAME_HEADER);
    let mask = choose_mask(content, offset as usize);
    apply_mask(mask, content);
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&mask.to_le_bytes());
    header[8..12].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    let checksum = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The smallest mask that leaves no sector with fewer than two words that are not zero. Two, so
/// that one flipped bit cannot make a sector look as if it had never been written.
fn choose_mask(content: &[u8], offset: usize) -> u32 {
    let unfit: BTreeSet<u32> = sectors(content, offset).filter_map(monotone).collect();
    (0..).find(|mask| !unfit.contains(mask)).expect("there are fewer sectors than masks")
}

/// The word that all words of a sector are equal to, with one exception at most.
fn monotone(sector: &[u8]) -> Option<u32> {
    let words = || sector.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
    words().take(2).find(|word| words().filter(|other| other != word).nth(1).is_none())
}

fn apply_mask(mask: u32, content: &mut [u8]) {
    if mask != 0 {
        let mask = mask.to_le_bytes();
        content.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// The content of the frame at `offset`, sector by sector, without the part that shares one with the header.
fn sectors(content: &[u8], offset: usize) -> impl Iterator<Item = &[u8]> {
    let start = offset + FRAME_HEADER;
    let first = start.next_multiple_of(SECTOR) - start;
    content.get(first..).unwrap_or_default().chunks(SECTOR)
}

/// Reads a whole file whose header has been checked.
pub(super) fn decode(file: &[u8]) -> Result<Contents, Damage> {
    if !(file.len() as u64).is_multiple_of(CHUNK) {
        return Err(Damage {
            offset: file.len(),
            what: format!("the file is cut off: {} bytes is no whole number of chunks", file.len()),
        });
    }
    let (mut cluster_id, mut records) = (0, Vec::new());
    let mut offset = HEADER.len();
    loop {
        let damage = |what: &str| Damage { offset, what: what.to_owned() };
        let header = file.get(offset..).and_then(|rest| rest.first_chunk::<FRAME_HEADER>());
        let Some(header) = header else {
            return Err(damage("the file is cut off: the mark after the last frame is missing"));
        };
        if is_zero(header) {
            let Some(end) = end_of_headless(file, offset) else {
                return Err(damage("there is something after the end"));
            };
            let (end, torn) = (offset as u64, (end - offset) as u64);
            return Ok(Contents { cluster_id, records, end, torn });
        }
        let Some([length, mask, checksum]) = read_header(header) else {
            return Err(damage("the checksum of a frame's header does not match"));
        };
        let start = offset + FRAME_HEADER;
        let end = start.saturating_add((length as usize).next_multiple_of(FRAME_HEADER));
        let Some(content) = file.get(start..end) else {
            return Err(damage("a frame goes on beyond the end of the file"));
        };
        if crc32fast::hash(content) != checksum {
            if is_zero(&file[end..]) && sectors(content, offset).any(is_zero) {
                let (end, torn) = (offset as u64, (end - offset) as u64);
                return Ok(Contents { cluster_id, records, end, torn });
            }
            return Err(damage("the checksum of a frame does not match"));
        }
        let mut content = content.to_vec();
        apply_mask(mask, &mut content);
        content.truncate(length as usize);
        let mut frame = record::decode(&content).map_err(|what| damage(&what))?;
        cluster_id |= frame.cluster_id;
        records.append(&mut frame.records);
        offset = end;
    }
}

/// Length, mask and checksum; `None` if the header's own checksum does not match.
fn read_header(header: &[u8]) -> Option<[u32; 3]> {
    let header: [u8; FRAME_HEADER] = header.try_into().ok()?;
    let word = |at: usize| (u128::from_le_bytes(header) >> (8 * at)) as u32;
    (crc32fast::hash(&header[..12]) == word(12)).then(|| [word(0), word(4), word(8)])
}

/// The offset at which the zeros begin, if the header at `offset` is zero: `offset` itself, or the end of a
/// frame whose first sector was not written while later ones were. `None` if no crash can explain the
/// content: a complete frame, which was begun after this one was acknowledged, or a sector that no frame
/// ever produces.
fn end_of_headless(file: &[u8], offset: usize) -> Option<usize> {
    let (rest, from) = (&file[offset..], (offset + 1).next_multiple_of(SECTOR));
    let Some(last) = rest.iter().rposition(|byte| *byte != 0) else { return Some(offset) };
    let end = (offset + last + 1).next_multiple_of(FRAME_HEADER);
    let speck = |sector: &[u8]| sector.chunks(4).filter(|word| !is_zero(word)).count() == 1;
    let explained = end > from
        && is_zero(&file[offset..from])
        && !file[from..end].chunks(SECTOR).any(speck)
        && !file[from..end].chunks(FRAME_HEADER).any(|header| read_header(header).is_some());
    explained.then_some(end)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
