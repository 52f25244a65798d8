//! The user of a request is exactly that of its headers, or the request is rejected.

use bytes::Bytes;
use flyball_core::Clock;
use flyball_server::{Options, Server, User};
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Returns the user of a request with these headers from an administrator.
async fn authenticate(server: &Server, headers: &[(&str, &[u8])]) -> (u16, Value) {
    let mut request = Request::new(Full::new(Bytes::from(json!({}).to_string())));
    (*request.method_mut(), *request.uri_mut()) = (Method::POST, REVIEWS.parse().unwrap());
    request.extensions_mut().insert(User::new("boss", &["system:masters"]));
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
    }
    let response = server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    (code, answer["status"]["userInfo"].clone())
}

/// Valid bytes of a header.
const VALUES: [&[u8]; 12] = [
    b"ann",
    b"",
    b"system:serviceaccount:ns:robot",
    "j\u{fc}rgen".as_bytes(),
    "\u{65e5}\u{672c}\u{8a9e}".as_bytes(),
    "a\u{301}".as_bytes(),
    b"\xff",
    b"ann\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf0\x9f",
    b"a\tb",
];

#[tokio::test]
async fn impersonation_is_exact_or_rejected() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    for value in VALUES {
        let expected = str::from_utf8(value).ok().filter(|text| !text.is_empty());
        for header in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
            let mut headers = vec![(header, value)];
            if header != "impersonate-user" {
                headers.push(("impersonate-user", b"jane"));
            }
            let (code, user) = authenticate(&server, &headers).await;
            let Some(expected) = expected else {
                assert_eq!(code, 400, "{header}: {value:?}");
                continue;
            };
            assert_eq!(code, 201, "{header}: {value:?}");
            let found = match header {
                "impersonate-user" => user["username"].clone(),
                "impersonate-group" => user["groups"][0].clone(),
                "impersonate-uid" => user["uid"].clone(),
                _ => user["extra"]["scopes"][0].clone(),
            };
            assert_eq!(found, expected, "{header}: {user}");
            assert!(!user.to_string().contains("boss") && !user.to_string().contains("masters"), "{user}");
            // Without a user name it is rejected.
            let (code, _) = authenticate(&server, &headers[..1]).await;
            assert_eq!(code, if header == "impersonate-user" { 201 } else { 400 }, "{header} alone: {value:?}");
        }
        // With a malformed token, the certificate is not used.
        let (code, user) = authenticate(&server, &[("authorization", &[b"Bearer ", value].concat())]).await;
        match value {
            b"" => assert_eq!((code, &user["username"]), (201, &"boss".into())),
            _ => assert_eq!(code, 401, "{value:?}"),
        }
    }
}

#[tokio::test]
async fn duplicate_or_unnamed_identity_headers_are_rejected() {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    let jane: (&str, &[u8]) = ("impersonate-user", b"jane");
    for headers in [
        &[jane, ("impersonate-user", b"ann")][..],
        &[jane, ("impersonate-uid", b"1"), ("impersonate-uid", b"2")],
        &[jane, ("impersonate-extra-", b"a")],
        &[("impersonate-user", b""), ("impersonate-group", b"system:masters")],
    ] {
        assert_eq!(authenticate(&server, headers).await.0, 400, "{headers:?}");
    }
    let (code, user) = authenticate(&server, &[jane, ("impersonate-group", b"a"), ("impersonate-group", b"b")]).await;
    assert_eq!((code, &user["groups"]), (201, &json!(["a", "b", "system:authenticated"])));
}
