//! Leadership of two replicas: no write after the renew deadline, and a bounded failover.

use crate::parts;
use flyball_explore::{Explorer, Fault, Injection, Port, Report, Scenario, Schedule, Site};
use serde_json::Value;
use std::time::Duration;

/// The settings of `LeaderElection::default()`.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time that a takeover may take after a clean stop, or after the lease expired: a second, and the latency of its
/// requests.
const TAKEOVER: Duration = Duration::from_millis(1010);
/// Time between two edits, in which leadership changes hands twice.
const PAUSE: Duration = Duration::from_secs(40);

fn part(size: u8) -> String {
    format!("{{apiVersion: example.com/v1, kind: Part, metadata: {{name: a}}, spec: {{size: {size}}}}}")
}

fn explorer() -> Explorer {
    let edits = Scenario::new("edits").apply(part(1)).wait(PAUSE).apply(part(2)).wait(PAUSE).apply(part(3)).wait(PAUSE);
    parts::explorer().replicas(2).scenario(edits)
}

/// An event of a run, as its trace shows it.
#[derive(Debug)]
enum Event {
    /// A process sends a write of an object other than the lease.
    Write { process: u8 },
    /// The API server has stored the lease with this holder, in response to a request that was sent at a time.
    Lease { sent: Duration, holder: Option<u8> },
}

/// Returns the events of a run, with their times.
fn events(report: &Report) -> Vec<(Duration, Event)> {
    // The last request of a lease, if it is a write. Its response follows at once, unless a fault delays it.
    let mut request: Option<Duration> = None;
    let parse = |line: &String| {
        let mut words = line.splitn(4, ' ');
        let at = Duration::from_micros(words.next()?.parse().ok()?);
        let (kind, word, rest) = (words.next()?, words.next()?, words.next().unwrap_or_default());
        if kind == "<" {
            let object: Value = serde_json::from_str(rest).ok()?;
            let name = object["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let holder = (0..2).find(|process| name.contains(&format!("parts-{process}")));
            let is_stored = object["kind"] == "Lease" && matches!(word, "200" | "201");
            let sent = request.take_if(|_| is_stored)?;
            return Some((at, Event::Lease { sent, holder }));
        }
        let site: Site = word.parse().ok()?;
        let is_write = matches!(kind, "POST" | "PUT" | "PATCH" | "DELETE");
        if site.port == Port::Lease {
            request = is_write.then_some(at);
            return None;
        }
        is_write.then_some((at, Event::Write { process: site.process }))
    };
    report.trace().iter().filter_map(parse).collect()
}

/// Returns the writes that a process sent later than the renew deadline after it had sent its last successful renewal,
/// and the number of all writes.
fn late_writes(events: &[(Duration, Event)]) -> (Vec<(Duration, u8)>, usize) {
    let mut renewed = [None; 2];
    let (mut late, mut count) = (Vec::new(), 0);
    for (at, event) in events {
        match event {
            Event::Lease { sent, holder: Some(holder) } => renewed[usize::from(*holder)] = Some(*sent),
            Event::Lease { holder: None, .. } => {}
            Event::Write { process } => {
                count += 1;
                let deadline = renewed[usize::from(*process)].map(|renewed: Duration| renewed + RENEW_DEADLINE);
                if deadline.is_none_or(|deadline| *at > deadline) {
                    late.push((*at, *process));
                }
            }
        }
    }
    (late, count)
}

/// Returns the times for which nobody held the lease: after a release, and after the last renewal of another process.
fn takeovers(events: &[(Duration, Event)]) -> (Vec<Duration>, Vec<Duration>) {
    let (mut released, mut expired) = (Vec::new(), Vec::new());
    let mut before: Option<(Duration, Option<u8>)> = None;
    for (at, event) in events {
        let Event::Lease { holder, .. } = event else { continue };
        match (before, holder) {
            (Some((since, None)), Some(_)) => released.push(*at - since),
            (Some((since, Some(known))), Some(holder)) if known != *holder => expired.push(*at - since),
            _ => {}
        }
        before = Some((*at, *holder));
    }
    (released, expired)
}

/// Returns faults that pause the leader, shift its clock, or end it: alone, and together with a late write.
fn schedules(sites: &[Site]) -> Vec<Schedule> {
    let step = |n: usize, process| Site { process, port: Port::Step, name: n.to_string(), occurrence: 1 };
    let mut disturbances = Vec::new();
    for n in 2..=6 {
        for process in 0..2 {
            for fault in [
                Fault::BlockLease(12),
                Fault::BlockLease(20),
                Fault::Partition(30),
                Fault::PartitionWatches(30),
                Fault::Skew(3600),
                Fault::Skew(-3600),
                Fault::Restart,
            ] {
                disturbances.push(Injection::new(step(n, process), fault));
            }
        }
    }
    let leases = sites.iter().filter(|site| site.port == Port::Lease && site.occurrence <= 6);
    let pauses = leases.flat_map(|site| {
        [Fault::Delay(12), Fault::DelayResponse(12), Fault::Delay(20)].map(|fault| Injection::new(site.clone(), fault))
    });
    disturbances.extend(pauses);
    let writes: Vec<&Site> = sites.iter().filter(|site| site.port.is_write()).collect();
    let stops = writes.iter().map(|site| Injection::new((*site).clone(), Fault::Terminate));
    disturbances.extend(stops);
    let undisturbed = Schedule::undisturbed("edits", 1);
    let mut all: Vec<Schedule> = disturbances.iter().map(|one| undisturbed.with(vec![one.clone()])).collect();
    for (n, one) in disturbances.iter().enumerate() {
        if let Some(site) = writes.get(n % writes.len().max(1)) {
            all.push(undisturbed.with(vec![one.clone(), Injection::new((*site).clone(), Fault::Delay(16))]));
        }
    }
    all
}

#[test]
fn no_write_follows_the_renew_deadline_and_failover_is_bounded() {
    let explorer = explorer();
    let undisturbed = explorer.replay(&Schedule::undisturbed("edits", 1).to_string());
    undisturbed.assert_clean();
    let all: Vec<String> = schedules(undisturbed.sites()).iter().map(ToString::to_string).collect();
    let (mut writes, mut released, mut expired) = (0, Vec::new(), Vec::new());
    for (schedule, report) in all.iter().zip(explorer.replay_all(&all)) {
        report.assert_clean();
        let events = events(&report);
        let (late, count) = late_writes(&events);
        assert!(late.is_empty(), "{schedule}: writes after the renew deadline: {late:?}");
        let (stops, expiries) = takeovers(&events);
        assert!(stops.iter().all(|time| *time <= TAKEOVER), "{schedule}: takeovers after a stop: {stops:?}");
        let bound = LEASE_DURATION + TAKEOVER;
        assert!(expiries.iter().all(|time| *time <= bound), "{schedule}: takeovers after a failure: {expiries:?}");
        writes += count;
        released.extend(stops);
        expired.extend(expiries);
    }
    let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
    eprintln!(
        "{} schedules, {writes} writes; {} takeovers after a stop, longest {:?}; {} after a failure, longest {:?}",
        all.len(),
        released.len(),
        longest(&released),
        expired.len(),
        longest(&expired),
    );
    assert!(writes > 500 && released.len() > 5 && expired.len() > 20, "the schedules exercise leadership");
}
