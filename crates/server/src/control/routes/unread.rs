//! Refuses queries and bodies that a route does not read: a consent in the wrong place, or a
//! misspelt parameter, would have no effect.

use std::collections::HashMap;
use std::sync::Arc;

use api::Refusal;
use axum::Router;
use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::openapi::operations;
use crate::control::Refused;

/// Input of an operation.
#[derive(Debug)]
struct Input {
    has_query: bool,
    has_body: bool,
}

impl Input {
    fn of(operation: &Operation) -> Self {
        let mut parameters = operation.parameters.iter().flatten();
        Input {
            has_query: parameters
                .any(|one| matches!(one, RefOr::T(one) if one.parameter_in == ParameterIn::Query)),
            has_body: operation.request_body.is_some(),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let query = request.uri().query().unwrap_or_default();
        if !self.has_query && !query.is_empty() {
            return Err(Refusal::invalid(format!(
                "?{query}: this request has no parameters: remove them; /openapi.json lists the parameters of each"
            )));
        }
        if !self.has_body && !request.body().is_end_stream() {
            return Err(Refusal::invalid(
                "this request has no body: remove it; /openapi.json lists the parameters and the body of each",
            ));
        }
        Ok(())
    }
}

/// Inputs by path, for each method.
type Inputs = HashMap<String, Vec<(&'static str, Input)>>;

/// Adds the check to the routes that `document` describes.
pub(super) fn refused(routes: Router<super::Desk>, mut document: OpenApi) -> Router<super::Desk> {
    let mut inputs = Inputs::new();
    for (path, item) in &mut document.paths.paths {
        let methods = operations(item).map(|(method, operation)| (method, Input::of(operation)));
        inputs.insert(path.clone(), methods.collect());
    }
    routes.route_layer(middleware::from_fn_with_state(Arc::new(inputs), check))
}

async fn check(
    State(inputs): State<Arc<Inputs>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let mut methods = inputs.get(path.as_str()).into_iter().flatten();
    let input = methods.find(|(method, _)| request.method() == method);
    match input.map(|(_, input)| input.check(&request)) {
        Some(Err(refusal)) => Refused::from(refusal).into_response(),
        Some(Ok(())) | None => next.run(request).await,
    }
}
