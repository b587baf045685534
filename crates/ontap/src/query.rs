//! Comparison of values with a query.
//!
//! ONTAP's operators: `a|b` either, `!a` not, `a..b` a range, `<a`, `>a`, `<=a`, `>=a`, and `*` for
//! any text, `"a"` exactly this. Numbers compare as numbers, with the suffixes of sizes; all else
//! as text.

/// Returns true if `value` matches a query, alternatives and negations included.
pub fn matches(query: &str, value: &str) -> bool {
    if let Some(rest) = query.strip_prefix('!') {
        return !matches(rest, value);
    }
    query.split('|').any(|one| single(one, value))
}

fn single(query: &str, value: &str) -> bool {
    // In quotes, nothing is an operator.
    if let Some(literal) = query.strip_prefix('"').and_then(|q| q.strip_suffix('"')) {
        return literal.eq_ignore_ascii_case(value);
    }
    for (prefix, accepted) in [
        ("<=", &[-1, 0][..]),
        (">=", &[1, 0]),
        ("<", &[-1]),
        (">", &[1]),
    ] {
        if let Some(bound) = query.strip_prefix(prefix) {
            return order(value, bound).is_some_and(|order| accepted.contains(&order));
        }
    }
    if let Some((low, high)) = query.split_once("..") {
        return order(value, low).is_some_and(|o| o >= 0)
            && order(value, high).is_some_and(|o| o <= 0);
    }
    like(query, value)
}

fn order(a: &str, b: &str) -> Option<i32> {
    let order = match (crate::value::number(a), crate::value::number(b)) {
        (Some(a), Some(b)) => a.partial_cmp(&b)?,
        (None, None) => a.cmp(b),
        // A dash or a word is neither above nor below a number.
        _ => return None,
    };
    Some(order as i32)
}

/// Returns true if the text matches the pattern, in which `*` is any text, none included. Letters
/// count whatever their case, as ONTAP's words do.
fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators() {
        for (query, value, expected) in [
            ("SVM:vol*", "SVM:vol_test", true),
            ("*dst", "SVM:vol_test_1_dst", true),
            ("*x*", "SVM:vol_test", false),
            ("a*a", "a", false),
            ("a|b", "b", true),
            ("!a|b", "b", false),
            ("!a", "c", true),
            (">1000", "8192", true),
            (">1000", "unlimited", false),
            ("4096..8192", "8192", true),
            ("4096..8191", "8192", false),
            (">=1MB", "1024KB", true),
            ("<1MB", "1024KB", false),
            ("idle", "Idle", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("\"\"", "", true),
            ("!\"\"", "", false),
            ("!\"\"", "x", true),
            ("\"a*\"", "ab", false),
        ] {
            assert_eq!(matches(query, value), expected, "{query} of {value}");
        }
    }
}
