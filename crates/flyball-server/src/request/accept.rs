//! Content negotiation: the form of a response.

use flyball_core::Status;
use flyball_core::status::{Details, Reason};
use serde_json::Value;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// The view of an object in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it.
    Whole,
    /// Rows and columns.
    Table,
    /// Its metadata alone.
    Metadata,
    /// The metadata of each object of a list.
    MetadataList,
}

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
    /// True if the view is requested in its old version, `v1beta1`.
    pub(crate) beta: bool,
}

impl Form {
    /// The default form of responses, mostly errors.
    pub(crate) const PLAIN: Form = Form { encoding: Encoding::Json, view: View::Whole, beta: false };

    pub(crate) fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }

    /// Sets the requested version of a view and of its items.
    pub(crate) fn versioned(self, mut view: Value) -> Value {
        if self.beta {
            for (list, inner) in [("items", ""), ("rows", "/object")] {
                for item in view.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(shown) =
                        item.pointer_mut(inner).filter(|shown| shown["kind"] == "PartialObjectMetadata")
                    {
                        shown["apiVersion"] = "meta.k8s.io/v1beta1".into();
                    }
                }
            }
            view["apiVersion"] = "meta.k8s.io/v1beta1".into();
            if view["rows"].as_array().is_some_and(Vec::is_empty) {
                view["rows"] = Value::Null;
            }
        }
        view
    }
}

/// One clause of an `Accept` header.
struct Clause<'h> {
    media: &'h str,
    parameters: Vec<(&'h str, &'h str)>,
    quality: f32,
}

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let parameters: Vec<(&str, &str)> =
                parts.filter_map(|part| part.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
            let quality =
                parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0);
            Some(Clause { media, parameters, quality })
        })
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// The media types of responses with objects, as in messages.
pub(crate) const BUILT_IN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The media types for custom resources.
pub(crate) const CUSTOM: &str = "application/json, application/yaml";
/// The media types of watches.
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

fn encoding(media: &str) -> Option<Encoding> {
    match media {
        "application/json" | "*/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        _ => None,
    }
}

/// Selects the form of the response to a request for objects.
///
/// `offered` is the list in a rejection. Binary encodings are never selected, although they are in the list: clients
/// that prefer one also accept JSON.
pub(crate) fn negotiate(header: Option<&str>, offered: &str) -> Result<Form, Status> {
    choose(header, |_| true)
        .map_err(|known_media| if known_media { unsuitable(BUILT_IN) } else { not_acceptable(offered) })
}

/// Chooses the form of a list. The error of unknown media types lists those of watches, too.
pub(crate) fn negotiate_list(header: Option<&str>, offered: &str) -> Result<Form, Status> {
    choose(header, |_| true).map_err(|known| if known { unsuitable(BUILT_IN) } else { not_listable(offered) })
}

/// Chooses the form of the events of a watch, which are never YAML.
pub(crate) fn negotiate_watch(header: Option<&str>, offered: &str) -> Result<Form, Status> {
    choose(header, |encoding| encoding == Encoding::Json)
        .map_err(|known| if known { unsuitable(STREAMS) } else { not_listable(offered) })
}

fn not_listable(offered: &str) -> Status {
    not_acceptable(&if offered == BUILT_IN { format!("{BUILT_IN}, {STREAMS}") } else { offered.to_owned() })
}

/// Returns the 406 for a request whose known media types are not supported at this endpoint.
fn unsuitable(types: &str) -> Status {
    let message = format!("only the following media types are accepted: {types}");
    Status::new(406, Reason::NotAcceptable, message)
}

/// Chooses the form of a response in an acceptable encoding; `Err` is true if any encoding was known.
fn choose(header: Option<&str>, suits: impl Fn(Encoding) -> bool) -> Result<Form, bool> {
    let header = header.map(str::trim).filter(|header| !header.is_empty()).unwrap_or("*/*");
    let mut known_media = false;
    for clause in clauses(header) {
        let Some(encoding) = encoding(clause.media) else { continue };
        known_media = true;
        if !suits(encoding) {
            continue;
        }
        let parameter =
            |name: &str| clause.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let version_known = parameter("g").is_none_or(|g| g == "meta.k8s.io")
            && parameter("v").is_none_or(|v| matches!(v, "v1" | "v1beta1"));
        let view = match parameter("as") {
            None => View::Whole,
            Some("Table") if version_known => View::Table,
            Some("PartialObjectMetadata") if version_known => View::Metadata,
            Some("PartialObjectMetadataList") if version_known => View::MetadataList,
            Some(_) => continue,
        };
        return Ok(Form { encoding, view, beta: view != View::Whole && parameter("v") == Some("v1beta1") });
    }
    Err(known_media)
}

/// Rejects a request without an acceptable media type.
pub(crate) fn not_acceptable(offered: &str) -> Status {
    Status::new(406, Reason::NotAcceptable, format!("406: Not Acceptable\n\nAvailable representations: {offered}"))
        .with_details(Details::default())
}

/// The form of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// OpenAPI v3: a document for each group version.
    Plain,
    /// All of it in one document.
    Aggregated,
}

/// Chooses the form of discovery; `None` if no form is acceptable.
pub(crate) fn negotiate_discovery(header: Option<&str>) -> Option<Discovery> {
    let header = header.map(str::trim).filter(|header| !header.is_empty()).unwrap_or("*/*");
    clauses(header).into_iter().find_map(|clause| {
        encoding(clause.media)?;
        let parameter =
            |name: &str| clause.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match (parameter("as"), parameter("g"), parameter("v")) {
            (None, None, None) => Some(Discovery::Plain),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(Discovery::Aggregated),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(header: &str) -> Result<Form, u16> {
        negotiate(Some(header), BUILT_IN).map_err(|status| status.code)
    }

    #[test]
    fn media_types_are_chosen_by_quality_then_order() {
        let json = Form { encoding: Encoding::Json, view: View::Whole, beta: false };
        let yaml = Form { encoding: Encoding::Yaml, view: View::Whole, beta: false };
        assert_eq!(chosen(""), Ok(json));
        assert_eq!(chosen("text/html,*/*;q=0.8"), Ok(json));
        assert_eq!(chosen("application/yaml;q=0.5,application/json;q=0.9"), Ok(json));
        assert_eq!(chosen("application/yaml, application/json"), Ok(yaml));
        assert_eq!(chosen("application/vnd.kubernetes.protobuf,application/json"), Ok(json));
        assert_eq!(chosen("text/html"), Err(406));
        assert_eq!(chosen("application/*"), Err(406));
    }

    #[test]
    fn views_are_versioned() {
        assert_eq!(chosen("application/json;as=Table;v=v1;g=meta.k8s.io").unwrap().view, View::Table);
        assert_eq!(chosen("application/json;as=Table;v=v9;g=meta.k8s.io"), Err(406));
        assert_eq!(chosen("application/json;as=Table;v=v9;g=meta.k8s.io,application/json").unwrap().view, View::Whole);
    }
}
