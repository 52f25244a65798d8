//! Metrics of queues, under the names of client-go's work queues.
//!
//! They change with every key, so they are not counted on the fly but read from the queue at each scrape.

use super::{Queue, QueueStats};
use crate::metrics::encode_family;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

/// Collects the metrics of the queues of an operator.
#[derive(Debug)]
pub(crate) struct QueueCollector {
    pub(crate) queues: Vec<MonitoredQueue>,
}

/// The queue of a controller.
#[derive(Debug)]
pub(crate) struct MonitoredQueue {
    pub(crate) controller: String,
    pub(crate) workers: usize,
    pub(crate) queue: Arc<Queue>,
}

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Read<M> = fn(&QueueStats) -> M;
        let counters: [(&str, &str, Read<u64>); 4] = [
            ("workqueue_adds", "Keys added", |f| f.adds),
            ("workqueue_retries", "Keys that wait for their backoff", |f| f.retries),
            ("flyball_queue_echoes", "Changes ignored because they were the key's own writes", |f| f.echoes),
            ("flyball_queue_overdue", "Keys released before a cache observed their writes", |f| f.overdue),
        ];
        let gauges: [(&str, &str, Read<f64>); 5] = [
            ("workqueue_depth", "Keys that are ready", |f| f.depth as f64),
            ("flyball_queue_throttled", "Keys that failed and wait for the rate limit", |f| f.throttled as f64),
            ("workqueue_unfinished_work_seconds", "Time of all running keys", |f| f.unfinished.as_secs_f64()),
            ("workqueue_longest_running_processor_seconds", "Time of the longest running key", |f| {
                f.longest.as_secs_f64()
            }),
            ("controller_runtime_active_workers", "Workers that have a key", |f| f.running as f64),
        ];
        let stats: Vec<_> = self.queues.iter().map(|each| (each, each.queue.stats())).collect();
        let labels =
            |each: &MonitoredQueue| [("name", each.controller.clone()), ("controller", each.controller.clone())];
        for (name, help, read) in counters {
            let members = stats.iter().map(|(each, f)| (labels(each), ConstCounter::new(read(f))));
            encode_family(&mut encoder, name, help, members)?;
        }
        let saturation = stats.iter().map(|(each, f)| {
            let controller = [("controller", each.controller.clone())];
            (controller, ConstGauge::new(f.running as f64 / each.workers.max(1) as f64))
        });
        encode_family(&mut encoder, "flyball_saturation", "Fraction of workers that have a key", saturation)?;
        for (name, help, read) in gauges {
            let members = stats.iter().map(|(each, f)| (labels(each), ConstGauge::new(read(f))));
            encode_family(&mut encoder, name, help, members)?;
        }
        Ok(())
    }
}
