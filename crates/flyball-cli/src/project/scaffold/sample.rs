//! Samples: manifests that show a kind, and that tests apply.

use crate::error::{Error, Result};
use serde_json::Value;

/// Returns the name of the object of a sample.
pub(crate) fn name_of(sample: &str, file: &str) -> Result<String> {
    let read: Option<Value> =
        serde_saphyr::from_multiple(sample).ok().and_then(|all: Vec<Value>| all.into_iter().next());
    let name = read.as_ref().and_then(|object| object["metadata"]["name"].as_str());
    name.map(str::to_owned).ok_or_else(|| {
        Error::new(format!("the first object of config/samples/{file} has no name"))
            .hint("set metadata.name; the tests apply the sample and read it back")
    })
}
