//! No call that a peer can send makes a decoder panic.

use proptest::prelude::*;
use weir_csi::decode::{METHODS, decode};
use weir_csi::status::Code;

/// Fields of a message as they are on the wire: numbers, texts and messages within.
fn fields() -> BoxedStrategy<Vec<u8>> {
    let field = |number: u8, kind: u8, value: Vec<u8>| {
        let mut out = vec![number << 3 | kind];
        if kind == 2 {
            out.push(value.len() as u8);
        }
        out.extend(value);
        out
    };
    let text = prop_oneof!["l/v", "l/v/s", "nfs", ".{0,8}"];
    let leaf = prop_oneof![
        3 => (1..13u8, text).prop_map(move |(n, text)| field(n, 2, text.into_bytes())),
        1 => (1..13u8, 0..128u8).prop_map(move |(n, value)| field(n, 0, vec![value])),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    let nested = leaf.prop_recursive(3, 12, 3, move |inner| {
        (1..13u8, prop::collection::vec(inner, 0..3)).prop_map(move |(n, of)| {
            let mut of = of.concat();
            of.truncate(127);
            field(n, 2, of)
        })
    });
    let many = prop::collection::vec(nested, 0..5);
    many.prop_map(|fields| fields.concat()).boxed()
}

proptest! {
    #[test]
    fn a_call_is_read_or_refused(
        method in prop::sample::select(&METHODS[..]), message in fields()
    ) {
        if let Err(status) = decode(method, &weir_grpc::framed(&message)) {
            prop_assert!(
                [Code::InvalidArgument, Code::NotFound].contains(&status.code),
                "{}", status.message
            );
        }
    }

    #[test]
    fn any_bytes_are_a_call_or_refused(
        method in prop::sample::select(&METHODS[..]),
        body in prop::collection::vec(any::<u8>(), 0..64)
    ) {
        let _ = decode(method, &body);
    }
}
