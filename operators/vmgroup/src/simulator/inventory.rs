use super::response::Problem;
use crate::vsphere::ManagedObject;
use std::collections::{BTreeMap, BTreeSet};

/// A virtual machine of a simulated vCenter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulatedVm {
    /// Name of its folder.
    pub folder: String,
    /// Its name.
    pub name: String,
    /// True if it is powered on.
    pub powered_on: bool,
    /// Number of virtual CPUs.
    pub cpus: i64,
    /// Memory in MiB.
    pub memory_mib: i64,
}

/// Folder that holds the groups' folders and the templates.
const OPERATOR_FOLDER: &str = "vm-operator";

/// An entity of the inventory.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) object: ManagedObject,
    pub(super) name: String,
    pub(super) parent: Option<ManagedObject>,
    pub(super) machine: Option<Machine>,
}

/// Additional state of a virtual machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) powered_on: bool,
    pub(super) template: bool,
    pub(super) cpus: i64,
    pub(super) memory_mib: i64,
}

/// The inventory of a vCenter: a tree in the order of creation.
#[derive(Debug)]
pub(super) struct Inventory {
    last: u64,
    entities: BTreeMap<u64, Entity>,
}

impl Inventory {
    /// Creates a vCenter with one datacenter, one cluster and one template.
    pub(super) fn new() -> Self {
        let mut new = Self { last: 0, entities: BTreeMap::new() };
        let root = new.add("Folder", "group-d", "Datacenters", None, None);
        let datacenter = new.add("Datacenter", "datacenter-", "dc-1", Some(&root), None);
        let machines = new.add("Folder", "group-v", "vm", Some(&datacenter), None);
        let hosts = new.add("Folder", "group-h", "host", Some(&datacenter), None);
        let cluster = new.add("ClusterComputeResource", "domain-c", "cluster-1", Some(&hosts), None);
        new.add("ResourcePool", "resgroup-", "Resources", Some(&cluster), None);
        new.add("Folder", "group-v", OPERATOR_FOLDER, Some(&machines), None);
        new.add_template("vm-operator-template");
        new
    }

    pub(super) fn root(&self) -> Option<&ManagedObject> {
        self.entities.values().next().map(|root| &root.object)
    }

    pub(super) fn get(&self, object: &ManagedObject) -> Result<&Entity, Problem> {
        let entity = self.number(object).and_then(|n| self.entities.get(&n));
        entity.ok_or_else(|| Problem::NotFound(object.clone()))
    }

    pub(super) fn children(&self, parent: &ManagedObject) -> impl Iterator<Item = &Entity> {
        self.entities.values().filter(move |e| e.parent.as_ref() == Some(parent))
    }

    pub(super) fn child(&self, parent: &ManagedObject, name: &str) -> Option<&Entity> {
        self.entities.values().find(|e| e.parent.as_ref() == Some(parent) && e.name == name)
    }

    /// Fails if a folder does not exist or has a child with this name.
    pub(super) fn check_free(&self, folder: &ManagedObject, name: &str) -> Result<(), Problem> {
        self.get(folder)?;
        self.child(folder, name).map_or(Ok(()), |existing| {
            Err(Problem::DuplicateName { name: name.into(), object: Some(existing.object.clone()) })
        })
    }

    /// Fails if an entity, or a machine below it, is in this power state.
    pub(super) fn check_not_powered(&self, entity: &ManagedObject, on: bool) -> Result<(), Problem> {
        let in_state = |n: &u64| self.entities[n].machine.as_ref().is_some_and(|m| m.powered_on == on);
        if self.below(entity).iter().any(in_state) {
            return Err(Problem::InvalidPowerState { powered_on: on });
        }
        Ok(())
    }

    pub(super) fn create_folder(&mut self, parent: &ManagedObject, name: &str) -> Result<ManagedObject, Problem> {
        self.check_free(parent, name)?;
        Ok(self.add("Folder", "group-v", name, Some(parent), None))
    }

    pub(super) fn create_vm(
        &mut self,
        folder: &ManagedObject,
        name: &str,
        machine: Machine,
    ) -> Result<ManagedObject, Problem> {
        self.check_free(folder, name)?;
        Ok(self.add("VirtualMachine", "vm-", name, Some(folder), Some(machine)))
    }

    pub(super) fn set_power(&mut self, vm: &ManagedObject, on: bool) {
        let number = self.number(vm);
        if let Some(machine) = number.and_then(|n| self.entities.get_mut(&n)?.machine.as_mut()) {
            machine.powered_on = on;
        }
    }

    /// Removes an entity and its descendants.
    pub(super) fn remove(&mut self, top: &ManagedObject) {
        for number in self.below(top) {
            self.entities.remove(&number);
        }
    }

    pub(super) fn vms(&self) -> Vec<SimulatedVm> {
        let listed = self.entities.values().filter_map(|entity| {
            let machine = entity.machine.as_ref().filter(|m| !m.template)?;
            let folder = entity.parent.as_ref().and_then(|parent| self.get(parent).ok())?;
            Some(SimulatedVm {
                folder: folder.name.clone(),
                name: entity.name.clone(),
                powered_on: machine.powered_on,
                cpus: machine.cpus,
                memory_mib: machine.memory_mib,
            })
        });
        listed.collect()
    }

    pub(super) fn group_folders(&self) -> Vec<String> {
        let Some(parent) = self.folder(OPERATOR_FOLDER) else { return Vec::new() };
        self.children(&parent).filter(|child| child.object.kind == "Folder").map(|child| child.name.clone()).collect()
    }

    pub(super) fn add_template(&mut self, name: &str) {
        let machine = Machine { powered_on: false, template: true, cpus: 1, memory_mib: 512 };
        let folder = self.folder(OPERATOR_FOLDER);
        self.add("VirtualMachine", "vm-", name, folder.as_ref(), Some(machine));
    }

    pub(super) fn folder(&self, name: &str) -> Option<ManagedObject> {
        self.entities.values().find(|e| e.object.kind == "Folder" && e.name == name).map(|e| e.object.clone())
    }

    pub(super) fn vm(&self, name: &str) -> Option<ManagedObject> {
        self.entities.values().find(|e| e.machine.is_some() && e.name == name).map(|e| e.object.clone())
    }

    fn add(
        &mut self,
        kind: &str,
        prefix: &str,
        name: &str,
        parent: Option<&ManagedObject>,
        machine: Option<Machine>,
    ) -> ManagedObject {
        self.last += 1;
        let object = ManagedObject::new(kind, &format!("{prefix}{}", self.last));
        let entity = Entity { object: object.clone(), name: name.into(), parent: parent.cloned(), machine };
        self.entities.insert(self.last, entity);
        object
    }

    /// Parses an entity's number from its identifier.
    fn number(&self, object: &ManagedObject) -> Option<u64> {
        let number = object.id.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        self.entities.get(&number).filter(|e| &e.object == object).map(|_| number)
    }

    /// Returns an entity and its descendants.
    fn below(&self, top: &ManagedObject) -> BTreeSet<u64> {
        let mut found: BTreeSet<u64> = self.number(top).into_iter().collect();
        // Children are younger than their parents, so one pass in the order of creation finds all.
        for (number, entity) in &self.entities {
            if entity.parent.as_ref().and_then(|p| self.number(p)).is_some_and(|p| found.contains(&p)) {
                found.insert(*number);
            }
        }
        found
    }
}
