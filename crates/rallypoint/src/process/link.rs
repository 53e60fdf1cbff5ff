//! Messages with descriptors between two processes of this program. A message arrives whole or not at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The largest size of a message, which has at most a word and a path.
const MAX_MESSAGE: usize = 64 * 1024;

/// The limit on descriptors in a message.
const MAX_DESCRIPTORS: usize = 64;

/// Makes the two ends of a link, both closed on exec. When one end closes, for whatever reason, the kernel reports
/// that at the other.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message, or fails at once with [`Errno::AGAIN`] if the other end has not read for long.
pub(super) fn send(
    link: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    if descriptors.len() > MAX_DESCRIPTORS || message.len() > MAX_MESSAGE {
        return Err(Errno::TOOBIG);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&link, &[IoSlice::new(message)], &mut control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// The result of a receive.
#[derive(Debug)]
pub(super) enum Received {
    Message(Vec<u8>, Vec<OwnedFd>),
    /// No message yet.
    Nothing,
    /// The other end is closed.
    End,
}

/// Whether a receive blocks, and whether received descriptors stay open on exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    NonBlocking,
    BlockAndInherit,
}

/// Receives the next message.
pub(super) fn receive(link: impl AsFd, mode: ReceiveMode) -> Received {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let flags = match mode {
        ReceiveMode::NonBlocking => RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        ReceiveMode::BlockAndInherit => RecvFlags::empty(),
    };
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(&link, &mut into, &mut control, flags) {
            // The other end closed before it had read everything. Its own messages come next.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(Errno::AGAIN) => return Received::Nothing,
            Err(_) => return Received::End,
            Ok(received) if received.bytes == 0 => return Received::End,
            Ok(received) => received,
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            continue;
        }
        bytes.truncate(received.bytes);
        return Received::Message(bytes, descriptors);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order_before_the_end() {
        let (here, there) = pair().unwrap();
        assert!(matches!(receive(&there, ReceiveMode::NonBlocking), Received::Nothing));
        send(&here, b"one\nline", &[]).unwrap();
        send(&here, b"two", &[]).unwrap();
        // A closed end with unread messages reports a reset first; its own messages still arrive.
        send(&there, b"unread", &[]).unwrap();
        drop(here);
        for expected in [&b"one\nline"[..], b"two"] {
            let Received::Message(bytes, _) = receive(&there, ReceiveMode::NonBlocking) else {
                panic!("nothing")
            };
            assert_eq!(bytes, expected);
        }
        assert!(matches!(receive(&there, ReceiveMode::NonBlocking), Received::End));
        assert_eq!(send(&there, b"three", &[]), Err(Errno::PIPE));
    }

    #[test]
    fn descriptors_come_with_their_message() {
        let (here, there) = pair().unwrap();
        let (mut kept, given) = UnixStream::pair().unwrap();
        send(&here, b"take it", &[given.as_fd()]).unwrap();
        drop(given);
        let Received::Message(_, descriptors) = receive(&there, ReceiveMode::NonBlocking) else {
            panic!("no")
        };
        assert_eq!(descriptors.len(), 1);
        drop(descriptors);
        assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_send_to_an_end_that_does_not_read_does_not_block() {
        let (here, _there) = pair().unwrap();
        let refused = (0..1_000_000).find_map(|_| send(&here, b"fence 1", &[]).err());
        assert_eq!(refused, Some(Errno::AGAIN));
    }
}
