//! Service CIDRs, which are stored but have no effect.

use super::GROUP;
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::address;
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ServiceCIDR", "servicecidrs")
    .printed(COLUMNS, row)
    .validate(validate)
    .cluster()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "CIDRs",
        "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to \
         assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
    ),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let blocks = spec.at("cidrs");
    if let Some(old) = old {
        let changed = blocks.unchanged_from(&Field::root(old).at("spec.cidrs"));
        return changed.filter(|_| part == Part::Whole).into_iter().collect();
    }
    let reject = |why: &str| vec![blocks.invalid_as(internal("ServiceCIDRSpec", spec.value()), why)];
    match blocks.len() {
        0 => vec![blocks.required("at least one CIDR required")],
        1 => blocks.items().flat_map(|block| address::check_block(&block)).collect(),
        2 if is_dual_stack(&blocks) => blocks.items().flat_map(|block| address::check_block(&block)).collect(),
        2 => reject("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"),
        _ => reject("may only hold up to 2 values"),
    }
}

/// Returns true if there is one valid block of each family.
fn is_dual_stack(blocks: &Field<'_>) -> bool {
    let addresses: Option<Vec<_>> = blocks.texts().map(|text| Some(address::parse_block(text)?.address)).collect();
    addresses.is_some_and(|all| matches!(&all[..], [one, other] if one.is_ipv6() != other.is_ipv6()))
}

fn row(view: &View<'_>) -> Row {
    let blocks: Vec<&str> = view.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    Row::from([view.name(), blocks.join(",").into(), view.age()])
}
