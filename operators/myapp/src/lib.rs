//! The operator that makes of one custom resource all that an application consists of.
//!
//! A [`MyApp`](resource::MyApp) stands for four `Deployment`s, the `Service` that leads to the first of them, the
//! `ServiceAccount` that their pods run as and the `PersistentVolumeClaim` that the last one keeps its data on. All of them
//! are owned by it and go with it.

pub mod operator;
pub mod resource;
