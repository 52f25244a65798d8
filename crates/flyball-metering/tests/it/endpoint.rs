//! The endpoint for results, with the rights of the Report.

use crate::trace::Directory;
use flyball_cluster::testing::Test;
use flyball_metering::access::Access;
use flyball_metering::endpoint::respond;
use flyball_metering::store::{Cell, PeriodResult, Quota, Store};
use flyball_metering::{Settings, operator};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn results_have_the_rights_of_their_report() {
    let directory = Directory::new();
    let data = directory.0.join("operator");
    let test =
        Test::of(move || operator(Settings { poll_interval: None, has_threads: false, ..Settings::new(data.clone()) }));
    let test = test.start().await;
    let store = Arc::new(Store::open(&directory.0.join("results")).unwrap());
    let columns = ["period_start".to_owned(), "namespace".to_owned(), "amount".to_owned()];
    let rows = vec![vec![Cell::Integer(0), Cell::Text("=shop".into()), Cell::Integer(7)]];
    let namespace = test.namespace();
    let result = PeriodResult { since: 0, until: 86_400, rows };
    store.put_result(("u", namespace, "daily"), &columns, &result, false, &Quota::default()).unwrap();
    let rule = PolicyRule {
        api_groups: Some(vec!["metering.flyball.dev".into()]),
        resources: Some(vec!["reports".into()]),
        resource_names: Some(vec!["daily".into(), "never".into()]),
        verbs: vec!["get".into()],
        ..PolicyRule::default()
    };
    test.account("reader", &[rule]).await;
    test.account("stranger", &[]).await;
    let token = async |account: &str| {
        let accounts: Api<ServiceAccount> = Api::namespaced(test.client(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .unwrap()
            .status
            .unwrap()
            .token
            .unwrap()
    };
    let (reader, stranger) = (token("reader").await, token("stranger").await);
    let access = Access::new(test.client());
    let check = async |token: &str, path: &str, code: u16, text: &str| {
        let request = Request::get(path).header("authorization", format!("Bearer {token}")).body(()).unwrap();
        let response = respond(&store, &access, &request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(status == code && body.contains(text), "{path}: {status} {body}");
    };
    let path = format!("/api/v1/namespaces/{namespace}/reports/daily");
    check(&reader, &path, 200, r#""period_start":"1970-01-01T00:00:00Z""#).await;
    check(&reader, &format!("{path}?format=csv"), 200, "'=shop,7").await;
    check(&reader, &format!("{path}?since=1970-01-02T00:00:00Z"), 200, r#"{"results":[]}"#).await;
    check(&reader, &format!("{path}?since=now"), 400, "since").await;
    check(&reader, &format!("{path}?format=xml"), 400, "csv or json").await;
    check(&stranger, &path, 403, "may not get").await;
    check("invented", &path, 401, "invalid token").await;
    check("", &path, 401, "required").await;
    check(&reader, &format!("/api/v1/namespaces/{namespace}/reports/other"), 403, "").await;
    check(&reader, &format!("/api/v1/namespaces/{namespace}/reports/never"), 404, "does not exist").await;
    check(&reader, "/metrics", 404, "").await;
    // A large result arrives in parts.
    let row = |at: i64| vec![Cell::Integer(at), Cell::Text("x".repeat(1000)), Cell::Integer(at)];
    let result = PeriodResult { since: 86_400, until: 172_800, rows: (0..3000).map(row).collect() };
    store.put_result(("u", namespace, "daily"), &columns, &result, false, &Quota::default()).unwrap();
    for (format, separator) in [("csv", "\r\n"), ("json", "},{")] {
        let request =
            Request::get(format!("{path}?format={format}")).header("authorization", format!("Bearer {reader}"));
        let mut body = respond(&store, &access, &request.body(()).unwrap()).await.into_body();
        let (mut text, mut largest) = (String::new(), 0);
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            largest = largest.max(part.len());
            text.push_str(std::str::from_utf8(&part).unwrap());
        }
        assert!(text.len() > 3_000_000 && largest < 400_000, "{format}: {} {largest}", text.len());
        assert_eq!(text.matches(separator).count(), if format == "csv" { 3002 } else { 3000 });
        assert!(format == "csv" || serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
