//! Objects that references of other objects name.

use flyball::{Context, ObjectKey, Resource, Result};
use flyball_core::names::is_path_segment;

/// Reads an object from the API server by a name from another object. A name that is not a single path segment refers
/// to no object: in a URL, it would change the request, for example to a watch that never ends.
pub(crate) async fn read<K: Resource, T: Resource>(key: &ObjectKey, cx: &Context<K>) -> Result<Option<T>> {
    if !is_path_segment(key.name()) {
        return Ok(None);
    }
    let request = kube::core::Request::new(T::url_path(&(), key.namespace())).get(key.name(), &Default::default());
    match cx.client().request(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
