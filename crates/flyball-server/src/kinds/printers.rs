//! Printers of built-in kinds: the cells of their columns.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

pub(super) mod cluster;
pub(super) mod configuration;
pub(super) mod device;
pub(super) mod event;
pub(super) mod flow;
pub(super) mod network;
pub(super) mod pod;
pub(super) mod scaling;
pub(super) mod storage;
pub(super) mod workload;

use super::printer::{NONE, Row, UNKNOWN, UNSET, View, at, first, int, list, marked, selector, text};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;
    use flyball_core::{Clock, Object};
    use serde_json::{Value, json};

    #[test]
    fn every_kind_has_a_cell_for_every_column() {
        let clock = Clock::new(|| "2026-01-02T00:00:00Z".parse().unwrap());
        let object =
            Object::try_from(json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}})).unwrap();
        for kind in built_in() {
            let row = (kind.printer)(&View { object: &object, clock: &clock });
            let extra = usize::from(kind.kind == "IPAddress");
            assert_eq!(row.cells.len(), kind.columns().len() + extra, "{}", kind.kind);
        }
    }

    #[test]
    fn selectors_are_written_by_key() {
        let check = |value: Value, text: &str| assert_eq!(selector(&value), text);
        let expressions =
            json!([{"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]);
        check(json!({"matchLabels": {"b": "1"}, "matchExpressions": expressions}), "a in (x,y),b=1,!c");
        check(Value::Null, "");
    }

    #[test]
    fn only_the_first_are_listed() {
        let texts: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!((first(&texts, 2).as_str(), first(&texts, 3).as_str()), ("a,b + 1 more...", "a,b,c"));
    }
}
