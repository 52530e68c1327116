//! The protocol between the processes of a group: frames over TCP.
//!
//! A frame is a four-byte magic number, the lengths of its two parts, a head in JSON and a body of bytes. The
//! reader trusts no length: memory grows with the data that arrives. This module does not interpret ranks or
//! bytes.

use crate::base::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The magic number of every frame; a peer that does not send it is not a process of a group.
const MAGIC: [u8; 4] = *b"RNLG";

/// The longest accepted head: a few numbers and lines of text.
const LONGEST_HEAD: u32 = 64 << 10;

/// The longest failure reason sent to others, in bytes.
const LONGEST_REASON: usize = 2000;

/// Interval at which a blocked write checks whether to continue.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The bytes that a process wants from a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wants {
    /// None.
    Nothing,
    /// The bytes of one rank.
    From(usize),
    /// The bytes of all ranks, in rank order.
    All,
    /// Its own part of every rank's bytes, which are split into one equal part per rank.
    Part,
}

/// A message from a process to the hub.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Say {
    /// The first frame.
    Hello { version: String, id: String, rank: usize, size: usize, device: Option<String> },
    /// Takes part in a round.
    Round { call: String, wants: Wants },
    /// Sends its bytes.
    Send { to: usize, what: String },
    /// Waits for bytes.
    Receive { from: usize, what: String },
    /// Has failed.
    Failed { reason: String },
}

/// The reason why a process may not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// It belongs to another group.
    NotAMember,
    /// Its rank, or the size of its group, does not fit.
    Setting,
    /// Another process uses its device.
    Device,
}

/// A message from the hub to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The process may not join.
    Refused { why: Refusal, reason: String },
    /// The process has joined.
    Joined,
    /// All processes have joined.
    Complete,
    /// The request is complete; its bytes follow.
    Done,
    /// The processes made different calls; `stuck` when each waits for another.
    Differ { text: String, stuck: bool },
    /// A process failed, and the group with it.
    Failed { rank: usize, reason: String },
    /// The rendezvous timed out.
    NotMet { text: String },
    /// An operation timed out.
    Late { text: String },
}

/// Writes a frame whose body is given in pieces. A blocked write calls `go_on` from time to time.
pub(super) fn write<T: Serialize>(
    stream: &mut TcpStream,
    head: &T,
    pieces: &[&[u8]],
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<io::Result<()>> {
    let Ok(head) = serde_json::to_vec(head) else { return Ok(Err(io::ErrorKind::InvalidData.into())) };
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut start = Vec::with_capacity(16 + head.len());
    start.extend_from_slice(&MAGIC);
    start.extend_from_slice(&(head.len() as u32).to_le_bytes());
    start.extend_from_slice(&(length as u64).to_le_bytes());
    start.extend_from_slice(&head);
    if let Err(error) = stream.set_write_timeout(Some(POLL_INTERVAL)) {
        return Ok(Err(error));
    }
    for piece in std::iter::once(&start[..]).chain(pieces.iter().copied()) {
        let mut left = piece;
        while !left.is_empty() {
            match stream.write(left) {
                Ok(0) => return Ok(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    go_on()?;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    Ok(Ok(()))
}

/// Reads a frame with a body of at most `most` bytes. `InvalidData` when it is not a frame.
pub(super) fn read<T: DeserializeOwned>(stream: &mut TcpStream, most: u64) -> io::Result<(T, Vec<u8>)> {
    let mut start = [0u8; 16];
    // Check the magic number first: another program may send fewer than 16 bytes.
    stream.read_exact(&mut start[..4])?;
    if start[..4] != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.read_exact(&mut start[4..])?;
    let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let (head, length) = (word(4), u64::from(word(8)) | u64::from(word(12)) << 32);
    if head > LONGEST_HEAD || length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let head = exactly(stream, u64::from(head))?;
    let bytes = exactly(stream, length)?;
    let head = serde_json::from_slice(&head).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((head, bytes))
}

/// Shortens a reason to the length limit of a frame.
pub(super) fn shortened(reason: &str) -> String {
    let mut end = reason.len().min(LONGEST_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_string()
}

/// Reads exactly this many bytes, into memory that grows as they arrive.
fn exactly(stream: &mut TcpStream, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Reserve small bodies at once, and the start of large ones.
    bytes.try_reserve(length.min(1 << 20) as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    stream.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn frames_arrive_as_they_were_written() {
        let (mut one, mut other) = pair();
        let say = Say::Round { call: "all_reduce".into(), wants: Wants::From(2) };
        write(&mut one, &say, &[b"ab", b"", b"cde"], &mut || Ok(())).unwrap().unwrap();
        let (head, bytes): (Say, _) = read(&mut other, 5).unwrap();
        assert!(matches!(head, Say::Round { call, wants: Wants::From(2) } if call == "all_reduce"));
        assert_eq!(bytes, b"abcde");
        write(&mut one, &say, &[b"abcdef"], &mut || Ok(())).unwrap().unwrap();
        assert_eq!(read::<Say>(&mut other, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn malformed_frames_are_rejected() {
        for (text, kind) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], io::ErrorKind::InvalidData),
            (b"RNL", io::ErrorKind::UnexpectedEof),
            (b"RNLG\xff\xff\xff\xff\0\0\0\0\0\0\0\0", io::ErrorKind::InvalidData),
            (b"RNLG\x02\0\0\0\0\0\0\0\0\0\0\0{]", io::ErrorKind::InvalidData),
            // A false length allocates no memory.
            (b"RNLG\x02\0\0\0\xff\xff\xff\xff\xff\xff\0\0{}", io::ErrorKind::UnexpectedEof),
        ] {
            let (mut one, mut other) = pair();
            one.write_all(text).unwrap();
            drop(one);
            assert_eq!(read::<Say>(&mut other, u64::MAX).unwrap_err().kind(), kind, "{text:?}");
        }
    }

    #[test]
    fn a_blocked_write_can_be_abandoned() {
        let (mut one, _other) = pair();
        let bytes = vec![0u8; 64 << 20];
        let left =
            write(&mut one, &Answer::Done, &[&bytes], &mut || Err(super::super::error::not_initialized()));
        assert_eq!(left.unwrap_err().code().id, "E0532");
    }

    #[test]
    fn reasons_are_cut_between_letters() {
        let long = "é".repeat(LONGEST_REASON);
        let short = shortened(&long);
        assert!(short.len() <= LONGEST_REASON && short.chars().all(|c| c == 'é'));
        assert_eq!(shortened("why"), "why");
    }
}
