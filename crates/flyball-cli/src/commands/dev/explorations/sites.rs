//! The sites at which the page can inject a fault.

use flyball_console::{SiteChoice, Sites};
use flyball_explore::{Fault, Report, Site};

/// Limit of the sites.
const MAX_SITES: usize = 500;
/// Limit of the crossings of one read: an operator may poll.
const MAX_READS: u32 = 3;

/// Returns the sites that a run without faults crossed, with the faults that fit.
pub(super) fn choices(report: &Report, sample: &str, schedule: &str) -> Sites {
    let named: Vec<&Site> = report.sites().iter().filter(|site| is_distinct(site)).collect();
    let choice = |site: &&Site| SiteChoice { site: site.to_string(), faults: faults(site) };
    Sites {
        sample: sample.to_owned(),
        schedule: schedule.to_owned(),
        sites: named.iter().take(MAX_SITES).map(choice).collect(),
        omitted: named.len().saturating_sub(MAX_SITES),
    }
}

fn is_distinct(site: &Site) -> bool {
    let is_read = site.port.is_request() && !site.port.is_write();
    !(is_read && site.occurrence > MAX_READS)
}

/// Returns the faults for a site, with usual arguments.
fn faults(site: &Site) -> Vec<String> {
    // The clock of another process cannot be shifted, and a stale restart names another site.
    let is_offered = |fault: &Fault| !matches!(fault, Fault::Skew(_) | Fault::RestartStale(_));
    let all = Fault::all().into_iter();
    all.filter(|fault| fault.fits(site.port) && is_offered(fault)).map(|fault| fault.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_explore::Schedule;

    #[test]
    fn each_choice_is_a_schedule() {
        for site in ["patch:apps/deployments/web#1", "watch:pods/a#2", "step:1#1", "lease:leases/op#1", "get:pods/a#1"]
        {
            let site: Site = site.parse().unwrap();
            let faults = faults(&site);
            assert!(!faults.is_empty(), "{site}");
            for fault in faults {
                let line = format!("default; seed=1; {site} {fault}");
                assert_eq!(line.parse::<Schedule>().map(|schedule| schedule.to_string()), Ok(line));
            }
        }
    }

    #[test]
    fn repeated_reads_are_no_choices() {
        let is_distinct = |text: &str| is_distinct(&text.parse().unwrap());
        assert!(is_distinct("get:pods/a#3") && !is_distinct("get:pods/a#4") && is_distinct("patch:pods/a#9"));
    }
}
