//! Coverage: the permissions of some rules that other rules do not grant.
//!
//! A rule grants a product: each verb on each resource of each group, for each name. A few kilobytes can grant
//! billions, so permissions are enumerated only once they are known to be missing. Each verb, group, resource and name
//! is looked up once in the held rules, which results in a set of rules; a permission is held if one rule is in all of
//! its sets. The work and the message are bounded.

use super::Rule;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum cost of a comparison, in words of sets.
const MAX_WORK: usize = 4 << 20;

/// Maximum number of missing permissions that are listed.
const MAX_LISTED: usize = 10_000;

/// Maximum size of the message, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// The permissions that are not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingRules {
    /// Nothing.
    Nothing,
    /// A list, one per line, as in the messages of errors.
    Rules(Vec<String>),
    /// There are too many permissions to compare.
    TooMany,
}

/// A set of the rules that are held.
type Set = Vec<u64>;

/// The held rules, by the values of one of their fields.
struct RuleIndex<'r> {
    words: usize,
    /// Rules that contain a text, for each requested text.
    saying: BTreeMap<&'r str, Set>,
    /// Rules with `*`.
    any: Set,
}

impl<'r> RuleIndex<'r> {
    /// Indexes one field of the held rules for the requested texts; `None` if that exceeds the work limit.
    fn read<'h>(
        requested: impl Iterator<Item = &'r str>,
        held_rules: &[&'h Rule],
        place: impl Fn(&'h Rule) -> &'h [String],
        work: &mut usize,
    ) -> Option<Self> {
        let words = held_rules.len().div_ceil(64);
        let requested: BTreeSet<&str> = requested.collect();
        *work = work.checked_sub(requested.len().checked_mul(words)?)?;
        let saying = requested.into_iter().map(|text| (text, vec![0; words])).collect();
        let mut read = Self { words, saying, any: vec![0; words] };
        for (at, rule) in held_rules.iter().enumerate() {
            for text in place(rule) {
                if text == "*" {
                    read.any[at / 64] |= 1 << (at % 64);
                } else if let Some(set) = read.saying.get_mut(&**text) {
                    set[at / 64] |= 1 << (at % 64);
                }
            }
        }
        Some(read)
    }

    /// Returns the rules with a text or `*`.
    fn covering(&self, text: &str) -> Set {
        match self.saying.get(text) {
            Some(set) => set.iter().zip(&self.any).map(|(one, any)| one | any).collect(),
            None => self.any.clone(),
        }
    }

    /// Returns the rules with exactly this text.
    fn exactly(&self, text: &str) -> Set {
        self.saying.get(text).cloned().unwrap_or_else(|| vec![0; self.words])
    }
}

/// One permission: a verb on a resource of a group, perhaps by name; or a verb on a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Subject<'r> {
    group: Option<&'r str>,
    resource: Option<&'r str>,
    name: Option<&'r str>,
    path: Option<&'r str>,
}

/// The search for missing permissions.
struct Search<'r> {
    work: usize,
    listed: usize,
    missing: BTreeMap<Subject<'r>, Vec<&'r str>>,
}

/// The reason why a search ends early.
enum End {
    /// The work limit is exceeded.
    Work,
    /// Enough missing permissions are listed.
    ListResult,
}

impl<'r> Search<'r> {
    /// Searches a product of texts, each with the rules that cover it.
    fn product(
        &mut self,
        lists: &[&[(Option<&'r str>, Set)]],
        verbs: &[(&'r str, Set)],
        subject: impl Fn(&[Option<&'r str>]) -> Subject<'r>,
    ) -> Result<(), End> {
        if lists.iter().any(|list| list.is_empty()) || verbs.is_empty() {
            return Ok(());
        }
        let words = verbs[0].1.len();
        let sets =
            || lists.iter().flat_map(|list| list.iter().map(|(_, set)| set)).chain(verbs.iter().map(|(_, set)| set));
        if (0..words).any(|word| sets().fold(u64::MAX, |all, set| all & set[word]) != 0) {
            // One rule covers the whole product.
            return Ok(());
        }
        let mut at = vec![0; lists.len()];
        loop {
            let cost = (verbs.len() * (words + 1)).saturating_add(lists.len() * words);
            self.work = self.work.checked_sub(cost).ok_or(End::Work)?;
            let chosen: Vec<&(Option<&'r str>, Set)> = at.iter().zip(lists).map(|(at, list)| &list[*at]).collect();
            let common: Set =
                (0..words).map(|word| chosen.iter().fold(u64::MAX, |all, (_, set)| all & set[word])).collect();
            for (verb, set) in verbs {
                if common.iter().zip(set).any(|(common, verb)| common & verb != 0) {
                    continue;
                }
                if self.listed == MAX_LISTED {
                    return Err(End::ListResult);
                }
                self.listed += 1;
                let texts: Vec<Option<&str>> = chosen.iter().map(|(text, _)| *text).collect();
                self.missing.entry(subject(&texts)).or_default().push(verb);
            }
            // The last list varies fastest.
            let Some(moving) = (0..at.len()).rev().find(|list| at[*list] + 1 < lists[*list].len()) else {
                return Ok(());
            };
            at[moving] += 1;
            at[moving + 1..].fill(0);
        }
    }
}

/// Returns the permissions of some rules that no held rule grants.
pub(crate) fn missing(rules: &[Rule], held_rules: &[&Rule]) -> MissingRules {
    let mut search = Search { work: MAX_WORK, listed: 0, missing: BTreeMap::new() };
    match find_missing(&mut search, rules, held_rules) {
        Err(End::Work) => return MissingRules::TooMany,
        Ok(()) if search.missing.is_empty() => return MissingRules::Nothing,
        Ok(()) | Err(End::ListResult) => {}
    }
    let one = |text: Option<&str>| text.map(str::to_owned).into_iter().collect();
    let lines = search.missing.into_iter().map(|(subject, verbs)| Rule {
        groups: one(subject.group),
        resources: one(subject.resource),
        names: one(subject.name),
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        paths: one(subject.path),
    });
    let (mut printed, mut left_out, mut bytes) = (Vec::new(), 0, 0);
    for rule in lines {
        // Omitted permissions are not printed.
        let size: usize = [&rule.groups, &rule.resources, &rule.names, &rule.verbs, &rule.paths]
            .into_iter()
            .flatten()
            .map(|text| text.len() + 3)
            .sum();
        if bytes + size > MAX_TEXT {
            left_out += 1;
            continue;
        }
        bytes += size;
        printed.push(rule.to_string());
    }
    printed.sort();
    if search.listed == MAX_LISTED {
        printed.push("and more".into());
    } else if left_out > 0 {
        printed.push(format!("and {left_out} more"));
    }
    MissingRules::Rules(printed)
}

fn find_missing<'r>(search: &mut Search<'r>, rules: &'r [Rule], held_rules: &[&Rule]) -> Result<(), End> {
    let requested = |place: fn(&Rule) -> &[String]| rules.iter().flat_map(place).map(String::as_str);
    let work = &mut search.work;
    let verbs =
        RuleIndex::read(requested(|rule| &rule.verbs), held_rules, |rule| &rule.verbs, work).ok_or(End::Work)?;
    let groups =
        RuleIndex::read(requested(|rule| &rule.groups), held_rules, |rule| &rule.groups, work).ok_or(End::Work)?;
    let names =
        RuleIndex::read(requested(|rule| &rule.names), held_rules, |rule| &rule.names, work).ok_or(End::Work)?;
    // `*/scale` covers `pods/scale`.
    let any_of = |resource: &str| resource.split_once('/').map(|(_, part)| format!("*/{part}"));
    let wide: Vec<String> = requested(|rule| &rule.resources).filter_map(any_of).collect();
    let all = requested(|rule| &rule.resources).chain(wide.iter().map(String::as_str));
    let resources = RuleIndex::read(all, held_rules, |rule| &rule.resources, work).ok_or(End::Work)?;
    let path_sets = path_sets(rules, held_rules, work).ok_or(End::Work)?;
    let words = held_rules.len().div_ceil(64);
    let mut unnamed: Set = vec![0; words];
    for (at, _) in held_rules.iter().enumerate().filter(|(_, rule)| rule.names.is_empty()) {
        unnamed[at / 64] |= 1 << (at % 64);
    }
    let or = |mut one: Set, other: &Set| {
        one.iter_mut().zip(other).for_each(|(one, other)| *one |= other);
        one
    };
    for rule in rules {
        let texts = rule.verbs.len() + rule.groups.len() + rule.resources.len() + rule.names.len() + rule.paths.len();
        search.work = search.work.checked_sub(texts.saturating_mul(words + 1)).ok_or(End::Work)?;
        let of = |list: &'r [String], set: &dyn Fn(&str) -> Set| -> Vec<(Option<&'r str>, Set)> {
            list.iter().map(|text| (Some(&**text), set(text))).collect()
        };
        let all_verbs: Vec<(&str, Set)> = rule.verbs.iter().map(|verb| (&**verb, verbs.covering(verb))).collect();
        let all_groups = of(&rule.groups, &|group| groups.covering(group));
        let all_resources = of(&rule.resources, &|resource| match any_of(resource) {
            Some(any) => or(resources.covering(resource), &resources.exactly(&any)),
            None => resources.covering(resource),
        });
        let all_names = match &rule.names[..] {
            [] => vec![(None, unnamed.clone())],
            list => of(list, &|name| or(names.exactly(name), &unnamed)),
        };
        search.product(&[&all_groups, &all_resources, &all_names], &all_verbs, |texts| Subject {
            group: texts[0],
            resource: texts[1],
            name: texts[2],
            path: None,
        })?;
        let all_paths = of(&rule.paths, &|path| path_sets.get(path).cloned().unwrap_or_else(|| vec![0; words]));
        search.product(&[&all_paths], &all_verbs, |texts| Subject {
            group: None,
            resource: None,
            name: None,
            path: texts[0],
        })?;
    }
    Ok(())
}

/// Returns the rules that grant each requested path, exactly or by a prefix.
fn path_sets<'r>(rules: &'r [Rule], held_rules: &[&Rule], work: &mut usize) -> Option<BTreeMap<&'r str, Set>> {
    let requested: BTreeSet<&str> = rules.iter().flat_map(|rule| &rule.paths).map(String::as_str).collect();
    let known: usize = held_rules.iter().map(|rule| rule.paths.len()).sum();
    *work = work.checked_sub(requested.len().checked_mul(held_rules.len().div_ceil(64) + known)?)?;
    let sets = requested.into_iter().map(|path| {
        let mut set = vec![0; held_rules.len().div_ceil(64)];
        for (at, rule) in held_rules.iter().enumerate() {
            let gives = |known: &String| {
                known == path || known.strip_suffix('*').is_some_and(|beginning| path.starts_with(beginning))
            };
            if rule.paths.iter().any(gives) {
                set[at / 64] |= 1 << (at % 64);
            }
        }
        (path, set)
    });
    Some(sets.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Rule {
        Rule::read(&json!({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs}))
    }

    fn paths(paths: &[&str], verbs: &[&str]) -> Rule {
        Rule::read(&json!({"nonResourceURLs": paths, "verbs": verbs}))
    }

    fn report(rules: &[Rule], held: &[Rule]) -> String {
        match missing(rules, &held.iter().collect::<Vec<_>>()) {
            MissingRules::Nothing => String::new(),
            MissingRules::Rules(lines) => lines.join("\n"),
            MissingRules::TooMany => "too many".into(),
        }
    }

    #[test]
    fn rules_are_covered_by_several_rules_together() {
        let held = [
            rule(&[""], &["pods", "*/scale"], &[], &["get"]),
            rule(&["apps"], &["*"], &[], &["*"]),
            rule(&[""], &["secrets"], &["mine"], &["get", "list"]),
            paths(&["/metrics", "/apis/*"], &["get"]),
        ];
        let cases = [
            (rule(&[""], &["pods"], &[], &["get"]), ""),
            (rule(&["", "apps"], &["pods"], &["any"], &["get"]), ""),
            (
                rule(&[""], &["pods", "secrets"], &[], &["get"]),
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
            ),
            (rule(&[""], &["web/scale"], &[], &["get"]), ""),
            (rule(&[""], &["pods/log"], &[], &["get"]), r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#),
            (rule(&[""], &["secrets"], &["mine"], &["get", "list"]), ""),
            (
                rule(&[""], &["secrets"], &["mine", "its"], &["list", "get"]),
                r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["its"], Verbs:["list" "get"]}"#,
            ),
            (rule(&["*"], &["pods"], &[], &["get"]), r#"{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}"#),
            (rule(&["apps"], &["*"], &[], &["*"]), ""),
            (paths(&["/metrics", "/apis/apps"], &["get"]), ""),
            (paths(&["/apis/*", "/"], &["get"]), r#"{NonResourceURLs:["/"], Verbs:["get"]}"#),
            (rule(&[], &["pods"], &[], &["delete"]), ""),
        ];
        for (rule, expected) in cases {
            assert_eq!(report(std::slice::from_ref(&rule), &held), expected, "{rule}");
        }
    }

    #[test]
    fn coverage_equals_a_check_of_each_permission() {
        let texts = |all: &[&'static str], bits: usize| -> Vec<&'static str> {
            all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, text)| *text).collect()
        };
        let generated = |bits: usize| {
            rule(
                &texts(&["", "*"], bits | 1),
                &texts(&["a", "b/c", "*/c"], bits >> 2),
                &texts(&["x", "y"], bits >> 5),
                &texts(&["get", "*"], bits >> 7),
            )
        };
        let covers = |held: &Rule, group: &str, resource: &str, name: Option<&String>, verb: &str| {
            let has = |list: &[String], text: &str| list.iter().any(|known| known == "*" || known == text);
            let any = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
            has(&held.groups, group)
                && (has(&held.resources, resource) || any.is_some_and(|any| held.resources.contains(&any)))
                && (held.names.is_empty() || name.is_some_and(|name| held.names.contains(name)))
                && has(&held.verbs, verb)
        };
        for seed in 0..3000_usize {
            let (requested, held) =
                (generated(seed * 7 % 512), [generated(seed * 13 % 512), generated(seed * 101 % 509)]);
            let mut is_missing = false;
            let names: Vec<Option<&String>> =
                if requested.names.is_empty() { vec![None] } else { requested.names.iter().map(Some).collect() };
            for (group, resource) in
                requested.groups.iter().flat_map(|group| requested.resources.iter().map(move |r| (group, r)))
            {
                for (name, verb) in names.iter().flat_map(|name| requested.verbs.iter().map(move |verb| (name, verb))) {
                    is_missing |= !held.iter().any(|held| covers(held, group, resource, *name, verb));
                }
            }
            assert_eq!(
                missing(std::slice::from_ref(&requested), &held.each_ref()) != MissingRules::Nothing,
                is_missing,
                "{requested} {held:?}"
            );
        }
    }

    #[test]
    fn missing_rules_are_reported_within_a_bound() {
        let many = |letter: char, count: usize| -> Value { (0..count).map(|n| format!("{letter}{n}")).collect() };
        for count in [20, 100, 1000, 30_000] {
            let requested = Rule::read(&json!({
                "apiGroups": many('g', count), "resources": many('r', count), "verbs": many('v', count),
                "resourceNames": many('n', count),
            }));
            let MissingRules::Rules(lines) = missing(std::slice::from_ref(&requested), &[]) else { panic!("{count}") };
            assert!(
                lines.concat().len() < 2 * MAX_TEXT && lines.last().is_some_and(|line| line == "and more"),
                "{count}"
            );
            // All are held except one, which must be found.
            let mut held = requested.clone();
            held.names.pop();
            assert_ne!(missing(std::slice::from_ref(&requested), &[&held]), MissingRules::Nothing);
            assert_eq!(missing(std::slice::from_ref(&requested), &[&requested]), MissingRules::Nothing);
        }
        let long = Rule::read(&json!({
            "apiGroups": ["g".repeat(400_000)], "resources": many('r', 100), "verbs": many('v', 100),
        }));
        assert_eq!(report(&[long], &[]), "and more");
    }
}
