//! Requests to the server.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};
use weir_base::percent;
pub use weir_http::Method;
use weir_http::{Limit, Request, Trust};

use crate::error::Error;

/// A response longer than this is refused. 10,000 volumes on one page are some 10 MB.
const ANSWER_LIMIT: u64 = 256 << 20;

/// Time from a request to the head of its response.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Waits for an operation are at most this long each; they begin with a twentieth of it.
const POLL: Duration = Duration::from_secs(1);

/// A server. A copy shares its connections.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    /// Creates a client of `server` (`http://` or `https://`), with a bearer token if given. The
    /// certificates of `ca_cert` (PEM), if given, are in place of the public ones.
    ///
    /// # Errors
    /// An address that is not one, certificates that cannot be read.
    pub fn new(server: &str, token: Option<String>, ca_cert: Option<&str>) -> Result<Self, Error> {
        let base = server.trim_end_matches('/');
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            return Err(Error::Usage(format!(
                "the server is an http:// or https:// address; received: {server}"
            )));
        }
        let trust = Trust::of_file(ca_cert.map(Path::new));
        let trust = trust.map_err(|error| Error::Other(error.to_string()))?;
        let agent = weir_http::agent(trust, Limit::Head(ANSWER_TIME));
        Ok(Self {
            agent,
            base: base.to_owned(),
            token,
        })
    }

    /// Returns the address of a resource.
    pub fn uri(&self, name: &str) -> String {
        format!("{}/v1/{}", self.base, percent::escaped(name, percent::PATH))
    }

    /// Makes a request for a resource and returns the response's body.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub fn call(
        &self,
        method: Method,
        name: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let answer = self.send_request(method, &self.uri(name), query, body)?;
        read(answer, &self.base)
    }

    fn send_request(
        &self,
        method: Method,
        uri: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Response<Body>, Error> {
        let bearer = self.token.as_deref();
        let request = Request {
            method,
            uri,
            query,
            bearer,
            body,
        };
        let sent = weir_http::send(&self.agent, &request);
        sent.map_err(|error| self.unreachable(&error))
    }

    /// Words a failure of the connection, and its next step.
    fn unreachable(&self, error: &ureq::Error) -> Error {
        Error::Unreachable(format!(
            "cannot reach {}: {}",
            self.base,
            cause(error, &self.base)
        ))
    }

    /// Makes a request of ONTAP's interface, `path` being the part behind `/api/`: status and body,
    /// whatever they say.
    ///
    /// # Errors
    /// The server cannot be reached, or does not speak JSON.
    pub fn ontap(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<(u16, Value), Error> {
        let uri = format!(
            "{}/api/{}",
            self.base,
            percent::escaped(path, percent::PATH)
        );
        let mut answer = self.send_request(method, &uri, query, body)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_LIMIT);
        let text = body.read_to_string().map_err(|error| {
            Error::Unreachable(format!("cannot read {}'s answer: {error}", self.base))
        })?;
        match serde_json::from_str(&text) {
            Ok(body) => Ok((status, body)),
            Err(_) => Err(Error::Unreachable(format!(
                "{} does not speak ONTAP's interface (HTTP {status})",
                self.base
            ))),
        }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Returns the reply of `/health`, whose status says whether the server is healthy.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn health(&self) -> Result<Value, Error> {
        let mut answer =
            self.send_request(Method::Get, &format!("{}/health", self.base), &[], None)?;
        if !matches!(answer.status().as_u16(), 200 | 503) {
            return read(answer, &self.base);
        }
        let body = answer.body_mut().with_config().limit(ANSWER_LIMIT);
        let text = body
            .read_to_string()
            .map_err(|error| self.unreachable(&error))?;
        serde_json::from_str(&text)
            .map_err(|_| Error::Unreachable(format!("{} is no server of Weir's API", self.base)))
    }

    /// Returns the body of a path that is not JSON, such as `/metrics`.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub fn text(&self, path: &str) -> Result<String, Error> {
        let unreachable = |error: ureq::Error| self.unreachable(&error);
        let uri = format!("{}{path}", self.base);
        let mut answer = self.send_request(Method::Get, &uri, &[], None)?;
        if !answer.status().is_success() {
            return read(answer, &self.base).map(|_| String::new());
        }
        let body = answer.body_mut().with_config().limit(ANSWER_LIMIT);
        body.read_to_string().map_err(unreachable)
    }

    /// Waits for an operation, calling `between` before every wait with the time of the waits so
    /// far, and returns it done.
    ///
    /// # Errors
    /// As [`Client::call`]; the operation's own error stays in it.
    pub fn wait(
        &self,
        operation: Value,
        mut between: impl FnMut(Duration),
    ) -> Result<Value, Error> {
        let mut operation = operation;
        let mut pause = POLL / 20;
        let mut waited = Duration::ZERO;
        loop {
            if operation.get("done").and_then(Value::as_bool) == Some(true) {
                return Ok(operation);
            }
            let Some(name) = operation.get("name").and_then(Value::as_str) else {
                return Err(Error::Unreachable(
                    "the answer is not an operation".to_owned(),
                ));
            };
            let name = name.to_owned();
            between(waited);
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 3 / 2).min(POLL);
            operation = self.call(Method::Get, &name, &[], None)?;
        }
    }
}

/// Returns why a server cannot be reached, and what the user can do about it.
fn cause(error: &ureq::Error, base: &str) -> String {
    let host = || {
        let at = base.split_once("://").map_or(base, |(_, at)| at);
        at.rsplit_once(':').map_or(at, |(host, _)| host)
    };
    match error {
        ureq::Error::Io(io) => {
            let inner = io.get_ref();
            let tls = inner.and_then(|e| e.downcast_ref::<rustls::Error>());
            match (tls, io.kind()) {
                (Some(tls), _) => distrust(tls, host(), base),
                (None, ErrorKind::ConnectionRefused) => format!(
                    "connection refused (start the server with `weir serve`, or name another \
                     one: {NAME_IT})"
                ),
                (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                    let other = match base.strip_prefix("https://") {
                        Some(at) => format!("use http://{at} if it serves without TLS"),
                        None => "use https:// if it serves over TLS".to_owned(),
                    };
                    format!("the server closed the connection ({other}, or retry)")
                }
                (None, _) => format!("{io} (check the address: {NAME_IT})"),
            }
        }
        ureq::Error::Protocol(_) if base.starts_with("http://") => format!(
            "the reply is not HTTP; the port may be a TLS port (use https://{}, with --ca-cert \
             for a generated certificate)",
            base.trim_start_matches("http://")
        ),
        ureq::Error::Protocol(_) => "the reply is not HTTP (check the port)".to_owned(),
        ureq::Error::HostNotFound => format!("host not found: {} ({NAME_IT})", host()),
        ureq::Error::Timeout(_) => {
            format!("no answer in time (check that the server runs, and the address: {NAME_IT})")
        }
        other => other.to_string(),
    }
}

/// Names the settings that choose the server.
const NAME_IT: &str = "--server URL or WEIR_SERVER";

/// Returns why TLS with a server failed, and what the user can do about it.
fn distrust(error: &rustls::Error, host: &str, base: &str) -> String {
    use rustls::CertificateError as C;
    match error {
        rustls::Error::InvalidCertificate(C::UnknownIssuer) => {
            "its certificate is not trusted (pass the certificate that signed it with --ca-cert \
             FILE or WEIR_CA_CERT; a generated one is api-cert.pem in the server's data folder)"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(
            C::NotValidForName | C::NotValidForNameContext { .. },
        ) => {
            format!(
                "its certificate is not valid for {host} (name the server as its certificate \
                 does, or serve with --api-tls-san {host})"
            )
        }
        rustls::Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "its certificate has expired (renew it on the server)".to_owned()
        }
        rustls::Error::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "its certificate is not valid yet (check the clocks of both machines)".to_owned()
        }
        rustls::Error::InvalidMessage(_) => format!(
            "the server does not speak TLS there (use http://{})",
            base.trim_start_matches("https://")
        ),
        other => format!("TLS failed: {other}"),
    }
}

fn read(mut answer: Response<Body>, base: &str) -> Result<Value, Error> {
    let status = answer.status().as_u16();
    let text = answer
        .body_mut()
        .with_config()
        .limit(ANSWER_LIMIT)
        .read_to_string()
        .map_err(|error| Error::Unreachable(format!("cannot read {base}'s answer: {error}")))?;
    let body: Option<Value> = match text.trim() {
        "" => Some(Value::Null),
        text => serde_json::from_str(text).ok(),
    };
    if (200..300).contains(&status) {
        return body.ok_or_else(|| {
            Error::Unreachable(format!("{base} answered with something that is not JSON"))
        });
    }
    match body.as_ref().and_then(|b| b.get("error")) {
        Some(error) if error.is_object() => Err(Error::from_body(error, Some(status))),
        _ => Err(Error::Api {
            status: format!("HTTP {status}"),
            message: text.chars().take(200).collect(),
            details: Vec::new(),
        }),
    }
}
