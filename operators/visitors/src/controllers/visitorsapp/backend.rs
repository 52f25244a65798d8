//! The backend: counts visitors in the database.

use super::database;
use super::tier::{Tier, secret_variable, variable};
use crate::api::visitorsapp_v1::VisitorsApp;
use flyball::{Children, Result};
use k8s_openapi::api::core::v1::Secret;

pub(super) const IMAGE: &str = "jdob/visitors-service:1.0.0";
const PORT: u16 = 8000;

pub(super) fn tier(app: &VisitorsApp) -> Tier {
    Tier::new(app, "backend")
}

pub(super) fn add_stage(children: Children, app: &VisitorsApp, credentials: &Secret) -> Result<Children> {
    let tier = tier(app);
    let env = [
        variable("MYSQL_DATABASE", "visitors"),
        variable("MYSQL_SERVICE_HOST", &database::tier(app).name),
        secret_variable("MYSQL_USERNAME", credentials, "username"),
        secret_variable("MYSQL_PASSWORD", credentials, "password"),
    ];
    let deployment = tier.deployment(app.spec.size, IMAGE, PORT, &env)?;
    Ok(children.stage("backend").child(&deployment).child(&tier.service("NodePort", PORT)?))
}
