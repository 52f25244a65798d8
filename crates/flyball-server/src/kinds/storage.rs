//! Kinds of `storage.k8s.io`.

kinds! {
    mod csi_driver;
    mod csi_node;
    mod csi_storage_capacity;
    mod storage_class;
    mod volume_attachment;
    mod volume_attributes_class;
}

pub(crate) use storage_class::KIND as STORAGE_CLASS;

const GROUP: &str = "storage.k8s.io";
