//! A controller as data.

use super::Declaration;
use super::sources::Map;
use serde::{Deserialize, Serialize};

/// One controller. Kinds are written as `plural.version.group`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerDescription {
    /// Its name.
    pub name: String,
    /// The kind that it reconciles.
    pub reconciles: String,
    /// The kinds that it makes.
    #[serde(default)]
    pub owns: Vec<String>,
    /// The kinds whose changes wake it.
    #[serde(default)]
    pub watches: Vec<String>,
    /// The finalizer that it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// How many objects it reconciles at the same time.
    pub concurrency: usize,
}

impl Declaration {
    pub(crate) fn describe(&self) -> ControllerDescription {
        let kinds = |is: fn(&Map) -> bool| -> Vec<String> {
            self.maps.iter().filter(|(_, map)| is(map)).map(|(kind, _)| kind.qualified()).collect()
        };
        ControllerDescription {
            name: self.name.clone(),
            reconciles: self.primary.qualified(),
            owns: kinds(|map| matches!(map, Map::Owner)),
            watches: kinds(|map| !matches!(map, Map::Primary | Map::Owner)),
            finalizer: self.finalizer.as_deref().map(str::to_owned),
            concurrency: self.concurrency,
        }
    }
}
