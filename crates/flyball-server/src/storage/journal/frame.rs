//! Frames: the file format of the journal.
//!
//! A file begins with a header. Each frame after it contains the records of one write to disk and is valid as a whole
//! or not at all. Its checksum covers its position and the file's salt, so that neither the content of objects nor
//! remains of another file can be mistaken for a frame.
//!
//! A frame that a crash truncated is distinguished from a corrupted one: records end with a byte that is not zero, and
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
/// The unit in which disks write: whole or not at all.
const SECTOR: usize = 512;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its place among the files.
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
        filled.map_err(|_| std::io::Error::other("the operating system has no randomness to give"))?;
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

    /// Reads the frame that begins at a place of the file.
    fn frame<'b>(&self, bytes: &'b [u8], at: usize) -> Option<&'b [u8]> {
        let head = bytes.get(at..at + FRAME)?;
        if head[..8] != self.salt[..8] {
            return None;
        }
        let length = usize::try_from(u32::from_le_bytes(array(&head[8..12])?)).ok()?;
        let payload = bytes.get(at + FRAME..)?.get(..length)?;
        (self.sum(at as u64, payload) == head[12..]).then_some(payload)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// The frames of a file, one after the other.
pub(super) struct Frames<'b> {
    header: Header,
    bytes: &'b [u8],
    /// The offset of the next frame; after the last one, the end of the valid part of the file.
    pub(super) at: usize,
}

/// The next frame of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'b> {
    Frame(&'b [u8]),
    /// Only zeros.
    End,
    /// A frame that a crash cut short: it was never acknowledged, and nothing follows it.
    Torn,
    /// A frame that was written whole and is not valid any more.
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

    pub(super) fn next(&mut self) -> Next<'b> {
        if let Some(payload) = self.header.frame(self.bytes, self.at) {
            self.at += FRAME + payload.len();
            return Next::Frame(payload);
        }
        let rest = &self.bytes[self.at..];
        if rest.iter().all(|byte| *byte == 0) {
            return Next::End;
        }
        if self.follows(rest) || self.is_whole(rest) { Next::Damaged } else { Next::Torn }
    }

    /// Returns true if a valid frame follows.
    ///
    /// A frame is written after the previous one is on disk: no frame follows a torn one.
    fn follows(&self, rest: &[u8]) -> bool {
        let starts = rest.windows(8).enumerate().filter(|(_, window)| *window == &self.header.salt[..8]);
        starts.map(|(start, _)| self.at + start).any(|at| self.header.frame(self.bytes, at).is_some())
    }

    /// Returns whether an invalid frame was written to its end, so that it must have changed since.
    ///
    /// A frame is written where there were zeros, it ends with another byte, and no sector of it is empty. A crash
    /// leaves zeros at its end or in a sector that the disk had not written yet.
    fn is_whole(&self, rest: &[u8]) -> bool {
        let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let first = SECTOR - self.at % SECTOR;
        let sectors = [&rest[..written.min(first)]].into_iter().chain(rest[written.min(first)..written].chunks(SECTOR));
        if sectors.into_iter().any(|sector| sector.iter().all(|byte| *byte == 0)) {
            return false;
        }
        // The head is cut off.
        let Some((head, payload)) = rest[..written].split_at_checked(FRAME) else {
            return !self.header.salt.starts_with(&rest[..written.min(8)]);
        };
        // The payload is intact, so the head is corrupted, and its length cannot be trusted.
        if self.header.sum(self.at as u64, payload) == head[12..] {
            return true;
        }
        let length = array(&head[8..12]).map_or(0, u32::from_le_bytes) as usize;
        head[..8] != self.header.salt[..8] || payload.len() >= length
    }
}
