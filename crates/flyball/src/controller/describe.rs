//! A controller as data.

use super::Declaration;
use super::sources::Map;
use crate::description::ControllerDescription;

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
