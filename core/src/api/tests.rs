//! A small shop's API: who may enter, what is read, what is refused, and that its document says just that.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    check::{Came, Checker},
    fields::{Bounded, Label, Object, Ordinal, Whole},
    *,
};
use crate::{
    auth::{Passport, Via},
    problem::{read_body, with_fallbacks},
    test_env::World,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    items: Bounded<Object<Item>, 3>,
    /// For whom.
    buyer: Option<Label>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    count: Whole<1, 99>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Ordered {
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    buyer: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Page {
    limit: Option<Whole<1, 10>>,
}

struct Shop;

#[derive(Debug, thiserror::Error)]
#[error("there are none left")]
struct SoldOut;

impl ApiError for SoldOut {
    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
    fn code(&self) -> &'static str {
        "sold_out"
    }
}

async fn order(_: Call<Shop>, Json(order): Json<Order>) -> Result<Response, Problem> {
    let all: u64 = order
        .items
        .0
        .iter()
        .map(|Object(item)| item.count.get())
        .sum();
    if all > 100 {
        return Err(SoldOut.into());
    }
    let buyer = order.buyer.map(|label| label.0);
    Ok(json(StatusCode::CREATED, &Ordered { number: 1, buyer }))
}

async fn show(
    call: Call<Shop>,
    (Path(number), Query(page)): (Path<Ordinal>, Query<Page>),
) -> Result<Response, Problem> {
    let number = number.number() + page.limit.map_or(0, |limit| limit.get() as u32);
    let buyer = Some(call.identity.subject);
    Ok(json(StatusCode::OK, &Ordered { number, buyer }))
}

async fn put(_: Call<Shop>, Raw(body): Raw) -> Result<Response, Problem> {
    Ok(with_type(JSON, Body::from(format!("{}", body.len()))))
}

fn shop() -> Api<Shop> {
    const GET: Method = Method::GET;
    let about = About {
        title: "shop",
        description: "Sells.",
        path: "/openapi.json",
        errors: || vec![(SoldOut.status(), SoldOut.code())],
    };
    let (read, write) = (Need::Scope(&["read"]), Need::Tenant(&["read", "write"]));
    let routes = vec![
        route(Method::POST, "/orders", write, order, "Order")
            .example(json!({ "items": [{ "count": 1 }] }))
            .answers::<Ordered>(StatusCode::CREATED)
            .refuses(&["sold_out"]),
        route(GET, "/orders/{n}", read, show, "Show").answers::<Ordered>(StatusCode::OK),
        route(Method::PUT, "/raw", read, put, "Put").answers::<u64>(StatusCode::OK),
    ];
    Api::new(about, routes)
}

fn passport() -> Mode {
    Mode::Passport(Passport::default())
}

fn ada(tenant: Option<&str>, scopes: &[&str]) -> Identity {
    Identity {
        subject: "ada".to_owned(),
        tenant: tenant.map(str::to_owned),
        scopes: scopes
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>(),
        via: Via::Passport,
    }
}

struct Bench {
    world: World,
    telemetry: Telemetry,
    app: Router,
    checker: Checker,
}

type Answered = (u16, HeaderMap, Value);

impl Bench {
    fn new() -> Bench {
        let (world, telemetry) = (World::new(), Telemetry::new("shop", ""));
        let checker = Checker::new(shop().document(&passport()));
        let app = shop().router(Shop, &world.env(), &telemetry, &passport());
        Bench {
            world,
            telemetry,
            app: with_fallbacks(app),
            checker,
        }
    }

    /// Every answer must be as the document says.
    fn ask(
        &self,
        who: Option<Identity>,
        method: &str,
        uri: &str,
        kind: &str,
        body: impl Into<Body>,
    ) -> Answered {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("content-type", kind).body(body.into());
        let mut request = request.unwrap();
        who.map(|who| request.extensions_mut().insert(who));
        let answer = self.world.run(async {
            let response = self.app.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            (parts, read_body(body).await.unwrap())
        });
        let (parts, bytes) = answer;
        let came = Came {
            status: parts.status.as_u16(),
            kind: parts.headers[header::CONTENT_TYPE].to_str().unwrap(),
            body: &bytes,
        };
        self.checker.answer(method, uri, came).unwrap();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (came.status, parts.headers, json)
    }

    fn all(&self, method: &str, uri: &str, kind: &str, body: &str) -> (u16, String, Value) {
        let who = ada(Some("t1"), &["read", "write"]);
        let (status, _, json) = self.ask(Some(who), method, uri, kind, body.to_owned());
        (status, json["code"].as_str().unwrap_or("").to_owned(), json)
    }
}

#[test]
fn bad_bodies_are_refused_with_a_problem_that_names_the_place() {
    let bench = Bench::new();
    let json = "application/json; charset=utf-8";
    #[rustfmt::skip]
    let cases = [
        (json, r#"{"items":[{"count":1}]}"#, 201, "", ""),
        ("application/vnd.x+json", r#"{"items":[{"count":99}],"buyer":"ada"}"#, 201, "", ""),
        (json, r#"{"items":[{"count":99},{"count":2}]}"#, 409, "sold_out", ""),
        (json, r#"{"items":[{"count":1}"#, 400, "json_syntax", ""),
        (json, r#"{"items":[{"count":1}]} x"#, 400, "json_syntax", ""),
        (json, "[[]]", 422, "invalid_field", "."),
        (json, r#"{"items":[[1]]}"#, 422, "invalid_field", "items[0]"),
        (json, r#"{"items":[]}"#, 422, "invalid_field", "items"),
        (json, r#"{"items":[{"count":1},{"count":1},{"count":1},{"count":1}]}"#, 422, "invalid_field", "items"),
        (json, r#"{"items":[{"count":1,"cuont":2}]}"#, 422, "unknown_field", "items[0].cuont"),
        (json, r#"{"items":[{"count":1},{"count":"2"}]}"#, 422, "invalid_field", "items[1].count"),
        (json, r#"{"items":[{"count":0}]}"#, 422, "invalid_field", "items[0].count"),
        (json, r#"{"items":[{"count":100}]}"#, 422, "invalid_field", "items[0].count"),
        (json, r#"{"items":[{"count":1}],"buyer":"a\u0007"}"#, 422, "invalid_field", "buyer"),
        (json, "{}", 422, "missing_field", "."),
        ("text/plain", r#"{"items":[]}"#, 415, "unsupported_media_type", ""),
        ("", r#"{"items":[]}"#, 415, "unsupported_media_type", ""),
    ];
    for (kind, body, status, code, path) in cases {
        let (got, said, problem) = bench.all("POST", "/orders", kind, body);
        assert_eq!((got, &*said), (status, code), "{body}: {problem}");
        assert!(
            path.is_empty() || problem["path"] == path,
            "{body}: {problem}"
        );
        // What the document allows is taken, and nothing else is.
        let operations = bench.checker.operations();
        let order = operations.iter().find(|o| o.method == "POST").unwrap();
        if let (true, Ok(body)) = (kind == json, serde_json::from_str(body)) {
            let allowed = bench.checker.request(order, &body);
            assert_eq!(allowed.is_ok(), status < 422, "{body}: {allowed:?}");
        }
    }
}

#[test]
fn a_refusal_repeats_no_text_of_the_body() {
    let bench = Bench::new();
    let secret = "hunter2".repeat(20);
    for body in [
        json!({ "items": secret }),
        json!({ "items": [], "buyer": secret }),
    ] {
        let (_, _, problem) = bench.all("POST", "/orders", "application/json", &body.to_string());
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
    }
}

#[test]
fn unknown_paths_wrong_methods_and_bad_parameters_are_problems() {
    let bench = Bench::new();
    for (method, uri, status, code) in [
        ("GET", "/nowhere", 404, "not_found"),
        ("DELETE", "/orders", 405, "method_not_allowed"),
        ("GET", "/orders/1?page=1", 400, "invalid_query"),
        ("GET", "/orders/1?limit=11", 400, "invalid_query"),
        ("GET", "/orders/1?limit=x", 400, "invalid_query"),
        ("GET", "/orders/0", 400, "invalid_path"),
        ("GET", "/orders/4294967296", 400, "invalid_path"),
        ("GET", "/orders/x", 400, "invalid_path"),
        ("GET", "/orders/4294967285?limit=10", 200, ""),
        ("PUT", "/raw", 200, ""),
        ("GET", "/openapi.json", 200, ""),
    ] {
        let (got, said, _) = bench.all(method, uri, "", "");
        assert_eq!((got, &*said), (status, code), "{uri}");
    }
}

#[test]
fn a_caller_needs_an_identity_every_scope_a_tenant_and_a_name_of_some_length() {
    let bench = Bench::new();
    let (all, long) = (["read", "write"], "x".repeat(MAX_SUBJECT + 1));
    let named = |subject: &str| Identity {
        subject: subject.to_owned(),
        ..ada(Some("t1"), &all)
    };
    let nobody = Identity {
        via: Via::Nobody,
        ..ada(None, &[])
    };
    let cases = [
        (None, "missing_credentials"),
        (Some(ada(Some("t1"), &["read"])), "missing_scope"),
        (Some(ada(Some("t1"), &["write"])), "missing_scope"),
        (Some(ada(None, &all)), "tenant_missing"),
        (Some(ada(Some(""), &all)), "tenant_missing"),
        (Some(ada(Some("a\nb"), &all)), "tenant_missing"),
        (Some(ada(Some(&"x".repeat(129)), &all)), "tenant_missing"),
        (Some(named(&long)), "subject_too_long"),
        (Some(named(&long[1..])), ""),
        (Some(nobody), ""),
    ];
    for (who, code) in cases {
        let told = format!("{who:?}");
        let body = r#"{"items":[{"count":1}]}"#;
        let (_, _, json) = bench.ask(who, "POST", "/orders", "application/json", body);
        assert_eq!(json["code"].as_str().unwrap_or(""), code, "{told}");
    }
    // Not every route wants one.
    let (status, ..) = bench.ask(Some(ada(None, &["read"])), "GET", "/orders/1", "", "");
    assert_eq!(status, 200);
    let page = bench.telemetry.render();
    for (reason, n) in [("missing_scope", 2), ("missing_credentials", 1)] {
        let line = format!("auth_failures_total{{reason=\"{reason}\"}} {n}");
        assert!(page.contains(&line), "{page}");
    }
}

#[test]
fn the_document_is_sound_and_says_what_the_types_enforce() {
    let bench = Bench::new();
    bench.checker.sound().unwrap();
    let document = &bench.checker.document;
    let at = |pointer: &str| document.pointer(pointer).unwrap_or(&Value::Null).clone();
    for (pointer, value) in [
        (
            "/components/schemas/Item/properties/count/maximum",
            json!(99),
        ),
        (
            "/components/schemas/Item/additionalProperties",
            json!(false),
        ),
        (
            "/components/schemas/Ordered/properties/number/maximum",
            json!(u32::MAX),
        ),
        (
            "/components/schemas/Ordered/additionalProperties",
            json!(false),
        ),
        ("/components/schemas/Label/maxLength", json!(128)),
        (
            "/paths/~1orders~1{n}/get/parameters/0/schema/minimum",
            json!(1),
        ),
        (
            "/paths/~1orders~1{n}/get/parameters/1/required",
            json!(false),
        ),
        (
            "/paths/~1orders/post/security",
            json!([{ "bearer": ["read", "write"] }]),
        ),
        (
            "/x-no-operation/405/content/application~1problem+json/schema/properties/code/enum",
            json!(["method_not_allowed"]),
        ),
    ] {
        assert_eq!(at(pointer), value, "{pointer}");
    }
    let codes = at("/components/schemas/Problem/properties/code/enum");
    for code in [
        "not_found",
        "method_not_allowed",
        "sold_out",
        "draining",
        "body_too_large",
        "expired",
    ] {
        assert!(codes.as_array().unwrap().contains(&json!(code)), "{code}");
    }
    // Nobody is asked for credentials where nobody is identified.
    let open = shop().document(&Mode::None).to_string();
    for word in ["bearer", "tenant_missing", "expired", "missing_credentials"] {
        assert!(!open.contains(&format!("\"{word}\"")), "{word}");
    }
}
