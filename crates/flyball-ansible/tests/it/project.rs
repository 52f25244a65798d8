//! Projects on disk: existing ones, and those created for a single test.

use flyball::{Kind, Operator};
use flyball_ansible::{Error, Executor, Watches, operator};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Creates the operator of a project.
pub(crate) fn operator_of(folder: &Path) -> Operator {
    operator(&Watches::read(folder.join("watches.yaml")).unwrap().deterministic(), Executor::BuiltIn).unwrap()
}

/// Returns the directory of an existing project.
pub(crate) fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects").join(name)
}

/// Objects of a kind in the namespace of a test.
pub(crate) fn api(test: &Test, kind: &Kind) -> Api<DynamicObject> {
    Api::namespaced_with(test.client(), test.namespace(), &kind.api_resource())
}

/// Modifies an object as a user would.
pub(crate) async fn change(api: &Api<DynamicObject>, name: &str, patch: Value) -> DynamicObject {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Reads the data of a ConfigMap in the namespace of a test; `None` if it does not exist.
pub(crate) async fn data(test: &Test, name: &str) -> Value {
    let map = test.api::<ConfigMap>().get_opt(name).await.unwrap();
    map.map_or(Value::Null, |map| serde_json::to_value(map.data.unwrap_or_default()).unwrap())
}

/// Returns a condition of an object.
pub(crate) fn condition(object: &DynamicObject, kind: &str) -> Value {
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

/// Writes a project with a role `a` with these tasks, for the kind `Shop` of the project `shop`.
pub(crate) struct Project(PathBuf);

impl Project {
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flyball-ansible").join(name);
        let _ = fs::remove_dir_all(&folder);
        let watches = "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n";
        let definition = fs::read_to_string(project("shop").join("config/crd/bases/shops.yaml")).unwrap();
        let own = [("watches.yaml", watches), ("config/crd/bases/shops.yaml", &definition)];
        for (path, text) in own.iter().chain(files) {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn role(name: &str, tasks: &str) -> Self {
        Self::new(name, &[("roles/a/tasks/main.yml", tasks)])
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the error of creating the operator.
    pub(crate) fn refused(&self) -> Error {
        match Watches::read(self.0.join("watches.yaml")).and_then(|watches| operator(&watches, Executor::BuiltIn)) {
            Err(error) => error,
            Ok(_) => panic!("an operator was created from {}", self.0.display()),
        }
    }
}

pub(crate) fn shops() -> Kind {
    Kind::new("shop.example.com", "v1", "Shop")
}
