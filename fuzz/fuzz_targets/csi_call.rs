#![no_main]

// The first byte chooses the method; the rest is the body of the call.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((method, body)) = data.split_first() else {
        return;
    };
    let methods = weir_csi::decode::METHODS;
    let path = methods[usize::from(*method) % methods.len()];
    drop(weir_csi::decode::decode(path, body));
});
