//! Kinds of `batch`.

kinds! {
    mod cron_job;
    mod job;
}

const GROUP: &str = "batch";
