//! Export of spans to a collector: OTLP over HTTP.
//!
//! The environment variables of OpenTelemetry configure the destination and the amount: see
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

use super::log::SpanLayer;
use crate::proxy::Proxies;
use crate::web::{Client, Trust};
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::fmt;
use std::pin::Pin;
use tokio::runtime::{Handle, Runtime};
use tower::BoxError;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;

/// Size limit of a collector's response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Sends spans to a collector until it is [ended](Self::end).
pub(super) struct Export(SdkTracerProvider);

impl Export {
    /// Starts the exporter if the environment sets a collector: `OTEL_EXPORTER_OTLP_ENDPOINT` or
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    pub(super) fn from_environment(service: &str, runtime: &Handle) -> Result<Option<Self>, BoxError> {
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        let named = set("OTEL_EXPORTER_OTLP_ENDPOINT") || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        if !named || std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        Self::begin(service, None, runtime).map(Some)
    }

    /// Starts the exporter, to `endpoint` or the one of the environment.
    fn begin(service: &str, endpoint: Option<&str>, runtime: &Handle) -> Result<Self, BoxError> {
        let mut exporter = SpanExporter::builder().with_http().with_http_client(Sender::new(runtime)?);
        if let Some(endpoint) = endpoint {
            exporter = exporter.with_endpoint(endpoint);
        }
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(service.to_owned());
        }
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter.build()?);
        Ok(Self(provider.with_resource(resource.build()).build()))
    }

    /// Returns a layer with all spans of this crate, independent of the log level, and those of other crates from
    /// `info` on.
    pub(super) fn layer(&self) -> SpanLayer {
        let filter = Targets::new().with_default(LevelFilter::INFO).with_target("flyball", LevelFilter::DEBUG);
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer("flyball"));
        Box::new(layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_filter(filter))
    }

    /// Sends the remaining spans. Waits at most five seconds for the collector.
    pub(super) fn end(self, runtime: &Runtime) {
        // A blocking wait on the runtime's only thread would prevent the export.
        let shut_down = runtime.spawn_blocking(move || self.0.shutdown());
        if let Ok(Err(error)) = runtime.block_on(shut_down) {
            tracing::warn!(%error, "spans were lost");
        }
    }
}

/// Sends HTTP requests from any thread, on the operator's runtime.
struct Sender {
    client: Client,
    runtime: Handle,
}

impl Sender {
    fn new(runtime: &Handle) -> Result<Self, BoxError> {
        Ok(Self { client: Client::new(Trust::System, Proxies::from_env())?, runtime: runtime.clone() })
    }
}

impl HttpClient for Sender {
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        let client = self.client.clone();
        let exchange = self.runtime.spawn(async move { client.fetch(request, MAX_RESPONSE_BYTES).await });
        Box::pin(async move { exchange.await? })
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::ObjectKey;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tracing_subscriber::layer::SubscriberExt;

    /// Accepts one request, and returns its text.
    async fn collector(listener: TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.expect("a piece");
            request.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let length =
                text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
            let head = request.windows(4).position(|end| end == b"\r\n\r\n");
            if head.zip(length).is_some_and(|(head, length)| request.len() >= head + 4 + length) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("taken");
                return String::from_utf8_lossy(&request).into_owned();
            }
        }
    }

    #[test]
    fn spans_of_a_reconcile_are_exported() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
        let collector = runtime.spawn(collector(listener));
        let export = Export::begin("site-operator", Some(&endpoint), runtime.handle()).expect("a good address");
        let subscriber = tracing_subscriber::registry().with(export.layer());
        tracing::subscriber::with_default(subscriber, || {
            let reconcile = crate::controller::span("site", "Site", &ObjectKey::new(Some("ns"), "a"), 7).entered();
            drop(tracing::debug_span!("apply", kind = "ConfigMap").entered());
            drop(tracing::debug_span!(target: "hyper", "noise").entered());
            drop(reconcile);
        });
        export.end(&runtime);
        let request = runtime.block_on(collector).expect("a request");
        assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
        for part in ["site-operator", "reconcile", "controller", "apply", "ConfigMap"] {
            assert!(request.contains(part), "no {part} in {request}");
        }
        assert!(!request.contains("noise"), "{request}");
    }
}
