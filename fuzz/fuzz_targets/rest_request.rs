#![no_main]

use weir_api::{filter::Filter, json, mask::Mask, query::Query, route, schema};

// The lines of the input are a path, a query, a filter and a mask; the rest is a body.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut lines = data.splitn(5, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let [path, query, filter, mask] = [(); 4].map(|()| String::from_utf8_lossy(next()));
    drop(route::find(Some(route::Verb::Get), &path));
    drop(Query::parse(&query));
    let body = next();
    for message in [&schema::netapp::VOLUME, &schema::filestore::INSTANCE] {
        let filter = Filter::parse(message, &filter);
        let Ok(object) = json::decode_body(message, body) else {
            continue;
        };
        drop(filter.map(|filter| filter.map(|filter| filter.matches(&object))));
        drop(Mask::parse(message, Some(&mask), &object).map(|mask| mask.apply(&object, &object)));
    }
});
