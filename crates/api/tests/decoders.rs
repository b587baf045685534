//! Nothing that a client can send makes a decoder panic, and what a decoder accepts it accepts
//! again once encoded.

#![allow(clippy::unwrap_used)] // A test may panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use weir_api::filter::Filter;
use weir_api::json::{EnumsAs, Object, decode, decode_body, encode};
use weir_api::mask::Mask;
use weir_api::page::{ListParams, ListQuery};
use weir_api::query::Query;
use weir_api::route::{self, Verb};
use weir_api::schema::{Field, Kind, Message, filestore, netapp};
use weir_api::{active_directory, filestore as to_filestore, netapp as to_netapp};
use weir_control::LocationName;

fn roots() -> Vec<&'static Message> {
    vec![
        &netapp::STORAGE_POOL,
        &netapp::ACTIVE_DIRECTORY,
        &netapp::VOLUME,
        &netapp::SNAPSHOT,
        &netapp::REVERT_VOLUME_REQUEST,
        &filestore::INSTANCE,
        &filestore::SNAPSHOT,
        &filestore::REVERT_INSTANCE_REQUEST,
    ]
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        any::<i64>().prop_map(|n| json!(n.to_string())),
        ".{0,12}".prop_map(Value::from),
        Just(json!("NFSV3")),
        Just(json!("READ_ONLY")),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::hash_map("[a-zA-Z_]{0,12}", inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
    .boxed()
}

/// Mostly right, now and then not: what gets past the first check.
fn field_value(f: &'static Field, depth: u32) -> BoxedStrategy<Value> {
    let one = match f.kind {
        Kind::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Kind::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Kind::Int64 => prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<i64>().prop_map(|n| json!(n.to_string())),
            (0i64..5000).prop_map(Value::from),
        ]
        .boxed(),
        Kind::Double => any::<f64>().prop_map(|f| json!(f)).boxed(),
        Kind::Timestamp => Just(json!("2026-01-01T00:00:00.5Z")).boxed(),
        Kind::Labels => prop::collection::hash_map("[a-z-]{0,5}", "[a-zA-Z]{0,5}", 0..4)
            .prop_map(|m| json!(m))
            .boxed(),
        Kind::Enum(e) => {
            let n = e.values.len();
            (0..n, any::<bool>())
                .prop_map(|(i, number)| {
                    let v = e.values[i];
                    if number { json!(v.1) } else { json!(v.0) }
                })
                .boxed()
        }
        Kind::Message(m) if depth > 0 => message(m, depth - 1),
        _ => prop_oneof!["[a-z0-9./,*-]{0,12}", ".{0,6}"]
            .prop_map(Value::from)
            .boxed(),
    };
    let one = prop_oneof![30 => one, 1 => any_json()].boxed();
    if f.repeated {
        prop::collection::vec(one, 0..3)
            .prop_map(Value::Array)
            .boxed()
    } else {
        one
    }
}

fn message(m: &'static Message, depth: u32) -> BoxedStrategy<Value> {
    let fields = prop::sample::subsequence(m.fields.iter().collect::<Vec<_>>(), 0..=m.fields.len());
    fields
        .prop_flat_map(move |fields| {
            fields
                .into_iter()
                .map(|f| field_value(f, depth).prop_map(move |v| (f.name.to_owned(), v)))
                .collect::<Vec<_>>()
        })
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
        .boxed()
}

fn some_message() -> BoxedStrategy<(&'static Message, Value)> {
    prop::sample::select(roots())
        .prop_flat_map(|m| prop_oneof![message(m, 4), any_json()].prop_map(move |v| (m, v)))
        .boxed()
}

/// Everything behind the decoder that reads a message.
fn into_model(object: &Object) {
    let place = LocationName::local();
    let current = Object::new();
    drop(to_netapp::new_pool(&place, object.clone()));
    drop(to_netapp::pool_change(&place, object.clone(), &current));
    drop(active_directory::new(object.clone()));
    drop(active_directory::change(object.clone(), &current));
    drop(to_netapp::new_volume(&place, object.clone()));
    drop(to_netapp::volume_change(&place, object.clone(), &current));
    drop(to_netapp::new_snapshot(object.clone()));
    drop(to_netapp::snapshot_change(object.clone()));
    drop(to_filestore::new_instance(&place, object.clone()));
    drop(to_filestore::instance_change(
        object.clone(),
        Some("00"),
        &current,
    ));
}

/// Methods of each shape: a name, a name in a resource, a body of all fields, parameters, JSON.
const CALLS: &[&str] = &[
    "/google.cloud.netapp.v1.NetApp/ListVolumes",
    "/google.cloud.netapp.v1.NetApp/GetVolume",
    "/google.cloud.netapp.v1.NetApp/CreateVolume",
    "/google.cloud.netapp.v1.NetApp/UpdateVolume",
    "/google.cloud.netapp.v1.NetApp/RevertVolume",
    "/google.cloud.netapp.v1.NetApp/CreateActiveDirectory",
    "/google.cloud.netapp.v1.NetApp/UpdateReplication",
    "/google.cloud.netapp.v1.NetApp/ExecuteOntapPost",
    "/google.cloud.filestore.v1.CloudFilestoreManager/CreateInstance",
    "/google.cloud.filestore.v1.CloudFilestoreManager/UpdateInstance",
    "/google.longrunning.Operations/ListOperations",
    "/google.longrunning.Operations/WaitOperation",
    "/google.cloud.location.Locations/ListLocations",
];

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 128 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn field(number: u64, wire_type: u64, value: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | wire_type);
    if wire_type == 2 {
        out.extend(varint(value.len() as u64));
    }
    out.extend_from_slice(value);
    out
}

/// Fields as messages have them on the wire, with small numbers, nested, some of them names.
fn wire() -> BoxedStrategy<Vec<u8>> {
    let name = prop_oneof![
        Just("projects/p/locations/l".to_owned()),
        Just("projects/p/locations/l/volumes/v".to_owned()),
        Just("projects/p/locations/l/instances/i".to_owned()),
        Just("projects/p/locations/l/storagePools/p/ontap/api/x".to_owned()),
        "projects/[ -~]{0,8}/locations/[a-z%?&#é:]{1,8}(/volumes/[ -~]{1,8})?",
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        4 => (1u64..24, name).prop_map(|(n, text)| field(n, 2, text.as_bytes())),
        2 => (1u64..60, any::<u64>()).prop_map(|(n, v)| field(n, 0, &varint(v))),
        1 => (1u64..60, any::<[u8; 8]>()).prop_map(|(n, v)| field(n, 1, &v)),
        1 => (1u64..60, any::<[u8; 4]>()).prop_map(|(n, v)| field(n, 5, &v)),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    let many = |of: BoxedStrategy<Vec<u8>>| {
        prop::collection::vec(of, 0..5).prop_map(|fields| fields.concat())
    };
    let nested = leaf.prop_recursive(4, 24, 4, move |inner| {
        (1u64..24, many(inner.boxed())).prop_map(|(n, message)| field(n, 2, &message))
    });
    many(nested.boxed()).boxed()
}

fn call(path: &str, message: &[u8]) -> Result<(), TestCaseError> {
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    match weir_api::grpc::decode(path, &body) {
        Ok(request) => {
            let target: axum::http::Uri = request.target.parse().unwrap();
            prop_assert!(target.path().starts_with("/v1/projects/"));
            prop_assert!(Query::parse(target.query().unwrap_or_default()).is_ok());
            let body = request.body.map(|b| serde_json::from_str::<Value>(&b));
            prop_assert!(body.is_none_or(|b| b.is_ok()));
        }
        Err(e) => prop_assert!(matches!(e.code(), 400 | 404), "{}", e.message),
    }
    Ok(())
}

/// A message that nests deeper than any does is refused, and costs no stack.
#[test]
fn calls_that_nest_without_end() {
    let mut message = Vec::new();
    for _ in 0..20_000 {
        message = field(3, 2, &message);
        if message.len() > 200_000 {
            break;
        }
    }
    for path in CALLS {
        call(path, &message).unwrap();
    }
    let mut value = field(3, 2, b"x");
    for _ in 0..2000 {
        value = field(6, 2, &field(1, 2, &value));
    }
    let body = field(2, 2, &field(1, 2, &field(2, 2, &value)));
    call("/google.cloud.netapp.v1.NetApp/ExecuteOntapPost", &body).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn messages((m, value) in some_message(), mask in "[a-zA-Z_.,*]{0,40}") {
        match decode(m, &value) {
            Ok(object) => {
                let wire = encode(m, &object, EnumsAs::Names);
                prop_assert_eq!(decode(m, &wire).map_err(|e| e.message), Ok(object.clone()));
                encode(m, &object, EnumsAs::Numbers);
                if let Ok(mask) = Mask::parse(m, Some(&mask), &object) {
                    into_model(&mask.apply(&object, &object));
                }
                let everything = Mask::parse(m, Some("*"), &object).unwrap();
                into_model(&everything.apply(&Object::new(), &object));
                into_model(&object);
            }
            Err(e) => {
                prop_assert_eq!(e.code(), 400);
                prop_assert!(!e.violations.is_empty() && e.violations.len() <= 20);
            }
        }
    }

    #[test]
    fn bodies(m in prop::sample::select(roots()), body in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(decode_body(m, &body));
    }

    #[test]
    fn calls(path in prop::sample::select(CALLS), message in wire()) {
        call(path, &message)?;
    }

    #[test]
    fn framings(path in prop::sample::select(CALLS), body in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(weir_api::grpc::decode(path, &body));
    }

    #[test]
    fn filters(
        m in prop::sample::select(roots()),
        text in prop_oneof![
            ".{0,60}",
            r#"(labels\.[a-z]|name|capacityGib|state|NOT|AND|OR|\(|\)|=|!=|<|>=|:|"[a-z]*"|[0-9]{1,4}|\*|-| ){0,20}"#,
        ],
        (of, value) in some_message(),
    ) {
        if let Ok(Some(filter)) = Filter::parse(m, &text) {
            if let (Value::Object(o), true) = (&value, std::ptr::eq(m, of)) {
                filter.matches(o);
            }
        }
    }

    #[test]
    fn lists(m in prop::sample::select(roots()), size in ".{0,6}", token in "[A-Za-z0-9_-]{0,30}", order in "[a-zA-Z_., ]{0,30}") {
        let params = ListParams { page_size: Some(&size), page_token: Some(&token), filter: None, order_by: Some(&order) };
        drop(ListQuery::parse(m, "c", params));
    }

    #[test]
    fn targets(path in "[/a-zA-Z0-9:%*._-]{0,80}", query in "[a-zA-Z0-9=&%+$.;]{0,60}") {
        drop(route::find(Some(Verb::Get), &path));
        drop(Query::parse(&query));
    }
}
