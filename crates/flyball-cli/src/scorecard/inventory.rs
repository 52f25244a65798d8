//! Inventory of the objects of a control plane.

use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Result, ResultExt};
use flyball_cluster::Inventory;
use http::Request;
use kube::api::{DynamicObject, ObjectList};
use kube::{Client, ResourceExt};

/// Lists all objects, named like `Pod default/web-0`.
pub(super) async fn inventory_of(client: &Client, kinds: &Kinds) -> Result<Inventory> {
    let mut found = Vec::new();
    for kind in kinds
        .all()
        .iter()
        .filter(|kind| kind.can_list && !Inventory::TRANSIENT_RESOURCES.contains(&kind.plural.as_str()))
    {
        let what = || format!("cannot list {}", kind.plural);
        let request = Request::get(kind.path(None, None)).body(Vec::new()).context(what())?;
        let list: ObjectList<DynamicObject> = client.request(request).await.context(what())?;
        found.extend(list.items.into_iter().map(|object| (display_name(kind, &object), object)));
    }
    Ok(found.iter().map(|(name, object)| (name.clone(), object)).collect())
}

fn display_name(kind: &Kind, object: &DynamicObject) -> String {
    let place = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {place}{}", kind.kind, object.name_any())
}
