//! Manifests of webhooks, independent of the source of their certificate.

use crate::widgets::Widget;
use flyball::webhook::{AdmissionRequest, Certificates, Verdict, Webhook};
use flyball::{Operator, WebhookServer};
use kube::CustomResourceExt;
use serde_json::Value;

#[test]
fn bundle_permissions_follow_the_certificate_source() {
    let permissions = |certificates: Certificates| {
        let webhook = Webhook::new()
            .defaults(|_: &mut Widget, _: &AdmissionRequest<Widget>| Ok(()))
            .validates(|_: &AdmissionRequest<Widget>| Ok(Verdict::allow()));
        let server = WebhookServer { certificates, ..WebhookServer::default() };
        let operator = Operator::new("op").crd(Widget::crd()).webhook(webhook).webhook_server(server);
        let manifests = operator.manifests();
        let configurations =
            manifests.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.contains("Webhook")));
        let injected: Vec<Value> = configurations
            .inspect(|object| assert_eq!(object["webhooks"][0]["clientConfig"].get("caBundle"), None))
            .map(|object| object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].clone())
            .collect();
        let rules = operator.rules();
        let rules = rules.iter().filter(|rule| rule.api_groups.iter().flatten().any(|group| group.starts_with("adm")));
        let verbs: Vec<String> = rules
            .inspect(|rule| assert_eq!(rule.resource_names.as_deref(), Some(&["op-webhook".to_owned()][..])))
            .map(|rule| rule.verbs.join(","))
            .collect();
        assert!(verbs.len() == 2 && verbs[0] == verbs[1], "{verbs:?}");
        (injected, verbs[0].clone())
    };
    let (reads, writes) = (|| "get,list,watch".to_owned(), "get,list,update,watch".to_owned());
    let directory = || "/tls".into();
    assert_eq!(permissions(Certificates::Own), (vec![Value::Null, Value::Null], writes));
    assert_eq!(permissions(Certificates::Files(directory())), (vec![Value::Null, Value::Null], reads()));
    let manager = Certificates::CertManager { certificate: "ns/op".into(), directory: directory() };
    assert_eq!(permissions(manager), (vec!["ns/op".into(), "ns/op".into()], reads()));
}
