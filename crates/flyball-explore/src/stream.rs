//! The body of a watch on its way to the operator: each event is a site.

use crate::fault::Fault;
use crate::history::Meta;
use crate::hub::Hub;
use crate::site::{Port, Site, object_name};
use bytes::{Bytes, BytesMut};
use flyball_cluster::Body;
use futures_util::stream::{self, Stream};
use http_body::Frame;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::json;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// An event of a watch, as far as sites need it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    object: WatchedObject,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WatchedObject {
    metadata: Meta,
}

/// A watch of the operator.
pub(crate) struct WatchStream {
    hub: Arc<Hub>,
    process: u8,
    generation: u32,
    /// The resource, as in sites.
    kind: String,
    body: Body,
    received: BytesMut,
    /// Lines that are delivered next.
    ready: VecDeque<Bytes>,
    /// The watch expires after this line.
    expires: bool,
    has_ended: bool,
    drops_bookmarks: bool,
    /// The watch follows an incomplete list, and expires when the faults end: no operator could notice it otherwise.
    is_partial: bool,
    /// Number of restarts of the API server before the watch.
    restarts: u32,
}

/// The fate of an event.
enum Delivery {
    Line(Bytes),
    Skip,
    Error(io::Error),
    End,
}

impl WatchStream {
    pub(crate) fn new(hub: Arc<Hub>, process: u8, generation: u32, kind: String, body: Body) -> Self {
        let restarts = hub.server_restarts();
        let is_partial = hub.takes_truncated(process, &kind);
        Self {
            hub,
            process,
            generation,
            kind,
            body,
            received: BytesMut::new(),
            ready: VecDeque::new(),
            expires: false,
            has_ended: false,
            drops_bookmarks: false,
            is_partial,
            restarts,
        }
    }

    /// Returns the frames of the body.
    pub(crate) fn frames(self) -> impl Stream<Item = Result<Frame<Bytes>, io::Error>> + Send {
        stream::unfold(self, |mut watch| async move {
            let frame = watch.next().await?;
            watch.has_ended |= frame.is_err();
            Some((frame.map(Frame::data), watch))
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if self.has_ended {
                return None;
            }
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            let hub = self.hub.clone();
            let line = tokio::select! {
                biased;
                () = hub.server_restarted(self.restarts) => return Some(Err(io::ErrorKind::ConnectionReset.into())),
                () = hub.faults_ended(), if self.is_partial && !self.expires => return Some(Ok(self.expired())),
                line = self.line() => line?,
            };
            match self.deliver(line).await {
                Delivery::Line(line) => {
                    if !self.hub.is_alive(self.process, self.generation) {
                        return pending().await;
                    }
                    self.hub.trace(format_args!("{}@watch {}", self.process, self.kind), &line);
                    return Some(Ok(line));
                }
                Delivery::Skip => {}
                Delivery::Error(error) => return Some(Err(error)),
                Delivery::End => return None,
            }
        }
    }

    /// Returns the next line of the server.
    async fn line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                return Some(self.received.split_to(end + 1).freeze());
            }
            let frame = self.body.frame().await?;
            let Ok(data) = frame.map_err(|never| match never {}).and_then(|frame| frame.into_data().map_err(|_| ()))
            else {
                continue;
            };
            self.received.extend_from_slice(&data);
        }
    }

    async fn deliver(&mut self, line: Bytes) -> Delivery {
        if self.expires {
            return Delivery::Line(self.expired());
        }
        let event: WatchEvent = serde_json::from_slice(&line).unwrap_or_default();
        let meta = event.object.metadata;
        self.hub.until_visible(self.process, meta.revision()).await;
        match &*event.kind {
            "ADDED" | "MODIFIED" | "DELETED" => {}
            "BOOKMARK" if self.drops_bookmarks => return Delivery::Skip,
            _ => return Delivery::Line(line),
        }
        self.hub.latency(Duration::ZERO).await;
        let name = self.hub.alias(&self.kind, meta.name.as_deref().unwrap_or_default());
        let name = object_name(&self.kind, meta.namespace.as_deref(), &name);
        let (site, faults) = self.hub.cross(self.process, Port::Watch, name);
        let delivery = self.disturbed(&site, faults, line).await;
        self.hub.record_revision(site, meta.revision());
        self.hub.record_observed(self.process, &self.kind, &meta);
        delivery
    }

    /// Carries out the faults of an event.
    async fn disturbed(&mut self, site: &Site, faults: Vec<Fault>, line: Bytes) -> Delivery {
        for fault in faults {
            self.hub.trace(format_args!("{site} {fault}"), b"");
            match fault {
                Fault::Hold(seconds) => {
                    let until = self.hub.lasts(Duration::from_secs(seconds.into()));
                    sleep_until(until).await;
                }
                Fault::Coalesce(seconds) => {
                    let until = self.hub.lasts(Duration::from_secs(seconds.into()));
                    self.discard_until(until).await;
                    return Delivery::Line(self.expired());
                }
                Fault::Duplicate => self.ready.push_back(line.clone()),
                Fault::Cut => return Delivery::Error(io::ErrorKind::ConnectionReset.into()),
                Fault::Gone => return Delivery::Line(self.expired()),
                Fault::Silence => {
                    // The operator has to notice it.
                    self.hub.lasts(Duration::from_secs(330));
                    return pending().await;
                }
                Fault::Corrupt => return Delivery::Line(corrupted(&line)),
                Fault::DropBookmarks => self.drops_bookmarks = true,
                _ => {}
            }
        }
        if self.has_ended { Delivery::End } else { Delivery::Line(line) }
    }

    /// Discards all events until a time.
    async fn discard_until(&mut self, until: Instant) {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                line = self.line() => if line.is_none() {
                    return sleep(until.saturating_duration_since(Instant::now())).await;
                },
            }
        }
    }

    /// Returns the event that ends a watch with 410.
    fn expired(&mut self) -> Bytes {
        self.expires = true;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
            "reason": "Expired", "message": "injected: the resource version has expired"});
        (json!({"type": "ERROR", "object": status}).to_string() + "\n").into()
    }
}

/// Returns the first half of an event.
fn corrupted(line: &Bytes) -> Bytes {
    let mut half = BytesMut::from(&line[..line.len() / 2]);
    half.extend_from_slice(b"\n");
    half.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupted_events_are_one_line_without_an_object() {
        let line = corrupted(&Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{}}}\n"));
        assert!(line.ends_with(b"\n") && serde_json::from_slice::<serde_json::Value>(&line).is_err());
    }
}
