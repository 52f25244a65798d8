use super::Group;
use crate::vsphere::Vm;
use std::collections::{BTreeMap, BTreeSet};

/// Difference between the actual and the desired state of a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Number of machines that run.
    pub(super) running: usize,
    /// Machines to power on.
    pub(super) off: Vec<Vm>,
    /// Surplus machines, those with the highest numbers first.
    pub(super) surplus: Vec<Vm>,
    /// Number of missing machines.
    pub(super) missing: usize,
}

impl Difference {
    /// Compares the machines of a group with the desired number. Other machines are ignored.
    pub(super) fn new(group: &Group, replicas: usize, vms: &[Vm]) -> Self {
        let mut desired = members(group, vms);
        let running = desired.iter().filter(|vm| vm.powered_on).count();
        let mut surplus = desired.split_off(replicas.min(desired.len()));
        surplus.reverse();
        let missing = replicas - desired.len();
        desired.retain(|vm| !vm.powered_on);
        Self { running, off: desired, surplus, missing }
    }
}

/// Selects the group's machines and sorts them by number.
fn members(group: &Group, vms: &[Vm]) -> Vec<Vm> {
    let mut members: Vec<Vm> = vms.iter().filter(|vm| group.owns(&vm.name)).cloned().collect();
    // Names are assigned in order. A machine whose name is not among the first `len` names follows a gap, and sorts
    // last.
    let numbers: BTreeMap<String, usize> = group.vm_names().take(members.len()).zip(0..).collect();
    members.sort_by_cached_key(|vm| (numbers.get(&vm.name).copied().unwrap_or(usize::MAX), vm.name.clone()));
    members
}

/// Returns the first `n` unused names of a group.
pub(super) fn free_names(group: &Group, vms: &[Vm], n: usize) -> Vec<String> {
    let mut used: BTreeSet<String> = vms.iter().map(|vm| vm.name.clone()).collect();
    group.vm_names().filter(|name| used.insert(name.clone())).take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vsphere::{Hardware, ManagedObject};

    fn group() -> Group {
        Group {
            namespace: "default".into(),
            name: "g".into(),
            uid: "uid".into(),
            replicas: 0,
            template: "t".into(),
            hardware: Hardware { cpus: 1, memory_mib: 1024 },
        }
    }

    /// Checks the difference for machines, specified by number and power, such as `"0+ 1- x+"`; `x` has no number.
    fn check(input: &str, replicas: usize, expected: &str) {
        let names: Vec<String> = group().vm_names().take(12).collect();
        let name = |number: &str| number.parse().map_or(format!("g-replica-{number}"), |n: usize| names[n].clone());
        let number = |name: &String| {
            let number = names.iter().position(|n| n == name).map(|n| n.to_string());
            number.unwrap_or_else(|| name.trim_start_matches("g-replica-").into())
        };
        let vm = |text: &str| Vm {
            object: ManagedObject::new("VirtualMachine", text),
            name: name(&text[..text.len() - 1]),
            powered_on: text.ends_with('+'),
        };
        let numbers =
            |names: Vec<&String>| names.into_iter().map(|name| format!(" {}", number(name))).collect::<String>();
        let vms: Vec<Vm> = input.split_whitespace().map(vm).collect();
        let found = Difference::new(&group(), replicas, &vms);
        let summary = format!(
            "{} run, off{}, surplus{}, missing{}",
            found.running,
            numbers(found.off.iter().map(|vm| &vm.name).collect()),
            numbers(found.surplus.iter().map(|vm| &vm.name).collect()),
            numbers(free_names(&group(), &vms, found.missing).iter().collect()),
        );
        assert_eq!(summary, expected, "{input} to {replicas}");
    }

    #[test]
    fn machines_are_created_in_order_of_their_numbers() {
        check("", 2, "0 run, off, surplus, missing 0 1");
        check("1+ 3+", 4, "2 run, off, surplus, missing 0 2");
        check("2+ 1+ 0+", 3, "3 run, off, surplus, missing");
    }

    #[test]
    fn highest_numbers_are_deleted_first() {
        check("0+ 1+ 2+ 3+ 4+", 3, "5 run, off, surplus 4 3, missing");
        check("4+ 3+ 2+ 1+ 0+", 1, "5 run, off, surplus 4 3 2 1, missing");
        check("9+ 0+ 1+", 2, "3 run, off, surplus 9, missing");
        check("0+ 1-", 0, "1 run, off, surplus 1 0, missing");
    }

    #[test]
    fn only_desired_machines_are_powered_on() {
        check("0- 1+", 3, "1 run, off 0, surplus, missing 2");
        check("0+ 1- 2- 3-", 2, "1 run, off 1, surplus 3 2, missing");
    }

    #[test]
    fn machines_of_an_earlier_group_of_the_same_name_are_adopted() {
        check("x+ y+", 2, "2 run, off, surplus, missing");
        check("x+ y+", 3, "2 run, off, surplus, missing 0");
        check("x+ 0+", 1, "2 run, off, surplus x, missing");
    }

    #[test]
    fn names_identify_the_group_of_a_machine() {
        let all = [("g-replica-abc12", true), ("g-replica-", false), ("f-g-replica-abc12", false), ("g", false)];
        for (name, owned) in all {
            assert_eq!(group().owns(name), owned, "{name}");
        }
        assert!(!group().owns("g-replica-1-replica-abc12"), "a group named g-replica-1");
    }

    #[test]
    fn names_are_stable_across_releases() {
        let names: Vec<String> = group().vm_names().take(3).collect();
        assert_eq!(names, ["g-replica-68fjb", "g-replica-9gcfd", "g-replica-tb48p"]);
    }
}
