//! The log of a program: one line per event, as text for people or as JSON for machines.

use clap::ValueEnum;
use serde_json::{Map, Value};
use std::fmt;
use std::io::IsTerminal;
use tracing::dispatcher::{Dispatch, set_global_default};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// A layer that exports spans.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts the log of this program, on standard error, and the export of its spans.
pub(super) fn start(format: Format, verbose: u8, spans: Option<SpanLayer>) {
    let level = match verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Messages of the HTTP client are only logged with -vv: the sender of the request reports its failure.
    let quiet = if verbose < 2 { LevelFilter::OFF } else { level };
    let targets = ["hyper_util", "kube_client", "rustls", "tower"].map(|target| (target, quiet));
    let usual = Targets::new().with_default(level).with_targets(targets);
    let (filter, wrong) = match std::env::var("RUST_LOG").map(|text| text.parse()) {
        Ok(Ok(filter)) => (filter, None),
        Ok(Err(error)) => (usual, Some(error)),
        Err(_) => (usual, None),
    };
    // See https://no-color.org.
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let plain = set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb");
    let colors = !plain && std::io::stderr().is_terminal();
    // An embedded operator may have a log already.
    let _ = set_global_default(log(format, filter, colors, std::io::stderr, spans));
    if let Some(error) = wrong {
        tracing::warn!(%error, "ignoring the invalid RUST_LOG");
    }
}

fn log(
    format: Format,
    filter: Targets,
    colors: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    spans: Option<SpanLayer>,
) -> Dispatch {
    let registry = tracing_subscriber::registry().with(spans);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Text => registry.with(lines.with_ansi(colors).with_filter(filter)).into(),
        Format::Json => {
            registry.with(lines.fmt_fields(JsonFields::new()).event_format(Json).with_filter(filter)).into()
        }
    }
}

/// Writes one JSON object per line. The fields of the reconcile are at the same level as those of the event, where
/// log search tools expect them.
struct Json;

impl<S> FormatEvent<S, JsonFields> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = Map::new();
        line.insert("timestamp".into(), time.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("target".into(), event.metadata().target().into());
        let mut add = |fields: &str| {
            line.extend(serde_json::from_str::<Map<String, Value>>(fields).unwrap_or_default());
        };
        for span in cx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>() {
                add(fields);
            }
        }
        let mut fields = String::new();
        cx.field_format().format_fields(Writer::new(&mut fields), event)?;
        add(&fields);
        writeln!(writer, "{}", Value::Object(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::ObjectKey;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::io::Write;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the output of a reconcile with log level warn.
    fn written(format: Format) -> String {
        let (lines, filter) = (Lines::default(), "warn".parse().expect("a filter"));
        let writer = lines.clone();
        tracing::dispatcher::with_default(&log(format, filter, false, move || writer.clone(), None), || {
            let _span = crate::controller::span("site", "Site", &ObjectKey::new(Some("ns"), "a"), 7).entered();
            tracing::info!("not told");
            tracing::warn!(failures = 1, "failed: no");
        });
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn text_log_line_names_controller_and_object() {
        let text = written(Format::Text);
        let fields = r#"reconcile{controller="site" kind="Site" namespace="ns" name="a" id=0000000000000007}"#;
        assert!(text.contains(&format!(" WARN {fields}: ")) && text.ends_with("failed: no failures=1\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn json_log_line_names_controller_and_object() {
        let mut line: Value = serde_json::from_str(&written(Format::Json)).expect("one line of JSON");
        let time = line.as_object_mut().and_then(|line| line.remove("timestamp"));
        assert!(time.is_some_and(|time| time.as_str().is_some_and(|time| time.ends_with('Z'))));
        let expected = json!({
            "level": "WARN", "target": "flyball::operator::log::tests", "message": "failed: no", "failures": 1,
            "controller": "site", "kind": "Site", "namespace": "ns", "name": "a", "id": "0000000000000007",
        });
        assert_eq!(line, expected);
    }
}
