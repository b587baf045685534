//! A bucket of S3, or of a server that speaks its language.

use std::time::Duration;

use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket as Address, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;
use url::Url;
use weir_base::limits::backup as limits;
use weir_http::{Limit, Trust};

use crate::bucket::{Bucket, BucketError};

/// A signed request is valid for this long.
const SIGNED_FOR: Duration = Duration::from_secs(600);

/// Address of a bucket, and credentials.
#[derive(Clone)]
pub struct S3Settings {
    /// Address of the server, without the bucket's name.
    pub endpoint: Url,
    /// Name of the bucket.
    pub bucket: String,
    /// Region, which signatures contain.
    pub region: String,
    /// The bucket's name is in the path of addresses, not in the host's name.
    pub path_style: bool,
    /// Identifier of the access key.
    pub access_key: String,
    /// The secret of the access key.
    pub secret_key: String,
    /// Certificates (DER) by which to know the server; empty: the public ones.
    pub ca: Vec<Vec<u8>>,
}

/// A bucket of S3.
pub struct S3 {
    agent: Agent,
    address: Address,
    credentials: Credentials,
}

impl S3 {
    /// Uses a bucket. Nothing is asked yet.
    ///
    /// # Errors
    /// `Refused` if the address cannot be one of a bucket.
    pub fn new(settings: S3Settings) -> Result<S3, BucketError> {
        let style = match settings.path_style {
            true => UrlStyle::Path,
            false => UrlStyle::VirtualHost,
        };
        let refused = |e| BucketError::Refused(format!("{}: {e}", settings.endpoint));
        let address = Address::new(
            settings.endpoint.clone(),
            style,
            settings.bucket.clone(),
            settings.region.clone(),
        );
        let trust = Trust::of_der(&settings.ca);
        let agent = weir_http::agent(trust, Limit::Whole(limits::REQUEST_TIME));
        Ok(S3 {
            agent,
            address: address.map_err(refused)?,
            credentials: Credentials::new(settings.access_key, settings.secret_key),
        })
    }

    /// Reads a response's body, of at most `most` bytes.
    fn body(mut response: Response<ureq::Body>, most: u64) -> Result<Vec<u8>, BucketError> {
        let read = response.body_mut().with_config().limit(most).read_to_vec();
        read.map_err(|e| BucketError::Unavailable(e.to_string()))
    }

    fn page(&self, prefix: &str, token: Option<&str>) -> Result<String, BucketError> {
        let mut action = self.address.list_objects_v2(Some(&self.credentials));
        action.with_prefix(prefix);
        if let Some(token) = token {
            action.with_continuation_token(token);
        }
        let sent = self.agent.get(action.sign(SIGNED_FOR).as_str()).call();
        let response = answered(prefix, sent)?;
        let body = S3::body(response, limits::MAX_OBJECT)?;
        String::from_utf8(body).map_err(|e| BucketError::Refused(e.to_string()))
    }
}

/// Returns a response of success, or what another one or none means.
fn answered(
    name: &str,
    sent: Result<Response<ureq::Body>, ureq::Error>,
) -> Result<Response<ureq::Body>, BucketError> {
    let response = sent.map_err(|e| BucketError::Unavailable(e.to_string()))?;
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(response);
    }
    let text = S3::body(response, 1 << 16).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Err(refusal(name, status, &text))
}

/// Returns the error that a response of failure means: its status, and its document in XML.
pub(crate) fn refusal(name: &str, status: u16, text: &str) -> BucketError {
    let code = between(text, "<Code>", "</Code>").unwrap_or_default();
    let message = between(text, "<Message>", "</Message>").unwrap_or_default();
    let said = format!("{name}: HTTP {status} {code} {message}")
        .trim_end()
        .to_owned();
    match (status, code) {
        (_, "NoSuchBucket") => BucketError::Refused(said),
        (404, _) => BucketError::Missing(name.to_owned()),
        (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity") => {
            BucketError::Full(said)
        }
        (401 | 403, _) => BucketError::Denied(said),
        (408 | 425 | 429 | 500..=599, _) => BucketError::Unavailable(said),
        _ => BucketError::Refused(said),
    }
}

/// Returns the names on a page of a list of objects, and the token of the next page.
pub(crate) fn page_of_list(text: &str) -> Result<(Vec<String>, Option<String>), BucketError> {
    let refused = |e| BucketError::Refused(format!("a list of objects: {e}"));
    let page = ListObjectsV2::parse_response(text).map_err(refused)?;
    let names = page.contents.into_iter().map(|object| object.key);
    Ok((names.collect(), page.next_continuation_token))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(found, _)| found)
}

impl Bucket for S3 {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BucketError> {
        let action = self.address.put_object(Some(&self.credentials), name);
        let sent = self.agent.put(action.sign(SIGNED_FOR).as_str()).send(bytes);
        answered(name, sent).map(drop)
    }

    fn get(&self, name: &str, from: u64, length: u64) -> Result<Vec<u8>, BucketError> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let action = self.address.get_object(Some(&self.credentials), name);
        let last = from.saturating_add(length - 1);
        let request = self.agent.get(action.sign(SIGNED_FOR).as_str());
        let sent = request
            .header("range", format!("bytes={from}-{last}"))
            .call();
        let response = answered(name, sent)?;
        // A server that knows no ranges sends all.
        let whole = response.status().as_u16() == 200;
        let most = length.saturating_add(if whole { from } else { 0 });
        let mut bytes = S3::body(response, most.max(limits::MAX_OBJECT))?;
        if whole {
            bytes.drain(..bytes.len().min(usize::try_from(from).unwrap_or(usize::MAX)));
        }
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    fn size(&self, name: &str) -> Result<u64, BucketError> {
        let action = self.address.head_object(Some(&self.credentials), name);
        let response = answered(
            name,
            self.agent.head(action.sign(SIGNED_FOR).as_str()).call(),
        )?;
        let length = response.headers().get("content-length");
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        length.ok_or_else(|| BucketError::Refused(format!("{name}: no Content-Length")))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, BucketError> {
        let (mut names, mut token) = (Vec::new(), None);
        loop {
            let (more, next) = page_of_list(&self.page(prefix, token.as_deref())?)?;
            names.extend(more);
            if next.is_none() {
                return Ok(names);
            }
            if next == token {
                // The list would never end.
                let why = "a list of objects: one page names itself as the next".to_owned();
                return Err(BucketError::Refused(why));
            }
            token = next;
        }
    }

    fn delete(&self, name: &str) -> Result<(), BucketError> {
        let action = self.address.delete_object(Some(&self.credentials), name);
        let sent = self.agent.delete(action.sign(SIGNED_FOR).as_str()).call();
        match answered(name, sent) {
            Err(BucketError::Missing(_)) => Ok(()),
            done => done.map(drop),
        }
    }
}
