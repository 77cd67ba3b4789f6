//! What a handler takes from its request: each kind reads it, and says in the document what it reads.
//!
//! Always: whoever is refused here is told which part was wrong, and no value is repeated from a body.

use std::future::Future;

use axum::{
    body::Body,
    extract::{
        FromRequestParts,
        path::ErrorKind,
        rejection::{PathRejection, QueryRejection},
    },
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use super::body::{check_json, parse};
use crate::problem::{Problem, read_body};

/// An argument of a handler.
pub trait Take: Sized + Send {
    fn take(
        parts: &mut Parts,
        body: &mut Body,
    ) -> impl Future<Output = Result<Self, Problem>> + Send;

    fn document(takes: &mut Takes);
}

pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

/// What a handler's arguments say about its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Takes {
    pub(super) path: Option<Shape>,
    pub(super) query: Option<Shape>,
    pub(super) body: Option<Taken>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    Json { shape: Shape, required: bool },
    Raw,
}

/// The parameters of the path: one, or a tuple in their order.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

/// The query: a struct that denies unknown fields.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// A JSON object. Types declare `deny_unknown_fields`, so that a misspelt field is an error.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The same, and what it was parsed from.
#[derive(Clone, Debug)]
pub struct JsonText<T>(pub T, pub Bytes);

/// For requests whose fields are all optional: no body is as good as an empty object.
#[derive(Clone, Copy, Debug)]
pub struct JsonOrNothing<T>(pub T);

/// The body as it came, whatever its type.
#[derive(Clone, Debug)]
pub struct Raw(pub Bytes);

impl Take for () {
    async fn take(_: &mut Parts, _: &mut Body) -> Result<Self, Problem> {
        Ok(())
    }

    fn document(_: &mut Takes) {}
}

impl<A: Take, B: Take> Take for (A, B) {
    async fn take(parts: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        Ok((A::take(parts, body).await?, B::take(parts, body).await?))
    }

    fn document(takes: &mut Takes) {
        A::document(takes);
        B::document(takes);
    }
}

impl<A: Take, B: Take, C: Take> Take for (A, B, C) {
    async fn take(parts: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        let (a, b) = <(A, B)>::take(parts, body).await?;
        Ok((a, b, C::take(parts, body).await?))
    }

    fn document(takes: &mut Takes) {
        <(A, B)>::document(takes);
        C::document(takes);
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Take for Path<T> {
    async fn take(parts: &mut Parts, _: &mut Body) -> Result<Self, Problem> {
        Path::from_request_parts(parts, &()).await
    }

    fn document(takes: &mut Takes) {
        takes.path = Some(SchemaGenerator::subschema_for::<T>);
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Take for Query<T> {
    async fn take(parts: &mut Parts, _: &mut Body) -> Result<Self, Problem> {
        Query::from_request_parts(parts, &()).await
    }

    fn document(takes: &mut Takes) {
        takes.query = Some(T::json_schema);
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Take for Json<T> {
    async fn take(parts: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        let JsonText(request, _) = JsonText::take(parts, body).await?;
        Ok(Json(request))
    }

    fn document(takes: &mut Takes) {
        JsonText::<T>::document(takes);
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Take for JsonText<T> {
    async fn take(parts: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        check_json(&parts.headers)?;
        let text = read_body(std::mem::take(body)).await?;
        Ok(JsonText(parse(&text)?, text))
    }

    fn document(takes: &mut Takes) {
        takes.body = Some(Taken::Json {
            shape: SchemaGenerator::subschema_for::<T>,
            required: true,
        });
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Take for JsonOrNothing<T> {
    async fn take(parts: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        let text = read_body(std::mem::take(body)).await?;
        if text.is_empty() {
            return parse(b"{}").map(JsonOrNothing);
        }
        check_json(&parts.headers)?;
        parse(&text).map(JsonOrNothing)
    }

    fn document(takes: &mut Takes) {
        takes.body = Some(Taken::Json {
            shape: SchemaGenerator::subschema_for::<T>,
            required: false,
        });
    }
}

impl Take for Raw {
    async fn take(_: &mut Parts, body: &mut Body) -> Result<Self, Problem> {
        read_body(std::mem::take(body)).await.map(Raw)
    }

    fn document(takes: &mut Takes) {
        takes.body = Some(Taken::Raw);
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Path(path))
            .map_err(|error| invalid_path(&error))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::from_request_parts(parts, state).await;
        query
            .map(|axum::extract::Query(query)| Query(query))
            .map_err(|error| invalid_query(&error))
    }
}

#[cold]
fn invalid_path(error: &PathRejection) -> Problem {
    let detail = match error {
        PathRejection::FailedToDeserializePathParams(error) => match error.kind() {
            ErrorKind::Message(text) => text.clone(),
            ErrorKind::ParseErrorAtKey { expected_type, .. }
            | ErrorKind::ParseErrorAtIndex { expected_type, .. }
            | ErrorKind::ParseError { expected_type, .. } => format!("not of type {expected_type}"),
            ErrorKind::InvalidUtf8InPathParam { .. } => "not valid UTF-8".to_owned(),
            _ => "the path does not fit".to_owned(),
        },
        _ => "the path does not fit".to_owned(),
    };
    Problem::new(StatusCode::BAD_REQUEST, "invalid_path").detail(detail)
}

#[cold]
fn invalid_query(error: &QueryRejection) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_query").detail(error.body_text())
}
