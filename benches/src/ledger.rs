//! The cost of recording a reconcile in the ledger of a controller.

use crate::Result;
use flyball::ObjectKey;
use flyball::bench::MeasuredLedger;
use std::time::Instant;

const RECONCILES: u64 = 2_000_000;
const RUNS: usize = 7;

pub(crate) fn measure() -> Result<()> {
    let keys: Vec<ObjectKey> = (0..1000).map(|n| ObjectKey::new(Some("default"), &format!("widget-{n}"))).collect();
    let ledger = MeasuredLedger::new();
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        for id in 0..RECONCILES {
            ledger.record(&keys[id as usize % keys.len()], id);
        }
        times.push(began.elapsed().as_nanos() as f64 / RECONCILES as f64);
    }
    times.sort_by(f64::total_cmp);
    let (count, bytes) = ledger.size();
    println!("record of a reconcile: {:.0} ns (median of {RUNS})", times[RUNS / 2]);
    println!("{count} reconciles kept in {} KiB", bytes >> 10);
    Ok(())
}
