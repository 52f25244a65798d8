//! Replays of the recorded behavior of OLM.

pub(crate) mod catalog;
mod comparison;
mod differences;
mod normalization;
mod observer;
mod scenario;
pub(crate) mod world;

use comparison::{Bindings, Mismatch, compiled, missing_states};
use differences::{DIFFERENCES, Difference, NORMALIZED, TESTED};
use scenario::{Expectation, Scenario};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use world::World;

/// One test for each recorded scenario.
macro_rules! scenarios {
    ($($test:ident = $name:literal,)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            replay($name).await;
        })*

        const SCENARIOS: &[&str] = &[$($name),*];
    };
}

scenarios! {
    install_own_namespace = "01-install-own-namespace",
    manual_approval = "02-manual-approval",
    upgrade_automatic = "03a-upgrade-automatic",
    upgrade_manual = "03b-upgrade-manual",
    operator_groups = "04-operator-groups",
    dependencies = "06-dependencies",
    dependencies_install_mode = "06b-dependencies-install-mode",
    unsatisfiable = "07-unsatisfiable",
    subscription_config = "09-subscription-config",
    webhooks = "10-webhooks",
    conversion_own_namespace = "10b-conversion-own-namespace",
    never_ready = "12-never-ready",
    uninstall = "13-uninstall",
    deprecations = "14-deprecations",
    wrong_references = "15-wrong-references",
    crd_drops_stored_version = "17a-crd-drops-stored-version",
    crd_invalidates_existing = "17b-crd-invalidates-existing",
    packagemanifests = "19-packagemanifests",
}

#[test]
fn every_recording_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/behavior/scenarios");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
    let recorded: BTreeSet<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
    assert_eq!(recorded, SCENARIOS.iter().map(|name| format!("{name}.json")).collect());
}

#[test]
fn docs_list_the_differences() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/olm.md")).unwrap();
    let (_, section) = docs.split_once("## Differences from OLM\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows: Vec<&str> = rows.filter(|cell| *cell != "Situation").collect();
    let listed: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(listed.len(), rows.len(), "a situation occurs twice");
    let of_replays = DIFFERENCES.iter().map(|difference| difference.situation);
    let of_tests = TESTED.iter().map(|(situation, _)| *situation);
    let known: BTreeSet<&str> = of_replays.chain(NORMALIZED.iter().copied()).chain(of_tests).collect();
    assert_eq!(listed, known, "docs/olm.md and tests/it/behavior/differences.rs list different situations");
}

#[test]
fn tests_of_differences_exist() {
    let mut sources = String::new();
    let mut folders = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/src").into(), std::path::PathBuf::from("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension() {
                Some(extension) if extension == "rs" => sources += &std::fs::read_to_string(entry).unwrap(),
                None => folders.push(entry),
                Some(_) => {}
            }
        }
    }
    for (situation, test) in TESTED {
        assert!(sources.contains(&format!("fn {test}()")), "{situation}: no test {test}");
    }
}

async fn replay(name: &str) {
    let (scenario, mut world) = (Scenario::read(name), World::start().await);
    let (mut bindings, mut before) = (Bindings::default(), world.observer.objects());
    let mut replay = Replay::new(name);
    for (index, step) in scenario.steps.iter().enumerate() {
        let is_reached = world.play(step).await;
        let after = world.observer.objects();
        let mut found = Vec::new();
        if is_reached == step.expect.until_not_reached {
            let reached = |reached: bool| Some(Value::Bool(reached));
            let (expected, actual) = (reached(!is_reached), reached(is_reached));
            found.push(Mismatch { object: "step".into(), path: "until".into(), expected, actual });
        }
        compare_objects(&step.expect, &before, &after, &mut bindings, &mut found);
        compare_states(&step.expect, &world.observer.states(), &mut bindings, &mut found);
        compare_answers("responses", &step.expect.responses, &world.responses, &mut bindings, &mut found);
        compare_answers("refused", &step.expect.refused, &world.refused, &mut bindings, &mut found);
        replay.explain(index, &step.text, found);
        before = after;
    }
    assert!(world.denied().is_empty(), "the manager lacks permissions: {:?}", world.denied());
    replay.finish(&scenario.name);
}

/// Compares the objects at rest.
fn compare_objects(
    expect: &Expectation,
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
    bindings: &mut Bindings,
    found: &mut Vec<Mismatch>,
) {
    let mut known = BTreeSet::new();
    let mut pairs = Vec::new();
    // Keys without placeholders first: their contents bind the placeholders of others.
    let mut expected: Vec<_> = expect.objects.iter().collect();
    expected.sort_by_key(|(key, _)| key.contains("hash-"));
    for (key, value) in &expected {
        if let Some(other) = after.get(*key) {
            bindings.learn(value, other);
        }
    }
    for (key, value) in expected {
        match bindings.object(key, value, after, &known) {
            Some((name, other)) => {
                bindings.learn(value, other);
                known.insert(name.clone());
                pairs.push((key, value, other));
            }
            None => found.push(Mismatch {
                object: key.clone(),
                path: "absent".into(),
                expected: Some(value.clone()),
                actual: None,
            }),
        }
    }
    for (key, expected, actual) in pairs {
        let mut mismatches = Vec::new();
        bindings.compare(expected, actual, "", &mut mismatches);
        mismatches.retain(|(path, expected, _)| {
            let varies = |entry: &String| {
                let place = entry.split(": entries vary").next().unwrap_or_default();
                place.strip_prefix(key.as_str()).is_some_and(|place| path.starts_with(place)) && expected.is_none()
            };
            !expect.varies.iter().any(varies)
        });
        let mismatch = |(path, expected, actual)| Mismatch { object: key.clone(), path, expected, actual };
        found.extend(mismatches.into_iter().map(mismatch));
    }
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value) && !known.contains(*key)) {
        let (path, expected) = ("new".to_owned(), before.get(key).cloned());
        found.push(Mismatch { object: key.clone(), path, expected, actual: Some(value.clone()) });
    }
    let mut removed: BTreeSet<&String> = before.keys().filter(|key| !after.contains_key(*key)).collect();
    let mut missing = Vec::new();
    let gone: BTreeMap<String, Value> = removed.iter().map(|key| ((*key).clone(), before[*key].clone())).collect();
    for key in &expect.removed {
        match bindings.object(key, &Value::Null, &gone, &BTreeSet::new()) {
            Some((name, _)) => drop(removed.remove(name)),
            None => missing.push(key),
        }
    }
    let mismatch = |key: &String, is_expected: bool| Mismatch {
        object: key.clone(),
        path: "removed".into(),
        expected: Some(is_expected.into()),
        actual: Some((!is_expected).into()),
    };
    found.extend(missing.into_iter().map(|key| mismatch(key, true)));
    found.extend(removed.into_iter().map(|key| mismatch(key, false)));
}

/// Compares the states that objects passed through.
fn compare_states(
    expect: &Expectation,
    states: &BTreeMap<String, Vec<Value>>,
    bindings: &mut Bindings,
    found: &mut Vec<Mismatch>,
) {
    for (key, expected) in &expect.sequences {
        let none = Vec::new();
        let actual = states.get(key).unwrap_or(&none);
        for state in missing_states(expected, actual, bindings) {
            let (path, actual) = ("sequence".to_owned(), Some(Value::from(actual.clone())));
            found.push(Mismatch { object: key.clone(), path, expected: Some(state), actual });
        }
    }
}

fn compare_answers(
    what: &str,
    expected: &[Value],
    actual: &[Value],
    bindings: &mut Bindings,
    found: &mut Vec<Mismatch>,
) {
    let mut mismatches = Vec::new();
    bindings.compare(&expected.into(), &actual.into(), "", &mut mismatches);
    let mismatch = |(path, expected, actual)| Mismatch { object: what.to_owned(), path, expected, actual };
    found.extend(mismatches.into_iter().map(mismatch));
}

/// The differences of a replay that are not deliberate, and the deliberate ones that occurred.
struct Replay<'n> {
    number: &'n str,
    used: BTreeSet<usize>,
    /// The deliberate ones, with step, object, path and situation.
    deliberate: BTreeSet<String>,
    report: String,
}

impl<'n> Replay<'n> {
    fn new(name: &'n str) -> Self {
        let number = name.split('-').next().unwrap();
        Self { number, used: BTreeSet::new(), deliberate: BTreeSet::new(), report: String::new() }
    }

    fn explain(&mut self, step: usize, text: &str, found: Vec<Mismatch>) {
        for mismatch in found {
            let explains = |difference: &Difference| {
                let fits = |pattern: &str, text: &str| compiled(format!("^(?:{pattern})$")).is_match(text);
                difference.scenarios.contains(&self.number)
                    && fits(difference.object, &mismatch.object)
                    && fits(difference.path, &mismatch.path)
            };
            let explaining = DIFFERENCES.iter().enumerate().filter(|(_, difference)| explains(difference));
            let explaining: Vec<usize> = explaining.map(|(index, _)| index).collect();
            if explaining.is_empty() {
                let show =
                    |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
                let Mismatch { object, path, expected, actual } = &mismatch;
                let (expected, actual) = (show(expected), show(actual));
                writeln!(
                    self.report,
                    "step {step} ({text}): {object} {path}\n  expected {expected}\n  actual   {actual}"
                )
                .unwrap();
            }
            if let Some(first) = explaining.first() {
                let (Mismatch { object, path, .. }, situation) = (&mismatch, DIFFERENCES[*first].situation);
                self.deliberate.insert(format!("step {step:02}: {object} {path}: {situation}\n"));
            }
            self.used.extend(explaining);
        }
    }

    /// Compares the deliberate differences with the list of the scenario, which has each single one: the patterns name
    /// the situation, and would also fit others. `FLYBALL_BLESS=1` writes the lists.
    fn check_list(&mut self, name: &str) {
        let path = format!("{}/tests/data/behavior/differences/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let found: String = self.deliberate.iter().map(String::as_str).collect();
        let listed = std::fs::read_to_string(&path).unwrap_or_default();
        if std::env::var_os("FLYBALL_BLESS").is_some() && found != listed {
            std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(&path, &found).unwrap();
            return;
        }
        let is_missing = |line: &&str| !found.contains(*line);
        for line in listed.lines().filter(is_missing) {
            writeln!(self.report, "no longer differs: {line}").unwrap();
        }
        for line in found.lines().filter(|line| !listed.contains(line)) {
            writeln!(self.report, "is not listed in {path}: {line}").unwrap();
        }
    }

    fn finish(mut self, name: &str) {
        self.check_list(name);
        for (index, difference) in DIFFERENCES.iter().enumerate() {
            if difference.scenarios.contains(&self.number) && !self.used.contains(&index) {
                let (object, path) = (difference.object, difference.path);
                writeln!(self.report, "the difference {object} {path} does not occur").unwrap();
            }
        }
        assert!(self.report.is_empty(), "{name}:\n{}", self.report);
    }
}
