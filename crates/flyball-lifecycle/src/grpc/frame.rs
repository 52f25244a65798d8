//! gRPC's framing: each message has a byte for its compression and four for its length.
//!
//! See <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use super::MAX_MESSAGE_BYTES;
use super::messages::GroupVersionKind;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use std::fmt;

/// Bytes before each message.
const HEAD_BYTES: usize = 5;

/// The status code of a response. [Source](https://grpc.github.io/grpc/core/md_doc_statuscodes.html).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Unclassified.
    Unknown = 2,
    /// The request is invalid.
    InvalidArgument = 3,
    /// The requested entity does not exist.
    NotFound = 5,
    /// A limit is exceeded.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// The server has a defect.
    Internal = 13,
    /// The server cannot answer now.
    Unavailable = 14,
    /// The client is not known.
    Unauthenticated = 16,
}

/// The status of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcError {
    /// The number of the code, see [`Code`].
    pub code: u32,
    /// The text.
    pub message: String,
}

impl GrpcError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as u32, message: message.into() }
    }

    /// Reads the status from headers or trailers; `None` if the call succeeded or there is none.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Result<(), Self>> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let code = text("grpc-status")?;
        if code == "0" {
            return Some(Ok(()));
        }
        let message = decode_percent(text("grpc-message").unwrap_or_default());
        Some(Err(Self { code: code.parse().unwrap_or(Code::Unknown as u32), message }))
    }

    pub(crate) fn trailers(status: Result<(), &Self>) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        let code = status.err().map_or(0, |error| error.code);
        trailers.insert("grpc-status", code.into());
        if let Err(error) = status
            && let Ok(message) = encode_percent(&error.message).parse()
        {
            trailers.insert("grpc-message", message);
        }
        trailers
    }
}

impl fmt::Display for GrpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "the registry failed with code {}", self.code),
            message => write!(f, "{message} (code {})", self.code),
        }
    }
}

impl std::error::Error for GrpcError {}

/// Encodes bytes that headers cannot contain.
fn encode_percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=31 | 127.. => encoded += &format!("%{byte:02X}"),
            byte => encoded.push(byte.into()),
        }
    }
    encoded
}

fn decode_percent(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let decoded = digits.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Encodes a message with its head.
pub(super) fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Splits the received bytes into messages.
#[derive(Debug, Default)]
pub(super) struct Frames(BytesMut);

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, GrpcError> {
        let Some(head) = self.0.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if head[0] != 0 {
            return Err(GrpcError::new(Code::Unimplemented, "compressed messages are not supported"));
        }
        if length > MAX_MESSAGE_BYTES {
            let why = format!("a message has {length} bytes, at most {MAX_MESSAGE_BYTES} are read");
            return Err(GrpcError::new(Code::ResourceExhausted, why));
        }
        if self.0.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.0.advance(HEAD_BYTES);
        Ok(Some(self.0.split_to(length).freeze()))
    }

    /// Returns true if the bytes end within a message.
    pub(super) fn is_partial(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Decodes a message.
pub(super) fn decode<T: Message + Default>(bytes: &[u8]) -> Result<T, GrpcError> {
    T::decode(bytes).map_err(|error| GrpcError::new(Code::InvalidArgument, format!("invalid message: {error}")))
}

/// Returns the approximate memory of a decoded message without that of its type. A field of two bytes may add an item
/// to a list.
pub(super) fn memory_of(message: &[u8]) -> usize {
    let (mut rest, mut fields) = (message, 0_usize);
    while let Ok((tag, wire_type)) = decode_key(&mut rest)
        && skip_field(wire_type, tag, &mut rest, DecodeContext::default()).is_ok()
    {
        fields += 1;
    }
    // The largest type of items.
    message.len() + fields * size_of::<GroupVersionKind>()
}

#[cfg(test)]
mod tests {
    use super::super::messages::PackageName;
    use super::*;

    #[test]
    fn messages_are_split_and_bounded() {
        let encoded = encode(&PackageName { name: "etcd".into() });
        let mut frames = Frames::default();
        for byte in encoded.iter().chain(&encoded) {
            frames.push(&[*byte]);
        }
        for _ in 0..2 {
            let message: PackageName = decode(&frames.next().unwrap().unwrap()).unwrap();
            assert_eq!(message.name, "etcd");
        }
        assert!(frames.next().unwrap().is_none() && !frames.is_partial());
        frames.push(&encoded[..7]);
        assert!(frames.next().unwrap().is_none() && frames.is_partial());
        for (head, code) in [([0, 255, 0, 0, 0], Code::ResourceExhausted), ([1, 0, 0, 0, 0], Code::Unimplemented)] {
            let mut frames = Frames::default();
            frames.push(&head);
            assert_eq!(frames.next().unwrap_err().code, code as u32);
        }
        assert!(decode::<PackageName>(b"\xff\xff").is_err());
        let empty = size_of::<GroupVersionKind>();
        assert_eq!([&b""[..], b"\xff\xff", &[0x3a, 0].repeat(9)].map(memory_of), [0, 2, 9 * (2 + empty)]);
    }

    #[test]
    fn status_is_in_trailers() {
        let error = GrpcError::new(Code::NotFound, "package \"ä\" 100%\n");
        let trailers = GrpcError::trailers(Err(&error));
        assert_eq!(GrpcError::of(&trailers), Some(Err(error)));
        assert_eq!(GrpcError::of(&GrpcError::trailers(Ok(()))), Some(Ok(())));
        assert_eq!(GrpcError::of(&HeaderMap::new()), None);
        assert_eq!(decode_percent("%4%zz%"), "%4%zz%");
    }
}
