//! Secrets that hold the tokens of service accounts.

use crate::{cluster, eventually, namespace};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

const UID: &str = "kubernetes.io/service-account.uid";

async fn account(client: &Client, name: &str) -> ServiceAccount {
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::namespaced(client.clone(), "ns").create(&PostParams::default(), &account).await.unwrap()
}

async fn secret(client: &Client, name: &str, account: &str, uid: Option<&str>) -> Api<Secret> {
    let mut annotations = json!({"kubernetes.io/service-account.name": account});
    if let Some(uid) = uid {
        annotations[UID] = uid.into();
    }
    let secret =
        json!({"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token"});
    let secrets = Api::namespaced(client.clone(), "ns");
    secrets.create(&PostParams::default(), &serde_json::from_value::<Secret>(secret).unwrap()).await.unwrap();
    secrets
}

#[tokio::test(start_paused = true)]
async fn token_secret_is_filled_and_deleted_with_its_account() {
    let cluster = cluster();
    let client = cluster.admin();
    namespace(&client, "ns").await;
    let robot = account(&client, "robot").await;
    let secrets = secret(&client, "t", "robot", None).await;
    let filled = async || secrets.get_opt("t").await.unwrap().filter(|secret| secret.data.is_some());
    eventually("the token", || async { filled().await.is_some() }).await;
    let token_secret = filled().await.unwrap();
    assert_eq!(token_secret.annotations()[UID], robot.uid().unwrap());
    let data: Vec<(&str, &[u8])> =
        token_secret.data.iter().flatten().map(|(key, value)| (key.as_str(), &value.0[..])).collect();
    assert_eq!((data[0], data[1]), (("ca.crt", &b"a certificate"[..]), ("namespace", &b"ns"[..])));
    let token = std::str::from_utf8(data[2].1).unwrap();

    // It authenticates the account, as long as the secret contains it.
    let status = async || {
        let request = Request::get("/apis/authentication.k8s.io/v1").header("authorization", format!("Bearer {token}"));
        cluster.server().handle(request.body(Full::new(Bytes::new())).unwrap()).await.status().as_u16()
    };
    assert_eq!(status().await, 200);
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "ns");
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    eventually("the end of the secret", || async { secrets.get_opt("t").await.unwrap().is_none() }).await;
    assert_eq!(status().await, 401);
}

#[tokio::test(start_paused = true)]
async fn token_secrets_of_missing_accounts_are_deleted() {
    let client = cluster().admin();
    namespace(&client, "ns").await;
    account(&client, "robot").await;
    for (account, uid) in [("none", None), ("robot", Some("another"))] {
        let secrets = secret(&client, "t", account, uid).await;
        eventually("the end of the secret", || async { secrets.get_opt("t").await.unwrap().is_none() }).await;
    }
    // Secrets of other types are not changed.
    let opaque = json!({"metadata": {"name": "o", "annotations": {"kubernetes.io/service-account.name": "none"}}});
    let secrets = Api::<Secret>::namespaced(client.clone(), "ns");
    secrets.create(&PostParams::default(), &serde_json::from_value(opaque).unwrap()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(secrets.get_opt("o").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn account_names_do_not_change_requests() {
    let client = cluster().admin();
    namespace(&client, "ns").await;
    let secrets = secret(&client, "t", "?watch=true&x=", None).await;
    eventually("the deletion", || async { secrets.get_opt("t").await.unwrap().is_none() }).await;
}
