//! What is written of webhooks, wherever their certificate comes from.

use crate::widgets::Widget;
use flyball::Operator;
use flyball::webhook::{AdmissionRequest, Certificates, Verdict, Webhook};
use kube::CustomResourceExt;
use serde_json::Value;

#[test]
fn whoever_makes_the_certificate_tells_the_api_server_of_its_authority() {
    let told = |certificates: Certificates| {
        let webhook = Webhook::new()
            .defaults(|_: &mut Widget, _: &AdmissionRequest<Widget>| Ok(()))
            .validates(|_: &AdmissionRequest<Widget>| Ok(Verdict::allow()));
        let operator = Operator::new("op").crd(Widget::crd()).webhook(webhook).webhook_certificates(certificates);
        let manifests = operator.manifests();
        let configurations =
            manifests.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.contains("Webhook")));
        let injected: Vec<Value> = configurations
            .inspect(|object| assert_eq!(object["webhooks"][0]["clientConfig"].get("caBundle"), None))
            .map(|object| object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].clone())
            .collect();
        let writes = |group: &str| {
            let rules = operator.rules();
            rules.iter().any(|rule| rule.api_groups.iter().flatten().any(|known| known == group))
        };
        (injected, writes("admissionregistration.k8s.io"))
    };
    let directory = || "/tls".into();
    assert_eq!(told(Certificates::Own), (vec![Value::Null, Value::Null], true));
    assert_eq!(told(Certificates::Files(directory())), (vec![Value::Null, Value::Null], false));
    let manager = Certificates::CertManager { certificate: "ns/op".into(), directory: directory() };
    assert_eq!(told(manager), (vec!["ns/op".into(), "ns/op".into()], false));
}
