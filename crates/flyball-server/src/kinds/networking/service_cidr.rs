//! Service CIDRs, which are stored and allocated from nowhere.

use super::GROUP;
use crate::kinds::kind::{Kind, Subresource as Sub};
use crate::kinds::printer::{Row, View};
use serde_json::Value;

pub(super) static KIND: Kind =
    Kind::new(GROUP, "v1", "ServiceCIDR", "servicecidrs").printed(row).cluster().subresources(&[Sub::STATUS]);

fn row(view: &View<'_>) -> Row {
    let blocks: Vec<&str> = view.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    Row::from([view.name(), blocks.join(",").into(), view.age()])
}
