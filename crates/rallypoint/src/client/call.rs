//! One call from beginning to end: its endpoint, its token, its retries and its time-out.

use std::future::Future;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::Client;
use super::auth::AuthToken;
use super::endpoints::EndpointConnection;
use super::error::ClientError;
use super::line::PATIENCE;
use super::retry::{self, Failure, Repeat, Step};
use crate::convert;
use crate::log_target::CLIENT;

/// Limit of new tokens for one call. Each member that lost its tokens in a restart may require one.
const MAX_TOKENS: u32 = 4;

/// The longest time-out; a longer one is cut to it, so that a deadline cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The remaining time below which no further attempt is made.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(5);

/// How an attempt failed.
struct Failed {
    failure: Failure,
    status: Status,
    /// The token of the attempt; `None` if no token was obtained.
    token: Option<AuthToken>,
}

impl Client {
    /// Sends `message` until it is answered, with the retries that `repeat` allows, within the time-out.
    ///
    /// Sets `in_doubt` if one of the attempts before the last may have been executed.
    pub(super) async fn call<Q, A, S, F>(
        &self,
        request: &'static str,
        repeat: Repeat,
        message: Q,
        in_doubt: &mut bool,
        send: S,
    ) -> Result<A, ClientError>
    where
        Q: Message + Clone,
        A: Message,
        S: Fn(Channel, Request<Q>) -> F,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let endpoints = &self.shared.endpoints;
        let begun = Instant::now();
        let deadline = begun + self.timeout.min(FOR_EVER);
        let mut attempts: u32 = 0;
        let mut tokens = 0;
        let gave_up = |endpoint, attempts, source| {
            let waited = begun.elapsed();
            Err(ClientError::Unavailable { request, endpoint, attempts, waited, source })
        };
        loop {
            let connection = endpoints.current();
            let bound = deadline.min(Instant::now() + self.attempt_timeout(attempts));
            attempts += 1;
            let sent =
                self.attempt(&connection, repeat, (bound, deadline), message.clone(), &send).await;
            let Failed { failure, status, token } = match sent {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            tracing::debug!(
                target: CLIENT,
                request, attempts, endpoint = %connection.name, ?failure, %status
            );
            *in_doubt |= failure == Failure::Lost;
            let endpoint = connection.name.to_string();
            let step = retry::step(failure, repeat, attempts, endpoints.len());
            match step {
                Step::Again => {}
                Step::Elsewhere => drop(endpoints.failed(&connection)),
                Step::Authenticate if tokens < MAX_TOKENS && self.shared.auth.user().is_some() => {
                    tokens += 1;
                    if let Some(token) = &token {
                        self.shared.auth.discard(token);
                    }
                    if tokens == 1 {
                        continue;
                    }
                }
                Step::Authenticate | Step::GiveUp
                    if failure == Failure::Refused || failure == Failure::TokenInvalid =>
                {
                    return Err(self.refused(request, endpoint, token, status));
                }
                Step::Authenticate | Step::GiveUp => {
                    // A later call gets a new connection.
                    endpoints.failed(&connection);
                    return gave_up(endpoint, attempts, status);
                }
                Step::OutcomeUnknown => {
                    endpoints.failed(&connection);
                    return Err(ClientError::OutcomeUnknown { request, endpoint, source: status });
                }
            }
            let delay = retry::delay(step, attempts, endpoints.len(), fastrand::f64());
            let in_time = Instant::now() + delay < deadline;
            if in_time {
                sleep(delay).await;
            }
            // The error of an attempt without any time would say less than the error of this one.
            if !in_time || Instant::now() + SHORTEST_ATTEMPT > deadline {
                return gave_up(endpoint, attempts, status);
            }
        }
    }

    /// One attempt, which ends at `bound`; the answer to a request that cannot be retried is awaited until `deadline`.
    async fn attempt<Q, A, S, F>(
        &self,
        connection: &EndpointConnection,
        repeat: Repeat,
        (bound, deadline): (Instant, Instant),
        message: Q,
        send: &S,
    ) -> Result<A, Failed>
    where
        Q: Message,
        A: Message,
        S: Fn(Channel, Request<Q>) -> F,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (token, message) = self.prepare(connection, bound, message).await?;
        let answer_bound = match repeat {
            Repeat::Always | Repeat::Never => bound,
            Repeat::IfNotExecuted => {
                let greeted = within(bound, self.greet(connection)).await;
                greeted.map_err(|status| not_sent(status, Some(token.clone())))?;
                deadline
            }
        };
        self.shared.meter.sent(message.get_ref());
        let answer = async {
            let answer = send(connection.channel.clone(), message).await;
            connection.line.hear_of(&answer);
            answer
        };
        match within(answer_bound, self.owed(connection, PATIENCE, answer)).await {
            Ok(response) => {
                let answer = response.into_inner();
                self.shared.meter.received(&answer);
                Ok(answer)
            }
            Err(status) => {
                Err(Failed { failure: retry::failure(&status), status, token: Some(token) })
            }
        }
    }

    /// Obtains a token and adds the metadata of every request to `message`.
    async fn prepare<Q>(
        &self,
        connection: &EndpointConnection,
        bound: Instant,
        message: Q,
    ) -> Result<(AuthToken, Request<Q>), Failed> {
        let token = self.owed(connection, PATIENCE, self.shared.auth.token(&connection.channel));
        let token = within(bound, token).await.map_err(|status| not_sent(status, None))?;
        let mut request = Request::new(message);
        // A member without a leader refuses the request at once, instead of letting it wait.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        token.add_to(request.metadata_mut());
        Ok((token, request))
    }

    fn attempt_timeout(&self, attempts: u32) -> Duration {
        self.shared.attempt_timeout.saturating_mul(1 << attempts.min(10)).min(FOR_EVER)
    }

    fn refused(
        &self,
        request: &'static str,
        endpoint: String,
        token: Option<AuthToken>,
        status: Status,
    ) -> ClientError {
        match (convert::kv_error(&status), self.shared.auth.user()) {
            (Some(refusal), _) => ClientError::Kv(refusal),
            (None, Some(user)) if token.is_none() => {
                ClientError::Authentication { endpoint, user: user.to_owned(), source: status }
            }
            _ => ClientError::Refused { request, endpoint, source: status },
        }
    }

    /// Opens a stream in both directions at the current endpoint, in one attempt.
    ///
    /// `requests` must hold a request already: a server may send nothing before it has a request to answer.
    pub(super) async fn open<Q, A, S, F>(
        &self,
        request: &'static str,
        requests: mpsc::Receiver<Q>,
        (bound, patience): (Instant, Duration),
        send: S,
    ) -> Result<Stream<A>, StreamFailed>
    where
        Q: Message + 'static,
        S: FnOnce(Channel, Request<RequestStream<Q>>) -> F,
        F: Future<Output = Result<Response<Streaming<A>>, Status>>,
    {
        let connection = self.shared.endpoints.current();
        let stream = RequestStream { requests, client: self.clone() };
        let prepared = self.prepare(&connection, bound, stream).await;
        let (token, message) = prepared.map_err(|failed| {
            let Failed { failure, status, .. } = failed;
            self.stream_failed(&connection, None, failure);
            let endpoint = connection.name.to_string();
            let fatal = failure == Failure::Refused;
            let error = fatal.then(|| self.refused(request, endpoint, None, status.clone()));
            StreamFailed { failure, status, error }
        })?;
        let answer = async {
            let answer = send(connection.channel.clone(), message).await;
            connection.line.hear_of(&answer);
            answer
        };
        match within(bound, self.owed(&connection, patience, answer)).await {
            Ok(response) => Ok(Stream {
                client: self.clone(),
                request,
                connection,
                token,
                patience,
                responses: response.into_inner(),
            }),
            Err(status) => Err(self.end_of_stream(request, &connection, &token, status)),
        }
    }

    fn end_of_stream(
        &self,
        request: &'static str,
        connection: &EndpointConnection,
        token: &AuthToken,
        status: Status,
    ) -> StreamFailed {
        let failure = match retry::failure(&status) {
            // Without credentials there is no other token to try.
            Failure::TokenInvalid if self.shared.auth.user().is_none() => Failure::Refused,
            failure => failure,
        };
        self.stream_failed(connection, Some(token), failure);
        let endpoint = connection.name.to_string();
        let error = (failure == Failure::Refused)
            .then(|| self.refused(request, endpoint, Some(token.clone()), status.clone()));
        StreamFailed { failure, status, error }
    }

    fn stream_failed(
        &self,
        connection: &EndpointConnection,
        token: Option<&AuthToken>,
        failure: Failure,
    ) {
        match (failure, token) {
            (Failure::TokenInvalid, Some(token)) => self.shared.auth.discard(token),
            (Failure::Busy | Failure::Refused, _) => {}
            _ => drop(self.shared.endpoints.failed(connection)),
        }
    }

    /// How long to wait before the `failures`-th new attempt at a stream.
    pub(crate) fn stream_delay(&self, failures: u32, failure: Failure) -> Duration {
        let step = match failure {
            Failure::Busy => Step::Again,
            _ => Step::Elsewhere,
        };
        retry::delay(step, failures, self.shared.endpoints.len(), fastrand::f64())
    }

    /// How long an attempt at a stream may take after `failures` failed ones.
    pub(crate) fn stream_timeout(&self, failures: u32) -> Duration {
        self.attempt_timeout(failures)
    }
}

/// The answer, if it arrives in time.
async fn within<T>(
    bound: Instant,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let begun = Instant::now();
    timeout_at(bound, answer).await.unwrap_or_else(|_| {
        let text = format!("no answer within {:.1?}", begun.elapsed());
        Err(Status::deadline_exceeded(text))
    })
}

/// The failure of an attempt before the request itself was sent, for example while a token was obtained.
fn not_sent(status: Status, token: Option<AuthToken>) -> Failed {
    let failure = match retry::failure(&status) {
        Failure::Lost | Failure::TokenInvalid => Failure::NotServing,
        failure => failure,
    };
    Failed { failure, status, token }
}

/// The requests that a caller sends on a stream, as the transport takes them.
pub(super) struct RequestStream<Q> {
    requests: mpsc::Receiver<Q>,
    client: Client,
}

impl<Q: Message> futures_util::Stream for RequestStream<Q> {
    type Item = Q;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Q>> {
        let next = self.requests.poll_recv(context);
        if let std::task::Poll::Ready(Some(message)) = &next {
            self.client.shared.meter.sent(message);
        }
        next
    }
}

/// The answering half of an open stream. Dropping it ends the stream.
pub(super) struct Stream<A> {
    client: Client,
    request: &'static str,
    connection: EndpointConnection,
    token: AuthToken,
    /// How long an answer is awaited before the connection is probed.
    patience: Duration,
    responses: Streaming<A>,
}

/// How a stream ended.
#[derive(Debug)]
pub(crate) struct StreamFailed {
    pub(crate) failure: Failure,
    pub(crate) status: Status,
    /// The error to return if another attempt would end the same way.
    pub(crate) error: Option<ClientError>,
}

impl<A: Message> Stream<A> {
    /// The next message, if there is one. Cancel-safe: what has arrived in part stays in the stream.
    pub(super) async fn next(&mut self) -> Result<A, StreamFailed> {
        let Self { connection, responses, .. } = self;
        let message = tokio::select! {
            biased;
            message = responses.message() => message,
            () = connection.line.lost() => Err(connection.gone()),
        };
        self.take(message)
    }

    /// The next message, which the server is expected to send: if it sends nothing at all, the connection counts as
    /// lost. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Result<A, StreamFailed> {
        let Self { client, connection, patience, responses, .. } = self;
        let message = client.owed(connection, *patience, responses.message()).await;
        self.take(message)
    }

    fn take(&self, message: Result<Option<A>, Status>) -> Result<A, StreamFailed> {
        match message {
            Ok(Some(message)) => {
                self.connection.line.hear();
                self.client.shared.meter.received(&message);
                Ok(message)
            }
            Ok(None) => Err(self.ended(Status::unavailable("the server closed the stream"))),
            Err(status) => Err(self.ended(status)),
        }
    }

    /// Abandons a stream whose server has not answered for `patience`. If the server has sent nothing else either, the
    /// connection counts as lost for all calls.
    pub(super) fn unanswered(&self, patience: Duration) -> StreamFailed {
        let EndpointConnection { name, line, .. } = &self.connection;
        if line.heard().is_none_or(|heard| heard.elapsed() >= patience) {
            self.client.shared.endpoints.lost(&self.connection);
        }
        let text = format!("no answer from {name} within {patience:.1?}");
        self.ended(Status::deadline_exceeded(text))
    }

    /// Abandons the stream because of `status`, and its endpoint or its token if that is the cause.
    pub(super) fn ended(&self, status: Status) -> StreamFailed {
        self.client.end_of_stream(self.request, &self.connection, &self.token, status)
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.connection.name
    }
}
