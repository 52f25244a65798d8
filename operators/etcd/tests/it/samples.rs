//! Tests of the sample objects.

use etcd_operator::api::etcdbackup_v1beta2::EtcdBackup;
use etcd_operator::api::etcdcluster_v1beta2::EtcdCluster;
use etcd_operator::api::etcdrestore_v1beta2::EtcdRestore;
use etcd_operator::etcd::Error;
use etcd_operator::snapshots::{SnapshotDirectory, Snapshots};
use futures_util::{StreamExt, stream};
use kube::CustomResourceExt;
use serde::de::DeserializeOwned;

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn samples_refer_to_each_other() {
    let cluster: EtcdCluster = read(include_str!("../../config/samples/etcd_v1beta2_etcdcluster.yaml"));
    let backup: EtcdBackup = read(include_str!("../../config/samples/etcd_v1beta2_etcdbackup.yaml"));
    let restore: EtcdRestore = read(include_str!("../../config/restore/restore.yaml"));
    assert_eq!(Some(&backup.spec.etcd_cluster.name), cluster.metadata.name.as_ref());
    assert_eq!(Some(&restore.spec.backup), backup.metadata.name.as_ref());
}

#[test]
fn definition_has_the_established_names() {
    let names =
        |definition: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            (definition.metadata.name.unwrap(), definition.spec.versions[0].name.clone())
        };
    for (definition, plural) in
        [(EtcdCluster::crd(), "etcdclusters"), (EtcdBackup::crd(), "etcdbackups"), (EtcdRestore::crd(), "etcdrestores")]
    {
        assert_eq!(names(definition), (format!("{plural}.etcd.database.coreos.com"), "v1beta2".to_owned()));
    }
}

#[tokio::test]
async fn folder_stores_only_complete_snapshots() {
    let path = std::env::temp_dir().join(format!("etcd-operator-test-{}", std::process::id()));
    let folder = SnapshotDirectory::new(&path, "http://here/", 6);
    let pieces = |pieces: Vec<Result<&'static str, Error>>| {
        stream::iter(pieces.into_iter().map(|piece| piece.map(Into::into))).boxed()
    };
    let files = || -> Vec<_> {
        std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(folder.save("a.db", pieces(vec![Ok("foo"), Ok("bar")])).await.unwrap(), 6);
    assert!(folder.save("b.db", pieces(vec![Ok("foo"), Err(Error::Nobody)])).await.is_err());
    assert!(folder.save("c.db", pieces(vec![Ok("foo"), Ok("large")])).await.is_err());
    assert!(folder.save("../d.db", pieces(vec![Ok("foo")])).await.is_err());
    assert_eq!((files(), std::fs::read(path.join("a.db")).unwrap()), (vec!["a.db".to_owned()], b"foobar".to_vec()));
    assert_eq!(folder.url("a.db"), "http://here/a.db");
    folder.delete("a.db").await.unwrap();
    folder.delete("a.db").await.unwrap();
    assert_eq!(files(), Vec::<String>::new());
    std::fs::remove_dir_all(path).unwrap();
}
