#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else {
        return;
    };
    drop(weir_ontap::grammar::parse(line, weir_ontap::commands::COMMANDS));
    drop(weir_ontap::help(line));
    drop(weir_ontap::complete(line, |_| Vec::new()));
    let (query, text) = line.split_once('\n').unwrap_or((line, ""));
    let _ = weir_ontap::query::matches(query, text);
});
