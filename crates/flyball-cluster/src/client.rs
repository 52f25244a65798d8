//! Clients of the API server in the same process, without a socket.

use flyball_server::{Server, User};
use http::Request;
use tower::ServiceExt;

/// Creates a client that is authenticated as `user`.
pub(crate) fn client_of(server: &Server, user: User) -> kube::Client {
    let user = move |mut request: Request<kube::client::Body>| {
        request.extensions_mut().insert(user.clone());
        request
    };
    kube::Client::new(server.clone().map_request(user), "default")
}
