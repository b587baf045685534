#![no_main]

// The first byte chooses what a bucket has returned: an object of a vault, or a reply of S3.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((kind, bytes)) = data.split_first() {
        let _ = weir_backup::decode::decode_any(*kind, bytes);
    }
});
