//! What a watcher does next, as a state machine without I/O.
//!
//! ```text
//!        ┌──────── 410, or the server lost its place, or a frame was lost ────────┐
//!        ▼                                                                        │
//!     Listing ──────────────── the list is complete ────────────────► Watching ───┤
//!      ▲   │                                                            ▲         │
//!      └───┘ broken off, or refused: by the next means                  └─────────┘ stream ends: resumed
//! ```
//!
//! Whatever goes wrong leads to one of two things: the same request again, or the list again. All waits grow with each
//! failure in a row, up to a bound, and are drawn from the seed.

use super::frame::{self, Event, ListMeta};
use crate::cache::{Delta, Echoes, Entry, Kept, Portion, Store, percent_encoded};
use flyball_core::{ObjectKey, Rng};
use kube::core::Status;
use std::sync::Arc;
use std::time::Duration;

/// The first wait after a failure, before jitter; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait after a failure, before jitter.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for a kind that the server does not know yet: its CRD may be installed at any moment.
const LONGEST_WAIT_FOR_KIND: Duration = Duration::from_secs(5);
/// The server has to say so many times in a row that it does not know a kind: of several servers, one may not have heard yet of a
/// CRD that the others serve.
const REFUSALS_OF_ABSENT_KIND: u32 = 3;
/// A watch that ends sooner than this, without a word, counts as a failure.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);
/// How much longer than it was asked to a server may keep a watch open.
const GRACE: Duration = Duration::from_secs(30);
/// How long a server that sends a bookmark a minute, as kube-apiserver does, may be silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(150);
/// How long an unfinished list may be silent.
const LONGEST_SILENCE_OF_LIST: Duration = Duration::from_secs(30);
/// Objects in a page.
const PAGE: u32 = 500;

/// The next request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) uri: String,
    /// What the answer is made of.
    pub(super) answer: Answer,
    /// How long the server may send nothing.
    pub(super) silence: Duration,
}

/// What an answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A list, or a page of it.
    List,
    /// An event in each line.
    Events,
}

/// How a list is fetched. The order is that of what it costs a kube-apiserver 1.36 (10,000 objects of 1.6 kB: 0.3 s of CPU,
/// 0.7 s, 1.7 s); a list that does not come through by one means may do so by the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// In one answer, which the server makes from its watch cache.
    Whole,
    /// As the initial events of a watch ([KEP-3157](https://kep.k8s.io/3157)), which takes little of the server's memory.
    Stream,
    /// In pages, all but the first of which come from etcd.
    Pages,
}

impl Means {
    fn next(self) -> Self {
        match self {
            Self::Whole => Self::Stream,
            Self::Stream => Self::Pages,
            Self::Pages => Self::Whole,
        }
    }
}

/// How a request came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// There was no connection.
    Unreachable(String),
    /// The server closed the stream.
    Closed,
    /// The stream broke off.
    Broken(String),
    /// Nothing came for too long.
    Silent,
}

/// One watch of one kind in one scope, from the first list on.
#[derive(Debug)]
pub(super) struct Session {
    path: String,
    /// What is added to the query of each request, behind a `&`; empty if all objects are meant.
    select: String,
    manager: Arc<str>,
    /// What is kept of each object.
    kept: Kept,
    echoes: Arc<Echoes>,
    rng: Rng,
    state: State,
    /// How the next list is fetched.
    means: Means,
    /// How many lists by these means broke off in a row.
    broken_lists: u32,
    /// Whether the server was seen to send bookmarks.
    bookmarks: bool,
    /// Whether a frame was lost, so that the cache has to be compared with a list.
    doubt: bool,
    /// Failures in a row.
    failures: u32,
    /// How often in a row the server said that it does not know the kind.
    unknown: u32,
    trouble: Option<String>,
}

#[derive(Debug)]
enum State {
    /// The list is under way, by pages from this one on.
    Listing(ListMeta),
    Watching {
        revision: u64,
    },
}

/// What a line of a watch means.
#[derive(Debug)]
pub(super) enum Step {
    /// The cache takes this in.
    Apply(Delta),
    /// The line says nothing.
    Nothing,
    /// The line could not be read: it is lost, and made up for by the next list.
    Lost(String),
    /// The watch is over; the next request goes out after this wait.
    Stop(Duration),
}

impl Session {
    /// Watches what a store holds, and keeps the managed fields of `manager`.
    pub(super) fn new(store: &Store, manager: Arc<str>, rng: Rng) -> Self {
        let Portion { selection, kept } = store.portion();
        Self {
            path: store.kind().path(store.namespace()),
            select: selection.query(),
            manager,
            kept: kept.clone(),
            echoes: store.echoes().clone(),
            rng,
            state: State::Listing(ListMeta::default()),
            means: Means::Whole,
            broken_lists: 0,
            bookmarks: false,
            doubt: false,
            failures: 0,
            unknown: 0,
            trouble: None,
        }
    }

    /// Returns what stands between the cache and the server, `None` while all is well.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Tells whether the kind is not installed, or not any more.
    pub(super) fn is_absent(&self) -> bool {
        self.unknown >= REFUSALS_OF_ABSENT_KIND
    }

    /// Tells whether the next request begins a list.
    pub(super) fn begins_list(&self) -> bool {
        matches!(&self.state, State::Listing(page) if page.next.is_empty())
    }

    /// Returns the next request.
    pub(super) fn request(&mut self) -> Request {
        // The server closes a watch after this time; jitter keeps an operator's watches from ending together.
        let seconds = 270 + self.rng.below(60);
        let (path, select) = (&self.path, &self.select);
        let watch = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{select}");
        let (answer, uri, silence) = match (&self.state, self.means) {
            (State::Listing(_), Means::Whole) => {
                let uri = select.strip_prefix('&').map_or_else(|| path.clone(), |select| format!("{path}?{select}"));
                (Answer::List, uri, LONGEST_SILENCE_OF_LIST)
            }
            (State::Listing(_), Means::Stream) => {
                let uri = format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
                (Answer::Events, uri, LONGEST_SILENCE_OF_LIST)
            }
            (State::Listing(page), Means::Pages) => {
                let from = if page.next.is_empty() {
                    String::new()
                } else {
                    format!("&continue={}", percent_encoded(&page.next))
                };
                (Answer::List, format!("{path}?limit={PAGE}{from}{select}"), LONGEST_SILENCE_OF_LIST)
            }
            (State::Watching { revision }, _) => {
                let silence = if self.bookmarks { LONGEST_SILENCE } else { Duration::from_secs(seconds) + GRACE };
                (Answer::Events, format!("{watch}&resourceVersion={revision}"), silence)
            }
        };
        Request { uri, answer, silence }
    }

    /// Takes in that the server answers the last request.
    pub(super) fn accepted(&mut self) {
        self.trouble = None;
        self.unknown = 0;
    }

    /// Takes in that the server refused the last request, and returns how long to wait.
    pub(super) fn refused(&mut self, status: &Status) -> Duration {
        self.trouble = Some(format!("{} {}", status.code, status.message));
        self.unknown = if status.code == 404 { self.unknown.saturating_add(1) } else { 0 };
        let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        match (status.code, &self.state) {
            (404, _) => {
                self.list_again();
                self.wait(LONGEST_WAIT_FOR_KIND)
            }
            // Busy, or not allowed for now: what is known stays good.
            (401 | 403 | 408 | 429 | 500 | 502 | 503, _) => {
                self.wait(LONGEST_WAIT).max(Duration::from_secs(asked.into()).min(2 * LONGEST_WAIT))
            }
            // The server cannot do it this way, or the next page expired.
            (_, State::Listing(_)) => {
                self.other_means();
                self.wait(LONGEST_WAIT)
            }
            // 410, and 504 from a server that lags behind what it told before, which it may do for ever where nothing
            // changes: only a list does not depend on the place that was lost.
            (_, State::Watching { .. }) => {
                self.list_again();
                self.wait(LONGEST_WAIT)
            }
        }
    }

    /// Takes in one item of the list.
    pub(super) fn item(&mut self, item: &[u8]) -> Step {
        match self.read(item) {
            Ok((key, entry)) => Step::Apply(Delta::Put(key, entry)),
            Err(error) => self.lost(error),
        }
    }

    /// Takes in that the list, or a page of it, is at its end.
    pub(super) fn page(&mut self, page: ListMeta) -> Step {
        match &self.state {
            // The server went on from another revision: two of them must not mix.
            State::Listing(before) if !before.next.is_empty() && before.revision != page.revision => {
                self.other_means();
                Step::Nothing
            }
            _ if page.next.is_empty() => self.listed(page.revision),
            _ => {
                self.state = State::Listing(page);
                Step::Nothing
            }
        }
    }

    /// Takes in one line of the watch.
    pub(super) fn line(&mut self, line: &[u8]) -> Step {
        match frame::event(line) {
            Ok(Event::Put(object)) => match self.read(object) {
                Ok((key, entry)) => self.advance(entry.resource_version(), |_| Delta::Put(key, entry)),
                Err(error) => self.lost(error),
            },
            Ok(Event::Deleted(object)) => match Entry::read(object, &self.manager, &self.kept) {
                Ok((key, entry)) => self.advance(entry.resource_version(), |_| Delta::Remove(key, entry)),
                Err(error) => self.lost(error),
            },
            Ok(Event::Bookmark { revision, initial }) => match self.state {
                State::Listing(_) if initial => self.listed(revision),
                State::Listing(_) => Step::Nothing,
                State::Watching { .. } => {
                    self.bookmarks = true;
                    self.advance(revision, Delta::Bookmark)
                }
            },
            Ok(Event::Error(status)) => Step::Stop(self.refused(&status)),
            Err(error) => self.lost(error),
        }
    }

    /// Reads an object, unless that was done when a write was answered with it.
    fn read(&self, object: &[u8]) -> Result<(ObjectKey, Arc<Entry>), impl ToString + use<>> {
        match self.echoes.recognise(object) {
            Some(known) => Ok(known),
            None => Entry::read(object, &self.manager, &self.kept).map(|(key, entry)| (key, Arc::new(entry))),
        }
    }

    /// Takes in that the stream ended after `lived`, and returns how long to wait before the next request.
    pub(super) fn ended(&mut self, end: End, lived: Duration) -> Duration {
        match (&self.state, &end) {
            (State::Listing(_), End::Unreachable(_)) => self.list_again(),
            (State::Listing(_), _) if self.broken_lists == 0 => {
                self.list_again();
                self.broken_lists = 1;
            }
            (State::Listing(_), _) => self.other_means(),
            (State::Watching { .. }, _) if self.doubt => self.list_again(),
            (State::Watching { .. }, _) => {}
        }
        match end {
            End::Closed if lived >= SHORTEST_WATCH => return Duration::ZERO,
            End::Closed => {}
            End::Unreachable(why) | End::Broken(why) => self.trouble = Some(why),
            End::Silent => self.trouble = Some("the API server sent nothing for too long".into()),
        }
        self.wait(LONGEST_WAIT)
    }

    /// Moves the place from which a watch resumes, which proves that the watch works.
    fn advance(&mut self, to: u64, delta: impl FnOnce(u64) -> Delta) -> Step {
        if let State::Watching { revision } = &mut self.state {
            *revision = to.max(*revision);
            self.failures = 0;
        }
        Step::Apply(delta(to))
    }

    fn lost(&mut self, error: impl ToString) -> Step {
        self.doubt = true;
        Step::Lost(error.to_string())
    }

    fn listed(&mut self, revision: u64) -> Step {
        self.state = State::Watching { revision };
        self.broken_lists = 0;
        Step::Apply(Delta::Complete(revision))
    }

    fn list_again(&mut self) {
        self.doubt = false;
        self.state = State::Listing(ListMeta::default());
    }

    fn other_means(&mut self) {
        self.list_again();
        self.means = self.means.next();
        self.broken_lists = 0;
    }

    /// Counts a failure and returns how long to wait: none after the first, then longer each time.
    fn wait(&mut self, longest: Duration) -> Duration {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        let Some(doublings) = before.checked_sub(1) else { return Duration::ZERO };
        let doubled = FIRST_WAIT.saturating_mul(1 << doublings.min(16)).min(longest);
        doubled.mul_f64(0.5 + self.rng.fraction() / 2.0)
    }
}
