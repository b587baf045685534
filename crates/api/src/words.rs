//! Sentences for people, in the languages of the console.

use crate::error::{ApiError, ApiResult};
use crate::json::abbreviate;
use crate::query::Query;
use axum::http::{HeaderMap, header};

/// Parameter that names the language of sentences in a response.
pub const LANGUAGE: &str = "language";

/// A language of sentences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Japanese.
    Japanese,
}

impl Language {
    /// Returns the language that a request asks for: by its parameter, else by `Accept-Language`
    /// (RFC 9110 §12.5.4), else English.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the parameter is neither `en` nor `ja`.
    pub fn of(query: &Query, headers: &HeaderMap) -> ApiResult<Language> {
        match query.get(LANGUAGE) {
            Some("en") => Ok(Language::English),
            Some("ja") => Ok(Language::Japanese),
            Some(other) => Err(ApiError::field(
                LANGUAGE,
                format!("Invalid '{LANGUAGE}' \"{}\": en or ja", abbreviate(other)),
            )),
            None => {
                let accepted = headers.get(header::ACCEPT_LANGUAGE);
                let accepted = accepted.and_then(|value| value.to_str().ok());
                Ok(accepted.map_or(Language::English, accept))
            }
        }
    }
}

/// Returns the language with the greatest weight in an `Accept-Language` header; of equal ones the
/// first. What cannot be read counts for nothing.
fn accept(header: &str) -> Language {
    let mut best = (0.0, Language::English);
    for range in header.split(',') {
        let mut parts = range.split(';');
        let tag = parts.next().unwrap_or_default().trim();
        let weight = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok());
        let weight = weight.unwrap_or(1.0);
        let primary = tag.split('-').next().unwrap_or_default();
        let language = match primary.to_ascii_lowercase().as_str() {
            "en" | "*" => Language::English,
            "ja" => Language::Japanese,
            _ => continue,
        };
        if weight > best.0 {
            best = (weight, language);
        }
    }
    best.1
}

/// A text in each language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    english: String,
    japanese: String,
}

impl Words {
    /// Returns a text in both languages.
    pub fn new(english: impl Into<String>, japanese: impl Into<String>) -> Words {
        Words {
            english: english.into(),
            japanese: japanese.into(),
        }
    }

    /// Returns the text in a language.
    pub fn of(&self, language: Language) -> &str {
        match language {
            Language::English => &self.english,
            Language::Japanese => &self.japanese,
        }
    }
}

/// A text that is the same in all languages, such as a cause that another program has given.
impl From<&str> for Words {
    fn from(text: &str) -> Words {
        Words::new(text, text)
    }
}

impl From<String> for Words {
    fn from(text: String) -> Words {
        Words::new(text.clone(), text)
    }
}

/// Tests and logs read the English text.
impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.english)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_and_the_parameter_choose_the_language() {
        for (header, expected) in [
            ("", Language::English),
            ("ja", Language::Japanese),
            ("ja-JP,ja;q=0.9,en;q=0.8", Language::Japanese),
            ("en-GB, ja;q=0.5", Language::English),
            ("fr, ja;q=0.2, en;q=0.1", Language::Japanese),
            ("ja;q=0", Language::English),
            ("ja;q=x, \u{e9};;;=,", Language::Japanese),
        ] {
            assert_eq!(accept(header), expected, "{header}");
        }
        let of = |query: &str, header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, header.parse().unwrap());
            Language::of(&Query::parse(query).unwrap(), &headers)
        };
        assert_eq!(of("language=en", "ja").unwrap(), Language::English);
        assert_eq!(of("", "ja").unwrap(), Language::Japanese);
        assert_eq!(of("language=fr", "ja").unwrap_err().code(), 400);
    }
}
