//! An operator whose second version converts its custom resources by a webhook, for `.ci/bundles`.
//!
//! `CONVERTER_VERSION` selects the version. The first one has the API version v1beta1; the second one also has v1, in
//! which its controller reads widgets. Both store v1beta1, so that there is a way back. A controller writes the size
//! into a ConfigMap of the same name.

use flyball::webhook::Webhook;
use flyball::{Action, Context, Controller, Operator, Reconcile, Resource, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::marker::PhantomData;
use std::process::ExitCode;

/// A widget.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "widgets.example.com", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    /// Size in millimeters.
    size: u32,
}

mod v1beta1 {
    use super::*;

    /// A widget.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "widgets.example.com", version = "v1beta1", kind = "Widget", namespaced)]
    pub(super) struct WidgetSpec {
        /// Height in centimeters.
        pub(super) height: u32,
    }
}

impl From<v1beta1::Widget> for Widget {
    fn from(old: v1beta1::Widget) -> Self {
        Self { metadata: old.metadata, spec: WidgetSpec { size: old.spec.height.saturating_mul(10) } }
    }
}

impl TryFrom<Widget> for v1beta1::Widget {
    type Error = &'static str;

    fn try_from(new: Widget) -> Result<Self, Self::Error> {
        match new.spec.size % 10 {
            0 => Ok(Self { metadata: new.metadata, spec: v1beta1::WidgetSpec { height: new.spec.size / 10 } }),
            _ => Err("v1beta1 holds only whole centimeters"),
        }
    }
}

/// Any version of a widget.
trait Measured: Resource {
    /// Returns the size in the unit of the version.
    fn size(&self) -> String;
}

impl Measured for Widget {
    fn size(&self) -> String {
        format!("{} mm", self.spec.size)
    }
}

impl Measured for v1beta1::Widget {
    fn size(&self) -> String {
        format!("{} cm", self.spec.height)
    }
}

struct Widgets<W>(PhantomData<fn(W)>);

impl<W: Measured> Reconcile for Widgets<W> {
    type Resource = W;

    async fn reconcile(&self, widget: &W, cx: &Context<W>) -> Result<Action> {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": widget.name_any()}, "data": {"size": widget.size()},
        }))?;
        cx.apply(&map).await?;
        Ok(Action::done())
    }
}

fn main() -> ExitCode {
    let operator = Operator::new("converter").version(env!("CARGO_PKG_VERSION")).crd(v1beta1::Widget::crd());
    let is_first = std::env::var("CONVERTER_VERSION").is_ok_and(|version| version.starts_with('1'));
    match is_first {
        true => operator.controller(Controller::new(Widgets::<v1beta1::Widget>(PhantomData)).owns::<ConfigMap>()),
        false => operator
            .crd(Widget::crd())
            .webhook(Webhook::<Widget>::new().converts::<v1beta1::Widget>())
            .controller(Controller::new(Widgets::<Widget>(PhantomData)).owns::<ConfigMap>()),
    }
    .main()
}
