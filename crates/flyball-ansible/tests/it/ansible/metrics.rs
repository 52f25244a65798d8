//! The module `osdk_metric` in runs of `ansible-playbook`.
//!
//! The project has a module of its own with this name, since the collection `operator_sdk.util` needs a download: it
//! sends the same requests.

use super::named;
use crate::project::{Project, api, change, condition, shops};
use crate::role_metrics::{SHOP, check, free_address, metered, scrape, tasks};
use flyball_ansible::Executor;
use flyball_cluster::testing::Test;
use serde_json::json;
use tokio::net::TcpStream;

/// Sends a request as the module of operator-sdk, which sends all operations of a type.
const MODULE: &str = r#"
import json
import urllib.error
import urllib.request

from ansible.module_utils.basic import AnsibleModule

NUMBER, FLAG = {"type": "float"}, {"type": "bool"}
TYPES = {
    "counter": {"increment": FLAG, "add": NUMBER},
    "gauge": {"set": NUMBER, "increment": FLAG, "decrement": FLAG, "set_to_current_time": FLAG},
    "histogram": {"observe": NUMBER},
    "summary": {"observe": NUMBER},
}
spec = {name: {"type": "dict", "options": options} for name, options in TYPES.items()}
spec.update({name: {"type": "str", "required": True} for name in ("name", "description", "address")})
module = AnsibleModule(argument_spec=spec)
body = {name: value for name, value in module.params.items() if value is not None}
request = urllib.request.Request(
    body.pop("address"), json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
)
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    module.fail_json(msg=error.read().decode(), status_code=error.code)
module.exit_json(changed=True)
"#;

with_both_executors! {
    roles_send_metrics_to_the_operator
}

async fn roles_send_metrics_to_the_operator(executor: Executor) {
    if std::env::var_os("FLYBALL_TEST_ANSIBLE").is_none() {
        return;
    }
    let (metrics, of_roles) = (free_address(), free_address());
    let url = format!("http://localhost:{}/metrics", of_roles.port());
    let other = format!("{{address: '{url}', name: '{{{{ other }}}}', description: a, gauge: {{set: 1}}}}");
    let tasks = format!("{}- osdk_metric: {other}\n  when: other is defined\n", tasks(of_roles));
    let files = [("roles/a/tasks/main.yml", tasks.as_str()), ("roles/a/library/osdk_metric.py", MODULE)];
    let written = Project::new(&named("role-metrics", executor), &files);
    let folder = written.folder().to_owned();
    let test = Test::of(move || metered(folder.clone(), executor, metrics, of_roles)).start().await;
    test.apply(SHOP).await;
    let objects = api(&test, &shops());
    let found = async |kind: &str| condition(&objects.get("corner").await.unwrap(), kind);
    test.eventually("it is successful", async || found("Successful").await["status"] == "True").await;
    check(&scrape(metrics).await);
    assert!(TcpStream::connect(of_roles).await.is_ok());
    for (other, problem) in [
        ("another", "the name of a metric must be literal in a task"),
        ("flyball_saturation", "the prefix flyball_ is reserved"),
        ("shops_opened_total", "cannot change metric type, which is a counter"),
    ] {
        change(&objects, "corner", json!({"spec": {"other": other}})).await;
        let failure = async || found("Failure").await["message"].as_str().unwrap_or_default().to_owned();
        test.eventually(problem, async || failure().await.contains(problem)).await;
    }
    let text = scrape(metrics).await;
    assert!(!text.contains("another") && text.matches("# TYPE shops_opened").count() == 1, "{text}");
}
