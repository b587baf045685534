//! Calls as requests to REST, and replies as messages: by the public APIs' own descriptors.
//!
//! A method has a rule (google.api.http) that says which request of REST it is: the verb, the path
//! with a field of the message in it, and the field that is the body. Fields that are in neither
//! are parameters of the query. Messages turn into JSON and back by protobuf's own mapping.

use crate::error::{ApiError, ApiResult, Violation};
use crate::json::abbreviate;
use crate::schema;
use axum::http::Method as Verb;
use prost_reflect::prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor,
    ReflectMessage as _, Value as Field,
};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;
use weir_base::percent::{UNRESERVED, escape};
use weir_control::Status;

/// Parameter that asks for enums as numbers: a name that the descriptors do not know would not
/// become a field.
const NUMBERS: &str = "$alt=json;enum-encoding=int";

/// All that calls are decoded and replies are encoded by.
pub struct Services {
    methods: HashMap<String, Method>,
    status: Option<MessageDescriptor>,
}

/// A method of a service.
pub struct Method {
    rule: Option<Rule>,
    input: MessageDescriptor,
    output: MessageDescriptor,
}

/// The request of REST that a method is (google.api.http).
struct Rule {
    verb: Verb,
    /// The path in front of the field.
    before: String,
    /// The field that is in the path, and the messages on the way to it.
    field: Vec<String>,
    /// Parts of the field's value, where `*` is one, and `**` at the end any number of them.
    pattern: String,
    /// The path behind the field.
    after: String,
    body: Body,
}

/// The body of a request to REST.
enum Body {
    None,
    /// The field of this name.
    Field(String),
    /// All fields that are not in the path.
    Rest,
}

/// A request to REST.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The HTTP method.
    pub verb: Verb,
    /// The path with its query.
    pub target: String,
    /// The body, in JSON.
    pub body: Option<String>,
}

/// Returns the services, which are read once.
pub fn services() -> &'static Services {
    static SERVICES: LazyLock<Services> = LazyLock::new(Services::read);
    &SERVICES
}

impl Services {
    fn read() -> Services {
        let pool = schema::pool();
        let mut methods = HashMap::new();
        for service in pool.services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                let made = Method {
                    rule: Rule::from_method(pool, &method),
                    input: method.input(),
                    output: method.output(),
                };
                methods.insert(path, made);
            }
        }
        let status = pool.get_message_by_name("google.rpc.Status");
        Services { methods, status }
    }

    /// Returns the method of a call's path, such as `/google.longrunning.Operations/GetOperation`.
    ///
    /// # Errors
    /// UNIMPLEMENTED: no service has it.
    pub fn method(&self, path: &str) -> ApiResult<&Method> {
        self.methods.get(path).ok_or_else(|| {
            ApiError::new(
                Status::Unimplemented,
                "NO_SUCH_METHOD",
                format!("No such method: {}", abbreviate(path)),
            )
            .over_http(404)
        })
    }

    /// Returns an error as an encoded `google.rpc.Status`, with the details that REST has.
    pub fn status(&self, e: &ApiError) -> Option<Vec<u8>> {
        let value = serde_json::json!({
            "code": e.status.grpc(),
            "message": e.message,
            "details": e.details(),
        });
        let status = DynamicMessage::deserialize(self.status.clone()?, value);
        status.ok().map(|s| s.encode_to_vec())
    }
}

impl Method {
    /// Turns an encoded message into the request of REST that it is.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is not the method's message, has fields that this server does not know,
    /// or names a resource of another kind.
    pub fn request(&self, message: &[u8]) -> ApiResult<Request> {
        let mut message = self.decode(message)?;
        let Some(rule) = &self.rule else {
            return Err(ApiError::new(
                Status::Unimplemented,
                "NO_SUCH_METHOD",
                "This method is not implemented by this server",
            )
            .over_http(404));
        };
        let path = rule.path(&message)?;
        let masks = take_masks(&mut message);
        let mut fields = json(&message)?;
        if let [name] = rule.field.as_slice() {
            fields.remove(&json_name(&self.input, name));
        }
        let body = match &rule.body {
            Body::None => None,
            Body::Field(name) => {
                let body = fields.remove(&json_name(&self.input, name));
                Some(body.unwrap_or_else(|| Value::Object(Map::new())))
            }
            Body::Rest => Some(Value::Object(std::mem::take(&mut fields))),
        };
        let mut target = format!("{path}?{NUMBERS}");
        for (name, text) in masks {
            parameter(&mut target, &name, &Value::String(text));
        }
        for (name, value) in &fields {
            parameter(&mut target, name, value);
        }
        Ok(Request {
            verb: rule.verb.clone(),
            target,
            body: body.map(|b| b.to_string()),
        })
    }

    /// Decodes the method's message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is another message.
    pub fn decode(&self, message: &[u8]) -> ApiResult<DynamicMessage> {
        let decoded = DynamicMessage::decode(self.input.clone(), message).map_err(|e| {
            let name = self.input.full_name();
            invalid(format!("Invalid message: no {name}: {e}"))
        })?;
        known(&decoded)?;
        Ok(decoded)
    }

    /// Returns the encoded message whose `name` is this.
    pub fn encode_name(&self, name: &str) -> Vec<u8> {
        let mut message = DynamicMessage::new(self.input.clone());
        // A message without the field stays empty, which is refused as a name is that is none.
        drop(message.try_set_field_by_name("name", Field::String(name.to_owned())));
        message.encode_to_vec()
    }

    /// Turns the body of REST's response into the encoded reply. Fields that the descriptors do not
    /// have are left out.
    ///
    /// # Errors
    /// INTERNAL: the response is not the reply's message.
    pub fn reply(&self, body: &[u8]) -> ApiResult<Vec<u8>> {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        let reply = serde_json::from_slice(body).and_then(|mut json: Value| {
            complete(&mut json);
            DynamicMessage::deserialize_with_options(self.output.clone(), json, &options)
        });
        let reply = reply.map_err(|e| {
            ApiError::new(
                Status::Internal,
                "BROKEN_REPLY",
                format!("The response is no {}: {e}", self.output.full_name()),
            )
        })?;
        Ok(reply.encode_to_vec())
    }
}

/// Returns the operation and the time of a `WaitOperationRequest`; without a time, `None`.
pub fn wait_request(message: &DynamicMessage) -> (String, Option<Duration>) {
    let number = |of: &DynamicMessage, name: &str| match of.get_field_by_name(name).as_deref() {
        Some(Field::I64(n)) => u64::try_from(*n).unwrap_or(0),
        Some(Field::I32(n)) => u64::try_from(*n).unwrap_or(0),
        _ => 0,
    };
    let time = message.has_field_by_name("timeout").then(|| {
        let time = message.get_field_by_name("timeout");
        let time = time.as_deref().and_then(Field::as_message);
        time.map_or(Duration::ZERO, |t| {
            Duration::from_secs(number(t, "seconds")) + Duration::from_nanos(number(t, "nanos"))
        })
    });
    (text_of(message, &["name".to_owned()]), time)
}

/// Adds the value that protobuf's mapping has of an Empty in an Any, and the public APIs leave out.
fn complete(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            let kind = fields.get("@type").and_then(Value::as_str);
            if kind == Some("type.googleapis.com/google.protobuf.Empty") {
                fields.insert("value".to_owned(), Value::Object(Map::new()));
            } else {
                fields.values_mut().for_each(complete);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(complete),
        _ => {}
    }
}

fn invalid(message: impl Into<String>) -> Box<ApiError> {
    ApiError::new(Status::InvalidArgument, "INVALID_MESSAGE", message)
}

/// Refuses fields that the descriptors do not have: they would be dropped, and the caller would
/// believe that they were obeyed.
fn known(message: &DynamicMessage) -> ApiResult<()> {
    if let Some(unknown) = message.unknown_fields().next() {
        let (name, number) = (message.descriptor(), unknown.number());
        return Err(invalid(format!(
            "Unknown field {number} of {}: this server does not have it",
            name.full_name()
        )));
    }
    for (_, value) in message.fields() {
        match value {
            Field::Message(inner) => known(inner)?,
            Field::List(all) => all
                .iter()
                .filter_map(Field::as_message)
                .try_for_each(known)?,
            Field::Map(all) => all
                .values()
                .filter_map(Field::as_message)
                .try_for_each(known)?,
            _ => {}
        }
    }
    Ok(())
}

/// Removes the masks of a message, and returns them by their names in JSON. Protobuf's mapping
/// would refuse paths such as `*`, which REST takes.
fn take_masks(message: &mut DynamicMessage) -> Vec<(String, String)> {
    let fields = message.descriptor();
    let masks = fields.fields().filter(
        |f| matches!(f.kind(), Kind::Message(m) if m.full_name() == "google.protobuf.FieldMask"),
    );
    let mut out = Vec::new();
    for field in masks {
        let Some(Field::Message(mask)) = message.take_field(&field) else {
            continue;
        };
        let paths = mask.get_field_by_name("paths");
        let paths = paths.as_deref().and_then(Field::as_list);
        let paths: Vec<&str> = paths
            .unwrap_or_default()
            .iter()
            .filter_map(Field::as_str)
            .collect();
        out.push((field.json_name().to_owned(), paths.join(",")));
    }
    out
}

fn json(message: &DynamicMessage) -> ApiResult<Map<String, Value>> {
    match serde_json::to_value(message) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(e) => Err(invalid(format!("Invalid message: {e}"))),
    }
}

fn json_name(message: &MessageDescriptor, field: &str) -> String {
    let field = message.get_field_by_name(field);
    field.map_or_else(String::new, |f| f.json_name().to_owned())
}

/// Adds a parameter to a query; a list is one parameter for each of its items.
fn parameter(target: &mut String, name: &str, value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| parameter(target, name, item)),
        Value::Object(fields) => {
            for (field, value) in fields {
                parameter(target, &format!("{name}.{field}"), value);
            }
        }
        Value::String(text) => {
            let _ = write!(target, "&{name}=");
            escape(target, text, UNRESERVED);
        }
        other => {
            let _ = write!(target, "&{name}={other}");
        }
    }
}

impl Rule {
    fn from_method(pool: &DescriptorPool, method: &MethodDescriptor) -> Option<Rule> {
        let options = method.options();
        let rule = options.get_extension(&pool.get_extension_by_name("google.api.http")?);
        let rule = rule.as_message()?;
        let text = |name: &str| {
            let field = rule.get_field_by_name(name);
            let field = field.as_deref().and_then(Field::as_str);
            field.unwrap_or_default().to_owned()
        };
        let verbs = [
            ("get", Verb::GET),
            ("post", Verb::POST),
            ("patch", Verb::PATCH),
            ("delete", Verb::DELETE),
        ];
        let (path, verb) = verbs
            .into_iter()
            .map(|(name, verb)| (text(name), verb))
            .find(|(path, _)| !path.is_empty())?;
        let (before, rest) = path.split_once('{')?;
        let (variable, after) = rest.split_once('}')?;
        let (field, pattern) = variable.split_once('=')?;
        Some(Rule {
            verb,
            before: before.to_owned(),
            field: field.split('.').map(str::to_owned).collect(),
            pattern: pattern.to_owned(),
            after: after.to_owned(),
            body: match &*text("body") {
                "" => Body::None,
                "*" => Body::Rest,
                name => Body::Field(name.to_owned()),
            },
        })
    }

    /// Returns the path of the request, with the field's value in it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the value is no name of the kind that the method takes.
    fn path(&self, message: &DynamicMessage) -> ApiResult<String> {
        let value = text_of(message, &self.field);
        if !fits(&self.pattern, &value) {
            let field = self.field.join(".");
            return Err(ApiError::fields(vec![Violation {
                description: format!(
                    "Invalid value at '{field}', \"{}\": expected {}",
                    abbreviate(&value),
                    self.pattern
                ),
                field,
            }]));
        }
        let mut out = self.before.clone();
        for (n, part) in value.split('/').enumerate() {
            if n > 0 {
                out.push('/');
            }
            escape(&mut out, part, UNRESERVED);
        }
        out.push_str(&self.after);
        Ok(out)
    }
}

/// Returns the text of a field; empty if it or a message on the way to it is not set.
fn text_of(message: &DynamicMessage, field: &[String]) -> String {
    let Some((first, rest)) = field.split_first() else {
        return String::new();
    };
    let value = message.get_field_by_name(first);
    match value.as_deref() {
        Some(Field::String(text)) if rest.is_empty() => text.clone(),
        Some(Field::Message(inner)) => text_of(inner, rest),
        _ => String::new(),
    }
}

/// Returns true if a name has the parts of a pattern, none of them empty or a verb.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = name.split('/');
    for (n, wanted) in pattern.split('/').enumerate() {
        if wanted == "**" {
            return parts.all(|part| !part.is_empty());
        }
        // A project of a domain is `example.com:name`; elsewhere a colon begins a verb of REST's.
        let good = |part: &str| !part.is_empty() && (n == 1 || !part.contains(':'));
        match parts.next() {
            Some(part) if wanted == "*" && good(part) => {}
            Some(part) if wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}
