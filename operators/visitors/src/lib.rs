//! The operator of the visitors site, which counts who comes by.
//!
//! A [`VisitorsApp`](resource::VisitorsApp) stands for a MySQL database with its password, a backend of as many pods as it
//! says, and a frontend under its title. They come in this order, each when the one before it is ready, and go with it.

pub mod operator;
pub mod resource;
