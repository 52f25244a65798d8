//! Explanations of `flyball olm why` for CRDs that an InstallPlan cannot change.

use crate::Home;
use crate::olm::{Catalog, apply, json_of, namespace, subscription, until};
use serde_json::json;

#[test]
fn version_whose_definition_can_be_installed_is_named() {
    let home = Home::new("olm-definitions");
    home.run(&["cluster", "up", "--nodes", "1", "--quiet"]).ok();
    home.run(&["olm", "install", "--quiet"]).ok();
    let catalog = Catalog::serve(&home);
    namespace(&home, &catalog.address);
    // The next version of this channel drops the stored version of the CRD.
    apply(&home, &[subscription("memo", json!({"channel": "dropping", "startingCSV": "memo.v1.0.0"}))]);
    let why = until(&home, "olm why memo -n demo -o json", |output| {
        output.out.contains("no longer has the storage version v1")
    });
    let report = json_of(&why);
    let causes = report["causes"].as_array().unwrap();
    let of = |object: &str| causes.iter().find(|cause| cause["object"].as_str().unwrap().starts_with(object)).unwrap();
    let help = "install memo.v2.1.0 instead, which works: set spec.channel: candidate, and flyball olm pin memo 2.1.0 \
                -n demo";
    assert_eq!(of("CustomResourceDefinition memos.demo.flyball.dev")["remedy"], help);
    assert_eq!(
        of("InstallPlan demo/")["remedy"],
        format!("{help}; the manager then goes on by itself, at the latest after a minute")
    );
}
