//! Sets of paths into an object, such as the fields of a manager or the differences of two objects.

use super::path::PathElement;
use flyball_core::memory;
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// A set of paths.
///
/// A path and its descendants are independent members: a set may contain `.spec` without `.spec.a`, and the reverse. No
/// branch is empty, so that two sets are equal if and only if they contain the same paths.
///
/// The branches are sorted, in a vector of exactly their number: a map would use ten times the memory for objects with
/// one field each, which an object may contain by the ten thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(Vec<(PathElement, Branch)>);

/// The part of a set at one element: the element itself, and the elements below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// True if the path that ends here is in the set.
    pub member: bool,
    /// The paths below the element.
    pub below: FieldSet,
}

impl Branch {
    /// A branch with only the element.
    pub const MEMBER: Branch = Branch { member: true, below: FieldSet(Vec::new()) };

    /// Returns true if the branch holds no path.
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

/// Collects branches in any order. Of several at one element, the last one counts.
impl FromIterator<(PathElement, Branch)> for FieldSet {
    fn from_iter<I: IntoIterator<Item = (PathElement, Branch)>>(branches: I) -> Self {
        let mut all: Vec<_> = branches.into_iter().filter(|(_, branch)| !branch.is_empty()).collect();
        if !all.is_sorted_by(|(one, _), (other, _)| one < other) {
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
            all.dedup_by(|later, kept| {
                later.0 == kept.0 && {
                    std::mem::swap(later, kept);
                    true
                }
            });
        }
        all.shrink_to_fit();
        Self(all)
    }
}

impl FieldSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the branches at this level, in order.
    pub fn branches(&self) -> impl Iterator<Item = (&PathElement, &Branch)> {
        self.0.iter().map(|(element, branch)| (element, branch))
    }

    /// Returns the approximate memory in bytes of the set as JSON.
    pub(super) fn json_bytes(&self) -> usize {
        let below = self.0.iter().enumerate();
        below.map(|(count, (_, branch))| memory::entry(count) + branch.below.json_bytes()).sum()
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.cmp(element))
    }

    /// Returns the part of the set at and below an element.
    pub fn branch(&self, element: &PathElement) -> Option<&Branch> {
        self.find(element).ok().map(|at| &self.0[at].1)
    }

    /// Adds a path. Large sets are collected instead, since this moves the paths behind it.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = self.find(first).unwrap_or_else(|at| {
            self.0.insert(at, (first.clone(), Branch::default()));
            at
        });
        let branch = &mut self.0[at].1;
        if rest.is_empty() {
            branch.member = true;
        } else {
            branch.below.insert(rest);
        }
    }

    /// Returns true if the set contains a path.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path.split_first() {
            None => false,
            Some((first, [])) => self.branch(first).is_some_and(|branch| branch.member),
            Some((first, rest)) => self.branch(first).is_some_and(|branch| branch.below.contains(rest)),
        }
    }

    /// Returns the union of two sets.
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return if self.is_empty() { other } else { self };
        }
        let (mut ours, mut theirs) = (self.0.into_iter().peekable(), other.0.into_iter().peekable());
        let next = std::iter::from_fn(|| {
            let (Some((our, _)), Some((their, _))) = (ours.peek(), theirs.peek()) else {
                return ours.next().or_else(|| theirs.next());
            };
            match our.cmp(their) {
                Ordering::Less => ours.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => {
                    let ((element, our), (_, their)) = ours.next().zip(theirs.next())?;
                    Some((element, Branch { member: our.member || their.member, below: our.below.union(their.below) }))
                }
            }
        });
        next.collect()
    }

    /// Returns the union of many sets. Those of similar sizes are united first, so that no path is moved once for each
    /// set.
    pub fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut sets: Vec<Self> = sets.into_iter().collect();
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            sets = std::iter::from_fn(|| Some(rest.next()?.union(rest.next().unwrap_or_default()))).collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// Returns the difference of two sets: the paths that are not in the other.
    pub fn difference(self, other: &Self) -> Self {
        self.without(other, |ours, theirs| Branch {
            member: ours.member && !theirs.member,
            below: ours.below.difference(&theirs.below),
        })
    }

    /// Returns the paths that are not in the other set and not below one of its paths.
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.without(other, |ours, theirs| match theirs.member {
            true => Branch::default(),
            false => Branch { member: ours.member, below: ours.below.recursive_difference(&theirs.below) },
        })
    }

    /// Replaces the branches that both sets have.
    fn without(self, other: &Self, remaining: impl Fn(Branch, &Branch) -> Branch) -> Self {
        if other.is_empty() {
            return self;
        }
        let mut theirs = other.at_each();
        let branches = self.0.into_iter().map(|(element, ours)| {
            let branch = match theirs(&element) {
                Some(theirs) => remaining(ours, theirs),
                None => ours,
            };
            (element, branch)
        });
        branches.collect()
    }

    /// Returns the intersection of two sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut theirs = other.at_each();
        let branches = self.0.iter().filter_map(|(element, ours)| {
            let theirs = theirs(element)?;
            let below = ours.below.intersection(&theirs.below);
            Some((element.clone(), Branch { member: ours.member && theirs.member, below }))
        });
        branches.collect()
    }

    /// Returns a function that finds the branch at an element, for elements in order. The search for an element takes
    /// the logarithm of the number of skipped branches: each of thousands of managers may own one of a large set.
    fn at_each<'s>(&'s self) -> impl FnMut(&PathElement) -> Option<&'s Branch> {
        let mut rest = self.0.as_slice();
        move |element| {
            let mut bound = 1;
            while rest.get(bound - 1).is_some_and(|(own, _)| own < element) {
                bound *= 2;
            }
            let skipped = rest[..rest.len().min(bound)].partition_point(|(own, _)| own < element);
            rest = &rest[skipped..];
            rest.first().filter(|(own, _)| own == element).map(|(_, branch)| branch)
        }
    }

    /// Calls `visit` with every path; shorter paths come before longer ones.
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

    /// Encodes the set as `fieldsV1`.
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

    /// Decodes a set from `fieldsV1`; `None` if it is malformed.
    pub fn decode(fields: &Value) -> Option<Self> {
        let mut branches = Vec::new();
        for (key, below) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let nothing_below = below.as_object()?.is_empty();
            let branch = Branch { member: nothing_below || below.get(".").is_some(), below: Self::decode(below)? };
            // Elements of unknown types are skipped, as in kube-apiserver, because a later release may add types.
            if let Some(element) = PathElement::parse(key) {
                branches.push((element, branch));
            } else if key.as_bytes().get(1) != Some(&b':') || matches!(key.as_bytes()[0], b'f' | b'k' | b'v' | b'i') {
                return None;
            }
        }
        Some(branches.into_iter().collect())
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
            s.clone().difference(&set(json!({"f:a": {}}))).encode(),
            json!({"f:a": {"f:b": {}}, "f:c": {"k:{\"name\":\"x\"}": {"f:y": {}}}})
        );
        assert_eq!(s.recursive_difference(&set(json!({"f:a": {}, "f:c": {}}))), FieldSet::new());
    }

    #[test]
    fn branches_are_collected_in_any_order() {
        let branch = |name: &str, below: &[&str]| {
            let below = below.iter().map(|name| (PathElement::field(name), Branch::MEMBER)).collect();
            (PathElement::field(name), Branch { member: false, below })
        };
        let collected: FieldSet =
            [branch("b", &["x"]), branch("c", &[]), branch("a", &["z", "y"]), branch("b", &["w"])]
                .into_iter()
                .collect();
        assert_eq!(collected.encode(), json!({"f:a": {"f:y": {}, "f:z": {}}, "f:b": {"f:w": {}}}));
        assert_eq!(collected.0.capacity(), 2);
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
            let union = |x: &FieldSet, y: &FieldSet| x.clone().union(y.clone());
            let difference = |x: &FieldSet, y: &FieldSet| x.clone().difference(y);
            prop_assert_eq!(union(&a, &b), union(&b, &a));
            prop_assert_eq!(union(&union(&a, &b), &c), union(&a, &union(&b, &c)));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(union(&difference(&a, &b), &a.intersection(&b)), a.clone());
            prop_assert!(difference(&a, &b).intersection(&b).is_empty());
            prop_assert_eq!(difference(&a, &a), FieldSet::new());
            prop_assert_eq!(FieldSet::decode(&a.encode()), Some(a.clone()));
            a.each(&mut |path| assert!(a.contains(path)));
        }
    }
}
