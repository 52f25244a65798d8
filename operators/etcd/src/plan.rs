//! Planner from the observed state of a cluster to its next step.
//!
//! Plain data without I/O. One step is executed at a time, and the next one depends on the newly observed state. A step
//! may therefore be interrupted at any point, and its response may be lost. The safety rules are:
//!
//! * Changes are made only while a quorum responds. No member is added, upgraded or defragmented, and no desired member
//!   is removed, while another one is not healthy.
//! * A dead member is removed from etcd before its replacement is added: in the opposite order, a cluster of three
//!   would need three of four members, and could not tolerate another failure.
//! * An added member is started before any other step, since it already counts for the quorum.

use crate::etcd::{Member, MemberStatus};
use std::fmt;

/// The desired state of a cluster.
#[derive(Clone, Debug)]
pub struct DesiredState<'a> {
    /// Number of members.
    pub size: usize,
    /// The version of each.
    pub version: &'a str,
    /// Threshold of defragmentation: the share of unused space in percent, and the minimum size.
    pub defragment: Option<(u8, u64)>,
}

/// A pod of a cluster, with the status of its etcd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    /// Name of the pod and of the member.
    pub name: String,
    /// Desired version.
    pub version: String,
    /// True if it is being deleted.
    pub is_leaving: bool,
    /// True if it has terminated, and its data is lost.
    pub is_over: bool,
    /// Status of etcd, if it responded.
    pub status: Option<MemberStatus>,
}

impl ObservedPod {
    /// Returns true if the pod may still run or recover.
    pub fn is_alive(&self) -> bool {
        !self.is_leaving && !self.is_over
    }

    /// Returns true if the member is healthy.
    fn is_well(&self) -> bool {
        self.is_alive() && self.status.as_ref().is_some_and(|status| status.leader != 0)
    }

    /// Returns true if the member runs the desired version. Builds of one version for several platforms report the same
    /// version.
    fn runs_desired_version(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| !status.version.is_empty() && self.version.starts_with(&status.version))
    }

    fn is_leader(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.leader == status.id)
    }

    /// Returns the unused share of its database file in percent, and the size of the file.
    fn unused(&self) -> Option<(u8, u64)> {
        let status = self.status.as_ref().filter(|status| status.db_size > 0 && status.db_size_in_use > 0)?;
        let unused = status.db_size.saturating_sub(status.db_size_in_use);
        Some(((u128::from(unused) * 100 / u128::from(status.db_size)) as u8, status.db_size))
    }
}

/// The members listed by etcd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Membership {
    /// The members.
    pub members: Vec<Member>,
    /// True if a quorum confirmed the list; otherwise, it is from one member.
    pub is_consistent: bool,
}

impl Membership {
    /// Returns the size of the quorum.
    pub fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }
}

/// Returns the name of a member's pod.
pub fn pod_name(member: &Member) -> Option<&str> {
    let name = Some(member.name.as_str()).filter(|name| !name.is_empty());
    name.or_else(|| member.peer_urls.iter().find_map(|url| pod_of(url)))
}

/// Returns the name of the pod that a URL refers to.
pub fn pod_of(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split(['.', ':']).next()
}

/// The observed state of a cluster.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// True if the cluster has served requests since its creation or restore.
    pub formed: bool,
    /// Its pods.
    pub pods: Vec<ObservedPod>,
    /// Pods of an earlier incarnation, which clients must not reach.
    pub leftovers: Vec<ObservedPod>,
    /// Its members; `None` if none responds.
    pub membership: Option<Membership>,
    /// The names of members that had started in the previous observation.
    pub known: Vec<String>,
    /// Members that were defragmented recently.
    pub rested: Vec<String>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create the first member.
    Seed,
    /// Delete all members and restore a backup, because the quorum is permanently lost.
    Rebuild,
    /// Delete a pod that is no longer needed.
    Discard(String),
    /// Create the pod of an added member.
    Start(String),
    /// Add a member.
    Add,
    /// Remove a member from etcd.
    Remove(Member),
    /// Upgrade a member to the desired version.
    Upgrade(String),
    /// Release the unused space of a member's database.
    Defragment(String),
    /// Wait for a change outside the operator.
    Wait(String),
    /// No step.
    Rest,
}

impl Step {
    /// Returns the name of the step, for metrics and events.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Seed => "Seed",
            Self::Rebuild => "Rebuild",
            Self::Discard(_) => "Discard",
            Self::Start(_) => "Start",
            Self::Add => "Add",
            Self::Remove(_) => "Remove",
            Self::Upgrade(_) => "Upgrade",
            Self::Defragment(_) => "Defragment",
            Self::Wait(_) => "Wait",
            Self::Rest => "Rest",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed => f.write_str("creating the first member"),
            Self::Rebuild => f.write_str("rebuilding the cluster from a backup: the quorum is permanently lost"),
            Self::Discard(pod) => write!(f, "deleting pod {pod}"),
            Self::Start(pod) => write!(f, "starting member {pod}"),
            Self::Add => f.write_str("adding a member"),
            Self::Remove(member) => write!(f, "removing member {}", pod_name(member).unwrap_or("without a name")),
            Self::Upgrade(pod) => write!(f, "upgrading member {pod}"),
            Self::Defragment(pod) => write!(f, "defragmenting member {pod}"),
            Self::Wait(what) => f.write_str(what),
            Self::Rest => f.write_str("all members are healthy"),
        }
    }
}

impl View {
    fn pod(&self, name: &str) -> Option<&ObservedPod> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    fn pod_of(&self, member: &Member) -> Option<&ObservedPod> {
        self.pod(pod_name(member)?)
    }

    /// Returns the members of etcd that respond and follow a leader.
    pub fn well(&self) -> impl Iterator<Item = &ObservedPod> {
        let members = self.membership.iter().flat_map(|membership| &membership.members);
        members
            .filter(|member| !member.name.is_empty())
            .filter_map(|member| self.pod_of(member))
            .filter(|pod| pod.is_well())
    }

    /// Returns true if clients can read and write, and every member that was added has started.
    pub fn is_available(&self) -> bool {
        self.membership.as_ref().is_some_and(|membership| {
            membership.is_consistent
                && membership.members.iter().all(|member| !member.name.is_empty())
                && self.well().count() >= membership.quorum()
        })
    }

    /// Returns true if the remaining members can never form a quorum again, since the data of the others is lost with
    /// their pods.
    ///
    /// Both the reported and the previously observed members must confirm it: a member that was disconnected may report
    /// an outdated list.
    fn is_lost(&self) -> bool {
        let is_alive = |name: &str| self.pod(name).is_some_and(ObservedPod::is_alive);
        let remaining = self.known.iter().filter(|name| is_alive(name)).count();
        let can_be = |member: &&Member| member.name.is_empty() || is_alive(&member.name);
        let reports_loss = self.membership.as_ref().is_none_or(|membership| {
            !membership.is_consistent && membership.members.iter().filter(can_be).count() < membership.quorum()
        });
        reports_loss && remaining < self.known.len() / 2 + 1
    }

    /// Returns the next step.
    pub fn next(&self, desired: &DesiredState<'_>) -> Step {
        if let Some(leftover) = self.leftovers.iter().min_by_key(|pod| pod.is_leaving) {
            return match leftover.is_leaving {
                true => Step::Wait(format!("waiting for the deletion of pod {}", leftover.name)),
                false => Step::Discard(leftover.name.clone()),
            };
        }
        if let Some(over) = self.pods.iter().find(|pod| pod.is_over && !pod.is_leaving) {
            return Step::Discard(over.name.clone());
        }
        if !self.formed && self.pods.is_empty() {
            return Step::Seed;
        }
        if self.formed && self.is_lost() {
            return Step::Rebuild;
        }
        let Some(membership) = self.membership.as_ref().filter(|membership| membership.is_consistent) else {
            // Starting an added member is always safe, and may be required for a quorum: of two members, both are
            // needed.
            let listed = self.membership.iter().flat_map(|membership| &membership.members);
            let mut added = listed.filter(|member| member.name.is_empty() && self.pod_of(member).is_none());
            return match added.find_map(pod_name) {
                Some(name) => Step::Start(name.into()),
                None => Step::Wait("waiting for a quorum of members to respond".into()),
            };
        };
        self.next_of(membership, desired)
    }

    /// Returns the next step while a quorum responds.
    fn next_of(&self, membership: &Membership, desired: &DesiredState<'_>) -> Step {
        let members = &membership.members;
        let is_member = |pod: &&ObservedPod| members.iter().any(|member| pod_name(member) == Some(&pod.name));
        if let Some(stray) = self.pods.iter().find(|pod| pod.is_alive() && !is_member(pod)) {
            return Step::Discard(stray.name.clone());
        }
        if let Some(added) = members.iter().find(|member| member.name.is_empty()) {
            return match (self.pod_of(added), pod_name(added)) {
                _ if members.len() > desired.size => Step::Remove(added.clone()),
                (None, Some(name)) => Step::Start(name.into()),
                (_, name) => Step::Wait(format!("waiting for member {} to start", name.unwrap_or_default())),
            };
        }
        if let Some(dead) = members.iter().find(|member| !self.pod_of(member).is_some_and(ObservedPod::is_alive)) {
            return Step::Remove(dead.clone());
        }
        let pods: Vec<&ObservedPod> = members.iter().filter_map(|member| self.pod_of(member)).collect();
        if let Some(ill) = pods.iter().find(|pod| !pod.is_well()) {
            return Step::Wait(format!("waiting for member {} to be healthy", ill.name));
        }
        if let Some(old) = pods.iter().find(|pod| !pod.runs_desired_version()) {
            return Step::Wait(format!("waiting for member {} to run {}", old.name, old.version));
        }
        if members.len() < desired.size {
            return Step::Add;
        }
        // Steps that interrupt a member interrupt the leader last: clients have to wait for an election.
        let last_leader = |pods: &mut dyn Iterator<Item = &&ObservedPod>| {
            pods.min_by_key(|pod| pod.is_leader()).map(|pod| pod.name.clone())
        };
        if members.len() > desired.size {
            let name = last_leader(&mut pods.iter().rev());
            let surplus = members.iter().find(|member| Some(member.name.as_str()) == name.as_deref());
            return surplus.cloned().map_or(Step::Rest, Step::Remove);
        }
        if let Some(name) = last_leader(&mut pods.iter().filter(|pod| pod.version != desired.version)) {
            return Step::Upgrade(name);
        }
        if let Some((percent, bytes)) = desired.defragment {
            let is_loose =
                |pod: &&&ObservedPod| pod.unused().is_some_and(|(unused, size)| unused > percent && size >= bytes);
            let mut loose = pods.iter().filter(is_loose).filter(|pod| !self.rested.contains(&pod.name));
            if let Some(name) = last_leader(&mut loose) {
                return Step::Defragment(name);
            }
        }
        Step::Rest
    }

    /// Returns the version of a new member: during an upgrade, the version of the members that are not upgraded yet.
    pub fn joining_version<'a>(&'a self, desired: &'a str) -> &'a str {
        let mut alive = self.pods.iter().filter(|pod| pod.is_alive());
        alive.find(|pod| pod.version != desired).map_or(desired, |pod| &pod.version)
    }
}

#[cfg(test)]
mod tests;
