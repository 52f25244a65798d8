//! The proofs of the operator's capability level, which `flyball levels` runs.
//!
//! See <https://sdk.operatorframework.io/docs/overview/operator-capabilities/>.

use crate::world::{NAME_OF_SAMPLE, condition, play};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt};
use serde_json::json;

#[test]
fn level_1_install_makes_a_cluster_that_serves() {
    play(async |world| {
        world.create(3, json!({})).await;
        let status = world.status().await;
        assert_eq!((status.members.ready.len(), status.current_version.as_str()), (3, "3.1.10"));
        assert!(world.names().await.iter().all(|name| name.starts_with(NAME_OF_SAMPLE)));
        let services: Api<Service> = Api::namespaced(world.admin.clone(), "default");
        for (name, address) in [(NAME_OF_SAMPLE.to_owned(), true), (format!("{NAME_OF_SAMPLE}-client"), false)] {
            let spec = services.get(&name).await.unwrap().spec.unwrap();
            assert_eq!(spec.cluster_ip.as_deref() == Some("None"), address);
        }
        world.put("foo", "bar").await;
        assert_eq!(world.get("foo").await.as_deref(), Some("bar"));
        assert_eq!(condition(&world.status().await, "Available"), "True");
    });
}
