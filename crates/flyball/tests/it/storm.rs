//! All faults at once: faults, edits by other clients and crashes, generated from a seed.
//!
//! After the storm, the state must be as if there had been none; and the same seed must reproduce the same storm,
//! request by request. `FLYBALL_SEED` runs a single seed.

use crate::api::{Api, Fault, Seen};
use crate::barrier::counting;
use crate::widgets::*;
use flyball::{Controller, Rng};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

const WIDGETS: u64 = 12;
const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;

/// The children that the operator keeps for a widget.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// A ConfigMap with the same name, and a status.
    Usual,
    /// As many ConfigMaps with generated names as its size.
    Counting,
}

struct Storm {
    api: Api,
    rng: Rng,
    work: Work,
    widgets: Widgets,
    stage: Option<Stage>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let (work, widgets) = match seed % 2 {
            0 => (Work::Usual, Widgets::usual()),
            _ => (Work::Counting, counting()),
        };
        let mut storm = Self { api: Api::default(), rng: Rng::from_seed(seed), work, widgets, stage: None };
        storm.start();
        storm
    }

    fn start(&mut self) {
        let controller = Controller::new(self.widgets.clone()).owns::<ConfigMap>().concurrency(3);
        let operator = operator().rng(self.rng.fork("operator")).controller(controller);
        self.stage = Some(Stage::operator(&self.api, &self.widgets, operator));
    }

    fn name(&self) -> String {
        format!("w{}", self.rng.below(WIDGETS))
    }

    fn resource(&self) -> &'static str {
        ["widgets", "configmaps"][self.rng.below(2) as usize]
    }

    /// Performs one action on the cluster.
    async fn blow(&mut self) {
        let (api, resource) = (self.api.clone(), self.resource());
        match self.rng.below(16) {
            0 => api.cut(resource),
            1 => api.hold(resource),
            2 | 3 => api.release(resource),
            4 => {
                api.compact();
                api.send(resource, GONE);
            }
            5 => api.send(resource, "{\"type\":"),
            6 => {
                let faults = [
                    Fault::Refuse(500),
                    Fault::Refuse(409),
                    Fault::Refuse(403),
                    Fault::LoseAnswer,
                    Fault::RefuseFor(429, 1),
                ];
                let part = ["PATCH", "POST", "DELETE", "GET", "watch=true"][self.rng.below(5) as usize];
                api.fail(part, self.rng.below(4) as usize, faults[self.rng.below(5) as usize].clone());
            }
            7 => {
                self.stage.take().expect("there is always one").kill().await;
                self.start();
            }
            8 if self.work == Work::Usual => api.delete("configmaps", "ns", &self.name()),
            9 if self.work == Work::Usual => {
                let name = self.name();
                if api.get("configmaps", "ns", &name).is_some() {
                    api.edit("configmaps", "ns", &name, |object| object["data"]["size"] = "theirs".into());
                }
            }
            10 => api.delete("widgets", "ns", &self.name()),
            _ => widget(&api, &self.name(), self.rng.below(5) as i64),
        }
    }

    /// Deletes the children of deleted objects, as the garbage collector does.
    fn collect_garbage(&self) {
        let uid_of = |key: &String| {
            let object = self.api.get("widgets", "ns", key.split_once('/')?.1)?;
            Some(object["metadata"]["uid"].clone())
        };
        let living: Vec<Value> = self.api.names("widgets").iter().filter_map(uid_of).collect();
        for key in self.api.names("configmaps") {
            let name = key.split_once('/').unwrap().1;
            let owner =
                self.api.get("configmaps", "ns", name).unwrap()["metadata"]["ownerReferences"][0]["uid"].clone();
            if !living.contains(&owner) {
                self.api.delete("configmaps", "ns", name);
            }
        }
    }

    /// Fails unless the state is the one desired by the widgets.
    fn check(&self, seed: u64) {
        for i in 0..WIDGETS {
            let name = format!("w{i}");
            let Some(object) = self.api.get("widgets", "ns", &name) else { continue };
            let (uid, size) = (&object["metadata"]["uid"], object["spec"]["size"].as_i64().unwrap());
            match self.work {
                Work::Usual => {
                    assert_eq!(size_of(&self.api, &name), Some(size.to_string()), "seed {seed}, {name}");
                    assert_eq!(object["status"]["observed"], size, "seed {seed}, {name}");
                }
                Work::Counting => {
                    let names = self.api.names("configmaps");
                    let children =
                        names.iter().filter_map(|key| self.api.get("configmaps", "ns", key.split_once('/')?.1));
                    let own = children.filter(|child| child["metadata"]["ownerReferences"][0]["uid"] == *uid);
                    assert_eq!(own.count() as i64, size, "seed {seed}, {name}");
                }
            }
        }
    }
}

async fn run(seed: u64) -> Vec<Seen> {
    let mut storm = Storm::new(seed);
    for i in 0..WIDGETS {
        widget(&storm.api, &format!("w{i}"), 1);
    }
    for _ in 0..60 {
        sleep(Duration::from_millis(storm.rng.below(60))).await;
        storm.blow().await;
        storm.collect_garbage();
    }
    storm.api.heal();
    for resource in ["widgets", "configmaps"] {
        storm.api.release(resource);
    }
    for _ in 0..20 {
        sleep(Duration::from_secs(30)).await;
        storm.collect_garbage();
    }
    storm.check(seed);
    let seen = storm.api.seen();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(storm.api.writes(), [""; 0], "seed {seed}: still writing after the storm");
    seen
}

#[test]
fn storms_converge_and_repeat_by_seed() {
    let start = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(seed))
    };
    let one = std::env::var("FLYBALL_SEED").ok().map(|seed| seed.parse().expect("FLYBALL_SEED is a number"));
    for seed in one.map_or(0..100, |seed: u64| seed..seed + 1) {
        assert_eq!(start(seed), start(seed), "seed {seed} gave two different storms");
    }
}
