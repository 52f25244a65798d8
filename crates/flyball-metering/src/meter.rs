//! The meters: what is measured, in which unit, and of which subject.
//!
//! Amounts are integers, so that sums are exact: CPU in millionths of a core, memory and storage in bytes, and their
//! integrals over time in CPU microseconds and byte-seconds.

/// The kind of object that a series measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A pod on one node, with one owner.
    Pod,
    /// A persistent volume claim.
    Claim,
    /// A node.
    Node,
    /// A custom resource, as an operator reconciles it.
    Resource,
    /// A kind that an operator keeps in memory.
    Kind,
    /// A series of a Prometheus query, with its labels.
    Labels,
}

impl Subject {
    /// Returns the number by which the store identifies it.
    pub(crate) fn id(self) -> i64 {
        match self {
            Self::Pod => 1,
            Self::Claim => 2,
            Self::Node => 3,
            Self::Resource => 4,
            Self::Kind => 5,
            Self::Labels => 6,
        }
    }

    /// Returns the subject with this number.
    pub(crate) fn of_id(id: i64) -> Option<Self> {
        [Self::Pod, Self::Claim, Self::Node, Self::Resource, Self::Kind, Self::Labels]
            .into_iter()
            .find(|subject| subject.id() == id)
    }
}

/// A quantity that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Meter {
    /// Requested CPU of a pod that is bound to a node and has not ended.
    PodCpuRequest,
    /// CPU limit of such a pod.
    PodCpuLimit,
    /// Requested memory of such a pod.
    PodMemoryRequest,
    /// Memory limit of such a pod.
    PodMemoryLimit,
    /// 1 while such a pod exists.
    PodPresence,
    /// Requested storage of a claim.
    ClaimRequest,
    /// Capacity of a bound claim.
    ClaimCapacity,
    /// 1 while a claim is pending.
    ClaimPending,
    /// 1 while a claim is bound.
    ClaimBound,
    /// 1 while a claim has lost its volume.
    ClaimLost,
    /// CPU capacity of a node.
    NodeCpuCapacity,
    /// CPU of a node that pods may request.
    NodeCpuAllocatable,
    /// Memory capacity of a node.
    NodeMemoryCapacity,
    /// Memory of a node that pods may request.
    NodeMemoryAllocatable,
    /// CPU that a pod used.
    PodCpuUsage,
    /// Memory that a pod used.
    PodMemoryUsage,
    /// Storage that is used in a claim.
    ClaimUsage,
    /// Requests of an operator to the API server for a custom resource.
    ApiCalls,
    /// Reconciles of a custom resource.
    Reconciles,
    /// Reconciles that failed.
    ReconcileErrors,
    /// Time of reconciles in microseconds.
    ReconcileTime,
    /// Calls of an operator to other systems for a custom resource.
    ExternalCalls,
    /// Time of these calls in microseconds.
    ExternalTime,
    /// Memory of the cache of a kind.
    CacheMemory,
    /// The value of a Prometheus query, in millionths.
    Value,
}

/// All meters.
pub const METERS: [Meter; 25] = [
    Meter::PodCpuRequest,
    Meter::PodCpuLimit,
    Meter::PodMemoryRequest,
    Meter::PodMemoryLimit,
    Meter::PodPresence,
    Meter::ClaimRequest,
    Meter::ClaimCapacity,
    Meter::ClaimPending,
    Meter::ClaimBound,
    Meter::ClaimLost,
    Meter::NodeCpuCapacity,
    Meter::NodeCpuAllocatable,
    Meter::NodeMemoryCapacity,
    Meter::NodeMemoryAllocatable,
    Meter::PodCpuUsage,
    Meter::PodMemoryUsage,
    Meter::ClaimUsage,
    Meter::ApiCalls,
    Meter::Reconciles,
    Meter::ReconcileErrors,
    Meter::ReconcileTime,
    Meter::ExternalCalls,
    Meter::ExternalTime,
    Meter::CacheMemory,
    Meter::Value,
];

impl Meter {
    /// Returns the number by which the store identifies it. Numbers are never reused.
    pub(crate) fn id(self) -> i64 {
        match self {
            Self::PodCpuRequest => 1,
            Self::PodCpuLimit => 2,
            Self::PodMemoryRequest => 3,
            Self::PodMemoryLimit => 4,
            Self::PodPresence => 5,
            Self::ClaimRequest => 10,
            Self::ClaimCapacity => 11,
            Self::ClaimPending => 12,
            Self::ClaimBound => 13,
            Self::ClaimLost => 14,
            Self::NodeCpuCapacity => 20,
            Self::NodeCpuAllocatable => 21,
            Self::NodeMemoryCapacity => 22,
            Self::NodeMemoryAllocatable => 23,
            Self::PodCpuUsage => 40,
            Self::PodMemoryUsage => 41,
            Self::ClaimUsage => 42,
            Self::ApiCalls => 50,
            Self::Reconciles => 51,
            Self::ReconcileErrors => 52,
            Self::ReconcileTime => 53,
            Self::CacheMemory => 54,
            Self::ExternalCalls => 55,
            Self::ExternalTime => 56,
            Self::Value => 60,
        }
    }

    /// Returns true if its values are stored with the intervals in which they apply; otherwise, amounts are stored.
    pub(crate) fn is_gauge(self) -> bool {
        match self {
            Self::PodCpuRequest | Self::PodCpuLimit | Self::PodMemoryRequest | Self::PodMemoryLimit => true,
            Self::PodPresence | Self::ClaimRequest | Self::ClaimCapacity => true,
            Self::ClaimPending | Self::ClaimBound | Self::ClaimLost => true,
            Self::NodeCpuCapacity | Self::NodeCpuAllocatable => true,
            Self::NodeMemoryCapacity | Self::NodeMemoryAllocatable => true,
            Self::PodCpuUsage | Self::PodMemoryUsage | Self::ClaimUsage | Self::CacheMemory | Self::Value => false,
            Self::ApiCalls | Self::Reconciles | Self::ReconcileErrors | Self::ReconcileTime => false,
            Self::ExternalCalls | Self::ExternalTime => false,
        }
    }

    /// Returns the meter with this number.
    pub(crate) fn of_id(id: i64) -> Option<Self> {
        METERS.into_iter().find(|meter| meter.id() == id)
    }
}

/// Largest value of a gauge, so that no object can make an integral overflow: 4 PiB, or 4.5 billion cores.
pub const MAX_VALUE: i64 = 1 << 52;

/// Returns a value within the limits of a gauge.
pub fn bounded(value: i128) -> i64 {
    i64::try_from(value.clamp(0, i128::from(MAX_VALUE))).unwrap_or(MAX_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_identify_meters_and_subjects() {
        for meter in METERS {
            assert_eq!(Meter::of_id(meter.id()), Some(meter));
        }
        for id in 1..=6 {
            assert_eq!(Subject::of_id(id).map(Subject::id), Some(id));
        }
        assert_eq!((bounded(-5), bounded(i128::MAX)), (0, MAX_VALUE));
    }
}
