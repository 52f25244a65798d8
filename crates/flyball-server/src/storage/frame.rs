//! Frames: the file format of the journal and of recordings.
//!
//! A file begins with a header. Each frame contains the records of one write to disk and is either valid or invalid as
//! a whole. Its checksum covers its position and the file's salt, so that neither the content of objects nor remains of
//! another file are valid frames.
//!
//! A frame truncated by a crash differs from a corrupted one: records end with a nonzero byte, and
//! unwritten parts of the file are zeros.
//!
//! ```text
//! file   = "flyball\n"  format u32  number u64  salt [16]  sum [16]  frame*  zeros
//! frame  = salt[..8]    length u32  sum [16]    payload
//! ```
//!
//! Numbers are little-endian; a sum is the first half of a SHA-256.

use ring::digest::{Context, SHA256};

const MAGIC: &[u8; 8] = b"flyball\n";
const FORMAT: u32 = 1;
pub(super) const HEADER: usize = 52;
pub(super) const FRAME: usize = 28;
/// Sector size: disks write sectors atomically.
const SECTOR: usize = 512;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the file.
    pub(super) number: u64,
    pub(super) salt: [u8; 16],
}

type Sum = [u8; 16];

fn sum(parts: &[&[u8]]) -> Sum {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let digest = context.finish();
    let mut sum = [0; 16];
    sum.copy_from_slice(&digest.as_ref()[..16]);
    sum
}

impl Header {
    pub(super) fn new(number: u64) -> std::io::Result<Self> {
        let mut salt = [0; 16];
        let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut salt);
        filled.map_err(|_| std::io::Error::other("the operating system provides no randomness"))?;
        Ok(Self { number, salt })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.salt);
        let sum = sum(&[&bytes]);
        bytes.extend_from_slice(&sum);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.get(..HEADER)?.split_at(HEADER - 16);
        if sum(&[head]) != rest || !head.starts_with(MAGIC) || head[8..12] != FORMAT.to_le_bytes() {
            return None;
        }
        Some(Self { number: u64::from_le_bytes(array(&head[12..20])?), salt: array(&head[20..36])? })
    }

    fn sum(&self, at: u64, payload: &[u8]) -> Sum {
        sum(&[&self.salt, &at.to_le_bytes(), &(payload.len() as u64).to_le_bytes(), payload])
    }

    /// Completes a frame for a position in the file: its payload follows an empty [`FRAME`].
    pub(super) fn seal(&self, at: u64, frame: &mut [u8]) {
        let sum = self.sum(at, &frame[FRAME..]);
        let length = u32::try_from(frame.len() - FRAME).expect("batches are bounded");
        frame[..8].copy_from_slice(&self.salt[..8]);
        frame[8..12].copy_from_slice(&length.to_le_bytes());
        frame[12..FRAME].copy_from_slice(&sum);
    }

    /// Returns the length of the payload after the first bytes of a frame; `None` if it is not a frame of this file.
    pub(super) fn payload_length(&self, head: &[u8; FRAME]) -> Option<usize> {
        let length = usize::try_from(u32::from_le_bytes(array(&head[8..12])?)).ok()?;
        (head[..8] == self.salt[..8]).then_some(length)
    }

    /// Returns true if the checksum in the first bytes of a frame is that of its payload.
    pub(super) fn is_valid(&self, at: u64, head: &[u8; FRAME], payload: &[u8]) -> bool {
        self.sum(at, payload) == head[12..]
    }

    /// Parses the frame at a position of the file.
    fn frame<'b>(&self, bytes: &'b [u8], at: usize) -> Option<&'b [u8]> {
        let head = array(bytes.get(at..at + FRAME)?)?;
        let payload = bytes.get(at + FRAME..)?.get(..self.payload_length(&head)?)?;
        self.is_valid(at as u64, &head, payload).then_some(payload)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// A reader of the frames of a file.
pub(super) struct Frames<'b> {
    header: Header,
    bytes: &'b [u8],
    /// The offset of the next frame; after the last one, the end of the valid part of the file.
    pub(super) at: usize,
}

/// The next frame of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextFrame<'b> {
    Frame(&'b [u8]),
    /// Only zeros: the end of the file.
    End,
    /// A frame truncated by a crash: it was never acknowledged, and no frame follows it.
    Torn,
    /// A frame that was written completely and has been corrupted.
    Damaged,
}

impl<'b> Frames<'b> {
    /// Opens a file for reading; `None` if it has no valid header.
    pub(super) fn of(bytes: &'b [u8]) -> Option<Self> {
        Some(Self { header: Header::read(bytes)?, bytes, at: HEADER })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn next(&mut self) -> NextFrame<'b> {
        if let Some(payload) = self.header.frame(self.bytes, self.at) {
            self.at += FRAME + payload.len();
            return NextFrame::Frame(payload);
        }
        let rest = &self.bytes[self.at..];
        if rest.iter().all(|byte| *byte == 0) {
            return NextFrame::End;
        }
        if self.follows(rest) || self.is_whole(rest) { NextFrame::Damaged } else { NextFrame::Torn }
    }

    /// Returns true if a valid frame follows.
    ///
    /// A frame is written after the previous one is on disk: no frame follows a torn one.
    fn follows(&self, rest: &[u8]) -> bool {
        let starts = rest.windows(8).enumerate().filter(|(_, window)| *window == &self.header.salt[..8]);
        starts.map(|(start, _)| self.at + start).any(|at| self.header.frame(self.bytes, at).is_some())
    }

    /// Returns true if an invalid frame was written completely, so that it must have been corrupted.
    ///
    /// A frame is written over zeros, ends with a nonzero byte, and has no empty sector. A crash
    /// leaves zeros at its end or in a sector that the disk had not written yet.
    fn is_whole(&self, rest: &[u8]) -> bool {
        let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let first = SECTOR - self.at % SECTOR;
        let sectors = [&rest[..written.min(first)]].into_iter().chain(rest[written.min(first)..written].chunks(SECTOR));
        if sectors.into_iter().any(|sector| sector.iter().all(|byte| *byte == 0)) {
            return false;
        }
        // The header is truncated.
        let Some((head, payload)) = rest[..written].split_at_checked(FRAME) else {
            return !self.header.salt.starts_with(&rest[..written.min(8)]);
        };
        // The payload is intact, so the header is corrupted, and its length cannot be trusted.
        if self.header.sum(self.at as u64, payload) == head[12..] {
            return true;
        }
        let length = array(&head[8..12]).map_or(0, u32::from_le_bytes) as usize;
        head[..8] != self.header.salt[..8] || payload.len() >= length
    }
}
