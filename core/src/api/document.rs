//! The OpenAPI 3.1 document of an API, written from its routes and from the types that they read and answer.
//!
//! Nothing in it is said twice: bounds, patterns and required fields come from the types that enforce them, what
//! the kernel refuses follows from what a route takes and needs, security from how callers are identified.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    Endpoint, Need, body,
    error::comes_back,
    subject_too_long,
    take::{Shape, Taken, Takes},
    tenant_missing,
};
use crate::{
    auth::{AuthError, Mode},
    problem::BodyFault,
    serve::Refusal,
};

/// What the document says of the API as a whole.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub title: &'static str,
    pub description: &'static str,
    /// Where it is served.
    pub path: &'static str,
    /// All codes of the service's own errors, with their statuses.
    pub errors: fn() -> Vec<(StatusCode, &'static str)>,
}

/// What a route answers when all went well.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    headers: &'static [&'static str],
    shape: Shape,
}

impl Answer {
    pub(super) fn of<T: JsonSchema>(
        status: StatusCode,
        kind: &'static str,
        headers: &'static [&'static str],
    ) -> Answer {
        Answer {
            status,
            kind,
            headers,
            shape: SchemaGenerator::subschema_for::<T>,
        }
    }
}

/// Codes by their statuses.
type Codes = BTreeMap<u16, BTreeSet<&'static str>>;

pub(super) fn write(about: &About, endpoints: &[Endpoint], mode: &Mode) -> Value {
    let mut writer = Writer {
        read: generator(SchemaSettings::draft2020_12().for_deserialize()),
        answered: generator(SchemaSettings::draft2020_12().for_serialize()),
        statuses: (about.errors)().into_iter().map(|(s, c)| (c, s)).collect(),
        told: Codes::new(),
        mode,
    };
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operation = writer.operation(endpoint);
        let methods = paths.entry(endpoint.path.replace("{*", "{")).or_default();
        methods.insert(endpoint.method.as_str().to_ascii_lowercase(), operation);
    }
    let mut elsewhere = of_server();
    elsewhere.entry(404).or_default().insert("not_found");
    let method = elsewhere.entry(405).or_default();
    method.insert("method_not_allowed");
    let elsewhere = writer.refusals(&elsewhere);
    let mut schemas = bounded(Value::Object(writer.read.take_definitions(true)));
    let answered = closed(bounded(Value::Object(
        writer.answered.take_definitions(true),
    )));
    if let (Value::Object(all), Value::Object(more)) = (&mut schemas, answered) {
        for (name, schema) in more {
            let same = all.get(&name).is_none_or(|known| *known == schema);
            debug_assert!(same, "two schemas are called {name}");
            all.insert(name, schema);
        }
        all.insert("Problem".to_owned(), problem(&writer.told));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": about.title, "version": "1", "description": about.description },
        "paths": paths,
        "components": { "securitySchemes": schemes(mode), "schemas": schemas },
        "security": [],
        // Answers to what is no operation of the above.
        "x-no-operation": elsewhere,
    })
}

fn generator(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.into_generator()
}

struct Writer<'a> {
    read: SchemaGenerator,
    answered: SchemaGenerator,
    statuses: BTreeMap<&'static str, StatusCode>,
    told: Codes,
    mode: &'a Mode,
}

impl Writer<'_> {
    fn operation(&mut self, endpoint: &Endpoint) -> Value {
        let mut takes = Takes::default();
        (endpoint.takes)(&mut takes);
        let codes = self.codes(endpoint, &takes);
        let mut responses = self.refusals(&codes);
        for answer in &endpoint.answers {
            let response = &mut responses[answer.status.as_str()];
            response["description"] = "Done.".into();
            let schema = (answer.shape)(&mut self.answered).to_value();
            response["content"][answer.kind] = json!({ "schema": closed(bounded(schema)) });
            for name in answer.headers {
                response["headers"][name] = json!({ "schema": { "type": "string" } });
            }
        }
        let mut operation = json!({
            "operationId": operation_id(endpoint),
            "summary": endpoint.about,
            "responses": responses,
        });
        let parameters = self.parameters(endpoint, &takes);
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        match takes.body {
            None => {}
            Some(Taken::Raw) => {
                let content = json!({ "application/octet-stream": {} });
                operation["requestBody"] = json!({ "required": false, "content": content });
            }
            Some(Taken::Json { shape, required }) => {
                let schema = bounded(shape(&mut self.read).to_value());
                let mut content = json!({ "schema": schema });
                for (n, example) in endpoint.examples.iter().enumerate() {
                    content["examples"][format!("example{}", n + 1)] = json!({ "value": example });
                }
                let content = json!({ "application/json": content });
                operation["requestBody"] = json!({ "required": required, "content": content });
            }
        }
        let scopes = endpoint.need.scopes();
        let security = schemes(self.mode);
        let security = security.as_object().into_iter().flat_map(Map::keys);
        let security: Vec<Value> = security.map(|name| json!({ name: scopes })).collect();
        if !security.is_empty() {
            operation["security"] = security.into();
        }
        operation
    }

    fn parameters(&mut self, endpoint: &Endpoint, takes: &Takes) -> Vec<Value> {
        let mut all = Vec::new();
        let names = endpoint
            .path
            .split('/')
            .filter(|part| part.starts_with('{'));
        let shape = takes.path.map(|shape| shape(&mut self.read).to_value());
        for (n, name) in names.enumerate() {
            // One parameter, or a tuple of them. Where nothing is taken, it is text.
            let schema = match &shape {
                None => json!({ "type": "string" }),
                Some(shape) if shape["prefixItems"].is_array() => shape["prefixItems"][n].clone(),
                Some(shape) => shape.clone(),
            };
            let rest = name.starts_with("{*");
            let name = name.trim_matches(['{', '*', '}']);
            let mut parameter =
                json!({ "name": name, "in": "path", "required": true, "schema": bounded(schema) });
            if rest {
                parameter["description"] = "The rest of the path, slashes as they are.".into();
                parameter["x-rest"] = true.into();
            }
            all.push(parameter);
        }
        let Some(query) = takes.query.map(|shape| shape(&mut self.read).to_value()) else {
            return all;
        };
        let needed = |name: &str| {
            let mut required = query["required"].as_array().into_iter().flatten();
            required.any(|required| required == name)
        };
        for (name, schema) in query["properties"].as_object().into_iter().flatten() {
            let schema = without_null(bounded(schema.clone()));
            let required = needed(name);
            all.push(
                json!({ "name": name, "in": "query", "required": required, "schema": schema }),
            );
        }
        all
    }

    fn codes(&mut self, endpoint: &Endpoint, takes: &Takes) -> Codes {
        let mut codes = of_server();
        let mut tell = |status: StatusCode, code| {
            codes.entry(status.as_u16()).or_default().insert(code);
        };
        for (status, code) in crate::admission::REFUSALS {
            tell(status, code);
        }
        for error in auth_errors(self.mode) {
            tell(error.problem().status(), error.reason());
        }
        // In every mode an operator's token may come instead, and has its own scope alone.
        for error in [AuthError::OperatorToken, AuthError::UntrustedPeer] {
            tell(error.problem().status(), error.reason());
        }
        if !endpoint.need.scopes().is_empty() {
            tell(StatusCode::FORBIDDEN, AuthError::MissingScope.reason());
        }
        if !matches!(self.mode, Mode::None) {
            if let Need::Tenant(_) = endpoint.need {
                tell(tenant_missing().status(), tenant_missing().code());
            }
            tell(subject_too_long().status(), subject_too_long().code());
        }
        if takes.path.is_some() {
            tell(StatusCode::BAD_REQUEST, "invalid_path");
        }
        if takes.query.is_some() {
            tell(StatusCode::BAD_REQUEST, "invalid_query");
        }
        if takes.body.is_some() {
            for fault in BodyFault::ALL {
                tell(fault.problem().status(), fault.code());
            }
        }
        if let Some(Taken::Json { shape, .. }) = takes.body {
            tell(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type");
            tell(StatusCode::BAD_REQUEST, "json_syntax");
            let mut own = generator(SchemaSettings::draft2020_12().for_deserialize());
            let whole = [
                shape(&mut own).to_value(),
                Value::Object(own.take_definitions(true)),
            ];
            for (_, status, code) in body::KINDS {
                let general = code.ends_with("_field");
                if general || whole.iter().any(|shape| names_code(shape, code)) {
                    tell(status, code);
                }
            }
        }
        for code in &endpoint.codes {
            let status = self.statuses.get(code);
            debug_assert!(
                status.is_some(),
                "no error of the service has the code {code}"
            );
            tell(*status.unwrap_or(&StatusCode::INTERNAL_SERVER_ERROR), code);
        }
        codes
    }

    /// The responses of these codes; each is remembered.
    fn refusals(&mut self, codes: &Codes) -> Value {
        let mut responses = Map::new();
        for (status, codes) in codes {
            self.told.entry(*status).or_default().extend(codes);
            let name = StatusCode::from_u16(*status).ok();
            let name = name.and_then(|s| s.canonical_reason()).unwrap_or("Refused");
            let schema = json!({
                "$ref": "#/components/schemas/Problem",
                "properties": { "code": { "enum": codes } },
            });
            let content = json!({ "application/problem+json": { "schema": schema } });
            let mut response = json!({ "description": name, "content": content });
            if StatusCode::from_u16(*status).is_ok_and(|status| comes_back(status).is_some()) {
                let after = json!({ "schema": { "type": "integer", "minimum": 1 } });
                response["headers"]["Retry-After"] = after;
            }
            responses.insert(status.to_string(), response);
        }
        Value::Object(responses)
    }
}

/// What the server refuses before any route is asked.
fn of_server() -> Codes {
    let mut codes = Codes::new();
    for refusal in Refusal::ALL {
        let status = refusal.problem().status().as_u16();
        codes.entry(status).or_default().insert(refusal.reason());
    }
    codes
}

fn operation_id(endpoint: &Endpoint) -> String {
    let mut id = endpoint.method.as_str().to_ascii_lowercase();
    let words = endpoint.path.split(['/', '{', '}', '*', '.', '-']);
    for word in words.filter(|word| !word.is_empty()) {
        let mut letters = word.chars();
        id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        id.extend(letters);
    }
    id
}

/// How callers identify themselves; nothing in mode `none`.
fn schemes(mode: &Mode) -> Value {
    match mode {
        Mode::None => json!({}),
        Mode::Ingress(ingress) => {
            let name = ingress.user_header.as_str();
            json!({ "ingress": { "type": "apiKey", "in": "header", "name": name } })
        }
        Mode::Passport(passport) => {
            let mut all =
                json!({ "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" } });
            if let Some(name) = &passport.cookie {
                all["cookie"] = json!({ "type": "apiKey", "in": "cookie", "name": name });
            }
            all
        }
    }
}

fn auth_errors(mode: &Mode) -> &'static [AuthError] {
    match mode {
        Mode::None => &[],
        Mode::Ingress(_) => &[
            AuthError::MissingCredentials,
            AuthError::MalformedHeader,
            AuthError::UntrustedPeer,
        ],
        Mode::Passport(_) => AuthError::OF_TOKENS,
    }
}

/// RFC 9457; more members are allowed.
fn problem(told: &Codes) -> Value {
    let codes: BTreeSet<_> = told.values().flatten().collect();
    let text = |about: &str| json!({ "type": "string", "description": about });
    json!({
        "type": "object",
        "description": "RFC 9457. Branch on `code`; it comes back after `Retry-After` exactly if it is `retryable`.",
        "required": ["type", "title", "status", "detail", "code", "retryable", "corr_id"],
        "properties": {
            "type": { "type": "string", "pattern": "^urn:ron:problem:[a-z0-9_]+$" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
            "code": { "type": "string", "enum": codes },
            "retryable": { "type": "boolean" },
            "corr_id": text("Names the request; also in `x-corr-id`."),
            "path": text("The field that is wrong."),
            "scope": text("The scope that is missing."),
            "line": { "type": "integer", "minimum": 1 },
            "column": { "type": "integer", "minimum": 0 },
        },
        "additionalProperties": true,
    })
}

/// Numbers by their bounds instead of the names of Rust's types.
fn bounded(mut schema: Value) -> Value {
    walk(&mut schema, &mut |object| {
        let most = match object.get("format").and_then(Value::as_str) {
            Some("uint8") => u8::MAX.into(),
            Some("uint16") => u16::MAX.into(),
            Some("uint32") => u32::MAX.into(),
            Some("uint64" | "uint") => u64::MAX,
            _ => return,
        };
        object.remove("format");
        object.entry("maximum").or_insert(most.into());
    });
    schema
}

/// An answer has the members that are listed and no others.
fn closed(mut schema: Value) -> Value {
    walk(&mut schema, &mut |object| {
        if object.contains_key("properties") && !object.contains_key("$ref") {
            let rest = object.entry("additionalProperties");
            rest.or_insert(Value::Bool(false));
        }
    });
    schema
}

/// A parameter that is not there is not sent: there is no null in a query.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array_mut() {
        types.retain(|name| name != "null");
        if let [one] = &types[..] {
            schema["type"] = one.clone();
        }
    }
    match schema["anyOf"].as_array().map(Vec::as_slice) {
        Some([one, null]) if null["type"] == "null" => one.clone(),
        _ => schema,
    }
}

/// Whether a type within names this code as its own.
fn names_code(schema: &Value, code: &str) -> bool {
    match schema {
        Value::Object(members) => {
            let own = members.get("x-code").is_some_and(|own| own == code);
            own || members.values().any(|member| names_code(member, code))
        }
        Value::Array(items) => items.iter().any(|item| names_code(item, code)),
        _ => false,
    }
}

fn walk(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            change(members);
            members.values_mut().for_each(|member| walk(member, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
        _ => {}
    }
}
