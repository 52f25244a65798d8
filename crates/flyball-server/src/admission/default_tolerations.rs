//! DefaultTolerationSeconds: by default, pods tolerate a failing node for five minutes.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds>.

use super::pod::{list, spec};
use super::{Attributes, Plugin, PluginResult, Reinvocation, pass};
use crate::kinds::Part;
use flyball_core::Object;
use serde_json::{Value, json};

/// Adds tolerations of failing nodes to pods.
pub(super) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Object>,
        _: &'a mut Reinvocation,
    ) -> PluginResult<'a> {
        if let Some(pod) = object.filter(|_| attributes.part == Part::Whole) {
            tolerations(pod);
        }
        pass()
    }
}

fn tolerations(pod: &mut Object) {
    let tolerations = list(spec(pod), "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |t: &Value| {
            let effect = t["effect"].as_str().unwrap_or_default();
            let tolerated = t["key"].as_str().unwrap_or_default();
            matches!(effect, "" | "NoExecute") && (tolerated == key || tolerated.is_empty())
        };
        if !tolerations.iter().any(tolerates) {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}
