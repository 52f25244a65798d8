//! Sets of paths into an object, such as the fields of a manager or the differences of two objects.

use super::path::PathElement;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A set of paths.
///
/// A path and those below it are members independently of one another: a set may hold `.spec` without `.spec.a`, and
/// the reverse. No branch is empty, so that two sets are equal exactly if they hold the same paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<PathElement, Branch>);

/// The part of a set at one element: the element itself, and the elements below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The path that ends here is in the set.
    pub member: bool,
    /// The paths below the element.
    pub below: FieldSet,
}

impl Branch {
    /// A branch of the element alone.
    pub const MEMBER: Branch = Branch { member: true, below: FieldSet(BTreeMap::new()) };

    /// Returns true if the branch holds no path.
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Creates a set without paths.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns true if there is no path in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the branches at this level, in order.
    pub fn branches(&self) -> impl Iterator<Item = (&PathElement, &Branch)> {
        self.0.iter()
    }

    /// Returns the part of the set at and below an element.
    pub fn branch(&self, element: &PathElement) -> Option<&Branch> {
        self.0.get(element)
    }

    /// Replaces the part of the set at and below an element by a branch.
    pub fn put(&mut self, element: PathElement, branch: Branch) {
        if branch.is_empty() {
            self.0.remove(&element);
        } else {
            self.0.insert(element, branch);
        }
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let branch = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            branch.member = true;
        } else {
            branch.below.insert(rest);
        }
    }

    /// Returns true if a path is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path.split_first() {
            None => false,
            Some((first, [])) => self.0.get(first).is_some_and(|branch| branch.member),
            Some((first, rest)) => self.0.get(first).is_some_and(|branch| branch.below.contains(rest)),
        }
    }

    /// Returns the paths that are in either set.
    pub fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.0 {
            let ours = self.0.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            let below = std::mem::take(&mut ours.below);
            ours.below = below.union(&theirs.below);
        }
        self
    }

    /// Returns the paths of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| Branch {
            member: ours.member && !theirs.is_some_and(|theirs| theirs.member),
            below: theirs.map_or_else(|| ours.below.clone(), |theirs| ours.below.difference(&theirs.below)),
        })
    }

    /// Returns the paths of this set that are not in the other and lie below none that is.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| match theirs {
            Some(theirs) if theirs.member => Branch::default(),
            Some(theirs) => Branch { member: ours.member, below: ours.below.recursive_difference(&theirs.below) },
            None => ours.clone(),
        })
    }

    /// Returns the paths that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| match theirs {
            Some(theirs) => {
                Branch { member: ours.member && theirs.member, below: ours.below.intersection(&theirs.below) }
            }
            None => Branch::default(),
        })
    }

    fn combine(&self, other: &Self, branch: impl Fn(&Branch, Option<&Branch>) -> Branch) -> Self {
        let combined = self.0.iter().map(|(element, ours)| (element.clone(), branch(ours, other.0.get(element))));
        Self(combined.filter(|(_, branch)| !branch.is_empty()).collect())
    }

    /// Calls `visit` with every path; paths that end at a level come before longer ones.
    pub fn each(&self, visit: &mut impl FnMut(&[PathElement])) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below(&self, path: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for (element, _) in self.0.iter().filter(|(_, branch)| branch.member) {
            path.push(element.clone());
            visit(path);
            path.pop();
        }
        for (element, branch) in &self.0 {
            path.push(element.clone());
            branch.below.each_below(path, visit);
            path.pop();
        }
    }

    /// Writes the set as `fieldsV1` holds it.
    pub fn encode(&self) -> Value {
        let branches = self.0.iter().map(|(element, branch)| {
            let mut below = branch.below.encode();
            if branch.member && !branch.below.is_empty() {
                below[".".to_owned()] = Value::Object(Map::new());
            }
            (element.encode(), below)
        });
        Value::Object(branches.collect())
    }

    /// Reads what `fieldsV1` holds; `None` if it is malformed.
    pub fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::new();
        for (key, below) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let nothing_below = below.as_object()?.is_empty();
            let branch = Branch { member: nothing_below || below.get(".").is_some(), below: Self::decode(below)? };
            // Elements of unknown kinds are skipped, as in the real server: a later release may add kinds.
            if let Some(element) = PathElement::parse(key) {
                set.put(element, branch);
            } else if key.as_bytes().get(1) != Some(&b':') || matches!(key.as_bytes()[0], b'f' | b'k' | b'v' | b'i') {
                return None;
            }
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::decode(&fields).unwrap()
    }

    #[test]
    fn members_are_independent_of_their_children() {
        let fields = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"k:{\"name\":\"x\"}": {"f:y": {}}}});
        let s = set(fields.clone());
        assert_eq!(s.encode(), fields);
        let paths = |s: &FieldSet| {
            let mut paths = Vec::new();
            s.each(&mut |path| paths.push(path.iter().map(ToString::to_string).collect::<String>()));
            paths
        };
        assert_eq!(paths(&s), [".a", ".a.b", ".c[name=\"x\"].y"]);
        assert_eq!(
            s.difference(&set(json!({"f:a": {}}))).encode(),
            json!({"f:a": {"f:b": {}}, "f:c": {"k:{\"name\":\"x\"}": {"f:y": {}}}})
        );
        assert_eq!(s.recursive_difference(&set(json!({"f:a": {}, "f:c": {}}))), FieldSet::new());
    }

    #[test]
    fn malformed_fields_are_rejected() {
        assert_eq!(FieldSet::decode(&json!({"f:a": 5})), None);
        assert_eq!(FieldSet::decode(&json!([])), None);
        assert_eq!(FieldSet::decode(&json!({"nonsense": {}})), None);
    }

    fn arbitrary() -> impl Strategy<Value = FieldSet> {
        proptest::collection::vec(proptest::collection::vec("[abc]", 1..4), 0..12).prop_map(|paths| {
            let mut set = FieldSet::new();
            for path in paths {
                set.insert(&path.iter().map(|name| PathElement::field(name)).collect::<Vec<_>>());
            }
            set
        })
    }

    proptest! {
        #[test]
        fn sets_obey_their_laws(a in arbitrary(), b in arbitrary(), c in arbitrary()) {
            let union = |x: &FieldSet, y: &FieldSet| x.clone().union(y);
            prop_assert_eq!(union(&a, &b), union(&b, &a));
            prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(union(&a.difference(&b), &a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.difference(&a), FieldSet::new());
            prop_assert_eq!(FieldSet::decode(&a.encode()), Some(a.clone()));
            a.each(&mut |path| assert!(a.contains(path)));
        }
    }
}
