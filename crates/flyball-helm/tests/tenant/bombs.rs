//! Templates that try to exhaust time or memory, for each function and each construct of the language: each renders
//! or is aborted within the budget.

use crate::{ALONE, memory, project::project, release};
use flyball_chart::{Budget, Capabilities, Chart, RenderOptions, Values};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Limits of each template: lower than in operators, since tests are not optimized.
const STEPS: u64 = 2_000_000;
/// The maximum number of steps and bytes by which a rendering exceeds its budget before it is aborted.
const SLACK: (u64, usize) = (100_000, 2 << 20);

const BOMBS: &[&str] = &[
    r#"{{ printf "%999999999d" 1 }}"#,
    r#"{{ printf "%.999999999f" 1.0 }}"#,
    r#"{{ printf "%[99999999]d" 1 }}"#,
    r#"{{ range until 1000000 }}{{ $x := printf "%1000000d" 1 }}{{ end }}"#,
    r#"{{ range until 1000000 }}{{ $x := printf "%.1000000f" 1.5 }}{{ end }}"#,
    r#"{{ range until 1000000 }}{{ $x := printf "%.300f" 1e-300 }}{{ end }}"#,
    r#"{{ range untilStep 0 9223372036854775807 1 }}{{ end }}"#,
    r#"{{ untilStep -9223372036854775808 9223372036854775807 1 }}"#,
    r#"{{ untilStep 0 10 0 }}"#,
    r#"{{ untilStep 9223372036854775807 -9223372036854775808 -1 }}"#,
    r#"{{ seq 1 1 9223372036854775807 }}"#,
    r#"{{ seq 9223372036854775807 -1 -9223372036854775808 }}"#,
    r#"{{ range until 1000000 }}{{ $x := seq 1 100000 }}{{ end }}"#,
    r#"{{ repeat 9223372036854775807 "ab" }}"#,
    r#"{{ repeat -1 "ab" }}"#,
    r#"{{ $x := "a" }}{{ range until 100 }}{{ $x = b64enc $x }}{{ end }}{{ $x }}"#,
    r#"{{ $x := .Values.long }}{{ range until 100 }}{{ $x = b64enc $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "a" }}{{ range until 100 }}{{ $x = b32enc $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "a" }}{{ range until 100 }}{{ $x = toJson $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "'" }}{{ range until 100 }}{{ $x = squote $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "\"" }}{{ range until 100 }}{{ $x = quote $x $x }}{{ end }}{{ len $x }}"#,
    r#"{{ range until 1000000 }}{{ $x := derivePassword 1 "long" "a" "b" "c" }}{{ end }}"#,
    r#"{{ range until 1000000 }}{{ $x := htpasswd "a" "b" }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := genPrivateKey "rsa" }}{{ end }}"#,
    r#"{{ range until 100000 }}{{ $x := genPrivateKey "ecdsa" }}{{ end }}"#,
    r#"{{ range until 100000 }}{{ $x := genPrivateKey "ed25519" }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := genCA "x" 365 }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := genSelfSignedCert "x" nil (list "a") 365 }}{{ end }}"#,
    r#"{{ $c := genCA "x" 365 }}{{ range until 1000 }}{{ $x := genSignedCert "x" nil (list "a") 365 $c }}{{ end }}"#,
    r#"{{ genCA (repeat 1000000 "x") 9223372036854775807 }}"#,
    r#"{{ genSelfSignedCert "x" (list "999.1.1.1") (list "a" "*" "") -9223372036854775808 }}"#,
    r#"{{ regexReplaceAll "a" (repeat 100000 "a") (repeat 100000 "b") }}"#,
    r#"{{ regexReplaceAll "" (repeat 1000000 "a") (repeat 1000 "$0") }}"#,
    r#"{{ regexReplaceAll "(a*)*" (repeat 100000 "a") "${1}${1}${1}" }}"#,
    r#"{{ regexMatch "(a{1000}){1000}" "a" }}"#,
    r#"{{ regexMatch "((a{100}){100}){100}" "a" }}"#,
    r#"{{ regexMatch "(((((((((a{0,9}){0,9}){0,9}){0,9}){0,9}){0,9}){0,9}){0,9}){0,9})" "aaaa" }}"#,
    r#"{{ regexMatch (repeat 100000 "(") "a" }}"#,
    r#"{{ regexMatch (printf "%sa%s" (repeat 5000 "(") (repeat 5000 ")*")) "a" }}"#,
    r#"{{ range $i := until 100000 }}{{ $x := regexMatch (printf "\\pL{100}%d" $i) "a" }}{{ end }}"#,
    r#"{{ range $i := until 100000 }}{{ $x := regexMatch (printf "[\\pL\\pN]{1,200}x%d" $i) $.Values.long }}{{ end }}"#,
    r#"{{ regexFindAll "a|b|c|.*z" (repeat 300000 "ab") -1 | len }}"#,
    r#"{{ regexFindAll "(.*?,){30}x" (repeat 300000 "ab,") -1 | len }}"#,
    r#"{{ regexFindAll "[a-q][^u-z]{13}x" (repeat 3000000 "abcd") -1 | len }}"#,
    r#"{{ regexSplit "" (repeat 1000000 "a") -1 | len }}"#,
    r#"{{ regexQuoteMeta (repeat 30000000 "(") | len }}"#,
    r#"{{ semverCompare (repeat 10000 ">=1.0.0 ") "1.2.3" }}"#,
    r#"{{ semverCompare (repeat 10000 ">=1.0.0 || ") "1.2.3" }}"#,
    r#"{{ semver (printf "1.2.3-%s" (repeat 1000000 "a.")) }}"#,
    r#"{{ semver "99999999999999999999999.1.1" }}"#,
    r#"{{ range until 1000000 }}{{ $x := semverCompare ">=1.0.0 <2.0.0 || ^3" "1.2.3" }}{{ end }}"#,
    r#"{{ now | date (repeat 1000000 "2006") | len }}"#,
    r#"{{ range until 100000 }}{{ $x := now | date (repeat 1000 "Monday January 2006") }}{{ end }}"#,
    r#"{{ dateModify "9223372036854775807h" now }}"#,
    r#"{{ now | dateModify "-2562047h" | dateModify "-2562047h" | date "2006" }}"#,
    r#"{{ date "2006" 9223372036854775807 }}"#,
    r#"{{ dateInZone "2006" now (repeat 100000 "../") }}"#,
    r#"{{ dateInZone "2006" now "../../etc/passwd" }}"#,
    r#"{{ duration 9223372036854775807 }} {{ durationRound "99999999999999h" }}"#,
    r#"{{ duration -9223372036854775808 }}"#,
    r#"{{ ago (toDate "2006-01-02" "0001-01-01") }}"#,
    r#"{{ unixEpoch (toDate "2006-01-02" "9999-12-31") }}"#,
    r#"{{ toDate (repeat 100000 "2006") (repeat 100000 "2006") }}"#,
    r#"{{ div 1 0 }}"#,
    r#"{{ mod 1 0 }}"#,
    r#"{{ div -9223372036854775808 -1 }}"#,
    r#"{{ mod -9223372036854775808 -1 }}"#,
    r#"{{ mul 9223372036854775807 9223372036854775807 }}"#,
    r#"{{ add 9223372036854775807 1 }} {{ sub -9223372036854775808 1 }} {{ add1 9223372036854775807 }}"#,
    r#"{{ int64 1e300 }} {{ int "9e999" }} {{ toDecimal "99999999999999" }} {{ atoi "99999999999999999999" }}"#,
    r#"{{ round 1e300 9223372036854775807 }} {{ round 1.5 -9223372036854775808 }}"#,
    r#"{{ round 1.5 1000000000 }}"#,
    r#"{{ divf 1 0 }} {{ mulf 1e308 1e308 }} {{ addf 1e308 1e308 }} {{ maxf 1 }}"#,
    r#"{{ floor "nan" }} {{ ceil "inf" }}"#,
    r#"{{ range until 1000000 }}{{ $x := addf 1e300 1e-300 }}{{ end }}"#,
    r#"{{ range until 1000000 }}{{ $x := divf 1e300 3e-300 }}{{ end }}"#,
    r#"{{ mulf 1e999999999 1 }}"#,
    r#"{{ addf "1e999999999" 1 }}"#,
    r#"{{ addf "1e-999999999" 1e300 }}"#,
    r#"{{ divf "1e-99999" "1e99999" }}"#,
    r#"{{ range until 100000 }}{{ $x := mulf "1e9999" "1e9999" }}{{ end }}"#,
    r#"{{ substr -9223372036854775808 9223372036854775807 "abc" }}"#,
    r#"{{ trunc -9223372036854775808 "abc" }} {{ trunc 9223372036854775807 "abc" }}"#,
    r#"{{ abbrev -9223372036854775808 "abc" }}{{ abbrevboth 9223372036854775807 -5 "abcdefghijk" }}"#,
    r#"{{ indent 9223372036854775807 "a" }}"#,
    r#"{{ nindent -1 "a" }}"#,
    r#"{{ indent -9223372036854775808 "a" }}"#,
    r#"{{ wrap 0 (repeat 100000 "a ") | len }}"#,
    r#"{{ wrap 9223372036854775807 (repeat 100000 "a ") | len }}"#,
    r#"{{ wrapWith 0 "x" (repeat 100000 "a ") | len }}"#,
    r#"{{ slice (list 1 2 3) 9223372036854775807 }}"#,
    r#"{{ slice (list 1 2 3) -1 }}"#,
    r#"{{ index (list 1 2 3) -9223372036854775808 }}"#,
    r#"{{ chunk 0 (list 1 2) }}"#,
    r#"{{ chunk -1 (list 1 2) }}"#,
    r#"{{ chunk 9223372036854775807 (list 1 2) }}"#,
    r#"{{ randAlphaNum 9223372036854775807 }}"#,
    r#"{{ randAlphaNum 60000000 | len }}"#,
    r#"{{ randAlphaNum -1 }}"#,
    r#"{{ randBytes 9223372036854775807 }}"#,
    r#"{{ randBytes -1 }}"#,
    r#"{{ randInt 9223372036854775807 -9223372036854775808 }}"#,
    r#"{{ randInt -9223372036854775808 9223372036854775807 }}"#,
    r#"{{ randInt 5 5 }}"#,
    r#"{{ shuffle (repeat 30000000 "a") | len }}"#,
    r#"{{ range until 1000 }}{{ $x := shuffle $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := snakecase $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := camelcase $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := initials $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := swapcase $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := sha512sum $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := adler32sum $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := encryptAES "key" $.Values.long }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := toYaml $.Values.wide | fromYamlArray }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := toToml $.Values }}{{ end }}"#,
    r#"{{ range until 1000 }}{{ $x := fromToml (printf "%s=1" (repeat 10000 "a.")) }}{{ end }}"#,
    r#"{{ fromToml (printf "a=%s%s" (repeat 100000 "[") (repeat 100000 "]")) }}"#,
    r#"{{ fromToml (printf "[%sa]" (repeat 1000000 "a.")) | toJson | len }}"#,
    r#"{{ fromToml (repeat 300000 "[[a]]\n") | toJson | len }}"#,
    r#"{{ fromJson (printf "%s1%s" (repeat 1000000 "[") (repeat 1000000 "]")) }}"#,
    r#"{{ fromJson (printf "{\"a\":%s1%s}" (repeat 9000 "[") (repeat 9000 "]")) | toYaml | len }}"#,
    r#"{{ fromYaml (repeat 100000 "a: {") }}"#,
    r#"{{ fromYaml (repeat 1000000 "? ") }}"#,
    r#"{{ fromYaml (repeat 100000 "- ") }}"#,
    r#"{{ fromYaml (repeat 1000000 "&a ") }}"#,
    r#"{{ fromYaml (repeat 1000000 "!a ") }}"#,
    r#"{{ fromYaml "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]" | toJson | len }}"#,
    r#"{{ fromYaml (printf "a: &a {%s}\nb: {<<: [%s]}" (repeat 10000 "x: 1, ") (repeat 10000 "*a, ")) | toJson | len }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toJson $d }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ deepCopy $d | len }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ merge $d (deepCopy $d) | len }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $e := dict }}{{ $_ := set $e "d" $e }}{{ merge $d $e | len }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $e := dict }}{{ $_ := set $e "d" $e }}{{ eq $d $e }}{{ deepEqual $d $e }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ printf "%v" $d }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $d }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toToml $d }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ list $d | uniq | len }}"#,
    r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ has $d (list $d) }}"#,
    r#"{{ $d := dict }}{{ range until 10000 }}{{ $d = dict "a" $d }}{{ end }}{{ toJson $d | len }}"#,
    r#"{{ $d := dict }}{{ range until 900 }}{{ $d = dict "a" $d }}{{ end }}{{ toYaml $d | len }}"#,
    r#"{{ $d := dict }}{{ range until 900 }}{{ $d = dict "a" $d }}{{ end }}{{ range until 100000 }}{{ $x := toYaml $d }}{{ end }}"#,
    r#"{{ $d := list }}{{ range until 900 }}{{ $d = list $d }}{{ end }}{{ range until 100000 }}{{ $x := toPrettyJson $d }}{{ end }}"#,
    r#"{{ range until 1000000 }}{{ $_ := set $.Values "x" (list $.Values.x $.Values.x) }}{{ end }}{{ toYaml .Values }}"#,
    r#"{{ sortAlpha (splitList "" (repeat 1000000 "ba")) | len }}"#,
    r#"{{ without (until 1000000) 1 2 3 | len }}"#,
    r#"{{ uniq .Values.wide | len }}"#,
    r#"{{ $l := list }}{{ range $i := until 30000 }}{{ $l = append $l (toString $i) }}{{ end }}{{ uniq $l | len }}"#,
    r#"{{ concat (until 1000000) (until 1000000) | len }}"#,
    r#"{{ range until 100000 }}{{ $x := until 1000000 | reverse }}{{ end }}"#,
    r#"{{ splitn "" 9223372036854775807 "abc" }}"#,
    r#"{{ split "" (repeat 1000000 "a") | len }}"#,
    r#"{{ splitn "a" -9223372036854775808 "abc" }}"#,
    r#"{{ urlParse (repeat 1000000 "a://") | toJson | len }}"#,
    r#"{{ urlJoin (dict "host" (repeat 30000000 "%")) | len }}"#,
    r#"{{ getHostByName "localhost" }}"#,
    r#"{{ $x := "a" }}{{ range until 60 }}{{ $x = printf "%q" $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "a" }}{{ range until 60 }}{{ $x = urlquery $x }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "<" }}{{ range until 60 }}{{ $x = html $x | js }}{{ end }}{{ len $x }}"#,
    r#"{{ $x := "{{ `a` }}" }}{{ range until 1000000 }}{{ $y := tpl $x $ }}{{ end }}"#,
    r#"{{ define "a" }}{{ template "b" . }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#,
    r#"{{ tpl (repeat 1000000 "{{ define `x` }}{{ end }}") . }}"#,
    r#"{{ tpl (repeat 100000 "{{ if true }}") . }}"#,
    r#"{{ tpl (printf "{{ %s }}" (repeat 100000 "(")) . }}"#,
    r#"{{ tpl (printf "{{ %s1%s }}" (repeat 20000 "(not ") (repeat 20000 ")")) . }}"#,
    r#"{{ tpl (printf "{{ 1 %s }}" (repeat 100000 "| not")) . }}"#,
    r#"{{ tpl (printf "{{ .%s }}" (repeat 1000000 "a.")) . }}"#,
    r#"{{ range $i := until 1000000 }}{{ $x := tpl (printf "{{ define \"x%d\" }}a{{ end }}" $i) $ }}{{ end }}"#,
    r#"{{ $x := "x" }}{{ range until 100 }}{{ $x = replace "x" "xx" $x }}{{ end }}"#,
    r#"{{ $x := "x" }}{{ range until 100 }}{{ $x = printf "%s%s" $x $x }}{{ end }}"#,
    r#"{{ $x := "x" }}{{ range until 100 }}{{ $x = cat $x $x }}{{ end }}"#,
    r#"{{ $x := list 1 }}{{ range until 100 }}{{ $x = concat $x $x }}{{ end }}"#,
    r#"{{ $x := "x" }}{{ range until 100 }}{{ $x = title $x | untitle | upper | lower | nospace | plural 1 2 }}{{ end }}"#,
    r#"{{ fail (repeat 30000000 "x") }}"#,
    r#"{{ required (repeat 30000000 "x") nil }}"#,
    r#"{{ include (repeat 30000000 "x") . }}"#,
    r#"{{ bcrypt (repeat 1000000 "x") }}"#,
    r#"{{ buildCustomCert "a" "b" }}"#,
    r#"{{ buildCustomCert (b64enc "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----") (b64enc "x") }}"#,
    r#"{{ decryptAES "k" "AAAA" }}{{ decryptAES "" "" }}"#,
    r#"{{ mustRegexMatch "[" "a" }}"#,
    r#"{{ osBase (repeat 10000000 "/") }}{{ clean (repeat 1000000 "../a/") | len }}"#,
    r#"{{ mustToPrettyJson .Values.wide | len }}"#,
    r#"{{ pluck "a" (index .Values.wide 0) | len }}"#,
    r#"{{ dig "a" "a" "a" "x" .Values.deep | toJson | len }}"#,
    r#"{{ seq 0 0 0 }}{{ seq 1 0 5 }}"#,
    r#"{{ break }}"#,
    r#"{{ range 9223372036854775807 }}{{ end }}"#,
    r#"{{ range $i, $x := 100000000 }}{{ end }}"#,
    r#"{{ 0x7fffffffffffffffff }}"#,
    r#"{{ 1e999 }}"#,
    r#"{{ '\UFFFFFFFF' }}"#,
    r#"{{ 1i }}{{ printf "%v" 1i }}"#,
    r#"{{ len (printf "%s" (repeat 1000 "%!")) }}"#,
    r#"{{ printf "%*d" 9223372036854775807 1 }}"#,
    r#"{{ printf "%-*d|%0*d" -9223372036854775808 1 5 5 }}"#,
    r#"{{ printf "%.*f" 9223372036854775807 1.0 }}"#,
    r#"{{ slice .Values.long 0 5 }}"#,
    r#"{{ kebabcase (repeat 1000000 "aB") | len }}"#,
    r#"{{ ternary 1 2 3 }}"#,
    r#"{{ toRawJson .Values.long | len }}"#,
    r#"{{ .Files.Glob "**" | len }}{{ .Files.Glob (repeat 100000 "*") | len }}{{ .Files.Glob (repeat 10000 "{a,b}") | len }}{{ .Files.Lines "x" }}"#,
];

/// Values that the templates use.
fn values(bomb: &str) -> Value {
    let deep = (0..90).fold(json!("a"), |inner, _| json!({ "a": inner }));
    let wide: Vec<Value> = (0..10_000).map(|at| json!({ "a": at })).collect();
    json!({"bomb": bomb, "long": "word-a <b> ".repeat(20_000), "wide": wide, "deep": deep, "x": "x"})
}

#[test]
fn each_bomb_renders_or_ends_within_the_budget() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let template = ("charts/site/templates/a.yaml", "a: {{ tpl .Values.bomb . | quote }}\n");
    let chart = Chart::open(&project("tenant-all-bombs", &[template]).join("charts/site")).unwrap();
    let mut aborted = 0;
    for bomb in BOMBS {
        let (steps, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let (most_steps, most_bytes) = (Arc::clone(&steps), Arc::clone(&bytes));
        let guard = move |steps: u64, bytes: usize| {
            most_steps.fetch_max(steps, Ordering::Relaxed);
            most_bytes.fetch_max(bytes, Ordering::Relaxed);
            Ok(())
        };
        let budget = Budget { steps: STEPS, guard: Some(Arc::new(guard)), ..Budget::untrusted() };
        let most = budget.bytes;
        let options = RenderOptions { budget, evaluates_data: true, ..RenderOptions::default() };
        let values = Values::untrusted(values(bomb).as_object().unwrap().clone());
        // Platforms without this file cannot be measured.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = memory("VmRSS");
        let rendered = chart.render_with(&values, &release(), &Capabilities::default(), &options);
        aborted += usize::from(rendered.is_err());
        let (steps, bytes) = (steps.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        assert!(steps <= STEPS + SLACK.0, "{bomb} takes {steps} steps");
        assert!(bytes <= most + SLACK.1, "{bomb} holds {bytes} bytes");
        if let (Some(before), Some(after)) = (before, memory("VmHWM")) {
            let used = after.saturating_sub(before) >> 20;
            assert!(used < 128, "{bomb} takes {used} MiB");
        }
    }
    assert!(aborted > BOMBS.len() / 2, "{aborted} of {} are aborted", BOMBS.len());
}
