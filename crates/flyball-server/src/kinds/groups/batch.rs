//! Kinds of `batch`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{batch, job, printers, workload};

const GROUP: &str = "batch";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "CronJob", "cronjobs")
        .printed(printers::workload::cron_job)
        .default(workload::cron_job)
        .warn(batch::warn_of_cron_job)
        .validate(batch::cron_job)
        .short(&["cj"])
        .category("all")
        .generation()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "Job", "jobs")
        .deletion(job::DELETION)
        .printed(printers::workload::job)
        .default(workload::job)
        .checks(Checks::Whole)
        .warn(batch::warn_of_job)
        .prepare(batch::prepare_job)
        .validate(batch::job)
        .category("all")
        .generation()
        .subresources(&[Sub::STATUS])
        .fields(&["status.successful"], job::successful),
];
