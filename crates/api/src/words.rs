//! Sentences for people, in the languages of the console.

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
    /// Returns the language that `Accept-Language` asks for, else English.
    pub fn accepted(headers: &HeaderMap) -> Language {
        let accepted = headers.get(header::ACCEPT_LANGUAGE);
        let accepted = accepted.and_then(|value| value.to_str().ok());
        accepted.map_or(Language::English, accept)
    }

    /// Returns the tag of BCP 47.
    pub fn tag(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
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
    pub fn text(&self, language: Language) -> &str {
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
    fn the_header_chooses_the_language() {
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
    }
}
