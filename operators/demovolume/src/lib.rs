//! The operator that gives each [`DemoVolume`](resource::DemoVolume) a claim of its size.

pub mod operator;
pub mod resource;
