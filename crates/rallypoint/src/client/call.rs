//! One request from beginning to end: which endpoint, with what token, how often, for how long.

use std::future::Future;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::Client;
use super::auth::Token;
use super::endpoints::Connection;
use super::error::ClientError;
use super::retry::{self, Failure, Repeat, Step};
use crate::convert;

/// How often one call gets a new token. Each member that lost its tokens in a restart may ask for one.
const MAX_TOKENS: u32 = 4;

/// Longer than any call: time-outs beyond it are cut, so that adding one to a moment cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// With less time than this left, nothing more is tried.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(5);

/// How an attempt failed.
struct Failed {
    failure: Failure,
    status: Status,
    /// The token it was made with; none if it got no token.
    token: Option<Token>,
}

impl Client {
    /// Sends `message` until it is answered, as often as `repeat` allows, within the time-out.
    pub(super) async fn call<Q, A, S, F>(
        &self,
        request: &'static str,
        repeat: Repeat,
        message: Q,
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
            let answer_bound = if repeat == Repeat::Always { bound } else { deadline };
            let sent = self.attempt(&connection, bound, answer_bound, message.clone(), &send).await;
            let Failed { failure, status, token } = match sent {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            tracing::debug!(request, attempts, endpoint = %connection.name, ?failure, %status);
            let endpoint = connection.name.to_string();
            let step = retry::step(failure, repeat, attempts, endpoints.len());
            match step {
                Step::Again => {}
                Step::Elsewhere => endpoints.failed(&connection),
                Step::Authenticate if tokens < MAX_TOKENS && self.shared.auth.user().is_some() => {
                    tokens += 1;
                    if let Some(token) = &token {
                        self.shared.auth.discard(token);
                    }
                    if tokens == 1 {
                        continue;
                    }
                }
                Step::Authenticate | Step::GiveUp if failure != Failure::NotTrusted => {
                    return Err(self.refused(request, endpoint, token, status));
                }
                Step::Authenticate | Step::GiveUp => return gave_up(endpoint, attempts, status),
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
            // What an attempt of no time at all would say is not worth more than what this one said.
            if !in_time || Instant::now() + SHORTEST_ATTEMPT > deadline {
                return gave_up(endpoint, attempts, status);
            }
        }
    }

    /// One attempt: the token until `bound`, the answer until `answer_bound`.
    async fn attempt<Q, A, S, F>(
        &self,
        connection: &Connection,
        bound: Instant,
        answer_bound: Instant,
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
        self.shared.meter.sent(message.get_ref());
        let begun = Instant::now();
        let answer = timeout_at(answer_bound, send(connection.channel.clone(), message)).await;
        match answer.unwrap_or_else(|_| Err(no_answer(begun))) {
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

    /// Gets a token and puts what every request carries around `message`.
    async fn prepare<Q>(
        &self,
        connection: &Connection,
        bound: Instant,
        message: Q,
    ) -> Result<(Token, Request<Q>), Failed> {
        let begun = Instant::now();
        let token = timeout_at(bound, self.shared.auth.token(&connection.channel)).await;
        let token = token.unwrap_or_else(|_| Err(no_answer(begun))).map_err(|status| {
            // The request itself was not sent, whatever became of the one for the token.
            let failure = match retry::failure(&status) {
                Failure::Lost | Failure::TokenInvalid => Failure::NotServing,
                failure => failure,
            };
            Failed { failure, status, token: None }
        })?;
        let mut request = Request::new(message);
        // A member that is cut off from the rest says so at once, instead of letting us wait.
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
        token: Option<Token>,
        status: Status,
    ) -> ClientError {
        match (convert::store_error(&status), self.shared.auth.user()) {
            (Some(refusal), _) => ClientError::Store(refusal),
            (None, Some(user)) if token.is_none() => {
                ClientError::Authentication { endpoint, user: user.to_owned(), source: status }
            }
            _ => ClientError::Refused { request, endpoint, source: status },
        }
    }

    /// Opens a stream in both directions at the current endpoint, in one attempt.
    ///
    /// Requests must be waiting in `requests` already: a server may keep its first sign of life until
    /// it has something to answer.
    pub(super) async fn open<Q, A, S, F>(
        &self,
        request: &'static str,
        requests: mpsc::Receiver<Q>,
        bound: Instant,
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
        let begun = Instant::now();
        let answer = timeout_at(bound, send(connection.channel.clone(), message)).await;
        match answer.unwrap_or_else(|_| Err(no_answer(begun))) {
            Ok(response) => Ok(Stream {
                client: self.clone(),
                request,
                connection,
                token,
                responses: response.into_inner(),
            }),
            Err(status) => Err(self.end_of_stream(request, &connection, &token, status)),
        }
    }

    fn end_of_stream(
        &self,
        request: &'static str,
        connection: &Connection,
        token: &Token,
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

    fn stream_failed(&self, connection: &Connection, token: Option<&Token>, failure: Failure) {
        match (failure, token) {
            (Failure::TokenInvalid, Some(token)) => self.shared.auth.discard(token),
            (Failure::Busy | Failure::Refused, _) => {}
            _ => self.shared.endpoints.failed(connection),
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

    /// How long an attempt at a stream may take after so many that failed.
    pub(crate) fn stream_timeout(&self, failures: u32) -> Duration {
        self.attempt_timeout(failures)
    }
}

fn no_answer(begun: Instant) -> Status {
    Status::deadline_exceeded(format!("no answer within {:.1?}", begun.elapsed()))
}

/// What a caller sends on a stream, as the transport wants it.
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
    connection: Connection,
    token: Token,
    responses: Streaming<A>,
}

/// How a stream ended.
#[derive(Debug)]
pub(crate) struct StreamFailed {
    pub(crate) failure: Failure,
    pub(crate) status: Status,
    /// Set if another attempt would end the same way.
    pub(crate) error: Option<ClientError>,
}

impl<A: Message> Stream<A> {
    /// The next message. Cancel-safe: what has arrived in part stays in the stream.
    pub(super) async fn next(&mut self) -> Result<A, StreamFailed> {
        let status = match self.responses.message().await {
            Ok(Some(message)) => {
                self.client.shared.meter.received(&message);
                return Ok(message);
            }
            Ok(None) => Status::unavailable("the server closed the stream"),
            Err(status) => status,
        };
        Err(self.ended(status))
    }

    /// Gives up on the stream for what `status` says, and on its endpoint or its token if that is why.
    pub(super) fn ended(&self, status: Status) -> StreamFailed {
        self.client.end_of_stream(self.request, &self.connection, &self.token, status)
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.connection.name
    }
}
