//! Requests for certificates, and certificates.

use crate::facts::{post, send, server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Clock;
use flyball_server::pki::Authority;
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(pem: &str) -> Value {
    let spec = json!({"request": STANDARD.encode(pem), "signerName": "e.com/s", "usages": ["client auth"]});
    json!({"metadata": {"name": "r"}, "spec": spec})
}

fn good() -> String {
    let keys = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(["e.com".to_owned()]).unwrap().serialize_request(&keys).unwrap().pem().unwrap()
}

#[tokio::test]
async fn invalid_certificate_requests_are_rejected() {
    let server = server().await;
    let block = "PEM block type must be CERTIFICATE REQUEST";
    let cases = [
        ("x", block),
        ("", block),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", block),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "asn1: "),
        ("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n", "asn1: "),
    ];
    for (pem, why) in cases {
        let (code, answer) = post(&server, ALL, request(pem)).await;
        let cause =
            answer["details"]["causes"].as_array().unwrap().iter().find(|cause| cause["field"] == "spec.request");
        let message = cause.map(|cause| cause["message"].to_string()).unwrap_or_default();
        assert!(code == 422 && message.contains(why), "{pem}: {answer}");
    }
    assert_eq!(post(&server, ALL, request(&good())).await.0, 201);
}

#[tokio::test]
async fn invalid_issued_certificates_are_rejected() {
    let server = server().await;
    assert_eq!(post(&server, ALL, request(&good())).await.0, 201);
    let issue = async |pem: &str| {
        let status = json!({"status": {"certificate": STANDARD.encode(pem)}});
        send(&server, Method::PATCH, &format!("{ALL}/r/status"), "application/merge-patch+json", status).await
    };
    let certificate = Authority::new(&Clock::system()).unwrap().certificate();
    let headers = certificate.replacen("-----\n", "-----\nk: v\n\n", 1);
    let cases = [
        ("x", "must contain at least one CERTIFICATE PEM block"),
        (&*good(), "only CERTIFICATE PEM blocks are allowed, found \\\"CERTIFICATE REQUEST\\\""),
        (&*headers, "no PEM block headers are permitted"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x509: malformed certificate"),
    ];
    for (pem, why) in cases {
        let (code, answer) = issue(pem).await;
        assert!(code == 422 && answer["details"]["causes"].to_string().contains(why), "{pem}: {answer}");
    }
    assert_eq!(issue(&format!("{certificate}{certificate}")).await.0, 200);
}

#[tokio::test]
async fn requests_for_system_masters_are_forbidden() {
    let server = server().await;
    let keys = rcgen::KeyPair::generate().unwrap();
    for (signer, group, expected) in [
        ("kubernetes.io/kube-apiserver-client", "system:masters", 403),
        ("kubernetes.io/kube-apiserver-client", "developers", 201),
        ("example.com/signer", "system:masters", 201),
    ] {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        let mut request = request(&params.serialize_request(&keys).unwrap().pem().unwrap());
        request["metadata"] = json!({"generateName": "r-"});
        request["spec"]["signerName"] = signer.into();
        let (code, answer) = post(&server, ALL, request).await;
        assert_eq!(code, expected, "{signer} {group}: {answer}");
        if expected == 403 {
            let why = format!("use of {signer} signer with {group} group is not allowed");
            assert!(answer["message"].as_str().unwrap().ends_with(&why), "{answer}");
        }
    }
}
