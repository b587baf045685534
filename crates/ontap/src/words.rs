//! A line as words: blanks part, quotation marks hold together, a comma at a word's end goes on.

/// Returns the words of a line; `Err` names what is wrong.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("Unbalanced quotes in command.".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_together() {
        assert_eq!(
            split(r#" a  "b c" d'e f'g "" "#).unwrap(),
            ["a", "b c", "de fg", ""]
        );
        assert!(split("\"a").is_err());
        assert_eq!(split("").unwrap(), Vec::<String>::new());
    }
}
