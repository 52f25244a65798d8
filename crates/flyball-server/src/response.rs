//! Responses as bytes.

use crate::limits::MAX_BODY_BYTES;
use crate::request::accept::{Encoding, Form};
use bytes::{BufMut, Bytes, BytesMut};
use flyball_core::Status;
use futures_core::Stream;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The body of a response.
pub struct Body(Kind);

enum Kind {
    /// All of it, in pieces.
    Pieces(VecDeque<Bytes>),
    /// Pieces that are generated on demand; true if that is a long computation.
    Lazy(VecDeque<Bytes>, Box<dyn Iterator<Item = Bytes> + Send>, bool),
    /// A watch: pieces as events occur.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Self(Kind::Pieces(VecDeque::new()))
    }

    pub(crate) fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self(Kind::Pieces(pieces.into_iter().filter(|piece| !piece.is_empty()).collect()))
    }

    /// A body that is generated while it is sent; one of a few pieces is generated at once, so that its length is
    /// known. `computes` is true if a piece is computed, not copied.
    pub(crate) fn lazy(mut pieces: impl Iterator<Item = Bytes> + Send + 'static, computes: bool) -> Self {
        let first: VecDeque<Bytes> = pieces.by_ref().take(3).collect();
        if first.len() < 3 {
            return Self::pieces(first);
        }
        Self(Kind::Lazy(first, Box::new(pieces), computes))
    }

    /// Returns true if the next piece is a long computation.
    pub(crate) fn computes(&self) -> bool {
        matches!(&self.0, Kind::Lazy(generated, _, true) if generated.is_empty())
    }

    /// Returns the next piece, which is generated if necessary.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Pieces(pieces) => pieces.pop_front(),
            Kind::Lazy(generated, pieces, _) => generated.pop_front().or_else(|| pieces.next()),
            Kind::Stream(_) => None,
        }
    }

    /// Returns the number of bytes in memory.
    pub(crate) fn available_bytes(&self) -> usize {
        usize::try_from(http_body::Body::size_hint(self).lower()).unwrap_or(usize::MAX)
    }

    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::pin(stream)))
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::pieces([bytes.into()])
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut self.0 {
            Kind::Stream(stream) => ready!(stream.as_mut().poll_next(cx)),
            Kind::Pieces(_) | Kind::Lazy(..) => self.next_piece(),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Pieces(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces(pieces) => SizeHint::with_exact(length(pieces)),
            Kind::Lazy(generated, ..) => {
                let mut hint = SizeHint::default();
                hint.set_lower(length(generated));
                hint
            }
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

fn length(pieces: &VecDeque<Bytes>) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Returns a response with a content type.
pub(crate) fn new(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns a response of plain text.
pub(crate) fn text(code: u16, text: impl Into<String>) -> Response<Body> {
    new(code, "text/plain; charset=utf-8", text.into())
}

/// Returns a response of a JSON value, in the requested encoding.
pub(crate) fn value(code: u16, form: Form, value: &Value) -> Response<Body> {
    let bytes = match form.encoding {
        Encoding::Json => {
            let mut bytes = serde_json::to_vec(value).expect("JSON values can be written");
            bytes.push(b'\n');
            bytes
        }
        Encoding::Yaml => yaml(value).into_bytes(),
    };
    new(code, form.content_type(), bytes)
}

/// Maximum number of bytes of a value in YAML's block style, whose indentation can turn a character into a line.
const MAX_BLOCKS: usize = 4 * MAX_BODY_BYTES;

/// Writes a value as YAML, which JSON is too.
fn yaml(value: &Value) -> String {
    struct BoundedText(String);
    impl fmt::Write for BoundedText {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if self.0.len() + text.len() > MAX_BLOCKS {
                return Err(fmt::Error);
            }
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut blocks = BoundedText(String::new());
    match serde_saphyr::to_fmt_writer(&mut blocks, value) {
        Ok(()) => blocks.0,
        Err(_) => format!("{value}\n"),
    }
}

/// Encodes the parts of a list before and after its items, which are at `key`.
pub(crate) fn around(encoding: Encoding, list: &Map<String, Value>, key: &str) -> [String; 2] {
    let (mut parts, mut at) = ([String::new(), String::new()], 0);
    for (i, (name, value)) in list.iter().enumerate() {
        match encoding {
            Encoding::Json => {
                parts[at].push(if i == 0 { '{' } else { ',' });
                parts[at] += &format!("{}:", Value::from(name.as_str()));
                parts[at] += &if name == key { "[".to_owned() } else { value.to_string() };
            }
            Encoding::Yaml if name == key => parts[at] += &format!("{key}:\n"),
            Encoding::Yaml => parts[at] += &yaml(&json!({ name: value })),
        }
        if name == key {
            at = 1;
            parts[at] += if encoding == Encoding::Json { "]" } else { "" };
        }
    }
    parts[1] += if encoding == Encoding::Json { "}\n" } else { "" };
    parts
}

/// Writes the next item of a list.
pub(crate) fn item(encoding: Encoding, out: &mut BytesMut, is_first: bool, value: Value) {
    match encoding {
        Encoding::Json if is_first => out.put_slice(value.to_string().as_bytes()),
        Encoding::Json => out.put_slice(format!(",{value}").as_bytes()),
        Encoding::Yaml => {
            let blocks = yaml(&Value::Array(vec![value]));
            // An item that is too long for block style is written on one line.
            let line = blocks.strip_prefix('[').and_then(|rest| rest.strip_suffix("]\n"));
            out.put_slice(line.map_or_else(|| blocks.clone(), |line| format!("- {line}\n")).as_bytes());
        }
    }
}

/// Encodes an error as JSON.
pub(crate) fn status_value(status: &Status) -> Value {
    let mut value = serde_json::to_value(status).expect("a status can be written");
    value["apiVersion"] = "v1".into();
    value["kind"] = "Status".into();
    value["metadata"] = json!({});
    value["status"] = "Failure".into();
    value
}

/// Returns the response of an error, as JSON.
pub(crate) fn status(status: &Status) -> Response<Body> {
    status_in(Form::PLAIN, status)
}

/// Returns the response of an error in an encoding.
pub(crate) fn status_in(form: Form, status: &Status) -> Response<Body> {
    let mut response = value(status.code, form, &status_value(status));
    if let Some(seconds) =
        status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns the 429 for requests beyond the bounds.
pub(crate) fn too_many_requests() -> Response<Body> {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// Returns the 404 for a path outside of the API.
pub(crate) fn page_not_found() -> Response<Body> {
    let mut response = text(404, "404 page not found\n");
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// The warnings of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<WarningList>>);

/// Warnings, each once, in order.
#[derive(Debug, Default)]
struct WarningList {
    all: BTreeSet<String>,
    ordered: Vec<String>,
    /// Number of characters, of each at most [`MAX_WARNING`].
    chars: usize,
}

/// Maximum number of characters of all warnings of one response; beyond it each is truncated to [`MAX_WARNING`], and
/// further ones are dropped once these exceed the limit, as in kube-apiserver.
pub(crate) const MAX_WARNINGS: usize = 4 << 10;

/// Maximum length of a warning once all exceed [`MAX_WARNINGS`].
pub(crate) const MAX_WARNING: usize = 256;

impl Warnings {
    /// Adds warnings; duplicates are dropped.
    pub(crate) fn add(&self, warnings: impl IntoIterator<Item = String>) {
        let mut noted = self.0.lock();
        for mut warning in warnings {
            // Longer texts are cut when they are sent, and texts beyond this are not sent.
            if let Some((end, _)) = warning.char_indices().nth(MAX_WARNINGS + 1) {
                warning.truncate(end);
            }
            if !warning.is_empty() && noted.chars <= MAX_WARNINGS && !noted.all.contains(&warning) {
                noted.chars += warning.chars().count().min(MAX_WARNING);
                noted.all.insert(warning.clone());
                noted.ordered.push(warning);
            }
        }
    }

    /// Adds the warnings as headers, in the format of RFC 7234.
    pub(crate) fn append_to(&self, response: &mut Response<Body>) {
        warn(response, &self.0.lock().ordered);
    }
}

fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let length = |warning: &String| warning.chars().count();
    let cut = warnings.iter().map(length).sum::<usize>() > MAX_WARNINGS;
    let mut written = 0;
    for warning in warnings {
        // The warning that crosses the limit is written, later ones are not.
        if cut && written >= MAX_WARNINGS {
            return;
        }
        let warning: String = warning.chars().take(if cut { MAX_WARNING } else { usize::MAX }).collect();
        written += length(&warning);
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let text: String = quoted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(warnings: &[&str]) -> Vec<usize> {
        let (noted, mut response) = (Warnings::default(), Response::new(Body::empty()));
        noted.add(warnings.iter().map(ToString::to_string));
        noted.append_to(&mut response);
        let values = response.headers().get_all("warning").iter();
        values.map(|value| value.as_bytes().len() - "299 - \"\"".len()).collect()
    }

    #[test]
    fn list_in_pieces_equals_list_in_one_piece() {
        let items = [
            json!({"a": "x\ny\n", "b": [], "c": {}, "d": ["- e", {"f": [[1, null], ["  g\n\n h"]]}]}),
            json!("k: v"),
            json!(["i", [["j"]]]),
            json!({"long": "word ".repeat(100), "odd": ["yes", "0x1", "", " ", "#", "'", "\u{7f}", "\t\n"]}),
        ];
        let list = json!({"kind": "L", "apiVersion": "v1", "metadata": {"m": {"n": "o"}, "items": []}, "items": items});
        for encoding in [Encoding::Json, Encoding::Yaml] {
            let form = Form { encoding, ..Form::PLAIN };
            let [before, after] = around(encoding, list.as_object().unwrap(), "items");
            let mut all = BytesMut::from(before.as_bytes());
            items.iter().enumerate().for_each(|(i, value)| item(encoding, &mut all, i == 0, value.clone()));
            all.put_slice(after.as_bytes());
            let Kind::Pieces(whole) = value(200, form, &list).into_body().0 else { panic!("it is made at once") };
            assert_eq!(str::from_utf8(&all).unwrap(), str::from_utf8(&whole[0]).unwrap());
        }
    }

    #[test]
    fn yaml_size_is_bounded() {
        let deep = (0..50).fold(json!(vec![1; 130_000]), |inner, _| json!({ "a": inner }));
        assert!(yaml(&deep).len() < 300_000, "it would be more than 13 MB");
        let mut out = BytesMut::new();
        item(Encoding::Yaml, &mut out, true, deep.clone());
        item(Encoding::Yaml, &mut out, false, json!({"b": "c"}));
        let read: Value = serde_saphyr::from_str(str::from_utf8(&out).unwrap()).unwrap();
        assert_eq!(read, json!([deep, {"b": "c"}]));
    }

    #[test]
    fn warnings_are_deduplicated_and_truncated_as_in_kube_apiserver() {
        let long: Vec<String> = (0..5).map(|n| format!("{n}{}", "x".repeat(999))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        assert_eq!(lengths(&["a", "bb", "a", ""]), [1, 2]);
        assert_eq!(lengths(&long[..4]), [1000; 4]);
        assert_eq!(lengths(&long), [256; 5]);
        let many: Vec<String> = (0..33_000).map(|n| format!("unknown field {n:06}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let lengths = lengths(&many);
        assert_eq!((lengths.len(), lengths[0]), (205, 20));
    }
}
