//! Overlays of manifests: images and patches.

mod image;
mod patch;

pub(crate) use image::parse_image;

use crate::error::{Error, Result};
use crate::operator::installation::InstallTarget;
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use std::str::FromStr;

/// The flags for images and patches.
#[derive(Args, Clone, Debug)]
pub(crate) struct OverlayArgs {
    /// Set the image of containers with this name or image; may be repeated
    #[arg(long, value_name = "NAME=REF")]
    set_image: Vec<SetImage>,
    /// File with strategic merge patches or JSON patches; may be repeated
    #[arg(long, value_name = "FILE")]
    patch: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct SetImage {
    name: String,
    image: String,
}

impl FromStr for SetImage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, image) = text.split_once('=').ok_or("expected NAME=REF, such as manager=example.com/op:1.0")?;
        Ok(Self { name: name.to_owned(), image: parse_image(image)? })
    }
}

impl OverlayArgs {
    /// Applies the flags to objects: images first, so that patches take precedence.
    pub(crate) fn apply(&self, objects: &mut Vec<Value>, target: &InstallTarget) -> Result<()> {
        for SetImage { name, image } in &self.set_image {
            let mut there = Vec::new();
            let mut changed = false;
            for container in objects.iter_mut().flat_map(containers) {
                let without_tag = image::without_tag(container["image"].as_str().unwrap_or_default()).to_owned();
                if container["name"] == name.as_str() || without_tag == *name {
                    container["image"] = image.as_str().into();
                    changed = true;
                }
                there.push(format!("{} ({without_tag})", container["name"].as_str().unwrap_or_default()));
            }
            if !changed {
                return Err(Error::new(format!("no container has the name or image {name}"))
                    .hint(format!("available: {}", there.join(", "))));
            }
        }
        for file in &self.patch {
            for patch in patch::read(file)? {
                patch.apply(objects, target, file)?;
            }
        }
        Ok(())
    }
}

/// Finds the containers of objects with a pod template.
fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = object.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut);
    let lists = spec.into_iter().flat_map(|spec| spec.iter_mut());
    let lists = lists.filter(|(name, _)| *name == "containers" || *name == "initContainers");
    lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten()).filter(|container| container.is_object())
}
