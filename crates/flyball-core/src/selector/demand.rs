//! Compiled selectors, which combine the requirements for each label or field.
//!
//! A client may send thousands of requirements, and a watch matches each change against its selector. The cost of
//! matching a compiled selector depends on the number of labels of the object, not on the length of the selector.

use super::{LabelSelector, Operator, Requirement};
use std::collections::{BTreeMap, BTreeSet};

/// The combined requirements of one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The allowed values.
    allowed: Option<BTreeSet<String>>,
    rejected: BTreeSet<String>,
    must_be_there: bool,
    must_not_be_there: bool,
    above: Option<i64>,
    below: Option<i64>,
}

impl Demand {
    /// Requires the value to equal, or to differ from, another one.
    pub fn equal(&mut self, value: &str, negated: bool) {
        if negated {
            self.rejected.insert(value.to_owned());
        } else {
            self.allow(&[value.to_owned()].into());
        }
    }

    fn allow(&mut self, values: &BTreeSet<String>) {
        match &mut self.allowed {
            Some(allowed) => allowed.retain(|value| values.contains(value)),
            None => self.allowed = Some(values.clone()),
        }
    }

    fn add(&mut self, requirement: &Requirement) {
        // A bound that is not a number matches no value.
        let bound = || requirement.values.first().and_then(|bound| bound.parse::<i64>().ok());
        match requirement.operator {
            Operator::In => self.allow(&requirement.values),
            Operator::NotIn => self.rejected.extend(requirement.values.iter().cloned()),
            Operator::Exists => self.must_be_there = true,
            Operator::DoesNotExist => self.must_not_be_there = true,
            Operator::GreaterThan => self.above = Some(bound().unwrap_or(i64::MAX).max(self.above.unwrap_or(i64::MIN))),
            Operator::LessThan => self.below = Some(bound().unwrap_or(i64::MIN).min(self.below.unwrap_or(i64::MAX))),
        }
    }

    /// Returns true if the value must exist.
    fn requires_value(&self) -> bool {
        self.allowed.is_some() || self.must_be_there || self.above.is_some() || self.below.is_some()
    }

    /// Returns true if a value, or its absence, meets the requirements.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let Some(value) = value else { return !self.requires_value() };
        let number = || value.parse::<i64>().ok();
        !self.must_not_be_there
            && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(value))
            && !self.rejected.contains(value)
            && self.above.is_none_or(|above| number().is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number().is_some_and(|number| number < below))
    }
}

/// The requirements of a selector, by label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    of: BTreeMap<String, Demand>,
    /// Number of labels that must exist.
    needed: usize,
}

impl Demands {
    /// Returns true if all objects are selected.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns true if an object with these labels is selected; each label occurs once.
    pub fn match_labels<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> bool {
        let mut found = 0;
        for (key, value) in labels {
            let Some(demand) = self.of.get(key) else { continue };
            if !demand.holds(Some(value)) {
                return false;
            }
            found += usize::from(demand.requires_value());
        }
        found == self.needed
    }
}

impl From<&LabelSelector> for Demands {
    fn from(selector: &LabelSelector) -> Self {
        let mut of: BTreeMap<String, Demand> = BTreeMap::new();
        for requirement in &selector.requirements {
            of.entry(requirement.key.clone()).or_default().add(requirement);
        }
        let needed = of.values().filter(|demand| demand.requires_value()).count();
        Self { of, needed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_holds_where_all_requirements_hold() {
        let requirements = [
            "a",
            "!a",
            "a=x",
            "a!=x",
            "a in (x,y)",
            "a notin (y,z)",
            "a>3",
            "a>7",
            "a<5",
            "a<1",
            "b",
            "!b",
            "b=x",
            "b!=",
            "b in (1,4)",
        ];
        let values = [None, Some(""), Some("x"), Some("y"), Some("4"), Some("9"), Some("-1")];
        for first in requirements {
            for second in requirements {
                for third in requirements {
                    let text = format!("{first},{second},{third}");
                    let selector = LabelSelector::parse(&text).unwrap();
                    let demands = Demands::from(&selector);
                    for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
                        let labels: Vec<(&str, &str)> = [("a", a), ("b", b), ("c", Some("x"))]
                            .into_iter()
                            .filter_map(|(k, v)| Some((k, v?)))
                            .collect();
                        let get = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
                        let expected = selector.matches(get);
                        assert_eq!(demands.match_labels(labels.iter().copied()), expected, "{text} {labels:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn equality_demands_are_combined() {
        let mut demand = Demand::default();
        assert!(demand.holds(None) && demand.holds(Some("a")));
        demand.equal("b", true);
        assert!(demand.holds(None) && demand.holds(Some("a")) && !demand.holds(Some("b")));
        demand.equal("a", false);
        assert!(!demand.holds(None) && demand.holds(Some("a")) && !demand.holds(Some("c")));
        demand.equal("c", false);
        assert!(!demand.holds(Some("a")) && !demand.holds(Some("c")));
    }
}
