//! Entry points of the fuzz targets in `fuzz/` to the decoders of the log.

use super::frame::{self, CHUNK, HEADER};
use super::record;

/// A file of whole chunks that begins with the header of a log and then `bytes`.
fn file(bytes: &[u8]) -> Vec<u8> {
    let mut file = [HEADER, bytes].concat();
    file.resize((file.len() + frame::FRAME_HEADER).next_multiple_of(CHUNK as usize), 0);
    file
}

/// Reads `bytes` as the frames of a log file. Damage is refused, not a panic.
#[expect(clippy::missing_panics_doc, reason = "a panic is a finding")]
pub fn log_file(bytes: &[u8]) {
    let file = file(bytes);
    if let Ok(contents) = frame::decode(&file) {
        assert!(contents.end + contents.torn <= file.len() as u64);
    }
}

/// Reads `content` as that of a frame, writes it into a log, and reads that: once whole, and once as a crash leaves it that
/// kept the disk from writing some sectors. `unwritten` has a bit for each sector, over and over.
#[expect(clippy::missing_panics_doc, reason = "a panic is a finding")]
pub fn log_frame(content: &[u8], unwritten: u64) {
    let Ok(frame) = record::decode(content) else { return };
    let (cluster_id, records) = (frame.cluster_id, frame.records.clone());
    let mut file = file(&frame::encode(frame, HEADER.len() as u64));
    let whole = frame::decode(&file).expect("a frame that was written is read");
    assert_eq!((whole.cluster_id, &whole.records, whole.torn), (cluster_id, &records, 0));

    let before = self::file(&[]);
    let end = whole.end as usize;
    for (sector, start) in (0..end).step_by(frame::SECTOR).enumerate() {
        if unwritten >> (sector % 64) & 1 == 1 {
            let bytes = start..start + frame::SECTOR;
            file[bytes.clone()].copy_from_slice(before.get(bytes).unwrap_or(&[0; frame::SECTOR]));
        }
    }
    let left = frame::decode(&file).expect("a crash is no damage");
    assert!(left.records.is_empty() || left == whole);
}
