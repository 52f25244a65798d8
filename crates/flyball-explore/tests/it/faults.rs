//! Each fault happens, and the runtime reacts as the catalog says.

use crate::parts::explorer;
use flyball_explore::{Explorer, Fault, Injection, Port, Report, Schedule, Site};

/// Replays schedules of the default scenario.
fn replay(explorer: &Explorer, injections: &[Vec<Injection>]) -> Vec<Report> {
    let schedule =
        |injections: &Vec<Injection>| Schedule::undisturbed("default", 1).with(injections.clone()).to_string();
    let reports = explorer.replay_all(&injections.iter().map(schedule).collect::<Vec<_>>());
    reports.iter().for_each(|report| assert_eq!(report.to_json()["error"], serde_json::Value::Null, "{report}"));
    reports
}

fn undisturbed(explorer: &Explorer) -> Report {
    replay(explorer, &[Vec::new()]).remove(0)
}

/// Returns the first site of a run at which a fault can be injected. Steps have to be after the first event.
fn site_of(sites: &[Site], fault: &Fault) -> Site {
    let prefers = |site: &&Site| match fault {
        Fault::Restart
        | Fault::RestartStale(_)
        | Fault::Absent(_)
        | Fault::Partition(_)
        | Fault::PartitionWatches(_)
        | Fault::RestartServer(_)
        | Fault::Revoke(_)
        | Fault::BlockLease(_)
        | Fault::DeleteLease
        | Fault::Skew(_)
        | Fault::SilenceWebhooks(_)
        | Fault::RecreateDefinition
        | Fault::DeleteNamespace => site.port == Port::Step && site.name == "3",
        Fault::DeleteTarget | Fault::EditTarget | Fault::Orphan | Fault::Stick | Fault::Annotate | Fault::Preexist => {
            site.port.is_write() && site.name.starts_with("configmaps/")
        }
        Fault::Conflict => site.port == Port::Patch && site.name.starts_with("example.com/parts"),
        Fault::Fail | Fault::Absence => site.port == Port::External,
        _ => site.port != Port::Webhook && site.port != Port::Lease,
    };
    let found = sites.iter().filter(|site| fault.fits(site.port)).find(prefers);
    found.unwrap_or_else(|| panic!("no site for {fault} in {sites:#?}")).clone()
}

#[test]
fn each_fault_happens_and_is_tolerated() {
    let explorer = explorer();
    let undisturbed = undisturbed(&explorer);
    undisturbed.assert_clean();
    let event = undisturbed.sites().iter().find(|site| site.port == Port::Watch).unwrap();
    let injection = |fault: Fault| {
        let fault = if let Fault::RestartStale(_) = fault { Fault::RestartStale(event.clone()) } else { fault };
        vec![Injection::new(site_of(undisturbed.sites(), &fault), fault)]
    };
    let all: Vec<Vec<Injection>> = Fault::all().into_iter().map(injection).collect();
    let messages = |report: &Report| -> Vec<String> {
        report.trace().iter().filter(|line| !line.contains('✱')).cloned().collect()
    };
    let mut failures = Vec::new();
    for (injections, report) in all.iter().zip(replay(&explorer, &all)) {
        let Injection { at, fault } = &injections[0];
        let mark = format!("{at} ✱ {fault}");
        if !report.trace().iter().any(|line| line.contains(&mark)) {
            failures.push(format!("{mark} did not occur"));
        }
        if messages(&report) == messages(&undisturbed) && *fault != Fault::DropBookmarks {
            failures.push(format!("{mark} had no effect"));
        }
        if !report.findings().is_empty() {
            failures.push(format!("{report}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn replays_are_equal() {
    let explorer = explorer();
    let undisturbed = undisturbed(&explorer);
    let writes = undisturbed.sites().iter().filter(|site| site.port.is_write());
    let crashes: Vec<Vec<Injection>> =
        writes.map(|site| vec![Injection::new(site.clone(), Fault::CrashAfter)]).collect();
    assert!(!crashes.is_empty());
    for (one, other) in replay(&explorer, &crashes).iter().zip(replay(&explorer, &crashes)) {
        assert_eq!(one.trace(), other.trace());
    }
}
