//! Polls of operators: of their ledger, or of their counters if they have none.

use super::Shared;
use crate::source::counters::{Counters, METRICS_PATH};
use crate::source::ledger::{OVERLAP_SECONDS, RECONCILES_PATH, Reader, Reconciles, STATE_PATH, State, cache_samples};
use crate::store::Sample;
use bytes::Bytes;
use flyball::Task;
use flyball::proxy::Proxies;
use flyball::web::{Client, Trust, is_confidential};
use flyball_core::time::{Timestamp, rfc3339};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};
use tokio::time::{sleep, timeout};

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// Timeout of a poll.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest response of an operator.
const MAX_LEDGER_BYTES: usize = 32 << 20;
/// Longest interval that one poll covers.
const MAX_POLL_SECONDS: i64 = 3600;

/// The bearer token for operators whose metrics are protected.
#[derive(Clone, PartialEq, Eq)]
pub enum OperatorToken {
    /// The token itself.
    Value(String),
    /// A file, which is read before each poll: tokens of service accounts are replaced before they expire.
    File(PathBuf),
}

impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl OperatorToken {
    fn bearer(&self) -> Result<HeaderValue, BoxError> {
        let token = match self {
            Self::Value(token) => token.clone(),
            Self::File(path) => fs::read_to_string(path).map_err(|error| {
                format!("cannot read the token of --operator-token-file {}: {error}", path.display())
            })?,
        };
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| "the token for operators has invalid characters")?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }
}

/// Polls an operator.
pub(super) fn operator(shared: Arc<Shared>, address: &str, interval: Duration) -> Task {
    let settings = &shared.settings;
    let mut poller = Poller::new(address, settings.operator_token.clone(), settings.insecure_operator_token);
    Task::new(format!("poll of operator {}", poller.name), move |cx| async move {
        let client = client(shared.settings.operator_authority.as_ref())?;
        let store = shared.store()?;
        let (mut last, mut is_available) = (cx.now().as_second() - 1, true);
        // What ended before is only remembered: a metering operator that ran before this one has counted it.
        let (mut is_first, mut wait) = (true, Duration::ZERO);
        loop {
            tokio::select! { biased; () = cx.stopped() => return Ok(()), () = sleep(wait) => {} }
            wait = interval;
            let now = cx.now().as_second();
            if now <= last {
                continue;
            }
            let samples = poller.poll(&client, last.max(now - MAX_POLL_SECONDS), now).await;
            let stored = samples.and_then(|samples| {
                if !std::mem::take(&mut is_first) {
                    store.import(&samples)?;
                }
                Ok(())
            });
            match stored {
                Ok(()) => (last, is_available) = (now, true),
                Err(error) if is_available => {
                    tracing::warn!(error = &*error, operator = poller.name, "cannot meter an operator");
                    is_available = false;
                }
                Err(_) => {}
            }
        }
    })
}

/// Creates the client, which trusts the CA bundle of a file, or the trust store of the machine.
fn client(authority: Option<&PathBuf>) -> Result<Client, BoxError> {
    let Some(path) = authority else { return Client::new(Trust::System, Proxies::from_env()) };
    let failed = |error: BoxError| format!("the CA bundle of --operator-ca {}: {error}", path.display());
    let bundle = fs::read(path).map_err(|error| failed(error.into()))?;
    Client::new(Trust::Bundle(&bundle), Proxies::from_env()).map_err(|error| failed(error).into())
}

/// Polls of one operator by a program that is not the metering operator.
pub struct OperatorPolls {
    client: Client,
    poller: Poller,
    last: Option<i64>,
}

impl OperatorPolls {
    /// Prepares polls of an address such as `NAME=http://127.0.0.1:8080`, with a token that is not sent where others
    /// can read it, unless that is permitted, and with the CA bundle of a file.
    ///
    /// # Errors
    ///
    /// If the CA bundle cannot be read.
    pub fn new(
        address: &str,
        token: Option<OperatorToken>,
        insecure_token: bool,
        authority: Option<&PathBuf>,
    ) -> Result<Self, BoxError> {
        Ok(Self { client: client(authority)?, poller: Poller::new(address, token, insecure_token), last: None })
    }

    /// Returns the name of the operator, or its address if it has none.
    pub fn name(&self) -> &str {
        &self.poller.name
    }

    /// Returns the work of the operator since the previous poll, which is none for the first poll.
    ///
    /// # Errors
    ///
    /// If the operator does not respond, or rejects the token. The next poll then covers the same time as well.
    pub async fn poll(&mut self, now: i64) -> Result<Vec<Sample>, BoxError> {
        let since = self.last.unwrap_or(now - 1).max(now - MAX_POLL_SECONDS);
        if self.last.is_some() && now <= since {
            return Ok(Vec::new());
        }
        let samples = self.poller.poll(&self.client, since, now).await?;
        Ok(if self.last.replace(now).is_some() { samples } else { Vec::new() })
    }
}

impl fmt::Debug for OperatorPolls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorPolls").field("name", &self.poller.name).finish_non_exhaustive()
    }
}

/// The state of polls of one operator.
struct Poller {
    name: String,
    url: String,
    token: Option<OperatorToken>,
    /// Permits to send the token where others can read it.
    insecure_token: bool,
    reader: Reader,
    counters: Counters,
}

impl Poller {
    fn new(address: &str, token: Option<OperatorToken>, insecure_token: bool) -> Self {
        let (name, url) = address.split_once('=').unwrap_or(("", address));
        Self {
            name: if name.is_empty() { url.to_owned() } else { name.to_owned() },
            url: url.trim_end_matches('/').to_owned(),
            token,
            insecure_token,
            reader: Reader::default(),
            counters: Counters::default(),
        }
    }

    async fn poll(&mut self, client: &Client, since: i64, now: i64) -> Result<Vec<Sample>, BoxError> {
        let from = Timestamp::from_second(since - OVERLAP_SECONDS).map_or_else(|_| String::new(), rfc3339);
        let reconciles = self.get(client, &format!("{RECONCILES_PATH}?limit=1000&since={from}")).await?;
        let Some(page) = reconciles else {
            let text = self.get(client, METRICS_PATH).await?.ok_or("it has neither ledger nor metrics")?;
            return Ok(self.counters.samples(&self.name, &String::from_utf8_lossy(&text), since, now));
        };
        let page: Reconciles = serde_json::from_slice(&page)?;
        let state = self.get(client, STATE_PATH).await?.ok_or("it has no state")?;
        let state: State = serde_json::from_slice(&state)?;
        if page.omitted > 0 {
            let omitted = page.omitted;
            tracing::warn!(operator = self.name, omitted, "more reconciles than were read: reduce --poll-interval");
        }
        let mut samples = self.reader.samples(&page, since, now);
        samples.extend(cache_samples(&state, since, now));
        Ok(samples)
    }

    /// Returns the body of a page, none if there is no such page.
    async fn get(&self, client: &Client, path: &str) -> Result<Option<Bytes>, BoxError> {
        let mut request = Request::get(format!("{}{path}", self.url)).body(Bytes::new())?;
        let may_send = self.insecure_token || is_confidential(request.uri());
        if let Some(token) = self.token.as_ref().filter(|_| may_send) {
            request.headers_mut().insert(AUTHORIZATION, token.bearer()?);
        }
        let response = timeout(TIMEOUT, client.fetch(request, MAX_LEDGER_BYTES)).await??;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(response.into_body())),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let needed = "it requires a token that may get /debug/flyball and /metrics";
                Err(match self.token {
                    Some(_) if !may_send => format!(
                        "{needed}, which is not sent, since others can read http: use https and --operator-ca, or \
                         permit it: --insecure-operator-token"
                    ),
                    Some(_) => format!("{needed}, and rejects this one with status {}", status.as_u16()),
                    None => format!("{needed}: pass --operator-token-file FILE, or set FLYBALL_OPERATOR_TOKEN"),
                }
                .into())
            }
            status => Err(format!("the operator responds with status {status}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers requests with this token, and returns the address.
    async fn protected(token: Arc<Mutex<String>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut head, mut part) = (String::new(), [0; 4096]);
                while !head.contains("\r\n\r\n") {
                    let read = stream.read(&mut part).await.unwrap();
                    head.push_str(std::str::from_utf8(&part[..read]).unwrap());
                }
                let is_allowed =
                    head.to_ascii_lowercase().contains(&format!("authorization: bearer {}\r\n", token.lock()));
                let reconcile = r#"{"id":"1","object":{"kind":"Site","name":"a"},"took":0.5,"outcome":"success"}"#;
                let body = format!(r#"{{"operator":"op","reconciles":[{reconcile}]}}"#);
                let status = if is_allowed { "200 OK" } else { "401 Unauthorized" };
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn protected_operators_receive_the_token_of_the_file() {
        let expected = Arc::new(Mutex::new("first".to_owned()));
        let url = protected(expected.clone()).await;
        let (client, file) = (client(None).unwrap(), std::env::temp_dir().join(format!("poll-{}", std::process::id())));
        fs::write(&file, "first\n").unwrap();
        let (reader, counters) = (Reader::default(), Counters::default());
        let mut poller = Poller { name: "op".into(), url, token: None, insecure_token: false, reader, counters };
        let refused = poller.poll(&client, 0, 60).await.unwrap_err().to_string();
        assert!(refused.contains("--operator-token-file FILE, or set FLYBALL_OPERATOR_TOKEN"), "{refused}");
        poller.token = Some(OperatorToken::File(file.clone()));
        assert_eq!(poller.poll(&client, 0, 60).await.unwrap().len(), 6);
        // The first poll of a watch learns what was counted before.
        let address = format!("op={}", poller.url);
        let mut polls = OperatorPolls::new(&address, poller.token.clone(), false, None).unwrap();
        assert_eq!((polls.poll(100).await.unwrap(), polls.name()), (Vec::new(), "op"));
        assert!(polls.poll(160).await.unwrap().iter().all(|sample| (sample.since, sample.until) == (100, 160)));
        // The token is replaced.
        "second".clone_into(&mut expected.lock());
        let refused = poller.poll(&client, 60, 120).await.unwrap_err().to_string();
        assert!(refused.contains("rejects this one with status 401"), "{refused}");
        fs::write(&file, "second").unwrap();
        assert!(poller.poll(&client, 60, 120).await.is_ok());
        fs::remove_file(&file).unwrap();
        let missing = poller.poll(&client, 120, 180).await.unwrap_err().to_string();
        assert!(missing.contains("cannot read the token of --operator-token-file"), "{missing}");
        assert!(!format!("{:?}", OperatorToken::Value("secret".into())).contains("secret"));
    }

    #[tokio::test]
    async fn token_is_not_sent_over_http_to_other_machines() {
        // Not an address of loopback, though it leads to this machine.
        let url = protected(Arc::new(Mutex::new("t".to_owned()))).await.replace("127.0.0.1", "0.0.0.0");
        let (token, reader, counters) = (OperatorToken::Value("t".into()), Reader::default(), Counters::default());
        let mut poller = Poller { name: "op".into(), url, token: Some(token), insecure_token: false, reader, counters };
        let client = client(None).unwrap();
        let withheld = poller.poll(&client, 0, 60).await.unwrap_err().to_string();
        assert!(withheld.contains("others can read http") && withheld.contains("--operator-ca"), "{withheld}");
        poller.insecure_token = true;
        assert!(poller.poll(&client, 0, 60).await.is_ok());
    }
}
