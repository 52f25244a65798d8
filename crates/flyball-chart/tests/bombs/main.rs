//! Templates that try to exhaust time or memory, for each function and each construct of the language: each renders
//! or is aborted within the budget. No other test runs in this process, since it counts the allocated bytes.
#![expect(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod templates;

use flyball_chart::{Budget, Capabilities, Chart, Release, RenderError, RenderOptions, RenderedChart, Values};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use templates::{BOMBS, LARGE_BOMBS};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Limits of steps: lower than in operators, since tests are not optimized.
const STEPS: u64 = 2_000_000;
const LARGE_STEPS: u64 = 8_000_000;
/// The maximum number of steps and bytes by which a rendering exceeds its budget before it is aborted.
const SLACK: (u64, usize) = (100_000, 2 << 20);
/// The maximum memory of a rendering, including the error message and what the budget does not count.
const MAX_BYTES: usize = 120 << 20;
/// The maximum size of an error message: the limit of the budget, and a mark for the removed part.
const MAX_MESSAGE_BYTES: usize = (64 << 10) + 100;

fn chart(template: &str) -> Chart {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flyball-chart-bombs");
    fs::create_dir_all(folder.join("templates")).unwrap();
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: site\nversion: 0.1.0\n").unwrap();
    fs::write(folder.join("templates/a.yaml"), template).unwrap();
    Chart::open(&folder).unwrap()
}

fn render(chart: &Chart, values: &Value, budget: Budget) -> Result<RenderedChart, RenderError> {
    let values = Values::untrusted(values.as_object().unwrap().clone());
    let options = RenderOptions { budget, evaluates_data: true, ..RenderOptions::default() };
    let release = Release { name: "blue".into(), namespace: "tenant".into(), revision: 1, is_upgrade: false };
    chart.render_with(&values, &release, &Capabilities::default(), &options)
}

/// Renders a chart, and returns the error and the maximum number of bytes that were allocated at the same time.
fn measure(chart: &Chart, values: &Value, budget: Budget) -> (Option<RenderError>, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let error = render(chart, values, budget).err();
    (error, ALLOCATOR.peak_usage().saturating_sub(before))
}

fn assert_bounded(bomb: &str, error: Option<&RenderError>, bytes: usize) {
    let message = error.map(ToString::to_string).unwrap_or_default();
    assert!(bytes < MAX_BYTES, "{bomb} allocates {} MiB: {message:.300}", bytes >> 20);
    assert!(message.len() <= MAX_MESSAGE_BYTES, "{bomb}: the message has {} bytes", message.len());
}

/// Values that the templates use.
fn values(bomb: &str) -> Value {
    let deep = (0..90).fold(json!("a"), |inner, _| json!({ "a": inner }));
    let wide: Vec<Value> = (0..10_000).map(|at| json!({ "a": at })).collect();
    json!({"bomb": bomb, "long": "word-a <b> ".repeat(20_000), "wide": wide, "deep": deep, "x": "x"})
}

#[test]
fn each_bomb_renders_or_ends_within_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let chart = chart("a: {{ tpl .Values.bomb . | quote }}\n");
    // Tables of functions and patterns are allocated once.
    let _ = measure(&chart, &values("{{ 1 }}"), Budget::untrusted());
    let mut aborted = 0;
    for bomb in BOMBS {
        let values = values(bomb);
        for _ in 0..2 {
            let (steps, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
            let (most_steps, most_bytes) = (Arc::clone(&steps), Arc::clone(&bytes));
            let guard = move |steps: u64, bytes: usize| {
                most_steps.fetch_max(steps, Ordering::Relaxed);
                most_bytes.fetch_max(bytes, Ordering::Relaxed);
                Ok(())
            };
            let budget = Budget { steps: STEPS, guard: Some(Arc::new(guard)), ..Budget::untrusted() };
            let most = budget.bytes;
            let (error, allocated) = measure(&chart, &values, budget);
            aborted += usize::from(error.is_some());
            let (steps, bytes) = (steps.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            assert!(steps <= STEPS + SLACK.0, "{bomb} takes {steps} steps");
            assert!(bytes <= most + SLACK.1, "{bomb} holds {bytes} bytes");
            assert_bounded(bomb, error.as_ref(), allocated);
        }
    }
    assert!(aborted > BOMBS.len(), "{aborted} of {} are aborted", 2 * BOMBS.len());
}

#[test]
fn large_bombs_are_aborted_within_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let chart = chart("a: {{ tpl .Values.bomb . | quote }}\n");
    for bomb in LARGE_BOMBS {
        for _ in 0..2 {
            let budget = Budget { steps: LARGE_STEPS, ..Budget::untrusted() };
            let (error, allocated) = measure(&chart, &json!({ "bomb": bomb }), budget);
            assert!(error.is_some(), "{bomb} renders");
            assert_bounded(bomb, error.as_ref(), allocated);
        }
    }
}

/// Functions of one string that take time in proportion to its length.
const FUNCTIONS: &[&str] = &[
    "adler32sum",
    "atoi",
    "b32dec",
    "b32enc",
    "b64dec",
    "b64enc",
    "base",
    "bcrypt",
    "camelcase",
    "clean",
    "dir",
    "duration",
    "durationRound",
    "empty",
    "ext",
    "fail",
    "float64",
    "fromJson",
    "fromJsonArray",
    "fromToml",
    "fromYaml",
    "fromYamlArray",
    "html",
    "initials",
    "int64",
    "isAbs",
    "js",
    "kebabcase",
    "lower",
    "nospace",
    "osBase",
    "osClean",
    "print",
    "printf",
    "quote",
    "regexQuoteMeta",
    "semver",
    "sha1sum",
    "sha512sum",
    "shuffle",
    "snakecase",
    "splitList \"x\"",
    "squote",
    "swapcase",
    "title",
    "toDecimal",
    "toJson",
    "toPrettyJson",
    "toString",
    "toToml",
    "toYaml",
    "tpl",
    "trim",
    "untitle",
    "upper",
    "urlParse",
    "urlquery",
    "mustFromJson",
    "mustToJson",
    "mustToDate \"2006\"",
    "mustRegexFind \"a\"",
    "mustRegexReplaceAll \"a\" \"b\"",
    "regexFind",
    "regexSplit \"a\"",
    "replace \"a\" \"b\"",
    "indent 1",
    "nindent 1",
    "trunc 9999999",
    "wrap 80",
    "htpasswd \"a\"",
    "encryptAES \"a\"",
    "decryptAES \"a\"",
    "genPrivateKey",
    "derivePassword 1 \"long\" \"a\" \"b\"",
    "buildCustomCert \"eA==\"",
];

#[test]
fn memory_of_each_function_is_in_proportion_to_its_argument() {
    /// The budget permits arguments of 12.8 MiB, which may then take this much of [`MAX_BYTES`].
    const MAX_GROWTH: usize = 9;
    const LENGTH: usize = 3 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let chart = chart("a: {{ tpl .Values.bomb . | quote }}\n");
    let mut problems = Vec::new();
    for function in FUNCTIONS {
        for text in [r"\x00", "aB c", "%[9{\\\"", r"\n"] {
            let count = LENGTH / text.replace(r"\x00", "0").replace(r"\n", "n").replace("\\\"", "q").len();
            let bomb = format!("{{{{ $t := repeat {count} \"{text}\" }}}}{{{{ $x := {function} $t }}}}");
            let budget = Budget { steps: LARGE_STEPS, ..Budget::untrusted() };
            let (error, allocated) = measure(&chart, &json!({ "bomb": bomb }), budget);
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            // Deriving a password takes 32 MiB for each of its lanes.
            let constant = if function.starts_with("derivePassword") { 33 << 20 } else { 1 << 20 };
            if allocated > MAX_GROWTH * LENGTH + constant || error.contains("not defined") {
                problems.push(format!("{bomb} allocates {} MiB: {error:.300}", allocated >> 20));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Messages of trusted charts are those of Helm, whatever their length.
#[test]
fn long_message_of_a_trusted_chart_is_complete() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let chart = chart("a: {{ tpl .Values.bomb . | quote }}\n");
    let values = json!({"bomb": "{{ fail (repeat 300000 \"x\") }}"});
    let error = render(&chart, &values, Budget::trusted()).unwrap_err().to_string();
    assert_eq!(error.matches('x').count(), 300_000 + "execution".matches('x').count(), "{error:.300}");
    let error = render(&chart, &values, Budget::untrusted()).unwrap_err().to_string();
    assert!(
        error.starts_with("execution error at (") && error.ends_with("xx") && error.contains("xx … xx"),
        "{error:.99}"
    );
}
