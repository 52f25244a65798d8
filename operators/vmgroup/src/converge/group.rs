use super::{Error, Result};
use crate::vsphere::Hardware;
use flyball_core::Rng;

/// Maximum length of the name of a folder or a virtual machine in vCenter.
const MAX_NAME: usize = 80;
const SUFFIX: usize = 5;

/// The desired state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Namespace of the group.
    pub namespace: String,
    /// Name of the group.
    pub name: String,
    /// UID of the group, which differs from that of an earlier group with its name.
    pub uid: String,
    /// Number of machines.
    pub replicas: usize,
    /// Machine or template that they are cloned from.
    pub template: String,
    /// Size that they are cloned with.
    pub hardware: Hardware,
}

impl Group {
    /// Name of the folder that holds the machines.
    pub fn folder(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    /// Names of the machines, from the first one on, in a stable order.
    ///
    /// A name can come twice, for its suffix is short.
    pub fn vm_names(&self) -> impl Iterator<Item = String> + '_ {
        (0u64..).map(|n| {
            let suffix = Rng::from_seed(0).fork(&format!("{}/{n}", self.uid)).suffix(SUFFIX);
            format!("{}-replica-{suffix}", self.name)
        })
    }

    /// Returns true if a machine in the folder is one of the group, by its name.
    ///
    /// The folder alone is ambiguous: groups `b-c` in namespace `a` and `c` in `a-b` share one. Machines of an earlier
    /// group with this name are adopted, as long as they are needed.
    pub fn owns(&self, vm_name: &str) -> bool {
        let suffix = vm_name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix("-replica-"));
        suffix.is_some_and(|suffix| !suffix.is_empty() && !suffix.contains('-'))
    }

    pub(super) fn check_names(&self) -> Result<()> {
        let vm = format!("{}-replica-{}", self.name, "x".repeat(SUFFIX));
        let too_long = [self.folder(), vm].into_iter().find(|name| name.len() > MAX_NAME);
        too_long.map_or(Ok(()), |name| Err(Error::NameTooLong { name, max: MAX_NAME }))
    }
}
