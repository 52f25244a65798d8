//! Charts of Helm from directories, archives, URLs, repositories and registries.
//!
//! A [`Source`](source::Source) names a chart, and [`Access`](access::Access) fetches it within bounds. The rules for
//! versions, URLs, file names and lock files are those of Helm. In addition, an archive must have the digest that
//! the index or the manifest has for it, connections use TLS unless both ends are on this machine, and credentials are
//! sent to one server only.

pub(crate) mod access;
pub(crate) mod archive;
pub(crate) mod dependencies;
pub(crate) mod index;
pub(crate) mod oci;
pub(crate) mod provenance;
pub(crate) mod range;
pub(crate) mod source;
