//! Faults: the events that are injected at a site.

use crate::site::{Port, Site, escaped, unescaped};
use std::fmt;
use std::str::FromStr;

/// An event that is injected at a site.
#[doc(alias("fault injection", "nemesis"))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The request fails with this status code, and has no effect.
    Error(u16),
    /// The request fails with 429 and `Retry-After`.
    Throttle,
    /// The request has its effect, but its response is lost.
    LoseResponse,
    /// The connection is closed before the request is processed.
    Reset,
    /// The request reaches the server after these seconds.
    Delay(u32),
    /// The response arrives after these seconds.
    DelayResponse(u32),
    /// The request fails with 410.
    Expire,
    /// The request fails with 504 "Too large resource version".
    TooLargeVersion,
    /// Another writer changes the object immediately before the request is processed.
    Conflict,
    /// The admission of a policy rejects the request.
    Deny,
    /// The list lacks the second half of its objects.
    Truncate,
    /// The list arrives slowly: the body needs these seconds.
    Slow(u32),
    /// The operator crashes before the server processes the request, or the call.
    CrashBefore,
    /// The operator crashes after the server has processed it.
    CrashAfter,
    /// The operator crashes this number of times in a row, each time at its next write.
    CrashLoop(u32),
    /// The operator receives SIGTERM, and is started again.
    Terminate,
    /// The watch delivers nothing for these seconds.
    Hold(u32),
    /// The watch delivers nothing for these seconds, and then expires: intermediate states are not observed.
    Coalesce(u32),
    /// The event is delivered twice.
    Duplicate,
    /// The watch ends before the event.
    Cut,
    /// The watch reports 410 in place of the event.
    Gone,
    /// The watch remains open and delivers nothing more.
    Silence,
    /// The event is not valid JSON.
    Corrupt,
    /// The watch delivers no bookmarks from here on.
    DropBookmarks,
    /// The operator crashes and starts against a replica of the API server whose lists and watches show the state after
    /// this event for a minute.
    RestartStale(Site),
    /// The operator crashes and starts again.
    Restart,
    /// The operator is not running for these seconds.
    Absent(u32),
    /// The operator reaches no API server for these seconds.
    Partition(u32),
    /// Watches of the operator deliver nothing for these seconds, while requests succeed.
    PartitionWatches(u32),
    /// All connections are closed, and the API server rejects requests with 429 for these seconds.
    RestartServer(u32),
    /// The roles of the operator are revoked for these seconds.
    Revoke(u32),
    /// Renewals of the lease fail for these seconds.
    BlockLease(u32),
    /// The lease is deleted.
    DeleteLease,
    /// The clock of the operator's machine jumps by these seconds.
    Skew(i32),
    /// The custom resource is deleted.
    DeletePrimary,
    /// A field of the custom resource changes, and changes back after ten seconds.
    Flip,
    /// The written object is deleted by another user.
    DeleteTarget,
    /// A field that the operator set is changed by another user.
    EditTarget,
    /// The owner references of the written object are removed by another user.
    Orphan,
    /// Another controller adds a finalizer to the written object, and removes it after a minute.
    Stick,
    /// Another controller keeps its own annotation on the written object.
    Annotate,
    /// An object of the same name exists before the operator creates it.
    Preexist,
    /// The definition of the custom resource is deleted and created again.
    RecreateDefinition,
    /// The namespace of the scenario is deleted.
    DeleteNamespace,
    /// The webhooks of the operator do not respond for these seconds.
    SilenceWebhooks(u32),
    /// The external call fails, and has no effect.
    Fail,
    /// The external call responds that the object does not exist.
    Absence,
}

/// Argument of a fault in its text.
enum Argument {
    None,
    Number(i64),
    Site(Site),
}

impl Fault {
    fn parts(&self) -> (&'static str, Argument) {
        let number = |number: u32| Argument::Number(number.into());
        match self {
            Self::Error(code) => ("error", Argument::Number((*code).into())),
            Self::Throttle => ("throttle", Argument::None),
            Self::LoseResponse => ("lose-response", Argument::None),
            Self::Reset => ("reset", Argument::None),
            Self::Delay(seconds) => ("delay", number(*seconds)),
            Self::DelayResponse(seconds) => ("delay-response", number(*seconds)),
            Self::Expire => ("expire", Argument::None),
            Self::TooLargeVersion => ("too-large-version", Argument::None),
            Self::Conflict => ("conflict", Argument::None),
            Self::Deny => ("deny", Argument::None),
            Self::Truncate => ("truncate", Argument::None),
            Self::Slow(seconds) => ("slow", number(*seconds)),
            Self::CrashBefore => ("crash-before", Argument::None),
            Self::CrashAfter => ("crash-after", Argument::None),
            Self::CrashLoop(times) => ("crash-loop", number(*times)),
            Self::Terminate => ("terminate", Argument::None),
            Self::Hold(seconds) => ("hold", number(*seconds)),
            Self::Coalesce(seconds) => ("coalesce", number(*seconds)),
            Self::Duplicate => ("duplicate", Argument::None),
            Self::Cut => ("cut", Argument::None),
            Self::Gone => ("gone", Argument::None),
            Self::Silence => ("silence", Argument::None),
            Self::Corrupt => ("corrupt", Argument::None),
            Self::DropBookmarks => ("drop-bookmarks", Argument::None),
            Self::RestartStale(site) => ("restart-stale", Argument::Site(site.clone())),
            Self::Restart => ("restart", Argument::None),
            Self::Absent(seconds) => ("absent", number(*seconds)),
            Self::Partition(seconds) => ("partition", number(*seconds)),
            Self::PartitionWatches(seconds) => ("partition-watches", number(*seconds)),
            Self::RestartServer(seconds) => ("restart-server", number(*seconds)),
            Self::Revoke(seconds) => ("revoke", number(*seconds)),
            Self::BlockLease(seconds) => ("block-lease", number(*seconds)),
            Self::DeleteLease => ("delete-lease", Argument::None),
            Self::Skew(seconds) => ("skew", Argument::Number((*seconds).into())),
            Self::DeletePrimary => ("delete-primary", Argument::None),
            Self::Flip => ("flip", Argument::None),
            Self::DeleteTarget => ("delete-target", Argument::None),
            Self::EditTarget => ("edit-target", Argument::None),
            Self::Orphan => ("orphan", Argument::None),
            Self::Stick => ("stick", Argument::None),
            Self::Annotate => ("annotate", Argument::None),
            Self::Preexist => ("preexist", Argument::None),
            Self::RecreateDefinition => ("recreate-definition", Argument::None),
            Self::DeleteNamespace => ("delete-namespace", Argument::None),
            Self::SilenceWebhooks(seconds) => ("silence-webhooks", number(*seconds)),
            Self::Fail => ("fail", Argument::None),
            Self::Absence => ("absence", Argument::None),
        }
    }

    /// Returns the name of the fault in schedules, without its argument.
    pub fn name(&self) -> &'static str {
        self.parts().0
    }

    /// One fault of each name, with a common argument.
    pub fn all() -> Vec<Self> {
        let site = Site { process: 0, port: Port::Watch, name: "pods/a".to_owned(), occurrence: 1 };
        vec![
            Self::Error(500),
            Self::Throttle,
            Self::LoseResponse,
            Self::Reset,
            Self::Delay(16),
            Self::DelayResponse(16),
            Self::Expire,
            Self::TooLargeVersion,
            Self::Conflict,
            Self::Deny,
            Self::Truncate,
            Self::Slow(20),
            Self::CrashBefore,
            Self::CrashAfter,
            Self::CrashLoop(5),
            Self::Terminate,
            Self::Hold(30),
            Self::Coalesce(30),
            Self::Duplicate,
            Self::Cut,
            Self::Gone,
            Self::Silence,
            Self::Corrupt,
            Self::DropBookmarks,
            Self::RestartStale(site),
            Self::Restart,
            Self::Absent(604_800),
            Self::Partition(600),
            Self::PartitionWatches(60),
            Self::RestartServer(10),
            Self::Revoke(60),
            Self::BlockLease(20),
            Self::DeleteLease,
            Self::Skew(3600),
            Self::DeletePrimary,
            Self::Flip,
            Self::DeleteTarget,
            Self::EditTarget,
            Self::Orphan,
            Self::Stick,
            Self::Annotate,
            Self::Preexist,
            Self::RecreateDefinition,
            Self::DeleteNamespace,
            Self::SilenceWebhooks(30),
            Self::Fail,
            Self::Absence,
        ]
    }

    /// Returns true if the fault changes the input of the operator, as another user does. The outcome may then differ
    /// from that of an undisturbed run in the history, and in objects that others made.
    pub fn changes_input(&self) -> bool {
        matches!(
            self,
            Self::DeletePrimary
                | Self::Flip
                | Self::DeleteTarget
                | Self::EditTarget
                | Self::Orphan
                | Self::Stick
                | Self::Annotate
                | Self::Preexist
                | Self::RecreateDefinition
                | Self::DeleteNamespace
        )
    }

    /// Returns true if the final objects may differ from those of an undisturbed run, so that only safety is checked.
    pub(crate) fn changes_outcome(&self) -> bool {
        matches!(self, Self::Preexist | Self::DeleteNamespace | Self::DeletePrimary)
    }

    /// Returns true if the operator may observe several changes of the user as one, because it is stopped or its view
    /// is late for longer than the scenario waits.
    pub fn merges_steps(&self) -> bool {
        match self {
            Self::Hold(seconds)
            | Self::Coalesce(seconds)
            | Self::Delay(seconds)
            | Self::DelayResponse(seconds)
            | Self::Slow(seconds) => *seconds > 10,
            Self::RestartStale(_)
            | Self::Absent(_)
            | Self::Partition(_)
            | Self::PartitionWatches(_)
            | Self::RestartServer(_)
            | Self::Revoke(_)
            | Self::BlockLease(_)
            | Self::Silence
            | Self::CrashLoop(_)
            | Self::TooLargeVersion
            | Self::SilenceWebhooks(_) => true,
            _ => false,
        }
    }

    /// Returns true if the operator acts on an old view.
    pub fn is_stale(&self) -> bool {
        matches!(
            self,
            Self::RestartStale(_) | Self::Hold(_) | Self::Coalesce(_) | Self::PartitionWatches(_) | Self::Silence
        )
    }

    /// Returns true if the fault can be injected at a port.
    pub fn fits(&self, port: Port) -> bool {
        let fits = match self {
            Self::Error(_) | Self::Throttle | Self::Reset | Self::Delay(_) => port.is_request(),
            Self::LoseResponse | Self::DelayResponse(_) => port.is_write() || port == Port::Get || port == Port::Lease,
            Self::Expire | Self::TooLargeVersion => matches!(port, Port::List | Port::Open),
            Self::Truncate | Self::Slow(_) => port == Port::List,
            Self::Conflict => matches!(port, Port::Update | Port::Patch | Port::Delete),
            Self::Deny => port.is_write(),
            Self::CrashBefore | Self::CrashAfter | Self::CrashLoop(_) | Self::Terminate => {
                port.is_write() || matches!(port, Port::External | Port::Lease)
            }
            Self::Hold(_)
            | Self::Coalesce(_)
            | Self::Duplicate
            | Self::Cut
            | Self::Gone
            | Self::Silence
            | Self::Corrupt
            | Self::DropBookmarks => port == Port::Watch,
            Self::RestartStale(_)
            | Self::Restart
            | Self::Absent(_)
            | Self::Partition(_)
            | Self::PartitionWatches(_)
            | Self::RestartServer(_)
            | Self::Revoke(_)
            | Self::RecreateDefinition
            | Self::DeleteNamespace
            | Self::SilenceWebhooks(_)
            | Self::Skew(_)
            | Self::DeleteLease => port == Port::Step,
            Self::BlockLease(_) => matches!(port, Port::Step | Port::Lease),
            Self::DeletePrimary | Self::Flip => port.is_write(),
            Self::DeleteTarget | Self::EditTarget | Self::Orphan | Self::Stick | Self::Annotate => {
                matches!(port, Port::Create | Port::Update | Port::Patch)
            }
            Self::Preexist => matches!(port, Port::Create | Port::Update | Port::Patch),
            Self::Fail | Self::Absence => port == Port::External,
        };
        // External calls have the faults of requests that need no API server.
        fits || (port == Port::External && matches!(self, Self::LoseResponse | Self::Delay(_) | Self::DelayResponse(_)))
            || (port == Port::Webhook && matches!(self, Self::Reset | Self::Delay(_) | Self::CrashBefore))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, Argument::None) => f.write_str(name),
            (name, Argument::Number(number)) => write!(f, "{name}={number}"),
            (name, Argument::Site(site)) => write!(f, "{name}={}", escaped(&site.to_string())),
        }
    }
}

/// Error of parsing a fault.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid fault {0:?}; docs/explore-faults.md lists the faults and their arguments")]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let invalid = || FaultError(text.to_owned());
        let (name, argument) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let number = || argument.and_then(|text| text.parse::<u32>().ok()).ok_or_else(invalid);
        let known = Self::all().into_iter().find(|fault| fault.name() == name).ok_or_else(invalid)?;
        let fault = match known {
            Self::Error(_) => Self::Error(argument.and_then(|text| text.parse().ok()).ok_or_else(invalid)?),
            Self::Delay(_) => Self::Delay(number()?),
            Self::DelayResponse(_) => Self::DelayResponse(number()?),
            Self::Slow(_) => Self::Slow(number()?),
            Self::CrashLoop(_) => Self::CrashLoop(number()?),
            Self::Hold(_) => Self::Hold(number()?),
            Self::Coalesce(_) => Self::Coalesce(number()?),
            Self::Absent(_) => Self::Absent(number()?),
            Self::Partition(_) => Self::Partition(number()?),
            Self::PartitionWatches(_) => Self::PartitionWatches(number()?),
            Self::RestartServer(_) => Self::RestartServer(number()?),
            Self::Revoke(_) => Self::Revoke(number()?),
            Self::BlockLease(_) => Self::BlockLease(number()?),
            Self::SilenceWebhooks(_) => Self::SilenceWebhooks(number()?),
            Self::Skew(_) => Self::Skew(argument.and_then(|text| text.parse().ok()).ok_or_else(invalid)?),
            Self::RestartStale(_) => {
                let site = argument.and_then(unescaped).ok_or_else(invalid)?;
                Self::RestartStale(site.parse().map_err(|_| invalid())?)
            }
            plain if argument.is_none() => plain,
            _ => return Err(invalid()),
        };
        Ok(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_round_trip() {
        for fault in Fault::all() {
            assert_eq!(fault.to_string().parse(), Ok(fault.clone()), "{fault}");
        }
        for text in ["", "error", "error=x", "cut=1", "restart-stale=x", "hold=-1"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_fault_fits_a_port() {
        for fault in Fault::all() {
            assert!(Port::ALL.into_iter().any(|port| fault.fits(port)), "{fault}");
        }
    }
}
