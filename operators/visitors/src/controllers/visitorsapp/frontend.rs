//! The frontend: shows the title of the site and the visitors that the backend counted.

use super::backend;
use super::tier::{Tier, variable};
use crate::api::visitorsapp_v1::VisitorsApp;
use flyball::{Children, Result};

pub(super) const IMAGE: &str = "jdob/visitors-webui:1.0.0";
const PORT: u16 = 3000;

pub(super) fn add_stage(children: Children, app: &VisitorsApp) -> Result<Children> {
    let tier = Tier::new(app, "frontend");
    let env =
        [variable("REACT_APP_TITLE", &app.spec.title), variable("REACT_APP_BACKEND_HOST", &backend::tier(app).name)];
    let deployment = tier.deployment(1, IMAGE, PORT, &env)?;
    Ok(children.stage("frontend").child(&deployment).child(&tier.service("NodePort", PORT)?))
}
