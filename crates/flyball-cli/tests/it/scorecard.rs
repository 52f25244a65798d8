//! `flyball scorecard`.

use crate::Home;
use crate::run::{SAMPLE, operator};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_operator_that_does_well_passes_all_checks() {
    let home = Home::new("scorecard");
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    let said = home.run(&["scorecard", "--program", &operator()]).ok();
    let checks: Vec<&str> = said.out.lines().collect();
    assert_eq!(checks.len(), 12, "{said:?}");
    assert!(checks[1..].iter().all(|check| check.ends_with("   passed")), "{said:?}");
    let left: Vec<_> = fs::read_dir(&home.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("flyball-scorecard")), "{left:?}");
}

#[test]
fn what_an_operator_lacks_is_named_with_its_remedy() {
    let home = Home::new("badscorecard");
    let program = home.0.join("op");
    // It may not see what it owns, and says nothing of its fields.
    let script = format!(
        "#!/bin/sh\nif [ $1 = manifests ]; then {0} \"$@\" | /bin/sed -e 's/\"deployments\"/\"daemonsets\"/' \
         -e 's/\"description\": \".*\"/\"description\": \"\"/'; else exec {0} \"$@\"; fi\n",
        operator()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let scorecard = |flags: &[&str]| home.run(&[&["scorecard", "--program=./op", "--timeout=2s"], flags].concat());

    let said = scorecard(&["-o", "json"]);
    said.fails_with(&["4 of 11 checks failed"]);
    let checks: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let found = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    for (name, why, remedy) in [
        ("each kind has a sample", "there is none with a spec of MyApp", "--samples PATH"),
        (
            "each field has a type and a description",
            "spec.images of MyApp v1alpha1 has no description",
            "above the field",
        ),
        ("it starts", "/readyz does not say that it is ready within 2 s", "-v"),
        ("it asks for nothing that its roles do not permit", "deployments.apps", "Controller::owns"),
    ] {
        let check = found(name);
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("outcome"), "failed", "{check}");
        assert!(text("why").contains(why) && text("remedy").contains(remedy), "{check}");
    }
    assert_eq!(found("it comes to rest")["outcome"], "skipped");
    let said = scorecard(&["-o", "junit"]);
    assert!(said.out.contains("tests=\"11\" failures=\"4\" errors=\"0\" skipped=\"7\""), "{said:?}");

    home.run(&["scorecard", "--program=/bin/echo"]).fails_with(&["/bin/echo is no operator"]);
    home.run(&["scorecard", "--program=./op", "--samples=none"]).fails_with(&["cannot read none"]);
    assert_eq!(home.run(&["scorecard", "--timeout=soon"]).code, Some(2));
}
