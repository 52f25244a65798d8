//! Catalogs and bundles of operators: from folders and images.

pub(crate) mod images;
pub(crate) mod reference;
