//! The layers inside the crate, as ARCHITECTURE.md draws them.

use flyball_architecture::Sources;

/// The layers from the ground up: each module, and the modules that it may import.
const LAYERS: &[(&str, &[&str])] = &[
    ("site", &[]),
    ("trace", &[]),
    ("pace", &[]),
    ("cost", &[]),
    ("scenario", &[]),
    ("fault", &["site"]),
    ("catalog", &["fault"]),
    ("crossing", &["fault", "site"]),
    ("history", &["site"]),
    ("world", &["history"]),
    ("schedule", &["fault", "site"]),
    ("hub", &["cost", "crossing", "fault", "history", "pace", "schedule", "site", "trace"]),
    ("external", &["fault", "hub", "site"]),
    ("actions", &["fault", "history", "hub", "site"]),
    ("stream", &["fault", "history", "hub", "site"]),
    ("frozen", &["hub", "site"]),
    ("port", &["actions", "fault", "frozen", "history", "hub", "site", "stream"]),
    ("webhook", &["fault", "hub", "site"]),
    ("state", &["actions", "history", "site"]),
    ("process", &["hub", "port", "site"]),
    ("subject", &["process"]),
    ("stage", &["external", "history", "hub", "scenario", "site", "state", "subject"]),
    ("driver", &["fault", "history", "hub", "process", "scenario", "schedule", "site", "stage"]),
    (
        "run",
        &[
            "cost", "crossing", "driver", "external", "history", "hub", "pace", "port", "process", "schedule", "site",
            "stage", "state", "subject", "webhook",
        ],
    ),
    ("reference", &["history", "run", "scenario", "schedule", "stage", "state"]),
    ("oracle", &["fault", "history", "hub", "reference", "run", "schedule", "state", "world"]),
    ("campaign", &["driver", "scenario", "site", "stage"]),
    (
        "evaluate",
        &["campaign", "cost", "crossing", "oracle", "reference", "run", "schedule", "site", "stage", "state", "trace"],
    ),
    ("search", &["evaluate", "fault", "run", "schedule", "site"]),
    ("shrink", &["evaluate", "oracle", "scenario", "schedule"]),
    ("report", &["cost", "history", "hub", "oracle", "run", "schedule", "site"]),
    ("trial", &["hub", "run", "scenario", "schedule", "stage"]),
    ("exploration", &["evaluate", "fault", "oracle", "report", "schedule", "search", "shrink"]),
    ("progress_file", &["exploration"]),
    (
        "explorer",
        &[
            "campaign",
            "cost",
            "crossing",
            "evaluate",
            "exploration",
            "external",
            "oracle",
            "process",
            "progress_file",
            "report",
            "run",
            "scenario",
            "schedule",
            "site",
            "stage",
            "subject",
            "trial",
            "world",
        ],
    ),
];

#[test]
fn modules_form_layers() {
    Sources::of(env!("CARGO_MANIFEST_DIR")).check(LAYERS);
}

#[test]
fn layers_match_document() {
    Sources::check_document("Imports in flyball-explore", LAYERS);
}
