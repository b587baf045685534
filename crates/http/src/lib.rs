//! HTTP client of `weir`, `weir-csi` and backups: whom to trust, how long to wait, and requests of
//! JSON.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder};

/// Time for a connection to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// Certificates by which a server is known.
pub enum Trust {
    /// Those of the public authorities.
    Public,
    /// These only.
    Only(Vec<Certificate<'static>>),
}

impl Trust {
    /// Reads certificates from a PEM file; without one, the public ones are trusted.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate (`InvalidData`).
    pub fn of_file(path: Option<&Path>) -> io::Result<Trust> {
        let Some(path) = path else {
            return Ok(Trust::Public);
        };
        let named = |e: io::Error| {
            let text = format!("cannot read {}: {e}", path.display());
            io::Error::new(e.kind(), text)
        };
        let pem = std::fs::read(path).map_err(named)?;
        let items = ureq::tls::parse_pem(&pem);
        let found: Vec<_> = items
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if found.is_empty() {
            let text = format!("{} holds no PEM certificate", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Trust::Only(found))
    }

    /// Trusts these certificates (DER); without any, the public ones.
    pub fn of_der(all: &[Vec<u8>]) -> Trust {
        match all {
            [] => Trust::Public,
            all => {
                let own = |der: &Vec<u8>| Certificate::from_der(der).to_owned();
                Trust::Only(all.iter().map(own).collect())
            }
        }
    }
}

/// Time limit of a request, besides the ten seconds for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// From the request to the head of the response; a body may take longer.
    Head(Duration),
    /// From the first byte to the last.
    Whole(Duration),
}

/// Creates a client, which keeps connections. It follows no redirect, and returns a response of
/// any status.
pub fn agent(trust: Trust, limit: Limit) -> Agent {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    if let Trust::Only(certificates) = trust {
        tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
    }
    let (head, whole) = match limit {
        Limit::Head(time) => (Some(time), None),
        Limit::Whole(time) => (None, Some(time)),
    };
    Agent::config_builder()
        .http_status_as_error(false)
        .tls_config(tls.build())
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(head)
        .timeout_global(whole)
        .max_redirects(0)
        .build()
        .into()
}

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads; nothing is changed.
    Get,
    /// Creates a resource, or has a verb of its own.
    Post,
    /// Changes fields of a resource.
    Patch,
    /// Deletes a resource or a record.
    Delete,
}

/// A request of JSON.
pub struct Request<'a, V> {
    /// Its method; GET and DELETE have no body.
    pub method: Method,
    /// The address, whose path is encoded.
    pub uri: &'a str,
    /// Names and values of the query.
    pub query: &'a [(&'a str, V)],
    /// Token of the caller.
    pub bearer: Option<&'a str>,
    /// The body of POST and PATCH.
    pub body: Option<&'a Value>,
}

/// Makes a request. Blocks until the head of the response is there.
///
/// # Errors
/// The server cannot be reached, or does not speak HTTP.
pub fn send<V: AsRef<str>>(
    agent: &Agent,
    request: &Request<'_, V>,
) -> Result<Response<Body>, ureq::Error> {
    let uri = request.uri;
    match request.method {
        Method::Get => with_head(agent.get(uri), request).call(),
        Method::Delete => with_head(agent.delete(uri), request).call(),
        Method::Post => with_body(with_head(agent.post(uri), request), request.body),
        Method::Patch => with_body(with_head(agent.patch(uri), request), request.body),
    }
}

fn with_head<B, V: AsRef<str>>(
    mut built: RequestBuilder<B>,
    request: &Request<'_, V>,
) -> RequestBuilder<B> {
    for (name, value) in request.query {
        built = built.query(name, value.as_ref());
    }
    match request.bearer {
        Some(token) => built.header("authorization", format!("Bearer {token}")),
        None => built,
    }
}

fn with_body(
    built: RequestBuilder<ureq::typestate::WithBody>,
    body: Option<&Value>,
) -> Result<Response<Body>, ureq::Error> {
    match body {
        Some(body) => built
            .header("content-type", "application/json")
            .send(body.to_string()),
        None => built.send_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused_and_named() {
        let said = |path: &str| match Trust::of_file(Some(Path::new(path))) {
            Err(error) => error.to_string(),
            Ok(_) => String::new(),
        };
        assert_eq!(said("/dev/null"), "/dev/null holds no PEM certificate");
        assert!(said("/nowhere.pem").starts_with("cannot read /nowhere.pem: "));
        assert!(matches!(Trust::of_file(None), Ok(Trust::Public)));
        assert!(matches!(Trust::of_der(&[]), Trust::Public));
    }
}
