//! The data of recordings beside objects: origins of writes, and the reason of the end.

use super::Revision;
use flyball_core::time::Timestamp;

/// The origin of a write: user, program and field manager.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) revision: Revision,
    pub(crate) time: Timestamp,
    pub(crate) subresource: &'static str,
    pub(crate) user: Box<str>,
    /// The `User-Agent`.
    pub(crate) agent: Box<str>,
    /// The field manager.
    pub(crate) manager: Box<str>,
    pub(crate) verb: Box<str>,
}

/// The reason why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The server was stopped.
    Closed,
    /// The next write would have exceeded the limit of the file.
    Limit,
    /// Writes were faster than the disk.
    Overload,
    /// The file has no end: the server is still running, or it was killed, or the disk was full.
    Open,
}

impl RecordingEnd {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Closed => 1,
            Self::Limit => 2,
            Self::Overload => 3,
            Self::Open => 0,
        }
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        [Self::Closed, Self::Limit, Self::Overload].into_iter().find(|end| end.number() == number)
    }
}
