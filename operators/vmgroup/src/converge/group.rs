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
    /// UID of the group, which differs from that of a previous group with the same name.
    pub uid: String,
    /// Number of machines.
    pub replicas: usize,
    /// Machine or template to clone.
    pub template: String,
    /// Size of the clones.
    pub hardware: Hardware,
}

impl Group {
    /// Returns the name of the folder with the machines.
    pub fn folder(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    /// Returns the names of the machines in a stable order.
    ///
    /// A name can occur twice, because its suffix is short.
    pub fn vm_names(&self) -> impl Iterator<Item = String> + '_ {
        (0u64..).map(|n| {
            let suffix = Rng::from_seed(0).fork(&format!("{}/{n}", self.uid)).suffix(SUFFIX);
            format!("{}-replica-{suffix}", self.name)
        })
    }

    /// Returns true if a machine in the folder belongs to the group, according to its name.
    ///
    /// The folder alone is ambiguous: groups `b-c` in namespace `a` and `c` in `a-b` share one. Machines of a previous
    /// group with this name are adopted if they are needed.
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
