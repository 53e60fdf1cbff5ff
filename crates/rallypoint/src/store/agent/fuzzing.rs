//! Entry point of the fuzz target in `fuzz/` to the decoder of requests.

use super::request::{Request, RequestScan};

/// Reads `bytes` as requests, at once and `piece` bytes at a time, and expects the same of both.
#[expect(clippy::missing_panics_doc, reason = "a panic is a finding")]
pub fn store_requests(bytes: &[u8], piece: usize) {
    let (mut at_once, mut in_pieces) = (Vec::new(), Vec::new());
    read(bytes, bytes.len(), &mut at_once);
    read(bytes, piece, &mut in_pieces);
    assert_eq!(at_once, in_pieces);
}

/// Describes each request in `found`, and the error that ends the stream.
fn read(mut bytes: &[u8], piece: usize, found: &mut Vec<String>) {
    let (mut scan, mut arrived) = (RequestScan::default(), 0);
    loop {
        match scan.end(&bytes[..arrived]) {
            Ok(Some(end)) => {
                match Request::read(&bytes[..end]) {
                    Ok(
                        Request::Check { keys }
                        | Request::Wait { keys }
                        | Request::MultiGet { keys }
                        | Request::MultiSet { pairs: keys },
                    ) => found.push(format!("{:?}", keys.collect::<Vec<_>>())),
                    read => found.push(format!("{read:?}")),
                }
                (bytes, scan, arrived) = (&bytes[end..], RequestScan::default(), arrived - end);
            }
            Ok(None) if arrived == bytes.len() => return,
            Ok(None) => arrived = bytes.len().min(arrived + piece.max(1)),
            Err(refused) => return found.push(format!("{refused:?}")),
        }
    }
}
