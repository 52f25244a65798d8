//! The arithmetic of rolling updates: the sizes of replica sets.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment>.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The numbers of pods by which a rolling update may exceed, and fall below, the desired number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

impl Bounds {
    /// Resolves percentages: the surge is rounded up, the unavailable pods are rounded down. If both are zero, one pod
    /// may be unavailable, since the update could not progress otherwise.
    pub(super) fn resolve(surge: Option<&IntOrString>, unavailable: Option<&IntOrString>, desired: i32) -> Self {
        let surge = surge.map_or(0, |value| scaled(value, desired, true));
        let unavailable = unavailable.map_or(0, |value| scaled(value, desired, false));
        if surge == 0 && unavailable == 0 { Self { surge, unavailable: 1 } } else { Self { surge, unavailable } }
    }
}

/// Resolves a number or a percentage of `total`.
pub(in crate::controllers) fn scaled(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()).unwrap_or(0);
            let parts = percent.saturating_mul(total.into());
            let whole = if round_up { parts.saturating_add(99) / 100 } else { parts / 100 };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// Adds up numbers of pods, saturating: they are user input, and their sum may exceed an `i32`.
pub(super) fn total(counts: impl Iterator<Item = i32>) -> i32 {
    counts.fold(0, i32::saturating_add)
}

/// Returns the maximum size of the new replica set, given the number of all pods.
pub(super) fn grown(new: i32, all: i32, desired: i32, surge: i32) -> i32 {
    let most = desired.saturating_add(surge);
    if all >= most { new } else { new.saturating_add(most.saturating_sub(all).min(desired.saturating_sub(new))) }
}

/// The sizes of a replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) replicas: i32,
    pub(super) available: i32,
    /// Maximum size of the deployment with its surge when the set was last scaled.
    pub(super) max: Option<i32>,
}

/// Shrinks the old replica sets, oldest first: unavailable pods first, then others up to `maxUnavailable`.
pub(super) fn shrunk(old: &[Size], new: Size, desired: i32, unavailable: i32) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|set| set.replicas).collect();
    let all = total(sizes.iter().copied()).saturating_add(new.replicas);
    let least = desired.saturating_sub(unavailable);
    let unready = new.replicas.saturating_sub(new.available);
    let mut may_go = all.saturating_sub(least).saturating_sub(unready);
    if may_go <= 0 {
        return sizes;
    }
    for (size, set) in sizes.iter_mut().zip(old) {
        let removed = size.saturating_sub(set.available).clamp(0, may_go);
        *size -= removed;
        may_go -= removed;
    }
    let mut dispensable =
        total(old.iter().map(|set| set.available)).saturating_add(new.available).saturating_sub(least);
    for size in &mut sizes {
        let removed = (*size).min(dispensable.max(0));
        *size -= removed;
        dispensable -= removed;
    }
    sizes
}

/// Distributes a change of the desired number over several replica sets, in proportion to their sizes; the first one
/// gets the remainder.
pub(super) fn spread(sets: &[Size], desired: i32, surge: i32, before: i32) -> Vec<i32> {
    let most = if desired > 0 { desired.saturating_add(surge) } else { 0 };
    let to_add = most.saturating_sub(total(sets.iter().map(|set| set.replicas)));
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::new();
    for set in sets {
        let rest = to_add.saturating_sub(added);
        let share = fraction(*set, desired, surge, before);
        let share = match (set.replicas, rest) {
            (0, _) | (_, 0) => 0,
            _ if to_add > 0 => share.min(rest),
            _ => share.max(rest),
        };
        added = added.saturating_add(share);
        sizes.push(set.replicas.saturating_add(share));
    }
    if let Some(first) = sizes.first_mut() {
        *first = first.saturating_add(to_add.saturating_sub(added)).max(0);
    }
    sizes
}

/// Returns the proportional change of a set.
fn fraction(set: Size, desired: i32, surge: i32, before: i32) -> i32 {
    if desired == 0 {
        return 0_i32.saturating_sub(set.replicas);
    }
    let before = set.max.unwrap_or(before);
    if before == 0 {
        return 0;
    }
    let size = f64::from(set.replicas) * (f64::from(desired) + f64::from(surge)) / f64::from(before);
    (size.round() as i32).saturating_sub(set.replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_resolved_in_favor_of_progress() {
        let check = |surge: &str, unavailable: &str, desired, expect: (i32, i32)| {
            let value = |text: &str| text.parse().map_or_else(|_| IntOrString::String(text.into()), IntOrString::Int);
            let bounds = Bounds::resolve(Some(&value(surge)), Some(&value(unavailable)), desired);
            assert_eq!((bounds.surge, bounds.unavailable), expect, "{surge} {unavailable} of {desired}");
        };
        check("25%", "25%", 1, (1, 0));
        check("25%", "25%", 10, (3, 2));
        check("0", "25%", 1, (0, 1));
        check("2", "0", 5, (2, 0));
        check("25%", "25%", 0, (0, 1));
    }

    #[test]
    fn new_set_grows_within_the_surge() {
        let check = |new, all, desired, surge, expect| assert_eq!(grown(new, all, desired, surge), expect);
        check(0, 10, 10, 3, 3);
        check(3, 13, 10, 3, 3);
        check(3, 8, 10, 3, 8);
        check(9, 9, 10, 3, 10);
    }

    #[test]
    fn old_sets_shrink_within_the_unavailable_limit() {
        let size = |replicas, available| Size { replicas, available, max: None };
        let check = |old: &[Size], new, desired, unavailable, expect: &[i32]| {
            assert_eq!(shrunk(old, new, desired, unavailable), expect, "{old:?} {new:?}");
        };
        check(&[size(10, 10)], size(0, 0), 10, 2, &[8]);
        check(&[size(10, 10)], size(3, 0), 10, 0, &[10]);
        check(&[size(10, 8)], size(2, 0), 10, 2, &[8]);
        check(&[size(3, 0), size(7, 7)], size(0, 0), 10, 2, &[1, 7]);
        check(&[size(1, 1)], size(1, 1), 1, 0, &[0]);
    }

    #[test]
    fn scaling_is_distributed_over_sets() {
        let size = |replicas, max| Size { replicas, available: 0, max: Some(max) };
        let check = |sets: &[Size], desired, surge, expect: &[i32]| {
            assert_eq!(spread(sets, desired, surge, 0), expect, "{sets:?} to {desired}");
        };
        check(&[size(8, 13), size(5, 13)], 15, 3, &[11, 7]);
        check(&[size(5, 10), size(5, 10)], 0, 0, &[0, 0]);
        check(&[size(5, 10), size(5, 10)], 5, 0, &[2, 3]);
    }
}
