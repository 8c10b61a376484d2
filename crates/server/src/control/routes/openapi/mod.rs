//! `/openapi.json`: the API description, generated from the routes and their types, and the book's
//! copies of it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use api::config::schema::describe;
use api::refusal::Document;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, Info, License, OpenApi, Ref, RefOr, Required, ResponseBuilder, ServerBuilder,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::routes;

use super::{Routes, resources};

/// The content type of OpenAPI documents (draft of the OpenAPI initiative's registration).
const CONTENT_TYPE: &str = "application/vnd.oai.openapi+json;version=3.1";

pub(super) fn routes() -> Routes {
    Routes::new().routes(routes!(openapi))
}

/// This API description
#[utoipa::path(get, path = "/openapi.json", tag = "inventory", responses((status = 200, content_type = "application/vnd.oai.openapi+json")))]
async fn openapi() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(text);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.as_str()).into_response()
}

fn text() -> String {
    let mut text = unwrapped(&document().to_pretty_json().expect("it has only text keys"));
    text.push('\n');
    text
}

/// JSON whose descriptions have one line for each paragraph and item of a list: their sources are
/// comments, and where those are wrapped is of no meaning to readers.
fn unwrapped(json: &str) -> String {
    const BREAK: &str = "\\n";
    let mut parts = json.split(BREAK);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut after_empty = false;
    for part in parts {
        let keeps = part.is_empty() || after_empty || part.starts_with(['-', '*', '|', '#', '`']);
        text.push_str(if keeps { BREAK } else { " " });
        text.push_str(part);
        after_empty = part.is_empty();
    }
    text
}

/// The API description.
fn document() -> OpenApi {
    let mut document = resources().into_openapi();
    let mut info = Info::new("nvmirage", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Control API of nvmirage, software-emulated NVMe drives. Objects have the keys, units and defaults of the configuration."
            .into(),
    );
    let mut license = License::new("MIT OR Apache-2.0");
    license.identifier = Some("MIT OR Apache-2.0".into());
    info.license = Some(license);
    document.info = info;
    let here = ServerBuilder::new()
        .url("http://localhost")
        .description(Some("Control socket, or the address of `[control] tcp`"));
    document.servers = Some(vec![here.build()]);
    // the socket needs no token, TCP does
    document.security = Some(vec![
        SecurityRequirement::default(),
        SecurityRequirement::new("token", [] as [&str; 0]),
    ]);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    if let Some(components) = &mut document.components {
        let mut schemas = vec![(Document::name().into_owned(), Document::schema())];
        Document::schemas(&mut schemas);
        components.schemas.extend(schemas);
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        describe(&mut components.schemas);
        open_parts(&mut components.schemas);
    }
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            complete(path, method, operation);
        }
    }
    document
}

/// Allows additional properties in types that are part of another type (`allOf`), because these are
/// the other's keys. Request bodies with unknown keys are rejected nevertheless.
fn open_parts(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let wholes = schemas.values().filter_map(|schema| match schema {
        RefOr::T(Schema::AllOf(whole)) => Some(whole),
        _ => None,
    });
    let parts: Vec<String> = wholes
        .flat_map(|whole| &whole.items)
        .filter_map(|part| match part {
            RefOr::Ref(part) => part.ref_location.rsplit('/').next().map(str::to_owned),
            RefOr::T(_) => None,
        })
        .collect();
    for part in parts {
        if let Some(RefOr::T(Schema::Object(part))) = schemas.get_mut(&part) {
            part.additional_properties = None;
        }
    }
}

/// The operations of a path.
pub(super) fn operations(
    item: &mut PathItem,
) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("GET", &mut item.get),
        ("PUT", &mut item.put),
        ("POST", &mut item.post),
        ("PATCH", &mut item.patch),
        ("DELETE", &mut item.delete),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds what all operations have in common: path parameters, preconditions, and problems.
fn complete(path: &str, method: &str, operation: &mut Operation) {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let parameters = operation.parameters.get_or_insert_default();
    for name in path.split(['{', '}']).skip(1).step_by(2) {
        if parameters
            .iter()
            .any(|there| matches!(there, RefOr::T(there) if there.name == name))
        {
            continue;
        }
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(text()));
        parameters.push(RefOr::T(parameter.build()));
    }
    if matches!(method, "PUT" | "PATCH" | "DELETE") {
        let parameter = ParameterBuilder::new()
            .name("If-Match")
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "`ETag` of the object when it was last read; the request fails with 412 if the object has changed since",
            ))
            .required(Required::False)
            .schema(Some(text()));
        parameters.push(RefOr::T(parameter.build()));
    }
    if parameters.is_empty() {
        operation.parameters = None;
    }
    let problem = ResponseBuilder::new()
        .description("cause of the error, and the next step (RFC 9457)")
        .content(
            "application/problem+json",
            Content::new(Some(Ref::from_schema_name(Document::name()))),
        );
    let responses = &mut operation.responses.responses;
    for (status, response) in &mut *responses {
        if let RefOr::T(response) = response {
            let status = status
                .parse()
                .ok()
                .and_then(|status| StatusCode::from_u16(status).ok());
            let reason = status.and_then(|status| status.canonical_reason());
            let description = reason.unwrap_or_default().to_lowercase();
            if response.description.is_empty() {
                response.description = description;
            }
        }
    }
    let default = || problem.build().into();
    responses.entry("default".into()).or_insert_with(default);
}

#[cfg(test)]
mod tests;
