//! Service CIDRs, which are stored but have no effect.

use super::GROUP;
use crate::kinds::kind::{Kind, Subresource as Sub};
use crate::kinds::printer::{Heading, Row, View};
use serde_json::Value;

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "ServiceCIDR", "servicecidrs").printed(COLUMNS, row).cluster().subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "CIDRs",
        "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to \
         assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
    ),
    Heading::AGE,
];

fn row(view: &View<'_>) -> Row {
    let blocks: Vec<&str> = view.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    Row::from([view.name(), blocks.join(",").into(), view.age()])
}
