use flyball_core::Rng;
use http::StatusCode;
use std::collections::BTreeMap;
use std::time::Duration;

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks before the request arrives.
    LostRequest,
    /// The request is executed, and then the connection breaks.
    LostResponse,
    /// The response is delayed.
    Delay(Duration),
    /// The response is an HTTP status without a body, as from a proxy.
    Status(StatusCode),
    /// vCenter rejects the call with a fault of this name.
    Rejection(&'static str),
    /// The task that the call starts, if it starts one, fails in the end with a fault of this name.
    FailedTask(&'static str),
    /// All sessions end just before the call.
    EndOfSessions,
}

/// Calls with faults, counted from the time when the faults are set.
#[derive(Clone, Debug, Default)]
pub enum Faults {
    /// None.
    #[default]
    None,
    /// The same fault for all calls.
    Always(Fault),
    /// Faults for calls with these numbers, starting at 0.
    Script {
        /// Number of the next call.
        next: u64,
        /// Faults by number of the call.
        faults: BTreeMap<u64, Fault>,
    },
    /// Random faults, from a seed.
    Random {
        /// Random source of faults.
        rng: Rng,
        /// Number of faults in a thousand calls.
        per_mille: u64,
    },
}

impl Faults {
    /// Injects faults into the calls with these numbers.
    pub fn script(faults: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        Self::Script { next: 0, faults: faults.into_iter().collect() }
    }

    /// Injects random faults of all kinds into a share of calls.
    pub fn random(seed: u64, per_mille: u64) -> Self {
        Self::Random { rng: Rng::from_seed(seed), per_mille }
    }

    pub(super) fn next(&mut self) -> Option<Fault> {
        match self {
            Self::None => None,
            Self::Always(fault) => Some(*fault),
            Self::Script { next, faults } => {
                *next += 1;
                faults.remove(&(*next - 1))
            }
            Self::Random { rng, per_mille } => (rng.below(1000) < *per_mille).then(|| any(rng)),
        }
    }
}

fn any(rng: &Rng) -> Fault {
    const ALL: [Fault; 9] = [
        Fault::LostRequest,
        Fault::LostResponse,
        Fault::Delay(Duration::from_secs(3)),
        Fault::Delay(Duration::from_secs(120)),
        Fault::Status(StatusCode::SERVICE_UNAVAILABLE),
        Fault::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::Rejection("HostCommunication"),
        Fault::FailedTask("FileFault"),
        Fault::EndOfSessions,
    ];
    ALL[rng.below(ALL.len() as u64) as usize]
}
