//! The protocol of list and watch as a state machine without I/O.
//!
//! ```text
//!        ┌──────── 410, or the server lost its place, or a frame was lost ────────┐
//!        ▼                                                                        │
//!     Listing ──────────────── the list is complete ────────────────► Watching ───┤
//!      ▲   │                                                            ▲         │
//!      └───┘ broken off, refused, or to be confirmed                    └─────────┘ stream ends: resumed
//! ```
//!
//! Every error results in the same request again, or in a list. The [`Schedule`] decides the delay.

use super::frame::{self, Event, ListMeta};
use super::schedule::{MAX_BACKOFF, Schedule};
use crate::cache::{CachedPart, Delta, Entry, KeptFields, OwnWriteResponses, Store, percent_encoded};
use flyball_core::{ObjectKey, Rng};
use kube::core::Status;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait for a kind that is not installed: its CRD may be installed at any time.
const MAX_BACKOFF_FOR_KIND: Duration = Duration::from_secs(5);
/// The wait before a list that lacks many objects is compared with another one.
const CONFIRMATION_DELAY: Duration = Duration::from_secs(2);
/// Number of responses in a row by which the server must report a kind as missing: one of several servers may not
/// have observed a new CRD yet.
const REJECTIONS_OF_ABSENT_KIND: u32 = 3;
/// After this number of 502, 503 or 504 in a row the server may be unavailable, and a load balancer responds in its
/// place.
const ERRORS_OF_ABSENT_SERVER: u32 = 3;
/// Time for which a server may keep a watch open beyond the requested timeout.
const WATCH_CLOSE_GRACE: Duration = Duration::from_secs(30);
/// Time without data after which a watch is resumed, if the server sends a bookmark per minute, as kube-apiserver
/// does. Resuming costs the server little if the bookmark was only late.
const WATCH_SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time without data after which an unfinished list is aborted.
const LIST_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The kind of metadata-only objects.
const METADATA_KIND: &str = "PartialObjectMetadata";
/// Page size of lists.
const PAGE_SIZE: u32 = 500;

/// The next request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) uri: String,
    /// Format of the response.
    pub(super) format: ResponseFormat,
    /// Maximum time without data.
    pub(super) silence: Duration,
}

/// Format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    /// A list, or a page of it.
    List,
    /// One event per line.
    Events,
}

/// Strategy of a list, in ascending order of cost for a kube-apiserver 1.36 (10,000 objects of 1.6 kB: 0.3 s of CPU,
/// 0.7 s, 1.7 s). If a list fails with one strategy, the next one is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListStrategy {
    /// A single response, from the server's watch cache.
    Single,
    /// The initial events of a watch ([KEP-3157](https://kep.k8s.io/3157)), which need little memory on the server.
    Stream,
    /// Pages; all but the first come from etcd.
    Pages,
}

impl ListStrategy {
    fn next(self) -> Self {
        match self {
            Self::Single => Self::Stream,
            Self::Stream => Self::Pages,
            Self::Pages => Self::Single,
        }
    }
}

/// Returns true for responses of a load balancer whose server is unavailable.
pub(super) fn is_gateway_error(code: u16) -> bool {
    (502..=504).contains(&code)
}

/// The wait before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// A duration.
    For(Duration),
    /// Until the unreachable server responds. If it had been available, another error was the cause: then this
    /// duration, from now on.
    Server(Duration),
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum End {
    /// There was no connection, or no response from a server that also does not respond to probes.
    Unreachable(String),
    /// There was no response from a server that is available again after an outage, or that responded to another
    /// request.
    Lost,
    /// There was no response for too long from a server that responds to probes.
    Late,
    /// The server closed the stream.
    Closed,
    /// The stream was aborted.
    Broken(String),
    /// There was no data for too long.
    Silent,
}

/// The watch of one kind in one scope, starting with a list.
#[derive(Debug)]
pub(super) struct Session {
    path: String,
    kind: Box<str>,
    /// Selectors in the query of each request, after a `&`; empty for all objects.
    select: String,
    manager: Arc<str>,
    /// The part that is kept of each object.
    kept: KeptFields,
    own_writes: Arc<OwnWriteResponses>,
    rng: Rng,
    schedule: Schedule,
    state: State,
    /// Strategy of the next list.
    strategy: ListStrategy,
    /// Failed lists in a row with this strategy.
    broken_lists: u32,
    /// True if the server sends bookmarks.
    bookmarks: bool,
    /// True if a frame was lost, so that a list must follow.
    needs_relist: bool,
    /// Requested timeout of the last watch.
    requested_timeout: Duration,
    /// Responses in a row that report the kind as missing.
    unknown: u32,
    last_error: Option<String>,
}

#[derive(Debug)]
enum State {
    /// A list is in progress, starting at this page.
    Listing(ListMeta),
    Watching {
        revision: u64,
    },
}

/// The effect of a line of a watch.
#[derive(Debug)]
pub(super) enum Step {
    /// The cache applies this.
    Apply(Delta),
    /// The line contains no event.
    Nothing,
    /// The line could not be parsed: the event is lost until the next list.
    Lost(String),
    /// The list is complete, as of this revision. The caller responds with [`Session::complete`] or
    /// [`Session::unconfirmed`].
    Listed(u64),
    /// The server ended the watch, for this reason.
    Stop(Box<Status>),
}

impl Session {
    /// Creates the session for a store, which keeps the managed fields of `manager`.
    pub(super) fn new(store: &Store, manager: Arc<str>, rng: Rng) -> Self {
        let CachedPart { selection, kept } = store.cached_part();
        Self {
            path: store.kind().path(store.namespace()),
            kind: store.kind().name().into(),
            select: selection.query(),
            manager,
            kept: kept.clone(),
            own_writes: store.own_writes().clone(),
            schedule: Schedule::new(rng.fork("schedule")),
            rng,
            state: State::Listing(ListMeta::default()),
            strategy: ListStrategy::Single,
            broken_lists: 0,
            bookmarks: false,
            needs_relist: false,
            requested_timeout: Duration::ZERO,
            unknown: 0,
            last_error: None,
        }
    }

    /// Returns the last error, `None` while the watch works.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Returns the wait before the next request.
    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns true if a late request is aborted once the server responds to others, without an outage in between. A
    /// list may take long to start, and so may a watch at a busy server, which is aborted only once.
    pub(super) fn aborts_late_requests(&self) -> bool {
        self.is_watching() && self.schedule.errors() == 0
    }

    /// Records that the server is available again after an outage.
    pub(super) fn returned(&mut self) {
        self.schedule.returned();
    }

    /// Returns true if the server has reported the kind as missing often enough.
    pub(super) fn is_absent(&self) -> bool {
        self.unknown >= REJECTIONS_OF_ABSENT_KIND
    }

    /// Returns true if the list is complete, and a watch follows.
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    /// Returns true if the next request starts a list.
    pub(super) fn begins_list(&self) -> bool {
        matches!(&self.state, State::Listing(page) if page.next.is_empty())
    }

    /// Returns the next request.
    pub(super) fn request(&mut self) -> Request {
        // The server closes a watch after this time; jitter keeps an operator's watches from ending together.
        let seconds = 270 + self.rng.below(60);
        self.requested_timeout = Duration::from_secs(seconds);
        let (path, select) = (&self.path, &self.select);
        let watch = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{select}");
        let (format, uri, silence) = match (&self.state, self.strategy) {
            (State::Listing(_), ListStrategy::Single) => {
                let uri = select.strip_prefix('&').map_or_else(|| path.clone(), |select| format!("{path}?{select}"));
                (ResponseFormat::List, uri, LIST_SILENCE_TIMEOUT)
            }
            (State::Listing(_), ListStrategy::Stream) => {
                let uri = format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
                (ResponseFormat::Events, uri, LIST_SILENCE_TIMEOUT)
            }
            (State::Listing(page), ListStrategy::Pages) => {
                let from = if page.next.is_empty() {
                    String::new()
                } else {
                    format!("&continue={}", percent_encoded(&page.next))
                };
                (ResponseFormat::List, format!("{path}?limit={PAGE_SIZE}{from}{select}"), LIST_SILENCE_TIMEOUT)
            }
            (State::Watching { revision }, _) => {
                let silence =
                    if self.bookmarks { WATCH_SILENCE_TIMEOUT } else { self.requested_timeout + WATCH_CLOSE_GRACE };
                (ResponseFormat::Events, format!("{watch}&resourceVersion={revision}"), silence)
            }
        };
        Request { uri, format, silence }
    }

    /// Records that the server responds to the last request.
    pub(super) fn accepted(&mut self) {
        if self.is_absent() {
            self.schedule.reset();
        }
        if self.is_watching() {
            self.schedule.recovered();
        }
        self.last_error = None;
        self.unknown = 0;
    }

    /// Records that the server rejected the last request, or ended a watch of this duration.
    pub(super) fn rejected(&mut self, status: &Status, lived: Duration) -> Pause {
        self.schedule.lived(lived);
        self.last_error = Some(format!("{} {}", status.code, status.message));
        self.unknown = if status.code == 404 { self.unknown.saturating_add(1) } else { 0 };
        let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = Duration::from_secs(retry_after.into());
        let wait = match (status.code, &self.state) {
            (404, _) => {
                self.list_again();
                self.schedule.failed(MAX_BACKOFF_FOR_KIND, Duration::ZERO)
            }
            // Overloaded, or temporarily forbidden: the known objects stay valid.
            (401 | 403 | 408 | 429 | 500 | 502 | 503, _) => self.schedule.failed(MAX_BACKOFF, retry_after),
            // The server does not support the strategy, or the next page expired.
            (_, State::Listing(_)) => {
                self.next_strategy();
                self.schedule.failed(MAX_BACKOFF, retry_after)
            }
            // The server no longer has the events after this revision, as after a restart: this is not an error.
            (410, State::Watching { .. }) => {
                self.list_again();
                let wait = self.schedule.expired();
                if wait.is_zero() {
                    self.last_error = None;
                }
                wait
            }
            // 504 from a server that is behind a revision that it returned before, possibly without end if there are
            // no changes: only a list does not depend on that revision.
            (_, State::Watching { .. }) => {
                self.list_again();
                self.schedule.failed(MAX_BACKOFF, retry_after)
            }
        };
        let may_be_away = is_gateway_error(status.code) && self.schedule.errors() >= ERRORS_OF_ABSENT_SERVER;
        if may_be_away { Pause::Server(wait) } else { Pause::For(wait) }
    }

    /// Processes an item of the list.
    pub(super) fn item(&mut self, item: &[u8]) -> Step {
        match self.read(item) {
            Ok((key, entry)) => Step::Apply(Delta::Put(key, entry)),
            Err(error) => self.lost(error),
        }
    }

    /// Records the end of a list, or of a page of it.
    pub(super) fn page(&mut self, page: ListMeta) -> Step {
        match &self.state {
            // The server continued at another revision: the two must not be mixed.
            State::Listing(before) if !before.next.is_empty() && before.revision != page.revision => {
                self.next_strategy();
                Step::Nothing
            }
            _ if page.next.is_empty() => Step::Listed(page.revision),
            _ => {
                self.state = State::Listing(page);
                Step::Nothing
            }
        }
    }

    /// Processes a line of the watch.
    pub(super) fn line(&mut self, line: &[u8]) -> Step {
        match frame::event(line) {
            Ok(Event::Put(object)) => self.event(object, |session| match session.read(object) {
                Ok((key, entry)) => session.advance(entry.resource_version(), |_| Delta::Put(key, entry)),
                Err(error) => session.lost(error),
            }),
            Ok(Event::Deleted(object)) => {
                self.event(object, |session| match Entry::read(object, &session.manager, &session.kept) {
                    Ok((key, entry)) => session.advance(entry.resource_version(), |_| Delta::Remove(key, entry)),
                    Err(error) => session.lost(error),
                })
            }
            Ok(Event::Bookmark { revision, initial }) => match self.state {
                State::Listing(_) if initial => Step::Listed(revision),
                State::Listing(_) => Step::Nothing,
                State::Watching { .. } => {
                    self.bookmarks = true;
                    self.advance(revision, Delta::Bookmark)
                }
            },
            Ok(Event::Error(status)) => Step::Stop(status),
            Err(error) => self.lost(error),
        }
    }

    /// Processes the object of a line of the watch.
    fn event(&mut self, object: &[u8], step: impl FnOnce(&mut Self) -> Step) -> Step {
        match frame::kind(object) {
            Some(kind) if *kind != *self.kind && kind != METADATA_KIND => {
                let error = format!("the watch of {} received an object of kind {kind:?}", self.kind);
                self.lost(error)
            }
            _ => step(self),
        }
    }

    /// Parses an object, unless it was already parsed from the response to a write.
    fn read(&self, object: &[u8]) -> Result<(ObjectKey, Arc<Entry>), impl ToString + use<>> {
        match self.own_writes.find(object) {
            Some(known) => Ok(known),
            None => Entry::read(object, &self.manager, &self.kept).map(|(key, entry)| (key, Arc::new(entry))),
        }
    }

    /// Records that the stream ended after `lived`.
    pub(super) fn ended(&mut self, end: End, lived: Duration) -> Pause {
        match (&self.state, &end) {
            (State::Listing(_), End::Unreachable(_) | End::Lost) => self.list_again(),
            // Another attempt would take the server as long, and fail in the same way.
            (State::Listing(_), End::Late) => self.next_strategy(),
            (State::Listing(_), _) if self.broken_lists == 0 => {
                self.list_again();
                self.broken_lists = 1;
            }
            (State::Listing(_), _) => self.next_strategy(),
            (State::Watching { .. }, _) if self.needs_relist => self.list_again(),
            (State::Watching { .. }, _) => {}
        }
        self.schedule.lived(lived);
        match end {
            // The stream lasted about as long as requested; each watch requests a different timeout.
            End::Closed if lived + Duration::from_secs(1) >= self.requested_timeout => {
                return Pause::For(Duration::ZERO);
            }
            End::Closed => {}
            End::Lost => {
                self.last_error = Some("no response, although the API server responds to other requests".into());
                self.returned();
            }
            End::Late => self.last_error = Some("no response from the API server in time".into()),
            End::Broken(why) => self.last_error = Some(why),
            End::Silent => self.last_error = Some("no data from the API server for too long".into()),
            End::Unreachable(why) => {
                self.last_error = Some(why);
                self.schedule.interrupted();
                return Pause::Server(self.retry(lived));
            }
        }
        Pause::For(self.retry(lived))
    }

    fn retry(&mut self, lived: Duration) -> Duration {
        match self.state {
            State::Listing(_) => self.schedule.failed(MAX_BACKOFF, Duration::ZERO),
            State::Watching { .. } => self.schedule.ended(lived),
        }
    }

    /// Sets the revision from which a watch resumes.
    fn advance(&mut self, to: u64, delta: impl FnOnce(u64) -> Delta) -> Step {
        if let State::Watching { revision } = &mut self.state {
            *revision = to.max(*revision);
        }
        Step::Apply(delta(to))
    }

    fn lost(&mut self, error: impl ToString) -> Step {
        self.needs_relist = true;
        Step::Lost(error.to_string())
    }

    /// Completes the list, and returns the delta for the cache.
    pub(super) fn complete(&mut self, revision: u64) -> Delta {
        self.state = State::Watching { revision };
        self.broken_lists = 0;
        Delta::Complete(revision)
    }

    /// Schedules a second list that confirms this one, and returns the delay before it.
    pub(super) fn unconfirmed(&mut self, why: String) -> Pause {
        self.last_error = Some(why);
        self.list_again();
        Pause::For(self.schedule.failed(MAX_BACKOFF, Duration::ZERO).max(CONFIRMATION_DELAY))
    }

    fn list_again(&mut self) {
        self.needs_relist = false;
        self.state = State::Listing(ListMeta::default());
    }

    fn next_strategy(&mut self) {
        self.list_again();
        self.strategy = self.strategy.next();
        self.broken_lists = 0;
    }
}
