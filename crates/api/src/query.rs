//! The query part of a request's target.

use crate::error::{ApiError, ApiResult};
use crate::json::{EnumsAs, abbreviate};
use crate::words::{LANGUAGE, Language};
use axum::http::HeaderMap;
use weir_base::percent;

/// Parameters that every method of the public APIs takes
/// (<https://cloud.google.com/apis/docs/system-parameters>). Except for `alt` they ask for nothing
/// that changes a response here.
const SYSTEM: &[&str] = &[
    "alt",
    "$alt",
    "access_token",
    "callback",
    "$callback",
    "fields",
    "$fields",
    "key",
    "$key",
    "oauth_token",
    "prettyPrint",
    "$prettyPrint",
    "quotaUser",
    "$quotaUser",
    "uploadType",
    "upload_protocol",
    "$.xgafv",
    "$xgafv",
    "$outputDefaults",
    "$unique",
    "$userProject",
    "userProject",
];

/// The parameters, in their order.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes the text after the question mark apart.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: an escape that is none, or what comes out of it is not UTF-8.
    pub fn parse(text: &str) -> ApiResult<Query> {
        let mut out = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
            let both = plain(k).zip(plain(v));
            out.push(both.ok_or_else(|| {
                ApiError::field(abbreviate(k), "Invalid escape in the query of the request")
            })?);
        }
        Ok(Query(out))
    }

    /// Returns the last value of a parameter, by its name in lowerCamelCase or snake_case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(k, _)| k == name || snake_of(k) == name)
            .map(|(_, v)| v.as_str())
    }

    /// Returns a parameter that is true or false, in any case: gcloud says `True`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: another value.
    pub fn flag(&self, name: &str) -> ApiResult<bool> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => Err(ApiError::field(
                name,
                format!(
                    "Invalid value at '{name}' (TYPE_BOOL), \"{}\"",
                    abbreviate(other)
                ),
            )),
        }
    }

    /// Returns the language of sentences that the request asks for: by its parameter, else by
    /// `Accept-Language` (RFC 9110 §12.5.4), else English.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the parameter is neither `en` nor `ja`.
    pub fn language(&self, headers: &HeaderMap) -> ApiResult<Language> {
        match self.get(LANGUAGE) {
            Some("en") => Ok(Language::English),
            Some("ja") => Ok(Language::Japanese),
            Some(other) => Err(ApiError::field(
                LANGUAGE,
                format!("Invalid '{LANGUAGE}' \"{}\": en or ja", abbreviate(other)),
            )),
            None => Ok(Language::accepted(headers)),
        }
    }

    /// Returns all of them, in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the form of enums in the response.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: another format than JSON.
    pub fn enums(&self) -> ApiResult<EnumsAs> {
        let alt = self
            .get("$alt")
            .or_else(|| self.get("alt"))
            .unwrap_or("json");
        match alt {
            "json" => Ok(EnumsAs::Names),
            "json;enum-encoding=int" => Ok(EnumsAs::Numbers),
            other => Err(ApiError::field(
                "alt",
                format!(
                    "Invalid value at 'alt', \"{}\": json is spoken here",
                    abbreviate(other)
                ),
            )),
        }
    }

    /// Refuses what is neither a parameter of the method nor one that every method takes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the first.
    pub fn only(&self, known: &[&str]) -> ApiResult<()> {
        let unknown = self.0.iter().find(|(k, _)| {
            !SYSTEM.contains(&k.as_str()) && !known.iter().any(|n| n == k || snake_of(k) == *n)
        });
        match unknown {
            None => Ok(()),
            Some((k, _)) => {
                let k = abbreviate(k);
                Err(ApiError::field(
                    k.clone(),
                    format!(
                        "Invalid JSON payload received. Unknown name \"{k}\": Cannot bind query parameter. Field '{k}' could not be found in request message."
                    ),
                ))
            }
        }
    }
}

/// Turns `page_size` into `pageSize`: both are accepted.
fn snake_of(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut up = false;
    for c in name.chars() {
        match c {
            '_' => up = true,
            c if up => {
                out.push(c.to_ascii_uppercase());
                up = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// Undoes the encoding of a name or value, in which `+` is a blank; `None` if it is broken.
fn plain(text: &str) -> Option<String> {
    percent::unescape(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_chooses_the_language_before_the_header() {
        let of = |query: &str, accepted: &str| {
            let mut headers = HeaderMap::new();
            let accepted = accepted.parse().unwrap();
            headers.insert(axum::http::header::ACCEPT_LANGUAGE, accepted);
            Query::parse(query).unwrap().language(&headers)
        };
        assert_eq!(of("language=en", "ja").unwrap(), Language::English);
        assert_eq!(of("", "ja").unwrap(), Language::Japanese);
        assert_eq!(of("language=fr", "ja").unwrap_err().code(), 400);
    }

    #[test]
    fn parameters_as_clients_send_them() {
        let q = Query::parse(
            "%24alt=json%3Benum-encoding%3Dint&force=True&page_size=5&filter=a%3D1+AND+b&x=1&x=2",
        )
        .unwrap();
        assert_eq!(q.enums().unwrap(), EnumsAs::Numbers);
        assert!(q.flag("force").unwrap());
        assert_eq!(q.get("pageSize"), Some("5"));
        assert_eq!(q.get("filter"), Some("a=1 AND b"));
        assert_eq!(q.get("x"), Some("2"));
        assert!(q.only(&["force", "pageSize", "filter", "x"]).is_ok());
        let e = q.only(&["force", "pageSize", "filter"]).unwrap_err();
        assert_eq!((e.code(), e.violations[0].field.as_str()), (400, "x"));
    }

    #[test]
    fn what_is_broken_is_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "%ff=1"] {
            assert!(Query::parse(text).is_err(), "{text}");
        }
        assert!(Query::parse("alt=media").unwrap().enums().is_err());
        assert!(Query::parse("force=maybe").unwrap().flag("force").is_err());
    }
}
