//! Registries over gRPC.

use crate::content::Content;
use crate::grpc::{Connection, ConnectionError, Package, to_blobs};
use flyball_core::memory;
use prost::Message;
use ring::digest::{Context, SHA256};
use std::collections::BTreeMap;

/// Maximum number of packages.
const MAX_PACKAGES: usize = 20_000;

/// Loads the content of a registry: all packages, all bundles, and the CSVs of the newest bundles, which describe the
/// packages. Also returns the fingerprint of the packages, and the connection.
pub(super) async fn load(address: &str) -> Result<(Content, String, Connection), ConnectionError> {
    let mut connection = Connection::open(address).await?;
    let packages = packages(&mut connection, address).await?;
    let fingerprint = fingerprint_of(&packages);
    let mut bundles = connection.list_bundles().await?;
    // They are decoded later.
    let properties = bundles.iter().flat_map(|bundle| &bundle.properties);
    let values = properties.map(|property| memory::of_text(property.value.as_bytes())).sum();
    connection.charge("ListBundles", values)?;
    let mut by_name: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (at, bundle) in bundles.iter().enumerate() {
        by_name.entry((bundle.package_name.clone(), bundle.csv_name.clone())).or_default().push(at);
    }
    for package in &packages {
        for channel in &package.channels {
            let listed = by_name.get(&(package.name.clone(), channel.csv_name.clone()));
            // Only bundles with images are listed without their CSVs.
            let Some(listed) = listed.filter(|listed| bundles[listed[0]].csv_json.is_empty()) else { continue };
            let head = connection.get_bundle(&package.name, &channel.name, &channel.csv_name).await?;
            connection.charge("GetBundle", (listed.len() - 1) * head.csv_json.len())?;
            listed.iter().for_each(|at| bundles[*at].csv_json.clone_from(&head.csv_json));
        }
    }
    let content = super::offload(move || Content::unchecked(to_blobs(packages, bundles))).await;
    Ok((content, fingerprint, connection))
}

/// Connects to a registry, and returns the fingerprint of its packages: a small part of its content, which changes with
/// each new version of an operator.
pub(super) async fn fingerprint(address: &str) -> Result<(String, Connection), ConnectionError> {
    let mut connection = Connection::open(address).await?;
    let packages = packages(&mut connection, address).await?;
    Ok((fingerprint_of(&packages), connection))
}

/// Returns the packages with their channels and the newest version of each, in the order of their names.
async fn packages(connection: &mut Connection, address: &str) -> Result<Vec<Package>, ConnectionError> {
    let mut names = connection.list_packages().await?;
    if names.len() > MAX_PACKAGES {
        return Err(ConnectionError::TooLarge { address: address.to_owned(), method: "ListPackages".to_owned() });
    }
    names.sort_unstable();
    names.dedup();
    let mut packages = Vec::new();
    for name in &names {
        packages.push(connection.get_package(name).await?);
    }
    Ok(packages)
}

fn fingerprint_of(packages: &[Package]) -> String {
    let mut digest = Context::new(&SHA256);
    packages.iter().for_each(|package| digest.update(&package.encode_length_delimited_to_vec()));
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
