//! Compares `tests/cases` with the output of Helm 3.21 and Helm 4.1, byte for byte. Different output of Helm 4 is in
//! `tests/helm4.json`. `tests/passing.txt` lists the passing cases and may only grow: `FLYBALL_BLESS=1` adds newly
//! passing ones. `FLYBALL_CASE=<part of a name>` runs a selection and prints differences.

use flyball_chart::{HelmVersion, Output, Seed, TemplateArgs};
use flyball_core::Clock;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Runs `helm template` without a cluster.
fn template(args: &TemplateArgs, folder: &Path) -> Result<Output, String> {
    let clock = Clock::new(|| "2026-01-02T03:04:05Z".parse().unwrap());
    let output = flyball_chart::template(args, folder, clock, Seed::default(), None)?;
    output.error.clone().map_or(Ok(output), Err)
}

/// The outputs of Helm and of this crate.
fn play(case: &Path) -> (String, String) {
    let about: Value = serde_json::from_slice(&fs::read(case.join("args.json")).unwrap()).unwrap();
    let result = TemplateArgs::parse(&texts(&about["args"])).and_then(|args| template(&args, case));
    let read = |name: &str| fs::read_to_string(case.join(name)).unwrap();
    match result {
        Ok(output) if about["exit"] == 0 => {
            // Helm's log has no defined order, and contains source locations.
            let warnings = |mut lines: Vec<String>| {
                for line in &mut lines {
                    if let Some((_, text)) = line.split_once(": ").filter(|(place, _)| place.contains(".go:")) {
                        *line = text.to_owned();
                    }
                }
                lines.sort();
                format!("\nlogged: {lines:#?}")
            };
            let expected = read("expected.txt") + &warnings(texts(&about["stderr"]));
            (expected, output.text + &warnings(output.warnings))
        }
        Ok(output) => (read("expected.err"), output.text),
        Err(message) if about["exit"] == 0 => (read("expected.txt"), message),
        Err(message) => {
            // The lines of some messages have no defined order in Helm.
            let lines = |text: &str| {
                let mut lines: Vec<&str> = text.split('\n').collect();
                if about["err_lines_unordered"] == true {
                    lines.sort_unstable();
                }
                lines.join("\n")
            };
            (lines(&read("expected.err")), lines(&format!("Error: {message}\n")))
        }
    }
}

#[test]
fn charts_render_as_with_helm() {
    let list = tests().join("passing.txt");
    let mut passing: BTreeSet<String> =
        fs::read_to_string(&list).unwrap_or_default().lines().map(str::to_owned).collect();
    let selected = std::env::var("FLYBALL_CASE").ok();
    let (mut lost, mut gained, mut played) = (Vec::new(), Vec::new(), 0);
    let mut cases: Vec<PathBuf> =
        fs::read_dir(tests().join("cases")).unwrap().map(|case| case.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        if selected.as_ref().is_some_and(|selected| !name.contains(selected)) {
            continue;
        }
        played += 1;
        let (expected, got) = play(&case);
        if expected == got {
            gained.extend((!passing.contains(&name)).then_some(name));
        } else {
            if selected.is_some() {
                println!("--- {name}: output of Helm\n{expected}\n--- actual output\n{got}");
            }
            lost.extend(passing.contains(&name).then_some(name));
        }
    }
    assert!(played > 0, "there are no cases");
    assert!(lost.is_empty(), "these cases fail now: {lost:?}; FLYBALL_CASE=<name> prints the difference");
    if std::env::var_os("FLYBALL_BLESS").is_some() {
        passing.extend(gained);
        fs::write(&list, passing.into_iter().map(|name| name + "\n").collect::<String>()).unwrap();
    } else {
        assert!(gained.is_empty(), "these cases pass now: {gained:?}; FLYBALL_BLESS=1 adds them to passing.txt");
    }
}

/// Returns the output of Helm 4 and ours.
fn play_4(case: &Path, differs: Option<&Value>) -> (String, String) {
    let read = |name: &str| fs::read_to_string(case.join(name)).unwrap_or_default();
    let about: Value = serde_json::from_str(&read("args.json")).unwrap();
    let result = TemplateArgs::parse(&texts(&about["args"])).and_then(|mut args| {
        args.helm_version = HelmVersion::V4;
        template(&args, case)
    });
    let expected = match differs {
        Some(answer) => answer["stdout"].as_str().or(answer["stderr"].as_str()).unwrap_or_default().to_owned(),
        None => read("expected.txt") + &read("expected.err"),
    };
    let result = result.map_or_else(|message| format!("Error: {message}\n"), |output| output.text);
    let lines = |text: String| {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        if about["err_lines_unordered"] == true {
            lines.sort_unstable();
        }
        lines.join("\n")
    };
    (lines(expected), lines(result))
}

#[test]
fn charts_render_as_with_helm_4() {
    let answers: Value = serde_json::from_slice(&fs::read(tests().join("helm4.json")).unwrap()).unwrap();
    let mut differ = Vec::new();
    for case in fs::read_dir(tests().join("cases")).unwrap().map(|case| case.unwrap().path()) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let (expected, actual) = play_4(&case, answers["cases"].get(&name));
        if expected != actual {
            println!("--- {name}: output of Helm 4\n{expected}\n--- actual output\n{actual}");
            differ.push(name);
        }
    }
    assert!(differ.is_empty(), "the output differs from Helm 4: {differ:?}");
}

#[test]
fn rendering_is_deterministic() {
    for name in ["str-wrap", "dates", "real-web"] {
        let case = tests().join("cases").join(name);
        assert_eq!(play(&case), play(&case), "{name}");
    }
}

#[test]
fn flags_depend_on_the_version_of_helm() {
    let check = |args: &[&str], expected: &str| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let result = TemplateArgs::parse(&args).and_then(|args| template(&args, Path::new("/")));
        let error = result.unwrap_err();
        assert!(error.starts_with(expected), "{args:?}: {error}");
    };
    for flag in ["--server-side", "--force-conflicts", "--force-replace", "--rollback-on-failure"] {
        check(&["./nowhere", flag], &format!("unknown flag: {flag}"));
        check(&["./nowhere", flag, "--helm-version=4"], "path \"./nowhere\" not found");
    }
    check(&["./nowhere", "--timeout=5m"], "path \"./nowhere\" not found");
    check(&["./nowhere", "--timeout=x"], "invalid argument \"x\" for \"--timeout\" flag: time: invalid duration \"x\"");
    check(&["./nowhere", "--helm-version=5"], "invalid value '5' for '--helm-version");
    let go = "strconv.ParseBool: parsing \"x\": invalid syntax";
    for (flags, of_3, of_4) in [
        (
            "--dry-run=x",
            "Invalid dry-run flag. Flag must one of",
            "invalid dry-run value (\"x\"). Must be \"none\", \"ser",
        ),
        ("--dry-run=none", "path", "invalid dry-run value (\"none\"). Must be \"server\" or \"client\""),
        ("--dry-run=f", "Invalid dry-run", "invalid dry-run value (\"f\"). Must be \"server\" or \"client\""),
        (
            "--validate --dry-run=client",
            "path",
            "if any flags in the group [validate dry-run] are set none of the others can be; [dry-run validate] were all set",
        ),
        (
            "--force --force-conflicts",
            "unknown flag: --force-conflicts",
            "if any flags in the group [force force-conflicts]",
        ),
        (
            "--wait=x",
            &format!("invalid argument \"x\" for \"--wait\" flag: {go}"),
            "invalid argument \"x\" for \"--wait\" flag: invalid wait input \"x\". Valid inputs are watcher, hookOnly, and legacy",
        ),
        ("--atomic=x", &format!("invalid argument \"x\" for \"--atomic\" flag: {go}"), "invalid argument \"x\""),
        (
            "--labels a",
            "invalid argument \"a\" for \"-l, --labels\" flag: a must be formatted as key=value",
            "invalid argument",
        ),
        ("--labels a=b,owner=c", "user supplied labels contains system reserved label name", "user supplied"),
        ("--qps=x", "invalid argument \"x\" for \"--qps\" flag: strconv.ParseFloat", "invalid argument"),
        ("--burst-limit=x", "invalid argument \"x\" for \"--burst-limit\" flag: strconv.ParseInt", "invalid argument"),
        ("--color=blue", "unknown flag: --color", "invalid color mode \"blue\": must be one of: never, auto, always"),
        ("--post-renderer=a", "--post-renderer is not supported", "--post-renderer is not supported"),
        ("--enable-dns", "--enable-dns is not supported", "--enable-dns is not supported"),
    ] {
        let args: Vec<&str> = std::iter::once("./nowhere").chain(flags.split(' ')).collect();
        check(&args, of_3);
        check(&[&args, &["--helm-version=4"][..]].concat(), of_4);
    }
}

#[test]
fn deprecated_flags_of_helm_4_are_warnings() {
    let case = tests().join("cases/block");
    for (flag, expected) in [
        ("--dry-run", "level=WARN msg=\"--dry-run is deprecated and should be replaced with '--dry-run=client'\""),
        (
            "--dry-run=true",
            "level=WARN msg=\"boolean '--dry-run=true' flag is deprecated and must be replaced with '--dry-run=client'\"",
        ),
        ("--atomic", "Flag --atomic has been deprecated, use --rollback-on-failure instead"),
        (
            "--wait=false",
            "level=WARN msg=\"--wait=false is deprecated (boolean value) and can be replaced with --wait=hookOnly\"",
        ),
    ] {
        let args = ["chart", flag].map(str::to_owned);
        let mut args = TemplateArgs::parse(&args).unwrap();
        assert_eq!(template(&args, &case).unwrap().warnings, [""; 0], "{flag}");
        args.helm_version = HelmVersion::V4;
        assert_eq!(template(&args, &case).unwrap().warnings, [expected]);
    }
}

#[test]
fn invalid_output_is_printed_for_debugging() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debug/site");
    fs::create_dir_all(folder.join("templates")).unwrap();
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: site\nversion: 1.0.0\n").unwrap();
    fs::write(folder.join("templates/a.yaml"), "a: [\n").unwrap();
    let args = TemplateArgs::parse(&[folder.display().to_string(), "--debug".to_owned()]).unwrap();
    let output = flyball_chart::template(&args, Path::new("/"), Clock::system(), Seed::default(), None).unwrap();
    assert_eq!(output.text, "---\n# Source: site/templates/a.yaml\na: [\n");
    let error = output.error.unwrap();
    assert!(error.starts_with("YAML parse error on site/templates/a.yaml: ") && !error.contains("--debug"), "{error}");
}
