//! The database: a MySQL server with generated credentials.

use super::tier::{Tier, secret_variable, variable};
use crate::api::visitorsapp_v1::VisitorsApp;
use flyball::{Children, Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

const IMAGE: &str = "mysql:8.4";
const PORT: u16 = 3306;

pub(super) fn tier(app: &VisitorsApp) -> Tier {
    Tier::new(app, "mysql")
}

/// Returns the credentials of a database: the existing ones, or new ones.
pub(super) async fn credentials(
    app: &VisitorsApp,
    cx: &Context<VisitorsApp>,
    new_password: fn() -> String,
) -> Result<Secret> {
    let name = format!("{}-auth", tier(app).name);
    let data = match cx.get::<Secret>(&cx.sibling(&name)).await?.and_then(|secret| secret.data) {
        Some(data) => json!(data),
        None => {
            let bytes = |text: &str| json!(ByteString(text.into()));
            json!({"username": bytes("visitors"), "password": bytes(&new_password())})
        }
    };
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "type": "Opaque", "data": data}))?)
}

pub(super) fn add_stage(children: Children, app: &VisitorsApp, credentials: &Secret) -> Result<Children> {
    let tier = tier(app);
    let env = [
        variable("MYSQL_DATABASE", "visitors"),
        variable("MYSQL_RANDOM_ROOT_PASSWORD", "yes"),
        secret_variable("MYSQL_USER", credentials, "username"),
        secret_variable("MYSQL_PASSWORD", credentials, "password"),
    ];
    let (deployment, service) = (tier.deployment(1, IMAGE, PORT, &env)?, tier.service("ClusterIP", PORT)?);
    Ok(children.stage("mysql").child(credentials).child(&deployment).child(&service))
}
