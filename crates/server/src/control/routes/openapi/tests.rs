//! The book's copy of the API description, and its generated list of routes, are current.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;
use utoipa::openapi::Response;

use super::*;

/// The routes as a Markdown table.
fn table() -> String {
    let mut text = String::from("| request | body | what it does | success |\n|---|---|---|---|\n");
    let mut document = document();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            let responses = operation.responses.responses.keys();
            let success: Vec<&str> = responses
                .filter(|status| *status != "default")
                .map(String::as_str)
                .collect();
            let body = operation.request_body.as_ref().map_or("", |_| "JSON");
            let summary = operation.summary.as_deref().unwrap_or_default();
            let summary = summary.replace('\n', " ");
            let success = success.join(", ");
            writeln!(
                text,
                "| `{method} {path}` | {body} | {summary} | {success} |"
            )
            .unwrap();
        }
    }
    text
}

/// Compares a file of the book with what it should be, or writes it where `UPDATE_BOOK` is set.
fn check(name: &str, text: &str) {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/reference");
    let path = book.join(name);
    if std::env::var_os("UPDATE_BOOK").is_some() {
        fs::write(&path, text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "book/src/reference/{name} is not what the routes are: renew it with UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage openapi"
    );
}

#[test]
fn descriptions_are_not_wrapped() {
    let wrapped = r#"{"a": "one\ntwo\n\nthree\n- four\n  five"}"#;
    let text = r#"{"a": "one two\n\nthree\n- four   five"}"#;
    assert_eq!(super::unwrapped(wrapped), text);
    // Each would end the line.
    let json = document().to_pretty_json().unwrap();
    assert!(!json.contains(r"\\"), "a description has a backslash");
}

#[test]
fn the_book_has_the_description() {
    check("openapi.json", &text());
}

#[test]
fn the_book_has_the_routes() {
    let text = format!(
        "# Routes\n\nRequests of the [control API](control-socket.md), generated from the program's routes. [openapi.json](openapi.json) is the\nfull description, which the server has at `/openapi.json`.\n\n{}",
        table()
    );
    check("api-routes.md", &text);
}

#[test]
fn every_operation_says_what_it_answers() {
    let mut document = document();
    assert!(document.paths.paths.len() > 15);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            let responses = &operation.responses.responses;
            assert!(
                responses.len() > 1,
                "{method} {path} says nothing of success"
            );
            assert!(
                operation.summary.is_some(),
                "{method} {path} has no summary"
            );
            let is_response = |one| matches!(one, &utoipa::openapi::RefOr::T(Response { .. }));
            assert!(responses.values().all(is_response));
        }
    }
}

/// Collects the keys of a composed type, with how many parts define each; returns whether a part
/// forbids the keys of the others.
fn keys_of(schemas: &Value, schema: &Value, keys: &mut BTreeMap<String, usize>) -> bool {
    let mut forbids = schema["additionalProperties"] == false;
    for key in schema["properties"].as_object().into_iter().flatten() {
        *keys.entry(key.0.clone()).or_default() += 1;
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let part = match part["$ref"].as_str() {
            Some(path) => &schemas[path.rsplit('/').next().unwrap()],
            None => part,
        };
        forbids |= keys_of(schemas, part, keys);
    }
    forbids
}

/// An object must be valid under all parts of its type at once (JSON Schema 2020-12, core,
/// 10.2.1.1): no two parts define the same key, and no part forbids unknown keys.
#[test]
fn what_is_answered_can_be_valid_under_its_type() {
    let document: Value = serde_json::from_str(&text()).unwrap();
    let schemas = &document["components"]["schemas"];
    let mut wholes = 0;
    for (name, schema) in schemas.as_object().unwrap() {
        if schema["allOf"].is_null() {
            continue;
        }
        wholes += 1;
        let mut keys = BTreeMap::new();
        assert!(
            !keys_of(schemas, schema, &mut keys),
            "{name} forbids its own keys"
        );
        let twice: Vec<_> = keys.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{name}: {twice:?}");
    }
    assert!(wholes > 5, "{wholes}");
}
