use super::{Chunks, Error, Etcd, Member, MemberStatus, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust};
use futures_util::{StreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of a request to a member.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a defragmentation, and of each chunk of a snapshot.
const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response: one about seven members has several kilobytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum size of a snapshot chunk as JSON: its content has 32 KiB.
const MAX_CHUNK: usize = 4 << 20;
/// Size of the SHA-256 checksum at the end of a snapshot, in a separate chunk; restores verify it.
const HASH: usize = 32;
/// Path prefixes of the gateway: since 3.4, in 3.3, and before 3.3.
const PREFIXES: [&str; 3] = ["v3", "v3beta", "v3alpha"];

/// Client of etcd's JSON gateway, which every member serves in addition to gRPC.
#[derive(Clone, Debug)]
pub struct Gateway(Client);

impl Default for Gateway {
    fn default() -> Self {
        Self(
            Client::new(Trust::Bundle(&[]), Proxies::default())
                .expect("the provider supports the default versions of TLS"),
        )
    }
}

/// Parses a number, which the gateway encodes as a string and omits if it is 0.
fn number<T: FromStr + Default>(value: &Value) -> T {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn unreachable(endpoint: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Unreachable { endpoint: endpoint.into(), source: source.into() }
}

fn rejected(endpoint: &str, code: u16, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Problem {
        message: Option<String>,
        error: Option<String>,
    }
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    let message = problem.and_then(|problem| problem.message.or(problem.error));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().chars().take(200).collect());
    Error::Rejected { endpoint: endpoint.into(), code, message }
}

impl Gateway {
    /// Starts a call; returns the body of a successful response.
    async fn begin(&self, endpoint: &str, method: &str, body: &Value) -> Result<Incoming> {
        for prefix in PREFIXES {
            let request = Request::post(format!("{endpoint}/{prefix}/{method}"))
                .body(Bytes::from(body.to_string()))
                .map_err(|error| unreachable(endpoint, error))?;
            let response = self.0.send(request).await.map_err(|error| unreachable(endpoint, error))?;
            if response.status().is_success() {
                return Ok(response.into_body());
            }
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| unreachable(endpoint, error))?.to_bytes();
            // With another path prefix, the body of the 404 is text; for an unknown member, it is JSON.
            if code != 404 || body.starts_with(b"{") {
                return Err(rejected(endpoint, code, &body));
            }
        }
        Err(unreachable(endpoint, "it serves no JSON gateway"))
    }

    async fn call(&self, endpoint: &str, method: &str, body: Value, limit: Duration) -> Result<Value> {
        let call = async {
            let body = self.begin(endpoint, method, &body).await?;
            let body =
                Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|error| unreachable(endpoint, error))?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| unreachable(endpoint, error))
        };
        let timely = async { timeout(limit, call).await.map_err(|late| unreachable(endpoint, late))? };
        flyball::external_call("etcd", timely).await
    }
}

impl Etcd for Gateway {
    async fn members(&self, endpoint: &str, consistent: bool) -> Result<Vec<Member>> {
        let response =
            self.call(endpoint, "cluster/member/list", json!({"linearizable": consistent}), REQUEST_TIMEOUT).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let member = |member: &Value| Member {
            id: number(&member["ID"]),
            name: text(&member["name"]),
            peer_urls: member["peerURLs"].as_array().into_iter().flatten().map(text).collect(),
        };
        match response["members"].as_array() {
            Some(members) if !members.is_empty() => Ok(members.iter().map(member).collect()),
            _ => Err(unreachable(endpoint, "it lists no members")),
        }
    }

    async fn add_member(&self, endpoint: &str, peer_url: &str) -> Result<()> {
        self.call(endpoint, "cluster/member/add", json!({"peerURLs": [peer_url]}), REQUEST_TIMEOUT).await.map(drop)
    }

    async fn remove_member(&self, endpoint: &str, id: u64) -> Result<()> {
        self.call(endpoint, "cluster/member/remove", json!({"ID": id.to_string()}), REQUEST_TIMEOUT).await.map(drop)
    }

    async fn status(&self, endpoint: &str) -> Result<MemberStatus> {
        let response = self.call(endpoint, "maintenance/status", json!({}), REQUEST_TIMEOUT).await?;
        Ok(MemberStatus {
            id: number(&response["header"]["member_id"]),
            leader: number(&response["leader"]),
            version: response["version"].as_str().unwrap_or_default().into(),
            db_size: number(&response["dbSize"]),
            db_size_in_use: number(&response["dbSizeInUse"]),
            revision: number(&response["header"]["revision"]),
            raft_index: number(&response["raftIndex"]),
        })
    }

    async fn snapshot(&self, endpoint: &str) -> Result<Chunks> {
        let response = timeout(REQUEST_TIMEOUT, self.begin(endpoint, "maintenance/snapshot", &json!({}))).await;
        let body = response.map_err(|late| unreachable(endpoint, late))??;
        let reader = SnapshotReader { endpoint: endpoint.into(), body, buffer: BytesMut::new(), is_whole: false };
        let pieces = stream::try_unfold(reader, |mut reader| async move {
            let piece = timeout(LONG_REQUEST_TIMEOUT, reader.next()).await;
            let piece = piece.map_err(|late| unreachable(&reader.endpoint, late))??;
            Ok(piece.map(|piece| (piece, reader)))
        });
        Ok(pieces.boxed())
    }

    async fn defragment(&self, endpoint: &str) -> Result<()> {
        self.call(endpoint, "maintenance/defragment", json!({}), LONG_REQUEST_TIMEOUT).await.map(drop)
    }
}

/// A snapshot in transfer: one JSON object per line.
struct SnapshotReader {
    endpoint: String,
    body: Incoming,
    buffer: BytesMut,
    /// True after the last chunk.
    is_whole: bool,
}

impl SnapshotReader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let wrong = |reason: &dyn Display| unreachable(&self.endpoint, reason.to_string());
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                let (piece, remaining) = piece(&line).map_err(|reason| wrong(&reason))?;
                self.is_whole = remaining == 0 && piece.len() == HASH;
                return Ok(Some(piece));
            }
            if self.buffer.len() > MAX_CHUNK {
                return Err(wrong(&"a chunk of the snapshot is too large"));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.map_err(|error| wrong(&error))?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None if self.buffer.is_empty() && self.is_whole => return Ok(None),
                None if !self.buffer.is_empty() => self.buffer.extend_from_slice(b"\n"),
                None => return Err(wrong(&"the snapshot is incomplete")),
            }
        }
    }
}

/// Parses one line: the chunk, and the number of remaining bytes.
fn piece(line: &[u8]) -> Result<(Bytes, u64), String> {
    let line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let result = line.get("result").ok_or_else(|| line["error"]["message"].to_string())?;
    let blob = BASE64_STANDARD.decode(result["blob"].as_str().unwrap_or_default());
    Ok((blob.map_err(|error| error.to_string())?.into(), number(&result["remaining_bytes"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_contain_the_remaining_size() {
        let read = |line: &str| piece(line.as_bytes());
        assert_eq!(read(r#"{"result":{"remaining_bytes":"7","blob":"Zm9v"}}"#), Ok(("foo".into(), 7)));
        assert_eq!(read(r#"{"result":{"blob":"YmFy"}}"#), Ok(("bar".into(), 0)));
        assert!(read(r#"{"error":{"code":14,"message":"stopped"}}"#).is_err_and(|reason| reason.contains("stopped")));
        assert!(read("<html>").is_err());
    }

    #[test]
    fn rejection_contains_the_message_of_etcd() {
        let error_of = |body: &str| rejected("http://a", 503, body.as_bytes()).to_string();
        let unhealthy = r#"{"code":14,"message":"etcdserver: unhealthy cluster"}"#;
        assert_eq!(error_of(unhealthy), "etcd at http://a returned 503: etcdserver: unhealthy cluster");
        assert_eq!(error_of("404 page not found\n"), "etcd at http://a returned 503: 404 page not found");
    }
}
