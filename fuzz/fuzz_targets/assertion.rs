#![no_main]

// A signed set of claims, before its signature is checked.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(assertion) = weir_api::assertion::Assertion::parse(text) {
        drop(assertion.account());
    }
    drop(weir_api::assertion::check_key(text, "publicKey"));
});
