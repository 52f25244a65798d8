//! The threads on which objects are decoded.

use crate::api::Api;
use crate::widgets::{Stage, Widgets, operator, settle};
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug)]
#[kube(group = "example.com", version = "v1", kind = "Page", namespaced, schema = "disabled")]
struct PageSpec {
    text: Text,
}

/// A text, of which only the thread is kept that decoded it.
#[derive(Clone, Debug)]
struct Text(ThreadId);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        String::deserialize(text).map(|_| Self(thread::current().id()))
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("")
    }
}

#[derive(Clone, Default)]
struct Pages(Arc<Mutex<Vec<(String, ThreadId)>>>);

impl Reconcile for Pages {
    type Resource = Page;

    async fn reconcile(&self, page: &Page, _: &Context<Page>) -> Result<Action> {
        self.0.lock().unwrap().push((page.name_any(), page.spec.text.0));
        Ok(Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn large_objects_are_decoded_on_other_threads() {
    let own = thread::current().id();
    for (operator, expected) in
        [(Operator::new("op"), [("large", true), ("small", false)]), (operator(), [("large", false), ("small", false)])]
    {
        let (api, pages) = (Api::default(), Pages::default());
        for (name, length) in [("large", 100_000), ("small", 100)] {
            api.edit("pages", "ns", name, |object| {
                object["apiVersion"] = "example.com/v1".into();
                object["kind"] = "Page".into();
                object["spec"] = json!({"text": "x".repeat(length)});
            });
        }
        let _stage = Stage::operator(&api, &Widgets::usual(), operator.controller(Controller::new(pages.clone())));
        settle().await;
        let mut decoded = pages.0.lock().unwrap().clone();
        decoded.sort_by(|(one, _), (other, _)| one.cmp(other));
        let elsewhere: Vec<_> = decoded.iter().map(|(name, thread)| (name.as_str(), *thread != own)).collect();
        assert_eq!(elsewhere, expected);
    }
}
