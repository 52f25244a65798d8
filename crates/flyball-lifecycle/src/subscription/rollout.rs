//! Progressive rollout: a Subscription that installs a version only after others have run it.
//!
//! A follower names its leaders in an annotation. Its versions are limited to that of each leader, which must have been
//! ready for a time, and whose probes must pass. Probes are conditions of the custom resources of an operator; those of
//! a Subscription also hold back its own next upgrade. A leader in another namespace must permit its followers, since
//! they learn its version. A rollback is not held back.

use super::conditions::{ROLLOUT_HELD, set_or_remove};
use super::probe::{self, Probe};
use super::view::View;
use crate::api::labels::{ROLLOUT_AFTER, ROLLOUT_LEADS, ROLLOUT_PROBES, ROLLOUT_SOAK};
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, Subscription};
use crate::catalog::{Catalogs, Entry};
use crate::installed::bundle_of;
use crate::resolution;
use crate::version::VersionRange;
use flyball::{Context, ObjectKey, Result};
use flyball_core::time::{Timestamp, parse_unsigned_duration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use semver::Version;
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval at which leaders and probes are checked again.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Leaders of a Subscription.
const MAX_LEADERS: usize = 16;

/// The annotations of a Subscription about its rollout.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rollout {
    leaders: Vec<ObjectKey>,
    soak: Duration,
    probes: Vec<Probe>,
}

impl Rollout {
    /// Reads the annotations.
    pub(super) fn read(subscription: &Subscription) -> Result<Self, String> {
        let namespace = subscription.namespace().unwrap_or_default();
        let annotations = subscription.annotations();
        let list = |name: &str| {
            let text = annotations.get(name).map(String::as_str).unwrap_or_default();
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>()
        };
        let leaders: Vec<ObjectKey> = list(ROLLOUT_AFTER)
            .into_iter()
            .map(|leader| match leader.split_once('/') {
                Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
                None => ObjectKey::new(Some(&namespace), leader),
            })
            .collect();
        if leaders.len() > MAX_LEADERS {
            return Err(format!("annotation {ROLLOUT_AFTER}: at most {MAX_LEADERS} Subscriptions"));
        }
        if leaders.iter().any(|leader| *leader == ObjectKey::new(Some(&namespace), &subscription.name_any())) {
            return Err(format!("annotation {ROLLOUT_AFTER}: the Subscription cannot wait for itself"));
        }
        let soak = match annotations.get(ROLLOUT_SOAK) {
            None => Duration::ZERO,
            Some(text) => parse_unsigned_duration(text.trim())
                .ok_or_else(|| format!("annotation {ROLLOUT_SOAK}: {text:?} is not a duration, such as 1h30m"))?,
        };
        let probes = list(ROLLOUT_PROBES).into_iter().map(Probe::parse).collect::<Result<Vec<Probe>, String>>();
        let probes = probes.map_err(|why| format!("annotation {ROLLOUT_PROBES}: {why}"))?;
        if probes.len() > probe::MAX_PROBES {
            return Err(format!("annotation {ROLLOUT_PROBES}: at most {} probes", probe::MAX_PROBES));
        }
        Ok(Self { leaders, soak, probes })
    }
}

/// The reason why a Subscription is held back, and the time after which it is checked again.
#[derive(Clone, Debug, PartialEq)]
struct Hold {
    reason: &'static str,
    message: String,
    retry: Duration,
}

impl Hold {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry: POLL_INTERVAL }
    }
}

/// Limits the requests of Subscriptions with a rollout, removes those that are held back, and sets their conditions.
/// Returns the time after which to check again.
pub(super) async fn limit(
    view: &mut View,
    requests: &mut BTreeMap<usize, resolution::Subscription>,
    catalogs: &Catalogs,
    cx: &Context<Namespace>,
) -> Result<Option<Duration>> {
    let now = Time(cx.now());
    let mut retry: Option<Duration> = None;
    for index in 0..view.subscriptions.len() {
        let tracked = &view.subscriptions[index];
        let Some(request) = requests.get_mut(&index) else { continue };
        let installed = view.csvs.get(request.installed_csv.as_deref().unwrap_or_default());
        let hold = match Rollout::read(&tracked.object) {
            // Leaders and probes are read only if there is something to hold back.
            _ if request.target.is_some() || !has_next(request, installed, catalogs) => None,
            Err(problem) => Some(Hold::new("InvalidRollout", problem)),
            Ok(rollout) => match own_hold(&rollout, installed, cx).await? {
                Some(hold) => Some(hold),
                None => follow(&tracked.object, &rollout, request, catalogs, cx).await?,
            },
        };
        if let Some(hold) = &hold {
            retry = Some(retry.map_or(hold.retry, |known| known.min(hold.retry)));
            if hold.reason != LIMITED {
                requests.remove(&index);
            }
        }
        let why = hold.map(|hold| (hold.reason, hold.message));
        set_or_remove(&mut view.subscriptions[index].status, ROLLOUT_HELD, why, &now);
    }
    Ok(retry)
}

/// Returns the versions in the channel of a Subscription.
fn entries<'c>(request: &resolution::Subscription, catalogs: &'c Catalogs) -> Vec<&'c Entry> {
    let ids = match &request.channel {
        Some(channel) => catalogs.channel(&request.catalog, &request.package, channel),
        None => catalogs.package(&request.catalog, &request.package),
    };
    ids.into_iter().map(|id| catalogs.entry(id)).collect()
}

/// Returns true if the channel of a Subscription has a version to install that its pin permits.
fn has_next(
    request: &resolution::Subscription,
    installed: Option<&ClusterServiceVersion>,
    catalogs: &Catalogs,
) -> bool {
    let Some(installed) = installed.map(bundle_of) else { return true };
    let is_permitted = |entry: &Entry| {
        let includes = |range: &VersionRange| entry.bundle.version().is_some_and(|version| range.includes(version));
        request.versions.as_ref().is_none_or(includes)
    };
    entries(request, catalogs).into_iter().any(|entry| entry.upgrades(&installed) && is_permitted(entry))
}

/// Reason of a Subscription that installs the version of its leaders, while there are newer ones.
const LIMITED: &str = "NewerVersionsWait";

/// Returns the reason why the probes of the installed version hold its upgrade back.
async fn own_hold(
    rollout: &Rollout,
    installed: Option<&ClusterServiceVersion>,
    cx: &Context<Namespace>,
) -> Result<Option<Hold>> {
    let Some(installed) = installed else { return Ok(None) };
    let failure = probe::failure(&rollout.probes, installed, cx).await?;
    Ok(failure.map(|failure| Hold::new("ProbeFailed", format!("{}: {failure}", installed.name_any()))))
}

/// Limits a request to the version of each leader.
async fn follow(
    follower: &Subscription,
    rollout: &Rollout,
    request: &mut resolution::Subscription,
    catalogs: &Catalogs,
    cx: &Context<Namespace>,
) -> Result<Option<Hold>> {
    let mut limit: Option<(Version, String)> = None;
    for leader in &rollout.leaders {
        let name = format!("Subscription {}/{}", leader.namespace().unwrap_or_default(), leader.name());
        let version = match leading_version(follower, leader, rollout.soak, cx).await? {
            Ok(version) => version,
            Err(hold) => return Ok(Some(Hold { message: format!("{name} {}", hold.message), ..hold })),
        };
        if limit.as_ref().is_none_or(|(known, _)| version < *known) {
            limit = Some((version, name));
        }
    }
    let Some((version, leader)) = limit else { return Ok(None) };
    let is_newer = |newer: &Version| *newer > version && request.versions.as_ref().is_none_or(|of| of.includes(newer));
    let waits = entries(request, catalogs).iter().any(|entry| entry.bundle.version().is_some_and(is_newer));
    let message = format!("versions after {version} wait until {leader} runs them");
    request.versions = Some(VersionRange::up_to(request.versions.take(), &version));
    Ok(waits.then(|| Hold::new(LIMITED, message)))
}

/// Returns the version that a leader has run for a time.
async fn leading_version(
    follower: &Subscription,
    leader: &ObjectKey,
    soak: Duration,
    cx: &Context<Namespace>,
) -> Result<Result<Version, Hold>> {
    let hold = |text: String| Ok(Err(Hold::new("LeaderNotReady", text)));
    let namespace = follower.namespace().unwrap_or_default();
    let found = cx.get::<Subscription>(leader).await?.filter(|found| permits(found, &namespace));
    let Some(found) = found else {
        return hold(format!(
            "does not exist, or does not permit followers in namespace {namespace}: set its annotation {ROLLOUT_LEADS}"
        ));
    };
    if found.spec.package != follower.spec.package {
        return hold(format!("installs package {}, not {}", found.spec.package, follower.spec.package));
    }
    let key = ObjectKey::new(leader.namespace(), &found.status.installed_csv);
    let csv = match found.status.installed_csv.is_empty() {
        true => None,
        false => cx.get::<ClusterServiceVersion>(&key).await?,
    };
    let is_ready = |csv: &ClusterServiceVersion| {
        csv.metadata.deletion_timestamp.is_none()
            && csv.status.phase == Phase::Succeeded
            && found.status.current_csv == found.status.installed_csv
    };
    let Some(csv) = csv.filter(is_ready) else { return hold("has no version that is ready".to_owned()) };
    let Ok(version) = Version::parse(&csv.spec.version) else {
        return hold(format!("runs {}, which has no version", csv.name_any()));
    };
    if let Some(rest) = remaining(&csv, soak, cx.now()) {
        let message = format!("has not yet run {} for the time of annotation {ROLLOUT_SOAK}", csv.name_any());
        return Ok(Err(Hold { retry: rest.max(Duration::from_secs(1)), ..Hold::new("LeaderNotReady", message) }));
    }
    let probes = match Rollout::read(&found) {
        Ok(rollout) => rollout.probes,
        Err(_) => return hold(format!("has an invalid annotation {ROLLOUT_PROBES}")),
    };
    match probe::failure(&probes, &csv, cx).await? {
        Some(failure) => hold(format!("runs {}, but {failure}", csv.name_any())),
        None => Ok(Ok(version)),
    }
}

/// Returns true if a leader permits followers in a namespace.
fn permits(leader: &Subscription, namespace: &str) -> bool {
    let listed = leader.annotations().get(ROLLOUT_LEADS).map(String::as_str).unwrap_or_default();
    leader.namespace().as_deref() == Some(namespace)
        || listed.split(',').map(str::trim).any(|name| name == "*" || name == namespace)
}

/// Returns the rest of the time that a version has to be ready.
fn remaining(csv: &ClusterServiceVersion, soak: Duration, now: Timestamp) -> Option<Duration> {
    let since = csv.status.last_transition_time.as_ref().map_or(now, |time| time.0);
    let ready = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    soak.checked_sub(ready).filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(annotations: &[(&str, &str)]) -> Subscription {
        let mut subscription = Subscription::new(Some("prod"), "memo");
        for (name, value) in annotations {
            subscription.annotations_mut().insert((*name).to_owned(), (*value).to_owned());
        }
        subscription
    }

    #[test]
    fn annotations_are_read() {
        assert_eq!(Rollout::read(&subscription(&[])), Ok(Rollout::default()));
        let all =
            [(ROLLOUT_AFTER, "staging/memo, early"), (ROLLOUT_SOAK, "1h30m"), (ROLLOUT_PROBES, "memos.a.b=Ready")];
        let rollout = Rollout::read(&subscription(&all)).unwrap();
        let leaders = [ObjectKey::new(Some("staging"), "memo"), ObjectKey::new(Some("prod"), "early")];
        assert_eq!((&rollout.leaders[..], rollout.soak), (&leaders[..], Duration::from_secs(5_400)));
        assert_eq!(rollout.probes.len(), 1);
    }

    #[test]
    fn invalid_annotations_are_explained() {
        let check = |name: &str, value: &str, expected: &str| {
            let error = Rollout::read(&subscription(&[(name, value)])).unwrap_err();
            assert_eq!(error, format!("annotation {name}: {expected}"), "{value}");
        };
        check(ROLLOUT_AFTER, "prod/memo", "the Subscription cannot wait for itself");
        check(ROLLOUT_AFTER, &"a,".repeat(17), "at most 16 Subscriptions");
        check(ROLLOUT_SOAK, "soon", "\"soon\" is not a duration, such as 1h30m");
        check(ROLLOUT_PROBES, "memos.a.b", "expected PLURAL.GROUP=CONDITION, not \"memos.a.b\"");
    }

    #[test]
    fn leaders_permit_their_followers() {
        let check = |listed: &str, namespace: &str| permits(&subscription(&[(ROLLOUT_LEADS, listed)]), namespace);
        assert!(check("", "prod") && check("*", "other") && check("a, other", "other"));
        assert!(!check("", "other") && !check("a", "other") && !check("others", "other"));
    }

    #[test]
    fn soak_time_begins_when_the_version_is_ready() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut csv = ClusterServiceVersion::new(Some("staging"), "memo.v1");
        csv.status.last_transition_time = Some(Time(at(100)));
        let hour = Duration::from_secs(3_600);
        assert_eq!(remaining(&csv, hour, at(100)), Some(hour));
        assert_eq!(remaining(&csv, hour, at(3_600)), Some(Duration::from_secs(100)));
        assert_eq!(remaining(&csv, hour, at(3_700)), None);
        assert_eq!(remaining(&csv, Duration::ZERO, at(50)), None);
    }
}
