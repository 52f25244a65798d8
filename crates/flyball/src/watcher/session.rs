//! What a watcher does next, as a state machine without I/O.
//!
//! ```text
//!        ┌──────── 410, or the server lost its place, or a frame was lost ────────┐
//!        ▼                                                                        │
//!     Listing ──────────────── the list is complete ────────────────► Watching ───┤
//!      ▲   │                                                            ▲         │
//!      └───┘ broken off, refused, or to be confirmed                    └─────────┘ stream ends: resumed
//! ```
//!
//! Whatever goes wrong leads to one of two things: the same request again, or the list again. How long it waits before
//! that is up to the [`Schedule`].

use super::frame::{self, Event, ListMeta};
use super::schedule::{MAX_BACKOFF, Schedule};
use crate::cache::{Delta, Echoes, Entry, Kept, Portion, Store, percent_encoded};
use flyball_core::{ObjectKey, Rng};
use kube::core::Status;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for a kind that the server does not know yet: its CRD may be installed at any moment.
const MAX_BACKOFF_FOR_KIND: Duration = Duration::from_secs(5);
/// The wait before a list that lacks many objects is compared with another one.
const CONFIRMATION_DELAY: Duration = Duration::from_secs(2);
/// The server has to say so many times in a row that it does not know a kind: of several servers, one may not have heard yet of a
/// CRD that the others serve.
const REFUSALS_OF_ABSENT_KIND: u32 = 3;
/// After so many 502, 503 or 504 in a row the server may be away, for which a load balancer answers.
const ERRORS_OF_ABSENT_SERVER: u32 = 3;
/// How much longer than it was asked to a server may keep a watch open.
const GRACE: Duration = Duration::from_secs(30);
/// How long a watch may be silent whose server sends a bookmark a minute, as kube-apiserver does. To resume it costs the server little
/// if that one was half a minute late.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);
/// How long an unfinished list may be silent.
const LONGEST_SILENCE_OF_LIST: Duration = Duration::from_secs(30);
/// The kind of objects of which the server sends the metadata only.
const PARTIAL: &str = "PartialObjectMetadata";
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

/// Tells whether a load balancer answers so for a server that is away.
pub(super) fn is_gateway_error(code: u16) -> bool {
    (502..=504).contains(&code)
}

/// What is waited for before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// So much time.
    For(Duration),
    /// The server, which cannot be reached. If it turns out to have been there, something else was wrong: then so much
    /// time, from now on.
    Server(Duration),
}

/// How a request came to its end.
#[derive(Debug)]
pub(super) enum End {
    /// There was no connection, or no answer from a server that does not answer probes either.
    Unreachable(String),
    /// There was no answer from a server that answers again after it was away, or that answered another request.
    Lost,
    /// There was no answer for too long from a server that answers probes.
    Late,
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
    kind: Box<str>,
    /// What is added to the query of each request, behind a `&`; empty if all objects are meant.
    select: String,
    manager: Arc<str>,
    /// What is kept of each object.
    kept: Kept,
    echoes: Arc<Echoes>,
    rng: Rng,
    schedule: Schedule,
    state: State,
    /// How the next list is fetched.
    means: Means,
    /// How many lists by these means broke off in a row.
    broken_lists: u32,
    /// Whether the server was seen to send bookmarks.
    bookmarks: bool,
    /// Whether a frame was lost, so that the cache has to be compared with a list.
    doubt: bool,
    /// How long the last watch was asked to last.
    asked: Duration,
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
    /// The list is complete, as of this revision: the session wants to know whether it is [believed](Session::complete)
    /// or
    /// [doubted](Session::doubt).
    Listed(u64),
    /// The server ended the watch, for this reason.
    Stop(Box<Status>),
}

impl Session {
    /// Watches what a store holds, and keeps the managed fields of `manager`.
    pub(super) fn new(store: &Store, manager: Arc<str>, rng: Rng) -> Self {
        let Portion { selection, kept } = store.portion();
        Self {
            path: store.kind().path(store.namespace()),
            kind: store.kind().name().into(),
            select: selection.query(),
            manager,
            kept: kept.clone(),
            echoes: store.echoes().clone(),
            schedule: Schedule::new(rng.fork("schedule")),
            rng,
            state: State::Listing(ListMeta::default()),
            means: Means::Whole,
            broken_lists: 0,
            bookmarks: false,
            doubt: false,
            asked: Duration::ZERO,
            unknown: 0,
            trouble: None,
        }
    }

    /// Returns what stands between the cache and the server, `None` while all is well.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns how long to wait.
    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Tells whether a request that is not answered promptly is given up once the server answers others, without it
    /// having been away. A list may take long to begin, and so may a watch at a server that is busy: that one is given
    /// up once.
    pub(super) fn is_impatient(&self) -> bool {
        self.is_watching() && self.schedule.errors() == 0
    }

    /// Takes in that the server is back that was away.
    pub(super) fn returned(&mut self) {
        self.schedule.returned();
    }

    /// Tells whether the server has said often enough that it does not know the kind.
    pub(super) fn is_absent(&self) -> bool {
        self.unknown >= REFUSALS_OF_ABSENT_KIND
    }

    /// Tells whether the list is complete, and followed by a watch.
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    /// Tells whether the next request begins a list.
    pub(super) fn begins_list(&self) -> bool {
        matches!(&self.state, State::Listing(page) if page.next.is_empty())
    }

    /// Returns the next request.
    pub(super) fn request(&mut self) -> Request {
        // The server closes a watch after this time; jitter keeps an operator's watches from ending together.
        let seconds = 270 + self.rng.below(60);
        self.asked = Duration::from_secs(seconds);
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
                let silence = if self.bookmarks { LONGEST_SILENCE } else { self.asked + GRACE };
                (Answer::Events, format!("{watch}&resourceVersion={revision}"), silence)
            }
        };
        Request { uri, answer, silence }
    }

    /// Takes in that the server answers the last request.
    pub(super) fn accepted(&mut self) {
        if self.is_absent() {
            self.schedule.reset();
        }
        if self.is_watching() {
            self.schedule.recovered();
        }
        self.trouble = None;
        self.unknown = 0;
    }

    /// Takes in that the server refused the last request, or ended a watch that had lived this long.
    pub(super) fn refused(&mut self, status: &Status, lived: Duration) -> Pause {
        self.schedule.lived(lived);
        self.trouble = Some(format!("{} {}", status.code, status.message));
        self.unknown = if status.code == 404 { self.unknown.saturating_add(1) } else { 0 };
        let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let asked = Duration::from_secs(asked.into());
        let wait = match (status.code, &self.state) {
            (404, _) => {
                self.list_again();
                self.schedule.failed(MAX_BACKOFF_FOR_KIND, Duration::ZERO)
            }
            // Busy, or not allowed for now: what is known stays good.
            (401 | 403 | 408 | 429 | 500 | 502 | 503, _) => self.schedule.failed(MAX_BACKOFF, asked),
            // The server cannot do it this way, or the next page expired.
            (_, State::Listing(_)) => {
                self.other_means();
                self.schedule.failed(MAX_BACKOFF, asked)
            }
            // The server forgot what came after the place of the watch, as it does when it starts: nothing is wrong
            // with it.
            (410, State::Watching { .. }) => {
                self.list_again();
                let wait = self.schedule.expired();
                if wait.is_zero() {
                    self.trouble = None;
                }
                wait
            }
            // 504 from a server that lags behind what it told before, which it may do for ever where nothing changes:
            // only a list does not depend on the place that was lost.
            (_, State::Watching { .. }) => {
                self.list_again();
                self.schedule.failed(MAX_BACKOFF, asked)
            }
        };
        let may_be_away = is_gateway_error(status.code) && self.schedule.errors() >= ERRORS_OF_ABSENT_SERVER;
        if may_be_away { Pause::Server(wait) } else { Pause::For(wait) }
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
            _ if page.next.is_empty() => Step::Listed(page.revision),
            _ => {
                self.state = State::Listing(page);
                Step::Nothing
            }
        }
    }

    /// Takes in one line of the watch.
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

    /// Takes in an object that a line of the watch is about.
    fn event(&mut self, object: &[u8], step: impl FnOnce(&mut Self) -> Step) -> Step {
        match frame::kind(object) {
            Some(kind) if *kind != *self.kind && kind != PARTIAL => {
                let error = format!("the watch of {} sent an object of kind {kind:?}", self.kind);
                self.lost(error)
            }
            _ => step(self),
        }
    }

    /// Reads an object, unless that was done when a write was answered with it.
    fn read(&self, object: &[u8]) -> Result<(ObjectKey, Arc<Entry>), impl ToString + use<>> {
        match self.echoes.recognise(object) {
            Some(known) => Ok(known),
            None => Entry::read(object, &self.manager, &self.kept).map(|(key, entry)| (key, Arc::new(entry))),
        }
    }

    /// Takes in that the stream ended after `lived`.
    pub(super) fn ended(&mut self, end: End, lived: Duration) -> Pause {
        match (&self.state, &end) {
            (State::Listing(_), End::Unreachable(_) | End::Lost) => self.list_again(),
            // Another attempt would take the server as long, and be as much in vain.
            (State::Listing(_), End::Late) => self.other_means(),
            (State::Listing(_), _) if self.broken_lists == 0 => {
                self.list_again();
                self.broken_lists = 1;
            }
            (State::Listing(_), _) => self.other_means(),
            (State::Watching { .. }, _) if self.doubt => self.list_again(),
            (State::Watching { .. }, _) => {}
        }
        self.schedule.lived(lived);
        match end {
            // It lasted as long as was asked for, give or take the way to the server: each watch asks for another time.
            End::Closed if lived + Duration::from_secs(1) >= self.asked => return Pause::For(Duration::ZERO),
            End::Closed => {}
            End::Lost => {
                self.trouble = Some("the API server answers others, and not this request".into());
                self.returned();
            }
            End::Late => self.trouble = Some("the API server did not begin to answer in time".into()),
            End::Broken(why) => self.trouble = Some(why),
            End::Silent => self.trouble = Some("the API server sent nothing for too long".into()),
            End::Unreachable(why) => {
                self.trouble = Some(why);
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

    /// Moves the place from which a watch resumes.
    fn advance(&mut self, to: u64, delta: impl FnOnce(u64) -> Delta) -> Step {
        if let State::Watching { revision } = &mut self.state {
            *revision = to.max(*revision);
        }
        Step::Apply(delta(to))
    }

    fn lost(&mut self, error: impl ToString) -> Step {
        self.doubt = true;
        Step::Lost(error.to_string())
    }

    /// Takes in that the list is believed, and returns what the cache takes in.
    pub(super) fn complete(&mut self, revision: u64) -> Delta {
        self.state = State::Watching { revision };
        self.broken_lists = 0;
        Delta::Complete(revision)
    }

    /// Takes in that the list is to be confirmed by another one, and returns how long to wait before that.
    pub(super) fn doubt(&mut self, why: String) -> Pause {
        self.trouble = Some(why);
        self.list_again();
        Pause::For(self.schedule.failed(MAX_BACKOFF, Duration::ZERO).max(CONFIRMATION_DELAY))
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
}
