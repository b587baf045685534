//! Nothing that a bucket can return makes a decoder panic.

use proptest::prelude::*;
use weir_backup::decode::{KINDS, decode_any};

/// A page of a list of objects.
const LIST: u8 = 5;
/// A refusal.
const REFUSAL: u8 = 6;

const PAGE: &str = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
    <Contents><ETag>e</ETag><Key>a/b</Key>\
    <LastModified>2026-01-01T00:00:00Z</LastModified><Size>5</Size><StorageClass>STANDARD</StorageClass>\
    </Contents><NextContinuationToken>t</NextContinuationToken></ListBucketResult>";

#[test]
fn a_page_of_a_list_is_read_and_nothing_else_is_one() {
    assert!(decode_any(LIST, PAGE.as_bytes()));
    assert!(!decode_any(LIST, b"<html>busy</html>"));
    assert!(!decode_any(LIST, &PAGE.as_bytes()[..PAGE.len() / 2]));
}

proptest! {
    #[test]
    fn any_bytes_are_something_or_refused(
        kind in 0..KINDS, bytes in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        let _ = decode_any(kind, &bytes);
    }

    /// A page in which something was changed: what gets past the first check.
    #[test]
    fn a_damaged_page_is_refused_or_read(
        at in 0..PAGE.len(), piece in "[<>/&;a-zA-Z0-9\"!\\[\\]-]{0,8}", cut in 0..40usize
    ) {
        let end = (at + cut).min(PAGE.len());
        let text = format!("{}{piece}{}", &PAGE[..at], &PAGE[end..]);
        let _ = decode_any(LIST, text.as_bytes());
        prop_assert!(decode_any(REFUSAL, text.as_bytes()));
    }
}
