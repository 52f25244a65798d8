//! `flyball bench`.

use crate::Home;
use crate::run::{SAMPLE, operator};
use serde_json::Value;
use std::fs;

#[test]
fn operator_is_measured_against_its_budget() {
    let home = Home::new("bench");
    let operator = operator();
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/one.yaml"), SAMPLE).unwrap();
    let args = ["bench", "--program", &operator, "--count", "5", "--idle", "1s"];

    let output = home.run(&[&args[..], &["-o", "json"]].concat()).ok();
    let cost: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(cost["objects"], 10);
    assert!(cost["reconcilesPerObject"].as_f64().unwrap() >= 1.0, "{cost}");
    let calls = cost["callsPerObject"]["all"].as_f64().unwrap();
    assert!((1.0..30.0).contains(&calls), "{cost}");
    // It renews its lease.
    assert!(cost["callsPerIdleHour"]["all"].as_f64().unwrap() < 10_000.0, "{cost}");

    let project = "layout: flyball/1\ndomain: acme.io\nprojectName: sites\nbudget:\n  callsPerObject: 0.5\n";
    fs::write(home.0.join("PROJECT"), project).unwrap();
    home.run(&args).fails_with(&["budget exceeded: ", "calls for each object, of 0.5", "raise the budget"]);
    let output = home.run(&[&args[..], &["--max-calls-per-object", "1000"]].concat()).ok();
    assert!(output.out.starts_with("10 objects\n") && output.out.contains("calls per object"), "{}", output.out);

    home.run(&["bench", "--program", &operator, "--samples", "nowhere"]).fails_with(&["nowhere"]);
    assert_eq!(home.run(&["bench", "--program", &operator, "--count", "0"]).code, Some(2));
}
