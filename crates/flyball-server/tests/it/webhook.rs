//! Webhooks are called over TLS, and only if their certificate is valid.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::pki::Authority;
use flyball_server::{Caller, Dialer, Options, ResponseMemory, Server, WebhookCall, WebhookResponse, serve};
use tokio::net::TcpListener;

/// Calls a server whose certificate is for `name`, with its authority's certificate or its own as the bundle.
async fn call(name: &str, bundle: impl FnOnce(String, String) -> String) -> Result<WebhookResponse, String> {
    let clock = Clock::system();
    let authority = Authority::new(&clock).unwrap();
    let identity = authority.server(&[name]).unwrap();
    let tls = authority.tls(&identity).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::new(Options::simulated(clock, 1));
    let serving = tokio::spawn(serve(server, listener, tls, std::future::pending()));
    let call = WebhookCall {
        url: format!("https://{address}/nowhere?timeout=5s"),
        address,
        server_name: "localhost".into(),
        ca_bundle: bundle(authority.certificate(), identity.certificate.clone()).into_bytes(),
        body: Bytes::from_static(b"{}"),
        memory: ResponseMemory::default(),
    };
    let answered = Dialer::default().call(call).await;
    serving.abort();
    answered
}

#[tokio::test]
async fn webhook_trusted_by_its_bundle_is_called() {
    assert_eq!(call("localhost", |authority, _| authority).await.unwrap().code, 403);
    // As in Go, a certificate that is itself in the bundle is trusted.
    assert_eq!(call("localhost", |_, own| own).await.unwrap().code, 403);
}

#[tokio::test]
async fn untrusted_webhook_is_rejected() {
    let other = || Authority::new(&Clock::system()).unwrap().certificate();
    assert_eq!(
        call("localhost", |_, _| other()).await.unwrap_err(),
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    );
    for wrong in [call("elsewhere", |authority, _| authority).await, call("elsewhere", |_, own| own).await] {
        assert_eq!(
            wrong.unwrap_err(),
            "tls: failed to verify certificate: x509: certificate is not valid for any names, but wanted to match localhost"
        );
    }
}

#[tokio::test]
async fn call_to_a_closed_port_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let call = WebhookCall {
        url: format!("https://{address}/x"),
        address: address.clone(),
        server_name: "127.0.0.1".into(),
        ca_bundle: Vec::new(),
        body: Bytes::new(),
        memory: ResponseMemory::default(),
    };
    let refused = Dialer::default().call(call).await.unwrap_err();
    assert_eq!(refused, format!("dial tcp {address}: connect: connection refused"));
}
