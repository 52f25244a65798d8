//! Discovery of kinds at the API server.

use super::{HttpService, exchange};
use crate::kind::{Kind, group_version_path};
use flyball_core::{GroupResource, GroupVersionKind};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;

impl Kind {
    /// Discovers a kind by group, version and name at the API server; `None` if it does not serve the kind.
    ///
    /// ```
    /// use flyball::{Client, GroupVersionKind, Kind};
    ///
    /// async fn kind_in_file(client: &Client) -> kube::Result<Kind> {
    ///     let gvk = GroupVersionKind::new("example.com", "v1", "Site");
    ///     // The kind may not be installed yet: the operator then waits for it with the regular plural.
    ///     Ok(Kind::discover(client, &gvk).await?.unwrap_or_else(|| Kind::new(&gvk.group, &gvk.version, &gvk.kind)))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When the API server does not respond or returns an error; an unknown group or version is not an error.
    #[doc(alias = "RESTMapper")]
    #[doc(alias = "pinned_kind")]
    pub async fn discover(client: &kube::Client, gvk: &GroupVersionKind) -> kube::Result<Option<Self>> {
        Self::discover_by(client, gvk).await
    }

    /// Finds a kind as [`discover`](Self::discover) does, with any client.
    pub(crate) async fn discover_by(client: &dyn HttpService, gvk: &GroupVersionKind) -> kube::Result<Option<Self>> {
        let request = Request::get(group_version_path(gvk)).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let list = match exchange(client, request).await {
            Ok(body) => body,
            // For an unknown group, the server responds with plain text.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let list: APIResourceList = serde_json::from_slice(&list).map_err(kube::Error::SerdeError)?;
        // Subresources, such as `sites/status`, have the same kind.
        let found = list.resources.into_iter().find(|known| *known.kind == *gvk.kind && !known.name.contains('/'));
        Ok(found.map(|known| Self::named(gvk.clone(), GroupResource::new(&gvk.group, &known.name), known.namespaced)))
    }
}
